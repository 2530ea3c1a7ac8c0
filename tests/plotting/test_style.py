from choicegp.plotting.style import legend_below, new_figure, panels


def test_figures_stay_outside_pyplot():
    from matplotlib import pyplot

    figure = new_figure(3.0, 2.0)
    assert figure.get_size_inches().tolist() == [3.0, 2.0]
    assert not pyplot.get_fignums()


def test_panels_that_are_not_needed_are_removed():
    figure = new_figure(3.0, 2.0)
    assert len(panels(figure, 5, 3)) == len(figure.axes) == 5


def test_one_legend_below_names_everything_once():
    figure = new_figure(3.0, 2.0)
    for ax, labels in zip(panels(figure, 2), ("ab", "bc"), strict=True):
        for label in labels:
            ax.plot([0, 1], label=label)
    legend_below(figure, 2)
    [legend] = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b", "c"]

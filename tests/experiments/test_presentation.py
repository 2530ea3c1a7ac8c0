from choicegp.experiments.presentation import markdown_table, new_figure


def test_a_table_has_a_row_for_each_line_and_empty_cells():
    text = markdown_table(("a", "b"), [(1, None), ("x", 2.5)])
    assert text.splitlines() == ["| a | b |", "|---|---|", "| 1 |  |", "| x | 2.5 |"]


def test_a_table_without_rows_has_its_head():
    assert markdown_table(("a",), []).splitlines() == ["| a |", "|---|"]


def test_figures_stay_outside_pyplot():
    from matplotlib import pyplot

    figure = new_figure(3.0, 2.0)
    assert figure.get_size_inches().tolist() == [3.0, 2.0]
    assert not pyplot.get_fignums()

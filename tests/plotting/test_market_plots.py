"""Plots of shares and of what is derived from them: the numbers of the frames are drawn, and wrong frames refused."""

import numpy as np
import pandas as pd
import pytest

from choicegp import ChoiceGPError, Segments, plots

from .conftest import bars

pytestmark = pytest.mark.usefixtures("no_pyplot_figures")


def numbers(name, n, start=0.2):
    middle = start + 0.1 * np.arange(n)
    return {name: middle, f"{name}_lower": middle - 0.05, f"{name}_upper": middle + 0.1}


def test_shares_have_a_panel_for_each_assortment():
    names = ["today"] * 3 + ["later"] * 2
    frame = pd.DataFrame(
        {"set": names, "object": ["A", "B", "none", "A", "B"], **numbers("kept", 5), **numbers("taken", 5, 0.1)}
    )
    today, later = plots.plot_shares(frame)
    assert (today.get_title(), later.get_title()) == ("today", "later")
    assert [text.get_text() for text in today.get_yticklabels()] == ["A", "B", "none"]
    points, ends = bars(today, "They keep it.")
    np.testing.assert_allclose(points[:, 0], [0.2, 0.3, 0.4])
    np.testing.assert_allclose(ends[:, :, 0], [[0.15, 0.3], [0.25, 0.4], [0.35, 0.5]])
    np.testing.assert_allclose(bars(later, "They take it.")[0][:, 0], [0.4, 0.5])


def test_changes_are_drawn_around_what_was_before():
    changes = {**numbers("kept_difference", 2, 0.0), **numbers("taken_difference", 2, -0.1)}
    kept = {"kept_before": [0.3, 0.5], "kept_after": [0.3, 0.6]}
    taken = {"taken_before": [0.2, 0.3], "taken_after": [0.1, 0.3]}
    frame = pd.DataFrame({"object": ["A", "B"], **kept, **taken, **changes})
    keep, take = plots.plot_what_if(frame)
    label = "After them, with the 95%\ninterval of the difference."
    np.testing.assert_allclose(bars(keep, label)[0][:, 0], [0.3, 0.6])
    np.testing.assert_allclose(bars(take, label)[0][:, 0], [0.1, 0.3])
    assert keep.lines[0].get_xdata().tolist() == [0.3, 0.5]


def test_nothing_is_left_of_what_is_withdrawn_and_shares_stay_between_0_and_1():
    ends = {"difference": [-0.3, 0.4], "difference_lower": [-0.5, 0.3], "difference_upper": [-0.1, 0.6]}
    shares = {"before": [0.3, 0.5], "after": [0.0, 0.9], **ends}
    frame = pd.DataFrame({"object": ["A", "B"]} | {f"{n}_{k}": v for n in ("kept", "taken") for k, v in shares.items()})
    keep, _ = plots.plot_what_if(frame)
    points, drawn = bars(keep, "After them, with the 95%\ninterval of the difference.")
    np.testing.assert_allclose(points[:, 0], [0.0, 0.9])
    np.testing.assert_allclose(drawn[:, :, 0], [[0.0, 0.0], [0.8, 1.0]])


def test_elasticities_are_a_table_with_clear_ones_in_bold():
    frame = pd.DataFrame({
        "changed": ["A", "A", "B", "B"], "object": ["A", "B"] * 2, "kind": ["own", "cross", "cross", "own"],
        **numbers("kept", 4, 0.0), **numbers("taken", 4, -1.0),
    })  # fmt: skip
    texts = plots.plot_elasticities(frame).texts
    assert texts[0].get_text() == "0.00\n-0.05 to 0.10"
    assert [text.get_fontweight() for text in texts] == ["normal", "bold", "bold", "bold"]
    assert plots.plot_elasticities(frame, share="taken").texts[0].get_text().startswith("-1.00")
    large = frame.assign(kept=[-0.001, 1234.5, 0.0, 0.0])
    assert [text.get_text().split()[0] for text in plots.plot_elasticities(large).texts[:2]] == ["0.00", "1234"]
    with pytest.raises(ChoiceGPError, match="share must be 'kept' or 'taken'"):
        plots.plot_elasticities(frame, share="all")


def test_an_object_without_a_price_says_so():
    frame = pd.DataFrame({"object": ["A", "B"], **numbers("worth", 2), "no_price": [0.0, 0.6]})
    frame.loc[1, ["worth", "worth_lower", "worth_upper"]] = np.nan
    ax = plots.plot_worth(frame)
    assert [text.get_text() for text in ax.texts] == ["no such price in 60% of the draws"]
    assert len(ax.get_xticks()) > 0
    assert len(plots.plot_worth(frame.iloc[1:].reset_index(drop=True)).get_xticks()) == 0


def test_diversion_has_both_shares():
    frame = pd.DataFrame({"object": ["A", "none"], **numbers("diverted", 2), **numbers("instead", 2, 0.4)})
    ax = plots.plot_diversion(frame)
    np.testing.assert_allclose(bars(ax, "What people who kept it\ntake instead.")[0][:, 0], [0.4, 0.5])


def test_segments_have_a_panel_each():
    table = pd.DataFrame({"segment": [1, 2], "people": [3, 1], "share": [0.75, 0.25]})
    differences = pd.DataFrame({"segment": [1, 1, 2, 2], "feature": ["x", "y"] * 2, **numbers("difference", 4)})
    grid = plots.plot_segments(Segments(table, pd.DataFrame(), differences, 0.5))
    assert [ax.get_title() for ax in grid] == ["segment 1 (75% of people)", "segment 2 (25% of people)"]


@pytest.mark.parametrize("name", ["shares", "what_if", "elasticities", "worth", "diversion", "segments"])
def test_other_tables_are_refused(name):
    with pytest.raises(ChoiceGPError, match=rf"model\.{name} returns"):
        getattr(plots, f"plot_{name}")(pd.DataFrame({"a": [1]}))

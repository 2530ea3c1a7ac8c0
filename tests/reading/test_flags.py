"""Flags as people write them, and other marks."""

import warnings

import pandas as pd
import pytest

from choicegp.data.choices import ChoiceData
from choicegp.errors import ChoiceDataError, ChoiceGPError, ReadingNote
from choicegp.reading.cells import yes_or_no


def long(flags) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "choice_id": [1, 1, 1, 2, 2],
            "alt_id": ["pen", "ink", "cup", "pen", "cap"],
            "choice": pd.Series(flags, dtype=object),
            "price": [3, 5, 1, 3, 4],
        }
    )


EXPECTED = [True, False, False, True, True]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["yes", "no", "No", "YES", "yes"], "flags in words (yes/no)"),
        (["Y", "N", "n", "y", "Y"], "flags in words (y/n)"),
        (["x", None, "", "X", " x "], "'x' for yes and blank for no"),
        ([1, None, None, 1, 1], "1 for yes and blank for no"),
        ([1.0, float("nan"), None, 1.0, 1.0], "1 for yes and blank for no"),
        (["1", "", "", "1", "1"], "'1' for yes and blank for no"),
        (["✓", None, None, "✓", "✓"], "'✓' for yes and blank for no"),
        ([True, None, None, True, True], "True for yes and blank for no"),
        (["✓", "✗", "✗", "✓", "✓"], "'✓' for yes and '✗' for no"),
        (["☑", "☐", "☒", "☑", "☑"], "'☑' for yes and '☐', '☒' for no"),
        (["☒", "☐", "☐", "☒", "☒"], "'☒' for yes and '☐' for no"),
    ],
)
def test_words_and_ticks_are_read_and_announced(flags, said):
    with pytest.warns(ReadingNote) as caught:
        data = ChoiceData.from_long(long(flags))
    assert data.flat_chosen.tolist() == EXPECTED
    assert [str(note.message) for note in caught] == [f"column 'choice' was read as {said}"]
    assert caught[0].filename == __file__


@pytest.mark.parametrize("flags", [["TRUE", "FALSE", "false", "True", "tRUE"], [1, 0, "0", True, "1"]])
def test_plain_flags_need_no_note(flags):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ChoiceData.from_long(long(flags)).flat_chosen.tolist() == EXPECTED


@pytest.mark.parametrize(
    ("flags", "wrong"),
    [
        (["yes", "no", None, "yes", "yes"], [2]),  # a blank beside yes and no may be either
        (["x", 0, None, "x", "x"], [0, 2, 3, 4]),
        (["yes", 0, "no", 1, "yes"], [0, 2, 4]),
        (["yes", "no", "maybe", "yes", "yes"], [2]),
        (["x", "o", None, "x", "x"], [0, 1, 2, 3, 4]),
        ([1, 0, None, 1, 1], [2]),
    ],
)
def test_unclear_flags_are_refused(flags, wrong):
    with pytest.raises(ChoiceDataError, match="yes/no, ✓/✗, or one mark") as caught:
        ChoiceData.from_long(long(flags))
    assert [defect.row for defect in caught.value.defects if defect.kind == "wrong-flag"] == wrong


def test_availability_is_read_in_the_same_way():
    frame = long([1, 0, 0, 1, 1]).assign(there=["x", "x", None, "x", "x"])
    with pytest.warns(ReadingNote, match="column 'there' was read as 'x' for yes and blank for no"):
        data = ChoiceData.from_long(frame, available="there")
    assert [len(shown) for shown in data.shown] == [2, 2]


def test_answers_of_yes_and_no():
    assert yes_or_no(["Yes", "no", True, 0, "y", 1.0]).tolist() == [True, False, True, False, True, True]
    with pytest.raises(ChoiceGPError, match=r"answers\[1\] must be yes or no, true or false, 1 or 0; it is 'maybe'"):
        yes_or_no(["yes", "maybe"])
    with pytest.raises(ChoiceGPError, match="answers must be a sequence"):
        yes_or_no("yes")
    with pytest.raises(ChoiceGPError, match=r"answers\[0\]"):
        yes_or_no([[1]])

"""Numbers written for people, words that should be numbers, flags as people write them, and other marks."""

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choicegp.data.choices import ChoiceData
from choicegp.errors import ChoiceDataError, ChoiceGPError, ReadingNote
from choicegp.reading.cells import read_numbers, yes_or_no


def read(*cells, decimal=None):
    return read_numbers(pd.Series(cells, dtype=object, name="price"), decimal).tolist()


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["EUR 549", "EUR 1,549.00"], [549.0, 1549.0]),
        (["549.00 USD", "1,549.50 USD"], [549.0, 1549.5]),
        (["1.549,00 €", "549,00 €"], [1549.0, 549.0]),
        (["€549,-", "€1.249,50"], [549.0, 1249.5]),
        (["$1,549,000", "$12.5"], [1549000.0, 12.5]),
        (["1 549,5 kr", "549 kr"], [1549.5, 549.0]),
        (["1'549.90 CHF", "549 CHF"], [1549.9, 549.0]),
        (["1\u202f549,5 €", "2 €"], [1549.5, 2.0]),
        (["-5 °C", "12.5 °C", "\u22123 °C"], [-5.0, 12.5, -3.0]),
        (["14 inches", "15.6 inches", "13"], [14.0, 15.6, 13.0]),
        (["€ 549", "EUR 649", "Euro 20"], [549.0, 649.0, 20.0]),
        (["1e3 Hz", "2.5e-1 Hz"], [1000.0, 0.25]),
    ],
)
def test_numbers_with_units(cells, values):
    assert read(*cells) == values


def test_the_decimal_sign_is_decided_over_the_whole_column():
    with pytest.raises(ChoiceGPError, match=r"'price' holds numbers such as '1,549'.*decimal='.' or decimal=','"):
        read("1,549 €", "2,100 €", "300 €")
    assert read("1,549 €", "2,100 €", "12.5 €") == [1549.0, 2100.0, 12.5]
    assert read("1,549 €", "2,100 €", "12,5 €") == [1.549, 2.1, 12.5]
    assert read("1,549 €", decimal=".") == [1549.0]
    assert read("1,549 €", decimal=",") == [1.549]
    with pytest.raises(ChoiceGPError, match="points and commas in different roles"):
        read("12,5 €", "12.5 €")


def test_numbers_of_several_units_are_refused():
    with pytest.raises(ChoiceGPError, match=r"several units \('eur', 'usd'\): write them in one unit"):
        read("EUR 549", "USD 549")
    with pytest.raises(ChoiceGPError, match="holds no numbers, such as 'cheap'"):
        read("cheap", "dear")


def test_missing_cells_and_words_stay():
    found = read("EUR 5", None, "", "ask us")
    assert found[0] == 5.0
    assert np.isnan(found[1:3]).all()
    assert found[3] == "ask us"
    assert read_numbers(pd.Series([1, 2]), None).tolist() == [1, 2]


LAPTOPS = """choice_id,alt_id,choice,price,screen,comment
1,Alder,1,EUR 549,13 in,light and quiet
1,Dune,0,"EUR 1,549.00",15.6 in,fast
2,Alder,0,EUR 499,13 in,light
2,Cinder,1,EUR 399,14 in,cheap
"""


def test_a_warning_offers_to_read_numbers(tmp_path):
    path = tmp_path / "laptops.csv"
    path.write_text(LAPTOPS)
    with pytest.warns(UserWarning, match="is read as words") as caught:
        ChoiceData.from_long(path)
    assert [str(warning.message).split("; ")[1] for warning in caught] == [
        "to read them as numbers, pass numbers=['price']",
        "to read them as numbers, pass numbers=['screen']",
    ]
    data = ChoiceData.from_long(path, numbers=["price", "screen"], features=["price", "screen"])
    assert data.feature_names == ("price", "screen")
    assert data.X[:, 0].tolist() == [549.0, 1549.0, 499.0, 399.0]
    with pytest.raises(ChoiceGPError, match=r"no feature column 'prise' \(numbers\); did you mean 'price'"):
        ChoiceData.from_long(path, numbers=["prise"])
    with pytest.raises(ChoiceDataError, match=r"4 x not-a-number: .* pass numbers=\['price'\]"):
        ChoiceData.from_long(path, numbers=["screen"], features=["price", "screen"], encoding=data.encoding)
    path.write_text(LAPTOPS.replace("EUR 399", "ask us"))
    with pytest.raises(ChoiceDataError, match=r"row 5: feature 'price' must be a number.*not 'ask us'"):
        ChoiceData.from_long(path, numbers=["price", "screen"])


@pytest.mark.parametrize(("n_words", "warns"), [(20, False), (21, True)])
def test_columns_of_very_many_words_are_worth_a_warning(n_words, warns, recwarn):
    n = 40
    frame = pd.DataFrame({"choice_id": np.arange(n) // 2, "alt_id": range(n), "choice": 1, "price": range(n)})
    frame["comment"] = [f"word {'abcdefghijklmnopqrstuvwxyz'[i % n_words]}" for i in range(n)]
    ChoiceData.from_long(frame)
    said = [str(warning.message) for warning in recwarn]
    found = f"column 'comment' has {n_words} different words in 40 rows, and each becomes a feature"
    assert said == ([f"{found}; to leave it out, pass features=['price']"] if warns else [])


def test_nearly_unique_columns_are_worth_a_warning():
    n = 12
    frame = pd.DataFrame({"choice_id": np.arange(n) // 2, "alt_id": range(n), "choice": 1, "price": range(n)})
    frame["note"] = [f"about {letter}" for letter in "abcdefghijkk"]
    with pytest.warns(UserWarning, match="'note' has 11 different words in 12 rows"):
        ChoiceData.from_long(frame)
    assert len(ChoiceData.from_long(frame.astype({"note": "category"})).feature_names) == 12


def test_wide_tables_have_such_numbers_too():
    frame = pd.DataFrame({"price_a": ["5 €", "6,5 €"], "price_b": ["7 €", "1 €"], "choice": ["a", "b"]})
    with pytest.warns(UserWarning, match="holds the names"):
        data = ChoiceData.from_wide(frame, alternatives=["a", "b"], features=["price"], numbers=["price"])
    assert data.X[:, 0].tolist() == [5.0, 7.0, 6.5, 1.0]
    with pytest.raises(ChoiceGPError, match="numbers names 'cost', which is none of the features"):
        ChoiceData.from_wide(frame, alternatives=["a", "b"], features=["price"], numbers=["cost"])


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.integers(-(10**9), 10**9), min_size=1, max_size=5),
    st.sampled_from([(",", "."), (".", ","), (" ", ","), ("'", ".")]),
    st.sampled_from(["", "EUR {}", "{} kg", "$ {}", "{} €"]),
)
def test_numbers_of_two_decimals_come_back(cents, signs, form):
    thousands, decimal = signs
    plain = [f"{cent / 100:,.2f}" for cent in cents]
    written = [text.translate(str.maketrans({",": thousands, ".": decimal})) for text in plain]
    cells = [form.format(text) if form else text for text in written]
    assert read(*cells) == [cent / 100 for cent in cents]


@settings(deadline=None, max_examples=50)
@given(st.text(max_size=12))
def test_any_text_is_a_number_or_stays(text):
    try:
        found = read(text, "5 kg")
    except ChoiceGPError:
        return
    assert found[1] == 5.0


def flagged(flags) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "choice_id": [1, 1, 1, 2, 2],
            "alt_id": ["pen", "ink", "cup", "pen", "cap"],
            "choice": pd.Series(flags, dtype=object),
            "price": [3, 5, 1, 3, 4],
        }
    )


KEPT = [True, False, False, True, True]


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
        data = ChoiceData.from_long(flagged(flags))
    assert data.flat_chosen.tolist() == KEPT
    assert [str(note.message) for note in caught] == [f"column 'choice' was read as {said}"]
    assert caught[0].filename == __file__


@pytest.mark.parametrize("flags", [["TRUE", "FALSE", "false", "True", "tRUE"], [1, 0, "0", True, "1"]])
def test_plain_flags_need_no_note(flags):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ChoiceData.from_long(flagged(flags)).flat_chosen.tolist() == KEPT


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
        ChoiceData.from_long(flagged(flags))
    assert [defect.row for defect in caught.value.defects if defect.kind == "wrong-flag"] == wrong


def test_availability_is_read_in_the_same_way():
    frame = flagged([1, 0, 0, 1, 1]).assign(there=["x", "x", None, "x", "x"])
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

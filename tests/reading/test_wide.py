import io

import numpy as np
import pandas as pd
import pytest

from choicegp.data.choices import ChoiceData
from choicegp.errors import ChoiceDataError, ChoiceGPError, ReadingNote


def defects_of(make, *args, **kwargs):
    with pytest.raises(ChoiceDataError) as caught:
        make(*args, **kwargs)
    return caught.value.defects


def places(defects):
    return [(d.kind, d.row, d.set, d.object) for d in defects]


@pytest.fixture
def wide():
    return pd.DataFrame(
        {
            "task": ["t1", "t2", "t3"],
            "who": ["ann", "ann", "bo"],
            "price_a": [1, 2, 3],
            "price_b": [4.0, np.nan, 6.0],
            "price_c": [np.nan, 8.0, 9.0],
            "colour_a": ["red", "blue", "red"],
            "colour_b": ["blue", None, "blue"],
            "colour_c": [None, "red", "red"],
            "choice_a": [1, 0, 0],
            "choice_b": [0, np.nan, 1],
            "choice_c": [np.nan, 1, 1],
        }
    )


WIDE = {"alternatives": ["a", "b", "c"], "features": ["price", "colour"]}


def test_wide_known_answer(wide):
    data = ChoiceData.from_wide(wide, set_id="task", respondent="who", **WIDE)
    assert data.set_ids.tolist() == ["t1", "t2", "t3"]
    assert data.respondents.tolist() == ["ann", "ann", "bo"]
    assert [data.object_ids[s].tolist() for s in data.shown] == [["a", "b"], ["a", "c"], ["a", "b", "c"]]
    assert [data.object_ids[c].tolist() for c in data.chosen] == [["a"], ["c"], ["b", "c"]]
    assert [data.X[s, 0].tolist() for s in data.shown] == [[1, 4], [2, 8], [3, 6, 9]]
    assert data.feature_names == ("price", "colour=red")


def test_wide_equals_long(wide):
    data = ChoiceData.from_wide(wide, set_id="task", respondent="who", **WIDE)
    assert ChoiceData.from_long(data.to_long(), respondent="respondent") == data


def test_wide_defaults_and_stubs(wide):
    data = ChoiceData.from_wide(wide.drop(columns=["task"]), **WIDE)
    assert data.set_ids.tolist() == [0, 1, 2]
    wide = wide.assign(sku_a=[10, 11, 12], sku_b=[20, 0, 22], sku_c=[0, 30, 31])
    wide.columns = [name.replace("_", ".") for name in wide.columns]
    data = ChoiceData.from_wide(wide, object_id="sku", sep=".", chosen=None, **WIDE)
    assert [data.object_ids[s].tolist() for s in data.shown] == [[10, 20], [11, 30], [12, 22, 31]]
    assert not data.has_choices


def test_columns_may_name_the_alternative_first(wide):
    turned = wide.rename(columns=lambda name: "_".join(reversed(name.split("_"))))
    assert "a_price" in turned
    with pytest.warns(ReadingNote, match="columns such as 'a_price' name the alternative first"):
        data = ChoiceData.from_wide(turned, set_id="task", respondent="who", **WIDE)
    assert data == ChoiceData.from_wide(wide, set_id="task", respondent="who", **WIDE)


def test_wide_available(wide):
    # What was not shown needs no flag.
    wide = wide.assign(av_a=[1, 1, 0], av_b=[1, np.nan, 1], av_c=1)
    data = ChoiceData.from_wide(wide, available="av", **WIDE)
    assert [data.object_ids[s].tolist() for s in data.shown] == [["a", "b"], ["a", "c"], ["b", "c"]]


def test_wide_defects_name_the_row_of_the_wide_file(tmp_path, wide):
    wide.loc[1, "choice_b"] = 1  # chosen but not shown
    wide.loc[2, "colour_c"] = None  # one of two features is missing
    expected = [("chosen-not-shown", 3, "t2", "b"), ("missing-feature", 4, "t3", "c")]
    wide.to_csv(tmp_path / "wide.csv", index=False)
    found = defects_of(ChoiceData.from_wide, tmp_path / "wide.csv", set_id="task", **WIDE)
    assert places(found) == expected
    found = defects_of(ChoiceData.from_wide, wide, set_id="task", **WIDE)
    assert [d.row for d in found] == [1, 2]


def test_wide_tables_that_cannot_be_read(wide):
    with pytest.raises(ChoiceGPError, match=r"there are no columns 'price_d', 'choice_d'"):
        ChoiceData.from_wide(wide, alternatives=["a", "d"], features=["price"])
    with pytest.raises(ChoiceGPError, match="there are no columns 'nobody'"):
        ChoiceData.from_wide(wide, respondent="nobody", **WIDE)
    for alternatives, features in (
        ([], ["price"]),
        (["a"], []),
        ([None], ["price"]),
        (3, ["price"]),
        (["a"], None),
    ):
        with pytest.raises(ChoiceGPError, match=r"alternatives|features"):
            ChoiceData.from_wide(wide, alternatives=alternatives, features=features)
    with pytest.raises(ChoiceGPError, match="sep must be text"):
        ChoiceData.from_wide(wide, sep=None, **WIDE)
    found = defects_of(ChoiceData.from_wide, wide.assign(task=["t1", "t2", "t1"]), set_id="task", **WIDE)
    assert places(found) == [("duplicate-set", 2, "t1", None)]


def test_a_wide_table_with_an_absent_alternative(wide):
    wide = wide.assign(price_c=np.nan, colour_c=np.nan, choice_c=np.nan, choice_a=1)
    data = ChoiceData.from_wide(wide, **WIDE)
    assert set(data.object_ids) == {"a", "b"}


ONE_COLUMN = """task,price_bus,price_car,price_train,choice
1,3,9,5,car
2,2,8,6,Bus
3,4,7,4,train
"""


@pytest.mark.parametrize(
    ("answers", "how"), [(["car", "Bus", "train"], "names"), ([2, 1, 3], "positions"), (["2", "1", "3"], "positions")]
)
def test_the_chosen_alternative_in_one_column(tmp_path, answers, how):
    frame = pd.read_csv(io.StringIO(ONE_COLUMN)).assign(choice=answers)
    frame.to_csv(tmp_path / "trips.csv", index=False)
    options = {"alternatives": ["bus", "car", "train"], "features": ["price"], "set_id": "task"}
    for table in (frame, tmp_path / "trips.csv"):
        with pytest.warns(ReadingNote, match=f"column 'choice' holds the {how}.* of one alternative per set, the best"):
            data = ChoiceData.from_wide(table, **options)
        assert [data.object_ids[rows].tolist() for rows in data.chosen] == [["car"], ["bus"], ["train"]]
        assert data.kinds.tolist() == ["best"] * 3
    with pytest.warns(ReadingNote):
        assert ChoiceData.from_wide(frame, kind="keep", **options).kinds is None


def test_none_of_the_alternatives(tmp_path):
    frame = pd.read_csv(io.StringIO(ONE_COLUMN))
    options = {"alternatives": ["bus", "car", "train"], "features": ["price"], "set_id": "task"}
    for answers in (["car", "none", "train"], [3, 0, 2]):
        with pytest.raises(ChoiceDataError, match="nothing is chosen from the set"):
            ChoiceData.from_wide(frame.assign(choice=answers), **options)
        with pytest.warns(ReadingNote):
            data = ChoiceData.from_wide(frame.assign(choice=answers), empty="none", **options)
        assert [len(rows) for rows in data.chosen] == [1, 0, 1]
    with pytest.raises(ChoiceGPError, match="holds 0 but never 3: it may number the alternatives from 0"):
        ChoiceData.from_wide(frame.assign(choice=[0, 1, 2]), **options)
    found = defects_of(ChoiceData.from_wide, frame.assign(choice=["car", "tram", None]), **options)
    assert [(d.kind, d.row) for d in found] == [("unknown-alternative", 1), ("unknown-alternative", 2)]
    assert "the chosen alternative is missing; the alternatives are 'bus'" in found[1].problem
    with pytest.warns(UserWarning, match="2 of 3 sets were left out|holds the names"):
        data = ChoiceData.from_wide(frame.assign(choice=["car", "tram", None]), on_error="skip", **options)
    assert data.set_ids.tolist() == [1]


def test_capital_letters_may_distinguish_alternatives():
    frame = pd.DataFrame({"price_a": [1, 2], "price_A": [3, 4], "choice": ["a", "A"]})
    with pytest.warns(ReadingNote):
        data = ChoiceData.from_wide(frame, alternatives=["a", "A"], features=["price"])
    assert [data.object_ids[rows].tolist() for rows in data.chosen] == [["a"], ["A"]]


def test_a_wide_set_id_of_several_columns(wide):
    data = ChoiceData.from_wide(wide, set_id=["who", "task"], **WIDE)
    assert data.set_ids.tolist() == ["ann/t1", "ann/t2", "bo/t3"]


@pytest.mark.parametrize("last", [["Total", None, 6, 10, 17], [None, None, 6, 10, 17]])
def test_a_row_of_totals_in_a_wide_table(wide, last):
    names = ["task", "who", "price_a", "price_b", "price_c"]
    total = pd.concat([wide, pd.DataFrame([last], columns=names)], ignore_index=True)
    found = defects_of(ChoiceData.from_wide, total, set_id="task", **WIDE)
    assert [(d.kind, d.row) for d in found] == [("totals-row", 3)]
    with pytest.warns(UserWarning, match="1 row outside any set"):
        data = ChoiceData.from_wide(total, set_id="task", on_error="skip", **WIDE)
    assert data == ChoiceData.from_wide(wide, set_id="task", **WIDE)


def test_a_cell_may_list_what_was_kept():
    frame = pd.DataFrame({"p_A": [1, 2, 3], "p_B": [4, 5, 6], "p_C": [7, 8, 9], "ticks": ["A; c", "B", None]})
    options = {"alternatives": ["A", "B", "C"], "features": ["p"], "chosen": "ticks", "empty": "none"}
    with pytest.warns(ReadingNote, match="column 'ticks' holds the names of the kept alternatives"):
        data = ChoiceData.from_wide(frame, **options)
    assert data.kinds is None
    assert data.flat_chosen.reshape(3, 3).astype(int).tolist() == [[1, 0, 1], [0, 1, 0], [0, 0, 0]]
    with pytest.warns(ReadingNote, match="holds the positions, from 1, of the kept alternatives"):
        same = ChoiceData.from_wide(frame.assign(ticks=["1,3", "2", None]), **options)
    assert same == data
    with pytest.raises(ChoiceDataError, match="the chosen alternative is 'A; D'"):
        ChoiceData.from_wide(frame.assign(ticks=["A; D", "B", "A"]), **options)


@pytest.mark.parametrize(
    ("cells", "kept"),
    [
        (["Tea/Milk", "Tea"], [["Tea/Milk"], ["Tea"]]),
        (["Tea; Milk", "none"], [["Tea", "Milk"], []]),
        (["1, 3", "0"], [["Tea", "Tea/Milk"], []]),
    ],
)
@pytest.mark.filterwarnings("ignore::choicegp.ReadingNote")
def test_a_bundle_is_no_list_and_nothing_stands_alone(cells, kept):
    names = ["Tea", "Milk", "Tea/Milk"]
    frame = pd.DataFrame({**{f"p_{name}": [1.0, 2.0] for name in names}, "choice": cells})
    data = ChoiceData.from_wide(frame, alternatives=names, features=["p"], empty="none")
    assert [data.object_ids[rows].tolist() for rows in data.chosen] == kept


def test_two_columns_name_the_best_and_the_worst():
    frame = pd.DataFrame({"p_A": [1, 2], "p_B": [4, 5], "p_C": [7, 8], "best": ["A", "C"], "worst": ["C", "B"]})
    options = {"alternatives": ["A", "B", "C"], "features": ["p"], "kind": "best-worst"}
    with pytest.warns(ReadingNote, match="names of one alternative per set$"):
        data = ChoiceData.from_wide(frame, chosen=["best", "worst"], **options)
    assert data.kinds.tolist() == ["best", "worst"] * 2
    assert [data.object_ids[rows].tolist() for rows in data.chosen] == [["A"], ["C"], ["C"], ["B"]]
    with pytest.raises(ChoiceGPError, match=r"such as 'best_A', or two columns such as this one, chosen="):
        ChoiceData.from_wide(frame, chosen="best", **options)
    with pytest.raises(ChoiceGPError, match="chosen must be the name of a column, not a list; two columns"):
        ChoiceData.from_wide(frame, chosen=["best", "worst"], alternatives=["A", "B", "C"], features=["p"])

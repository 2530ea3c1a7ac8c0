"""Columns by their role: several columns of a set's id, names that are nearly right, wide tables, rows of totals."""

import pandas as pd
import pytest

from choicegp.data.choices import ChoiceData
from choicegp.errors import ChoiceDataError, ChoiceGPError
from choicegp.reading.columns import close_names, wide_hint

SURVEY = """respondent,task,product,price,ram,Choice
r1,1,Alder,549,8,1
r1,1,Dune,649,16,0
r1,2,Alder,499,8,0
r1,2,Cinder,449,4,1
r2,1,Dune,599,16,1
r2,1,Cinder,399,4,1
"""
ROLES = {"object_id": "product", "chosen": "Choice"}


def saved(tmp_path, text, name="survey.csv"):
    (tmp_path / name).write_text(text)
    return tmp_path / name


def test_a_set_id_of_several_columns(tmp_path):
    path = saved(tmp_path, SURVEY)
    data = ChoiceData.from_long(path, set_id=["respondent", "task"], **ROLES)
    assert data.set_ids.tolist() == ["r1/1", "r1/2", "r2/1"]
    assert data.feature_names == ("price", "ram")
    named = ChoiceData.from_long(path, set_id=("respondent", "task"), respondent="respondent", **ROLES)
    assert named.respondents.tolist() == ["r1", "r1", "r2"]
    assert ChoiceData.from_long(named.to_long(), respondent="respondent") == named
    one = ChoiceData.from_long(pd.read_csv(path), set_id=["task"], object_id=None, chosen=None, features=["price"])
    assert one.set_ids.tolist() == [1, 2]


def test_numbers_in_a_set_id_are_written_plainly():
    frame = pd.DataFrame({"r": [1.0, 1.0, 2.0], "t": [3, 3, 3], "p": [1, 2, 3], "choice": [1, 0, 1]})
    data = ChoiceData.from_long(frame, set_id=["r", "t"], object_id=None)
    assert data.set_ids.tolist() == ["1/3", "2/3"]
    with pytest.raises(ChoiceGPError, match="give different sets the same id, because their values contain '/'"):
        ChoiceData.from_long(frame.assign(r=["a/b", "a", "a"], t=["c", "b/c", "d"]), set_id=["r", "t"], object_id=None)
    with pytest.raises(ChoiceDataError, match="row 1: the set's id is missing"):
        ChoiceData.from_long(frame.assign(t=[3, None, 3]), set_id=["r", "t"], object_id=None)


def test_a_column_that_the_set_id_lacks_is_named(tmp_path):
    frame = pd.read_csv(saved(tmp_path, SURVEY)).assign(product=range(6))
    with pytest.warns(UserWarning, match=r"serves several values of 'respondent'.*set_id=\['respondent', 'task'\]"):
        ChoiceData.from_long(frame, set_id="task", **ROLES)
    with pytest.raises(ChoiceDataError, match=r"2 x differing-respondent.*\n.*") as caught:
        ChoiceData.from_long(frame, set_id="task", respondent="respondent", **ROLES)
    assert "name them all: set_id=['respondent', 'task']" in str(caught.value)
    with pytest.raises(ChoiceDataError, match=r"duplicate-object.*set_id=\['respondent', 'task'\]"):
        ChoiceData.from_long(frame.assign(product=1), set_id="task", **ROLES)


def test_people_are_no_feature(tmp_path):
    frame = pd.read_csv(saved(tmp_path, SURVEY)).assign(task=[1, 1, 2, 2, 3, 3])
    with pytest.warns(
        UserWarning, match=r"'respondent' is read as a feature; if it names people, pass respondent='res"
    ):
        ChoiceData.from_long(frame, set_id="task", **ROLES)
    assert ChoiceData.from_long(frame, set_id="task", respondent="respondent", **ROLES).feature_names == (
        "price",
        "ram",
    )


def test_sets_of_more_than_twenty_objects_are_worth_a_warning():
    frame = pd.DataFrame({"choice_id": 1, "alt_id": range(21), "choice": 1, "price": range(21)})
    with pytest.warns(UserWarning, match=r"1 of 1 sets show more than 20 objects, the largest 21: if no one saw"):
        ChoiceData.from_long(frame)
    assert len(ChoiceData.from_long(frame[:20]).flat_shown) == 20
    with pytest.warns(UserWarning, match="the set id lacks a column such as the respondent$"):
        ChoiceData.from_long(frame.assign(task=1), set_id=["choice_id", "task"])


def test_close_names_are_offered(tmp_path):
    path = saved(tmp_path, SURVEY)
    with pytest.raises(ChoiceGPError, match=r"no column 'choice' \(chosen\); did you mean chosen='Choice'\? the col"):
        ChoiceData.from_long(path, set_id=["respondent", "task"], object_id="product")
    with pytest.raises(ChoiceGPError, match=r"'choice_id' \(set_id\), 'alt_id' \(object_id\), 'choice' .* chosen='Cho"):
        ChoiceData.from_long(path)
    with pytest.raises(ChoiceGPError, match=r"no feature column 'Prices'; did you mean 'price'\?"):
        ChoiceData.from_long(path, set_id="task", features=["Prices"], **ROLES)
    # One column of a set id alone would join the sets of several people.
    with pytest.raises(ChoiceGPError, match=r"did you mean set_id=\['respondent', 'task'\]\? the columns"):
        ChoiceData.from_long(path, set_id=["Respondents", "task"], **ROLES)
    with pytest.raises(ChoiceGPError, match=r"did you mean set_id=\['respondent', 'task'\]\? the columns"):
        ChoiceData.from_long(path, set_id=["Respondents", "tasks"], **ROLES)
    assert close_names("alt_id", ["Alt ID", "altitude"]) == ["Alt ID"]
    assert close_names("weight", ["price", "colour"]) == []


WIDE = "id,price_1,price_2,price_3,ram_1,ram_2,ram_3,choice\na,3,4,5,8,8,16,1\nb,2,4,5,8,8,16,1\n"


def test_a_wide_table_that_is_read_as_long_gets_a_hint(tmp_path):
    path = saved(tmp_path, WIDE)
    hint = "--wide --alternatives 1,2,3 --features price,ram"
    with pytest.raises(ChoiceGPError, match=f"'price_1', 'price_2', 'price_3' look like a wide table.*{hint}"):
        ChoiceData.from_long(path)
    with pytest.warns(UserWarning, match=f"every set shows one object, and columns such as.*{hint}"):
        ChoiceData.from_long(path, set_id="id", object_id=None)
    with pytest.raises(ChoiceDataError, match=f"flag that is not 0/1: 3; columns such as.*{hint}"):
        ChoiceData.from_long(saved(tmp_path, WIDE.replace("16,1\nb", "16,3\nb")), set_id="id", object_id=None)
    assert wide_hint(["cpu_score", "cpu_clock", "weight_kg", "x_1"]) == ""
    assert wide_hint(["A_price", "B_price", "A_ram"]).endswith("--wide --alternatives A,B --features price")


def test_a_question_that_is_nearly_right_is_offered(tmp_path):
    with pytest.raises(ChoiceGPError, match=r"there is no column 'ratings' \(kind\); did you mean kind='rating'"):
        ChoiceData.from_long(saved(tmp_path, SURVEY), set_id=["respondent", "task"], kind="ratings", **ROLES)


@pytest.mark.parametrize("last", ["Total,,,3144,,4", "Summe,,,3144,56,", "sum:,1,,,,", ",,,3144,56,4"])
def test_a_row_of_totals_is_never_an_object(tmp_path, last):
    path = saved(tmp_path, f"{SURVEY}{last}\n")
    with pytest.raises(ChoiceDataError, match=r"row 8: the last row .*totals.*; delete it, or pass on_error='skip'"):
        ChoiceData.from_long(path, set_id=["respondent", "task"], **ROLES)
    with pytest.warns(UserWarning, match=r"0 of 3 sets and 1 row outside any set were left out \(1 defect\)"):
        data = ChoiceData.from_long(path, set_id=["respondent", "task"], on_error="skip", **ROLES)
    assert data == ChoiceData.from_long(saved(tmp_path, SURVEY), set_id=["respondent", "task"], **ROLES)
    assert [(defect.kind, defect.row) for defect in data.skipped] == [("totals-row", 8)]


def test_ids_stay_numbers_without_the_row_of_totals(tmp_path):
    text = "task,product,Choice,price\n1,a,1,2\n1,b,0,3\n"
    path = saved(tmp_path, text + "Total,,1,5\n")
    with pytest.warns(UserWarning, match="1 row outside any set"):
        data = ChoiceData.from_long(path, set_id="task", on_error="skip", **ROLES)
    assert data.set_ids.tolist() == [1]

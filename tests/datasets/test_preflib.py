import pandas as pd
import pytest

from choicegp import ChoiceDataError, ChoiceGP, ChoiceGPError, datasets
from choicegp.errors import ReadingWarning

HEADER = """# FILE NAME: 00099-00000001.cat
# TITLE: A town
# DATA TYPE: cat
# NUMBER ALTERNATIVES: 4
# NUMBER VOTERS: 23
# NUMBER UNIQUE PREFERENCES: 4
# NUMBER CATEGORIES: 2
# CATEGORY NAME 1: Yes
# CATEGORY NAME 2: No
# ALTERNATIVE NAME 1: Park
# ALTERNATIVE NAME 2: Library: new
# ALTERNATIVE NAME 3: Road
# ALTERNATIVE NAME 4: Lane
"""
BALLOTS = """12: {1,4},{2, 3}
8: 2, {1, 3}
2: {}, {1,2,3,4}
1: {1, 2, 3, 4},{}
"""


@pytest.fixture
def written(tmp_path):
    def write(text, **options):
        path = tmp_path / "town.cat"
        path.write_text(text, **({"encoding": "utf-8"} | options))
        return path

    return write


def test_a_ballot_is_a_choice_from_what_it_names(written):
    data = datasets.load_preflib(written(HEADER + BALLOTS))
    ids = data.object_ids
    assert [ids[rows].tolist() for rows in data.chosen] == [
        ["Park", "Lane"],
        ["Library: new"],
        [],
        ["Park", "Library: new", "Road", "Lane"],
    ]
    assert [len(rows) for rows in data.shown] == [4, 3, 4, 4]  # eight voters said nothing about the lane
    assert data.weights.tolist() == [12.0, 8.0, 2.0, 1.0]


def test_features_go_with_the_names_and_a_model_can_be_fitted(written):
    features = pd.DataFrame({"cost": [3.0, 1.0, 4.0, 5.0]}, index=["Park", "Lane", "Road", "Library: new"])
    data = datasets.load_preflib(written(HEADER + BALLOTS), features)
    cost = dict(zip(data.object_ids.tolist(), data.X.ravel().tolist(), strict=True))
    assert cost == features["cost"].to_dict()
    model = ChoiceGP(1, intervals="none", object_effects=False, n_restarts=1, max_iter=20).fit(data)
    assert len(model.predict_none(data)) == 4


def test_more_categories_may_count_as_approval(written):
    text = HEADER + "3: 1, {2,3}, 4\n"
    kept = {n: datasets.load_preflib(written(text), approved=n).chosen[0].tolist() for n in (1, 2)}
    assert kept == {1: [0], 2: [0, 1, 2]}
    with pytest.raises(ChoiceGPError, match=r"nothing is known to be rejected\. Pass a smaller"):
        datasets.load_preflib(written(text), approved=3)
    with pytest.raises(ChoiceGPError, match="has 3 categories"):
        datasets.load_preflib(written(text), approved=4)


def test_a_file_that_leaves_out_what_was_not_approved_is_not_read_as_if_all_was_kept(written):
    path = written(HEADER + "2: {1, 3}, {}\n1: 2, {}\n3: {}, {}\n")
    with pytest.raises(ChoiceDataError, match=r"(?s)names no alternative.*pass unnamed=\"rejected\".*'skip'"):
        datasets.load_preflib(path)
    with pytest.raises(ChoiceGPError, match='pass unnamed="rejected"'):
        datasets.load_preflib(path, on_error="skip")
    data = datasets.load_preflib(path, unnamed="rejected")
    ids = data.object_ids
    assert [ids[rows].tolist() for rows in data.chosen] == [["Park", "Road"], ["Library: new"], []]
    assert [len(rows) for rows in data.shown] == [4, 4, 4]
    assert data.weights.tolist() == [2.0, 1.0, 3.0]
    assert data.skipped == ()
    with pytest.raises(ChoiceGPError, match="unnamed must be"):
        datasets.load_preflib(path, unnamed="unknown")


def test_where_all_is_kept_whatever_unnamed_says_no_option_is_offered_that_cannot_help(written):
    path = written(HEADER + "2: {1, 2, 3, 4}, {}\n")
    with pytest.raises(ChoiceGPError, match=r"nothing is known to be rejected$"):
        datasets.load_preflib(path, unnamed="rejected")


def test_ballots_with_defects_are_left_out_on_request(written):
    path = written(HEADER + BALLOTS + "5: {},{}\nnobody: 1, 2\n1: 1, 9\n")
    with pytest.raises(ChoiceDataError):
        datasets.load_preflib(path)
    with pytest.warns(ReadingWarning, match=r"3 defects of .*town.cat: ballots were left out; see data.skipped"):
        data = datasets.load_preflib(path, on_error="skip")
    assert data.weights.tolist() == [12.0, 8.0, 2.0, 1.0]
    assert [(one.kind, one.row) for one in data.skipped] == [
        ("empty-set", 18),
        ("wrong-ballot", 19),
        ("unknown-object", 20),
    ]
    with pytest.raises(ChoiceDataError, match="no ballot is without defects"):
        datasets.load_preflib(written(HEADER + "5: {},{}\n"), on_error="skip")
    with pytest.raises(ChoiceGPError, match="on_error must be"):
        datasets.load_preflib(path, on_error="ignore")


def test_equal_names_get_their_number_and_a_mark_of_the_encoding_is_no_text(written):
    text = HEADER.replace("Road", "Park") + BALLOTS
    data = datasets.load_preflib(written(text, encoding="utf-8-sig"))
    assert data.object_ids.tolist() == ["Park (1)", "Library: new", "Park (3)", "Lane"]


def test_all_that_is_wrong_is_named_with_its_line(written):
    text = HEADER + "12: {1,4},{2,9}\nnobody: 1, 2\n3: {1,2},{1}\n0: 1, 2\n1: {1,{2}}\n2: {}, {}\n"
    with pytest.raises(ChoiceDataError) as caught:
        datasets.load_preflib(written(text))
    found = [(defect.kind, defect.row, defect.object) for defect in caught.value.defects]
    assert found == [
        ("unknown-object", 14, 9),
        ("wrong-ballot", 15, None),
        ("duplicate-object", 16, 1),
        ("wrong-ballot", 17, None),
        ("wrong-ballot", 18, None),
        ("empty-set", 19, None),
    ]
    assert "town.cat" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("# DATA TYPE: soc\n# ALTERNATIVE NAME 1: Park\n1: 1\n", "from_rankings"),
        (HEADER, "no ballots"),
        ("", "no names of alternatives"),
    ],
)
def test_another_file_is_refused_in_one_sentence(written, text, words):
    with pytest.raises(ChoiceGPError, match=words):
        datasets.load_preflib(written(text))


def test_what_cannot_be_read_is_no_stack_trace(tmp_path):
    with pytest.raises(ChoiceGPError, match="cannot be read"):
        datasets.load_preflib(tmp_path / "absent.cat")
    (tmp_path / "bytes.cat").write_bytes(b"\xff\xfe\x00\xd8")
    with pytest.raises(ChoiceGPError, match="cannot be read"):
        datasets.load_preflib(tmp_path / "bytes.cat")


@pytest.mark.parametrize("features", [pd.DataFrame({"cost": [1.0]}, index=["Park"]), [[1.0]]])
def test_features_must_have_a_row_for_each_name(written, features):
    with pytest.raises(ChoiceGPError, match="names of"):
        datasets.load_preflib(written(HEADER + BALLOTS), features)

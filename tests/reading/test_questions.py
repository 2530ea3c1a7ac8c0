"""Answers to other questions, in tables: each becomes sets of the kinds that a model knows."""

import pandas as pd
import pytest

from choicegp.data.choices import ChoiceData
from choicegp.data.folder import ChoiceFolder
from choicegp.errors import ChoiceDataError, ChoiceGPError, ReadingNote


def long(**columns) -> pd.DataFrame:
    frame = pd.DataFrame(
        {
            "choice_id": [7, 7, 7, 8, 8],
            "alt_id": ["pen", "ink", "cup", "pen", "ink"],
            "price": [3.0, 5.0, 1.0, 3.0, 5.0],
        }
    )
    return frame.assign(**columns)


def named(data: ChoiceData) -> list[tuple]:
    """Return id, kind, shown and chosen objects of each set."""
    kinds = ["keep"] * len(data) if data.kinds is None else data.kinds.tolist()
    shown = [data.object_ids[rows].tolist() for rows in data.shown]
    chosen = [data.object_ids[rows].tolist() for rows in data.chosen]
    return list(zip(data.set_ids.tolist(), kinds, shown, chosen, strict=True))


def kinds_of_defects(frame, **options):
    with pytest.raises(ChoiceDataError) as caught:
        ChoiceData.from_long(frame, **options)
    return [(defect.kind, defect.row, defect.set) for defect in caught.value.defects]


def test_the_best_object_of_each_set():
    data = ChoiceData.from_long(long(choice=[0, 1, 0, 1, 0]), kind="best")
    assert named(data) == [(7, "best", ["pen", "ink", "cup"], ["ink"]), (8, "best", ["pen", "ink"], ["pen"])]
    assert kinds_of_defects(long(choice=[0, 1, 1, 1, 0]), kind="best") == [("several-marked", 0, 7)]


def test_a_column_says_what_was_asked():
    kinds = ["best", "best", "best", "keep", "keep"]
    data = ChoiceData.from_long(long(choice=[0, 1, 0, 1, 1], asked=kinds), kind="asked")
    assert data.kinds.tolist() == ["best", "keep"]
    assert data.feature_names == ("price",)
    assert ChoiceData.from_long(data.to_long(), kind="kind") == data
    with pytest.warns(ReadingNote, match="column 'kind' says what was asked of each set"):
        assert ChoiceData.from_long(data.to_long()) == data
    other = ChoiceData.from_long(data.to_long().assign(kind=["wood", "steel", "wood", "wood", "wood"]))
    assert other.feature_names == ("kind=wood", "price")
    wrong = long(choice=[0, 1, 0, 1, 1], asked=["best", "keep", "best", "rank", "rank"])
    assert kinds_of_defects(wrong, kind="asked") == [("differing-kind", 1, 7), ("unknown-kind", 3, 8)]
    assert ChoiceData.from_long(long(choice=1, asked="keep"), kind="asked").kinds is None
    with pytest.raises(ChoiceGPError, match=r"there is no column 'bset' \(kind\)"):
        ChoiceData.from_long(long(choice=1), kind="bset")


@pytest.mark.parametrize(
    "marks", [["best", None, "worst", "worst", "Best"], [1, 0, -1, -1, 1], ["1", "", "-1", "w", "b"]]
)
def test_best_and_worst(marks):
    data = ChoiceData.from_long(long(choice=pd.Series(marks, dtype=object)), kind="best-worst")
    assert named(data) == [
        ("7:best", "best", ["pen", "ink", "cup"], ["pen"]),
        ("7:worst", "worst", ["ink", "cup"], ["cup"]),
        ("8:best", "best", ["pen", "ink"], ["ink"]),  # the other one of two is the worst anyway
    ]


def test_best_and_worst_are_one_each():
    found = kinds_of_defects(long(choice=["best", "best", "worst", "good", "best"]), kind="best-worst")
    assert found == [("not-one-best", 0, 7), ("wrong-mark", 3, 8)]
    found = kinds_of_defects(long(choice=["best", None, None, "best", "worst"]), kind="best-worst")
    assert found == [("not-one-worst", 0, 7)]


def test_a_ranking_is_the_best_of_what_remains():
    data = ChoiceData.from_long(long(rank=[2, 3, 1, 2, 1], who=["a"] * 3 + ["b"] * 2, w=[2.0] * 3 + [1.0] * 2),
                                kind="ranking", chosen="rank", respondent="who", weight="w")  # fmt: skip
    assert named(data) == [
        ("7:1", "best", ["cup", "pen", "ink"], ["cup"]),
        ("7:2", "best", ["pen", "ink"], ["pen"]),
        ("8:1", "best", ["ink", "pen"], ["ink"]),
    ]
    assert data.respondents.tolist() == ["a", "a", "b"]
    assert data.weights.tolist() == [2.0, 2.0, 1.0]


def test_objects_without_a_rank_are_below_the_others():
    data = ChoiceData.from_long(long(choice=[None, 1, None, 2, 1]), kind="ranking")
    assert named(data)[0] == ("7:1", "best", ["ink", "pen", "cup"], ["ink"])
    assert len(data) == 2


@pytest.mark.parametrize(
    ("ranks", "kind"),
    [
        ([1, 1, 2], "tied-rank"),
        ([1, 2, 4], "rank-gap"),
        ([2, 3, 4], "rank-gap"),
        ([0, 1, 2], "wrong-mark"),
        ([1, 2.5, 3], "wrong-mark"),
        ([1, "second", 3], "wrong-mark"),
        ([None, None, None], "no-rank"),
    ],
)
def test_rankings_that_cannot_be_right(ranks, kind):
    frame = long(choice=pd.Series([*ranks, 1, 2], dtype=object))
    assert [found[0] for found in kinds_of_defects(frame, kind="ranking")] == [kind]
    if kind == "tied-rank":
        with pytest.raises(ChoiceDataError, match=r"if these are ratings.*pass kind='rating'"):
            ChoiceData.from_long(frame, kind="ranking")


def test_ratings_become_pairs_and_ties_are_counted():
    frame = long(choice=[4, 4, 1, 5, None])
    with pytest.warns(ReadingNote, match="ratings became 2 pairs; 1 tie between equal ratings left out"):
        data = ChoiceData.from_long(frame, kind="rating")
    assert named(data) == [("7:1", "best", ["pen", "cup"], ["pen"]), ("7:2", "best", ["ink", "cup"], ["ink"])]
    with pytest.raises(ChoiceGPError, match="no two ratings of one set differ"):
        ChoiceData.from_long(long(choice=3), kind="rating")


def test_yes_and_no_about_single_objects():
    with pytest.warns(ReadingNote, match="flags in words"):
        data = ChoiceData.from_long(long(choice=["yes", "no", "no", "no", "no"]), kind="yes-no")
    assert [len(shown) for shown in data.shown] == [1] * 5
    assert [len(chosen) for chosen in data.chosen] == [1, 0, 0, 0, 0]
    assert data.set_ids.tolist() == ["7:1", "7:2", "7:3", "8:1", "8:2"]
    assert data.kinds is None
    alone = ChoiceData.from_long(long(choice=[1, 0, 0, 0, 1]).assign(choice_id=range(5)), kind="yes-no")
    assert alone.set_ids.tolist() == [0, 1, 2, 3, 4]


def test_ticks_under_a_limit_are_used_as_far_as_it_does_not_touch_them():
    frame = long(choice=[1, 1, 0, 1, 0])
    with pytest.warns(ReadingNote, match="1 of 2 sets have the 2 ticks that were allowed"):
        data = ChoiceData.from_long(frame, at_most=2)
    assert named(data) == [(7, "keep", ["pen", "ink"], ["pen", "ink"]), (8, "keep", ["pen", "ink"], ["pen"])]
    assert ChoiceData.from_long(frame, at_most=3) == ChoiceData.from_long(frame)
    assert kinds_of_defects(long(choice=1), at_most=2) == [("too-many-chosen", 0, 7)]
    with pytest.raises(ChoiceDataError, match=r"3 objects are chosen where at most 2 were .* a larger at_most"):
        ChoiceData.from_long(long(choice=1), at_most=2)
    with pytest.raises(ChoiceGPError, match=r"at_most=1 asks for one object.*use kind='best'"):
        ChoiceData.from_long(frame, at_most=1)
    with pytest.raises(ChoiceGPError, match="at_most limits how many objects are kept"):
        ChoiceData.from_long(frame, at_most=2, kind="best")
    with pytest.raises(ChoiceGPError, match="at_most must be a whole number"):
        ChoiceData.from_long(frame, at_most="two")


def test_questions_without_answers():
    for kind in ("ranking", "rating", "best-worst"):
        with pytest.raises(ChoiceGPError, match=f"kind='{kind}' is for answers, of which there are none here"):
            ChoiceData.from_long(long(), kind=kind, chosen=None)


def test_a_column_of_kinds_is_read_beside_named_features_and_not_guessed_in_folders(tmp_path):
    frame = pd.DataFrame({
        "choice_id": [1, 1, 2, 2], "alt_id": list("abab"), "choice": [1, 0, 0, 1], "price": [1.0, 2.0, 1.0, 2.0],
        "kind": ["worst", "worst", "keep", "keep"],
    })  # fmt: skip
    with pytest.warns(ReadingNote, match="column 'kind' says what was asked"):
        data = ChoiceData.from_long(frame, features=["price"])
    assert data.kinds.tolist() == ["worst", "keep"]
    frame.to_parquet(tmp_path / "one.parquet")
    with pytest.raises(ChoiceGPError, match="pass kind='kind', or name the features"):
        ChoiceFolder(tmp_path)
    frame = frame.assign(kind="keep", choice=[1, 0, 0, 0])
    frame.to_parquet(tmp_path / "one.parquet")
    assert ChoiceFolder(tmp_path, kind="kind", empty="none").n_empty == 1


def test_ratings_follow_the_names_of_their_columns():
    ratings = pd.DataFrame([[1, 2, 3]], columns=["c", "b", "a"])
    with pytest.warns(ReadingNote, match="ratings became 3 pairs"):
        data = ChoiceData.from_ratings([[1.0], [2.0], [3.0]], ratings, object_ids=["a", "b", "c"])
    assert {data.object_ids[rows[0]] for rows in data.chosen} == {"a", "b"}
    with pytest.raises(ChoiceGPError, match="the columns of ratings name objects, but X has no ids"):
        ChoiceData.from_ratings([[1.0], [2.0], [3.0]], ratings)


@pytest.mark.parametrize("cells", [["(5)", "6"], ["5k", "900"], ["5%", "0.1"]])
def test_numbers_of_unclear_size_are_refused(cells):
    frame = pd.DataFrame({"choice_id": [1, 1], "alt_id": ["a", "b"], "choice": [1, 0], "price": cells})
    with pytest.raises(ChoiceGPError, match=r"column 'price'|\(5\)"):
        ChoiceData.from_long(frame, numbers=["price"])


def test_rankings_in_a_wide_table():
    frame = pd.DataFrame({"price_a": [1, 2], "price_b": [3, 4], "rank_a": [1, 2], "rank_b": [2, 1]})
    data = ChoiceData.from_wide(frame, alternatives=["a", "b"], features=["price"], chosen="rank", kind="ranking")
    assert [data.object_ids[rows].tolist() for rows in data.chosen] == [["a"], ["b"]]


def test_defects_can_be_skipped_before_answers_become_sets():
    with pytest.warns(UserWarning, match="1 of 2 sets were left out"):
        data = ChoiceData.from_long(long(choice=[1, 1, 2, 2, 1]), kind="ranking", on_error="skip")
    assert data.set_ids.tolist() == ["8:1"]


def test_two_columns_mark_the_best_and_the_worst():
    frame = long(choice=["x", None, None, "x", None]).assign(worst=[0, 0, 1, 0, 1])
    with pytest.warns(ReadingNote, match="'x' for yes and blank for no"):
        data = ChoiceData.from_long(frame, chosen=["choice", "worst"], kind="best-worst", features=["price"])
    assert data.kinds.tolist() == ["best", "worst", "best"]
    assert [data.object_ids[rows].tolist() for rows in data.chosen] == [["pen"], ["cup"], ["pen"]]
    with pytest.raises(ChoiceDataError, match="marked as the best and as the worst"):
        ChoiceData.from_long(frame.assign(worst=[1, 0, 0, 0, 1]), chosen=["choice", "worst"], kind="best-worst")
    with pytest.raises(ChoiceDataError, match=r"pass chosen=\['BEST', 'WORST'\](.|\n)*0 objects are the worst"):
        ChoiceData.from_long(frame.assign(choice=[1, 0, 0, 1, 0]), kind="best-worst", features=["price"])

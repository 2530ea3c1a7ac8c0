"""Constructors for other answers than the objects that a person keeps."""

import numpy as np
import pandas as pd
import pytest

from choicegp.data.choices import ChoiceData
from choicegp.errors import ChoiceDataError, ChoiceGPError, ReadingNote

X = pd.DataFrame({"price": [3.0, 5.0, 1.0, 4.0]}, index=["pen", "ink", "cup", "cap"])


def kinds_of_defects(make, *args, **options):
    with pytest.raises(ChoiceDataError) as caught:
        make(*args, **options)
    return [(defect.kind, defect.set, defect.object) for defect in caught.value.defects]


def test_best_and_worst():
    shown, options = [["pen", "ink", "cup"], ["pen", "cap"]], {"by": "id", "respondents": ["ann", "bo"]}
    data = ChoiceData.from_best_worst(X, shown, ["pen", "cap"], ["cup", "pen"], **options)
    assert data.kinds.tolist() == ["best", "worst", "best"]
    assert data.set_ids.tolist() == ["0:best", "0:worst", "1:best"]
    assert [rows.tolist() for rows in data.shown] == [[0, 1, 2], [1, 2], [0, 3]]
    assert [rows.tolist() for rows in data.chosen] == [[0], [2], [3]]
    assert data.respondents.tolist() == ["ann", "ann", "bo"]
    make = ChoiceData.from_best_worst
    assert kinds_of_defects(make, X, shown, ["pen", "cap"], ["pen", "pen"], by="id") == [("best-is-worst", 0, None)]
    found = kinds_of_defects(make, X, shown, ["cap", "cap"], ["cup", "mug"], by="id")
    assert found == [("chosen-not-shown", 0, "cap"), ("unknown-object", 1, "mug")]
    with pytest.raises(ChoiceGPError, match="best must be a sequence of objects, not a str"):
        make(X, shown, "pen", ["cup", "pen"], by="id")
    with pytest.raises(ChoiceGPError, match="shown has 2 sets but chosen has 1"):
        make(X, shown, ["pen"], ["cup", "pen"], by="id")


def test_rankings():
    data = ChoiceData.from_rankings(X, [["ink", "pen", "cup"]], by="id", set_ids=[7])
    assert data.set_ids.tolist() == ["7:1", "7:2"]
    assert [rows.tolist() for rows in data.shown] == [[1, 0, 2], [0, 2]]
    assert [rows.tolist() for rows in data.chosen] == [[1], [0]]
    places = pd.DataFrame({"first": ["ink", "cap"], "second": ["pen", "pen"], "third": ["cup", None]}, index=[7, 8])
    read = ChoiceData.from_rankings(X, places, by="id", set_ids=[7, 8])
    assert [rows.tolist() for rows in read.shown][:2] == [rows.tolist() for rows in data.shown]
    assert len(read) == 3
    with pytest.raises(ChoiceGPError, match="row 8 of the rankings has an empty place before a filled one"):
        ChoiceData.from_rankings(X, places[["first", "third", "second"]], by="id")
    first_two = ChoiceData.from_rankings(X, [[3, 0]], shown=[[0, 1, 2, 3]])
    assert [rows.tolist() for rows in first_two.shown] == [[3, 0, 1, 2], [0, 1, 2]]
    assert [rows.tolist() for rows in first_two.chosen] == [[3], [0]]
    assert kinds_of_defects(ChoiceData.from_rankings, X, [[3, 0]], [[0, 1]]) == [("chosen-not-shown", 0, "cap")]
    assert kinds_of_defects(ChoiceData.from_rankings, X, [[3, 3, 1]]) == [("duplicate-object", 0, "cap")]


def test_a_ranking_equals_its_table():
    data = ChoiceData.from_rankings(X, [[2, 0, 1], [1, 3]], set_ids=["a", "b"])
    frame = pd.DataFrame({"choice_id": list("aaabb"), "alt_id": ["cup", "pen", "ink", "ink", "cap"]})
    frame = frame.assign(rank=[1, 2, 3, 1, 2], price=X["price"].loc[frame["alt_id"]].to_numpy())
    table = ChoiceData.from_long(frame, chosen="rank", kind="ranking")
    assert [data.object_ids[rows].tolist() for rows in data.shown] == [
        table.object_ids[rows].tolist() for rows in table.shown
    ]
    assert data.kinds.tolist() == table.kinds.tolist()


def test_ratings():
    ratings = pd.DataFrame({"ink": [5, 1], "pen": [2, np.nan], "cup": [2, 3]}, index=["ann", "bo"])
    with pytest.warns(ReadingNote, match="ratings became 3 pairs; 1 tie"):
        data = ChoiceData.from_ratings(X, ratings)
    assert data.respondents.tolist() == ["ann", "ann", "bo"]
    assert data.set_ids.tolist() == ["ann:1", "ann:2", "bo:1"]
    assert [data.object_ids[rows].tolist() for rows in data.chosen] == [["ink"], ["ink"], ["cup"]]
    with pytest.warns(ReadingNote, match="became 6 pairs"):
        assert len(ChoiceData.from_ratings(X.to_numpy(), [[1, 2, 3, 4]])) == 6


@pytest.mark.parametrize(
    ("ratings", "options", "message"),
    [
        (pd.DataFrame({"mug": [1.0]}), {}, "there are ratings of 'mug', but no such object"),
        ([[1.0, 2.0]], {}, "ratings have 2 columns but there are 4 objects"),
        ([[1.0, 2.0, np.inf, 1.0]], {}, "ratings must be finite numbers"),
        ([[1.0, 2.0, 3.0, 1.0]], {"respondents": ["ann"]}, "ratings have no option respondents"),
        ([["a", "b", "c", "d"]], {}, "ratings must hold real numbers"),
        (pd.DataFrame({"pen": [1, 2]}, index=["ann", "ann"]), {}, "every person needs one row of ratings"),
    ],
)
def test_ratings_that_cannot_be_read(ratings, options, message):
    with pytest.raises(ChoiceGPError, match=message):
        ChoiceData.from_ratings(X, ratings, **options)


def test_yes_and_no():
    data = ChoiceData.from_yes_no(X, ["pen", "ink", "pen"], ["yes", "no", "no"], by="id")
    assert [rows.tolist() for rows in data.shown] == [[0], [1], [0]]
    assert [rows.tolist() for rows in data.chosen] == [[0], [], []]
    with pytest.raises(ChoiceGPError, match="there are 2 objects but 1 answers"):
        ChoiceData.from_yes_no(X, [0, 1], [True])


def test_at_most_in_sets():
    with pytest.warns(ReadingNote, match="1 of 2 sets have the 2 ticks"):
        data = ChoiceData.from_sets(X, [[0, 1, 2], [1, 2, 3]], [[0, 1], [2]], at_most=2)
    assert [rows.tolist() for rows in data.shown] == [[0, 1], [1, 2, 3]]


class TestConcat:
    def test_kinds_objects_and_ids(self):
        kept = ChoiceData.from_sets(X, [[0, 1, 2]], [[0, 2]], weights=[2.0])
        ranked = ChoiceData.from_rankings(X[::-1], [["pen", "cap"]], by="id")
        data = ChoiceData.concat([kept, ranked])
        assert data.set_ids.tolist() == [0, "0:1"]
        assert data.kinds.tolist() == ["keep", "best"]
        assert data.weights.tolist() == [2.0, 1.0]
        assert data.object_ids.tolist() == ["pen", "ink", "cup", "cap"]
        assert [data.object_ids[rows].tolist() for rows in data.shown] == [["pen", "ink", "cup"], ["pen", "cap"]]
        assert [data.object_ids[rows].tolist() for rows in data.chosen] == [["pen", "cup"], ["pen"]]
        assert ChoiceData.concat([kept]) == kept

    def test_categories_of_all_parts_are_known(self):
        one = ChoiceData.from_sets(pd.DataFrame({"size": ["S", "M"]}), [[0, 1]], [[0]])
        two = ChoiceData.from_sets(pd.DataFrame({"size": ["L", "M"]}), [[0, 1]], [[0]])
        data = ChoiceData.concat([one, two])
        assert data.feature_names == ("size=L", "size=M", "size=S")
        assert data.set_ids.tolist() == ["1/0", "2/0"]
        assert data.kinds is None

    @pytest.mark.parametrize(
        ("parts", "message"),
        [
            ([], "a list of choice data, not an empty one"),
            (3, "a list of choice data, not an int"),
            ([X], "holds a DataFrame"),
        ],
    )
    def test_what_is_no_list_of_data(self, parts, message):
        with pytest.raises(ChoiceGPError, match=message):
            ChoiceData.concat(parts)

    def test_data_that_do_not_fit_together(self):
        kept = ChoiceData.from_sets(X, [[0, 1]], [[0]])
        with pytest.raises(ChoiceGPError, match="some of these data have choices and others do not"):
            ChoiceData.concat([kept, ChoiceData.from_sets(X, [[0, 1]])])
        with pytest.raises(ChoiceGPError, match="some of these data have respondents"):
            ChoiceData.concat([kept, ChoiceData.from_sets(X, [[0, 1]], [[0]], respondents=["ann"])])
        with pytest.raises(ChoiceGPError, match="different features"):
            ChoiceData.concat([kept, ChoiceData.from_sets(X.rename(columns={"price": "cost"}), [[0, 1]], [[0]])])

import time

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from choicegp.data.choices import ChoiceData
from choicegp.errors import ChoiceDataError, ChoiceGPError
from choicegp.reading.encoding import FeatureEncoding

X = np.array([[0.0, 3.0], [1.0, 2.0], [2.0, 1.0], [0.0, 0.0]])


def test_from_sets_known_answer():
    data = ChoiceData.from_sets(X, [[2, 0, 1], [3]], [[1, 2], [3]])
    assert [s.tolist() for s in data.shown] == [[2, 0, 1], [3]]
    # In the order of the shown objects, whatever the order of the answer.
    assert [c.tolist() for c in data.chosen] == [[2, 1], [3]]
    assert data.object_ids.tolist() == [0, 1, 2, 3]
    assert data.set_ids.tolist() == [0, 1]
    assert data.feature_names == ("x0", "x1")
    assert data.has_choices
    assert data.skipped == ()
    assert repr(data) == "ChoiceData(2 sets, 4 objects, 2 features, choices)"


def test_from_pairs():
    data = ChoiceData.from_pairs(X, np.array([[0, 3], [2, 1]]))
    assert [s.tolist() for s in data.shown] == [[0, 3], [2, 1]]
    assert [c.tolist() for c in data.chosen] == [[0], [2]]
    named = ChoiceData.from_pairs(
        X, [("d", "a")], by="id", object_ids=list("abcd"), set_ids=["first"], respondents=["ann"]
    )
    assert named.chosen[0].tolist() == [3]
    assert named.set_ids.tolist() == ["first"]
    frame = pd.DataFrame({"winner": ["d"], "loser": ["a"]})
    assert ChoiceData.from_pairs(X, frame, by="id", object_ids=list("abcd")).chosen[0].tolist() == [3]


@pytest.mark.parametrize("pairs", [[[0, 1, 2]], [[0]], [[0, 1], [2]], np.zeros((2, 3), dtype=int)])
def test_pairs_have_two_columns(pairs):
    with pytest.raises(ChoiceGPError, match=r"pairs must have two columns, winner and loser; row \d has \d"):
        ChoiceData.from_pairs(X, pairs)


@pytest.mark.parametrize("pairs", [None, 3, "01", [0, 1], {"a": 1}, [], [[0.0, 1.0]]])
def test_what_is_no_pairs(pairs):
    with pytest.raises(ChoiceGPError, match=r"pairs|no sets|row number"):
        ChoiceData.from_pairs(X, pairs)


def test_an_object_cannot_beat_itself():
    with pytest.raises(ChoiceDataError, match="shown twice"):
        ChoiceData.from_pairs(X, [[1, 1]])
    with pytest.warns(UserWarning, match="1 of 2 sets"):
        assert len(ChoiceData.from_pairs(X, [[1, 1], [0, 1]], on_error="skip")) == 1


def test_from_utilities_known_answer():
    data = ChoiceData.from_utilities(X, X, [[0, 1, 2, 3], [3, 1], [3]])
    assert [c.tolist() for c in data.chosen] == [[0, 1, 2], [1], [3]]
    tied = ChoiceData.from_utilities(X, [[1, 0], [1, 1], [0, 0], [2, 2]], [[0, 1, 2]], ties="strict")
    assert tied.chosen[0].tolist() == [0, 1]
    weak = ChoiceData.from_utilities(X, [[1, 0], [1, 1], [0, 0], [2, 2]], [[0, 1, 2]])
    assert weak.chosen[0].tolist() == [1]


def test_from_utilities_with_ids_and_skipping():
    frame = pd.DataFrame({"a": [0.0, np.nan, 2.0]}, index=list("pqr"))
    with pytest.warns(UserWarning, match="2 of 3 sets and 1 of 3 objects"):
        data = ChoiceData.from_utilities(
            frame, [[0.0], [1.0], [2.0]], [["p", "r"], ["q", "p"], ["p", "z"]], by="id", on_error="skip",
            respondents=["ann", "bo", "cy"],
        )  # fmt: skip
    assert data.object_ids[data.chosen[0]].tolist() == ["r"]
    assert data.respondents.tolist() == ["ann"]


def test_wrong_utilities():
    with pytest.raises(ChoiceGPError, match="U has 2 rows but there are 4 objects"):
        ChoiceData.from_utilities(X, X[:2], [[0, 1]])
    with pytest.raises(ChoiceGPError, match="not finite"):
        ChoiceData.from_utilities(X, X * np.nan, [[0, 1]])
    with pytest.raises(ChoiceGPError, match="ties must be"):
        ChoiceData.from_utilities(X, X, [[0, 1]], ties="some")


@pytest.mark.parametrize("bad", [None, "abc", [1.0, 2.0], np.ones((2, 2, 2)), [[1j]], [["a"]], {"a": [1]}])
def test_wrong_tables(bad):
    with pytest.raises(ChoiceGPError, match="X"):
        ChoiceData.from_sets(bad, [[0]])


def test_empty_frames():
    with pytest.raises(ChoiceGPError, match="no rows"):
        ChoiceData.from_sets(pd.DataFrame({"a": []}), [[0]])
    with pytest.raises(ChoiceGPError, match="no feature"):
        ChoiceData.from_sets(pd.DataFrame(index=[0, 1]), [[0]])


def test_frames_are_encoded():
    frame = pd.DataFrame({"price": [3, 5, 4], "ink": ["red", "blue", "red"]}, index=["pen", "brush", "quill"])
    data = ChoiceData.from_sets(frame, [[0, 1]])
    assert data.X.tolist() == [[3, 1], [5, 0], [4, 1]]
    assert data.feature_names == ("price", "ink=red")
    same = ChoiceData.from_sets(data.X, [[0, 1]], encoding=data.encoding, object_ids=frame.index)
    assert same == data
    with pytest.raises(ChoiceGPError, match="1 columns instead of 2: 'price', 'ink=red'"):
        ChoiceData.from_sets(data.X[:, :1], [[0]], encoding=data.encoding)
    with pytest.raises(ChoiceDataError, match="'ink' do not name one category"):
        ChoiceData.from_sets(data.X + 0.5, [[0]], encoding=data.encoding)


def test_with_encoding():
    train = ChoiceData.from_sets(pd.DataFrame({"size": ["S", "M", "L"], "price": [1, 2, 3]}), [[0, 1]])
    frame = pd.DataFrame({"price": [5, 6], "size": ["L", "S"]}, index=["p", "q"])
    new = ChoiceData.from_sets(frame, [[0, 1]], [[1]])
    assert new.feature_names == ("price", "size=S")
    recoded = new.with_encoding(train.encoding)
    assert recoded.feature_names == ("size=L", "size=M", "size=S", "price")
    assert recoded.X.tolist() == [[1, 0, 0, 5], [0, 0, 1, 6]]
    assert recoded.encoding == train.encoding
    assert recoded.chosen[0].tolist() == [1]
    assert new.X.shape == (2, 2)
    assert recoded.with_encoding(new.encoding) == new
    assert not recoded.X.flags.writeable


def test_with_encoding_that_does_not_fit():
    train = ChoiceData.from_sets(pd.DataFrame({"size": ["S", "M"]}), [[0, 1]])
    unknown = ChoiceData.from_sets(pd.DataFrame({"size": ["S", "XL"]}, index=["p", "q"]), [[0, 1]])
    with pytest.raises(ChoiceDataError, match=r"object 'q': feature 'size' has the unknown category 'XL'.*'M', 'S'"):
        unknown.with_encoding(train.encoding)
    with pytest.raises(ChoiceGPError, match="'size' missing; 'price' not known"):
        ChoiceData.from_sets(pd.DataFrame({"price": [1]}), [[0]]).with_encoding(train.encoding)
    with pytest.raises(ChoiceGPError, match="no names"):
        ChoiceData.from_sets([[1.0]], [[0]]).with_encoding(train.encoding)
    with pytest.raises(ChoiceGPError, match="2 features instead of 3"):
        ChoiceData.from_sets(X, [[0]]).with_encoding(FeatureEncoding.plain(3))
    with pytest.raises(ChoiceGPError, match="must be a FeatureEncoding"):
        train.with_encoding(None)


def test_to_long_known_answer():
    data = ChoiceData.from_sets(
        pd.DataFrame({"price": [1.5, 2.5]}, index=["pen", "ink"]),
        [["ink", "pen"], ["ink"]], [["pen"], ["ink"]], by="id",
        set_ids=["s", "t"], respondents=["ann", "bo"], weights=[1.0, 2.0],
    )  # fmt: skip
    expected = {
        "choice_id": ["s", "s", "t"],
        "respondent": ["ann", "ann", "bo"],
        "alt_id": ["ink", "pen", "ink"],
        "choice": [0, 1, 1],
        "weight": [1.0, 1.0, 2.0],
        "price": [2.5, 1.5, 2.5],
    }
    assert data.to_long().to_dict("list") == expected
    assert list(data.to_long().columns) == list(expected)
    assert "kept" in data.to_long(chosen="kept").columns


def test_names_of_features_may_clash():
    data = ChoiceData.from_sets(pd.DataFrame({"choice": [1.0, 2.0]}), [[0, 1]], [[0]])
    with pytest.raises(ChoiceGPError, match="'choice' has the name of another column"):
        data.to_long()
    with pytest.raises(ChoiceGPError, match="cannot be both"):
        data.to_long(chosen="choice_id")
    with pytest.raises(ChoiceGPError, match="chosen must be the name"):
        data.to_long(chosen=["choice"])
    assert list(data.to_long(chosen="kept")) == ["choice_id", "alt_id", "kept", "choice"]


def read_back(frame_or_path, data):
    return ChoiceData.from_long(
        frame_or_path,
        chosen="choice" if data.has_choices else None,
        respondent=None if data.respondents is None else "respondent",
        weight=None if data.weights is None else "weight",
        encoding=data.encoding,
    )


@st.composite
def random_data(draw):
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    t, m = int(rng.integers(1, 8)), int(rng.integers(1, 8))
    values = st.floats(allow_nan=False, allow_infinity=False)
    words = st.sampled_from(["x", "None", 'say "a, b"', "é", "c d", "NA"])
    frame = pd.DataFrame(
        {
            "p": draw(st.lists(values, min_size=t, max_size=t)),
            "q": draw(st.lists(words, min_size=t, max_size=t)),
            "r": pd.Categorical(draw(st.lists(st.sampled_from("LM"), min_size=t, max_size=t)), list("SML")),
        },
        index=draw(st.sampled_from([list(range(3, 3 + t)), [f"o{i}" for i in range(t)]])),
    )
    shown = [rng.permutation(t)[: rng.integers(1, t + 1)] for _ in range(m)]
    chosen = [s[: rng.integers(1, len(s) + 1)] for s in shown] if draw(st.booleans()) else None
    respondents = [f"r{i % 2}" for i in range(m)] if draw(st.booleans()) else None
    weights = rng.random(m) + 0.1 if draw(st.booleans()) else None
    return ChoiceData.from_sets(frame, shown, chosen, respondents=respondents, weights=weights)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(random_data())
def test_round_trips(tmp_path, data):
    long = data.to_long()
    back = read_back(long, data)
    pd.testing.assert_frame_equal(back.to_long(), long)
    # Objects in the order of their first appearance: from now on nothing changes at all.
    assert read_back(back.to_long(), back) == back
    learned = ChoiceData.from_long(long, chosen="choice" if data.has_choices else None, features=["p", "q", "r"])
    assert learned.encoding == data.encoding
    for name in ("a.csv", "a.parquet"):
        data.write(tmp_path / name)
        assert read_back(tmp_path / name, data) == back


def test_write_to_a_wrong_place(tmp_path):
    data = ChoiceData.from_pairs(X, [[0, 1]])
    with pytest.raises(ChoiceGPError, match="suffix"):
        data.write(tmp_path / "a.xlsx")


def test_large_data_are_fast():
    rng = np.random.default_rng(0)
    m, a, t = 20_000, 10, 5000
    shown = (rng.integers(0, t, (m, 1)) + np.arange(a) * 499) % t
    objects = rng.random((t, 6))
    start = time.process_time()
    data = ChoiceData.from_utilities(objects, objects[:, :2], shown)
    long = data.to_long()
    again = ChoiceData.from_long(long)
    again.take(rng.permutation(m)).describe()
    seconds = time.process_time() - start
    assert len(long) == m * a
    # About 0.4 s; a loop over rows would take minutes.
    assert seconds < 5
    naive = [long.alt_id[k * a : (k + 1) * a].tolist() for k in range(50)]
    assert [again.object_ids[s].tolist() for s in again.shown[:50]] == naive

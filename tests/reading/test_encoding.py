import datetime

import numpy as np
import pandas as pd
import pytest

from choicegp.errors import ChoiceDataError, ChoiceGPError
from choicegp.reading.defects import Places
from choicegp.reading.encoding import FeatureColumn, FeatureEncoding


@pytest.fixture
def frame():
    return pd.DataFrame(
        {
            "price": [1, 2, 3],
            "heavy": [True, False, True],
            "material": ["pla", "abs", "pla"],
            "colour": ["red", "blue", "green"],
            "maker": ["one", "one", "one"],
            "size": pd.Categorical(["M", "S", "M"], categories=["S", "M", "L"]),
        }
    )


def test_known_encoding(frame):
    encoding = FeatureEncoding.learn(frame)
    assert encoding.feature_names == (
        "price", "heavy", "material=pla", "colour=blue", "colour=green", "colour=red", "maker=one",
        "size=S", "size=M", "size=L",
    )  # fmt: skip
    expected = [
        [1, 1, 1, 0, 0, 1, 1, 0, 1, 0],
        [2, 0, 0, 1, 0, 0, 1, 1, 0, 0],
        [3, 1, 1, 0, 1, 0, 1, 0, 1, 0],
    ]
    X = encoding.encode(frame)
    assert X.dtype == np.float64
    assert X.tolist() == expected


def test_decode_is_the_inverse(frame):
    encoding = FeatureEncoding.learn(frame)
    X = encoding.encode(frame)
    back = encoding.decode(X)
    assert back.columns.tolist() == frame.columns.tolist()
    for name in frame:
        assert back[name].tolist() == frame[name].tolist()
    assert (encoding.encode(back) == X).all()
    assert FeatureEncoding.learn(back) == encoding


def test_json_round_trip(frame):
    frame["grade"] = pd.Categorical([3, 1, 2], categories=[3, 1, 2])
    frame["été"] = ["ça", "là", "où"]
    encoding = FeatureEncoding.learn(frame)
    assert FeatureEncoding.from_json(encoding.to_json()) == encoding
    for text in ("{}", "no json", '{"columns": [1]}', '{"columns": []}', "[]"):
        with pytest.raises(ChoiceGPError):
            FeatureEncoding.from_json(text)


def test_column_order_of_new_data_does_not_matter(frame):
    encoding = FeatureEncoding.learn(frame)
    assert (encoding.encode(frame[frame.columns[::-1]]) == encoding.encode(frame)).all()


@pytest.mark.parametrize("dtype", ["Int64", "Float64", "boolean", "float32", "uint8", "int64[pyarrow]"])
def test_numeric_dtypes(dtype):
    column = pd.Series([1, 0, 1]).astype(dtype)
    encoding = FeatureEncoding.learn(pd.DataFrame({"a": column}))
    assert encoding.encode(pd.DataFrame({"a": column}))[:, 0].tolist() == [1, 0, 1]


def test_object_column_of_numbers_is_numeric():
    frame = pd.DataFrame({"a": pd.Series([1, 2.5, True], dtype=object)})
    assert FeatureEncoding.learn(frame).encode(frame)[:, 0].tolist() == [1, 2.5, 1]


def test_unknown_category_names_everything(frame):
    encoding = FeatureEncoding.learn(frame)
    new = frame.assign(material=["pla", "wood", "abs"])
    with pytest.raises(ChoiceDataError) as caught:
        encoding.encode(new)
    text = str(caught.value)
    for part in ("row 1", "'material'", "'wood'", "'abs', 'pla'"):
        assert part in text
    assert [d.kind for d in caught.value.defects] == ["unknown-category"]


def test_all_bad_values_are_named():
    frame = pd.DataFrame({"a": [1.0, np.nan, np.inf, 2.0], "b": ["x", "y", None, " "]})
    encoding = FeatureEncoding.learn(frame)
    X, defects = encoding.inspect(frame, places=Places(rows=np.array([2, 3, 4, 5])))
    assert [(d.kind, d.row) for _, d in defects] == [
        ("missing-feature", 3),
        ("non-finite-feature", 4),
        ("missing-feature", 4),
        ("missing-feature", 5),
    ]
    assert "'b'" in defects[-1][1].problem
    assert np.isnan(X[[1, 2, 2, 3], [0, 0, 1, 1]]).tolist() == [True, False, True, True]


def test_text_in_a_numeric_column_of_new_data():
    encoding = FeatureEncoding.plain(1)
    with pytest.raises(ChoiceDataError, match="row 1: feature 'x0' must be a number, not 'two'"):
        encoding.encode(pd.DataFrame({"x0": pd.Series([1, "two", 3], dtype=object)}))


@pytest.mark.parametrize(
    ("values", "rows"),
    [
        (["1", "2", "3", "x"], [3]),
        (["1,5", "2,5", "?", "3,5", "?"], [2, 4]),
        (["1.234,5", "1,234.5", "12 000", "n.a."], [3]),
    ],
)
def test_numbers_stored_as_text_with_dirt(values, rows):
    with pytest.raises(ChoiceDataError) as caught:
        FeatureEncoding.learn(pd.DataFrame({"price": values}))
    assert [d.row for d in caught.value.defects] == rows
    assert "'price'" in str(caught.value)


def test_numbers_stored_as_text():
    with pytest.raises(ChoiceGPError, match=r"'price' holds numbers stored as text such as '12,5'.*decimal point"):
        FeatureEncoding.learn(pd.DataFrame({"price": ["12,5", "13,5"]}))
    # Declared as categories they are names.
    names = FeatureEncoding.learn(pd.DataFrame({"zone": pd.Categorical(["1", "2"])})).feature_names
    assert names == ("zone=2",)


def test_half_words_are_words():
    assert len(FeatureEncoding.learn(pd.DataFrame({"a": ["4", "x"]})).columns[0].categories) == 2


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pd.to_datetime(["2020-01-01", "2020-01-02"]), "dates or times"),
        (pd.to_timedelta([1, 2], unit="D"), "dates or times"),
        (pd.Series([datetime.date(2020, 1, 1)] * 2, dtype=object), "dates or times"),
        (pd.Series([pd.Period("2020"), pd.Period("2021")]), "dates or times"),
        (pd.Series([1 + 2j, 3]), "complex"),
        (pd.Series([[1], [2]]), "lists"),
        (pd.Series([("a", 1), ("b", 2)]), "a tuple"),
        (pd.Series(["a", 1], dtype=object), "'a'|number"),
        (pd.Categorical([pd.Timestamp("2020-01-01")] * 2), "neither a word nor a number"),
        (
            [f"free text {'abc'[i % 3]}{chr(97 + i // 100)}{'-' * (i % 100)}" for i in range(1001)],
            "1001 categories",
        ),
    ],
)
def test_columns_that_cannot_be_features(column, message):
    with pytest.raises(ChoiceGPError, match=message):
        FeatureEncoding.learn(pd.DataFrame({"when": column}))


def test_columns_must_fit(frame):
    encoding = FeatureEncoding.learn(frame)
    with pytest.raises(ChoiceGPError, match="'price' missing"):
        encoding.encode(frame.drop(columns="price"))
    with pytest.raises(ChoiceGPError, match="'extra' not known"):
        encoding.encode(frame.assign(extra=1))
    with pytest.raises(ChoiceGPError, match="3 columns instead of 10"):
        encoding.encode(np.ones((2, 3)))


def test_encoded_arrays_are_checked(frame):
    encoding = FeatureEncoding.learn(frame)
    X = encoding.encode(frame)
    assert (encoding.encode(X) == X).all()
    X[1, 3:6] = 1
    with pytest.raises(ChoiceDataError, match="row 1: the 0/1 features of 'colour' do not name one category"):
        encoding.decode(X)


def test_impossible_encodings():
    with pytest.raises(ChoiceGPError, match="no feature"):
        FeatureEncoding(())
    with pytest.raises(ChoiceGPError, match="appears twice"):
        FeatureEncoding((FeatureColumn("a", "numeric"), FeatureColumn("a", "numeric")))
    with pytest.raises(ChoiceGPError, match="'a=x' appears twice"):
        FeatureEncoding((FeatureColumn("a=x", "numeric"), FeatureColumn("a", "categorical", ("x",))))
    with pytest.raises(ChoiceGPError, match="unknown kind"):
        FeatureEncoding((FeatureColumn("a", "other"),))
    with pytest.raises(ChoiceGPError, match=r"without categories|no category"):
        FeatureEncoding.learn(pd.DataFrame({"a": pd.Categorical([None])}))


def test_recode(frame):
    old = FeatureEncoding.learn(frame[["colour"]])
    new = FeatureEncoding((FeatureColumn("colour", "categorical", ("green", "red", "blue", "pink")),))
    assert new.recode(old.encode(frame[["colour"]]), old).tolist() == [
        [0, 1, 0, 0],
        [0, 0, 1, 0],
        [1, 0, 0, 0],
    ]
    with pytest.raises(ChoiceGPError, match="3 features instead of 2"):
        FeatureEncoding.plain(2).recode(np.ones((1, 3)), FeatureEncoding.plain(3))
    with pytest.raises(ChoiceGPError, match="no names"):
        new.recode(np.ones((1, 1)), FeatureEncoding.plain(1))


class TestMissing:
    FRAME = pd.DataFrame({"price": [1.0, np.nan, 4.0], "colour": ["red", None, "blue"], "size": [1, 2, 3]})

    def test_missing_values_become_values(self):
        encoding = FeatureEncoding.learn(self.FRAME, missing="level")
        assert encoding.feature_names == (
            "price", "price=missing", "colour=blue", "colour=red", "colour=(missing)", "size",
        )  # fmt: skip
        assert encoding.encode(self.FRAME).tolist() == [
            [1.0, 0.0, 0.0, 1.0, 0.0, 1.0],
            [2.5, 1.0, 0.0, 0.0, 1.0, 2.0],
            [4.0, 0.0, 1.0, 0.0, 0.0, 3.0],
        ]
        decoded = encoding.decode(encoding.encode(self.FRAME))
        assert decoded["price"].isna().tolist() == [False, True, False]
        assert decoded["colour"].tolist() == ["red", "(missing)", "blue"]
        assert (encoding.encode(decoded) == encoding.encode(self.FRAME)).all()

    def test_a_stored_encoding_treats_new_objects_in_the_same_way(self):
        encoding = FeatureEncoding.learn(self.FRAME, missing="level")
        again = FeatureEncoding.from_json(encoding.to_json())
        assert again == encoding
        new = pd.DataFrame({"price": [np.nan, 9.0], "colour": ["red", ""], "size": [5, 6]})
        assert again.encode(new)[:, [0, 1, 4]].tolist() == [[2.5, 1.0, 0.0], [9.0, 0.0, 1.0]]
        with pytest.raises(ChoiceDataError, match="feature 'size' is missing"):
            again.encode(new.assign(size=[np.nan, 1]))
        with pytest.raises(ChoiceDataError, match="'price' is not finite"):
            again.encode(new.assign(price=np.inf))

    def test_encodings_of_earlier_versions_are_read(self):
        text = '{"columns": [{"name": "price", "kind": "numeric", "categories": []}]}'
        assert FeatureEncoding.from_json(text).columns[0].fill is None

    def test_nothing_but_missing_values(self):
        with pytest.raises(ChoiceGPError, match="feature 'price' is missing everywhere; leave it out"):
            FeatureEncoding.learn(self.FRAME.assign(price=np.nan), missing="level")

    def test_without_missing_values_nothing_changes(self):
        whole = self.FRAME.dropna()
        assert FeatureEncoding.learn(whole, missing="level") == FeatureEncoding.learn(whole)

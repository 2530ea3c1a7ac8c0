import numpy as np
import pandas as pd
import pytest

from choicegp.data.choices import ChoiceData
from choicegp.errors import ChoiceDataError, ChoiceGPError, ReadingNote, ReadingWarning
from choicegp.reading.encoding import FeatureEncoding
from choicegp.reading.long import group_equal_rows


@pytest.fixture
def long():
    """Two sets whose rows are not adjacent; the price of the pen differs between them."""
    return pd.DataFrame(
        {
            "choice_id": ["s2", "s1", "s2", "s1", "s1"],
            "alt_id": ["pen", "pen", "ink", "ink", "cup"],
            "choice": [1, 0, 0, 1, 1],
            "price": [3.0, 2.5, 5.0, 5.0, 1.0],
        }
    )


def defects_of(make, *args, **kwargs):
    with pytest.raises(ChoiceDataError) as caught:
        make(*args, **kwargs)
    return caught.value.defects


def places(defects):
    return [(d.kind, d.row, d.set, d.object) for d in defects]


def test_long_known_answer(long):
    data = ChoiceData.from_long(long)
    assert data.set_ids.tolist() == ["s2", "s1"]
    assert data.object_ids.tolist() == ["pen", "ink", "pen", "cup"]
    assert data.X[:, 0].tolist() == [3.0, 5.0, 2.5, 1.0]
    assert [s.tolist() for s in data.shown] == [[0, 1], [2, 1, 3]]
    assert [c.tolist() for c in data.chosen] == [[0], [1, 3]]
    assert data.feature_names == ("price",)


def test_index_of_the_frame_does_not_matter(long):
    assert ChoiceData.from_long(long.set_index(pd.Index([5, 5, 1, 0, 9]))) == ChoiceData.from_long(long)


def test_names_are_arguments(long):
    renamed = long.rename(columns={"choice_id": "case", "alt_id": "item", "choice": "kept"}).assign(note="x", who=7)
    data = ChoiceData.from_long(
        renamed, set_id="case", object_id="item", chosen="kept", features="price", respondent="who"
    )
    assert data.respondents.tolist() == [7, 7]
    assert data.take(slice(None)).feature_names == ("price",)


def test_sets_may_be_named_by_their_respondent(long):
    data = ChoiceData.from_long(long, respondent="choice_id")
    assert data.respondents.tolist() == data.set_ids.tolist()


def test_without_object_ids(long):
    data = ChoiceData.from_long(long.drop(columns="alt_id"), object_id=None)
    assert data.object_ids.tolist() == [0, 1, 2, 3]
    assert [s.tolist() for s in data.shown] == [[0, 1], [2, 1, 3]]
    same = long.drop(columns="alt_id").assign(price=[3.0, 1.0, 5.0, 1.0, 2.0])
    found = defects_of(ChoiceData.from_long, same, object_id=None)
    assert [(d.kind, d.row, d.set) for d in found] == [("duplicate-object", 3, "s1")]


def test_without_choices(long):
    data = ChoiceData.from_long(long.drop(columns="choice"), chosen=None)
    assert not data.has_choices
    assert data.chosen is None
    with pytest.raises(ChoiceGPError, match=r"no column 'choice'.*'choice_id', 'alt_id', 'price'.*chosen=None"):
        ChoiceData.from_long(long.drop(columns="choice"))


@pytest.mark.parametrize(
    "flags",
    [
        [1, 0, 0, 1, 1],
        [1.0, 0.0, 0.0, 1.0, 1.0],
        [True, False, False, True, True],
        ["1", "0", "0", "1", "1"],
        ["true", "false", "False", "True", "TRUE"],
        pd.array([1, 0, 0, 1, 1], dtype="Int64"),
        pd.array([True, False, False, True, True], dtype="boolean"),
        pd.Categorical(["1", "0", "0", "1", "1"]),
        pd.Series([True, 0, "0", 1.0, "1"], dtype=object),
    ],
)
def test_flags(long, flags):
    assert ChoiceData.from_long(long.assign(choice=flags)) == ChoiceData.from_long(long)


@pytest.mark.parametrize("flag", [2, -1, 0.5, "yes", "", None, float("nan"), "1.0"])
def test_wrong_flags(long, flag):
    flags = pd.Series([1, 0, flag, 1, 1], dtype=object)
    found = defects_of(ChoiceData.from_long, long.assign(choice=flags))
    assert places(found) == [("wrong-flag", 2, "s2", "ink")]
    assert "flag that is not 0/1" in found[0].problem


def test_available(long):
    data = ChoiceData.from_long(long.assign(av=[1, 0, 1, 1, 1]), available="av")
    assert data.object_ids.tolist() == ["pen", "ink", "cup"]
    assert [s.tolist() for s in data.shown] == [[0, 1], [1, 2]]
    # What is not shown needs neither features nor a flag.
    holes = long.assign(av=[1, 0, 1, 1, 1], price=[3, np.nan, 5, 5, 1], choice=[1, np.nan, 0, 1, 1])
    assert ChoiceData.from_long(holes, available="av") == data
    found = defects_of(ChoiceData.from_long, long.assign(av=[0, 1, 1, 1, 2]), available="av")
    assert places(found) == [("chosen-not-shown", 0, "s2", "pen"), ("wrong-flag", 4, "s1", "cup")]
    found = defects_of(ChoiceData.from_long, long.assign(av=[0, 1, 0, 1, 1], choice=[0, 1, 0, 0, 0]), available="av")
    assert places(found) == [("empty-set", 0, "s2", None)]


def test_every_defect_of_a_long_table():
    frame = pd.DataFrame(
        {
            "choice_id": [1, 1, 2, 2, 3, 3, None, 4, 4, 5, 5],
            "alt_id": ["a", "a", "a", "b", "a", None, "a", "a", "b", "a", "b"],
            "choice": [1, 0, 0, 0, 1, 0, 1, 1, "x", 1, 0],
            "price": [1.0, 2.0, 1.0, np.nan, 1.0, 1.0, 1.0, np.inf, 1.0, 1.0, 1.0],
            "who": [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2],
            "w": [1, 1, 0, 0, 1, 1, 1, 1, 1, 1, 1],
        }
    )
    found = defects_of(ChoiceData.from_long, frame, respondent="who", weight="w")
    assert places(found) == [
        ("duplicate-object", 1, 1, "a"),
        ("nothing-chosen", 2, 2, None),
        ("bad-weight", 2, 2, None),
        ("missing-feature", 3, 2, "b"),
        ("missing-id", 5, 3, None),
        ("missing-id", 6, None, None),
        ("non-finite-feature", 7, 4, "a"),
        ("wrong-flag", 8, 4, "b"),
        ("differing-respondent", 10, 5, "b"),
    ]


def test_rows_of_files_and_frames_are_counted_as_said(tmp_path, long):
    long.loc[3, "price"] = np.nan
    with pytest.raises(ChoiceDataError, match=r"^DataFrame \(rows counted from 0\): row 3, set 's1', object 'ink'"):
        ChoiceData.from_long(long)
    long.to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(ChoiceDataError, match=r"a.csv \(the header is row 1\): row 5, set 's1', object 'ink'"):
        ChoiceData.from_long(tmp_path / "a.csv")
    with pytest.warns(UserWarning, match=r"^1 of 2 sets were left out \(1 defect\)") as caught:
        data = ChoiceData.from_long(str(tmp_path / "a.csv"), on_error="skip")
    assert caught[0].filename == __file__
    assert places(data.skipped) == [("missing-feature", 5, "s1", "ink")]
    assert data.set_ids.tolist() == ["s2"]


def test_objects_of_left_out_sets_stay(long):
    with pytest.warns(UserWarning, match="1 of 2 sets"):
        data = ChoiceData.from_long(long.assign(choice=[1, 0, 0, 0, 0]), on_error="skip")
    assert data.object_ids.tolist() == ["pen", "ink", "pen", "cup"]


def test_nothing_left(long):
    with pytest.raises(ChoiceDataError, match="no set is without defects"):
        ChoiceData.from_long(long.assign(price=np.nan), on_error="skip")
    with pytest.raises(ChoiceDataError, match="the set's id is missing"):
        ChoiceData.from_long(long.assign(choice_id=None), on_error="skip")
    with pytest.raises(ChoiceGPError, match="no row shows an object"):
        ChoiceData.from_long(long.assign(av=0), available="av")


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({}, {"set_id": "case"}, r"no column 'case' \(set_id\); the columns are 'choice_id'"),
        ({}, {"set_id": None}, "set_id must name"),
        ({}, {"features": ["weight"]}, "no feature column 'weight'"),
        ({}, {"features": []}, "features is empty"),
        ({}, {"features": [["price"], 2]}, "features must be a list of names"),
        ({}, {"features": {"price"}}, "features must be a list of names, not a set"),
        ({}, {"chosen": ["choice"]}, "chosen must be the name of a column, not a list"),
        ({}, {"chosen": "alt_id"}, "'alt_id' cannot be both object_id and chosen"),
        ({}, {"features": ["price", "choice"]}, "'choice' cannot be both"),
        ({"price": "12,5"}, {}, "'price' holds numbers stored as text"),
        ({"price": pd.Timestamp("2020-01-01")}, {}, "dates"),
        ({"price": [[1], [2], [3], [4], [5]]}, {}, "column 'price' holds lists"),
        ({"choice": [[1], [2], [3], [4], [5]]}, {}, "column 'choice' holds lists"),
        ({"choice_id": [[1], [2], [3], [4], [5]]}, {}, "column 'choice_id' holds lists"),
        ({"alt_id": [[1], [2], [3], [4], [5]]}, {}, "column 'alt_id' holds lists"),
        ({}, {"encoding": 3}, "encoding must be a FeatureEncoding"),
    ],
)
def test_tables_that_cannot_be_read(long, change, options, message):
    with pytest.raises(ChoiceGPError, match=message):
        ChoiceData.from_long(long.assign(**change), **options)


@pytest.mark.parametrize("frame", [None, 3, {"a": [1]}, [[1, 2]], np.ones((2, 2))])
def test_what_is_no_table(frame):
    with pytest.raises(ChoiceGPError, match="must be a DataFrame or the path"):
        ChoiceData.from_long(frame)


def test_frames_without_rows_or_with_equal_names(long):
    with pytest.raises(ChoiceGPError, match="no rows"):
        ChoiceData.from_long(long[:0])
    with pytest.raises(ChoiceGPError, match="columns of the same name: 'price'"):
        ChoiceData.from_long(pd.concat([long, long[["price"]]], axis=1))
    with pytest.raises(ChoiceGPError, match="no feature column"):
        ChoiceData.from_long(long.drop(columns="price"))


def test_text_numbers_in_a_file_name_the_row(tmp_path, long):
    long["price"] = ["3", "2.5", "five", "5", "1"]
    long.to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(ChoiceDataError, match=r"a.csv.*row 4: feature 'price' must be a number.*not 'five'"):
        ChoiceData.from_long(tmp_path / "a.csv")


def test_new_data_take_the_encoding_of_training_data(long):
    long["ink"] = ["red", "blue", "red", "black", "blue"]
    train = ChoiceData.from_long(long)
    new = ChoiceData.from_long(long[long.choice_id == "s2"], encoding=train.encoding)
    assert new.feature_names == train.feature_names == ("price", "ink=black", "ink=blue", "ink=red")
    found = defects_of(ChoiceData.from_long, long.assign(ink="gold"), encoding=train.encoding)
    assert len(found) == 5
    assert found[0].row == 0
    assert "'gold'" in found[0].problem


def test_ids_in_files_are_not_mangled(tmp_path):
    text = "choice_id,alt_id,choice,price\n1,01,1,2\n1,1,0,3\n2,None,1,4\n2,NA,0,5\n"
    (tmp_path / "a.csv").write_text(text)
    data = ChoiceData.from_long(tmp_path / "a.csv")
    assert data.object_ids.tolist() == ["01", "1", "None", "NA"]
    assert data.set_ids.tolist() == [1, 2]


def naive_from_long(frame):
    sets, objects = {}, {}
    for row in frame.to_dict("records"):
        key = (row["alt_id"], row["p"], row["q"])
        objects.setdefault(key, len(objects))
        sets.setdefault(row["choice_id"], []).append((key, row["choice"]))
    return sets


@pytest.mark.parametrize("seed", range(3))
def test_vectorised_equals_naive(seed):
    rng = np.random.default_rng(seed)
    frames = []
    for k in rng.permutation(60):
        ids = rng.permutation(8)[: rng.integers(1, 6)]
        frames.append(
            pd.DataFrame(
                {
                    "choice_id": k,
                    "alt_id": ids,
                    "choice": rng.permutation([1] + [int(rng.random() < 0.5) for _ in ids[1:]]),
                    "p": rng.integers(0, 2, len(ids)).astype(float),
                    "q": np.where(rng.random(len(ids)) > 0.5, "x", "y"),
                }
            )
        )
    frame = pd.concat(frames).sample(frac=1, random_state=seed)
    sets = naive_from_long(frame)
    data = ChoiceData.from_long(frame, encoding=FeatureEncoding.learn(frame[["p", "q"]]))
    assert data.set_ids.tolist() == list(sets)
    decoded = data.encoding.decode(data.X)
    keys = list(zip(data.object_ids.tolist(), decoded["p"].tolist(), decoded["q"].tolist(), strict=True))
    assert len(set(keys)) == len(keys)
    for entries, shown, chosen in zip(sets.values(), data.shown, data.chosen, strict=True):
        assert [keys[i] for i in shown] == [key for key, _ in entries]
        assert [keys[i] for i in chosen] == [key for key, flag in entries if flag]


def test_group_equal_rows():
    X = np.array([[1.0, 2.0], [1.0, 3.0], [1.0, 2.0], [0.0, 0.0], [-0.0, 0.0]])
    group, first = group_equal_rows(X)
    assert group.tolist() == [0, 1, 0, 2, 2]
    assert first.tolist() == [0, 1, 3]
    group, first = group_equal_rows(X, np.array([7, 7, 8, 7, 7]))
    assert group.tolist() == [0, 1, 2, 3, 3]


def test_rows_are_grouped_as_python_compares_them():
    rng = np.random.default_rng(0)
    # Numbers whose last bytes are zero, and are not if they are as small as can be.
    X = rng.choice([0.0, -0.0, 1.0, 5e-324, -5e-324], size=(300, 3))
    labels = rng.integers(0, 3, size=300)
    group, first = group_equal_rows(X, labels)
    rows = [(label, *row) for row, label in zip(X.tolist(), labels.tolist(), strict=True)]
    number = {row: i for i, row in enumerate(dict.fromkeys(rows))}
    assert group.tolist() == [number[row] for row in rows]
    assert first.tolist() == [rows.index(row) for row in number]


@pytest.mark.parametrize(
    ("n", "says"),
    [(50, "30 more columns of words hold units"), (21, "1 more column of words holds units")],
)
def test_many_columns_of_words_are_remarked_in_few_lines(n, says):
    frame = pd.DataFrame({f"name{j}": [f"word {i} of {j}" for i in range(12)] for j in range(n)})
    frame = frame.assign(choice_id=np.arange(12) // 2, choice=[1, 0] * 6)
    with pytest.warns(ReadingWarning) as warned:
        ChoiceData.from_long(frame, object_id=None)
    found = [str(one.message) for one in warned]
    assert len(found) == 21
    to_do = "to leave them out, name the columns of features"
    assert found[-1] == f"{says} or very many different words; {to_do}"


CATALOGUE = """choice_id,alt_id,choice,price,colour
1,pen,1,3,red
1,ink,0,,blue
2,pen,1,3,red
2,cap,1,4,
3,pen,0,3,red
3,ink,1,5,blue
"""


def test_missing_features_are_refused_skipped_or_a_value(tmp_path):
    path = tmp_path / "catalogue.csv"
    path.write_text(CATALOGUE)
    with pytest.raises(ChoiceDataError, match=r"2 x missing-feature: .*pass missing='skip'.*missing='level'"):
        ChoiceData.from_long(path)
    with pytest.warns(UserWarning, match=r"2 of 3 sets were left out \(2 defects\)"):
        skipped = ChoiceData.from_long(path, missing="skip")
    assert skipped.set_ids.tolist() == [3]
    assert [defect.kind for defect in skipped.skipped] == ["missing-feature"] * 2
    data = ChoiceData.from_long(path, missing="level")
    assert data.feature_names == ("price", "price=missing", "colour=blue", "colour=red", "colour=(missing)")
    assert data.X[data.object_ids == "ink"].tolist() == [[3.6, 1, 1, 0, 0], [5, 0, 1, 0, 0]]
    assert ChoiceData.from_long(data.to_long(), missing="level") == data
    assert ChoiceData.from_long(path, encoding=data.encoding) == data, "the encoding knows what to do"
    with pytest.raises(ChoiceGPError, match="missing must be 'error', 'skip' or 'level'"):
        ChoiceData.from_long(path, missing="drop")


def test_skipping_missing_features_forgives_no_other_defect(tmp_path):
    path = tmp_path / "catalogue.csv"
    path.write_text(CATALOGUE.replace("3,pen,0", "3,pen,maybe"))
    with pytest.raises(ChoiceDataError, match="row 6, set 3, object 'pen': the choice has a flag") as caught:
        ChoiceData.from_long(path, missing="skip")
    assert len(caught.value.defects) == 1


def test_empty_answers_make_the_round_trip(long):
    data = ChoiceData.from_long(long.assign(choice=[0, 0, 0, 1, 1]), empty="none")
    assert [len(chosen) for chosen in data.chosen] == [0, 2]
    assert ChoiceData.from_long(data.to_long(), empty="none") == data
    with pytest.warns(UserWarning, match="1 of 2 sets were left out"):
        assert ChoiceData.from_long(data.to_long(), empty="skip").set_ids.tolist() == ["s1"]
    with pytest.raises(ChoiceDataError, match=r"nothing is chosen.*pass empty='none'.*empty='skip'"):
        ChoiceData.from_long(data.to_long())


def with_none(**more):
    rows = [(1, "a", 3.0, 1), (1, "None of these", None, 0), (2, "b", 4.0, 0), (2, "None of these", None, 1)]
    return pd.DataFrame(rows, columns=["choice_id", "alt_id", "price", "choice"]).assign(**more)


def test_none_of_these_is_an_answer_and_no_object():
    with pytest.warns(ReadingNote, match="'None of these' is no object: choosing it was read as keeping nothing"):
        data = ChoiceData.from_long(with_none(), empty="none")
    assert data.object_ids.tolist() == ["a", "b"]
    assert [rows.tolist() for rows in data.chosen] == [[0], []]
    with pytest.raises(ChoiceDataError, match="if 'None of these' means that nothing is kept, pass empty='none'"):
        ChoiceData.from_long(with_none())
    more = pd.concat([with_none(), with_none().assign(choice_id=[3, 3, 4, 4])[::2].assign(choice=1)])
    with pytest.warns(ReadingNote, match="is no object"):
        assert len(ChoiceData.from_long(more, empty="none")) == 4  # in half of the sets, and without features
    with pytest.warns(ReadingWarning, match="'None of these' is read as an object; if it means that nothing"):
        data = ChoiceData.from_long(with_none(price=[3.0, 0.0, 4.0, 0.0]))
    assert "None of these" in data.object_ids.tolist()


def test_none_of_these_and_an_object_contradict_each_other():
    with pytest.raises(ChoiceDataError) as caught:
        ChoiceData.from_long(with_none(choice=[1, 1, 0, 1]), empty="none")
    assert [(defect.kind, defect.set) for defect in caught.value.defects] == [("none-and-object", 1)]

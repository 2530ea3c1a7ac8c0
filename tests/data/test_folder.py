"""A folder of files holds the very sets of one table of all of them, and says what is wrong with any of them."""

import pickle
import shutil

import numpy as np
import pandas as pd
import pytest

from choicegp import ChoiceData, ChoiceDataError, ChoiceFolder, ChoiceGPError
from choicegp.data import folder as module

OPTIONS = {"respondent": "who", "weight": "count", "available": "there"}


def table(first_set=0, n_sets=6, seed=0, sizes=("S", "M")):
    """Ragged sets of two to four objects, with words, weights, respondents and rows that were not shown."""
    rng = np.random.default_rng([seed, first_set])
    rows = []
    for k in range(first_set, first_set + n_sets):
        for i, obj in enumerate(rng.permutation(30)[: rng.integers(3, 6)]):
            price = float(obj) + 1e6
            rows.append(
                (k, f"o{obj}", int(i == 0 or rng.random() < 0.3), price, sizes[obj % len(sizes)], k % 3, i != 1)
            )
    frame = pd.DataFrame(rows, columns=["choice_id", "alt_id", "choice", "price", "size", "who", "there"])
    frame["count"] = 1.0 + frame["choice_id"] % 4
    frame["choice"] *= frame["there"]
    return frame.sample(frac=1.0, random_state=seed)  # the rows of a set need not be adjacent


@pytest.fixture
def tables():
    return [table(0, 6), table(6, 4, sizes=("M", "L")), table(10, 5)]


@pytest.fixture
def folder(tables, tmp_path):
    for number, frame in enumerate(tables):
        frame.to_parquet(tmp_path / f"part-{number}.parquet", index=False)
    return tmp_path


def test_the_sets_are_those_of_one_table(folder, tables):
    choices = ChoiceFolder(folder, **OPTIONS)
    whole = ChoiceData.from_long(pd.concat(tables), **OPTIONS)
    assert choices.encoding == whole.encoding
    assert choices.encoding.feature_names == ("price", "size=L", "size=M", "size=S")
    assert choices.sample == whole, "few sets are all in the sample"
    np.testing.assert_array_equal(choices.sizes, np.diff(whole.offsets))
    assert choices.starts.tolist() == [0, 6, 10, 15]
    for file in range(3):
        data = choices.read(file)
        wanted = whole.take(range(choices.starts[file], choices.starts[file + 1]))
        np.testing.assert_array_equal(data.X[data.flat_shown], wanted.X[wanted.flat_shown])
        np.testing.assert_array_equal(data.object_ids[data.flat_shown], wanted.object_ids[wanted.flat_shown])
        for name in ("offsets", "flat_chosen", "set_ids", "respondents", "weights"):
            np.testing.assert_array_equal(getattr(data, name), getattr(wanted, name))


def test_moments_are_those_of_the_objects_of_each_file(folder):
    choices = ChoiceFolder(folder, **OPTIONS)
    shown = np.concatenate([choices.read(file).X for file in range(3)])
    np.testing.assert_allclose(choices.moments.mean, shown.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(choices.moments.sd, shown.std(axis=0), rtol=1e-9)


def test_two_categories_in_different_files_become_one_feature(tmp_path):
    for number, size in enumerate(("S", "M")):
        table(4 * number, 4, sizes=(size,)).to_parquet(tmp_path / f"{number}.parquet", index=False)
    choices = ChoiceFolder(tmp_path, **OPTIONS)
    assert choices.encoding.feature_names == ("price", "size=S")
    shown = np.concatenate([choices.read(file).X for file in range(2)])
    np.testing.assert_allclose(choices.moments.mean, shown.mean(axis=0))
    np.testing.assert_allclose(choices.moments.sd, shown.std(axis=0))


def test_the_order_of_categories_is_kept_where_all_files_have_it(tmp_path):
    for number in range(2):
        frame = table(4 * number, 4)
        frame["size"] = pd.Categorical(frame["size"], ["S", "M", "XL"])
        frame.to_parquet(tmp_path / f"{number}.parquet", index=False)
    assert ChoiceFolder(tmp_path, **OPTIONS).encoding.columns[1].categories == ("S", "M", "XL")


def test_objects_without_ids_and_sets_without_choices(folder):
    choices = ChoiceFolder(folder, object_id=None, chosen=None, features=["price", "size"])
    assert not choices.has_choices
    assert not choices.read(0).has_choices
    assert repr(choices) == "ChoiceFolder(15 sets in 3 files, 4 features, no choices)"
    assert len(choices.sample) == len(choices) == 15


def test_the_sample_is_drawn_from_all_files_alike(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "N_SAMPLED", 40)
    frame = pd.DataFrame({"choice_id": np.repeat(np.arange(400), 2), "alt_id": [0, 1] * 400, "choice": 1, "x": 0.5})
    for number in range(8):
        frame[100 * number : 100 * number + 100].to_parquet(tmp_path / f"{number}.parquet")
    sample = ChoiceFolder(tmp_path).sample
    assert len(sample) == 40
    assert len(np.unique(sample.set_ids)) == 40
    assert len(np.unique(sample.set_ids // 50)) == 8
    assert 150 < sample.set_ids.mean() < 250
    assert ChoiceFolder(tmp_path).sample == sample


def test_it_cannot_be_changed_and_can_be_pickled(folder):
    choices = ChoiceFolder(folder, **OPTIONS)
    with pytest.raises(AttributeError):
        choices.files = ()
    with pytest.raises(ValueError, match="read-only"):
        choices.sizes[0] = 3
    assert pickle.loads(pickle.dumps(choices)).read(1) == choices.read(1)


def test_other_files_are_left_alone(folder):
    (folder / "notes.txt").write_text("hello")
    shutil.copy(folder / "part-0.parquet", folder / ".part-0.parquet.1234.parquet")
    assert len(ChoiceFolder(folder, **OPTIONS).files) == 3


class TestErrors:
    def refused(self, folder, *words, options=OPTIONS):
        with pytest.raises(ChoiceGPError) as raised:
            ChoiceFolder(folder, **options)
        assert "\n" not in str(raised.value)
        for word in words:
            assert word in str(raised.value)
        return raised.value

    def test_no_folder(self, tmp_path):
        self.refused(tmp_path / "none", "there is no folder")
        self.refused(7, "the name of a folder is needed, not an int")
        self.refused("", "the name of a folder is needed, not ''")

    def test_a_file_is_no_folder(self, folder):
        self.refused(folder / "part-0.parquet", "is a file, not a folder", "ChoiceData.from_long")

    def test_an_empty_folder(self, tmp_path):
        self.refused(tmp_path, "there is no .parquet file in the folder", "it is empty")

    def test_a_folder_of_other_files(self, tmp_path):
        (tmp_path / "choices.csv").write_text("choice_id\n")
        self.refused(tmp_path, "there is no .parquet file", "it holds 'choices.csv'")

    def test_a_damaged_file(self, folder):
        (folder / "part-1.parquet").write_bytes(b"PAR1 and no more")
        self.refused(folder, "part-1.parquet is not a readable Parquet file")

    def test_different_columns(self, folder, tables):
        tables[2].rename(columns={"size": "width"}).to_parquet(folder / "part-2.parquet")
        self.refused(folder, "part-0.parquet has 'size'", "part-2.parquet has 'width'", "need the same columns")

    def test_a_column_that_no_file_has(self, folder):
        self.refused(folder, "part-0.parquet", "there is no column 'page'", options={"set_id": "page"})

    def test_a_set_in_two_files(self, folder):
        table(8, 4).to_parquet(folder / "part-9.parquet", index=False)
        self.refused(folder, "the set 8 is in two files", "part-1.parquet and", "part-9.parquet", "one file")

    def test_equal_hashes_of_different_sets_are_no_error(self, folder, monkeypatch):
        monkeypatch.setattr(pd.util, "hash_array", lambda ids: np.zeros(len(ids), np.uint64))
        assert len(ChoiceFolder(folder, **OPTIONS)) == 15

    def test_ids_of_different_kinds(self, folder, tables):
        tables[1].astype({"choice_id": str}).to_parquet(folder / "part-1.parquet", index=False)
        self.refused(folder, "'choice_id' are whole numbers in", "and text in", "part-1.parquet")

    def test_a_feature_of_different_kinds(self, folder, tables):
        tables[1].assign(size=1.0).to_parquet(folder / "part-1.parquet", index=False)
        self.refused(folder, "feature 'size' holds words in", "part-0.parquet and numbers in", "part-1.parquet")

    def test_defects_name_file_row_and_set(self, folder, tables):
        frame = tables[1].reset_index(drop=True)
        frame.loc[3, "price"] = np.nan
        frame.to_parquet(folder / "part-1.parquet", index=False)
        frame["there"] = True
        frame.to_parquet(folder / "part-1.parquet", index=False)
        error = self.refused(folder, "part-1.parquet", "row 5", f"set {frame['choice_id'][3]}", "'price' is missing")
        assert isinstance(error, ChoiceDataError)
        assert [defect.kind for defect in error.defects] == ["missing-feature"]

    def test_what_is_wrong_with_a_column_names_the_file(self, folder, tables):
        tables[1].assign(size=pd.Timestamp("2024-01-01")).to_parquet(folder / "part-1.parquet", index=False)
        self.refused(folder, "part-1.parquet: feature 'size' holds dates or times")

    def test_a_file_without_rows(self, folder, tables):
        tables[1][:0].to_parquet(folder / "part-1.parquet", index=False)
        self.refused(folder, "part-1.parquet", "no rows")
        # As earlier versions of pandas write it.
        tables[1][:0].astype({"alt_id": object}).to_parquet(folder / "part-1.parquet", index=False)
        self.refused(folder, "part-1.parquet", "no rows")

    def test_a_file_that_changed(self, folder, tables):
        choices = ChoiceFolder(folder, **OPTIONS)
        tables[0].to_parquet(folder / "part-1.parquet", index=False)
        with pytest.raises(ChoiceGPError, match=r"part-1\.parquet has changed since the folder was opened"):
            choices.read(1)


def survey(start: int, n: int) -> pd.DataFrame:
    """Return sets of three objects, of which every other set is left empty; ids are those of person and task."""
    rows = [
        (f"r{k}", task, f"o{j}", int(k % 2 == 0 and j == 0), 10.0 * k + 3 * task + j)
        for k in range(start, start + n)
        for task in (1, 2)
        for j in range(3)
    ]
    return pd.DataFrame(rows, columns=["who", "task", "alt_id", "choice", "price"])


ROLES = {"set_id": ["who", "task"]}


class TestAnswersAsPeopleGiveThem:
    @pytest.fixture
    def folder(self, tmp_path):
        survey(0, 3).to_parquet(tmp_path / "a.parquet")
        survey(3, 2).to_parquet(tmp_path / "b.parquet")
        return tmp_path

    def test_empty_answers_are_kept_or_skipped(self, folder):
        with pytest.raises(ChoiceDataError, match="2 x nothing-chosen: where keeping nothing is an answer, pass empty"):
            ChoiceFolder(folder, **ROLES)
        kept = ChoiceFolder(folder, empty="none", **ROLES)
        whole = ChoiceData.from_long(pd.concat([survey(0, 3), survey(3, 2)]), empty="none", **ROLES)
        assert kept.sample == whole
        assert kept.read(1).set_ids.tolist() == ["r3/1", "r3/2", "r4/1", "r4/2"]
        with pytest.warns(UserWarning, match="were left out") as caught:
            skipped = ChoiceFolder(folder, empty="skip", **ROLES)
        said = "2 of {} sets were left out (2 defects) (in 1 file of 2)"
        assert [str(warning.message) for warning in caught] == [said.format(6), said.format(4)]
        assert (len(kept), len(skipped)) == (10, 6)
        assert skipped.read(1).set_ids.tolist() == ["r4/1", "r4/2"]
        assert set(skipped.sample.set_ids) == {"r0/1", "r0/2", "r2/1", "r2/2", "r4/1", "r4/2"}

    def test_other_questions(self, folder):
        ranked = [survey(0, 3), survey(3, 2)]
        for name, frame in zip("ab", ranked, strict=True):
            frame.assign(choice=[1, 3, 2] * (len(frame) // 3)).to_parquet(folder / f"{name}.parquet")
        choices = ChoiceFolder(folder, kind="ranking", **ROLES)
        assert len(choices) == 20
        assert choices.read(0).kinds.tolist() == ["best"] * 12
        assert choices.sample.set_ids.tolist()[:2] == ["r0/1:1", "r0/1:2"]

    def test_a_limit_of_ticks(self, folder):
        for name, frame in zip("ab", [survey(0, 3), survey(3, 2)], strict=True):
            frame.assign(choice=[1, 1, 0] * (len(frame) // 3)).to_parquet(folder / f"{name}.parquet")
        with pytest.warns(UserWarning, match=r"of 6 sets have the 2 ticks|of 4 sets have the 2 ticks"):
            choices = ChoiceFolder(folder, at_most=2, **ROLES)
        assert choices.sizes.tolist() == [2] * 10
        assert choices.read(1).flat_chosen.all()

    def test_missing_features(self, folder):
        frame = survey(3, 2).assign(choice=1)
        frame.loc[0, "price"] = np.nan
        frame.to_parquet(folder / "b.parquet")
        survey(0, 3).assign(choice=1).to_parquet(folder / "a.parquet")
        with pytest.warns(UserWarning, match=r"1 of 4 sets were left out"):
            assert len(ChoiceFolder(folder, missing="skip", **ROLES)) == 9
        whole = pd.concat([survey(0, 3).assign(choice=1), frame])
        known = ChoiceData.from_long(whole, missing="level", **ROLES)
        assert ChoiceFolder(folder, encoding=known.encoding, **ROLES).sample == known

    def test_missing_values_are_values_of_their_own_in_all_files(self, folder):
        frames = [survey(0, 3), survey(3, 2)]
        for frame in frames:
            frame["choice"], frame["make"] = 1, ["Alpha", "Beta", None] * (len(frame) // 3)
        frames[0].loc[frames[0]["make"].isna(), "make"] = "Zeta"  # of the first file no word is missing, but a number
        frames[0].loc[0, "price"] = np.nan
        for name, frame in zip("ab", frames, strict=True):
            frame.to_parquet(folder / f"{name}.parquet")
        choices = ChoiceFolder(folder, missing="level", **ROLES)
        names = [name for name in choices.encoding.feature_names if name.startswith(("price", "make"))]
        assert names == ["price", "price=missing", "make=Alpha", "make=Beta", "make=Zeta", "make=(missing)"]
        known = [frame["price"].dropna().unique() for frame in frames]  # an object counts once in every file
        price = choices.encoding.columns[choices.encoding.feature_names.index("price")]
        assert price.fill == pytest.approx(np.mean(np.concatenate(known)))
        objects = np.concatenate([choices.read(file).X for file in range(2)])
        assert choices.moments.mean == pytest.approx(objects.mean(axis=0))
        assert choices.moments.sd == pytest.approx(objects.std(axis=0))

    def test_numbers_with_a_currency(self, folder):
        for name, frame in zip("ab", [survey(0, 3), survey(3, 2)], strict=True):
            frame["choice"], frame["price"] = 1, [f"EUR {price:,.2f}" for price in frame["price"]]
            frame.to_parquet(folder / f"{name}.parquet")
        choices = ChoiceFolder(folder, numbers=["price"], **ROLES)
        whole = pd.concat([survey(0, 3).assign(choice=1), survey(3, 2).assign(choice=1)])
        assert choices.sample == ChoiceData.from_long(whole, **ROLES)
        assert choices.read(1).X.max() < whole["price"].max() + 1

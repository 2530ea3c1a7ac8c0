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

    def test_a_file_that_changed(self, folder, tables):
        choices = ChoiceFolder(folder, **OPTIONS)
        tables[0].to_parquet(folder / "part-1.parquet", index=False)
        with pytest.raises(ChoiceGPError, match=r"part-1\.parquet has changed since the folder was opened"):
            choices.read(1)

"""Fitting a folder of files, and predicting to a file: as with the same data in memory."""

import numpy as np
import pandas as pd
import pytest

from choicegp import ChoiceData, ChoiceFolder, ChoiceGP, ChoiceGPError
from choicegp.data import folder as folder_module
from choicegp.estimators import utility_gp
from choicegp.storage import predictions as prediction_files

N_SETS, SIZE, N_FILES = 24, 3, 4


def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(N_SETS * SIZE, 2))
    U = np.column_stack([X[:, 0], X[:, 1] - X[:, 0]])
    data = ChoiceData.from_utilities(X, U, np.arange(len(X)).reshape(N_SETS, SIZE))
    table = data.to_long()
    table["colour"] = np.where(table["choice_id"] < 6, "red", np.where(table["alt_id"] % 2, "blue", "green"))
    return table


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("choices")
    table = frame()
    for number in range(N_FILES):
        part = table[table["choice_id"] // (N_SETS // N_FILES) == number]
        part.to_parquet(path / f"{number}.parquet", index=False)
    return path


@pytest.fixture(scope="module")
def in_memory():
    return ChoiceData.from_long(frame())


def few_steps(**options):
    return ChoiceGP(2, **{"n_inducing": 10, "max_iter": 20, "kernel": "rbf", "progress": False, **options})


@pytest.fixture(scope="module")
def model(folder):
    return few_steps().fit(ChoiceFolder(folder))


class TestFit:
    def test_a_folder_gives_what_the_same_data_in_memory_give(self, model, in_memory):
        same = few_steps(inference="sparse").fit(in_memory)
        assert model.elbo_ == pytest.approx(same.elbo_, rel=1e-6)
        np.testing.assert_allclose(model.centre_, same.centre_)
        np.testing.assert_allclose(
            np.concatenate(model.predict_proba(in_memory)), np.concatenate(same.predict_proba(in_memory)), atol=1e-5
        )

    def test_the_model_keeps_a_sample_and_says_what_it_saw(self, model, in_memory):
        assert model.data_ == in_memory
        assert model.encoding_ == in_memory.encoding
        assert f"{N_SETS} sets in {N_FILES} files; data_ is a sample of {N_SETS} of them" in model.fit_result_.notes

    def test_it_can_be_saved(self, model, in_memory, tmp_path):
        model.save(tmp_path / "model.cgp")
        again = ChoiceGP.load(tmp_path / "model.cgp")
        assert again.data_ == model.data_
        assert again.fit_result_.notes == model.fit_result_.notes
        np.testing.assert_array_equal(again.predict_frame(in_memory), model.predict_frame(in_memory))

    @pytest.mark.parametrize(
        ("options", "problem"),
        [
            ({"inference": "dense"}, "fitted by inference='sparse', not 'dense'"),
            ({"inference": "mcmc"}, "fitted by inference='sparse', not 'mcmc'"),
            ({"n_utilities": "auto"}, "n_utilities='auto' does not work with a ChoiceFolder"),
            ({"object_effects": True}, "object_effects work with dense inference only"),
        ],
    )
    def test_what_needs_all_data_at_once_is_refused(self, folder, options, problem):
        with pytest.raises(ChoiceGPError, match=problem):
            ChoiceGP(progress=False, **options).fit(ChoiceFolder(folder))

    def test_init_and_missing_choices_are_refused(self, folder, model):
        with pytest.raises(ChoiceGPError, match="init= does not work with a ChoiceFolder"):
            few_steps().fit(ChoiceFolder(folder), init=model)
        with pytest.raises(ChoiceGPError, match="fit needs data with choices"):
            few_steps().fit(ChoiceFolder(folder, chosen=None, features=["x0", "x1", "colour"]))


class TestPredictFile:
    @pytest.fixture
    def predictions(self, tmp_path, monkeypatch):
        monkeypatch.setattr(prediction_files, "_SETS", 3)
        return tmp_path / "predictions.parquet"

    def same(self, one, other):
        pd.testing.assert_frame_equal(one, other, check_dtype=False, rtol=1e-8)

    def test_a_folder_gives_the_table_of_the_same_data_in_memory(self, model, folder, in_memory, predictions):
        unknown = ChoiceFolder(folder, chosen=None, features=["x0", "x1", "colour"])
        model.predict_file(unknown, predictions)
        self.same(pd.read_parquet(predictions), model.predict_frame(in_memory))

    def test_so_do_data_in_memory_of_any_sizes_and_ids(self, model, predictions):
        X = pd.DataFrame({"x0": [0.1, 0.5, 0.9], "x1": [0.2, 0.8, 0.3], "colour": "red"}, index=["a", "b", "c"])
        shown = [["a", "b", "c"], ["a", "b"], ["c", "b", "a"], ["b", "a", "c"], ["b", "c", "a"], ["a", "c"]]
        data = ChoiceData.from_sets(X, shown, by="id", set_ids=[f"page {k}" for k in range(6)])
        model.predict_file(data, predictions)
        table = pd.read_parquet(predictions)
        self.same(table, model.predict_frame(data))
        assert table["set"].nunique() == 6
        assert table.groupby("set")["chosen"].sum().min() >= 1

    def test_a_frame_has_what_predict_and_predict_proba_say(self, model, in_memory):
        table = model.predict_frame(in_memory)
        np.testing.assert_array_equal(table["probability"], np.concatenate(model.predict_proba(in_memory)))
        chosen = in_memory.flat_shown[table["chosen"].to_numpy(bool)]
        np.testing.assert_array_equal(chosen, np.concatenate(model.predict(in_memory)))

    def test_what_is_interrupted_leaves_no_file(self, model, folder, predictions, monkeypatch):
        made = []

        def interrupted(*arguments):
            if made:
                raise KeyboardInterrupt
            made.append(True)
            return first(*arguments)

        first = utility_gp.prediction_table
        monkeypatch.setattr(utility_gp, "prediction_table", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.predict_file(ChoiceFolder(folder), predictions)
        assert made == [True]
        assert list(predictions.parent.iterdir()) == []

    def test_a_file_that_is_there_stays_when_something_is_wrong(self, model, folder, predictions, tmp_path):
        predictions.write_text("before")
        broken = tmp_path / "broken"
        broken.mkdir()
        for file in folder.iterdir():
            pd.read_parquet(file).replace({"colour": {"blue": "pink"}}).to_parquet(broken / file.name)
        unknown = ChoiceFolder(broken)
        with pytest.raises(ChoiceGPError, match="unknown category 'pink'"):
            model.predict_file(unknown, predictions)
        with pytest.raises(ChoiceGPError, match=r"1\.parquet[\s\S]*row 3[\s\S]*unknown category 'pink'"):
            ChoiceFolder(broken, encoding=model.encoding_)
        assert predictions.read_text() == "before"
        assert sorted(entry.name for entry in tmp_path.iterdir()) == ["broken", "predictions.parquet"]

    def test_a_category_outside_the_sample_names_its_file(self, model, folder, tmp_path, predictions, monkeypatch):
        for file in folder.iterdir():
            table = pd.read_parquet(file)
            table.loc[table["choice_id"] == N_SETS - 1, "colour"] = "pink"
            table.to_parquet(tmp_path / file.name)
        monkeypatch.setattr(folder_module, "N_SAMPLED", 1)
        unknown = ChoiceFolder(tmp_path)
        assert "pink" not in unknown.sample.to_long()["colour"].tolist()
        with pytest.raises(ChoiceGPError, match=r"3\.parquet: [\s\S]*unknown category 'pink'"):
            model.predict_file(unknown, predictions)
        assert not predictions.exists()

    def test_ids_of_several_kinds_are_refused(self, model, predictions):
        X = pd.DataFrame({"x0": [0.1, 0.5], "x1": [0.2, 0.8], "colour": "red"}, index=pd.Index(["a", 7], dtype=object))
        with pytest.raises(ChoiceGPError, match="make them all numbers or all text"):
            model.predict_file(ChoiceData.from_sets(X, [["a", 7]], by="id"), predictions)
        assert not predictions.exists()

    @pytest.mark.parametrize(
        ("path", "problem"),
        [
            ("predictions.csv", "must end in .parquet"),
            (7, "must end in .parquet"),
            ("nowhere/predictions.parquet", "there is no folder"),
        ],
    )
    def test_places_that_cannot_be_written(self, model, in_memory, path, problem):
        with pytest.raises(ChoiceGPError, match=problem):
            model.predict_file(in_memory, path)

    def test_other_sources_are_refused(self, model, folder, predictions):
        with pytest.raises(ChoiceGPError, match="a ChoiceData or a ChoiceFolder is needed; got PosixPath"):
            model.predict_file(folder, predictions)
        with pytest.raises(ChoiceGPError, match="not fitted yet"):
            ChoiceGP().predict_file(folder, predictions)

    def test_progress_is_shown_when_asked_for(self, model, folder, predictions, capsys):
        model.predict_file(ChoiceFolder(folder), predictions)
        assert capsys.readouterr() == ("", "")
        watched = ChoiceGP.load(self.saved(model, predictions.parent)).set_params(progress=True)
        watched.predict_file(ChoiceFolder(folder), predictions)
        assert f"{N_SETS} of {N_SETS} sets" in capsys.readouterr().err

    def saved(self, model, folder):
        model.save(folder / "model.cgp")
        return folder / "model.cgp"

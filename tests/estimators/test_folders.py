"""Fitting a folder of files, and predicting to a file: as with the same data in memory."""

import numpy as np
import pandas as pd
import pytest

from choicegp import ChoiceData, ChoiceFolder, ChoiceGP, ChoiceGPError

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

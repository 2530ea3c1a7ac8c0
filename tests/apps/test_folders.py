"""`choicegp fit` and `choicegp predict` with a folder of Parquet files."""

import numpy as np
import pandas as pd
import pytest

from choicegp import ChoiceData, ChoiceGP


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "choices").mkdir()
    X = np.random.default_rng(0).uniform(size=(24, 2))
    table = ChoiceData.from_utilities(X, X, np.arange(24).reshape(12, 2)).to_long()
    for number in range(3):
        table[table["choice_id"] % 3 == number].to_parquet(tmp_path / "choices" / f"{number}.parquet", index=False)
    return tmp_path


def test_fit_and_predict(folder, run):
    code, out, err = run("fit", "choices", "-o", "model.cgp", "--max-seconds", "0.1", "-d", "1", "--kernel", "linear")
    assert (code, err) == (0, "")
    assert "Fitted 1 utility to 12 sets" in out
    assert "12 sets in 3 files" in out
    code, out, err = run("predict", "model.cgp", "choices", "-o", "out.parquet")
    assert (code, out, err) == (0, "Predictions for 12 sets are in out.parquet.\n", "")
    predicted = pd.read_parquet("out.parquet")
    files = [ChoiceData.from_long(f"choices/{number}.parquet") for number in range(3)]
    wanted = pd.concat([ChoiceGP.load("model.cgp").predict_frame(data) for data in files], ignore_index=True)
    pd.testing.assert_frame_equal(predicted, wanted, check_dtype=False)

    files_before = sorted(folder.iterdir())
    for arguments, problem in {
        ("choices",): "predictions for a folder need a file: pass -o FILE.parquet",
        ("choices", "-o", "out.csv"): "its name must end in .parquet; got 'out.csv'",
        ("choices", "-o", "out.parquet", "--set-id", "page"): "there is no column 'page' (set_id)",
    }.items():
        refused(run("predict", "model.cgp", *arguments), problem)
    pd.read_parquet("choices/2.parquet").drop(columns="x1").to_parquet("choices/2.parquet")
    refused(run("predict", "model.cgp", "choices", "-o", "new.parquet"), "the files differ in their columns")
    assert sorted(folder.iterdir()) == files_before


def refused(ended, problem):
    """Check that a command ended with one line of its own."""
    code, out, err = ended
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert problem in err


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--on-error", "skip"], "--on-error skip is for single files"),
        (["--wide", "--alternatives", "a,b", "--features", "x"], "its files must be long tables, without --wide"),
        (["--inference", "dense"], "a ChoiceFolder is fitted by --inference sparse, not 'dense'"),
        (["--no-choices", "--features", "x0"], "fit needs data with choices"),
        (["--chosen", "kept"], "there is no column 'kept' (chosen)"),
    ],
)
def test_what_a_folder_cannot_have(folder, run, options, problem):
    refused(run("fit", "choices", "-o", "model.cgp", *options), problem)
    assert not (folder / "model.cgp").exists()


def test_a_folder_without_tables(folder, run):
    (folder / "empty").mkdir()
    refused(run("fit", "empty", "-o", "model.cgp"), "there is no .parquet file in the folder empty: it is empty")
    refused(run("describe", "choices"), "choices is a folder; name a file in it")

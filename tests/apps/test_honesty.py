"""choicegp honesty: one command to a page that says what is reached and what is missed."""

import importlib.util
from pathlib import Path

import pytest

from choicegp.apps import reproduce
from choicegp.apps.reproduce import RunRequest
from choicegp.experiments import registry
from choicegp.experiments.experiment import ExperimentOptions


@pytest.fixture
def out(tmp_path, monkeypatch, toy):
    """Return where results go by default; runs of the toy stand for fits."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CHOICEGP_DATA", raising=False)
    monkeypatch.setitem(registry.CHECKS, "honesty", "toy_experiment")
    return tmp_path / "experiments-out"


def test_the_command_writes_its_files_and_continues(out, run):
    code, told, _ = run("honesty", "--jobs", "1")
    assert code == 0
    assert told.splitlines()[0] == "4 of 4 runs are done. Read experiments-out/honesty.md; beside it are:"
    assert "\n    choicegp honesty --jobs 1\n" in (out / "honesty.md").read_text()
    before = (out / "honesty.jsonl").read_text()
    assert run("honesty", "--jobs", "1")[0] == 0
    assert (out / "honesty.jsonl").read_text() == before


@pytest.mark.parametrize("option", ["--seed", "--random-state"])
def test_options_reach_the_experiment(option, out, run):
    code, told, _ = run("honesty", "--quick", option, "7", "--repetitions", "3", "-o", "here", "--jobs", "1")
    assert code == 0
    assert told.startswith("3 of 3 runs are done. Read here/quick/honesty.md")
    assert "Doubled: [14, 16, 18]" in (out.parent / "here" / "quick" / "honesty.md").read_text()


@pytest.mark.parametrize(
    ("option", "variable", "tables"), [(None, None, False), ("tables", None, True), (None, "tables", True)]
)
def test_tables_are_used_where_a_folder_is_named(option, variable, tables, monkeypatch):
    asked = []
    monkeypatch.setattr(reproduce, "reproduce", asked.append)
    monkeypatch.delenv("CHOICEGP_DATA", raising=False)
    if variable:
        monkeypatch.setenv("CHOICEGP_DATA", variable)
    reproduce.check_honesty(RunRequest("honesty", ExperimentOptions(), "here", option, 1))
    assert (asked[0].options.tables, asked[0].data) == (tables, option)
    assert len(asked[0].options.code) == 12


def test_scikit_learn_is_asked_for_before_any_run(out, run, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    code, _, err = run("honesty")
    assert code == 2
    assert "pip install scikit-learn" in err
    assert not out.exists()


def test_the_command_line_is_its_own():
    assert RunRequest("honesty", ExperimentOptions(True, 3), "here").command == [
        "choicegp", "honesty", "--quick", "--seed", "3", "--out", "here",
    ]  # fmt: skip


def test_it_is_not_listed_among_the_experiments_of_the_paper(run):
    assert "honesty" not in run("reproduce", "--list")[1]


def test_runs_belong_to_the_sources_of_the_model_but_not_to_the_words_of_the_report():
    from choicegp.compute.sources import reached
    from choicegp.experiments import honesty_measures

    files = {file.stem for file in reached(Path(honesty_measures.__file__))}
    assert {"choice_gp", "dense", "choices", "honesty_data", "honesty_baselines"} <= files
    assert not {"honesty_report", "honesty_verdict", "honesty"} & files

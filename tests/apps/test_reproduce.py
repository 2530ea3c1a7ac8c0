"""choicegp reproduce: runs once what is asked, goes on after any end, and leaves whole files."""

import importlib.util
import json
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from choicegp.apps import reproduce
from choicegp.apps.reproduce import RunRequest
from choicegp.experiments import registry
from choicegp.experiments.experiment import ExperimentOptions


@pytest.fixture
def out(tmp_path, monkeypatch):
    """Return where results go by default, in an empty current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "experiments-out"


def reproduced(run, *options):
    return run("reproduce", "toy", "--jobs", "1", *options)


def times_run(notes):
    return {int(file.name.split("-")[1]): len(file.read_text().splitlines()) for file in notes.glob("ran-*")}


def log_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


class TestWhatIsWritten:
    def test_all_files_are_there_and_named(self, toy, out, run):
        code, told, err = reproduced(run)
        assert code == 0
        assert told.splitlines() == [
            "4 of 4 runs are done. Read experiments-out/toy.md; beside it are:",
            "  experiments-out/toy.csv", "  experiments-out/doubled.png", "  experiments-out/doubled.svg",
        ]  # fmt: skip
        names = ["doubled.png", "doubled.svg", "toy.csv", "toy.jsonl", "toy.md"]
        assert sorted(file.name for file in out.iterdir()) == names, "and no drafts"
        assert (out / "doubled.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (out / "doubled.svg").read_text()
        assert "Doubled: [0, 2, 4, 6]" in (out / "toy.md").read_text()
        lines = err.splitlines()
        assert re.fullmatch(r"1 of 4: seed 0, notes .*, sizes \[1, 2\]: done \(0\.\d s\)", lines[0])
        assert len(lines) == 4

    def test_every_option_reaches_its_place(self, toy, out, run, tmp_path):
        (tmp_path / "tables").mkdir()
        code, _, _ = reproduced(run, "--seed", "5", "--repetitions", "2", "--out", "here", "--data", "tables")
        assert code == 0
        records = log_lines(tmp_path / "here" / "toy.jsonl")
        assert [record["settings"]["seed"] for record in records] == [5, 6]
        assert records[0]["values"]["data"] == str(tmp_path / "tables"), "workers may be in other folders"
        page = (tmp_path / "here" / "toy.md").read_text()
        assert "choicegp reproduce toy --seed 5 --repetitions 2 --out here --data tables --jobs 1\n" in page

    def test_the_asked_runs_alone_are_reported_in_their_order(self, toy, out, run):
        reproduced(run, "--seed", "2")
        reproduced(run, "--repetitions", "3")
        assert "Doubled: [0, 2, 4]" in (out / "toy.md").read_text()
        assert times_run(toy) == {0: 1, 1: 1, 2: 1, 3: 1, 4: 1, 5: 1}


class TestGoingOn:
    def test_what_is_done_is_not_repeated(self, toy, out, run):
        reproduced(run, "--repetitions", "2")
        code, told, _ = reproduced(run)
        assert (code, told.splitlines()[0][:20]) == (0, "4 of 4 runs are done")
        assert times_run(toy) == {0: 1, 1: 1, 2: 1, 3: 1}
        reproduced(run)
        assert times_run(toy) == {0: 1, 1: 1, 2: 1, 3: 1}

    def test_a_failure_is_told_at_the_end_and_tried_again(self, toy, out, run):
        (toy / "fail-1").touch()
        code, told, err = reproduced(run)
        assert code == 2
        assert told.startswith("3 of 4 runs are done.")
        assert "2 of 4: seed 1, " in err
        assert ": failed with ValueError: no luck | at all (" in err
        assert err.splitlines()[-1] == (
            "error: 1 of 4 runs failed, see the page; the same command tries them again"
        )  # fmt: skip
        assert "Doubled: [0, 4, 6]" in (out / "toy.md").read_text()
        (toy / "fail-1").unlink()
        assert reproduced(run)[0] == 0
        assert times_run(toy) == {0: 1, 1: 2, 2: 1, 3: 1}
        assert "Doubled: [0, 2, 4, 6]" in (out / "toy.md").read_text()

    def test_nothing_but_failures(self, toy, out, run):
        (toy / "fail-0").touch()
        code, _, err = reproduced(run, "--repetitions", "1")
        assert code == 2
        assert "error: 1 of 1 runs failed" in err
        assert "No run is done." in (out / "toy.md").read_text()

    def test_an_interrupt_keeps_what_is_done(self, toy, out, run):
        (toy / "interrupt-2").touch()
        code, told, err = reproduced(run)
        assert code == 130
        assert told.startswith("2 of 4 runs are done.")
        assert err.splitlines()[-1] == (
            "interrupted: 2 of 4 runs are done and kept in experiments-out/toy.jsonl; "
            "the same command continues from there"
        )
        assert "- 2 of 4 runs are done" in (out / "toy.md").read_text()
        (toy / "interrupt-2").unlink()
        assert reproduced(run)[0] == 0
        assert times_run(toy) == {0: 1, 1: 1, 2: 2, 3: 1}

    def test_a_killed_worker_keeps_what_is_done(self, toy, out, run):
        reproduced(run, "--repetitions", "2")
        (toy / "kill-2").touch()
        code, _, err = run("reproduce", "toy", "--jobs", "2")
        assert code == 2
        last = err.splitlines()[-1]
        assert last.startswith("error: a worker process ended suddenly (TerminatedWorkerError)")
        assert "runs are done and kept in experiments-out/toy.jsonl, the same command continues from there" in last
        (toy / "kill-2").unlink()
        assert reproduced(run)[0] == 0
        assert times_run(toy)[0] == times_run(toy)[1] == 1
        assert "- 4 of 4 runs are done\n" in (out / "toy.md").read_text()

    def test_a_killed_process_keeps_what_is_done(self, toy, out, run):
        (toy / "wait-2").touch()
        program = (
            "from choicegp.experiments import registry; registry.EXPERIMENTS['toy'] = 'toy_experiment'\n"
            "from choicegp.apps.cli import main; main(['reproduce', 'toy', '--jobs', '1'])"
        )
        process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while not (toy / "ran-2").exists() and time.monotonic() < end:
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
        with (out / "toy.jsonl").open("a") as file:
            file.write('{"settings": {"seed": 2, "no')
        (toy / "wait-2").unlink()
        assert reproduced(run)[0] == 0
        assert times_run(toy) == {0: 1, 1: 1, 2: 2, 3: 1}
        assert len(log_lines(out / "toy.jsonl")) == 4

    def test_quick_and_full_are_never_mixed(self, toy, out, run):
        assert reproduced(run, "--quick")[0] == 0
        assert [record["settings"]["seed"] for record in log_lines(out / "quick" / "toy.jsonl")] == [0, 1]
        assert "its numbers are not the results of the experiment" in (out / "quick" / "toy.md").read_text()
        assert not (out / "toy.md").exists()
        assert reproduced(run)[0] == 0
        assert times_run(toy) == {0: 2, 1: 2, 2: 1, 3: 1}
        assert "quick" not in (out / "toy.md").read_text()


class TestWhatGoesWrong:
    def test_an_unknown_experiment(self, out, run):
        code, told, err = run("reproduce", "sinus")
        assert (code, told) == (2, "")
        assert err.startswith(
            "error: there is no experiment 'sinus': use one of sincos, pareto, inconsistent, real-data"
        )
        assert not out.exists()

    def test_no_experiment(self, run):
        assert run("reproduce")[2].startswith("error: the command needs the name of an experiment: sincos, pareto, ")

    def test_no_data_folder(self, toy, out, run):
        code, _, err = reproduced(run, "--data", "nowhere")
        assert (code, err) == (2, "error: --data: there is no folder nowhere\n")

    @pytest.mark.parametrize("option", [["--jobs", "0"], ["--jobs", "-2"], ["--repetitions", "0"], ["--seed", "-1"]])
    def test_numbers_out_of_range(self, toy, out, run, option):
        code, _, err = run("reproduce", "toy", *option)
        assert code == 2
        assert option[0] in err
        assert times_run(toy) == {}

    def test_a_file_in_place_of_the_folder(self, toy, out, run):
        out.write_text("")
        assert reproduced(run)[2] == "error: cannot make the folder experiments-out: File exists\n"

    def test_no_dask_scheduler(self, toy, out, run):
        code, told, err = run("reproduce", "toy", "--dask", "nowhere")
        assert (code, told) == (2, "")
        assert err == "error: --dask: 'nowhere' is not the address of a scheduler: write tcp://HOST:PORT\n"

    def test_a_report_that_fails_leaves_the_raw_results_and_no_page(self, toy, out, run, monkeypatch):
        import toy_experiment

        reproduced(run)
        page = (out / "toy.md").read_text()
        monkeypatch.setattr(toy_experiment, "report", lambda outcomes: 1 / 0)
        code, _, err = reproduced(run, "--repetitions", "5")
        assert code == 70
        assert "ZeroDivisionError" in err
        assert len((out / "toy.csv").read_text().splitlines()) == 6
        assert (out / "toy.md").read_text() == page
        assert not list(out.glob(".*")), "no drafts"


def test_the_experiments_are_listed_with_their_titles(run):
    code, told, _ = run("reproduce", "--list")
    assert code == 0
    assert [line.split()[0] for line in told.splitlines()] == list(registry.EXPERIMENTS)
    assert all(registry.title(name) in told for name in registry.EXPERIMENTS)


def test_the_command_is_the_one_that_was_given():
    assert RunRequest("toy").command == ["choicegp", "reproduce", "toy"]
    words = RunRequest("toy", ExperimentOptions(True, 1, 2), "a b", "c", 2, "h:1").command
    given = "--quick --seed 1 --repetitions 2 --out 'a b' --data c --jobs 2 --dask h:1"
    assert shlex.join(words) == f"choicegp reproduce toy {given}"


def test_a_terminal_gets_a_bar_that_counts(toy, monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    done = {"status": "done", "settings": {"seed": 0}, "seconds": 1.0}
    failed = done | {"status": "failed", "error": {"type": "ValueError", "message": "[red]no[/red] \x1b luck"}}
    with reproduce._progress(5, 2) as tell:
        tell(done)
        tell(failed)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)
    assert "4 of 5: seed 0: failed with ValueError: [red]no[/red] \\x1b luck (1.0 s)" in shown
    assert "4 of 5 runs, 1 failed" in shown
    assert "left:" in shown


# choicegp honesty: one command to a page that says what is reached and what is missed


@pytest.fixture
def honest_out(tmp_path, monkeypatch, toy):
    """Return where results go by default; runs of the toy stand for fits."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CHOICEGP_DATA", raising=False)
    monkeypatch.setitem(registry.CHECKS, "honesty", "toy_experiment")
    return tmp_path / "experiments-out"


def test_the_command_writes_its_files_and_continues(honest_out, run):
    code, told, _ = run("honesty", "--jobs", "1")
    assert code == 0
    assert told.splitlines()[0] == "4 of 4 runs are done. Read experiments-out/honesty.md; beside it are:"
    assert "\n    choicegp honesty --jobs 1\n" in (honest_out / "honesty.md").read_text()
    before = (honest_out / "honesty.jsonl").read_text()
    assert run("honesty", "--jobs", "1")[0] == 0
    assert (honest_out / "honesty.jsonl").read_text() == before


@pytest.mark.parametrize("option", ["--seed", "--random-state"])
def test_options_reach_the_experiment(option, honest_out, run):
    code, told, _ = run("honesty", "--quick", option, "7", "--repetitions", "3", "-o", "here", "--jobs", "1")
    assert code == 0
    assert told.startswith("3 of 3 runs are done. Read here/quick/honesty.md")
    assert "Doubled: [14, 16, 18]" in (honest_out.parent / "here" / "quick" / "honesty.md").read_text()


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


def test_scikit_learn_is_asked_for_before_any_run(honest_out, run, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    code, _, err = run("honesty")
    assert code == 2
    assert "pip install scikit-learn" in err
    assert not honest_out.exists()


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

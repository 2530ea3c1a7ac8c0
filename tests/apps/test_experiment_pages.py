"""Table and page of an experiment: every run has its row, and every failure its reason."""

import csv
import io
import math
from types import SimpleNamespace

import pytest
from matplotlib.figure import Figure

from choicegp.apps.experiment_pages import csv_text, page_text, write_pages
from choicegp.experiments.experiment import ExperimentReport
from choicegp.experiments.run_log import failed_record

COMMAND = ["choicegp", "reproduce", "toy"]


def done(settings, **values):
    about = {"seconds": 1.5, "machine": "abacus", "version": "0.1.0", "software": "Python 3", "started": "today"}
    return {"settings": settings, "status": "done", "values": values, "warnings": [], **about}


def failed(settings, error):
    return failed_record(settings, error)


def rows(records):
    return list(csv.DictReader(io.StringIO(csv_text(records))))


def experiment(report=lambda outcomes: ExperimentReport(f"{len(outcomes)} outcomes", {})):
    return SimpleNamespace(TITLE="A toy", __doc__="The protocol.\n\n    It is short.\n    ", report=report)


def page(records, report=None, command=COMMAND):
    return page_text(experiment(), report or ExperimentReport("It works.\n", {}), 3, records, command)


class TestTable:
    def test_settings_come_first_then_values_then_what_became_of_it(self):
        head = csv_text([done({"seed": 0, "model": "PGP"}, accuracy=0.5, curve=[1, 2], scores={"a": 1})]).splitlines()[
            0
        ]
        own = "seconds,status,error,warnings,version,software,machine,started"
        assert head == f"seed,model,accuracy,{own}"

    def test_cells(self):
        records = [
            done({"seed": 0}, accuracy=0.1 + 0.2, alike=True, note='say "so",\nplease', missing=math.nan),
            done({"seed": 1, "d": 2}, nothing=None) | {"warnings": ["a", "b"]},
            failed({"seed": 2}, ValueError("no\nluck")),
        ]
        first, second, third = rows(records)
        assert float(first["accuracy"]) == 0.1 + 0.2
        assert (first["alike"], first["note"], first["missing"]) == ("True", 'say "so",\nplease', "nan")
        assert (first["d"], first["seconds"], first["status"], first["machine"]) == ("", "1.5", "done", "abacus")
        assert (second["accuracy"], second["nothing"], second["d"], second["warnings"]) == ("", "", "2", "a; b")
        assert (third["status"], third["error"], third["accuracy"]) == ("failed", "ValueError: no luck", "")

    def test_a_value_never_hides_a_setting_or_what_became_of_the_run(self):
        [row] = rows([done({"d": 2}, d=3, status="stopped")])
        assert (row["d"], row["d (value)"], row["status"], row["status (value)"]) == ("2", "3", "done", "stopped")


class TestPage:
    def test_its_parts(self):
        text = page([done({"seed": 0}), done({"seed": 1})], command=[*COMMAND, "--out", "a b"])
        assert text.startswith("# A toy\n\n## Protocol\n\nThe protocol.\n\nIt is short.\n\n## Results\n\nIt works.\n\n")
        assert "\n    choicegp reproduce toy --out 'a b'\n" in text
        assert "- 2 of 3 runs are done\n- 3 seconds of computing\n- machine: abacus\n- choicegp: 0.1.0\n" in text
        assert "failed" not in text
        assert "Warnings" not in text

    def test_figures_are_shown_once(self):
        figures = {"curves": Figure(), "table-1": Figure()}
        text = page([done({"seed": 0})], ExperimentReport("See ![the curves](curves.svg).", figures))
        assert text.count("curves") == 2
        assert "![table-1](table-1.png)" in text

    def test_several_machines_and_versions_are_counted(self):
        others = done({"seed": 1}) | {"machine": "slide rule", "version": "0.2.0"}
        text = page([done({"seed": 0}), others, done({"seed": 2})])
        assert "- machine: abacus (2 runs); slide rule (1 runs)\n" in text
        assert "- choicegp: 0.1.0 (2 runs); 0.2.0 (1 runs)\n" in text

    def test_failures_have_their_reasons(self):
        text = page(
            [done({"seed": 0}), failed({"seed": 1, "d": 2}, ValueError("no luck |\nat all")), failed({}, OSError())]
        )
        assert "- 1 of 3 runs are done, 2 failed\n" in text
        assert "| seed 1, d 2 | ValueError: no luck \\| at all |\n|  | OSError |\n" in text

    def test_warnings_are_counted(self):
        warned = [done({"seed": seed}) | {"warnings": ["a fit stopped\nat its limit"]} for seed in range(2)]
        assert "## Warnings\n\n- 2 runs: a fit stopped at its limit\n" in page(warned)

    def test_a_quick_version_says_so(self):
        assert "\n\n**This is a quick version: " in page([done({"seed": 0})], command=[*COMMAND, "--quick"])


class TestFiles:
    def test_what_is_written_is_named(self, tmp_path):
        made = experiment(lambda outcomes: ExperimentReport("", {"curves": Figure(figsize=(1, 1))}))
        files = write_pages(tmp_path, "toy", made, 1, [done({"seed": 0})], COMMAND)
        assert [file.name for file in files] == ["toy.md", "toy.csv", "curves.png", "curves.svg"]
        assert sorted(tmp_path.iterdir()) == sorted(files)

    def test_a_figure_that_cannot_be_drawn_leaves_no_half_of_it(self, tmp_path):
        figure = Figure(figsize=(1, 1))
        figure.text(0, 0, "$wrong")
        figure.text(0, 0, "$\\wrong$")
        made = experiment(lambda outcomes: ExperimentReport("", {"curves": figure}))
        with pytest.raises(ValueError, match="wrong"):
            write_pages(tmp_path, "toy", made, 1, [done({"seed": 0})], COMMAND)
        assert [file.name for file in tmp_path.iterdir()] == ["toy.csv"]

    def test_the_report_gets_what_is_done(self, tmp_path):
        seen = []
        made = experiment(lambda outcomes: seen.extend(outcomes) or ExperimentReport("", {}))
        write_pages(tmp_path, "toy", made, 2, [failed({}, OSError()), done({"seed": 0}, x=1)], COMMAND)
        assert [one.values for one in seen] == [{"x": 1}]

    def test_letters_that_are_no_text_are_written_escaped(self, tmp_path):
        write_pages(tmp_path, "toy", experiment(), 1, [done({"seed": 0}, name="caf\udce9")], COMMAND)
        assert r"caf\udce9" in (tmp_path / "toy.csv").read_text(encoding="utf-8")

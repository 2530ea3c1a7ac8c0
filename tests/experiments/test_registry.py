"""Which experiments there are, and that each of them is what an experiment must be."""

import inspect
import json
import subprocess
import sys

import pytest

from choicegp.errors import ChoiceGPError
from choicegp.experiments import registry
from choicegp.experiments.experiment import ExperimentOptions
from choicegp.experiments.run_log import run_key


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(
        ChoiceGPError, match=r"there is no experiment 'sinus': use one of sincos, pareto, .*counterexample"
    ):
        registry.module_name("sinus")


def test_a_module_that_is_missing_is_told(monkeypatch):
    monkeypatch.setitem(registry.EXPERIMENTS, "lost", "choicegp.experiments.lost")
    with pytest.raises(ChoiceGPError, match="'lost' is not part of this installation"):
        registry.title("lost")


def test_titles_are_there_without_imports():
    code = (
        "import sys; from choicegp.experiments import registry; registry.title('counterexample')\n"
        "print(*[name for name in ('jax', 'numpy', 'matplotlib') if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout.split()) == (0, []), ended.stderr


@pytest.mark.parametrize("name", [*registry.EXPERIMENTS, *registry.CHECKS])
class TestEveryExperiment:
    def test_it_has_its_parts(self, name):
        experiment = registry.load(name)
        assert registry.title(name) == experiment.TITLE
        assert len(inspect.getdoc(experiment)) > 200, "the docstring is the protocol"
        assert callable(experiment.run)
        assert callable(experiment.report)

    def test_its_runs_are_plain_and_told_apart(self, name):
        runs = registry.load(name).runs(ExperimentOptions())
        assert all("seed" in settings for settings in runs)
        assert len({run_key(settings) for settings in runs}) == len(runs)
        assert [json.loads(json.dumps(settings)) for settings in runs] == runs

    def test_options_are_obeyed(self, name):
        experiment = registry.load(name)
        runs = experiment.runs(ExperimentOptions())
        assert len(experiment.runs(ExperimentOptions(repetitions=1))) < len(
            experiment.runs(ExperimentOptions(repetitions=2))
        )
        moved = experiment.runs(ExperimentOptions(seed=1000))
        assert len(moved) == len(runs)
        assert not {run_key(settings) for settings in moved} & {run_key(settings) for settings in runs}
        assert experiment.runs(ExperimentOptions(quick=True)) != runs

"""Which experiments there are.  Nothing of them is imported here, so that a list of them is there at once."""

import ast
import importlib
import importlib.util
from pathlib import Path
from types import ModuleType

from choicegp.errors import ChoiceGPError

EXPERIMENTS = {
    "sincos": "choicegp.experiments.sincos",
    "pareto": "choicegp.experiments.pareto_problems",
    "inconsistent": "choicegp.experiments.inconsistent",
    "real-data": "choicegp.experiments.real_data",
    "counterexample": "choicegp.experiments.counterexample",
}
"""The modules (see `choicegp.experiments.experiment`), by the names that users give them."""

CHECKS = {"honesty": "choicegp.experiments.honesty"}
"""Experiments of the same kind that are not in the paper and have commands of their own, by the names of these."""


def module_name(name: str) -> str:
    """Return the full name of an experiment's module."""
    known = EXPERIMENTS | CHECKS
    if name not in known:
        raise ChoiceGPError(f"there is no experiment {name!r}: use one of {', '.join(EXPERIMENTS)}")
    return known[name]


def load(name: str) -> ModuleType:
    """Import the module of an experiment."""
    return importlib.import_module(module_name(name))


def title(name: str) -> str:
    """Return an experiment's title, read from its file: importing it would take seconds.

    Examples
    --------
    >>> title("counterexample")
    'One utility, learned by ChoiceNN and by ChoiceGP with one utility too many'
    """
    place = importlib.util.find_spec(module_name(name))
    if place is None or place.origin is None:
        raise ChoiceGPError(f"the experiment {name!r} is not part of this installation: install choicegp again")
    for node in ast.parse(Path(place.origin).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["TITLE"]:
            return str(ast.literal_eval(node.value))
    raise LookupError(f"{place.origin} has no TITLE")

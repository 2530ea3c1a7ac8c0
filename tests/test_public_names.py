"""What a user can import: every name is there, listed and documented."""

import ast
import inspect
import re
from functools import cached_property
from pathlib import Path
from types import FunctionType

import pytest

import choicegp
from choicegp import datasets, kernels

NAMES = [name for name in choicegp.__all__ if not name.startswith("__")]
REFERENCE = (Path(__file__).parents[1] / "docs" / "api.md").read_text(encoding="utf-8")
MODELS = [name for name in NAMES if name.endswith("GP") or name == "ParetoEmbedding"]


def summary(thing: object) -> str:
    """Return the first line of the docstring written for `thing` itself (not inherited, not generated)."""
    written = vars(thing).get("__doc__") if inspect.isclass(thing) else getattr(thing, "__doc__", None)
    first = (written or "").strip().splitlines()[:1]
    generated = inspect.isclass(thing) and first and first[0].startswith(f"{thing.__name__}(")
    return "" if generated or not first else first[0].strip()


def public_methods(owner: type) -> dict[str, object]:
    """Return the public methods and properties of a class that are written in this package."""
    kinds = (FunctionType, property, cached_property, classmethod, staticmethod)
    bases = [base for base in owner.__mro__ if base.__module__.startswith("choicegp")]
    members = {name: value for base in reversed(bases) for name, value in vars(base).items()}
    return {k: v for k, v in members.items() if not k.startswith("_") and isinstance(v, kinds)}


def test_all_is_sorted_and_each_name_is_listed_once():
    assert sorted(set(choicegp.__all__)) == sorted(choicegp.__all__)


def test_dir_shows_the_public_names_and_nothing_else():
    assert dir(choicegp) == sorted(choicegp.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'ChoiceGO'"):
        _ = choicegp.ChoiceGO


def test_the_version_is_the_installed_one():
    from importlib.metadata import version

    assert choicegp.__version__ == version("choicegp")


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_is_there_and_documented(name):
    thing = getattr(choicegp, name)
    assert summary(thing).endswith("."), f"choicegp.{name} needs a docstring with a one-line summary"
    if inspect.isclass(thing):
        bare = [method for method, value in public_methods(thing).items() if not summary(value)]
        assert bare == [], f"methods of {name} without a docstring"


@pytest.mark.parametrize("name", datasets.__all__)
def test_every_data_set_is_documented(name):
    thing = getattr(datasets, name)
    assert inspect.isfunction(thing) or inspect.isclass(thing)
    assert summary(thing).endswith("."), f"datasets.{name} needs a docstring with a one-line summary"


def test_datasets_lists_what_it_defines():
    public = {name: value for name, value in vars(datasets).items() if not name.startswith("_")}
    defined = {name for name, value in public.items() if inspect.isfunction(value) or inspect.isclass(value)}
    assert defined == set(datasets.__all__)


def test_the_reference_lists_every_public_name_once_and_documents_it_from_choicegp():
    listed = REFERENCE.partition(":nosignatures:")[2].partition("```")[0].split()
    documented = re.findall(r"^\.\. auto\w+:: choicegp\.(\w+)$", REFERENCE, re.MULTILINE)
    assert sorted(listed) == sorted(documented) == sorted(NAMES)
    assert "`choicegp.__version__`" in REFERENCE


def members(name: str) -> list[str]:
    """Return the members that the reference documents of a public name."""
    [options] = re.findall(rf"^\.\. auto\w+:: choicegp\.{name}\n((?:   .*\n)*)", REFERENCE, re.MULTILINE)
    return options.partition(":members:")[2].replace(",", " ").split()


@pytest.mark.parametrize("name", MODELS)
def test_the_reference_documents_what_every_model_does(name):
    common = {"fit", "predict", "predict_proba", "predict_frame", "log_prob", "score", "save", "load"}
    assert common <= set(members(name)) <= set(public_methods(getattr(choicegp, name)))


def test_the_reference_documents_every_kernel():
    assert set(members("kernels")) == set(kernels.__all__)


WARNINGS = {name for name in NAMES if inspect.isclass(thing := getattr(choicegp, name)) and issubclass(thing, Warning)}


def test_every_kind_of_warning_is_named_and_on_the_page_about_them():
    page = (Path(__file__).parents[1] / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    table = page.partition("## Warnings")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, flags=re.M)) == WARNINGS
    for file in (Path(choicegp.__file__).parent).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            # A remark, which is passed on, has its name where it is made.
            if called == "warnings.warn" and "remark" not in ast.unparse(node.args[0]):
                assert ast.unparse(node.args[1]) in WARNINGS, f"{file.name}:{node.lineno}"
            assert called not in ("UserWarning", "Warning", "RuntimeWarning"), f"{file.name}:{node.lineno}"

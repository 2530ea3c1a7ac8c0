"""What a user can import: every name is there, listed and completely documented."""

import ast
import inspect
import re
from functools import cached_property
from pathlib import Path
from types import FunctionType

import pytest

import choicegp
from choicegp import datasets, inferences, kernels, likelihoods, metrics, plots

NAMES = [name for name in choicegp.__all__ if not name.startswith("__")]
DOCS = Path(__file__).parents[1] / "docs"
REFERENCE = "\n".join(
    path.read_text(encoding="utf-8") for path in [DOCS / "api.md", *sorted((DOCS / "reference").glob("*.md"))]
)
MODULES = (choicegp, datasets, inferences, kernels, likelihoods, metrics, plots)
PUBLIC = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module in MODULES
    for name in module.__all__
    if not name.startswith("__") and not inspect.ismodule(getattr(module, name))
}
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
    # The Attributes section of the class lists what a fit leaves behind; PairGP and GPGP refuse to say utilities.
    elsewhere = {"get_params", "set_params"} | ({"utilities"} if name in ("PairGP", "GeneralPreferenceGP") else set())
    public = set(public_methods(getattr(choicegp, name)))
    assert {one for one in public - elsewhere if not one.endswith("_")} <= set(members(name)) <= public


@pytest.mark.parametrize("module", [kernels, inferences, likelihoods], ids=lambda module: module.__name__)
def test_the_reference_documents_every_name_of_a_module(module):
    assert set(members(module.__name__.removeprefix("choicegp."))) == set(module.__all__)


def parameters(thing: object) -> list[str]:
    """Return the names that a caller may give, without ``self``."""
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    given = inspect.signature(thing).parameters.values()
    return [one.name for one in given if one.kind not in kinds and one.name not in ("self", "cls")]


def returns_something(function: object) -> bool:
    """Whether the annotation says that a value comes back."""
    return inspect.signature(function).return_annotation not in (None, "None")


def gaps(thing: object) -> list[str]:
    """Return the sections that the docstring of a function or a class lacks."""
    text = inspect.getdoc(thing) or ""
    wanted = {"Examples": True}
    if inspect.isclass(thing):
        is_plain = issubclass(thing, Exception) and "__init__" not in vars(thing)
        abstract = not parameters(thing) if not is_plain else True
        wanted["Parameters" if "Parameters\n---" in text else "Attributes"] = not abstract
    else:
        wanted |= {"Parameters": bool(parameters(thing)), "Returns": returns_something(thing)}
    lacking = [name for name, needed in wanted.items() if needed and f"{name}\n{'-' * len(name)}\n" not in text]
    is_plain = inspect.isclass(thing) and issubclass(thing, Exception)
    unnamed = [] if is_plain else [one for one in parameters(thing) if not re.search(rf"\b{one}\b", text)]
    return lacking + unnamed


def method_gaps(owner: type, name: str, method: object) -> list[str]:
    """Return the parameters of a method that neither its docstring nor its class's names, and whether it lacks what
    it returns."""
    if isinstance(method, property | cached_property):
        return []
    function = getattr(owner, name)
    text = inspect.getdoc(function) or ""
    named = text + (inspect.getdoc(owner) or "")
    unnamed = [one for one in parameters(function) if not re.search(rf"\b{one}\b", named)]
    says = re.search(r"\breturn(s|ed)?\b", text, re.IGNORECASE) or not returns_something(function)
    return unnamed + ([] if says else ["Returns"])


@pytest.mark.parametrize("name", PUBLIC)
def test_the_docstring_of_every_public_name_is_complete(name):
    thing = PUBLIC[name]
    assert gaps(thing) == [], f"{name} needs these sections"
    if inspect.isclass(thing):
        found = {one: method_gaps(thing, one, method) for one, method in public_methods(thing).items()}
        assert {one: lacking for one, lacking in found.items() if lacking} == {}, f"methods of {name}"


def test_a_gap_is_noticed():
    def bare(x: int) -> int:
        """Return x."""
        return x

    class Thing:
        def __init__(self, size: int) -> None:
            self.size = size

        def grow(self, by: int) -> int:
            """Grow."""
            return self.size + by

    assert gaps(bare) == ["Examples", "Parameters", "Returns"]
    assert gaps(Thing) == ["Examples", "Attributes", "size"]
    assert method_gaps(Thing, "grow", Thing.grow) == ["by", "Returns"]


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

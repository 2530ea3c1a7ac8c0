"""The shape of the package: one-way imports, a light root, modules of a size to read in one sitting."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "choicegp"
# A module imports only from its own folder and from folders before it.
ORDER = (
    "reading", "data", "model", "datasets", "compute", "inference", "fitting", "prediction", "evaluation", "selection",
    "storage", "estimators", "elicitation", "plotting", "reporting", "experiments", "apps",
)  # fmt: skip
FOR_EVERYONE = {"errors", "checks", "files", "__version__"}
HEAVY = ("jax", "pandas", "scipy", "sklearn", "matplotlib")
MODULES = sorted(PACKAGE.rglob("*.py"))


def imported_names(source: str, folder: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Yield (line, dotted name) of everything imported anywhere in `source`, a module of package `folder`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = folder[: len(folder) - node.level + 1] if node.level else ()
            start = ".".join((*above, *([node.module] if node.module else [])))
            yield from ((node.lineno, f"{start}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__"):
                yield node.lineno, str(node.args[0].value)


def backward_imports(source: str, path: Path) -> list[str]:
    """Return what `source`, the text of the module at `path` (relative to the package), may not import."""
    home = path.parts[0] if len(path.parts) > 1 else None
    wrong = []
    for line, name in imported_names(source, ("choicegp", *path.parts[:-1])):
        parts = name.split(".")
        if parts[0] != "choicegp" or (len(parts) > 1 and parts[1] in FOR_EVERYONE):
            continue
        target = parts[1] if len(parts) > 1 else None
        if home is None:  # the root gathers the public names of every folder but the faces
            allowed = target not in ("experiments", "apps")
        elif home == "experiments":  # on the public names alone, and in the style that all pictures share
            allowed = target in (home, "datasets", "plotting") or target not in ORDER
        elif target in ORDER:
            allowed = ORDER.index(target) <= ORDER.index(home)
        else:  # the package itself and its façade modules, made for users
            allowed = home == "apps"
        if not allowed:
            wrong.append(f"{path}:{line} imports {name}")
    return wrong


def test_every_folder_has_its_place_in_the_order():
    folders = {path.parts[len(PACKAGE.parts)] for path in MODULES if path.parent != PACKAGE}
    assert folders <= set(ORDER), f"give {sorted(folders - set(ORDER))} a place in ORDER"
    assert {"data", "model"} <= folders


def test_the_map_for_contributors_has_the_rooms_in_their_order():
    text = (PACKAGE.parents[1] / "CONTRIBUTING.md").read_text()
    named = re.findall(r"^\| `(\w+)/` \|", text, flags=re.MULTILINE)
    folders = {path.parts[len(PACKAGE.parts)] for path in MODULES if path.parent != PACKAGE}
    assert named == [room for room in ORDER if room in folders]


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(module):
    assert backward_imports(module.read_text(), module.relative_to(PACKAGE)) == []


@pytest.mark.parametrize(
    "source",
    [
        "import choicegp.model.likelihood",
        "from choicegp.model.likelihood import log_likelihood",
        "from choicegp import model",
        "from ..model import likelihood",
        "from ..model.likelihood import log_likelihood",
        "def f():\n    from choicegp.apps import cli",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from choicegp.inference import dense",
        "import importlib\nimportlib.import_module('choicegp.model.likelihood')",
        "from choicegp import ChoiceData",
        "import choicegp",
        "from choicegp import datasets",
        "from .. import datasets",
    ],
)
def test_an_import_against_the_order_is_found(source):
    assert len(backward_imports(source, Path("data", "choices.py"))) == 1


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("from choicegp.errors import ChoiceDataError", "data/choices.py"),
        ("from choicegp import errors, __version__", "data/choices.py"),
        ("from . import pareto\nfrom .pareto import undominated", "data/choices.py"),
        ("import numpy\nfrom choicegp.data.choices import ChoiceData", "model/likelihood.py"),
        ("from choicegp import ChoiceData, datasets\nimport choicegp", "apps/server/page.py"),
        ("from choicegp.datasets.alice import laptops", "datasets.py"),
    ],
)
def test_an_import_along_the_order_is_allowed(source, place):
    assert backward_imports(source, Path(place)) == []


@pytest.mark.parametrize(
    "module", [*(PACKAGE / "reading").rglob("*.py"), *(PACKAGE / "data").rglob("*.py")], ids=lambda path: path.name
)
def test_data_need_no_jax(module):
    names = imported_names(module.read_text(), ("choicegp", "data"))
    roots = {name.split(".")[0] for _, name in names}
    assert not roots & {"jax", "jaxlib", "equinox", "optax"}


def test_importing_the_package_loads_nothing_heavy():
    code = f"import choicegp, sys; print(*[name for name in {HEAVY} if name in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == []


def test_no_module_is_a_drawer_for_everything():
    assert not [path for path in MODULES if path.stem in ("utils", "helpers", "misc", "common")]


def test_no_module_is_too_long_to_read():
    lengths = {str(path.relative_to(PACKAGE)): len(path.read_text().splitlines()) for path in MODULES}
    assert lengths
    assert {name: length for name, length in lengths.items() if length > 400} == {}


def test_no_class_name_is_used_twice():
    places: dict[str, list[str]] = {}
    for path in MODULES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    assert len(places) > 100
    assert {name: own for name, own in places.items() if len(own) > 1} == {}

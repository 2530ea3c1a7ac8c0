"""The sources that a program's key covers: its module's and those of its imports, and no others."""

import ast
import importlib
import shutil
import sys
import types
from pathlib import Path

import pytest

import choicegp
from choicegp.compute import sources

PACKAGE = Path(choicegp.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))


def by_syntax_tree(file: Path) -> set[Path]:
    """Find the same imports by parsing the file."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "relative imports are not looked for"
            if [alias.name for alias in node.names] != ["__version__"]:
                names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return {path for name in names for path in sources._files(name)}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(PACKAGE).as_posix())
def test_imports_are_found_as_by_pythons_parser(file):
    assert sources.imported(file) == by_syntax_tree(file)


def test_imports_are_found_wherever_they_stand(tmp_path):
    file = tmp_path / "some.py"
    file.write_text(
        "from choicegp.model.kernels import (  # several\n    RBF,\n    Matern12,\n)\n"
        "import numpy, choicegp.errors as e\n"
        "def late():\n    if True:\n        from choicegp.inference import dense, sites as s\nfrom choicegpx import y\n"
    )
    found = {path.relative_to(PACKAGE).as_posix() for path in sources.imported(file)}
    modules = {"model/__init__.py", "model/kernels.py", "errors.py", "inference/dense.py", "inference/sites.py"}
    assert found == modules | {"inference/__init__.py"}


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """Work with a copy of the package's sources; return the digest of a module's after the edit of another."""
    shutil.copytree(PACKAGE, tmp_path / "choicegp", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(sources, "_PACKAGE", tmp_path / "choicegp")

    def digest(module: str, edited: str | None = None) -> str:
        if edited is not None:
            with (tmp_path / "choicegp" / edited).open("a") as file:
                file.write("# edited\n")
        for cached in (sources._digest, sources.reached, sources.imported, sources._content):
            cached.cache_clear()
        return sources._digest(frozenset([tmp_path / "choicegp" / module]))

    yield digest
    for cached in (sources._digest, sources.reached, sources.imported, sources._content):
        cached.cache_clear()


@pytest.mark.parametrize(
    ("edited", "counts"),
    [
        ("inference/dense.py", True),
        ("inference/sites.py", True),
        ("model/probit.py", True),  # three imports away
        ("compute/programs.py", True),
        ("inference/mcmc.py", False),
        ("prediction/choices.py", False),
        ("estimators/choice_gp.py", False),
        ("apps/cli.py", False),
        ("__init__.py", False),
    ],
)
def test_an_edit_changes_the_keys_of_what_imports_it_alone(copied, edited, counts):
    before = copied("inference/dense.py")
    assert copied("inference/dense.py") == before
    assert (copied("inference/dense.py", edited) != before) == counts


def test_modules_are_given_by_name():
    importlib.import_module("choicegp.inference.dense")
    one = sources.digest_of_sources({"choicegp.inference.dense"})
    assert one == sources.digest_of_sources({"choicegp.inference.dense", "choicegp.inference.sites"}), (
        "that is imported"
    )
    assert one != sources.digest_of_sources({"choicegp.inference.sites"})
    assert sources.digest_of_sources({"choicegp.inference.dense", "nowhere"}) is None


def test_sources_that_cannot_be_read_have_no_digest(tmp_path, monkeypatch):
    (tmp_path / "compiled.pyc").write_bytes(b"\xff\xfe\x00")
    for name, file in (("zipped", tmp_path / "app.zip" / "zipped.py"), ("compiled", tmp_path / "compiled.pyc")):
        module = types.ModuleType(name)
        module.__file__ = str(file)
        monkeypatch.setitem(sys.modules, name, module)
        assert sources.digest_of_sources({name}) is None

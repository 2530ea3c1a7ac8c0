"""Nothing that a user gives is run: no pickles, no evaluated text, no shell."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "choicegp"
RUNNERS = {"pickle", "marshal", "shelve", "subprocess", "dill", "cloudpickle", "pdb", "code"}
# Compiled programs are pickles of JAX's: they come from a folder and files that nobody but the user can have written.
ALLOWED = {"compute/programs.py": {"pickle"}}


def dangers(source: str) -> set[str]:
    """Return the modules that can run what they read, and the builtins that run text."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names} & RUNNERS
        elif isinstance(node, ast.ImportFrom):
            found |= {(node.module or "").split(".")[0]} & RUNNERS
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found |= {node.func.id} & {"eval", "exec", "compile"}
        elif isinstance(node, ast.Attribute):
            found |= {node.attr} & {"system", "popen", "read_pickle", "unsafe_load", "spawnl", "execv"}
        elif isinstance(node, ast.keyword):
            turned_on = isinstance(node.value, ast.Constant) and node.value.value is True
            found |= {node.arg or ""} & {"allow_pickle", "shell"} if turned_on else set()
    return found


@pytest.mark.parametrize(
    "source",
    [
        "import pickle", "from subprocess import run", "eval('1')", "import os\nos.system('ls')",
        "import numpy as np\nnp.load(path, allow_pickle=True)", "run(text, shell=True)", "pd.read_pickle(path)",
    ],
)  # fmt: skip
def test_what_runs_is_found(source):
    assert dangers(source)


def test_nothing_that_is_given_is_run():
    found = {
        str(path.relative_to(PACKAGE)): those for path in PACKAGE.rglob("*.py") if (those := dangers(path.read_text()))
    }
    assert found == ALLOWED

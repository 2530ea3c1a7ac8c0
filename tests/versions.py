"""Run tests on other Pythons, with the newest and the oldest dependencies that the package allows.

Run by hand: ``python tests/versions.py tests/model tests/data``, or for one environment
``python tests/versions.py tests/data --minors 12 --only newest``. Each environment is made in a temporary folder, or
kept in the one that ``--folder`` names. Pythons that do not run here are named and passed over. The exit code is 0
when all tests pass in every environment.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from glob import glob
from pathlib import Path

ROOT = Path(__file__).parents[1]
MINORS = (11, 12, 13)
# What old versions use of newer ones may be deprecated since; what this package or its tests use may not.
OLD = r"ignore::DeprecationWarning:(?!choicegp|tests|test_|conftest)"


def python_of(minor: int) -> str | None:
    """Return a Python of that version which really runs: a name on the PATH may be a shim with nothing behind it."""
    home = os.path.expanduser(f"~/.pyenv/versions/3.{minor}.*/bin/python")
    for candidate in (f"python3.{minor}", f"/usr/bin/python3.{minor}", *sorted(glob(home), reverse=True)):
        try:
            subprocess.run([candidate, "-c", "import ensurepip, venv"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        return candidate
    return None


def lowest(project: dict) -> list[str]:
    """Return the lowest version that each dependency allows, as constraints."""
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    found = (re.match(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?>=([^,]+)", one) for group in groups for one in group)
    return sorted({f"{match[1]}=={match[2]}" for match in found if match})


def filters() -> list[str]:
    """Return the filters of warnings that the tests have everywhere: what -W adds to them cannot be a pattern."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["filterwarnings"]


def main() -> int:
    """Make the environments and run the tests in each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", help="keep the environments here")
    parser.add_argument("--only", choices=("newest", "oldest"), nargs="+", default=("newest", "oldest"))
    parser.add_argument("--minors", type=int, nargs="+", choices=MINORS, default=MINORS, help="3.12 is 12")
    parser.add_argument("tests", nargs="*", default=["tests"])
    options = parser.parse_args()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    worst = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(options.folder or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        constraints = folder / "oldest.txt"
        constraints.write_text("\n".join(lowest(project)) + "\n")
        for minor in options.minors:
            python = python_of(minor)
            if python is None:
                print(f"Python 3.{minor} does not run here: passed over")
                continue
            for age in options.only:
                worst = max(worst, tested(python, folder / f"3.{minor}-{age}", age, constraints, options.tests))
    return worst


def tested(python: str, place: Path, age: str, constraints: Path, tests: list[str]) -> int:
    """Install into one environment, run the tests there, and return the exit code."""
    inside = place / "bin" / "python"
    if not inside.exists():
        subprocess.run([python, "-m", "venv", str(place)], check=True)
    wanted = ["-c", str(constraints)] if age == "oldest" else ["--upgrade"]
    installed = subprocess.run([inside, "-m", "pip", "install", "-qq", *wanted, "-e", f"{ROOT}[test]"], check=False)
    if installed.returncode:
        print(f"{place.name}: the dependencies cannot be installed together")
        return installed.returncode
    quiet = ["-o", "filterwarnings=" + "\n".join([*filters(), OLD])] if age == "oldest" else []
    code = subprocess.run([inside, "-m", "pytest", "-q", "-n", "0", *quiet, *tests], cwd=ROOT, check=False).returncode
    print(f"{place.name}: {'passed' if code == 0 else f'failed ({code})'}")
    return code


if __name__ == "__main__":
    sys.exit(main())

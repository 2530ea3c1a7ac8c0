"""Audit the pinned dependencies: with pip-audit where it is installed, else that every dependency is pinned.

Run by hand: ``python tests/audit.py``. The exit code is 0 when nothing was found.
"""

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements" / "lock.txt"


def plain_name(requirement: str) -> str:
    """Return the name of a requirement as package indexes spell it."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\s\[<>=!~;]", requirement.strip(), maxsplit=1)[0]).lower()


def unpinned(lock: str, project: dict) -> list[str]:
    """Return the direct dependencies, of all extras, that the lock does not pin to one version."""
    pinned = {plain_name(line) for line in lock.splitlines() if re.fullmatch(r"[A-Za-z0-9._-]+==\S+", line)}
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    direct = {plain_name(one) for group in groups for one in group} - {project["name"]}
    return sorted(direct - pinned)


def main() -> int:
    """Audit, and say what was found."""
    if importlib.util.find_spec("pip_audit") is not None:
        # Strictly: what could not be looked up is not safe.
        audit = [sys.executable, "-m", "pip_audit", "--strict", "--no-deps", "-r", str(LOCK)]
        return subprocess.run(audit, check=False).returncode
    missing = unpinned(LOCK.read_text(), tomllib.loads((ROOT / "pyproject.toml").read_text())["project"])
    print("pip-audit is not installed: known weaknesses were not looked up.")
    print(f"not pinned: {', '.join(missing)}" if missing else "Every direct dependency is pinned.")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())

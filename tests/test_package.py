"""What is shipped: a wheel and an sdist that hold everything needed, and a wheel that works alone."""

import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

import choicegp

ROOT = Path(__file__).parents[1]


def run(*command: object, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run(
        [str(word) for word in command],
        cwd=cwd, env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert ended.returncode == 0, f"{command}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """Build both archives without isolation: what the build needs is installed with the test extra."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(built) -> Path:
    (found,) = built.glob("*.whl")
    return found


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    source = ROOT / "src"
    files = [path.relative_to(source) for path in (source / "choicegp").rglob("*") if path.is_file()]
    # Caches (of Python, of type checkers) are not part of the package.
    expected = {path.as_posix() for path in files if not any(p[0] == "." or p == "__pycache__" for p in path.parts)}
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert "choicegp/py.typed" in names
    assert names == expected


def test_the_wheel_says_what_it_is(wheel):
    with zipfile.ZipFile(wheel) as archive:
        information = {name.split("/", 1)[1]: name for name in archive.namelist() if ".dist-info/" in name}
        metadata = archive.read(information["METADATA"]).decode()
        commands = archive.read(information["entry_points.txt"]).decode()
    assert "Name: choicegp\n" in metadata
    assert f"Version: {choicegp.__version__}\n" in metadata
    assert "License-Expression: MIT\n" in metadata
    assert "licenses/LICENSE" in information
    assert "choicegp = choicegp.apps.cli:main" in commands


def test_the_version_is_written_in_one_place():
    named = re.compile(rf"(?<!cff-)version[\s=:\"'*]*{re.escape(choicegp.__version__)}", re.IGNORECASE)
    others = (
        "pyproject.toml",
        "README.md",
        "CONTRIBUTING.md",
        "CITATION.cff",
        "Makefile",
        "docs/conf.py",
        "docs/index.md",
    )
    assert [name for name in others if named.search((ROOT / name).read_text(encoding="utf-8"))] == []


def test_the_citation_names_the_software_and_its_paper():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert (citation["type"], citation["license"]) == ("software", "MIT")
    [paper] = citation["references"]
    assert paper["title"] in (ROOT / "README.md").read_text(encoding="utf-8")
    assert [author["family-names"] for author in paper["authors"]] == ["Benavoli", "Azzimonti", "Piga"]


def test_the_changelog_has_the_version():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## \[(.+?)\]", changelog, re.MULTILINE)
    assert newest
    assert newest[1] in (choicegp.__version__, "Unreleased")


@pytest.fixture(scope="module")
def unpacked(built, tmp_path_factory) -> Path:
    """Return the folder of the unpacked sdist."""
    (sdist,) = built.glob("*.tar.gz")
    # The first releases of Python 3.11 have no filters yet.
    safely: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(sdist) as archive:
        archive.extractall(folder := tmp_path_factory.mktemp("sdist"), **safely)
    return folder / sdist.name.removesuffix(".tar.gz")


def test_the_sdist_can_be_worked_on(unpacked):
    folders = ("src", "tests", "docs", "benchmarks", "studies")
    needed = {path.relative_to(ROOT) for folder in folders for path in (ROOT / folder).rglob("*.py")}
    needed = {path for path in needed if not {"_build", "auto_tutorials"} & set(path.parts)}  # made by make docs
    needed |= {
        Path(name)
        for name in (
            "Makefile",
            "LICENSE",
            "CHANGELOG.md",
            "requirements/lock.txt",
            ".ci/run",
            ".pre-commit-config.yaml",
        )
    }
    assert len(needed) > 100
    assert sorted(path for path in needed if not (unpacked / path).is_file()) == []
    assert not {path.name for path in unpacked.rglob("*")} & {"_build", "__pycache__", ".git", ".venv"}


def test_the_benchmarks_of_the_sdist_start(unpacked, tmp_path, monkeypatch):
    """Run `make bench` in an environment that seems to be installed, where the data folder is not known."""
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nPYTHONPATH=src:benchmarks exec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    for stamp in (".made", ".base", ".test"):
        (tmp_path / stamp).touch()
    monkeypatch.delenv("CHOICEGP_DATA", raising=False)
    tables = run(
        "make", "--no-print-directory", "bench", f"VENV={tmp_path}", "BENCH_ARGS=--methods --no-scale", cwd=unpacked
    )
    assert tables.startswith("| problem | method |")
    scripts = sorted(path.stem for path in (unpacked / "benchmarks").glob("*.py"))
    assert "problems" in scripts
    run(python, "-c", f"import choicegp, {', '.join(scripts)}", cwd=unpacked)


def test_the_hooks_before_a_commit_are_the_tools_of_the_makefile():
    hooks = re.findall(r"entry: \.venv(/bin/\S+(?: [a-z]+)?)", (ROOT / ".pre-commit-config.yaml").read_text())
    assert len(hooks) == 3
    makefile = (ROOT / "Makefile").read_text().replace("$(BIN)", "/bin")
    assert [hook for hook in hooks if hook not in makefile] == []


@pytest.fixture(scope="module")
def clean_python(wheel, tmp_path_factory) -> Path:
    """Return the Python of a new environment with the wheel alone; dependencies come from the running one."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    python = folder / "venv" / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python)
    run(*pip, "install", "-qq", "--no-deps", "--no-index", wheel, cwd=folder)
    # A path in a .pth file is searched last, and the .pth files in that folder (the editable install of
    # the project) are not read. Written after the install, or pip would take choicegp for installed.
    (site_packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (site_packages / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return python


def test_the_wheel_alone_is_what_is_imported(clean_python, tmp_path):
    file = run(clean_python, "-c", "import choicegp; print(choicegp.__file__)", cwd=tmp_path)
    assert clean_python.parents[1] in Path(file.strip()).parents


def test_the_first_example_runs_with_the_wheel_alone(clean_python, tmp_path):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    example = re.search(r"^```python\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE)
    assert example
    (tmp_path / "example.py").write_text(example[1], encoding="utf-8")
    assert run(clean_python, "-W", "error", "example.py", cwd=tmp_path)

"""The shared test settings themselves: skips fail when everything is required, and only then."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).with_name("conftest.py")

SKIPS = {
    "call": "import pytest\ndef test(): pytest.skip('not today')",
    "mark": "import pytest\n@pytest.mark.skip(reason='not today')\ndef test(): pass",
    "skipif": "import pytest\n@pytest.mark.skipif(True, reason='not today')\ndef test(): pass",
    "module": "import pytest\npytest.skip('not today', allow_module_level=True)",
    "importorskip": "import pytest\npytest.importorskip('no_such_package', reason='not today')",
    "fixture": "import pytest\n@pytest.fixture\ndef f(): pytest.skip('not today')\ndef test(f): pass",
    "unittest": "import unittest as u\nclass T(u.TestCase):\n    def test(self): self.skipTest('not today')",
}


def run_pytest(folder: Path, sources: dict[str, str], *options: str, **settings: str) -> tuple[int, str]:
    """Run `sources` as test files beside a copy of the conftest, with CHOICEGP_* set only as given."""
    (folder / "conftest.py").write_text(CONFTEST.read_text())
    for name, source in sources.items():
        (folder / f"test_{name}.py").write_text(source)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CHOICEGP_")}
    environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} | settings  # other plugins only cost time here
    command = [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", *options, "."]
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    return ended.returncode, ended.stdout


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n1")], ids=["in process", "in a worker"])
def test_every_kind_of_skip_fails_when_everything_is_required(workers, tmp_path):
    options = ("--continue-on-collection-errors", *workers)
    status, output = run_pytest(tmp_path, SKIPS, *options, CHOICEGP_REQUIRE_ALL="1")
    assert status == 1
    for kind in SKIPS:
        assert re.search(rf"^(FAILED|ERROR) test_{kind}\.py", output, re.MULTILINE), f"{kind}\n{output}"
    assert len(re.findall("allows no skip: .*: Skipped: not today", output)) >= len(SKIPS)
    assert "skipped" not in output.splitlines()[-1]


def test_skips_are_otherwise_left_alone(tmp_path):
    status, output = run_pytest(tmp_path, SKIPS)
    assert status in (0, 5)
    assert f"{len(SKIPS)} skipped" in output.splitlines()[-1]


def test_an_expected_failure_is_not_a_skip(tmp_path):
    source = "import pytest\n@pytest.mark.xfail\ndef test_bad(): assert False\ndef test_good(): pass"
    status, output = run_pytest(tmp_path, {"it": source}, CHOICEGP_REQUIRE_ALL="1")
    assert status == 0
    assert "1 passed, 1 xfailed" in output


DATA = {"it": "def test(data_folder): assert data_folder.name == 'tables'"}


def test_the_data_folder_comes_from_the_environment(tmp_path):
    (tmp_path / "tables").mkdir()
    status, output = run_pytest(tmp_path, DATA, CHOICEGP_DATA=str(tmp_path / "tables"))
    assert status == 0
    assert "1 passed" in output


def test_a_missing_data_folder_skips_and_says_what_to_set(tmp_path):
    _, output = run_pytest(tmp_path, DATA)
    assert "1 skipped" in output
    assert "set CHOICEGP_DATA" in output


def test_a_wrong_data_folder_fails(tmp_path):
    status, output = run_pytest(tmp_path, DATA, CHOICEGP_DATA=str(tmp_path / "nowhere"))
    assert status == 1
    assert "not a folder" in output


def test_jax_was_imported_after_its_settings():
    import jax

    assert jax.config.jax_enable_x64 == (os.environ["JAX_ENABLE_X64"] == "1")
    assert jax.config.jax_platforms == os.environ["JAX_PLATFORMS"]

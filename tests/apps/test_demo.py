"""The tour with simulated data."""

import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest
from PIL import Image

import choicegp
import choicegp.reading.text
from choicegp.apps.cli import main
from choicegp.apps.demo import first_page, program
from choicegp.fitting import options

pytestmark = pytest.mark.usefixtures("short_chains")
DRAWS = "Intervals: NUTS over utilities and hyperparameters: 64 draws, "


@pytest.fixture(scope="module")
def demo(tmp_path_factory, short_chains):
    """Run the demo once: its words and its folder."""
    import contextlib
    import io

    folder = tmp_path_factory.mktemp("tour") / "Alice's demo"
    words = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", os.defpath)
        patch.chdir(folder.parent)
        with contextlib.redirect_stdout(words), pytest.raises(SystemExit) as ended:
            main(["demo", "--output", folder.name])
    assert ended.value.code == 0
    return words.getvalue(), folder


def test_it_shows_the_data(demo):
    words, _ = demo
    assert "Alice" in words
    assert "150 sets of 4 objects." in words


def test_it_says_what_made_the_intervals(demo):
    words, _ = demo
    assert DRAWS in words


def shell(command, folder):
    """Run a line in a shell that finds no choicegp on its PATH; return what it printed."""
    environment = os.environ | {"PATH": os.defpath}
    assert shutil.which("choicegp", path=os.defpath) is None
    ended = subprocess.run(
        command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, f"{command}\n{ended.stderr}"
    return ended.stdout


def test_the_commands_that_it_prints_run_as_printed(demo, run, tmp_path, monkeypatch):
    words, folder = demo
    shutil.copytree(folder, tmp_path / folder.name)
    monkeypatch.chdir(tmp_path)
    # How good the model of the printed command is, is not asked here.
    monkeypatch.setattr(options, "MORE_STARTS", 1)
    commands = re.findall(r"^  (\S.* (?:plot|fit|predict|describe) .*)$", words, flags=re.MULTILINE)
    assert len(commands) == 4
    assert "Usage: choicegp describe" in shell(commands[-1], tmp_path)
    for command, written in zip(commands, ("effects.png", DRAWS, "probability", "Usage"), strict=True):
        # The program is known to start; the rest is quicker in this process.
        code, out, err = run(*shlex.split(command)[1:])
        assert (code, err) == (0, ""), command
        assert written in out


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """Return the scripts' folder of an environment that is not activated, and whose name needs quotes."""
    scripts = tmp_path / "it's mine" / "bin"
    scripts.mkdir(parents=True)
    (scripts / "choicegp").write_text("#!/bin/sh\necho started $1\n")
    (scripts / "choicegp").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(scripts / "python"))
    monkeypatch.setenv("PATH", os.defpath)
    return scripts


@pytest.mark.parametrize("place", ["..", ".", "bin", "/"])
def test_a_program_that_is_not_on_the_path_is_named_by_its_path(place, environment, monkeypatch):
    monkeypatch.chdir(environment.parent / place)
    assert shell(f"{program()} fit", ".") == "started fit\n"
    assert len(program()) <= len(shlex.quote(str(environment / "choicegp")))


def test_a_program_on_the_path_is_named_alone(environment, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(environment))
    assert program() == "choicegp"
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(environment / "choicegp", other)
    monkeypatch.setenv("PATH", os.pathsep.join([str(other), str(environment)]))
    assert program() != "choicegp"


def test_a_program_without_a_script_is_a_module(monkeypatch, tmp_path):
    (tmp_path / "python").symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", os.defpath)
    assert program() == f"{tmp_path}/python -m choicegp.apps.cli"


def test_it_says_how_well_it_predicts(demo):
    words, _ = demo
    seen = re.search(r"laptops it has seen: (\d+)% of 300 sets predicted exactly .a random answer: (\d+)%", words)
    new = re.search(r"laptops it has never seen: (\d+)% of 300 sets predicted exactly", words)
    assert int(seen[1]) > 75
    assert int(new[1]) > 70
    assert int(seen[2]) == 7


def test_it_says_what_drives_alice(demo):
    words, _ = demo
    lines = re.findall(r"^Utility \d (.*)$", words, flags=re.MULTILINE)
    assert len(lines) == 2
    comfort = next(line for line in lines if "weight_kg" in line)
    work = next(line for line in lines if "cpu_score" in line)
    assert "falls with weight_kg" in comfort
    assert "keyboard = uk" in comfort
    assert "rises with cpu_score" in work
    assert "falls with price_eur" in work


def test_it_leaves_answers_model_and_plot(demo, run):
    _, folder = demo
    assert {path.name for path in folder.iterdir()} == {"alice.csv", "model.cgp", "effects.png"}
    with Image.open(folder / "effects.png") as picture:
        assert min(picture.size) > 500
    assert "150 sets of 4 objects." in run("describe", str(folder / "alice.csv"))[1]
    model = choicegp.ChoiceGP.load(folder / "model.cgp")
    data = choicegp.datasets.alice_choices(n_sets=150, set_size=4, random_state=0).data
    assert model.score(data) > 0.9


def test_the_model_predicts_and_is_drawn(demo, run, tmp_path, monkeypatch):
    _, folder = demo
    monkeypatch.chdir(tmp_path)
    code, out, _ = run("predict", str(folder / "model.cgp"), str(folder / "alice.csv"), "-o", "out.csv")
    assert code == 0
    assert "150 sets" in out
    table = choicegp.reading.text.read_rows("out.csv").frame
    assert list(table.columns) == ["set", "object", "probability", "chosen"]
    assert len(table) == 600
    assert table["probability"].between(0, 1).all()
    code, out, _ = run("plot", str(folder / "model.cgp"), "-o", "pictures")
    assert code == 0
    assert {path.name for path in (tmp_path / "pictures").iterdir()} == {
        "drivers.png",
        "effects.png",
        "objects.png",
        "relevance.png",
        "elbo.png",
    }
    assert "there is no plot 'pie'" in run("plot", str(folder / "model.cgp"), "--kind", "pie")[2]


def test_the_first_page_has_her_ticks():
    catalogue = choicegp.datasets.laptops(random_state=3)
    data = choicegp.datasets.alice_choices(random_state=3).data
    page = first_page(data, catalogue)
    for row, label in zip(data.shown[0], page.index, strict=True):
        assert label == f"{'x' if row in data.chosen[0] else ' '} {data.object_ids[row]}"


def test_a_table_is_fitted(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    choicegp.datasets.sincos(n_objects=20, n_sets=15).data.write("choices.csv")
    quick = ("-d", "1", "--restarts", "1", "--lapse", "learn", "--intervals", "none")
    code, out, err = run("fit", "choices.csv", "-o", "model.cgp", *quick)
    assert (code, err) == (0, "")
    assert "Fitted 1 utility to 15 sets" in out
    assert "Intervals: Gaussian utilities at the most probable hyperparameters: intervals are too narrow." in out
    assert re.search(r"ELBO -\d", out)
    assert {path.name for path in tmp_path.iterdir()} == {"choices.csv", "model.cgp"}
    code, out, _ = run("predict", "model.cgp", "choices.csv")
    assert code == 0
    assert len(out.splitlines()) == 46

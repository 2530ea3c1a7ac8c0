"""The way of a choice set through the code is short: few files, few changes of folder, from command to file."""

import os
import re
import subprocess
import sys
from pathlib import Path

import choicegp

WALK = Path(__file__).with_name("walk.py")
# At most: files visited, changes of folder.
FIT = (44, 16)
PREDICT = (33, 15)


def walked(*arguments: object, cwd: Path) -> tuple[list[str], tuple[int, int]]:
    """Trace a command in a new process: the files, and the numbers of files and of changes."""
    # What is compiled is run once, so it need not be fast.
    environment = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    command = [sys.executable, WALK, *arguments]
    ended = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    *files, counts = ended.stdout.splitlines()
    found = re.fullmatch(r"(\d+) files, (\d+) folders, (\d+) changes of folder", counts)
    assert found, counts
    assert len(set(files)) == len(files) == int(found[1])
    return files, (int(found[1]), int(found[3]))


def test_the_walks_of_fit_and_predict_are_short(tmp_path):
    choicegp.datasets.alice_choices(n_objects=20, n_sets=15, random_state=0).data.write(tmp_path / "choices.csv")
    files, counts = walked("fit", "choices.csv", "-o", "model.cgp", "--max-seconds", "15", cwd=tmp_path)
    assert files[0] == "apps/cli.py"
    # The core is seen, and what comes after the model file is not.
    assert "model/likelihood.py" in files
    assert "reporting/summaries.py" not in files
    assert all(count <= limit for count, limit in zip(counts, FIT, strict=True)), f"{counts}: {files}"
    files, counts = walked("predict", "model.cgp", "choices.csv", "-o", "predictions.csv", cwd=tmp_path)
    assert {"model/likelihood.py", "prediction/choices.py"} <= set(files)
    assert all(count <= limit for count, limit in zip(counts, PREDICT, strict=True)), f"{counts}: {files}"
    assert {path.name for path in tmp_path.iterdir()} == {"choices.csv", "model.cgp", "predictions.csv"}


def test_a_command_that_fails_is_no_walk(tmp_path):
    command = [sys.executable, WALK, "fit", "nothing.csv", "-o", "model.cgp"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert "nothing.csv" in ended.stderr

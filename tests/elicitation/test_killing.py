"""No acknowledged answer is lost and none is doubled, whenever a process is killed."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("killing.py")
KILLS = 10


def test_answers_survive_the_kill_of_their_process(place):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(SCRIPT), place, str(KILLS)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith(f"{KILLS} kills, ")
    assert int(ended.stdout.split()[2]) > 0, ended.stdout

"""Whether answers survive the kill of their process: 200 kills on SQLite and 200 on PostgreSQL.

A process asks and answers, and says which answers were acknowledged; it is killed at a random moment (SIGKILL), and the
log is compared with what it said. What was sent and not acknowledged is sent again. No acknowledged answer may be
missing, and none may be recorded twice. PostgreSQL runs as a server of its own, with its usual care for the disk.

    python studies/kill_answers.py [KILLS] [SECONDS]
"""

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "elicitation"))

from killing import kill_often
from servers import binaries, postgres

KILLS, SECONDS = 200, 300.0


def main(kills: int = KILLS, seconds: float = SECONDS) -> None:
    """Kill processes that answer, on both databases, and print what was seen."""
    with tempfile.TemporaryDirectory() as folder:
        report("SQLite", f"{folder}/study.db", kills, seconds)
    if binaries() is None:
        print("PostgreSQL: skipped, because initdb and postgres are missing; install the package postgresql")
        return
    with postgres(durable=True) as url:
        report("PostgreSQL", url, kills, seconds)


def report(name: str, place: str, kills: int, seconds: float) -> None:
    """Print what was seen on one database; a lost or doubled answer ends the study with an error."""
    begun = time.monotonic()
    seen = kill_often(place, kills, longest=0.05, seconds=seconds)
    print(f"{name}: {seen}; none lost, none doubled; {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main(*(kind(text) for kind, text in zip((int, float), sys.argv[1:], strict=False)))

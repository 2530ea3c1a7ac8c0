"""What an experiment leaves for readers: a page with its figures, and a table of raw results."""

import csv
import inspect
import io
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from choicegp.experiments.experiment import ExperimentReport
from choicegp.experiments.results import markdown_table
from choicegp.experiments.run_log import RunRecord, outcome
from choicegp.files import replaced_when_complete

_QUICK = "**This is a quick version: its numbers are not the results of the experiment.**"
OWN_COLUMNS = ("seconds", "status", "error", "warnings", "version", "software", "machine", "started")


def write_pages(
    folder: Path, name: str, experiment: ModuleType, n_asked: int, records: Sequence[RunRecord], command: Sequence[str]
) -> list[Path]:
    """Write table, figures and page of the runs that came to an end; every file is written whole or not at all.

    Of ``n_asked`` runs these are the records, in the order in which they were asked for, and ``command`` has the words
    that make all this. Returned are the files, the page first.
    """
    from choicegp.plotting.files import save_figure

    table, page = folder / f"{name}.csv", folder / f"{name}.md"
    # First what can hardly fail: the raw results.
    _write(table, csv_text(records))
    done = [outcome(record) for record in records if record["status"] == "done"]
    report = experiment.report(done) if done else ExperimentReport("No run is done.", {})
    figures = [folder / f"{figure}.{kind}" for figure in report.figures for kind in ("png", "svg")]
    for file in figures:
        save_figure(report.figures[file.stem], file)
    _write(page, page_text(experiment, report, n_asked, records, command))
    return [page, table, *figures]


def _write(path: Path, text: str) -> None:
    with replaced_when_complete(path) as handle:
        handle.write(text.encode("utf-8", errors="backslashreplace"))


def csv_text(records: Sequence[RunRecord]) -> str:
    """Return one row for each run: settings, values that are numbers or texts, and what became of it."""
    settings = list(dict.fromkeys(name for record in records for name in record["settings"]))
    values = list(
        dict.fromkeys(
            name for record in records for name, value in _values(record) if not isinstance(value, list | dict)
        )
    )
    taken = {*settings, *OWN_COLUMNS}
    head = [*settings, *(f"{name} (value)" if name in taken else name for name in values), *OWN_COLUMNS]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    for record in records:
        found = dict(_values(record))
        own = record | {"error": error_in_words(record), "warnings": "; ".join(record["warnings"])}
        cells = [record["settings"].get(name) for name in settings] + [found.get(name) for name in values]
        writer.writerow([*cells, *(own[name] for name in OWN_COLUMNS)])
    return text.getvalue()


def _values(record: RunRecord) -> Iterable[tuple[str, Any]]:
    return record.get("values", {}).items()


def error_in_words(record: RunRecord) -> str:
    """Return a failed run's error in one line, nothing for other runs."""
    if record["status"] == "done":
        return ""
    message = " ".join(record["error"]["message"].split())
    return f"{record['error']['type']}: {message}" if message else record["error"]["type"]


def settings_in_words(record: RunRecord) -> str:
    """Return a run's settings in one line."""
    return ", ".join(f"{name} {value}" for name, value in record["settings"].items())


def page_text(
    experiment: ModuleType, report: ExperimentReport, n_asked: int, records: Sequence[RunRecord], command: Sequence[str]
) -> str:
    """Return the page: title, protocol, results, how they were made, and what failed."""
    failed = [record for record in records if record["status"] != "done"]
    figures = [f"![{name}]({name}.png)" for name in report.figures if f"({name}." not in report.text]
    parts = [
        f"# {experiment.TITLE}",
        *([_QUICK] if "--quick" in command else []),
        "## Protocol",
        inspect.getdoc(experiment) or "",
        "## Results",
        report.text.strip(),
        *figures,
        "## How this was made",
        f"    {shlex.join(command)}",
        _made(n_asked, records, len(failed)),
    ]
    warned = Counter(text for record in records for text in record["warnings"])
    if warned:
        told = (f"- {n} run{'s' if n > 1 else ''}: {' '.join(text.split())}" for text, n in warned.most_common())
        parts += ["## Warnings", "\n".join(told)]
    if failed:
        rows = [(settings_in_words(record), error_in_words(record)) for record in failed]
        parts += ["## Runs that failed", markdown_table(("run", "error"), rows)]
    return "\n\n".join(parts) + "\n"


def _made(n_asked: int, records: Sequence[RunRecord], n_failed: int) -> str:
    n_done = len(records) - n_failed
    lines = [
        f"- {n_done} of {n_asked} runs are done" + (f", {n_failed} failed" if n_failed else ""),
        f"- {sum(record['seconds'] for record in records):.0f} seconds of computing",
    ]
    for what in ("machine", "version", "software"):
        counted = Counter(str(record[what]) for record in records)
        kinds = [f"{kind} ({n} runs)" if len(counted) > 1 else kind for kind, n in counted.most_common()]
        lines.append(f"- {'choicegp' if what == 'version' else what}: {'; '.join(kinds)}")
    return "\n".join(lines)

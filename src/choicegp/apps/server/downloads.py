"""The owner's downloads: answers, participants, events, models and a report."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastapi import APIRouter, HTTPException
from fastapi.responses import Response

from choicegp.apps.server.app import Page
from choicegp.apps.server.owner import Number, Owned, counts, kept_most, of_person, standings, words_of
from choicegp.apps.server.results import Learned, LearnedPeople

router = APIRouter(prefix="/owner", default_response_class=Response)

_MODEL = "application/octet-stream"


@router.get("/people/{number}/model.cgp")
def person_model(page: Owned, number: Number) -> Response:
    """Return the model of one participant as a file."""
    return _file(_learned(of_person(page, number)).model, f"model-{number}.cgp", _MODEL)


@router.get("/downloads/model.cgp")
def model(page: Owned) -> Response:
    """Return the model of all answers together as a file."""
    return _file(_learned(_everyone(page)).model, "model.cgp", _MODEL)


@router.get("/downloads/people.cgp")
def people_model(page: Owned) -> Response:
    """Return the model of people who differ as a file."""
    found = page.thinker.people() if counts(page)[0] > 1 else None
    return _file(_learned(found).model, "people.cgp", _MODEL)


@router.get("/downloads/events.jsonl")
def events(page: Owned) -> Response:
    """Return everything that happened, each event as JSON on a line of its own."""
    lines = [json.dumps(event.record(), ensure_ascii=False) + "\n" for event in page.store.events()]
    return _file("".join(lines).encode(), "events.jsonl", "application/jsonl")


@router.get("/downloads/answers.csv")
def answers(page: Owned) -> Response:
    """Return the answers as the long table that ``choicegp fit`` reads."""
    if counts(page)[1] == 0:
        raise HTTPException(404)
    return _written(page.store.export_long, "answers.csv")


@router.get("/downloads/participants.csv")
def participants(page: Owned) -> Response:
    """Return the participants as a table, with the identifiers of a panel."""
    return _written(page.store.export_participants, "participants.csv")


@router.get("/downloads/report.html")
def report(page: Owned) -> Response:
    """Return one file that tells what was learned from all and from each."""
    found = _learned(_everyone(page))
    return _file(report_of(page, found), "report.html", "text/html; charset=utf-8")


def report_of(page: Page, found: Any) -> bytes:
    """Write the report: what the model of everyone has learned, with what is known of each person."""
    rows = standings(page)
    people = [
        (person, now, words_of(page, page.thinker.explained(person.id, now.version) if now.shown else None))
        for person, now in rows
    ]
    text = page.text(
        "report.html", page.study.language("en"), people=people, kept_most=kept_most(now for _, now in rows),
        n_answers=sum(len(now.shown) for _, now in rows),
        drawn={name: found.pictures[name].decode().partition("<svg")[2] for name in ("effects", "objects")},
        **words_of(page, found),
    )  # fmt: skip
    return text.encode()


def _everyone(page: Page) -> Any:
    return page.thinker.everyone() if counts(page)[1] else None


def _learned(found: Any) -> Any:
    if not isinstance(found, Learned | LearnedPeople):
        raise HTTPException(404)
    return found


def _written(write: Callable[[Path], None], name: str) -> Response:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / name
        write(file)
        return _file(file.read_bytes(), name, "text/csv; charset=utf-8")


def _file(content: bytes, name: str, kind: str) -> Response:
    return Response(content, media_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'})

"""The owner's pages: who answers, what is learned, downloads, and an end to the study.  Nothing changes by GET."""

import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from fastapi import APIRouter, Depends, Form, HTTPException, Request
from fastapi import Path as InPath
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from choicegp.apps.server.app import Page
from choicegp.apps.server.learning import Learned, Task
from choicegp.apps.server.participant import Shared, Token, in_words
from choicegp.apps.server.standing import Standing, standing
from choicegp.elicitation.events import Event, Participant
from choicegp.errors import ChoiceGPError, NotPossible, StoreError

router = APIRouter(prefix="/owner", default_response_class=HTMLResponse)

COOKIE = "choicegp_owner"
_DAY = 24 * 3600
_N_SHARES = 15

Number = Annotated[int, InPath(ge=1, le=2**31 - 1)]
Picture = Literal["effects", "objects"]


class Row(NamedTuple):
    """A participant in the owner's table; ``repeated``: the panel sent the same person as somebody else, too."""

    person: Participant
    standing: Standing
    last: str
    repeated: bool = False


def owned(page: Shared, request: Request) -> Page:
    """Let only the owner pass."""
    if not page.store.is_owner(request.cookies.get(COOKIE, "")):
        raise HTTPException(404)
    return page


Owned = Annotated[Page, Depends(owned)]


@router.get("/enter/{token}")
def enter(page: Shared, token: Token) -> Response:
    """Remember the owner in this browser."""
    if not page.store.is_owner(token):
        raise HTTPException(404)
    reply = RedirectResponse("/owner", 303)
    reply.set_cookie(COOKIE, token, max_age=_DAY, secure=page.secure, httponly=True, samesite="lax", path="/owner")
    return reply


@router.post("/leave")
def leave(page: Owned) -> Response:
    """Forget the owner in this browser."""
    reply = RedirectResponse("/", 303)
    reply.delete_cookie(COOKIE, path="/owner", secure=page.secure, httponly=True, samesite="lax")
    return reply


@router.get("")
def overview(page: Owned, request: Request) -> Response:
    """Show all participants and how far they are."""
    return _overview(page, request)


def _overview(page: Page, request: Request, link: str | None = None, name: str = "", problem: str = "") -> Response:
    rows = _rows(page)
    base = (page.url or str(request.base_url)).rstrip("/")
    return page.html(
        "owner.html", page.study.language("en"), rows=rows, state=page.store.state, link=link, name=name,
        problem=problem, invite=f"{base}/join/{page.store.settings['invite']}",
        n_answers=sum(len(row.standing.shown) for row in rows),
        n_finished=sum(row.person.state == "finished" for row in rows),
    )  # fmt: skip


def _rows(page: Page) -> list[Row]:
    """Return all participants, read at once."""
    events: dict[int | None, list[Event]] = {}
    for event in page.store.events():
        events.setdefault(event.participant, []).append(event)
    rows, people = [], page.store.participants()
    named = Counter(who for person in people if (who := _named(page, person)))
    for person in people:
        own = events.get(person.id, [])
        last = (own[-1].at if own else person.joined).strftime("%Y-%m-%d %H:%M")
        rows.append(Row(person, standing(own), last, named[_named(page, person)] > 1))
    return rows


def _named(page: Page, person: Participant) -> tuple[tuple[str, Any], ...]:
    """Return by what a panel names a participant."""
    return tuple((name, person.panel[name]) for name in page.study.persons if name in person.panel)


@router.post("/people")
def add(page: Owned, request: Request, name: Annotated[str, Form(max_length=200)] = "") -> Response:
    """Add a participant and show her link, this one time."""
    try:
        person, token = page.store.join(name.strip() or None)
    except ChoiceGPError as error:
        # What a database says of itself, such as its address, is for the log.
        if isinstance(error, StoreError) and not isinstance(error, NotPossible):
            raise
        return _overview(page, request, name=name, problem=str(error))
    base = (page.url or str(request.base_url)).rstrip("/")
    return _overview(page, request, f"{base}/p/{token}", person.label)


@router.post("/state")
def change(page: Owned, state: Annotated[Literal["open", "paused", "closed"], Form()]) -> Response:
    """Open, pause or close the study."""
    page.store.set_state(state)
    return RedirectResponse("/owner", 303)


@router.get("/people/{number}")
def person(page: Owned, number: Number) -> Response:
    """Show what one participant answered and what it says."""
    who = _found(page, number)
    now = standing(page.store.events(who))
    found = page.thinker.explained(_task(page, now, who)) if now.shown else "nothing"
    return page.html("owner_person.html", page.study.language("en"), person=who, standing=now, **_said(page, found))


@router.get("/population")
def population(page: Owned) -> Response:
    """Show what all answers together say."""
    rows = _rows(page)
    task = _everyone(rows)
    found = page.thinker.explained(task) if task.shown else "nothing"
    return page.html(
        "owner_population.html", page.study.language("en"), n_people=sum(bool(row.standing.shown) for row in rows),
        n_answers=len(task.shown), shares=_shares(task), **_said(page, found),
    )  # fmt: skip


def _said(page: Page, found: Any) -> dict[str, Any]:
    """Return what a page needs to tell what was learned."""
    language = page.study.language("en")
    if not isinstance(found, Learned):
        return {"found": found, "learned": False, "criteria": [], "shortlist": []}
    names = [(str(label), probability) for label, probability in found.shortlist]
    return {"found": found, "learned": True, "criteria": in_words(page, found, language), "shortlist": names}


def _shares(task: Task) -> list[tuple[str, int, int, float]]:
    """Return how often objects were kept; first those that probably would be most often."""
    shown = Counter(label for one in task.shown for label in one)
    kept = Counter(label for one in task.chosen for label in one)
    shares = [(str(label), n, kept[label], kept[label] / n) for label, n in shown.items()]
    # One of one says less than nine of ten.
    return sorted(shares, key=lambda one: (-(one[2] + 1) / (one[1] + 2), one[0]))[:_N_SHARES]


@router.get("/population/status")
def population_status(page: Owned) -> JSONResponse:
    """Say whether it is known what all answers together show."""
    task = _everyone(_rows(page))
    return JSONResponse({"ready": not task.shown or page.thinker.explained(task) is not None})


@router.get("/people/{number}/status")
def person_status(page: Owned, number: Number) -> JSONResponse:
    """Say whether it is known what the answers of a participant show."""
    who = _found(page, number)
    now = standing(page.store.events(who))
    return JSONResponse({"ready": not now.shown or page.thinker.explained(_task(page, now, who)) is not None})


@router.get("/population/{name}.svg")
def population_picture(page: Owned, name: Picture) -> Response:
    """Return a plot of all answers together."""
    return _picture(page, _everyone(_rows(page)), name)


@router.get("/people/{number}/{name}.svg")
def person_picture(page: Owned, number: Number, name: Picture) -> Response:
    """Return a plot of one participant's answers."""
    who = _found(page, number)
    return _picture(page, _task(page, standing(page.store.events(who)), who), name)


def _picture(page: Page, task: Task, name: str) -> Response:
    return Response(_learned(page, task).pictures[name], media_type="image/svg+xml")


def _learned(page: Page, task: Task) -> Learned:
    found = page.thinker.explained(task) if task.shown else None
    if not isinstance(found, Learned):
        raise HTTPException(404)
    return found


@router.get("/people/{number}/model.cgp")
def person_model(page: Owned, number: Number) -> Response:
    """Return the model of one participant as a file."""
    who = _found(page, number)
    found = _learned(page, _task(page, standing(page.store.events(who)), who))
    return _file(found.model, f"model-{number}.cgp", "application/octet-stream")


@router.get("/downloads/model.cgp")
def model(page: Owned) -> Response:
    """Return the model of all answers together as a file."""
    return _file(_learned(page, _everyone(_rows(page))).model, "model.cgp", "application/octet-stream")


@router.get("/downloads/events.jsonl")
def events(page: Owned) -> Response:
    """Return everything that happened, each event as JSON on a line of its own."""
    lines = [json.dumps(event.record(), ensure_ascii=False) + "\n" for event in page.store.events()]
    return _file("".join(lines).encode(), "events.jsonl", "application/jsonl")


@router.get("/downloads/answers.csv")
def answers(page: Owned) -> Response:
    """Return the answers as the long table that ``choicegp fit`` reads."""
    if not page.store.answers():
        raise HTTPException(404)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "answers.csv"
        page.store.export_long(file)
        return _file(file.read_bytes(), "answers.csv", "text/csv; charset=utf-8")


@router.get("/downloads/participants.csv")
def participants(page: Owned) -> Response:
    """Return the participants as a table, with the identifiers of a panel."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "participants.csv"
        page.store.export_participants(file)
        return _file(file.read_bytes(), "participants.csv", "text/csv; charset=utf-8")


@router.get("/downloads/report.html")
def report(page: Owned) -> Response:
    """Return one file that tells what was learned from all and from each."""
    rows = _rows(page)
    found = _learned(page, _everyone(rows))
    people = []
    for row in rows:
        known = page.thinker.explained(_task(page, row.standing, row.person)) if row.standing.shown else None
        people.append((row, _said(page, known)))
    text = page.text(
        "report.html", page.study.language("en"), rows=rows, people=people, shares=_shares(_everyone(rows)),
        n_answers=sum(len(row.standing.shown) for row in rows),
        drawn={name: found.pictures[name].decode().partition("<svg")[2] for name in ("effects", "objects")},
        **_said(page, found),
    )  # fmt: skip
    return _file(text.encode(), "report.html", "text/html; charset=utf-8")


@router.post("/people/{number}/delete")
def delete(page: Owned, number: Number, sure: Annotated[Literal["yes"], Form()]) -> Response:
    """Delete a participant with all her answers."""
    who = _found(page, number)
    page.store.delete_participant(who)
    page.thinker.forget(who.id)
    return RedirectResponse("/owner", 303)


def _found(page: Page, number: int) -> Participant:
    try:
        return page.store.participant(number)
    except NotPossible:
        raise HTTPException(404) from None


def _task(page: Page, now: Standing, who: Participant) -> Task:
    """Return the same task as the participant's own page does, so that it is done once."""
    language = page.study.language(who.panel.get("language"))
    labels = tuple((one.column, page.cards.label(one.column, language.code)) for one in page.cards.features)
    return Task(who.id, now.shown, now.chosen, now.asked, labels, language.say("picture_axis"))


def _everyone(rows: list[Row]) -> Task:
    shown = tuple(one for row in rows for one in row.standing.shown)
    return Task(None, shown, tuple(one for row in rows for one in row.standing.chosen))


def _file(content: bytes, name: str, kind: str) -> Response:
    return Response(content, media_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'})

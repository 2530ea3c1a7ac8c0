"""The owner's pages: who answers, what is learned, downloads, and an end to the study.  Nothing changes by GET."""

import secrets
from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any, Literal, NamedTuple

from fastapi import APIRouter, Depends, Form, HTTPException, Query, Request
from fastapi import Path as InPath
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from choicegp.apps.server.app import Page
from choicegp.apps.server.participant import FORM, Shared, Token, in_words
from choicegp.apps.server.results import Learned, LearnedPeople
from choicegp.apps.server.standing import Standing, standing
from choicegp.elicitation.events import Event, Participant, Progress
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
    n_done: int
    n_answers: int
    begun: bool
    last: str
    repeated: bool


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
def overview(page: Owned, request: Request, made: Annotated[str, Query(max_length=100)] = "") -> Response:
    """Show all participants and how far they are; ``made`` is the form by which a link was made."""
    token = page.token_of(made) if FORM.fullmatch(made) else None
    person = None if token is None else page.store.by_token(token)
    if person is None:
        return _overview(page, request)
    return _overview(page, request, f"{_base(page, request)}/p/{token}", person.label)


def _base(page: Page, request: Request) -> str:
    return (page.url or str(request.base_url)).rstrip("/")


def _overview(page: Page, request: Request, link: str | None = None, name: str = "", problem: str = "") -> Response:
    rows = _rows(page)
    return page.html(
        "owner.html", page.study.language("en"), rows=rows, state=page.store.state, link=link, name=name,
        problem=problem, invite=f"{_base(page, request)}/join/{page.store.settings['invite']}",
        form=secrets.token_urlsafe(16), n_answers=sum(row.n_answers for row in rows),
        n_finished=sum(row.person.state == "finished" for row in rows),
    )  # fmt: skip


def _rows(page: Page) -> list[Row]:
    """Return all participants and how far they are."""
    progress, people = page.store.progress(), page.store.participants()
    named = Counter(who for person in people if (who := _named(page, person)))
    rows = []
    for person in people:
        now = progress.get(person.id) or Progress(0, 0, 0, person.joined)
        last = now.last.strftime("%Y-%m-%d %H:%M")
        repeated = named[_named(page, person)] > 1
        rows.append(Row(person, now.n_done, now.n_answers, now.n_asked > 0, last, repeated))
    return rows


def counts(page: Page) -> tuple[int, int]:
    """Return how many people have answered, and how many answers there are."""
    numbers = [now.n_answers for now in page.store.progress().values() if now.n_answers]
    return len(numbers), sum(numbers)


def standings(page: Page) -> list[tuple[Participant, Standing]]:
    """Return all participants with their answers, read at once."""
    events: dict[int | None, list[Event]] = {}
    for event in page.store.events(of_questions=True):
        events.setdefault(event.participant, []).append(event)
    return [(person, standing(events.get(person.id, []))) for person in page.store.participants()]


def _named(page: Page, person: Participant) -> tuple[tuple[str, Any], ...]:
    """Return by what a panel names a participant."""
    return tuple((name, person.panel[name]) for name in page.study.persons if name in person.panel)


@router.post("/people")
def add(
    page: Owned,
    request: Request,
    name: Annotated[str, Form(max_length=200)] = "",
    form: Annotated[str, Form(max_length=100)] = "",
) -> Response:
    """Add a participant, and send the owner to her link; a form that is sent twice adds her once."""
    made = form if FORM.fullmatch(form) else secrets.token_urlsafe(16)
    try:
        page.store.join(name.strip() or None, token=page.token_of(made))
    except ChoiceGPError as error:
        # What a database says of itself, such as its address, is for the log.
        if isinstance(error, StoreError) and not isinstance(error, NotPossible):
            raise
        return _overview(page, request, name=name, problem=str(error))
    return RedirectResponse(f"/owner?made={made}#invited", 303)


@router.post("/state")
def change(page: Owned, state: Annotated[Literal["open", "paused", "closed"], Form()]) -> Response:
    """Open, pause or close the study."""
    page.store.set_state(state)
    return RedirectResponse("/owner", 303)


@router.get("/people/{number}")
def person(page: Owned, number: Number) -> Response:
    """Show what one participant answered and what it says."""
    who = found_person(page, number)
    now = standing(page.store.events(who))
    found = page.thinker.explained(who.id, now.version) if now.shown else "nothing"
    return page.html("owner_person.html", page.study.language("en"), person=who, standing=now, **words_of(page, found))


@router.get("/population")
def population(page: Owned) -> Response:
    """Show what all answers together say."""
    n_people, n_answers = counts(page)
    return page.html(
        "owner_population.html", page.study.language("en"), n_people=n_people, n_answers=n_answers,
        kept_most=kept_most(now for _, now in standings(page)),
        **words_of(page, page.thinker.everyone() if n_answers else "nothing"),
    )  # fmt: skip


@router.get("/segments")
def segments(page: Owned) -> Response:
    """Show what people would keep, and who is like whom."""
    n_people, n_answers = counts(page)
    found = page.thinker.people() if n_people > 1 else "nothing"
    return page.html(
        "owner_segments.html", page.study.language("en"), found=found, n_people=n_people, n_answers=n_answers,
        learned=isinstance(found, LearnedPeople), criteria=[],
    )  # fmt: skip


def words_of(page: Page, found: Any) -> dict[str, Any]:
    """Return what a page needs to tell what was learned."""
    language = page.study.language("en")
    if not isinstance(found, Learned):
        return {"found": found, "learned": False, "criteria": [], "shortlist": []}
    names = [(str(label), probability) for label, probability in found.shortlist]
    return {"found": found, "learned": True, "criteria": in_words(page, found, language), "shortlist": names}


def kept_most(people: Iterable[Standing]) -> list[tuple[str, int, int, float]]:
    """Return how often objects were kept; first those that probably would be most often."""
    given = list(people)
    shown = Counter(label for now in given for one in now.shown for label in one)
    kept = Counter(label for now in given for one in now.chosen for label in one)
    shares = [(str(label), n, kept[label], kept[label] / n) for label, n in shown.items()]
    # One of one says less than nine of ten.
    return sorted(shares, key=lambda one: (-(one[2] + 1) / (one[1] + 2), one[0]))[:_N_SHARES]


@router.get("/population/status")
def population_status(page: Owned) -> JSONResponse:
    """Say whether it is known what all answers together show."""
    return JSONResponse({"ready": counts(page)[1] == 0 or page.thinker.everyone() is not None})


@router.get("/segments/status")
def segments_status(page: Owned) -> JSONResponse:
    """Say whether shares and segments are known."""
    return JSONResponse({"ready": counts(page)[0] < 2 or page.thinker.people() is not None})


@router.get("/people/{number}/status")
def person_status(page: Owned, number: Number) -> JSONResponse:
    """Say whether it is known what the answers of a participant show."""
    who = found_person(page, number)
    now = standing(page.store.events(who))
    return JSONResponse({"ready": not now.shown or page.thinker.explained(who.id, now.version) is not None})


@router.get("/population/{name}.svg")
def population_picture(page: Owned, name: Picture) -> Response:
    """Return a plot of all answers together."""
    return _picture(page.thinker.everyone(), name)


@router.get("/segments/{name}.svg")
def segments_picture(page: Owned, name: Literal["shares", "segments"]) -> Response:
    """Return a plot of shares or segments."""
    return _picture(page.thinker.people(), name)


@router.get("/people/{number}/{name}.svg")
def person_picture(page: Owned, number: Number, name: Picture) -> Response:
    """Return a plot of one participant's answers."""
    return _picture(of_person(page, number), name)


def of_person(page: Page, number: int) -> Any:
    """Return what is known of a participant."""
    who = found_person(page, number)
    now = standing(page.store.events(who))
    return page.thinker.explained(who.id, now.version) if now.shown else None


def _picture(found: Any, name: str) -> Response:
    if not isinstance(found, Learned | LearnedPeople) or name not in found.pictures:
        raise HTTPException(404)
    return Response(found.pictures[name], media_type="image/svg+xml")


@router.post("/people/{number}/delete")
def delete(page: Owned, number: Number, sure: Annotated[Literal["yes"], Form()]) -> Response:
    """Delete a participant with all her answers."""
    who = found_person(page, number)
    page.store.delete_participant(who)
    return RedirectResponse("/owner", 303)


def found_person(page: Page, number: int) -> Participant:
    """Return a participant."""
    try:
        return page.store.participant(number)
    except NotPossible:
        raise HTTPException(404) from None

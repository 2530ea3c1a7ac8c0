"""The participant's pages: welcome, questions, and what was learned.  Nothing changes by GET."""

import random
import re
import secrets
from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Form, HTTPException, Query, Request
from fastapi import Path as InPath
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, RedirectResponse, Response

from choicegp.apps.server.app import Page, page_of
from choicegp.apps.server.cards import PICTURES
from choicegp.apps.server.results import Learned, Proposal
from choicegp.apps.server.standing import Standing, standing
from choicegp.apps.server.study_file import PANEL, Language
from choicegp.apps.server.thinking import LEAST_ANSWERS, Failed
from choicegp.elicitation.events import ObjectId, Participant
from choicegp.errors import AlreadyAnswered, NotPossible, StudyFull

router = APIRouter(default_response_class=HTMLResponse)

COOKIE = "choicegp_participant"
_MONTH = 30 * 24 * 3600
_LONGEST_PANEL = 200
_DRAWS = 200
FORM = re.compile(r"[A-Za-z0-9_-]{22,100}")  # what the welcome page made: nobody can guess it

Shared = Annotated[Page, Depends(page_of)]
Token = Annotated[str, InPath(min_length=20, max_length=100, pattern=r"^[A-Za-z0-9_-]+$")]
Key = Annotated[str, Form(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9_-]+$")]
Note = Literal["nothing_ticked", "none_with_ticks", "answered_before", "withdrawn", "undone", "nothing_to_undo"]


class Visit:
    """One request of a participant: who she is and where she stands."""

    def __init__(self, page: Page, token: str) -> None:
        self.page, self.token = page, token
        found = page.store.by_token(token)
        if found is None:
            raise HTTPException(404)
        self.person: Participant = found
        self.language: Language = page.study.language(found.panel.get("language"))
        self.look()

    def look(self) -> None:
        """Read where she stands from the log."""
        self.standing: Standing = standing(self.page.store.events(self.person.id))

    @property
    def may_continue(self) -> bool:
        """Whether there are questions left for somebody who has stopped."""
        return self.standing.n_done < self.page.study.sets and self.page.store.state == "open"

    @property
    def n_missing(self) -> int:
        """How many questions are left before she is sent back to a panel."""
        study = self.page.study
        needed = study.sets if study.completion_sets is None else min(study.completion_sets, study.sets)
        return max(needed - self.standing.n_done, 0)

    def explained(self) -> Learned | Failed | None:
        """Return what her answers say; None: not yet."""
        return self.page.thinker.explained(self.person.id, self.standing.version)

    def proceed(self) -> bool:
        """Ask the next question, unless one is open or there were enough; return whether there is more to ask."""
        page, now = self.page, self.standing
        if now.question is not None or self.person.state != "active" or page.store.state != "open":
            return now.question is not None
        proposal = None
        if now.n_done < page.study.sets:
            proposal = page.thinker.next_set(self.person.id, now.asked) or drawn(page, now)
        if proposal is None:
            self.finish()
            return False
        why: dict[str, Any] = proposal._asdict()
        page.store.ask(self.person, why.pop("shown"), **why)
        return True

    def finish(self) -> None:
        """Note that she has finished, and have her answers explained."""
        self.page.store.finish(self.person)
        if self.standing.shown:
            self.explained()

    def back(self, note: Note | None = None) -> Response:
        """Send the browser to her page."""
        return RedirectResponse(f"/p/{self.token}" + ("" if note is None else f"?note={note}"), 303)


def visit(page: Shared, token: Token) -> Visit:
    """Find out who comes by a link."""
    return Visit(page, token)


Visited = Annotated[Visit, Depends(visit)]


def drawn(page: Page, now: Standing) -> Proposal | None:
    """Draw a set at random, at once: what is shown where no better one is ready."""
    ids, size = page.cards.ids, min(page.study.set_size, len(page.cards.ids))
    for _ in range(_DRAWS):
        shown = tuple(random.sample(ids, size))
        if frozenset(shown) not in now.asked:
            return Proposal(shown, "random", reason="no better set was ready in time")
    return None


@router.get("/")
def root(page: Shared, request: Request) -> Response:
    """Say that a link is needed."""
    return page.message("lost", page.language_of(request))


@router.get("/join/{invite}")
def welcome(
    page: Shared, request: Request, invite: Token, note: Literal["consent_needed"] | None = None, new: bool = False
) -> Response:
    """Show what the study is about."""
    _check_invite(page, invite)
    language = page.language_of(request)
    if page.store.state != "open":
        return page.message(page.store.state, language)
    known = page.store.by_token(request.cookies.get(COOKIE, "")) if not new else None
    panel = _panel(page, dict(request.query_params))
    # A panel may send several people to one device: who comes as somebody else is not offered to continue.
    if known is not None and any(known.panel.get(name) != value for name, value in panel.items()):
        known = None
    return page.html(
        "welcome.html", language, panel=panel, note=note, action=f"/join/{invite}", form=secrets.token_urlsafe(16),
        known=request.cookies.get(COOKIE) if known is not None else None, here=str(request.url.path),
        query=dict(request.query_params),
    )  # fmt: skip


_JOIN = {"type": "object", "properties": {name: {"type": "string"} for name in ("language", "agree", "form", *PANEL)}}


@router.post(
    "/join/{invite}",
    openapi_extra={"requestBody": {"content": {"application/x-www-form-urlencoded": {"schema": _JOIN}}}},
)
async def join(page: Shared, request: Request, invite: Token) -> Response:
    """Begin: make a participant, and send her to her own page."""
    from starlette.concurrency import run_in_threadpool

    _check_invite(page, invite)
    form = await request.form(max_files=0, max_fields=40)
    given = {name: value for name, value in form.items() if isinstance(value, str)}
    return await run_in_threadpool(_joined, page, invite, given)


def _joined(page: Page, invite: str, given: dict[str, str]) -> Response:
    language = page.study.language(given.get("language"))
    if page.store.state != "open":
        return page.message(page.store.state, language)
    if language.consent and given.get("agree") != "yes":
        back = {"note": "consent_needed", "lang": language.code, "new": "true", **_panel(page, given)}
        return RedirectResponse(f"/join/{invite}?{urlencode(back)}", 303)
    panel = {**_panel(page, given), "language": language.code}
    form = given.get("form", "")
    token = page.token_of(form if FORM.fullmatch(form) else secrets.token_urlsafe(16))
    try:
        page.store.join(panel=panel, token=token, most=page.study.participants)
    except StudyFull:
        return page.message("full", language)
    visitor = Visit(page, token)
    visitor.proceed()
    reply = visitor.back()
    reply.set_cookie(COOKIE, token, max_age=_MONTH, secure=page.secure, httponly=True, samesite="lax")
    return reply


def _panel(page: Page, given: Mapping[str, str]) -> dict[str, str]:
    """Return the identifiers of a panel."""
    return {name: given[name][:_LONGEST_PANEL] for name in page.study.panel if given.get(name)}


def _check_invite(page: Page, invite: str) -> None:
    if not secrets.compare_digest(invite.encode(), str(page.store.settings.get("invite", "")).encode()):
        raise HTTPException(404)


@router.get("/p/{token}")
def show(visitor: Visited, note: Annotated[Note | None, Query()] = None) -> Response:
    """Show the open question, or what comes before or after."""
    page, now, language = visitor.page, visitor.standing, visitor.language
    state, here = page.store.state, f"/p/{visitor.token}"
    if visitor.person.state == "finished":
        return _end(visitor, here)
    if state != "open":
        return page.message(state, language)
    if now.question is None:
        if not now.begun:
            return page.html(
                "welcome.html",
                language,
                panel={},
                note=None,
                action=f"{here}/next",
                form="",
                known=None,
                here=here,
                query={},
            )
        return page.html("continue.html", language, here=here, standing=now)
    cards = page.cards.of(now.question.ids, language.code)
    ticked = [place for place, label in enumerate(now.question.ids) if label in now.ticked]
    return page.html(
        "question.html", language, here=here, standing=now, cards=cards, ticked=ticked, note=note,
        number=min(now.n_done + 1, page.study.sets),
    )  # fmt: skip


def _end(visitor: Visit, here: str) -> Response:
    page, language = visitor.page, visitor.language
    found = visitor.explained() if visitor.standing.shown else "nothing"
    shortlist, criteria, matter = [], [], ""
    if isinstance(found, Learned):
        shortlist = page.cards.of([label for label, _ in found.shortlist], language.code)
        criteria = in_words(page, found, language)
        matter = ", ".join(page.cards.label(one, language.code) for one in found.matter)
    return page.html(
        "end.html", language, here=here, standing=visitor.standing, visitor=visitor, found=found, shortlist=shortlist,
        criteria=criteria, matter=matter, n_objects=len(page.cards.ids), learned=isinstance(found, Learned),
    )  # fmt: skip


def in_words(page: Page, found: Learned, language: Language) -> list[list[str]]:
    """Say what drives each criterion; one about which nothing is clear, or nothing new, is left out."""
    said: list[list[str]] = []
    for drivers in found.drivers:
        lines = []
        for one in drivers:
            label = page.cards.label(one.column, language.code)
            best = page.cards.value(one.column, one.best, language.code)
            lines.append(language.say(one.direction, feature=label, best=best))
        if lines and lines not in said:
            said.append(lines)
    return said


@router.post("/p/{token}/next")
def proceed(visitor: Visited, agree: Annotated[str, Form(max_length=10)] = "") -> Response:
    """Ask the next question, also after she has stopped."""
    if visitor.person.state == "finished" and visitor.may_continue:
        visitor.person = visitor.page.store.resume(visitor.person)
    if visitor.language.consent and not visitor.standing.begun and agree != "yes":
        return visitor.back()
    visitor.proceed()
    return visitor.back()


@router.post("/p/{token}/answer")
def answer(
    visitor: Visited,
    key: Key,
    action: Annotated[Literal["keep", "none", "skip"], Form()] = "keep",
    chosen: Annotated[list[Annotated[int, Form(ge=0, le=5)]] | None, Form()] = None,
) -> Response:
    """Record an answer and ask the next question; the same answer sent twice counts once."""
    page = visitor.page
    if key not in visitor.standing.sets or (action == "none" and not page.study.threshold):
        raise HTTPException(422)
    if action == "keep" and not chosen:
        return visitor.back("nothing_ticked")
    if action == "none" and chosen:
        return visitor.back("none_with_ticks")
    try:
        if action == "skip":
            page.store.skip(key)
        else:
            page.store.answer(key, _labels(visitor, key, chosen or []) if action == "keep" else [])
    except AlreadyAnswered:
        own = page.store.events(visitor.person)
        withdrawn = any(event.kind == "withdrawn" and event.question == key for event in own)
        return visitor.back("withdrawn" if withdrawn else "answered_before")
    except NotPossible:
        if page.store.state == "closed":
            return visitor.back()
        raise
    visitor.look()
    if visitor.proceed() and len(visitor.standing.shown) >= LEAST_ANSWERS:
        page.thinker.learn(visitor.person.id, visitor.standing.version)
    return visitor.back()


def _labels(visitor: Visit, key: str, places: list[int]) -> list[ObjectId]:
    """Return the objects at these places of the set that was shown."""
    shown = visitor.standing.sets[key]
    if max(places) >= len(shown):
        raise HTTPException(422)
    return [shown[place] for place in dict.fromkeys(places)]


@router.post("/p/{token}/undo")
def undo(visitor: Visited, key: Key) -> Response:
    """Take the last answer back and show its question again."""
    if key not in visitor.standing.sets:
        raise HTTPException(422)
    try:
        visitor.page.store.undo(visitor.person, key)
    except NotPossible:
        return visitor.back("nothing_to_undo")
    return visitor.back("undone")


@router.post("/p/{token}/stop")
def stop(visitor: Visited) -> Response:
    """Finish before all questions were asked."""
    visitor.finish()
    return visitor.back()


@router.get("/p/{token}/status")
def status(visitor: Visited) -> JSONResponse:
    """Say whether it is known what the answers show."""
    ready = not visitor.standing.shown or visitor.explained() is not None
    return JSONResponse({"ready": ready})


@router.get("/p/{token}/matters.svg")
def matters(visitor: Visited) -> Response:
    """Return the picture of what mattered."""
    found = visitor.explained() if visitor.standing.shown else None
    if not isinstance(found, Learned):
        raise HTTPException(404)
    return Response(found.pictures["matters"], media_type="image/svg+xml")


@router.get("/images/{number}")
def image(page: Shared, number: Annotated[int, InPath(ge=0, le=10**9)]) -> Response:
    """Return the picture of an object."""
    path = page.cards.pictures.get(number)
    if path is None:
        raise HTTPException(404)
    return FileResponse(
        path, media_type=PICTURES[path.suffix.lower()], headers={"Cache-Control": "private, max-age=3600"}
    )

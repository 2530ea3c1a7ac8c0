"""The application: everything that the pages share, and the one function that puts them together."""

import base64
import hashlib
import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, Response
from fastapi.staticfiles import StaticFiles
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.types import Scope

from choicegp.apps.server.cards import Cards
from choicegp.apps.server.security import LOG, LOOPBACK, Guard, Limits, name_of
from choicegp.apps.server.study_file import Language, StudySettings, said
from choicegp.apps.server.thinking import Thinker
from choicegp.elicitation.store import Store
from choicegp.errors import NotPossible, StoreError

_THREADS = 12  # SQLAlchemy opens 15 connections
_KINDS = {400: "bad", 403: "bad", 404: "lost", 405: "bad", 409: "bad", 413: "bad", 422: "bad", 429: "busy"}


class Page:
    """What every route needs.

    Attributes
    ----------
    study : StudySettings
    store : Store
    cards : Cards
    thinker : Thinker
    secure : bool
        Whether browsers may send cookies by TLS alone.
    """

    def __init__(
        self, study: StudySettings, store: Store, cards: Cards, thinker: Thinker, url: str | None = None
    ) -> None:
        self.study, self.store, self.cards, self.thinker = study, store, cards, thinker
        self.url = url
        self.secure = url is not None and url.startswith("https:")
        self._templates = Environment(
            loader=PackageLoader("choicegp.apps.server"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )

    def token_of(self, form: str) -> str:
        """Return the token of whoever sends this form: one that is sent twice joins once, in whichever process."""
        # Studies of earlier versions have no secret of their own; a form is a secret of its participant anyway.
        secret = self.store.settings.get("secret") or self.store.settings["invite"]
        made = hmac.digest(str(secret).encode(), form.encode(), hashlib.sha256)
        return base64.urlsafe_b64encode(made).decode().rstrip("=")

    def html(self, template: str, language: Language, status: int = 200, **values: Any) -> HTMLResponse:
        """Return a page."""
        return HTMLResponse(self.text(template, language, **values), status)

    def text(self, template: str, language: Language, **values: Any) -> str:
        """Return the text of a page; whatever is filled in is escaped."""
        return self._templates.get_template(template).render(
            say=language.say, language=language, title=said(self.study.title, language.code), study=self.study, **values
        )

    def message(self, kind: str, language: Language, status: int = 200) -> HTMLResponse:
        """Return a page that says one thing, such as "paused"."""
        return self.html("message.html", language, status, kind=kind)

    def language_of(self, request: Request) -> Language:
        """Return the language that a link asks for, or else the browser."""
        if (asked := request.query_params.get("lang")) is not None:
            return self.study.language(asked)
        for part in request.headers.get("accept-language", "").split(","):
            code = part.partition(";")[0].strip().lower()
            for one in self.study.languages:
                if one.code.lower() in (code, code.partition("-")[0]):
                    return one
        return self.study.languages[0]


def page_of(request: Request) -> Page:
    """Return what the routes share."""
    found: Page = request.app.state.page
    return found


def create_app(
    study: StudySettings,
    store: Store,
    cards: Cards,
    thinker: Thinker,
    *,
    url: str | None = None,
    limits: Limits | None = None,
) -> FastAPI:
    """Build the application.

    Parameters
    ----------
    study : StudySettings
    store : Store
        Its setting "invite" is part of the link by which people join.
    cards : Cards
    thinker : Thinker
    url : str, optional
        The address by which people reach the page, where that is not loopback.
    limits : Limits, optional

    Returns
    -------
    FastAPI
    """
    from choicegp.apps.server import downloads, owner, participant

    page = Page(study, store, cards, thinker, url)
    app = FastAPI(title="choicegp", docs_url=None, redoc_url=None, openapi_url=None, lifespan=_with_few_threads)
    app.state.page = page
    app.include_router(participant.router)
    app.include_router(owner.router)
    app.include_router(downloads.router)
    app.mount("/static", StaticFiles(directory=str(files("choicegp.apps.server") / "static")))
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _not_understood)
    app.add_exception_handler(NotPossible, _not_possible)
    app.add_exception_handler(StoreError, _not_saved)
    hosts = LOOPBACK if url is None else LOOPBACK | {name_of(urlsplit(url).netloc)}

    def error_page(scope: Scope, kind: str) -> bytes:
        return page.text("message.html", page.language_of(Request(scope)), kind=kind).encode()

    app.add_middleware(Guard, hosts=hosts, limits=limits or Limits(), page=error_page, url=url)
    return app


@asynccontextmanager
async def _with_few_threads(app: FastAPI) -> AsyncIterator[None]:
    """Serve by a few threads: more than there are connections to the database would wait, and keep memory."""
    from anyio.to_thread import current_default_thread_limiter

    current_default_thread_limiter().total_tokens = _THREADS
    yield


def _error(request: Request, status: int, kind: str | None = None) -> Response:
    page = page_of(request)
    return page.message(kind or _KINDS.get(status, "error"), page.language_of(request), status)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _error(request, error.status_code)


async def _not_understood(request: Request, error: Exception) -> Response:
    # FastAPI's own reply would repeat what was sent.
    return _error(request, 422)


async def _not_possible(request: Request, error: Exception) -> Response:
    return _error(request, 409)


async def _not_saved(request: Request, error: Exception) -> Response:
    LOG.error("%s: the database refused what a page asked for", type(error).__name__)
    return _error(request, 503, "unsaved" if request.method == "POST" else "away")

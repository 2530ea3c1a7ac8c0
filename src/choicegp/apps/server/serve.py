"""The command that starts the page: it opens the study, prints the links and serves until it is stopped."""

import contextlib
import logging
import os
import secrets
import signal
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

from choicegp.apps.server.command import ServeRequest
from choicegp.apps.terminal import say
from choicegp.checks import counted
from choicegp.elicitation.store import Store
from choicegp.errors import ChoiceGPError, StoreError, Unavailable

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_MOST_AT_ONCE = 500  # requests; more are turned away rather than kept waiting


def serve(request: ServeRequest) -> None:
    """Serve a study until the process is stopped."""
    try:
        import fastapi  # noqa: F401
        import jinja2  # noqa: F401
        import uvicorn
    except ImportError as error:
        raise ImportError("the page needs FastAPI and uvicorn; run pip install 'choicegp[page]'") from error
    from choicegp.apps.asking import read_objects
    from choicegp.apps.server.app import create_app
    from choicegp.apps.server.cards import Cards, learned_from
    from choicegp.apps.server.crew import Crew
    from choicegp.apps.server.heap import share_one_heap
    from choicegp.apps.server.study_file import read_study
    from choicegp.apps.server.thinking import Thinking, setup_for
    from choicegp.elicitation.queue import Queue

    share_one_heap()
    _check_address(request)
    _check_place(request.db)
    study = read_study(request.study, sets=request.sets, set_size=request.set_size)
    objects = read_objects(request.objects, request.object_id, None)
    if len(objects) < study.set_size:
        raise ChoiceGPError(f"{request.objects} has {len(objects)} objects, fewer than the {study.set_size} of a set")
    cards = Cards(objects, study, request.images)
    setup = setup_for(study, cards)
    learned_from(objects, setup.columns, setup.decimal)  # what no worker could read is refused now
    logging.basicConfig(level=logging.INFO if request.log else logging.WARNING, format="%(asctime)s %(message)s")
    # The port comes first: a start that fails must not create a study whose owner's link nobody saw.
    with _ended_in_order(), _listening(request) as listener, open_study(request.db, objects) as store:
        app = create_app(study, store, cards, Thinking(Queue(store), setup), url=request.url)
        crew = Crew(request.db, request.workers)
        try:
            _say_links(request, store)
            # Paths hold the secrets of participants: uvicorn's own log of requests stays off.
            config = uvicorn.Config(
                app, access_log=False, log_level="warning", server_header=False, limit_concurrency=_MOST_AT_ONCE,
                timeout_graceful_shutdown=5, h11_max_incomplete_event_size=32 * 1024,
            )  # fmt: skip
            with contextlib.suppress(KeyboardInterrupt):
                uvicorn.Server(config).run(sockets=[listener])
        finally:
            crew.close()
    say("Stopped. All answers are saved; the same command continues the study.")


def work(db: str, workers: int) -> None:
    """Work for the study of a database until the process is stopped."""
    from choicegp.apps.server.crew import Crew

    _check_place(db)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    with _ended_in_order(), contextlib.suppress(KeyboardInterrupt):
        with Store.open(db) as store:
            say(f"{counted(workers, 'worker')} for the study in {store.where}. Stop with Ctrl-C.")
        crew = Crew(db, workers)
        try:
            crew.join()
        finally:
            crew.close()
    say("Stopped. What was begun is done by other workers, or when the next one starts.")


def _check_place(db: str) -> None:
    if db in ("", ":memory:", "sqlite://", "sqlite:///", "sqlite:///:memory:"):
        raise ChoiceGPError("workers cannot see a database in memory: name a file or a URL with --db")


@contextlib.contextmanager
def _ended_in_order() -> Iterator[None]:
    """Let SIGTERM end the page as Ctrl-C does: uvicorn raises signals again, and by default nothing is closed then."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)  # None: not one of Python's


def open_study(place: str | os.PathLike[str], objects: object) -> Store:
    """Open the study of a database, or create it with a new invitation."""
    from choicegp.elicitation.catalogue import as_plain, checked_objects, differences

    try:
        store = Store.open(place)
    except Unavailable:
        raise
    except StoreError:
        made = {"invite": secrets.token_urlsafe(24), "secret": secrets.token_urlsafe(32)}
        try:
            return Store.open(place, objects, made)  # type: ignore[arg-type]  # checked there
        except StoreError as error:
            try:
                store = Store.open(place)  # another process was quicker
            except StoreError:
                raise error from None
    if found := differences(as_plain(store.objects), as_plain(checked_objects(objects))):
        store.close()
        raise StoreError(f"{place} holds a study of other objects: {'; '.join(found)}")
    if "invite" not in store.settings:
        store.close()
        raise StoreError(f"{place} holds a study that was not made for the page; name another file with --db")
    return store


def _check_address(request: ServeRequest) -> None:
    if request.url is not None:
        try:
            parts = urlsplit(request.url)
            known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:  # a port that is no number, or brackets without an end
            known = False
        if not known or parts.path not in ("", "/") or parts.query or parts.fragment or "@" in parts.netloc:
            raise ChoiceGPError("--url must be an address without a path, such as https://study.example.org")
    elif request.host not in _LOOPBACK:
        raise ChoiceGPError(
            f"--host {request.host} lets other machines reach the page: also say by which address, with --url"
        )


def _listening(request: ServeRequest) -> socket.socket:
    """Open the port before anything is printed, so that the links are right."""
    family = socket.AF_INET6 if ":" in request.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((request.host, request.port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        advice = "choose another one with --port"
        raise ChoiceGPError(
            f"cannot listen on {request.host}, port {request.port}: {error.strerror}; {advice}"
        ) from error
    return listener


def _say_links(request: ServeRequest, store: Store) -> None:
    token = store.new_owner_token() if request.new_owner_link else store.owner_token
    host = f"[{request.host}]" if ":" in request.host else request.host
    base = (request.url or f"http://{host}:{request.port}").rstrip("/")
    say(f"Participants: {base}/join/{store.settings['invite']}")
    if token is not None:
        say(f"Owner:        {base}/owner/enter/{token}")
        say("Keep the owner's link to yourself. Only its fingerprint is stored, so it is printed this one time.")
    else:
        say("Owner:        the link that was printed when the study began. --new-owner-link makes another.")
    say(f"Answers are kept in {store.where}.")
    if request.url is None:
        say(
            "Only this machine can reach the page. For others, put it behind a web server with TLS, for example with\n"
            f"  caddy reverse-proxy --from study.example.org --to {host}:{request.port}\n"
            "and add --url https://study.example.org to this command."
        )
    if not request.workers:
        say("No worker runs here: start some with choicegp work --db and the same database.")
    say("Stop with Ctrl-C.")

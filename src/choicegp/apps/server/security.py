"""What every request passes: its origin, its size and its rate are checked, and every reply gets strict headers."""

import logging
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, IPv6Network, ip_address
from threading import Lock
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOG = logging.getLogger("choicegp.server")

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not "no-referrer": browsers would then send "Origin: null" with our own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
_METHODS = ("GET", "HEAD", "POST")


class Limits(NamedTuple):
    """How much one client may ask for.

    Attributes
    ----------
    body : int
        Bytes of a request.
    rate, burst : float
        Requests in a second, and at once, for one link.
    joins, joins_burst : float
        New participants in a second, and at once, from one address.
    misses, misses_burst : float
        Wrong links in a second, and at once, from one address; further ones are answered with "busy".
    """

    body: int = 64 * 1024
    rate: float = 10.0
    burst: float = 60.0
    joins: float = 2.0
    joins_burst: float = 200.0
    misses: float = 1.0
    misses_burst: float = 100.0


class Buckets:
    """Token buckets by key; full ones are forgotten, and the longest unused ones if there are too many.

    Examples
    --------
    >>> buckets = Buckets(rate=1.0, burst=2.0, clock=lambda: 0.0)
    >>> [buckets.take("a") for _ in range(3)]
    [True, True, False]
    """

    def __init__(self, rate: float, burst: float, most: int = 10_000, clock: Callable[[], float] = time.monotonic):
        self._rate, self._burst, self._most, self._clock = rate, burst, most, clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = Lock()

    def take(self, key: str) -> bool:
        """Take from the bucket of a key, or say that it is empty."""
        with self._lock:
            now = self._clock()
            left, at = self._left.pop(key, (self._burst, now))
            left = min(left + (now - at) * self._rate, self._burst)
            allowed = left >= 1.0
            self._left[key] = (left - 1.0 if allowed else left, now)
            # In the order of their last use: one that has had the time to fill is like one that was never used.
            while self._left and (len(self._left) > self._most or self._is_full(next(iter(self._left)), now)):
                self._left.popitem(last=False)
            return allowed

    def _is_full(self, key: str, now: float) -> bool:
        left, at = self._left[key]
        return left + (now - at) * self._rate >= self._burst


class TooLong(Exception):
    """A body that is longer than the limit."""


class Guard:
    """Middleware that refuses what is not ours, and keeps the inside of errors inside.

    Parameters
    ----------
    app : ASGI application
    hosts : frozenset of str
        Names by which the page may be called, without a port: others are a sign of DNS rebinding.
    limits : Limits
    page : callable
        Makes the body of an error page from the scope and the kind ("bad", "busy", "error").
    url : str, optional
        The address by which others reach the page, with the scheme and port of its pages.
    """

    def __init__(
        self, app: ASGIApp, hosts: frozenset[str], limits: Limits, page: Callable[[Scope, str], bytes],
        url: str | None = None,
    ) -> None:  # fmt: skip
        self._app, self._hosts, self._limits, self._page = app, hosts, limits, page
        self._origin = None if url is None else _origin(url)
        self._links = Buckets(limits.rate, limits.burst)
        self._joins = Buckets(limits.joins, limits.joins_burst)
        self._misses = Buckets(limits.misses, limits.misses_burst)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status, replaced = time.perf_counter(), 0, False

        async def send_checked(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        async def send_found(message: Message) -> None:
            """Reply "busy" in place of "not found" to who tries many links; whoever has a valid one never notices."""
            nonlocal replaced
            missed = message["type"] == "http.response.start" and message["status"] == 404
            if missed and not self._misses.take(_address(scope)):
                replaced = True
                await self._reply(scope, send_checked, "busy", 429)
            elif not replaced:
                await send_checked(message)

        try:
            refused = self._refused(scope)
            if refused is not None:
                await self._reply(scope, send_checked, *refused)
            else:
                await self._app(scope, self._limited(receive), send_found)
        except TooLong:
            if not status:
                await self._reply(scope, send_checked, "bad", 413)
        except Exception as error:
            # The message could hold an answer: the log has the kind and the place alone.
            place = traceback.extract_tb(error.__traceback__)[-1]
            LOG.error(
                "%s at %s:%s while handling %s", type(error).__name__, place.filename, place.lineno, _route(scope)
            )
            if not status:
                await self._reply(scope, send_checked, "error", 500)
        LOG.info("%s %s %s %.0f ms", scope["method"], _route(scope), status, 1e3 * (time.perf_counter() - begun))

    def _refused(self, scope: Scope) -> tuple[str, int] | None:
        """Return the error page of a request that is refused unseen."""
        headers, method = Headers(scope=scope), scope["method"]
        host = headers.get("host", "")
        if method not in _METHODS:
            return "bad", 405
        if name_of(host) not in self._hosts:
            return "bad", 400
        if method == "POST" and not same_origin(headers, self._origin_of(host)):
            return "bad", 403
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > self._limits.body:
            return "bad", 413
        parts = scope["path"].split("/")
        if method == "POST" and parts[1] == "join" and not self._joins.take(_address(scope)):
            return "busy", 429
        if parts[1] in ("p", "owner", "join") and not self._links.take("/".join(parts[:3]) + _address(scope)):
            return "busy", 429
        return None

    def _origin_of(self, host: str) -> str:
        """Return the origin of our pages, as a browser that speaks to this host names it."""
        if self._origin is not None and name_of(host) == name_of(self._origin.partition("//")[2]):
            return self._origin
        return f"http://{host}"

    def _limited(self, receive: Receive) -> Receive:
        """Count the bytes of a body whose length was not announced, or was announced wrongly."""
        taken = 0

        async def receive_limited() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > self._limits.body:
                raise TooLong
            return message

        return receive_limited

    async def _reply(self, scope: Scope, send: Send, kind: str, status: int) -> None:
        body = self._page(scope, kind)
        headers = [(b"content-type", b"text/html; charset=utf-8"), (b"content-length", str(len(body)).encode())]
        if status == 429:
            headers.append((b"retry-after", b"5"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


def same_origin(headers: Headers, own: str) -> bool:
    """Whether a request was sent by a page of ours: browsers say where it comes from.

    Examples
    --------
    >>> same_origin(Headers({"origin": "http://127.0.0.1:8000"}), "http://127.0.0.1:8000")
    True
    >>> same_origin(Headers({"origin": "http://elsewhere.example"}), "http://127.0.0.1:8000")
    False
    """
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site != "same-origin":
        return False
    return site is not None if origin is None else origin.lower() == own.lower()


def name_of(host: str) -> str:
    """Return a host without its port, as texts that can be compared.

    Examples
    --------
    >>> name_of("Study.example.org:8000"), name_of("[0:0::1]:8000")
    ('study.example.org', '[::1]')
    """
    name, bracket, _ = host.lower().partition("]")
    if not bracket:
        return name.partition(":")[0]
    try:
        return f"[{ip_address(name[1:]).compressed}]"
    except ValueError:
        return name + bracket


def _origin(url: str) -> str:
    """Return the origin of an address, without the port that browsers leave out."""
    parts = urlsplit(url.lower())
    usual = {"http": ":80", "https": ":443"}[parts.scheme]
    return f"{parts.scheme}://{parts.netloc.removesuffix(usual)}"


def _address(scope: Scope) -> str:
    """Return who asks: an address, and of IPv6 the part that belongs to one customer, who has 2^64 of them."""
    text = scope["client"][0] if scope.get("client") else ""
    if ":" not in text:
        return text
    try:
        address = IPv6Address(text.partition("%")[0])
    except ValueError:
        return text
    # A port that is open for both kinds names an address of IPv4 in this way.
    return str(address.ipv4_mapped or IPv6Network((address, 64), strict=False))


def _route(scope: Scope) -> Any:
    """Return the pattern of the path: the path itself holds a secret."""
    return getattr(scope.get("route"), "path", "another path")

"""What the tests of the page share: a small study, and a stub in place of fits."""

import asyncio
import re
from collections.abc import Callable, Iterator
from html import unescape

import httpx
import pandas as pd
import pytest

from choicegp.apps.server.app import create_app
from choicegp.apps.server.cards import Cards
from choicegp.apps.server.results import Driver, Learned, LearnedPeople, Segment, Share
from choicegp.apps.server.study_file import read_study
from choicegp.elicitation.store import Store

INVITE = "invite-invite-invite-invite"
URL = "http://127.0.0.1:8000"


class Client:
    """A browser without JavaScript in this process: it keeps cookies and follows no redirect by itself."""

    _runner = asyncio.Runner()

    def __init__(self, app, headers):
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        self._client = httpx.AsyncClient(transport=transport, base_url=URL, headers=headers)
        self.cookies = self._client.cookies

    def request(self, method, path, **options) -> httpx.Response:
        return self._runner.run(self._client.request(method, path, **options))

    def get(self, path, **options) -> httpx.Response:
        return self.request("GET", path, **options)

    def post(self, path, **options) -> httpx.Response:
        return self.request("POST", path, **options)


PICTURE = b'<svg xmlns="http://www.w3.org/2000/svg"/>'


class Stub:
    """Stands for the model: explains everything at once and has no sets ready, unless told otherwise."""

    def __init__(self, store):
        self._store = store
        self.learned, self.ready, self.knows = [], [], True

    def next_set(self, person, asked):
        return self.ready.pop(0) if self.ready else None

    def learn(self, person, version):
        self.learned.append((person, version))

    def explained(self, person, version):
        return self._learned(person)

    def everyone(self):
        return self._learned(None)

    def _learned(self, who):
        if not self.knows:
            return None
        drivers = ((Driver("price_eur", "falls", 500, 2.0),), (Driver("colour", "categorical", "red", 1.0),))
        pictures = {"matters": PICTURE, "effects": PICTURE, "objects": PICTURE}
        n = len(self._store.answers(who))
        return Learned(n, drivers, ("price_eur", "colour"), (("o1", 0.9), ("o2", 0.8)), pictures, b"model")

    def people(self):
        if not self.knows:
            return None
        shares = (Share("o1", 0.7, 0.4, 0.9, 0.6), Share("none", 0.1, 0.0, 0.3, 0.1))
        segments = (Segment(1, 0.6, "they keep what is cheap", ("participant-1",)), Segment(2, 0.4, "others", ("Zoë",)))
        pictures = {"shares": PICTURE, "segments": PICTURE}
        n = len(self._store.answers())
        return LearnedPeople(n, 2, 2, "the best score", shares, segments, "0.90: sure", pictures, b"people")


def laptops_like() -> pd.DataFrame:
    return pd.DataFrame(
        {"price_eur": [500 + 10 * i for i in range(12)], "colour": ["red", "blue"] * 6, "weight_kg": [1.25] * 12},
        index=pd.Index([f"o{i}" for i in range(12)], name="object"),
    )


@pytest.fixture
def objects() -> pd.DataFrame:
    return laptops_like()


class Site:
    """A page in this process, with its study, its stub and its store."""

    def __init__(self, objects, tmp_path, limits=None, images=None, **study):
        self.study = study.pop("made", None) or read_study(**study)
        self.store = Store.open(tmp_path / "study.sqlite", objects, {"invite": INVITE})
        self.stub = Stub(self.store)
        self.app = create_app(self.study, self.store, Cards(objects, self.study, images), self.stub, limits=limits)

    def client(self, **headers) -> Client:
        return Client(self.app, {"Origin": URL, "Sec-Fetch-Site": "same-origin", "Accept-Language": "en", **headers})

    def join(self, client=None, **data) -> "Person":
        client = client or self.client()
        reply = client.post(f"/join/{INVITE}", data={"language": "en", **data})
        assert reply.status_code == 303, reply.text
        return Person(client, reply.headers["location"])


class Person:
    """A participant, who clicks what a browser without JavaScript would send."""

    def __init__(self, client: Client, path: str):
        self.client, self.path = client, path

    def see(self) -> str:
        reply = self.client.get(self.path)
        assert reply.status_code == 200
        return reply.text

    def field(self, name: str, text: str | None = None) -> str:
        return unescape(re.search(rf'name="{name}" value="([^"]*)"', text or self.see())[1])

    def send(self, action="keep", chosen=(0,), key=None):
        data = {"key": key or self.field("key"), "action": action, "chosen": [str(one) for one in chosen]}
        return self.client.post(f"{self.path}/answer", data=data)

    def undo(self):
        text = self.see()
        key = re.search(r'/undo"><input type="hidden" name="key" value="([^"]*)"', text)[1]
        return self.client.post(f"{self.path}/undo", data={"key": key})


@pytest.fixture
def site(objects, tmp_path) -> Iterator[Site]:
    made = Site(objects, tmp_path, sets=4)
    yield made
    made.store.close()


@pytest.fixture
def sites(objects, tmp_path) -> Iterator[Callable[..., Site]]:
    made = []

    def make(**options) -> Site:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(Site(options.pop("objects", objects), folder, **options))
        return made[-1]

    yield make
    for one in made:
        one.store.close()

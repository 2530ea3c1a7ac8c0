"""What the tests of studies share: a small catalogue, and databases of both kinds."""

import itertools
from collections.abc import Iterator

import pandas as pd
import pytest

from choicegp import Store

from .servers import binaries, new_database, postgres

_NUMBER = itertools.count()


@pytest.fixture
def pens() -> pd.DataFrame:
    columns = {"price": [3, 5, 4, 9], "colour": ["red", None, "blue", "red"], "width": [0.1, float("nan"), 0.3, 1e-17]}
    return pd.DataFrame(columns, index=pd.Index(["pen", "ink", "cap", "nib"], name="thing"))


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """Run a PostgreSQL server and yield its URL."""
    if binaries() is None:
        pytest.skip("needs PostgreSQL's initdb and postgres: install the package postgresql")
    with postgres() as url:
        yield url


@pytest.fixture
def postgres_url(server) -> str:
    return new_database(server, f"study{next(_NUMBER)}")


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, tmp_path) -> str:
    """Return an empty database of each kind."""
    return str(tmp_path / "study.db") if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
def store(place, pens) -> Iterator[Store]:
    """Return a study of four pens with one participant, Anna."""
    with Store.open(place, pens) as opened:
        opened.join("Anna")
        yield opened

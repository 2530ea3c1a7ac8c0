"""What these tests share: models that need no fit, a small catalogue, and databases of both kinds."""

from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd
import pytest

from choicegp import ChoiceData, ChoiceGP, Store
from choicegp.fitting.record import FitResult, Fitted
from choicegp.inference.posterior import Posterior
from choicegp.kernels import RBF
from choicegp.model.error_models import KEPT_BY
from choicegp.model.prior import Objects, UtilityPrior


def table_of(n: int) -> pd.DataFrame:
    X = np.random.default_rng(n).normal(size=(n, 2))
    return pd.DataFrame(X, columns=["price", "weight"], index=[f"o{i}" for i in range(n)])


def knowing_nothing(d: int = 2, errors: str = "discernibility", variance: float = 4.0) -> ChoiceGP:
    """Return a model whose posterior is its prior, as after no answers at all."""
    table = table_of(2)
    data = ChoiceData.from_sets(table.reset_index(drop=True), [[0, 1]], [[0]])
    prior = UtilityPrior.create(RBF(1.0, variance), 2, d)
    if KEPT_BY[errors].has_threshold:
        prior = UtilityPrior(prior.kernels, None, False, np.full(d, np.log(variance)))
    objects = Objects(data.X, np.arange(2))
    posterior = Posterior(prior, objects, np.zeros((d, 2)), np.zeros((d, 2)), np.zeros((d, 2, 2)))
    result = FitResult("converged", "nothing to learn", 0, 0.0, np.zeros(0))
    codes: dict[object, int] = {}
    fitted = Fitted(posterior, 0.0, result, np.zeros(2), np.ones(2), codes, KEPT_BY[errors], data)
    return ChoiceGP(d)._keep(fitted)


@pytest.fixture(scope="package")
def ignorant() -> Callable[..., ChoiceGP]:
    return knowing_nothing


@pytest.fixture(scope="package")
def catalogue() -> Callable[[int], pd.DataFrame]:
    return table_of


@pytest.fixture
def pens() -> pd.DataFrame:
    columns = {"price": [3, 5, 4, 9], "colour": ["red", None, "blue", "red"], "width": [0.1, float("nan"), 0.3, 1e-17]}
    return pd.DataFrame(columns, index=pd.Index(["pen", "ink", "cap", "nib"], name="thing"))


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

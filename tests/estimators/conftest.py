"""What the tests of the estimators share: small data, and models that are fitted once."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import numpy as np
import pandas as pd
import pytest

from choicegp import ChoiceData, ChoiceGP, datasets
from choicegp.kernels import RBF, Additive
from choicegp.storage.checkpoints import Checkpoint

N_OBJECTS = 16


@pytest.fixture(scope="package")
def quick() -> Callable[..., ChoiceGP]:
    """Return a maker of models that take few steps."""

    def make(**options: object) -> ChoiceGP:
        return ChoiceGP(
            **{
                "intervals": "none",
                "object_effects": False,
                "n_restarts": 1,
                "max_iter": 30,
                "progress": False,
                **options,
            }
        )  # type: ignore[arg-type]

    return make


def equal(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    return len(one) == len(other) and all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def all_shown(rng: np.random.Generator, n_sets: int) -> list[np.ndarray]:
    """Draw sets of three until every object is in one, so that programs of one shape serve many tests."""
    while True:
        shown = [rng.choice(N_OBJECTS, 3, replace=False) for _ in range(n_sets)]
        if len(np.unique(np.concatenate(shown))) == N_OBJECTS:
            return shown


@pytest.fixture(scope="package")
def data() -> ChoiceData:
    """Return 24 sets of three of 16 objects, two features, two utilities; either half shows all objects."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_OBJECTS, 2))
    U = np.column_stack([X[:, 0], X[:, 1] - X[:, 0] ** 2])
    return ChoiceData.from_utilities(X, U, [*all_shown(rng, 12), *all_shown(rng, 12)])


@pytest.fixture(scope="package")
def half(data: ChoiceData) -> ChoiceData:
    return data.take(range(12))


@pytest.fixture(scope="package")
def model(data: ChoiceData, quick: Callable[..., ChoiceGP]) -> ChoiceGP:
    """Return a model of ``data``; no test may change it."""
    return quick().fit(data)


@pytest.fixture(scope="package")
def alice() -> tuple[ChoiceData, ChoiceData]:
    """Return training and test sets of Alice's choices among laptops, which have a column of words."""
    return datasets.alice_choices(n_objects=40, n_sets=120, set_size=3).data.split(40, random_state=0)


@pytest.fixture(scope="package")
def alice_model(alice: tuple[ChoiceData, ChoiceData], quick: Callable[..., ChoiceGP]) -> ChoiceGP:
    return quick(max_iter=60).fit(alice[0])


@pytest.fixture(scope="package")
def composed(half: ChoiceData, quick: Callable[..., ChoiceGP]) -> ChoiceGP:
    return quick(kernel=RBF() + Additive(lengthscale=0.3)).fit(half)


@pytest.fixture(scope="package")
def lapsing(half: ChoiceData, quick: Callable[..., ChoiceGP]) -> ChoiceGP:
    return quick(lapse=0.1).fit(half)


@pytest.fixture(scope="package")
def twin_table() -> pd.DataFrame:
    """Return eight pairs of objects that have equal features."""
    ids = [f"{kind}{i}" for i in range(8) for kind in ("good", "bad")]
    return pd.DataFrame({"x": np.repeat(np.linspace(0.0, 1.0, 8), 2)}, index=ids)


@pytest.fixture(scope="package")
def twins(twin_table: pd.DataFrame, quick: Callable[..., ChoiceGP]) -> ChoiceGP:
    """Return a model with object effects that has seen every good twin win."""
    pairs = [[2 * i, 2 * j + 1] for i in range(8) for j in range(8) if (i - j) % 8 < 3]
    data = ChoiceData.from_pairs(twin_table, pairs)
    return quick(n_utilities=1, object_effects=True, max_iter=60).fit(data)


@pytest.fixture(scope="package")
def easy() -> tuple[ChoiceData, ChoiceData]:
    """Return training and test sets, of two to four objects, whose features are their utilities."""
    rng = np.random.default_rng(0)
    X = 5.0 + 3.0 * rng.normal(size=(60, 2))
    shown = datasets.random_sets(60, 240, (2, 4), random_state=1)
    return ChoiceData.from_utilities(X, X, shown).split(60, random_state=0)


class Killed(Exception):
    """Stands for a process that is no more."""


@pytest.fixture
def killed_after() -> Callable[[int], AbstractContextManager[None]]:
    """Return a context in which a fit is killed when it has kept something so often; all of it was written."""
    keep = Checkpoint.keep

    @contextmanager
    def killed(count: int) -> Iterator[None]:
        n_kept = 0

        def keep_or_die(self: Checkpoint, *args: object, **options: bool) -> None:
            nonlocal n_kept
            keep(self, *args, **options)  # type: ignore[arg-type]
            n_kept += 1
            if n_kept == count:
                self.write()
            if n_kept >= count:
                raise Killed

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Checkpoint, "keep", keep_or_die)
            with pytest.raises(Killed):
                yield

    return killed

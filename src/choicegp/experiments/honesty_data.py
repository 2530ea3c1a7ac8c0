"""Data for the test of honesty: simulated persons whose utilities are known, and splits of published tables."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr

from choicegp import ChoiceData, datasets
from choicegp.experiments.experiment import RunSettings

MEDIAN_VARIANCE, VARIANCE_SPREAD, LENGTHSCALE_SPREAD = 4.0, 0.5, 0.5  # spreads are standard deviations of logs
N_NEW, N_TEST = 30, 40  # new objects, and held-out sets of either kind
TABLE_OBJECTS, TABLE_TEST, TRAINING_SHARE = 50, 100, 2 / 3
FLOOR = 1e-10  # of the likelihood: see `choicegp.datasets.noisy_choices`
MOST_BY_DATASETS = 10  # objects in the sets that `noisy_choices` answers
N_RANKED, N_LEMON_TRAIN, N_LEMON_TEST = 40, 80, 60  # of the test of the jump
LEMON_PLACE, LEMON_GAP = 5.0, 8.0  # where the dominated object is, and how far below all others, in errors

TABLES: dict[str, Callable[[str | None, int], datasets.ObjectTable]] = {
    "am": lambda folder, seed: datasets.load_am(folder),
    "edm": lambda folder, seed: datasets.load_edm(folder),
    "jura": lambda folder, seed: datasets.load_jura(folder),
    "slump": lambda folder, seed: datasets.load_slump(folder),
    "vehicle": lambda folder, seed: datasets.vehicle(TABLE_OBJECTS + N_NEW, random_state=seed),
}
WITHOUT_FILES = ("vehicle",)  # simulated by a formula


class SplitAnswers(NamedTuple):
    """Training sets, and held-out sets of the training objects and of new objects."""

    train: ChoiceData
    known: ChoiceData
    new: ChoiceData
    U: np.ndarray  # true utilities or measured outputs of all rows of X


def simulated(settings: RunSettings) -> SplitAnswers:
    """Draw utilities from Gaussian processes, show sets, and answer them."""
    rng = generator(settings)
    n, a, is_noisy = settings["objects"], settings["a"], settings["answers"] == "noisy"
    X = rng.standard_normal((n + N_NEW, settings["features"]))
    U = drawn_utilities(rng, X, settings["d"], settings["related"])
    shown = _sets(rng, (range(n), settings["sets"]), (range(n), N_TEST), (range(n, n + N_NEW), N_TEST), size=a)
    seed = int(rng.integers(2**31))
    answers = noisy_answers(X, U, shown, seed) if is_noisy else ChoiceData.from_utilities(X, U, shown)
    return _in_parts(answers, settings["sets"], N_TEST, U)


def drawn_utilities(rng: np.random.Generator, X: np.ndarray, d: int, related: float) -> np.ndarray:
    """Draw d utilities, of which a share ``related`` of the variance is common to all."""
    variance = MEDIAN_VARIANCE * np.exp(VARIANCE_SPREAD * rng.standard_normal())

    def process() -> np.ndarray:
        spread = LENGTHSCALE_SPREAD * rng.standard_normal(X.shape[1])
        Z = X / (np.sqrt(X.shape[1] / 2) * np.exp(spread))
        gram = np.exp(-0.5 * np.sum((Z[:, None] - Z[None]) ** 2, axis=2))
        return np.linalg.cholesky(gram + 1e-9 * np.eye(len(X))) @ rng.standard_normal(len(X))

    common = process()
    return np.sqrt(variance) * np.column_stack(
        [np.sqrt(related) * common + np.sqrt(1 - related) * process() for _ in range(d)]
    )


def noisy_answers(X: np.ndarray, U: np.ndarray, shown: Sequence[np.ndarray], seed: int) -> ChoiceData:
    """Draw answers from the normalised likelihood; all sets have one size, which may be above ten."""
    if len(shown[0]) <= MOST_BY_DATASETS:
        return datasets.noisy_choices(X, U, shown, seed)
    level = np.random.default_rng(seed).random(len(shown))
    chosen = []
    for rows, position in zip(shown, level, strict=True):
        table = np.cumsum(subset_weights(U[rows]))
        code = np.searchsorted(table, position * table[-1], side="right")
        chosen.append(rows[(code >> np.arange(len(rows))) & 1 == 1])
    return ChoiceData.from_sets(X, shown, chosen)


def subset_weights(u: np.ndarray) -> np.ndarray:
    """Return the likelihood of every subset of one set (a, d), up to a factor, in O(a 2^a).

    Bit i of the position is set where object i is chosen. A sum over the members of a subset is built by doubling: all
    subsets of the earlier objects come first, and then the same ones with object i.

    Examples
    --------
    >>> weights = subset_weights(np.array([[0.0, 1.0], [1.0, 0.0]]))  # each is better in one utility
    >>> (weights / weights.sum()).round(2).tolist()
    [0.0, 0.13, 0.13, 0.73]
    """
    a = len(u)
    dominates = np.exp(log_ndtr(u[:, None] - u[None]).sum(axis=2))  # (o, v)
    incomparable = np.log(np.maximum(1 - dominates - dominates.T, 0) + FLOOR)
    stands = np.log1p(-np.minimum(dominates, 1 - 1e-15))
    members = (np.arange(2**a) >> np.arange(a)[:, None]) & 1 == 1
    total = np.zeros(2**a)
    for v in range(a):
        # A pair of chosen objects counts once, with the later of the two.
        agree = _sums_over_members(np.where(np.arange(a) < v, incomparable[v], 0.0))
        beaten = np.log(-np.expm1(_sums_over_members(np.where(np.arange(a) == v, 0.0, stands[:, v]))) + FLOOR)
        total += np.where(members[v], agree, beaten)
    total[0] = -np.inf
    return np.exp(total - total.max())


def _sums_over_members(values: np.ndarray) -> np.ndarray:
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums, sums + value])
    return sums


class Lemon(NamedTuple):
    """Training sets, whose last object all others surpass, and sets of ten of the others."""

    train: ChoiceData
    sets: list[np.ndarray]


def with_a_lemon(settings: RunSettings) -> Lemon:
    """Simulate objects of which the last is far below all others, in every second training set."""
    rng = generator(settings)
    lemon = N_RANKED
    X = np.vstack([rng.standard_normal((N_RANKED, 2)), [LEMON_PLACE, LEMON_PLACE]])
    U = drawn_utilities(rng, X, settings["d"], 0.0)
    U[lemon] = U[:lemon].min(axis=0) - LEMON_GAP
    shown = _sets(rng, (range(N_RANKED), N_LEMON_TRAIN), size=5)
    shown = [np.append(rows[1:], lemon) if k % 2 else rows for k, rows in enumerate(shown)]
    train = noisy_answers(X, U, shown, int(rng.integers(2**31)))
    return Lemon(train, _sets(rng, (range(N_RANKED), N_LEMON_TEST), size=10))


def table_split(settings: RunSettings, folder: str | None) -> SplitAnswers:
    """Draw training and new objects of a published table, and choose what no other object dominates."""
    rng = generator(settings)
    table = TABLES[settings["table"]](folder, settings["seed"])
    order = rng.permutation(len(table))
    n = min(settings["objects"], round(TRAINING_SHARE * len(table)))
    old, new = order[:n], order[n : n + N_NEW]
    shown = _sets(rng, (old, settings["sets"]), (old, settings["test"]), (new, settings["test"]), size=settings["a"])
    return _in_parts(table.choices(shown), settings["sets"], settings["test"], table.U)


def generator(settings: RunSettings) -> np.random.Generator:
    """Return random numbers that depend on the seed and on what is simulated."""
    names = ("d", "a", "features", "objects", "sets")
    numbers = [settings["seed"], *(settings.get(name, 0) for name in names), settings.get("answers") == "noisy"]
    return np.random.default_rng([int(number) for number in numbers])


def _sets(rng: np.random.Generator, *parts: tuple[Sequence[int] | np.ndarray, int], size: int) -> list[np.ndarray]:
    """Draw sets of one size, part by part: from which objects, and how many sets."""
    return [rng.choice(np.asarray(rows), size, replace=False) for rows, n in parts for _ in range(n)]


def _in_parts(answers: ChoiceData, n_train: int, n_test: int, U: np.ndarray) -> SplitAnswers:
    train, known = range(n_train), range(n_train, n_train + n_test)
    return SplitAnswers(answers.take(train), answers.take(known), answers.take(range(known.stop, len(answers))), U)

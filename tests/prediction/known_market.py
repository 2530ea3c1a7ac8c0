"""A model whose utilities are known: the numbers of a market are compared with what they must be."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
from scipy.special import ndtr

from choicegp import ChoiceData, ChoiceGP
from choicegp.fitting.record import FitResult, Fitted
from choicegp.model.error_models import DISCERNIBILITY
from choicegp.model.prior import THRESHOLD
from choicegp.prediction import shares

PRODUCTS = pd.DataFrame(
    {"price": [500.0, 700.0, 900.0, 1200.0], "speed": [1.0, 2.0, 2.5, 4.0], "colour": ["red", "blue", "red", "blue"]},
    index=["A", "B", "C", "D"],
)


def known_model(
    monkeypatch, utilities, *, errors=DISCERNIBILITY, n_people=None, lapse=None, products=PRODUCTS, shown=None
):
    """Return a model with given utilities; those are draws (S, R, n, d) of a table of features, the threshold last.

    With a number of people it is a model of many, who are numbered.
    """
    shown = shown or [list(products.index)]
    data = ChoiceData.from_sets(products, shown, shown, by="id")
    posterior = SimpleNamespace(
        lapse=lapse, prior=SimpleNamespace(log_effect_variance=None), n_utilities=2, objects=SimpleNamespace(X=data.X)
    )
    study = None
    if n_people is not None:
        ids = tuple(f"r{i}" for i in range(n_people))
        study = SimpleNamespace(ids=ids, numbers=lambda people: np.array([(*ids, "").index(p) for p in people]))
    result = FitResult("converged", "", 1, 0.0, np.zeros(1))
    codes = {i: k for k, i in enumerate(products.index)}
    centre, scale = data.X.mean(axis=0), data.X.std(axis=0)
    fitted = Fitted(posterior, 0.0, result, centre, scale, codes, errors, data, study)

    def drawn(fitted, objects, n_draws, random_state, people=None):
        table = fitted.encoding.decode(np.round(objects.X * fitted.scale + fitted.centre, 9))
        u = utilities(table, np.random.default_rng(random_state), n_draws)
        u = np.where((objects.codes == THRESHOLD)[:, None], 0.0, u)
        return u if people is None else u[:, people]

    monkeypatch.setattr(shares, "utilities_of_people", drawn)
    return ChoiceGP()._keep(fitted)


def two_goals(table, rng, n_draws, n_people=1):
    """Everybody prefers cheap and fast objects, and people differ in how much they care."""
    care = 1.0 + 0.3 * rng.normal(size=(n_draws, n_people, 1, 2))
    goals = np.column_stack([(800.0 - table["price"]) / 200.0, table["speed"] - 2.0])
    return care * goals


def answers_by_definition(u):
    """Yield every answer of a person with utilities (n, d), as a list of objects, with its probability."""
    n, beats = len(u), np.prod(ndtr(u[:, None] - u[None, :]), axis=2)

    def likelihood(kept):
        agree = np.prod([1 - beats[o, v] - beats[v, o] for o in kept for v in kept if o < v])
        rejected = [v for v in range(n) if v not in kept]
        return agree * np.prod([1 - np.prod([1 - beats[o, v] for o in kept]) for v in rejected])

    answers = [[o for o in range(n) if code >> o & 1] for code in range(1, 2**n)]
    values = np.array([likelihood(kept) for kept in answers])
    return list(zip(answers, values / values.sum(), strict=True))


def keep_by_definition(u):
    """Return the share who keep each object, of people with utilities (R, n, d)."""
    kept = np.zeros(u.shape[1])
    for own in u:
        for answer, p in answers_by_definition(own):
            kept[answer] += p / len(u)
    return kept

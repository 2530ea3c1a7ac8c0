"""The next set to show where several models are possible, such as models of one, two or three utilities."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from choicegp.checks import number_array
from choicegp.compute.devices import computing
from choicegp.elicitation.design import drawn_at, reason_for, searched
from choicegp.elicitation.information import answer_tables, expected_answers
from choicegp.elicitation.pool import pool_of
from choicegp.elicitation.request import LEAST_LAPSE, Proposed, checked
from choicegp.errors import ChoiceGPError
from choicegp.estimators.choice_gp import ChoiceGP

_N_DRAWS = 512
_N_REVALUED = 16


def next_set_between(
    models: Mapping[Any, ChoiceGP] | Sequence[ChoiceGP], objects: pd.DataFrame, size: int = 4, *,
    weights: Sequence[float] | None = None, avoid: Collection[frozenset[Any]] = (), seconds: float = 0.5,
    lapse: float = LEAST_LAPSE, random_state: int | None = None,
) -> Proposed:  # fmt: skip
    """Propose the set whose answer says most about which of several models is right.

    With models of different numbers of utilities, it asks how many there are.  The value of a set is
    H(sum_d w_d p_d) - sum_d w_d H(p_d), with the answers p_d that model d predicts and its weight w_d.

    Parameters
    ----------
    models : mapping or sequence of ChoiceGP
        Fitted to the same answers, such as ``select_n_utilities(data).models``.
    objects, size, avoid, seconds, lapse, random_state
        As in `next_set`.
    weights : sequence of float, optional
        How probable the models are; by default in proportion to exp(elpd) by leave-one-out.

    Returns
    -------
    Proposed

    Examples
    --------
    How many utilities has she?::

        models = select_n_utilities(session.data, max_utilities=3).models
        question = next_set_between(models, objects, size=4, random_state=0)
    """
    given = list(models.values()) if isinstance(models, Mapping) else list(models)
    if len(given) < 2:
        raise ChoiceGPError(f"two models or more are needed to decide between them; got {len(given)}")
    request, *_ = (
        checked(model, objects, size, "n_utilities", avoid=avoid, respondent=None, targets=None, seconds=seconds,
                lapse=lapse, random_state=random_state)
        for model in given
    )  # fmt: skip
    if any(model.errors_.has_threshold != given[0].errors_.has_threshold for model in given):
        raise ChoiceGPError("the models must all have a threshold, or none may have one")
    share = shares(given, weights)
    with computing(given[0].device):
        fits = [model.fitted_ for model in given]
        pool = pool_of(fits[0], request.catalogue, request.rng)
        own = [fitted.objects(request.catalogue.iloc[pool.rows]) for fitted in fits]
        drawn = [drawn_at(fitted, part, request, _N_DRAWS) for fitted, part in zip(fits, own, strict=True)]

        def value(sets: np.ndarray) -> np.ndarray:
            return _divergence(share, [np.asarray(answer_tables(one, sets).mean(axis=2)) for one in drawn])

        tried = searched(request, pool, value)
        if len(tried.sets) == 0:
            return request.proposed(request.unshown(), np.nan, reason_for("", np.nan, False))
        some = tried.sets[:_N_REVALUED]
        values = _divergence(share, [
            expected_answers(fitted, part, some, request.lapse).probability
            for fitted, part in zip(fits, own, strict=True)
        ])  # fmt: skip
    best, most = some[np.argmax(values)], float(values.max())
    reason = reason_for("the answer is expected to say {} about which model is right", most, tried.complete)
    return request.proposed(pool.rows[best], most, reason)


def shares(models: Sequence[ChoiceGP], weights: Sequence[float] | None) -> np.ndarray:
    """Return how probable the models are, from weights or by leave-one-out."""
    if weights is None:
        elpd = np.array([model.loo().elpd for model in models])
        share = np.exp(elpd - elpd.max())
    else:
        share = number_array("weights", weights)
        if share.shape != (len(models),) or not (share >= 0).all() or not share.sum() > 0:
            raise ChoiceGPError(f"weights must be one number of at least 0 for each of the {len(models)} models")
    return share / share.sum()


def _divergence(share: np.ndarray, answers: Sequence[np.ndarray]) -> np.ndarray:
    """Return how much the models' answers (answers, m) differ, (m,): H(sum_d w_d p_d) - sum_d w_d H(p_d)."""
    stacked = np.stack(answers)
    logs = np.log(np.maximum(stacked, 1e-30))
    mixed = np.tensordot(share, stacked, 1)
    return np.tensordot(share, np.sum(stacked * logs, axis=1), 1) - np.sum(mixed * np.log(mixed), axis=0)

"""A user's likelihood: what follows from `log_prob` by automatic differentiation agrees with closed forms."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import log_ndtr

from choicegp import ChoiceData, ChoiceGP, ChoiceGPError, datasets
from choicegp.likelihoods import Likelihood
from choicegp.model.error_models import DISCERNIBILITY
from choicegp.model.likelihood import FLOOR


class PlainPareto(Likelihood):
    """eq:likelihoodexpanse0 as it is written, for one set."""

    def log_prob(self, u, present, chosen):
        s = jnp.sum(log_ndtr(u[:, :, None] - u[:, None, :]), axis=0)  # s(o, v)
        a, total = u.shape[1], 0.0
        for o, v in itertools.combinations(range(a), 2):
            pair = jnp.log(1 - jnp.exp(s[o, v]) - jnp.exp(s[v, o]) + FLOOR)
            total += jnp.where(chosen[o] & chosen[v], pair, 0.0)
        for v in range(a):
            stays = jnp.prod(jnp.where(chosen, 1 - jnp.exp(s[:, v]), 1.0))
            total += jnp.where(present[v] & ~chosen[v], jnp.log(1 - stays + FLOOR), 0.0)
        return total


@pytest.fixture(scope="module")
def sets():
    u = np.random.default_rng(0).standard_normal((2, 3, 3, 5))
    present = np.array([[1, 1, 1], [1, 1, 1], [1, 1, 0]], bool).T
    chosen = np.array([[1, 1, 0], [1, 0, 0], [1, 0, 0]], bool).T
    return u, present, chosen


def test_derivatives_agree_with_the_closed_forms(sets):
    own, closed = (jax.jit(one.expected_derivatives)(*sets, 0.2) for one in (PlainPareto(), DISCERNIBILITY))
    for mine, theirs in zip(own, closed, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-7)


def test_values_and_answers_agree(sets):
    u, present, chosen = sets
    own, built_in = (jax.jit(one.sampled)(u, present, chosen) for one in (PlainPareto(), DISCERNIBILITY))
    np.testing.assert_allclose(own, built_in, atol=1e-8)
    own, built_in = (jax.jit(one.answers)(u) for one in (PlainPareto(), DISCERNIBILITY))
    np.testing.assert_allclose(own, built_in, atol=1e-8)


@pytest.fixture(scope="module")
def fitted():
    data = datasets.sincos(n_objects=24, n_sets=24).data
    options = {"intervals": "none", "object_effects": False, "n_restarts": 1, "max_iter": 60}
    return data, [ChoiceGP(2, rule=rule, **options).fit(data) for rule in (PlainPareto(), "pareto")]


def test_a_fit_with_the_same_likelihood_is_the_same_fit(fitted):
    data, (own, built_in) = fitted
    assert own.elbo_ == pytest.approx(built_in.elbo_, abs=0.05)
    for mine, theirs in zip(own.predict_proba(data), built_in.predict_proba(data), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=0.01)


def test_a_model_with_it_is_not_saved_and_says_why(fitted, tmp_path):
    with pytest.raises(ChoiceGPError, match="PlainPareto cannot be saved"):
        fitted[1][0].save(tmp_path / "model.cgp")
    assert list(tmp_path.iterdir()) == []


class AboveZero(Likelihood):
    """What no choice tells: how large a utility is."""

    def log_prob(self, u, present, chosen):
        return jnp.sum(jnp.where(present, log_ndtr(jnp.where(chosen, u[0], -u[0])), 0.0))


def test_only_differences_are_known():
    data = ChoiceData.from_sets([[0.0], [1.0]], [[0, 1]], [[0]])
    with pytest.raises(ChoiceGPError, match="AboveZero changes when 1 is added"):
        ChoiceGP(1, rule=AboveZero(), intervals="none").fit(data)


def test_choices_are_not_simulated_by_it(fitted):
    with pytest.raises(ChoiceGPError, match="PlainPareto"):
        fitted[1][0].check()


def test_what_it_cannot_answer_is_refused(fitted):
    data, (own, _) = fitted
    with pytest.raises(ChoiceGPError, match="12 objects; with a likelihood of one's own"):
        own.predict(ChoiceData.from_sets(data.encoding.decode(data.X), [list(range(12))]))
    best = ChoiceData.from_sets(data.X, [[0, 1]], [[0]], kinds="best")
    with pytest.raises(ChoiceGPError, match="ask for the best object"):
        ChoiceGP(2, rule=PlainPareto(), intervals="none").fit(best)
    empty = ChoiceData.from_sets(data.X, [[0, 1]], [[]], empty="none")
    with pytest.raises(ChoiceGPError, match="PlainPareto has no threshold"):
        ChoiceGP(2, rule=PlainPareto(), intervals="none").fit(empty)
    with pytest.raises(ChoiceGPError, match="or a Likelihood; got"):
        ChoiceGP(2, rule=3).fit(data)

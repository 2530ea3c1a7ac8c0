"""How sure a sparse fit may be, from held-out sets."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from choicegp.compute.progress import Clock
from choicegp.inference.expectation import Marginals, latin_normals
from choicegp.inference.posterior import Posterior
from choicegp.inference.sparse.feed import Sets
from choicegp.inference.sparse.sharpness import (
    N_POINTS,
    Held,
    Sharpness,
    can_be_judged,
    can_be_sharpened,
    learned_sharpness,
    predictive_scores,
    sharpened,
)
from choicegp.model.error_models import DISCERNIBILITY
from choicegp.model.kernels import RBF, Kernel, Linear
from choicegp.model.likelihood import subset_probabilities
from choicegp.model.prior import Objects, UtilityPrior
from choicegp.model.warped import Warped
from choicegp.model.waves import Additive


def held_sets(rng: np.random.Generator, size: float, spread: float, m: int = 400, a: int = 3, d: int = 2) -> Held:
    """Sets whose choices come from a posterior that is larger and wider than what is believed."""
    mean = 2.0 * rng.normal(size=(d, a - 1, m))
    root = np.tril(rng.normal(size=(d, m, a - 1, a - 1))) + np.eye(a - 1)
    root = np.moveaxis(root, 1, 3)
    moved = np.einsum("dijm,djm->dim", root, rng.normal(size=mean.shape))
    u = np.pad(size * mean + size * spread * moved, ((0, 0), (1, 0), (0, 0)))
    table = np.array(subset_probabilities(u))
    table /= table.sum(axis=0)
    subset = np.array([rng.choice(2**a, p=column) for column in table.T])
    chosen = (subset >> np.arange(a)[:, None]) & 1 == 1
    sets = Sets(np.zeros((a, m, 1)), np.ones((a, m), bool), chosen, np.ones(m))
    return Held(Marginals(mean, root), sets, latin_normals(d, a - 1, m, N_POINTS, rng))  # type: ignore[arg-type]


@pytest.mark.parametrize(("size", "spread"), [(2.0, 0.3), (0.6, 1.5)])
def test_the_factors_that_made_the_choices_are_found(size, spread):
    with jax.enable_x64(True):
        held = held_sets(np.random.default_rng(0), size, spread)
        found = learned_sharpness([held], DISCERNIBILITY, None)
        assert np.allclose(np.log(found), np.log([size, spread]), atol=0.3)
        as_is, better = (predictive_scores([held], one, DISCERNIBILITY, None).sum() for one in (Sharpness(), found))
    assert better > as_is + 10.0


def test_without_time_nothing_is_learned():
    with jax.enable_x64(True):
        held = held_sets(np.random.default_rng(0), 1.0, 1.0, m=20)
        assert learned_sharpness([held], DISCERNIBILITY, None, Clock(0.0)) is None


def test_what_fills_up_a_set_changes_nothing():
    with jax.enable_x64(True):
        held = held_sets(np.random.default_rng(1), 1.0, 1.0, m=20)
        (mean, root), sets, normals = held
        more = ((0, 1), (0, 0))
        wide = Held(
            Marginals(np.pad(mean, ((0, 0), *more)), np.pad(root, ((0, 0), (0, 1), (0, 1), (0, 0)))),  # type: ignore[arg-type]
            Sets(np.zeros((4, 20, 1)), np.pad(sets.present, more), np.pad(sets.chosen, more), sets.weight),
            np.pad(normals, ((0, 0), *more, (0, 0)), constant_values=1.0),
        )
        lapse = np.asarray(0.1)
        alone, filled = (predictive_scores([one], Sharpness(1.5, 0.5), DISCERNIBILITY, lapse) for one in (held, wide))
    assert np.allclose(alone, filled, atol=1e-6)


@pytest.mark.parametrize(
    "kernel", [RBF(2.0) + Linear(), Warped(Additive(0.5) * RBF(3.0) + RBF(1.0), ends=np.array([[-1.0], [1.0]]))]
)
def test_any_utilities_are_larger_and_surer_by_the_factors(kernel):
    rng = np.random.default_rng(2)
    with jax.enable_x64(True):
        prior = UtilityPrior.create(kernel, 2, 2)
        points = Objects(rng.uniform(-1.0, 1.0, size=(2, 6, 2)), np.zeros(6, int))
        inverse = np.linalg.inv(np.asarray(prior.covariance(points, points)) + 0.1 * np.eye(6))
        before = Posterior(prior, points, np.zeros((2, 6)), rng.normal(size=(2, 6)), inverse)  # type: ignore[arg-type]
        after = sharpened(before, Sharpness(2.0, 0.4))
        some = Objects(jnp.asarray(rng.uniform(-1.0, 1.0, size=(5, 2))), jnp.zeros(5, int))
        (mean, covariance), (larger, surer) = (one.mean_and_covariance_at(some) for one in (before, after))
    assert np.allclose(larger, 2.0 * mean)
    assert np.allclose(surer, 0.64 * covariance)


class Own(Kernel):
    """A kernel of one's own, whose hyperparameters mean what they will."""

    def gram(self, X1, X2):
        return jnp.ones((len(X1), len(X2)))

    def diagonal(self, X):
        return jnp.ones(len(X))

    def for_features(self, n_features):
        return self


def test_only_what_is_known_is_touched():
    assert can_be_sharpened(RBF() * Own())
    assert not can_be_sharpened(RBF() + Own())
    assert can_be_judged(np.array([2, 10]))
    assert not can_be_judged(np.array([2, 11]))

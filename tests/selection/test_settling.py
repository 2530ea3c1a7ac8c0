"""The fixed point of the sites: what it is, and how soon it is found."""

import jax.numpy as jnp
import numpy as np
import pytest

from choicegp.selection import settling
from choicegp.selection.cavity import CavityFits
from choicegp.selection.settling import _extrapolated, _Past

from .conftest import make_case


def extrapolated_steps(step, first, n_steps, n_remembered):
    """Follow extrapolated steps of a map of vectors; return the residual before each."""
    at, past, sizes = jnp.asarray(first), _Past(*(jnp.zeros((n_remembered, len(first))) for _ in range(2))), []
    for number in range(1, n_steps + 1):
        residual = step(at) - at
        sizes.append(float(jnp.linalg.norm(residual)))
        at, past = _extrapolated(at + residual, residual, past, jnp.asarray(float(number)))
    return sizes


def test_a_linear_map_is_solved_in_as_many_steps_as_it_has_directions():
    """Anderson's extrapolation is then a Krylov method: slow directions cost no more steps than fast ones."""
    rates = np.array([0.99, 0.9, 0.5])
    sizes = extrapolated_steps(lambda x: rates * x + 1.0, np.zeros(3), 6, 5)
    assert sizes[5] < 1e-5 * sizes[0]
    # One earlier step is not enough for three directions.
    assert extrapolated_steps(lambda x: rates * x + 1.0, np.zeros(3), 6, 1)[5] > 0.1 * sizes[0]


def test_steps_that_repeat_themselves_leave_numbers():
    assert np.isfinite(extrapolated_steps(lambda x: x, np.ones(3), 4, 2)).all()
    assert np.isfinite(extrapolated_steps(lambda x: -x, np.ones(3), 9, 3)).all()


@pytest.fixture(scope="module")
def superfluous():
    """Choices by two utilities, and a posterior of three."""
    return make_case(3, 3, 14, 20)


def test_the_sites_are_what_their_own_marginals_ask_for(superfluous):
    fits = CavityFits(superfluous.posterior, superfluous.problem)
    (own,), batch = fits.full.sites, fits.problem.batches[0]
    wanted, gradient = settling._target(batch, fits.normals[0], fits.full, None)
    size = np.linalg.norm(wanted.precision * batch.weight)
    assert np.linalg.norm((wanted.precision - own.precision) * batch.weight) <= 1.01 * settling._SETTLED * size
    # K^-1 m is the sum of the gradients: the mean is the prior covariance times that sum.
    total = np.zeros(fits.full.mean.shape)
    for i, own_gradient in enumerate(np.asarray(gradient * batch.weight)):
        np.add.at(total[i], np.asarray(batch.rows), own_gradient)
    mean = np.einsum("drt,drs,ds->dt", fits.roots, fits.roots, total)
    assert np.linalg.norm(mean - fits.full.mean) < 0.02 * np.linalg.norm(fits.full.mean)


def test_remembered_steps_save_steps(superfluous, monkeypatch):
    """With nothing to extrapolate from, a step is a plain step; both find one fixed point."""
    monkeypatch.setattr("choicegp.selection.cavity.settle", settling.settle._function)
    monkeypatch.setattr(settling, "_SETTLED", 1e-4)
    quick = CavityFits(superfluous.posterior, superfluous.problem).full
    extrapolated = settling._extrapolated
    monkeypatch.setattr(settling, "_extrapolated", lambda place, *rest: (place, extrapolated(place, *rest)[1]))
    slow = CavityFits(superfluous.posterior, superfluous.problem).full
    assert float(quick.n_steps) < 0.5 * float(slow.n_steps) < 0.5 * settling._MOST_STEPS
    sd = np.sqrt(np.diagonal(slow.covariance, axis1=1, axis2=2))
    assert np.max(np.abs(quick.mean - slow.mean) / sd) < 0.05

"""The fixed point of the sites."""

import jax
import numpy as np
import pytest

from choicegp.selection import settling
from choicegp.selection.cavity import CavityFits

from .conftest import make_case


@pytest.fixture(scope="module")
def superfluous():
    """Choices by two utilities, and a posterior of three."""
    return make_case(3, 3, 14, 20)


def test_the_sites_are_what_their_own_marginals_ask_for(superfluous):
    fits = CavityFits(superfluous.posterior, superfluous.problem)
    (own,), batch = fits.full.sites, fits.problem.batches[0]
    wanted, gradient = jax.jit(settling._target)(batch, fits.normals[0], fits.full, None)
    size = np.linalg.norm(wanted.precision * batch.weight)
    assert np.linalg.norm((wanted.precision - own.precision) * batch.weight) <= 1.01 * settling._SETTLED * size
    # K^-1 m is the sum of the gradients: the mean is the prior covariance times that sum.
    total = np.zeros(fits.full.mean.shape)
    for i, own_gradient in enumerate(np.asarray(gradient * batch.weight)):
        np.add.at(total[i], np.asarray(batch.rows), own_gradient)
    mean = np.einsum("drt,drs,ds->dt", fits.roots, fits.roots, total)
    assert np.linalg.norm(mean - fits.full.mean) < 0.02 * np.linalg.norm(fits.full.mean)


def test_at_the_limit_of_steps_the_last_change_is_given(superfluous, monkeypatch):
    """The marginals that are returned belong to the sites that are, wherever the steps end."""
    monkeypatch.setattr("choicegp.selection.cavity.settle", settling.settle._function)
    monkeypatch.setattr(settling, "_MOST_STEPS", 3)
    full = CavityFits(superfluous.posterior, superfluous.problem).full
    assert float(full.n_steps) == 3
    assert settling._SETTLED < float(full.change) < 1.0

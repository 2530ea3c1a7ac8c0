"""A small problem, and what sparse inference makes of it first."""

import numpy as np
import pytest

from choicegp import ChoiceData, datasets
from choicegp.inference.sparse.feed import InMemory
from choicegp.model.kernels import RBF
from choicegp.model.prior import UtilityPrior


@pytest.fixture(scope="module")
def data() -> ChoiceData:
    """Forty sets of three objects."""
    return datasets.sincos(n_objects=24, n_sets=40, set_size=3, random_state=3).data


def source_of(data: ChoiceData, *, threshold: bool = False) -> InMemory:
    """Read sets of scaled objects."""
    return InMemory(data, data.X.mean(axis=0), data.X.std(axis=0), threshold)


def prior_of(*, shared: bool = False, threshold: bool = False) -> UtilityPrior:
    """Two utilities; a shared part differs from theirs."""
    prior = UtilityPrior.create(RBF(0.5, 4.0), 1, 2, shared=shared)
    if shared:
        prior.kernels.log_lengthscale[0] += 0.4
        prior.kernels.log_variance[0] -= 0.3
    return UtilityPrior(prior.kernels, None, shared, np.linspace(0.5, 1.0, prior.n_parts)) if threshold else prior

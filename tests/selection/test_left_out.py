"""Probabilities for sets that are left out: against fits that really leave them out, and in the order of the data."""

import numpy as np
import pytest

from choicegp.errors import ChoiceGPError
from choicegp.fitting.record import FitResult, Fitted
from choicegp.model.error_models import DISCERNIBILITY
from choicegp.prediction.choices import ChoicePredictor
from choicegp.selection.left_out import left_out_probabilities

from .conftest import fit_fixed, make_case


@pytest.fixture(scope="module")
def case():
    return make_case(3, 2, 14, 20)


@pytest.fixture(scope="module")
def fitted(case):
    result = FitResult("converged", "", 1, 0.0, np.zeros(1))
    codes = {i: i for i in range(len(case.data.X))}
    n = case.data.X.shape[1]
    return Fitted(case.posterior, 0.0, result, np.zeros(n), np.ones(n), codes, DISCERNIBILITY, case.data)


def test_they_agree_with_fits_without_the_set(case, fitted):
    found = left_out_probabilities(fitted)
    assert len(found.data) == len(found.probabilities) == 20
    inside = ChoicePredictor(case.posterior, case.objects, case.data).probabilities()
    # The sets on which leaving out matters most.
    change = [np.abs(one - other).max() for one, other in zip(found.probabilities, inside, strict=True)]
    assert max(change) > 0.1
    for k in np.argsort(change)[-3:]:
        rest = case.data.take([i for i in range(20) if i != k])
        posterior = fit_fixed(rest, case.posterior.prior, warm=case.posterior)
        [exact] = ChoicePredictor(posterior, case.objects, case.data.take([k])).probabilities()
        assert found.probabilities[k] == pytest.approx(exact, abs=0.08)
        assert np.abs(found.probabilities[k] - exact).max() < 0.5 * change[k]


def test_draws_without_sites_are_refused(fitted):
    import equinox as eqx

    bare = eqx.tree_at(lambda one: one.gain, fitted.posterior, fitted.posterior.gain[:, :0, :0])
    with pytest.raises(ChoiceGPError, match="no sites to take out: hold some sets out"):
        left_out_probabilities(fitted._replace(posterior=bare))

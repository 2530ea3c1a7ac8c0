"""Cavity leave-one-out against fits that really leave the set out, and against exact Gaussian algebra."""

import equinox as eqx
import numpy as np
import pytest

from choicegp import ChoiceData
from choicegp.compute.progress import Clock
from choicegp.errors import ChoiceGPError
from choicegp.prediction.choices import ChoicePredictor
from choicegp.selection import settling
from choicegp.selection.cavity import CavityFits, _Differences, _remedy, cavities, cavity_loo, own_marginals
from choicegp.selection.loo import standard_error
from choicegp.selection.settling import Settled

from .conftest import fit_fixed, make_case, posed

# Set size, utilities, objects, sets.
PROBLEMS = {"pairs": (2, 3, 12, 24), "threes": (3, 2, 14, 20), "fives": (5, 2, 20, 18), "eights": (8, 1, 20, 18)}
PROBLEMS |= {"shared": PROBLEMS["threes"]}  # the same choices, by utilities with a part in common


class Made(dict):
    """A dictionary that makes a value when it is first asked for: of several processes each makes what it needs."""

    def __init__(self, make):
        self.make = make

    def __missing__(self, name):
        self[name] = self.make(name)
        return self[name]


@pytest.fixture(scope="module")
def cases():
    return Made(lambda name: make_case(*PROBLEMS[name], shared=name == "shared"))


@pytest.fixture(scope="module")
def results(cases):
    def result(name):
        case = cases[name]
        return cavity_loo(case.posterior, case.problem, len(case.data))

    return Made(result)


def left_out(case) -> np.ndarray:
    """Score each set by a fit to all others, from the posterior of all, hyperparameters held."""
    scores = []
    for k in range(len(case.data)):
        rest = case.data.take([i for i in range(len(case.data)) if i != k])
        posterior = fit_fixed(rest, case.posterior.prior, warm=case.posterior)
        predictor = ChoicePredictor(posterior, case.objects, case.data.take([k]))
        scores += list(predictor.log_probabilities(normalized=False))
    return np.array(scores)


@pytest.mark.parametrize("name", PROBLEMS)
def test_it_agrees_with_fits_that_leave_the_set_out(cases, results, name):
    exact = left_out(cases[name])
    result = results[name]
    error = np.abs(result.pointwise - exact).mean()
    assert error <= 0.05
    assert abs(result.elpd - exact.sum()) <= 0.5 * result.se
    # The scores inside the data are far from those outside, so that agreement is no matter of course.
    assert error < 0.3 * np.abs(result.diagnostics.gap).mean()
    assert result.warning == ""


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_result_is_whole(cases, results, name):
    result, n = results[name], len(cases[name].data)
    assert result.pointwise.shape == (n,)
    assert np.isfinite(result.pointwise).all()
    assert result.elpd == pytest.approx(result.pointwise.sum())
    assert result.se == pytest.approx(np.sqrt(n) * result.pointwise.std())
    assert result.n_effective == pytest.approx(result.diagnostics.gap.sum())
    assert result.method == "cavity"
    leverage, clipped = result.diagnostics.leverage, result.diagnostics.clipped
    assert ((leverage > 0) & (leverage < 1)).all()
    assert ((clipped >= 0) & (clipped <= 1)).all()


def test_a_shared_part_is_left_out_with_its_correlations(cases, results):
    """Cavities of utilities taken for independent are others than those of all differences together."""
    case = cases["shared"]
    fits = CavityFits(case.posterior, case.problem)
    covariance = fits.full.covariance.full()
    assert covariance.ndim == 4
    between = covariance[0, 1] / np.sqrt(np.outer(*(np.diag(covariance[i, i]) for i in (0, 1))))
    assert np.abs(np.diag(between)[: case.problem.n_objects]).mean() > 0.2
    wrong = fits.full._replace(covariance=np.stack([covariance[i, i] for i in (0, 1)]))
    batch = case.problem.batches[0]
    ours, theirs = own_marginals(fits.full, batch.rows), own_marginals(wrong, batch.rows)
    np.testing.assert_allclose(ours.mean, theirs.mean)
    a = len(batch.rows) - 1
    together, apart = (own.root @ np.swapaxes(own.root, 1, 2) for own in (ours, theirs))
    np.testing.assert_allclose(together[:, :a, :a], apart[:, :a, :a], atol=1e-8)
    assert np.abs(together[:, :a, a:]).max() > 0.1
    assert np.abs(apart[:, :a, a:]).max() < 1e-9


def test_without_refits_it_says_which_sets_are_in_doubt(cases):
    case = cases["fives"]
    result = cavity_loo(case.posterior, case.problem, len(case.data), max_refits=0)
    assert result.diagnostics.n_refits == 0
    assert len(result.doubtful) > 0
    assert result.warning.startswith(f"leave-one-out cannot be trusted on {len(result.doubtful)} sets of 18")
    largest = np.argsort(-result.diagnostics.gap)[: len(result.doubtful)]
    assert set(largest) == set(result.doubtful)


def test_refits_side_by_side_change_nothing(cases, results):
    case = cases["threes"]
    again = cavity_loo(case.posterior, case.problem, len(case.data), n_jobs=2)
    np.testing.assert_array_equal(again.pointwise, results["threes"].pointwise)


def test_a_cavity_is_the_posterior_without_the_site():
    rng = np.random.default_rng(0)
    m, n = 3, 8  # sets, and differences of all utilities together
    other = rng.normal(size=(m, n, n))
    other = other @ np.swapaxes(other, -1, -2) + np.eye(n)  # precision of all that is not the set's own site
    half = rng.normal(size=(m, n, 2))
    own = half @ np.swapaxes(half, -1, -2)
    pull, linear = rng.normal(size=(m, n)), rng.normal(size=(m, n))
    covariance = np.linalg.inv(other + own)
    mean = np.einsum("mij,mj->mi", covariance, pull + linear)
    found, leverage = cavities(_Differences(mean, np.linalg.cholesky(covariance)), own, linear)
    np.testing.assert_allclose(found.root @ np.swapaxes(found.root, -1, -2), np.linalg.inv(other), atol=1e-9)
    np.testing.assert_allclose(found.mean, np.einsum("mij,mj->mi", np.linalg.inv(other), pull), atol=1e-9)
    shares = np.linalg.eigvals(covariance @ own).real.max(axis=1)
    np.testing.assert_allclose(leverage, shares)


def test_a_certain_site_leaves_numbers():
    """Rounding may bring an eigenvalue of S P to 1 and above: still no infinity, no NaN."""
    found, leverage = cavities(_Differences(np.zeros((1, 1)), np.ones((1, 1, 1))), np.full((1, 1, 1), 2.0),
                                np.zeros((1, 1)))  # fmt: skip
    assert np.isfinite(found.root).all()
    assert leverage[0] <= 1.0


def test_marginals_of_equal_objects_are_degenerate_not_nan():
    covariance = np.array([[[1.0, 1.0], [1.0, 1.0]]])
    posterior = Settled((), np.array([[0.5, 0.5]]), covariance, 0.0, 1.0)
    own = own_marginals(posterior, np.array([[0], [1]]))
    assert own.mean.tolist() == [[0.0]]
    assert own.root.tolist() == [[[0.0]]]


def test_the_posterior_that_is_left_out_from_is_settled(cases):
    case = cases["threes"]
    fits = CavityFits(case.posterior, case.problem)
    assert float(fits.full.change) <= settling._SETTLED
    n = case.problem.n_objects
    sd = np.sqrt(np.diagonal(fits.full.covariance, axis1=1, axis2=2))[:, :n]
    assert np.max(np.abs(fits.full.mean[:, :n] - case.posterior.mean) / sd) < 0.3


class TestRemedy:
    def refit(self, corrections):
        self.rounds = []

        def refit(sets):
            self.rounds.append(list(sets))
            return -corrections[sets], np.ones(len(sets), bool)

        return refit

    def run(self, gap, corrected, most=100):
        return _remedy(np.zeros(len(gap)), -np.array(gap), np.ones(len(gap)), self.refit(np.array(corrected)), most)

    def test_the_largest_gaps_come_first_and_little_is_left(self):
        gap = np.array([0.1, 3.0, 2.0, 1.0, 0.5, 0.2, 0.1, 0.1])
        done = self.run(gap, gap + 0.01)
        assert self.rounds[0] == [1, 2, 3, 4]
        assert done.refitted.sum() == 4  # corrections of 0.01 on gaps of 1: nothing to expect of the others
        np.testing.assert_allclose(done.scores[[1, 2, 3, 4]], -gap[[1, 2, 3, 4]] - 0.01)
        assert len(done.doubtful) == 0

    def test_it_goes_on_while_corrections_are_large(self):
        gap = np.linspace(1.0, 2.0, 12)
        assert self.run(gap, 2 * gap).refitted.all()

    def test_no_gap_needs_no_refit(self):
        scores = np.array([-1.0, -5.0, -2.0])
        done = _remedy(scores + 1e-3, scores, np.ones(3), self.refit(np.zeros(3)), 10)
        assert self.rounds == []
        assert done.scores.tolist() == scores.tolist()

    def test_sets_beyond_the_limit_are_in_doubt(self):
        gap = np.linspace(1.0, 2.0, 12)
        done = self.run(gap, 2 * gap, most=6)
        assert done.refitted.sum() == 6
        assert done.doubtful.tolist() == list(range(6))

    def test_sets_for_which_there_is_no_time_are_in_doubt(self):
        gap = np.linspace(1.0, 2.0, 3)
        done = _remedy(np.zeros(3), -gap, np.ones(3), self.refit(2 * gap), 10, Clock(0.0))
        assert self.rounds == []
        assert done.doubtful.tolist() == [0, 1, 2]

    def test_a_refit_that_did_not_settle_is_in_doubt(self):
        done = _remedy(
            np.zeros(3), -np.array([9.0, 1.0, 1.0]), np.ones(3),
            lambda sets: (np.full(len(sets), -1.0), np.array(sets) != 0), 3,
        )  # fmt: skip
        assert done.doubtful.tolist() == [0]

    def test_the_rule_looks_at_the_standard_error(self):
        gap = np.array([1.0, 0.9, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6])
        inside = np.array([0.0, -400.0] * 4)
        refit = self.refit(np.zeros(8))
        assert standard_error(inside) > 100
        _remedy(inside, inside - gap, np.ones(8), refit, 8)
        assert self.rounds == []


def test_weights_count_and_sets_of_one_object_say_nothing(cases):
    case = cases["threes"]
    data = case.data
    # As many sets as make the shapes those of the case: nothing is compiled anew.
    shown = [*data.shown[:19], np.array([3])]
    chosen = [*data.chosen[:19], np.array([3])]
    weights = np.array([2.0] + [1.0] * 19)
    weighted = ChoiceData.from_sets(data.X, shown, chosen, weights=weights)
    posterior = fit_fixed(weighted, case.posterior.prior)
    result = cavity_loo(posterior, posed(weighted), 20)
    assert result.pointwise[19] == 0.0
    plain = cavity_loo(posterior, posed(ChoiceData.from_sets(data.X, shown, chosen)), 20)
    assert result.pointwise[0] < plain.pointwise[0]


def test_extreme_utilities_give_finite_scores(cases):
    """The posterior that is started from says utilities are thousands of error scales apart."""
    case = cases["eights"]
    far = eqx.tree_at(lambda of: of.dual, case.posterior, 1e4 * np.asarray(case.posterior.dual))
    result = cavity_loo(far, case.problem, len(case.data), max_refits=2)
    assert np.isfinite(result.pointwise).all()
    assert np.isfinite(result.diagnostics.gap).all()


def test_a_broken_posterior_is_an_error(cases):
    case = cases["pairs"]
    broken = eqx.tree_at(lambda of: of.dual, case.posterior, np.nan * np.asarray(case.posterior.dual))
    with pytest.raises(ChoiceGPError, match="leave-one-out failed"):
        cavity_loo(broken, case.problem, len(case.data))

"""What an answer says: brute force over all answers, limits, and many draws."""

from itertools import chain, combinations

import jax
import numpy as np
import pytest

from choicegp.data.pareto import undominated
from choicegp.elicitation.information import (
    Drawn,
    Targets,
    about_targets,
    answer_tables,
    expected,
    expected_answers,
)
from choicegp.model.error_models import DISCERNIBILITY, KEPT_BY
from choicegp.model.likelihood import log_likelihood
from choicegp.model.prior import Objects

in_logs = jax.jit(log_likelihood)


def subsets(k):
    return [list(one) for one in chain.from_iterable(combinations(range(k), n) for n in range(1, k + 1))]


def entropy(p, axis=0):
    return -np.sum(np.where(p > 0, p * np.log(np.where(p > 0, p, 1.0)), 0.0), axis=axis)


def brute_table(u, rows, lapse):
    """Return the probabilities (answers, S) of all answers, one likelihood at a time; utilities (S, n, d)."""
    k = len(rows)
    own = np.moveaxis(u[:, rows], 0, 2).swapaxes(0, 1)  # (d, k, S)
    present = np.ones((k, 1), bool)
    table = []
    for kept in subsets(k):
        chosen = np.isin(np.arange(k), kept)[:, None]
        table.append(np.exp(np.asarray(in_logs(own, present, chosen))))
    table = np.array(table)
    return (1 - lapse) * table / table.sum(axis=0) + lapse / len(table)


def brute_information(table):
    """Return the mutual information from a table (answers, S), corrected for the number of draws."""
    mean, n = table.mean(axis=1), table.shape[1]
    return entropy(mean) - entropy(table).mean() + 0.5 * np.sum(table.var(axis=1) / mean) / (n - 1)


@pytest.fixture(scope="module")
def utilities():
    return 2.0 * np.random.default_rng(0).normal(size=(32, 6, 2))


def test_the_value_is_the_mutual_information_by_brute_force(utilities):
    drawn = Drawn.of(utilities, DISCERNIBILITY, 0.05)
    sets = np.array([[0, 1, 2], [3, 4, 5], [5, 0, 2]])
    tables = [brute_table(utilities, rows, 0.05) for rows in sets]
    found = expected(drawn, sets)
    assert found.information == pytest.approx([brute_information(table) for table in tables], abs=2e-5)
    error = [entropy(table).mean() for table in tables]
    assert found.entropy - found.information == pytest.approx(error, abs=2e-5)


def test_without_errors_it_is_the_entropy_of_the_pareto_set(utilities):
    drawn = Drawn.of(1e4 * utilities, DISCERNIBILITY, 0.0)
    sets = np.array([[0, 1, 2], [2, 4, 5]])
    for rows, found in zip(sets, expected(drawn, sets).information, strict=True):
        pareto = [tuple(undominated(u)) for u in utilities[:, rows]]
        _, counts = np.unique(pareto, axis=0, return_counts=True)
        many = (len(counts) - 1) / (2 * (len(utilities) - 1))  # what an entropy of so few draws lacks
        assert found == pytest.approx(entropy(counts / counts.sum()) + many, abs=1e-4)


def test_information_about_targets_is_that_of_the_two_answers_by_brute_force(utilities):
    drawn = Drawn.of(utilities, DISCERNIBILITY, 0.02)
    sets, targets = np.array([[0, 1, 2], [3, 4, 5], [0, 2, 4]]), np.array([[1, 3, 5], [0, 1, 2]])
    found = about_targets(drawn, sets, Targets.of(drawn, targets))
    n = len(utilities)

    def corrected(tables):
        mean = tables.mean(axis=-1).ravel()
        return entropy(mean) + 0.5 * np.sum(tables.var(axis=-1).ravel() / mean) / (n - 1)

    for rows, value in zip(sets, found, strict=True):
        first = brute_table(utilities, rows, 0.02)
        each = []
        for target in targets:
            other = brute_table(utilities, target, 0.02)
            each.append(corrected(first) + corrected(other) - corrected(first[:, None] * other[None]))
        assert value == pytest.approx(np.mean(each), abs=1e-4)


def test_the_empty_answer_counts_where_there_is_a_threshold(utilities):
    sure = np.zeros((32, 3, 2))
    sure[:, 2] = 50.0  # the threshold, far above the objects
    errors = KEPT_BY["discernibility with a threshold"]
    table = np.asarray(answer_tables(Drawn.of(sure, errors, 0.02), np.array([[0, 1]])))
    assert table.shape == (4, 1, 32)
    assert table[:, 0, 0] == pytest.approx([0.985, 0.005, 0.005, 0.005], abs=1e-6)
    unsure = sure.copy()
    unsure[::2, 2] = -50.0
    found = expected(Drawn.of(unsure, errors, 0.0), np.array([[0, 1]])).information[0]
    assert found > np.log(2)  # at least whether nothing is kept


def test_answers_before_leave_less_to_say(utilities):
    drawn = Drawn.of(utilities, DISCERNIBILITY, 0.02)
    one, other = np.array([0, 1, 2]), np.array([3, 4, 5])
    after = drawn.after([one], np.random.default_rng(0))
    assert after.weights.shape == (16, 32)
    assert after.weights.sum(axis=1) == pytest.approx(np.ones(16))
    again, fresh = expected(after, np.array([one, other])).information
    first, second = expected(drawn, np.array([one, other])).information
    assert again < 0.7 * first
    assert fresh > 0.7 * second


def test_many_answers_before_leave_enough_draws(utilities):
    drawn = Drawn.of(5.0 * utilities, DISCERNIBILITY, 0.02)
    sets = [np.array([0, 1, 2]), np.array([3, 4, 5]), np.array([1, 3, 5]), np.array([0, 2, 4])]
    weights = drawn.after(sets, np.random.default_rng(0)).weights
    assert np.mean(1.0 / np.sum(weights**2, axis=1)) >= 32 / 8 * 0.99


@pytest.mark.parametrize("errors", ["discernibility", "best-in-one with a threshold"])
def test_the_value_of_a_set_agrees_with_100000_draws(errors, ignorant):
    model = ignorant(errors=errors)
    X = np.array([[0.0, 0.0], [0.6, 0.3], [-0.5, 0.9]])
    objects = Objects(X, np.arange(3))
    found = expected_answers(model.fitted_, objects, np.array([[0, 1, 2]]), 0.02)
    gram = 4.0 * np.exp(-0.5 * np.sum((X[:, None] - X[None]) ** 2, axis=2))
    hidden = model.errors_.has_threshold
    gram = np.pad(gram, (0, hidden)) + 4.0 * np.diag([0.0] * 3 + [1.0] * hidden)
    u = np.random.default_rng(1).normal(size=(100_000, 2, len(gram))) @ np.linalg.cholesky(gram).T
    table = np.asarray(answer_tables(Drawn.of(np.swapaxes(u, 1, 2), model.errors_, 0.02), np.array([[0, 1, 2]])))[:, 0]
    assert found.probability.sum() == pytest.approx(1.0)
    assert found.information[0] == pytest.approx(brute_information(table.astype(float)), abs=0.02)

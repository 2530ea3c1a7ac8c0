"""Predicted choices against brute force: all subsets of samples of the posterior, by the paper's formula."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtr

from choicegp import ChoiceData
from choicegp.errors import ChoiceGPError
from choicegp.inference.expectation import samples, sobol_normals
from choicegp.inference.posterior import Posterior
from choicegp.model.error_models import DISCERNIBILITY
from choicegp.model.kernels import RBF
from choicegp.model.prior import Objects, UtilityPrior
from choicegp.prediction import choices
from choicegp.prediction.answers import draw_chances, mean_answers
from choicegp.prediction.choices import ChoicePredictor, set_utilities, subset_table

N_OBJECTS = 300
X = np.random.default_rng(0).normal(size=(N_OBJECTS, 2))


def make_posterior(n_utilities=2, noise=0.1, variance=4.0, lapse=None, far_below=X[:0]):
    """A posterior from noisy observations of smooth utilities at the first 20 objects, and of a few very low ones."""
    prior = UtilityPrior.create(RBF(1.5, variance), 2, n_utilities)
    objects = Objects(np.concatenate([X[:20], far_below]), np.arange(20 + len(far_below)))
    K = np.asarray(prior.covariance(objects, objects))
    truth = np.stack([np.sin(X[:20, 0]), np.cos(2 * X[:20, 1]), X[:20, 0] * X[:20, 1]])[:n_utilities]
    truth = np.pad(truth, ((0, 0), (0, len(far_below))), constant_values=-30.0)
    gain = np.linalg.inv(K + noise * np.eye(len(K[0])))
    dual = np.einsum("dij,dj->di", gain, np.sqrt(variance) * truth)
    mean = np.einsum("dij,dj->di", K, dual)
    return Posterior(prior, objects, mean, dual, gain, None if lapse is None else np.asarray(lapse))


def make_sets(size, n_sets, seed=1):
    rng = np.random.default_rng(seed)
    return [rng.choice(N_OBJECTS, size, replace=False) for _ in range(n_sets)]


def predictor(posterior, shown, chosen=None, features=X):
    data = ChoiceData.from_sets(features, shown, chosen)
    return ChoicePredictor(posterior, Objects(features, np.arange(len(features))), data)


def objects_of(shown):
    rows = np.stack(shown, axis=1)
    return Objects(X[rows], rows)


def points(posterior, a, n, seed=0):
    return sobol_normals(posterior.n_utilities, a - 1, n, np.random.default_rng(seed))


def draws_of(posterior, rows, n_samples, seed=0):
    """Independent joint samples (S, a, d) of the utilities of one set's objects."""
    mean, covariance = posterior.mean_and_covariance_at(Objects(X[rows], rows))
    root = np.linalg.cholesky(np.asarray(covariance) + 1e-10 * np.eye(len(rows)))
    normals = np.random.default_rng(seed).normal(size=(len(mean), len(rows), n_samples))
    return np.moveaxis(np.asarray(mean)[:, :, None] + root @ normals, (0, 1, 2), (2, 1, 0))


def likelihoods(u, floor=1e-10):
    """p(C | A, u) of every subset (2^a, S) for samples u (S, a, d), as the paper writes it."""
    n_samples, a, _ = u.shape
    beats = np.prod(ndtr(u[:, :, None] - u[:, None, :]), axis=-1)  # (S, o, v)
    table = np.zeros((2**a, n_samples))
    for code in range(1, 2**a):
        chosen = [o for o in range(a) if code >> o & 1]
        value = np.ones(n_samples)
        for o, v in itertools.combinations(chosen, 2):
            value *= 1 - beats[:, o, v] - beats[:, v, o] + floor
        for v in set(range(a)) - set(chosen):
            value *= 1 - np.prod([1 - beats[:, o, v] for o in chosen], axis=0) + floor
        table[code] = value
    return table


@pytest.fixture(scope="module")
def posterior():
    return make_posterior()


@pytest.fixture(scope="module")
def triples():
    return make_sets(3, 20)


# Every size and every number of utilities; not every combination, each of which is compiled by itself.
@pytest.mark.parametrize(("a", "n_utilities"), [(1, 1), (2, 1), (2, 2), (2, 3), (3, 2), (4, 3), (5, 1), (6, 2)])
def test_the_subsets_of_a_set_have_probability_one(a, n_utilities):
    objects = objects_of(make_sets(a, 4))
    for lapse in (0.0, 0.2):  # of which the first must be as good as none
        posterior = make_posterior(n_utilities, lapse=lapse)
        table = np.asarray(subset_table(posterior, objects, points(posterior, a, 64)))
        assert table.shape == (2**a, 4)
        assert np.all(table >= 0)
        assert not np.any(table[0])
        np.testing.assert_allclose(table.sum(axis=0), 1.0, rtol=1e-12)
        if lapse:
            assert np.all(table[1:] >= lapse / (2**a - 1) * (1 - 1e-12))


@pytest.mark.parametrize("a", [1, 2, 3])
def test_without_a_lapse_rate_the_table_is_that_of_a_rate_of_zero(a, posterior):
    objects = objects_of(make_sets(a, 4))
    own = points(posterior, a, 64)
    table = subset_table(posterior, objects, own)
    np.testing.assert_allclose(table.sum(axis=0), 1.0, rtol=1e-12)
    np.testing.assert_allclose(table, subset_table(make_posterior(lapse=0.0), objects, own), atol=1e-15)


@pytest.mark.parametrize("n_utilities", [1, 2, 3])
def test_the_exact_table_of_a_pair_is_the_average_over_samples(n_utilities):
    posterior = make_posterior(n_utilities)
    shown = make_sets(2, 4)
    table = np.asarray(subset_table(posterior, objects_of(shown), points(posterior, 2, 64)))
    for k, rows in enumerate(shown):
        values = likelihoods(draws_of(posterior, rows, 20_000))
        error = values.std(axis=1) / np.sqrt(20_000)
        assert np.all(np.abs(table[:, k] - values.mean(axis=1)) < 4 * error + 1e-8)
    if n_utilities == 1:
        # Impossible but for the floor, which is kept so that its logarithm is a number.
        np.testing.assert_allclose(table[3], 1e-10, rtol=1e-6)


@pytest.fixture(scope="module")
def by_brute_force(posterior, triples):
    """Average of the normalised likelihood of every subset over 4000 samples, (2^3, m)."""
    columns = []
    for rows in triples:
        values = likelihoods(draws_of(posterior, rows, 4000))
        columns.append((values / values.sum(axis=0)).mean(axis=1))
    return np.stack(columns, axis=1)


def test_the_table_is_the_average_of_normalised_likelihoods(posterior, triples, by_brute_force):
    table = np.asarray(subset_table(posterior, objects_of(triples), points(posterior, 3, choices.N_SAMPLES)))
    # The standard error of an average of 4000 probabilities is at most 0.008.
    np.testing.assert_allclose(table, by_brute_force, atol=0.03)
    assert by_brute_force.max() > 0.6


def test_predict_is_the_most_probable_subset(posterior, triples, by_brute_force):
    first, second = np.sort(by_brute_force, axis=0)[[-1, -2]]
    clear = np.flatnonzero(first - second > 0.05)
    assert len(clear) > 10
    predicted = predictor(posterior, triples).choices()
    best = by_brute_force.argmax(axis=0)
    assert len(set(best[clear])) > 2
    for k in clear:
        wanted = [triples[k][o] for o in range(3) if best[k] >> o & 1]
        np.testing.assert_array_equal(predicted[k], wanted)


def test_predict_proba_holds_the_marginals_of_the_table(posterior, triples):
    table = np.asarray(subset_table(posterior, objects_of(triples), points(posterior, 3, choices.N_SAMPLES)))
    probabilities = predictor(posterior, triples).probabilities()
    for k in range(len(triples)):
        marginals = [sum(table[code, k] for code in range(8) if code >> o & 1) for o in range(3)]
        np.testing.assert_allclose(probabilities[k], marginals, rtol=1e-9)


def test_the_sample_points_are_enough(posterior):
    # Sets of four, against 2^14 points: measured 0.0015.
    objects = objects_of(make_sets(4, 8))
    few, many = (
        np.asarray(subset_table(posterior, objects, points(posterior, 4, n, seed)))
        for n, seed in ((choices.N_SAMPLES, 0), (2**14, 9))
    )
    assert np.abs(few - many).max() < 0.005


def test_neither_chunks_nor_other_sets_matter(posterior, triples, monkeypatch):
    pairs = make_sets(2, 3)
    mixed = [rows for group in itertools.zip_longest(triples, pairs) for rows in group if rows is not None]
    whole = predictor(posterior, mixed)
    probabilities, predicted = whole.probabilities(), whole.choices()
    monkeypatch.setattr(
        "choicegp.prediction.set_utilities._CELLS", 8 * 2**3 * choices.N_SAMPLES
    )  # eight triples at a time, of twenty
    monkeypatch.setattr("choicegp.prediction.set_utilities._AT_ONCE", 1)
    chunked = predictor(posterior, mixed)
    for one, other in zip(probabilities, chunked.probabilities(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)
    alone = predictor(posterior, [triples[4]])
    place = next(k for k, rows in enumerate(mixed) if rows is triples[4])
    np.testing.assert_allclose(alone.probabilities()[0], probabilities[place], rtol=1e-10)
    np.testing.assert_array_equal(alone.choices()[0], predicted[place])


def test_a_few_sets_more_are_no_new_program(posterior, triples):
    predictor(posterior, triples[:1]).choices()
    before = len(choices.subset_table._executables)
    for n in (2, 3, 7, 16):
        assert len(predictor(posterior, triples[:n]).choices()) == n
    assert len(choices.subset_table._executables) == before


def test_a_set_of_one_object_is_certain(posterior):
    own = predictor(posterior, [[7], [8]], [[7], [8]])
    assert [rows.tolist() for rows in own.choices()] == [[7], [8]]
    assert [probability.tolist() for probability in own.probabilities()] == [[1.0], [1.0]]
    for normalized in (False, True):
        assert own.log_probabilities(normalized=normalized).tolist() == [0.0, 0.0]


@pytest.fixture(scope="module")
def large_predictions():
    """Sets of 12, 40 and 250 objects with what was predicted."""
    posterior = make_posterior()
    shown = [make_sets(a, 1, seed=a)[0] for a in (12, 40, 250)]
    own = predictor(posterior, shown, [rows[:2] for rows in shown])
    return posterior, shown, own.probabilities(), own.choices(), own


@pytest.mark.parametrize("number", [0, 1, 2], ids=["12", "40", "250"])
def test_large_sets_have_probabilities_and_a_choice(large_predictions, number):
    _, shown, probabilities, predicted, _ = large_predictions
    rows, probability, chosen = shown[number], probabilities[number], predicted[number]
    assert probability.shape == rows.shape
    assert np.all((probability >= 0) & (probability <= 1))
    assert probability.sum() >= 1  # every sample has an undominated object
    assert 1 <= len(chosen) < len(rows)
    assert set(chosen) <= set(rows)
    # What is predicted is what is probable.
    place = np.isin(rows, chosen)
    assert probability[place].mean() > probability[~place].mean() + 0.2


@pytest.mark.parametrize("number", [0, 1, 2], ids=["12", "40", "250"])
def test_large_sets_use_the_answers_at_samples(large_predictions, number):
    posterior, shown, probabilities, _, _ = large_predictions
    a = len(shown[number])
    own = points(posterior, a, choices._n_samples(a))
    marginal = jax.jit(set_utilities, static_argnums=2)(posterior, objects_of([shown[number]]), own.shape[-1]).marginal
    u = samples(marginal, jnp.asarray(own))
    chances = draw_chances(2, a, own.shape[-1], np.random.default_rng(1))
    # Compiled otherwise, a chance may fall on the other side of its level.
    np.testing.assert_allclose(probabilities[number], jax.jit(mean_answers)(u, chances).inclusion[:, 0], atol=1e-3)


@pytest.mark.parametrize("n_utilities", [1, 2, 3])
def test_an_eleventh_object_that_is_certainly_dominated_changes_nothing(n_utilities):
    # From ten objects to eleven the method changes; here only the method does.
    features = np.concatenate([X, [[30.0, 30.0]]])
    posterior = make_posterior(n_utilities, far_below=features[-1:])
    tens = make_sets(10, 12)
    before = predictor(posterior, tens, features=features).probabilities()
    after = predictor(posterior, [np.append(rows, N_OBJECTS) for rows in tens], features=features).probabilities()
    change = np.abs(np.stack(after)[:, :-1] - np.stack(before))
    assert change.max() < 0.01
    assert change.mean() < 0.005
    assert np.stack(after)[:, -1].max() < 1e-6
    assert np.stack(before).std() > 0.1


def test_predictions_from_large_sets_repeat_and_depend_on_no_other_set(large_predictions):
    posterior, shown, probabilities, predicted, own = large_predictions
    for one, same in zip(probabilities, own.probabilities(), strict=True):
        np.testing.assert_array_equal(one, same)
    alone = predictor(posterior, [make_sets(12, 1, seed=5)[0], shown[0], shown[1]])
    np.testing.assert_allclose(alone.probabilities()[1], probabilities[0], atol=2e-3)
    np.testing.assert_array_equal(alone.choices()[1], predicted[0])


def test_the_choice_from_a_large_set_is_the_most_probable_of_all_subsets(monkeypatch):
    posterior, shown = make_posterior(variance=16.0), make_sets(8, 12)
    enumerated = predictor(posterior, shown).choices()
    table = np.asarray(subset_table(posterior, objects_of(shown), points(posterior, 8, choices.N_SAMPLES)))
    monkeypatch.setattr(choices, "MAX_ENUMERATED", 7)
    drawn = predictor(posterior, shown).choices()
    codes = [sum(1 << o for o in range(8) if rows[o] in chosen) for rows, chosen in zip(shown, drawn, strict=True)]
    assert np.mean(table[codes, np.arange(12)] / table.max(axis=0)) > 0.97
    assert sum(np.array_equal(one, other) for one, other in zip(enumerated, drawn, strict=True)) >= 9


def test_one_utility_leaves_one_object_of_a_large_set():
    own = predictor(make_posterior(1), make_sets(12, 5))
    probabilities = own.probabilities()
    np.testing.assert_allclose([probability.sum() for probability in probabilities], 1.0, rtol=1e-9)
    best = [[rows[np.argmax(p)]] for rows, p in zip(make_sets(12, 5), probabilities, strict=True)]
    np.testing.assert_array_equal(own.choices(), best)


def test_a_clear_winner_is_predicted_from_a_large_set():
    # A sharp posterior in which the utilities of one object are far above those of all others.
    prior = UtilityPrior.create(RBF(0.05, 100.0), 2, 2)
    features = np.column_stack([np.arange(20.0), np.zeros(20)])
    objects = Objects(features, np.arange(20))
    heights = np.where(np.arange(20) == 5, 8.0, -8.0)
    K = np.asarray(prior.covariance(objects, objects))
    gain = np.linalg.inv(K + 0.01 * np.eye(20))
    dual = np.einsum("dij,j->di", gain, heights)
    posterior = Posterior(prior, objects, np.zeros((2, 20)), dual, gain)
    own = predictor(posterior, [np.arange(12)], features=features)
    np.testing.assert_array_equal(own.choices()[0], [5])
    np.testing.assert_allclose(own.probabilities()[0], np.arange(12) == 5, atol=1e-3)


def test_a_lapse_rate_pulls_large_sets_towards_one_half(large_predictions):
    _, shown, probabilities, _, _ = large_predictions
    lapsing = predictor(make_posterior(lapse=0.2), shown[:1]).probabilities()[0]
    np.testing.assert_allclose(lapsing, 0.8 * probabilities[0] + 0.1, atol=1e-12)


def test_log_probabilities_are_the_average_likelihood(posterior, triples):
    chosen = [rows[: 1 + k % 3] for k, rows in enumerate(triples)]
    logs = predictor(posterior, triples, chosen).log_probabilities(normalized=False)
    for k, rows in enumerate(triples):
        values = likelihoods(draws_of(posterior, rows, 4000))[2 ** len(chosen[k]) - 1]
        error = values.std() / np.sqrt(4000)
        assert abs(np.exp(logs[k]) - values.mean()) < 4 * error + 0.003


def test_normalized_log_probabilities_sum_to_one_over_subsets(posterior):
    rows = make_sets(3, 1)[0]
    subsets = [[rows[o] for o in range(3) if code >> o & 1] for code in range(1, 8)]
    own = predictor(posterior, [rows] * 7, subsets)
    np.testing.assert_allclose(np.exp(own.log_probabilities(normalized=True)).sum(), 1.0, rtol=1e-12)
    # The paper's likelihood does not.
    assert np.exp(own.log_probabilities(normalized=False)).sum() < 0.9999


def test_log_probabilities_of_large_sets_are_numbers(large_predictions):
    posterior, shown, *_ = large_predictions
    (log,) = predictor(posterior, shown[:1], [shown[0][:2]]).log_probabilities(normalized=False)
    assert np.isfinite(log)
    # Ten objects are rejected for two that were picked blindly.
    assert log < -3


def test_likelihoods_of_any_choice_are_taken_at_the_same_draws(posterior, triples):
    objects, own = objects_of(triples[:7]), points(posterior, 3, 32)
    chosen = (np.arange(1, 8) >> np.arange(3)[:, None]) & 1 == 1
    found = choices.log_likelihoods(posterior, objects, chosen, own, DISCERNIBILITY)
    u = jax.jit(lambda *args: choices.set_utilities(*args, 32).sampled(own))(posterior, objects)
    wanted = jax.jit(DISCERNIBILITY.log_likelihood)(u, np.ones((3, 7, 1), bool), chosen[..., None])
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)


def test_blocks_of_points_change_nothing(posterior, triples, monkeypatch):
    objects = objects_of(triples)
    chosen = np.arange(3)[:, None] < np.ones(len(triples))
    own = points(posterior, 3, 64)
    whole = choices.log_likelihoods(posterior, objects, chosen, own, DISCERNIBILITY)
    assert whole.shape == (len(triples), 64)
    monkeypatch.setattr(choices, "_BLOCK", 2 * 3 * 3 * len(triples) * 8)
    order = np.repeat(np.arange(3)[:, None], len(triples), axis=1)
    in_blocks = jax.jit(choices._log_likelihoods.__wrapped__)(posterior, objects, order, chosen, own, DISCERNIBILITY)
    np.testing.assert_allclose(in_blocks, whole, rtol=1e-12)


def test_normalized_is_refused_beyond_sixteen_objects(posterior):
    own = predictor(posterior, [np.arange(17)], [[0]])
    with pytest.raises(ChoiceGPError, match=r"set 0 has 17 objects.*up to 16 objects.*normalized=False"):
        own.log_probabilities(normalized=True)


@pytest.mark.parametrize(("variance", "lapse"), [(0.2, None), (16.0, 0.05)])
def test_normalized_log_probabilities_of_large_sets_are_those_of_all_subsets(variance, lapse):
    posterior = make_posterior(variance=variance, lapse=lapse)
    (rows,) = make_sets(12, 1)
    own = points(posterior, 12, choices.SCORE_SAMPLES)
    table = np.asarray(subset_table(posterior, objects_of([rows]), own))[:, 0]
    # The likeliest answers, and others.
    codes = np.concatenate([np.argsort(-table)[:16], np.random.default_rng(0).integers(1, 2**12, 16)])
    answers = [rows[(code >> np.arange(12)) & 1 == 1] for code in codes]
    asked = predictor(posterior, [rows] * 32, answers)
    wrong = asked.log_probabilities(normalized=True) - np.log(table[codes])
    assert np.abs(wrong[:16]).max() < 0.02
    # Few of the table's draws explain the others.
    assert np.abs(wrong).max() < 0.15
    if lapse is None:
        # Utilities this close to each other leave much to be divided.
        assert (asked.log_probabilities(normalized=False) - np.log(table[codes]))[:16].max() < -0.2


def test_one_utility_needs_no_sum_over_the_subsets_of_a_large_set():
    rows = np.arange(17)
    own = predictor(make_posterior(1), [rows] * 17, [[row] for row in rows])
    logs = own.log_probabilities(normalized=True)
    assert np.exp(logs).sum() == pytest.approx(1.0, abs=1e-6)
    np.testing.assert_array_equal(logs, own.log_probabilities(normalized=False))


def test_data_without_choices_have_no_log_probability(posterior, triples):
    with pytest.raises(ChoiceGPError, match="these have none"):
        predictor(posterior, triples).log_probabilities(normalized=False)


def test_copies_share_alike_in_a_large_set():
    # Twelve objects and one utility: two copies of the best one, equal to rounding, are as good as it is.
    posterior, rows = make_posterior(1), make_sets(12, 1, seed=12)[0]
    probability = predictor(posterior, [rows]).probabilities()[0]
    order = np.argsort(probability)
    best, copies = rows[order[-1]], rows[order[:2]]
    features = X.copy()
    features[copies] = X[best] + np.array([[1e-13], [-1e-13]])
    copied = predictor(posterior, [rows], features=features).probabilities()[0]
    np.testing.assert_allclose(copied[order[:2]], copied[order[-1]], rtol=1e-5)
    # One answer has one object: what one had is divided by three, but for the better chances of three.
    assert 1 > 3 * copied[order[-1]] > probability.max() - 0.05 > 0.3


@pytest.mark.parametrize("a", [3, 12])
def test_near_identical_objects_are_predicted_like_identical_ones(a):
    # Differences of variance zero are lost in rounding errors, which must not be magnified.
    posterior = make_posterior(variance=100.0)
    results = []
    for gap in (0.0, 1e-10):
        features = np.full((a, 2), 0.3) + gap * np.arange(a)[:, None]
        features[0] = 2.0
        own = predictor(posterior, [np.arange(a)], features=features)
        results.append(own.probabilities()[0])
        assert np.all(np.isfinite(results[-1]))
        assert len(own.choices()[0]) >= 1
    # Of a drawn answer rounding can turn a single chance.
    np.testing.assert_allclose(results[0], results[1], atol=1e-3 if a == 3 else 3e-3)

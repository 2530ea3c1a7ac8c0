"""BatchPreferenceGP: the best object of each set, with two ways to err."""

import numpy as np
import pytest
from sklearn.base import clone

from choicegp import BatchPreferenceGP, ChoiceData, ChoiceGP, ChoiceGPError, compare, datasets, metrics
from choicegp.kernels import RBF

N_OBJECTS = 24
QUICK = {"n_restarts": 1, "max_iter": 60, "progress": False}


def utility(X):
    """Return a utility in units of the noise."""
    return 4.0 * np.sin(1.5 * X[:, 0]) + 2.0 * X[:, 1]


def best_under_noise(X, shown, random_state):
    """Simulate the model: the best object has the largest utility with noise."""
    rng = np.random.default_rng(random_state)
    noisy = [utility(X[rows]) + rng.normal(size=len(rows)) for rows in shown]
    return ChoiceData.from_sets(X, shown, [[rows[np.argmax(u)]] for rows, u in zip(shown, noisy, strict=True)])


@pytest.fixture(scope="module")
def triples():
    """Return training sets of three, and as many test sets of the same objects."""
    X = np.random.default_rng(0).uniform(-2.0, 2.0, size=(N_OBJECTS, 2))
    shown = datasets.random_sets(N_OBJECTS, 128, 3, random_state=1)
    return best_under_noise(X, shown, 2).split(64, random_state=0)


@pytest.fixture(scope="module")
def few(triples):
    """Return some of the test sets: probabilities under noise take long."""
    return triples[1].take(range(12))


@pytest.fixture(scope="module")
def pairs():
    X = np.random.default_rng(1).uniform(-2.0, 2.0, size=(N_OBJECTS, 2))
    return best_under_noise(X, datasets.random_sets(N_OBJECTS, 64, 2, random_state=3), 4)


@pytest.fixture(scope="module")
def gaussian(triples):
    return BatchPreferenceGP(**QUICK).fit(triples[0])


@pytest.fixture(scope="module")
def discernibility(triples):
    return BatchPreferenceGP("discernibility", **QUICK).fit(triples[0])


def test_it_learns_what_the_model_itself_chose(gaussian, triples):
    _, test = triples
    # Noise hides part of the truth: what the true utilities would score is the most there is to learn.
    truth = [rows[[np.argmax(utility(test.X[rows]))]] for rows in test.shown]
    assert gaussian.score(test) > 0.8 * metrics.exact_accuracy(test, truth) > 0.6  # by chance: 0.33
    u = gaussian.utilities(test).mean[:, 0]
    assert np.corrcoef(u, utility(test.X))[0, 1] > 0.9


def test_probabilities_are_those_of_one_best_object(gaussian, discernibility, few):
    mixed = ChoiceData.from_sets(few.X, [*few.shown, [0], [1, 2]])
    for model in (gaussian, discernibility):
        predicted = model.predict(mixed)
        for rows, p, best in zip(mixed.shown, model.predict_proba(mixed), predicted, strict=True):
            assert np.isclose(p.sum(), 1.0, atol=1e-12)
            assert best.tolist() == [rows[np.argmax(p)]]
    frame = gaussian.predict_frame(mixed)
    assert frame.groupby("set")["chosen"].sum().eq(1).all()


def test_log_probabilities_are_the_logs_of_the_probabilities(gaussian, discernibility, few):
    for model in (gaussian, discernibility):
        p = np.concatenate(model.predict_proba(few))[few.flat_chosen]
        assert np.allclose(model.log_prob(few, normalized=True), np.log(p), atol=1e-9)
    # Under Gaussian noise the likelihood is a probability; only the points of the average differ.
    assert np.allclose(gaussian.log_prob(few), gaussian.log_prob(few, normalized=True), atol=0.05)
    assert np.all(discernibility.log_prob(few) <= discernibility.log_prob(few, normalized=True) + 0.05)


def test_discernibility_is_choicegp_with_one_utility(discernibility, triples, few):
    choice = ChoiceGP(1, intervals="none", object_effects=False, **QUICK).fit(triples[0])
    assert discernibility.elbo_ == choice.elbo_
    assert np.array_equal(discernibility.posterior_.mean, choice.posterior_.mean)
    assert all(np.array_equal(*both) for both in zip(discernibility.predict(few), choice.predict(few), strict=True))
    for one, other in zip(discernibility.predict_proba(few), choice.predict_proba(few), strict=True):
        assert np.allclose(one, other, atol=1e-7)
    assert np.allclose(discernibility.log_prob(few), choice.log_prob(few), atol=1e-7)


def test_on_pairs_the_two_errors_differ_by_the_scale_of_the_utility(pairs):
    # Φ(c / sqrt 2) is Φ(c) with utilities larger by sqrt 2, so a prior with twice the variance gives the same.
    fixed = {**QUICK, "learn_hyperparameters": False}
    wide = BatchPreferenceGP("gaussian", kernel=RBF(lengthscale=1.0, variance=8.0), **fixed).fit(pairs)
    narrow = BatchPreferenceGP("discernibility", kernel=RBF(lengthscale=1.0, variance=4.0), **fixed).fit(pairs)
    assert np.isclose(wide.elbo_, narrow.elbo_, atol=1e-3)
    assert np.allclose(wide.utilities(pairs).mean, np.sqrt(2.0) * narrow.utilities(pairs).mean, atol=2e-3)
    for one, other in zip(wide.predict_proba(pairs), narrow.predict_proba(pairs), strict=True):
        assert np.allclose(one, other, atol=1e-3)


def test_a_refit_gives_the_same(gaussian, triples):
    again = clone(gaussian).fit(triples[0])
    assert again.elbo_ == gaussian.elbo_
    assert np.array_equal(again.posterior_.mean, gaussian.posterior_.mean)


def test_what_is_saved_predicts_bit_for_bit_the_same(gaussian, few, tmp_path):
    gaussian.save(tmp_path / "model.cgp")
    loaded = BatchPreferenceGP.load(tmp_path / "model.cgp")
    assert np.array_equal(np.concatenate(loaded.predict_proba(few)), np.concatenate(gaussian.predict_proba(few)))
    assert np.array_equal(loaded.log_prob(few), gaussian.log_prob(few))
    assert loaded.elbo_ == gaussian.elbo_
    with pytest.raises(ChoiceGPError, match="another kind"):
        ChoiceGP.load(tmp_path / "model.cgp")


def test_options_set_after_a_fit_do_not_change_it(discernibility, few, tmp_path):
    before = discernibility.predict_proba(few)
    changed = BatchPreferenceGP("discernibility", **QUICK)
    vars(changed).update(vars(discernibility))
    changed.set_params(noise="gaussian").save(tmp_path / "model.cgp")
    loaded = BatchPreferenceGP.load(tmp_path / "model.cgp")
    for model in (changed, loaded):
        assert np.array_equal(np.concatenate(model.predict_proba(few)), np.concatenate(before))


@pytest.mark.filterwarnings("ignore:leave-one-out")
def test_leaving_sets_out_scores_them_as_sets_that_were_not_seen(gaussian, triples):
    cavity, psis = gaussian.loo(max_refits=0), gaussian.loo("psis")
    assert compare({"cavity": cavity}).loc["cavity", "elpd"] == cavity.elpd
    assert abs(cavity.elpd - psis.elpd) < 0.5 * cavity.se
    # As many other sets of the same objects, from the same person.
    assert abs(cavity.elpd - gaussian.log_prob(triples[1]).sum()) < 3.0 * cavity.se


def test_several_chosen_objects_are_a_clear_error(gaussian, triples):
    data = ChoiceData.from_sets([[0.0], [1.0], [2.0]], [[0, 1], [0, 1, 2], [1, 2]], [[1], [1, 2], [1, 2]])
    with pytest.raises(ChoiceGPError, match=r"set 1 has 2 chosen objects \(and 1 more.*data\.take, or use ChoiceGP"):
        BatchPreferenceGP(**QUICK).fit(data)
    with pytest.raises(ChoiceGPError, match="set 0 has 2 chosen objects"):
        gaussian.log_prob(ChoiceData.from_sets(triples[0].X, [[0, 1]], [[0, 1]]))


@pytest.mark.parametrize("noise", ["gauss", None, 1.0])
def test_an_unknown_noise_is_a_clear_error(noise, pairs):
    with pytest.raises(ChoiceGPError, match="noise must be one of gaussian, discernibility"):
        BatchPreferenceGP(noise).fit(pairs)

"""Joint inference: correlated utilities whose means and spread are those of the exact posterior."""

import numpy as np
import pytest
from scipy.special import ndtr

from choicegp import ChoiceData, ChoiceGP, ChoiceGPError, datasets
from choicegp.inference import joint
from choicegp.kernels import RBF

X = np.array([[0.0], [0.7], [2.0]])
OPTIONS = {
    "kernel": RBF(1.0, 9.0), "learn_hyperparameters": False, "standardize": False, "progress": False, "n_restarts": 2,
}  # fmt: skip


@pytest.fixture(scope="module")
def data():
    return ChoiceData.from_pairs(X, [[0, 2]])


@pytest.fixture(scope="module")
def exact():
    """Mean and standard deviation of u(0) - u(2) after one choice of 0 over 2, by quadrature."""
    variance = 2 * 9.0 * (1 - np.exp(-0.5 * 4.0))
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    step = np.sqrt(variance) * nodes
    weights = weights * ndtr(step)
    weights /= weights.sum()
    mean = step @ weights
    return mean, np.sqrt((step - mean) ** 2 @ weights)


def steps_of(model, n=8000):
    drawn = model.sample_utilities(X, n, random_state=0)[:, :, 0]
    return drawn[:, 0] - drawn[:, 2]


def test_one_set_has_the_exact_moments(data, exact, monkeypatch):
    monkeypatch.setattr(joint, "_FEWEST", np.inf)  # the Gaussian itself, unweighted
    found = steps_of(ChoiceGP(1, inference="joint", **OPTIONS).fit(data))
    assert [found.mean(), found.std()] == pytest.approx(exact, rel=0.04)
    narrow = steps_of(ChoiceGP(1, **OPTIONS).fit(data))
    assert narrow.std() < 0.97 * exact[1], "the variational posterior is too narrow: the test would see no difference"


def test_weighted_draws_are_skewed_as_the_posterior_is(data, exact):
    model = ChoiceGP(1, inference="joint", **OPTIONS).fit(data)
    found = steps_of(model)
    assert [found.mean(), found.std()] == pytest.approx(exact, rel=0.05)
    third = np.mean(((found - found.mean()) / found.std()) ** 3)
    assert third > 0.25, "Φ cuts the left side off"
    assert "of 16384 draws effective" in model.fit_result_.message
    assert model.fit_result_.status == "converged"


@pytest.fixture(scope="module")
def small():
    rng = np.random.default_rng(1)
    objects = rng.normal(size=(12, 2))
    U = 3.0 * np.column_stack([np.sin(objects[:, 0]), np.cos(objects[:, 1])])
    return datasets.noisy_choices(objects, U, datasets.random_sets(12, 30, 3, random_state=1), 1)


@pytest.fixture(scope="module")
def models(small):
    steps = {"dense": None, "joint": None, "mcmc": 500}
    return {name: ChoiceGP(2, inference=name, max_iter=n, **OPTIONS).fit(small) for name, n in steps.items()}


def test_it_is_nearer_to_sampling_than_dense_is(models, small):
    def spread(model):
        drawn = model.sample_utilities(small.X, 4000, random_state=0)
        return np.sort(np.diff(drawn, axis=1).std(axis=0), axis=1)  # utilities may be in any order

    truth = spread(models["mcmc"])
    errors = {name: np.abs(spread(models[name]) / truth - 1).mean() for name in ("dense", "joint")}
    assert errors["joint"] < 0.7 * errors["dense"]
    exact = np.concatenate(models["mcmc"].predict_proba(small))
    # Both average over 512 draws, whose errors are by a rough estimate half of this.
    assert np.abs(np.concatenate(models["joint"].predict_proba(small)) - exact).mean() < 0.035


def test_utilities_are_correlated(models, small):
    drawn = models["joint"].sample_utilities(small.X, 4000, random_state=0)
    steps = np.diff(drawn, axis=1)
    between = [abs(np.corrcoef(steps[:, i, 0], steps[:, i, 1])[0, 1]) for i in range(steps.shape[1])]
    assert max(between) > 0.1


def test_the_same_seed_gives_the_same_draws(small, models):
    again = ChoiceGP(2, inference="joint", **OPTIONS).fit(small)
    assert np.array_equal(again.posterior_.draws.dual, models["joint"].posterior_.draws.dual)


def test_a_joint_model_is_saved_and_loaded_whole(small, models, tmp_path):
    models["joint"].save(tmp_path / "model.cgp")
    loaded = ChoiceGP.load(tmp_path / "model.cgp")
    one, two = (np.concatenate(model.predict_proba(small)) for model in (loaded, models["joint"]))
    assert np.array_equal(one, two)


def test_mixed_sizes_weights_equal_objects_and_lapses(small):
    sets = [[0, 1], [2, 3, 4], [5, 6, 7], [8, 9], [10, 11], [0]]
    chosen = [[0], [2, 3], [5], [8], [10, 11], [0]]
    objects = small.X.copy()
    objects[9] = objects[8] + 1e-13  # a difference without variance
    data = ChoiceData.from_sets(objects, sets, chosen, weights=[1, 2, 1, 0.5, 1, 1])
    model = ChoiceGP(2, inference="joint", lapse=0.05, progress=False, max_iter=10, n_restarts=1).fit(data)
    assert np.isfinite(np.concatenate(model.predict_proba(data))).all()
    assert np.isfinite(model.elbo_)


def test_limits(small, models):
    short = ChoiceGP(2, inference="joint", max_iter=5, **OPTIONS).fit(small)
    assert short.fit_result_.status == "stopped"
    assert "the limit of 5 steps" in short.fit_result_.message
    timed = ChoiceGP(2, inference="joint", max_seconds=0.0, **OPTIONS).fit(small)
    assert "the time limit of 0 s" in timed.fit_result_.message
    with pytest.raises(ChoiceGPError, match="a posterior of draws has no sites to take out: use method='psis'"):
        models["joint"].loo()
    with pytest.raises(ChoiceGPError, match="diagnose a model with inference='dense'"):
        models["joint"].diagnose()


def test_large_problems_are_refused_at_once(small, monkeypatch):
    monkeypatch.setattr(joint, "MOST", 20)
    with pytest.raises(
        ChoiceGPError, match="2 utilities of 12 shown objects are more than 20 together; use inference='dense'"
    ):
        ChoiceGP(2, inference="joint", **OPTIONS).fit(small)

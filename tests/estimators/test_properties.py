"""What holds for every valid data set: finite answers, and no difference where none is."""

import copy

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from choicegp import ChoiceData, ChoiceGP
from choicegp.inference.posterior import Draws, Posterior
from choicegp.kernels import RBF

SLOW = settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
FEW = settings(SLOW, max_examples=5)


@st.composite
def choices(draw: st.DrawFn) -> ChoiceData:
    """Any sets of eight objects with two features, equal and huge values among them, any choices.

    Always six different objects, four pairs and four triples: other numbers would only be other programs to compile.
    """
    values = st.sampled_from([0.0, 1.0, -1.0, 0.5, 1e-9, 1e6, -3.25])
    different = draw(st.lists(st.tuples(values, values), min_size=6, max_size=6, unique=True))
    X = np.array([*different, *(draw(st.sampled_from(different)) for _ in range(2))])
    order = draw(st.permutations(range(8)))
    shown = [order[:3], order[3:6], order[6:]]  # so each is shown
    for size in (3, 3, 2, 2, 2):
        shown.append(draw(st.lists(st.integers(0, 7), min_size=size, max_size=size, unique=True)))
    chosen = [draw(st.lists(st.sampled_from(rows), min_size=1, max_size=len(rows), unique=True)) for rows in shown]
    return ChoiceData.from_sets(X, shown, chosen)


def quick(**options: object) -> ChoiceGP:
    return ChoiceGP(
        **{
            "n_utilities": 2,
            "intervals": "none",
            "object_effects": False,
            "n_restarts": 1,
            "max_iter": 60,
            "progress": False,
            **options,
        }
    )  # type: ignore[arg-type]


def check_finite_answers(data: ChoiceData) -> None:
    model = quick(max_iter=36).fit(data)
    assert np.isfinite(model.elbo_)
    assert model.fit_result_.status in ("converged", "stopped")
    for k, part in enumerate(model.predict_proba(data)):
        assert np.all((part >= 0) & (part <= 1))
        assert part.sum() >= 1 - 1e-6, f"set {k}: something is chosen"
    assert np.all(np.isfinite(model.log_prob(data)))
    assert all(len(rows) for rows in model.predict(data))
    utilities = model.utilities(data.X)
    assert np.all(np.isfinite(utilities.mean))
    assert np.all(np.isfinite(utilities.sd))


@SLOW
@given(data=choices())
def test_any_valid_data_fit_and_predict_finite_numbers(data):
    check_finite_answers(data)


def test_objects_that_are_all_equal_fit_and_predict_finite_numbers():
    check_finite_answers(ChoiceData.from_sets(np.ones((3, 2)), [[0, 1], [1, 2], [0, 2]], [[0], [1, 2], [0]]))


@pytest.fixture(scope="module")
def smooth():
    """Sixteen objects, forty sets: enough that there is one best answer."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(16, 2))
    U = np.column_stack([X[:, 0], X[:, 1]])
    return ChoiceData.from_utilities(X, U, [rng.choice(16, 3, replace=False) for _ in range(40)])


@pytest.fixture(scope="module")
def ranked(smooth):
    """The same objects and sets, chosen by one utility: its posterior has one mode, whatever the order of things."""
    return ChoiceData.from_utilities(smooth.X, smooth.X[:, :1] + 0.5 * smooth.X[:, 1:], smooth.shown)


HELD = {"kernel": RBF(2.0, 4.0), "learn_hyperparameters": False, "n_restarts": 3, "max_iter": 150, "tol": 1e-4}


@pytest.fixture(scope="module")
def fitted(smooth):
    return quick(**HELD).fit(smooth)


@pytest.fixture(scope="module")
def fitted_to_ranked(ranked):
    return quick(n_utilities=1, **HELD).fit(ranked)


@FEW
@given(seed=st.integers(0, 1000))
def test_the_order_of_objects_sets_and_members_does_not_matter(seed, ranked, fitted_to_ranked):
    rng = np.random.default_rng(seed)
    order, sets = rng.permutation(16), rng.permutation(len(ranked))
    place = np.argsort(order)
    shown = [rng.permutation(place[ranked.shown[k]]) for k in sets]
    shuffled = ChoiceData.from_sets(ranked.X[order], shown, [place[ranked.chosen[k]] for k in sets])
    one, other = fitted_to_ranked, quick(n_utilities=1, **HELD).fit(shuffled)
    # Sample points belong to places in the data: their integration error remains.
    assert other.elbo_ == pytest.approx(one.elbo_, abs=0.5)
    np.testing.assert_allclose(other.utilities(ranked.X).mean, one.utilities(ranked.X).mean, atol=0.15)


@pytest.mark.parametrize("shared", [False, True])
def test_the_order_of_utilities_does_not_matter(shared, smooth, fitted):
    """Predictions are symmetric in the utilities: swap them in the posterior."""
    fitted = fitted if shared else quick(shared_part=False, **HELD).fit(smooth)
    p = fitted.posterior_
    parts = [0, 2, 1] if shared else [1, 0]
    prior, draws = jax.tree.map(lambda leaf: leaf[parts], p.prior), p.draws
    if shared:
        draws = Draws(
            jax.tree.map(lambda leaf: leaf[:, parts], draws.prior), draws.dual[:, :, parts], draws.inverse[:, parts]
        )
    swapped = Posterior(prior, p.objects, p.mean[::-1], p.dual[parts], p.gain[::-1], p.lapse, draws)
    other = copy.copy(fitted)
    other.fitted_ = fitted.fitted_._replace(posterior=swapped)
    pairs = ChoiceData.from_sets(smooth.X, [[i, j] for i in range(4) for j in range(8, 12)])
    np.testing.assert_allclose(
        np.concatenate(other.predict_proba(pairs)), np.concatenate(fitted.predict_proba(pairs)),
        # Pairs have closed forms where utilities are independent, and are averages over draws otherwise.
        atol=1e-3 if shared else 1e-12,
    )  # fmt: skip
    np.testing.assert_allclose(
        np.concatenate(other.predict_proba(smooth)), np.concatenate(fitted.predict_proba(smooth)), atol=0.03
    )


@FEW
@given(scale=st.sampled_from([1e-6, 0.01, 7.0, 1e6]), shift=st.sampled_from([0.0, -3.0, 100.0]))
def test_the_scale_of_features_does_not_matter(scale, shift, smooth, fitted):
    X = smooth.X * scale + shift * scale
    other = quick(**HELD).fit(ChoiceData.from_sets(X, smooth.shown, smooth.chosen))
    assert other.elbo_ == pytest.approx(fitted.elbo_, abs=1e-3)
    np.testing.assert_allclose(other.utilities(X).mean, fitted.utilities(smooth.X).mean, atol=1e-3)


@FEW
@given(where=st.integers(0, 40), which=st.integers(0, 15))
def test_a_set_of_one_object_changes_nothing(where, which, smooth, fitted):
    shown, chosen = list(smooth.shown), list(smooth.chosen)
    shown.insert(where, np.array([which]))
    chosen.insert(where, np.array([which]))
    other = quick(**HELD).fit(ChoiceData.from_sets(smooth.X, shown, chosen))
    assert other.elbo_ == pytest.approx(fitted.elbo_, abs=1e-9)
    np.testing.assert_allclose(other.utilities(smooth.X).mean, fitted.utilities(smooth.X).mean, atol=1e-9)

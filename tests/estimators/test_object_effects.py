"""Object effects: what an object is beside its features, one effect per id."""

import numpy as np
import pandas as pd
import pytest

from choicegp import ChoiceData, HyperPriors
from choicegp.fitting import fit as fitting


def test_equal_features_with_different_ids_are_different_objects(twins, twin_table):
    good, bad = twin_table[::2], twin_table[1::2]
    assert np.all(twins.dominance_proba(good, bad)[:, 0] > 0.8)
    assert len(twins.posterior_.objects.X) == 16
    assert twins.fit_result_.notes == (), "nothing was merged"


def test_unseen_ids_have_the_variance_of_effects_alone(twins, twin_table):
    model, table = twins, twin_table
    new = table[:2].set_axis(["new a", "new b"])
    known, unseen = model.utilities(table[:2]), model.utilities(new)
    assert unseen.mean[0] == pytest.approx(unseen.mean[1]), "features alone decide"
    assert known.mean[1] < unseen.mean[0] < known.mean[0]
    assert np.all(unseen.sd > known.sd)
    effect = np.exp(model.posterior_.prior.log_effect_variance[0])
    assert np.all(unseen.sd**2 > effect)
    # Rows of an array have no ids: each is an object of its own, in both arguments.
    nobody = model.utilities(new.to_numpy())
    assert nobody.sd == pytest.approx(unseen.sd)
    for one, other in ((new[:1], new[1:]), (new[:1].to_numpy(), new[1:].to_numpy())):
        differences = model.dominance_proba(one, other)[0]
        assert differences == pytest.approx([0.5, 0.5, 0.0])


def test_one_id_at_two_prices_shares_its_effect(twins):
    effect = float(np.exp(twins.posterior_.prior.log_effect_variance[0]))
    prices = pd.DataFrame({"x": [0.2, 0.7]})

    def variance_of_difference(ids: list[str]) -> float:
        samples = twins.sample_utilities(prices.set_axis(ids), 4000)[:, :, 0]
        return float(np.var(samples[:, 0] - samples[:, 1]))

    same, different = variance_of_difference(["new", "new"]), variance_of_difference(["new", "other"])
    assert different - same == pytest.approx(2 * effect, rel=0.15)
    # A known id keeps its effect at a price it never had.
    elsewhere = pd.DataFrame({"x": [0.4, 0.4, 0.4]}, index=["good0", "bad0", "new"])
    good, bad, new = twins.utilities(elsewhere).mean[:, 0]
    assert bad < new < good


def test_dominance_between_unseen_objects_counts_both_effects(twins):
    one, other = (pd.DataFrame({"x": [x]}, index=[name]) for x, name in ((0.2, "new a"), (0.7, "new b")))
    apart = twins.dominance_proba(one, other)[0]
    together = twins.dominance_proba(one, other.set_axis(["new a"]))[0]
    assert abs(apart[0] - 0.5) < abs(together[0] - 0.5), "a shared effect cancels, two effects blur"
    arrays = twins.dominance_proba(one.to_numpy(), other.to_numpy())[0]
    assert arrays == pytest.approx(apart)


def test_row_numbers_are_no_names(quick):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(16, 1))
    pairs = [[i, j] for i in range(16) for j in range(16) if i % 2 == 0 and j % 2 == 1]
    model = quick(n_utilities=1, object_effects=True).fit(ChoiceData.from_pairs(X, pairs))
    known = model.utilities(ChoiceData.from_sets(X, [[0, 1]]))
    assert known.mean[0] > known.mean[1], "the same table has the same objects"
    others = np.full((16, 1), 0.123)
    fresh = model.utilities(ChoiceData.from_sets(others, [[0, 1]]))
    np.testing.assert_allclose(fresh.mean, np.full((16, 1), fresh.mean[0, 0]), err_msg="others, for all their numbers")
    assert np.all(fresh.sd > known.sd.min())


# Effects by evidence


def pairs_of(own: float) -> ChoiceData:
    """Return pairs of 16 objects of which each has, beside what its feature says, something of its own."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(16, 1))
    shown = [rng.choice(16, 2, replace=False) for _ in range(120)]
    return ChoiceData.from_utilities(X, 3.0 * X + own * rng.normal(size=(16, 1)), shown)


def test_the_fit_keeps_effects_where_features_do_not_say_everything(quick):
    data = pairs_of(3.0)
    plain, forced, decided = (quick(n_utilities=1, object_effects=how).fit(data) for how in (False, True, "auto"))
    assert decided.fitted_.has_effects
    assert not plain.fitted_.has_effects
    assert decided.elbo_ > plain.elbo_ + 10.0
    assert decided.elbo_ == pytest.approx(forced.elbo_, abs=1.0)
    assert decided.score(data) > plain.score(data)
    assert float(np.exp(decided.posterior_.prior.log_effect_variance[0])) > 1.0


def test_the_fit_drops_effects_where_the_evidence_is_clearly_against_them(quick):
    """These hyperpriors insist on large effects, and the feature says everything."""
    data, insist = pairs_of(0.0), HyperPriors(effect_variance=(5.0, 0.01))
    plain, forced, decided = (
        quick(n_utilities=1, object_effects=how, hyperpriors=insist, max_iter=90).fit(data)
        for how in (False, True, "auto")
    )
    assert forced.elbo_ < plain.elbo_ - 5.0
    assert not decided.fitted_.has_effects
    assert decided.elbo_ == plain.elbo_
    assert np.array_equal(decided.log_prob(data), plain.log_prob(data))


def test_effects_are_kept_where_the_evidence_does_not_decide(quick, monkeypatch):
    data = pairs_of(0.0)
    plain, decided = (quick(n_utilities=1, object_effects=how).fit(data) for how in (False, "auto"))
    assert plain.elbo_ - 5.0 < decided.elbo_
    assert decided.fitted_.has_effects
    monkeypatch.setattr(fitting, "_AGAINST_EFFECTS", plain.elbo_ - decided.elbo_ - 0.01)
    assert not quick(n_utilities=1, object_effects="auto").fit(data).fitted_.has_effects


def test_effects_are_left_out_where_nothing_is_learned_or_inference_is_not_dense(quick, half):
    assert not quick(object_effects="auto", learn_hyperparameters=False).fit(half).fitted_.has_effects
    paper = quick(object_effects="auto", inference="paper-converged", max_iter=2).fit(half)
    assert not paper.fitted_.has_effects


def test_effects_are_not_tried_where_they_would_make_too_many_objects(quick, monkeypatch):
    """Objects equal in features are one without effects, and each its own with them."""
    rng = np.random.default_rng(0)
    X = np.repeat(np.linspace(-1.0, 1.0, 5), 8)[:, None]
    data = ChoiceData.from_pairs(X, [sorted(rng.choice(40, 2, replace=False), reverse=True) for _ in range(60)])
    monkeypatch.setattr(fitting, "AUTO_DENSE", 20)
    assert not quick(n_utilities=1, object_effects="auto").fit(data).fitted_.has_effects
    monkeypatch.setattr(fitting, "AUTO_DENSE", 40)
    assert quick(n_utilities=1, object_effects="auto").fit(data).fitted_.has_effects

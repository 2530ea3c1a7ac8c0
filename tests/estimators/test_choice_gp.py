"""Every question that a fitted ChoiceGP answers."""

from itertools import chain, combinations

import numpy as np
import pandas as pd
import pytest

from choicegp import ChoiceData, ChoiceDataError, ChoiceGPError, datasets

from .conftest import equal


def close(one: list[np.ndarray], other: list[np.ndarray], tolerance: float) -> bool:
    return all(np.allclose(a, b, atol=tolerance) for a, b in zip(one, other, strict=True))


def named(data: ChoiceData) -> pd.DataFrame:
    """Return the objects of an array as a table; an array's columns are called x0, x1."""
    return pd.DataFrame(data.X, columns=data.feature_names, index=[f"object {i}" for i in range(len(data.X))])


# What would be chosen


def subsets(rows: np.ndarray) -> list[tuple[int, ...]]:
    return list(chain.from_iterable(combinations(rows.tolist(), k) for k in range(1, len(rows) + 1)))


def test_the_prediction_is_the_most_probable_of_all_subsets(model, data):
    rows = data.shown[0]
    every = subsets(rows)
    probability = np.exp(model.log_prob(ChoiceData.from_sets(data.X, [rows] * 7, every), normalized=True))
    assert probability.sum() == pytest.approx(1.0)
    one = data.take([0])
    assert tuple(model.predict(one)[0]) == every[int(np.argmax(probability))]
    marginal = [sum(p for p, subset in zip(probability, every, strict=True) if row in subset) for row in rows]
    assert model.predict_proba(one)[0] == pytest.approx(marginal)


def test_predictions_are_aligned_with_sets_of_any_size(model, data):
    shown = [[3, 1, 2], [5], [9, 4], [1, 2, 3], [0, 7], [15, 14, 13]]
    mixed = ChoiceData.from_sets(data.X, shown)
    probability, predicted = model.predict_proba(mixed), model.predict(mixed)
    assert [len(p) for p in probability] == [3, 1, 2, 3, 2, 3]
    for rows, p, chosen in zip(shown, probability, predicted, strict=True):
        assert chosen.dtype.kind == "i"
        assert len(chosen) > 0
        assert set(chosen) <= set(rows)
        assert np.all((p >= 0) & (p <= 1))
        assert p.sum() >= 1 - 1e-9, "something is always chosen"
    assert probability[1] == [1.0]
    # The same objects in another order: only the sample points differ.
    assert probability[0] == pytest.approx(probability[3][[2, 0, 1]], abs=0.02)
    alone = model.predict_proba(mixed.take([4]))
    assert alone[0] == pytest.approx(probability[4], abs=1e-12)


def test_choices_are_not_needed_and_not_used(model, data):
    bare = ChoiceData.from_sets(data.X, data.shown)
    assert not bare.has_choices
    assert equal(model.predict(bare), model.predict(data))
    assert equal(model.predict_proba(bare), model.predict_proba(data))
    for method in (model.log_prob, model.score):
        with pytest.raises(ChoiceGPError, match="choices"):
            method(bare)


def test_rows_are_those_of_the_table_that_is_asked_about(model, data):
    order = np.random.default_rng(1).permutation(len(data.X))
    place = np.argsort(order)
    moved = ChoiceData.from_sets(data.X[order], [place[rows] for rows in data.shown])
    back = [order[rows] for rows in model.predict(moved)]
    assert equal(back, model.predict(data))
    assert close(model.predict_proba(moved), model.predict_proba(data), 1e-9)


def test_unseen_objects(model):
    X = np.random.default_rng(5).normal(size=(6, 2))
    new = ChoiceData.from_sets(X, [[0, 1, 2], [3, 4, 5]], object_ids=list("abcdef"))
    assert all(np.isfinite(p).all() for p in model.predict_proba(new))
    far = model.utilities([[1e9, -1e9]])
    prior = model.posterior_.prior
    # Of the object itself nothing is known but the prior; values are relative to the mean of the shown objects.
    own = np.asarray(prior.total(prior.variance(model.fitted_.objects([[1e9, -1e9]]))))[:, 0]
    level = model.sample_utilities(model.data_, 4096).mean(axis=1)
    assert far.mean[0] == pytest.approx(-np.asarray(model.posterior_.mean).mean(axis=1), abs=1e-4)
    assert far.sd[0] ** 2 == pytest.approx(own + level.var(axis=0), rel=0.01)


def test_log_prob(model, data):
    paper, normalized = model.log_prob(data), model.log_prob(data, normalized=True)
    assert paper.shape == normalized.shape == (24,)
    assert np.all(paper <= 0)
    assert np.all(normalized <= 0)
    pairs = ChoiceData.from_pairs(data.X, [[0, 1], [5, 2]])
    # For two objects the likelihood sums to one as it is.
    assert np.exp(model.log_prob(pairs)) == pytest.approx(np.exp(model.log_prob(pairs, normalized=True)), abs=0.01)
    wide = ChoiceData.from_sets(np.repeat(data.X, 2, axis=0), [range(17)], [[0]])
    with pytest.raises(ChoiceGPError, match=r"has 17 objects.*normalized=False"):
        model.log_prob(wide, normalized=True)


def test_score_is_the_share_of_exact_sets(model, data):
    predicted = model.predict(data)
    right = [set(rows) == set(chosen) for rows, chosen in zip(predicted, data.chosen, strict=True)]
    assert model.score(data) == np.mean(right)
    assert 0.5 < model.score(data) <= 1.0


def test_predict_frame_with_words_for_ids_and_respondents(model, data):
    frame = named(data)
    asked = ChoiceData.from_sets(
        frame, [["object 2", "object 0"], ["object 5", "object 1", "object 3"]], by="id",
        set_ids=["monday", "tuesday"], respondents=["ann", "bob"],
    )  # fmt: skip
    table = model.predict_frame(asked)
    assert list(table.columns) == ["set", "object", "probability", "chosen"]
    assert table["set"].tolist() == ["monday"] * 2 + ["tuesday"] * 3
    assert table["object"].tolist() == ["object 2", "object 0", "object 5", "object 1", "object 3"]
    assert np.array_equal(table["probability"], np.concatenate(model.predict_proba(asked)))
    assert set(table["chosen"]) <= {0, 1}
    chosen = table.loc[table["chosen"] == 1]
    expected = np.concatenate(model.predict(asked))
    assert sorted(chosen["object"]) == sorted(asked.object_ids[expected])


def test_predict_frame_with_one_id_at_two_prices(model):
    frame = pd.DataFrame(
        {"choice_id": [7, 7, 8, 8], "alt_id": ["pen", "ink", "ink", "pen"],
         "x0": [0.1, 0.4, 0.4, 1.9], "x1": [1.0, 0.0, 0.0, -2.0]}
    )  # fmt: skip
    asked = ChoiceData.from_long(frame, chosen=None)
    assert asked.object_ids.tolist().count("pen") == 2
    table = model.predict_frame(asked)
    assert table[["set", "object"]].to_numpy().tolist() == [[7, "pen"], [7, "ink"], [8, "ink"], [8, "pen"]]
    assert table["probability"][0] != table["probability"][3]


# Utilities


def test_utilities_take_tables_arrays_lists_and_choice_data(model, data):
    mean, sd, lower, upper = model.utilities(data)
    assert mean.shape == sd.shape == lower.shape == upper.shape == (16, 2)
    assert np.all(sd > 0)
    assert np.all((lower < mean) & (mean < upper))
    level = np.asarray(model.posterior_.mean).mean(axis=1)
    assert mean == pytest.approx(model.posterior_.mean.T[np.argsort(np.argsort(data.X[:, 0]))] - level, abs=1e-4)
    table = named(data)
    for same in (data.X, data.X.tolist(), table, table[["x1", "x0"]]):
        for one, other in zip(model.utilities(same), (mean, sd, lower, upper), strict=True):
            assert np.array_equal(one, other)
    many = model.utilities(np.tile(data.X, (130, 1)))
    assert many.mean.shape == (2080, 2), "more rows than one chunk"
    assert many.mean[-16:] == pytest.approx(mean)


def test_samples_have_the_posterior_moments(model, data):
    samples = model.sample_utilities(data.X, 4000, random_state=3)
    assert samples.shape == (4000, 16, 2)
    assert np.array_equal(samples, model.sample_utilities(named(data), 4000, random_state=3))
    assert not np.array_equal(samples, model.sample_utilities(data, 4000, random_state=4))
    mean, sd, _, _ = model.utilities(data.X)
    # Relative to the mean of the shown objects, which all of these are.
    samples -= samples.mean(axis=1, keepdims=True)
    assert np.all(np.abs(samples.mean(axis=0) - mean) < 5 * sd / np.sqrt(4000))
    assert samples.std(axis=0) == pytest.approx(sd, rel=0.08)


def test_dominance(model, data):
    first, second = data.X[:8], data.X[8:]
    forward, backward = model.dominance_proba(first, second), model.dominance_proba(second, first)
    assert forward.shape == (8, 3)
    assert np.all(forward >= 0)
    assert forward.sum(axis=1) == pytest.approx(np.ones(8))
    # With a shared part both are averages over draws; closed forms are as exact as rounding (tests/prediction).
    assert forward == pytest.approx(backward[:, [1, 0, 2]], abs=1e-3)
    pairs = ChoiceData.from_sets(data.X, [[i, i + 8] for i in range(8)])
    kept = np.array(model.predict_proba(pairs))
    assert 1 - kept[:, 1] == pytest.approx(forward[:, 0], abs=1e-8), "a rejected object of a pair is dominated"
    table = named(data)
    assert np.array_equal(model.dominance_proba(table[:8], table[8:]), forward)
    with pytest.raises(ChoiceGPError, match="X1 has 8 rows and X2 3"):
        model.dominance_proba(first, second[:3])


def test_recommend_gives_as_many_as_asked_for(model, data):
    X = np.vstack([data.X, data.X[:4] - 30.0])
    table = model.recommend(X, n=20)
    assert len(table) == 20
    assert table["probability"].is_monotonic_decreasing
    assert len(model.recommend(X, n=50)) == len(X)


def test_recommend(model, data):
    table = model.recommend(named(data), n=5)
    assert list(table.columns) == ["probability", "utility 1", "utility 2"]
    assert len(table) == 5
    assert table["probability"].is_monotonic_decreasing
    rows = [int(name.split()[1]) for name in table.index]
    assert np.array_equal(table[["utility 1", "utility 2"]], model.utilities(data).mean[rows])
    # The same question to samples, answered by brute force.
    u = model.sample_utilities(data, 3000, random_state=1)
    above = (u[:, :, None] >= u[:, None]).all(-1) & (u[:, :, None] > u[:, None]).any(-1)
    undominated = 1 - above.any(axis=1).mean(axis=0)
    assert table["probability"].to_numpy() == pytest.approx(undominated[rows], abs=0.06)
    assert undominated[rows].min() > np.delete(undominated, rows).max() - 0.06
    assert model.recommend(data.X, 3).index.tolist() == rows[:3]
    assert model.recommend(data, 3).index.tolist() == data.object_ids[rows[:3]].tolist()
    assert len(model.recommend(data, 1000)) <= 16


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda m, X: m.recommend(X, 0), "n must be a whole number of at least 1; got 0"),
        (lambda m, X: m.recommend(X, True), "n must be a whole number of at least 1; got True"),
        (lambda m, X: m.recommend(X, 2.0), "n must be a whole number of at least 1; got 2.0"),
        (lambda m, X: m.recommend(X, random_state=-1), "random_state must be a whole number"),
        (lambda m, X: m.sample_utilities(X, 0), "n_samples must be a whole number of at least 1"),
        (lambda m, X: m.sample_utilities(X, 3, random_state=-1), "random_state must be a whole number"),
        (lambda m, X: m.utilities(X[:, :1]), "the array has 1 columns instead of 2: 'x0', 'x1'"),
        (lambda m, X: m.utilities(X[0]), "must have two dimensions"),
        (lambda m, X: m.utilities(X[:0]), "has no rows"),
        (lambda m, X: m.utilities(X * np.nan), "feature 'x0' is missing"),
        (lambda m, X: m.utilities(None), "not None"),
        (lambda m, X: m.utilities(pd.DataFrame(X, columns=["x0", "price"])), "'price' not known"),
        (lambda m, X: m.predict(X), "a ChoiceData is needed; got ndarray"),
        (lambda m, X: m.score(None), "a ChoiceData is needed; got NoneType"),
        (
            lambda m, X: m.predict(ChoiceData.from_sets(np.column_stack([X, X]), [[0, 1]])),
            "the objects have 4 features instead of 2",
        ),
    ],
)
def test_wrong_questions_get_clear_answers(call, says, model, data):
    with pytest.raises(ChoiceGPError, match=says):
        call(model, data.X)


# Words as features, and how good predictions are


def test_categories_are_encoded_as_in_training(alice_model):
    catalogue = datasets.laptops(40, random_state=5)
    british = (catalogue["keyboard"] == "uk").to_numpy()
    assert 3 < british.sum() < 40
    some = ChoiceData.from_sets(catalogue[british], [[0, 1, 2]])
    assert len(some.feature_names) < len(alice_model.encoding_.feature_names)
    every = alice_model.utilities(catalogue)
    assert alice_model.utilities(some).mean == pytest.approx(every.mean[british])
    columns = list(catalogue.columns[::-1])
    assert np.array_equal(alice_model.utilities(catalogue[columns]).mean, every.mean)
    whole = ChoiceData.from_sets(catalogue, [np.flatnonzero(british)[:3]])
    assert close(alice_model.predict_proba(some), alice_model.predict_proba(whole), 1e-9)


def test_an_unknown_category_is_named(alice_model):
    catalogue = datasets.laptops(5).assign(keyboard="fr")
    with pytest.raises(ChoiceDataError, match="'fr'"):
        alice_model.utilities(catalogue)
    with pytest.raises(ChoiceDataError, match="'fr'"):
        alice_model.predict(ChoiceData.from_sets(catalogue, [[0, 1]]))
    with pytest.raises(ChoiceGPError, match="'keyboard' missing"):
        alice_model.utilities(catalogue.drop(columns="keyboard"))
    with pytest.raises(ChoiceGPError, match="came as an array"):
        alice_model.predict(ChoiceData.from_sets(np.zeros((2, 7)), [[0, 1]]))


def baselines(data: ChoiceData) -> float:
    """Return the better of two scores: everything is chosen, or a subset is drawn at random."""
    everything = np.mean([len(c) == len(s) for c, s in zip(data.chosen, data.shown, strict=True)])
    return max(everything, np.mean([1 / (2 ** len(rows) - 1) for rows in data.shown]))


def test_alice_is_understood(alice, alice_model):
    train, test = alice
    assert alice_model.score(train) > 0.85
    assert alice_model.score(test) > baselines(test) + 0.25
    assert alice_model.log_prob(test, normalized=True).mean() > np.log(1 / 7) + 0.5


def test_sincos_is_learned(quick):
    train, test = datasets.sincos(n_objects=40, n_sets=160).data.split(60, random_state=0)
    model = quick(max_iter=60, n_restarts=2).fit(train)
    assert model.score(test) > baselines(test) + 0.3

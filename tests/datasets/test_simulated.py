import numpy as np
import pytest

from choicegp import ChoiceData, ChoiceGPError, datasets
from choicegp.data.pareto import undominated

GENERATORS = {
    "sincos": lambda random_state: datasets.sincos(n_sets=20, random_state=random_state),
    "counterexample": lambda random_state: datasets.counterexample(random_state=random_state),
    "gp": lambda random_state: datasets.gp_utilities(n_sets=20, random_state=random_state),
    "alice": lambda random_state: datasets.alice_choices(n_sets=20, random_state=random_state),
    "dtlz2": lambda random_state: datasets.benchmark_choices("dtlz2", 20, random_state=random_state),
}


def rows(sets):
    return [np.asarray(one).tolist() for one in sets]


def test_facade_exports_what_it_lists():
    assert sorted(datasets.__all__) == datasets.__all__
    for name in datasets.__all__:
        assert getattr(datasets, name).__doc__
        assert f"`{name}`" in datasets.__doc__


@pytest.mark.parametrize("name", GENERATORS)
def test_generators_are_repeatable_and_named(name):
    first, again, other = (GENERATORS[name](seed) for seed in (3, 3, 4))
    assert first.name == name
    assert isinstance(first.data, ChoiceData)
    np.testing.assert_array_equal(first.data.X, again.data.X)
    np.testing.assert_array_equal(first.U, again.U)
    assert rows(first.data.shown) == rows(again.data.shown)
    assert rows(first.data.chosen) == rows(again.data.chosen)
    assert not np.array_equal(first.U, other.U)


@pytest.mark.parametrize("name", GENERATORS)
def test_answers_are_the_undominated_part_of_each_set(name):
    data, U, _ = GENERATORS[name](0)
    assert len(U) == len(data.X)
    for shown, chosen in zip(data.shown, data.chosen, strict=True):
        shown = np.asarray(shown)
        assert len(set(shown.tolist())) == len(shown)
        assert sorted(chosen) == sorted(shown[undominated(U[shown])])


def test_random_sets_of_one_size():
    sets = datasets.random_sets(7, 200, 4)
    assert len(sets) == 200
    assert all(len(set(one.tolist())) == 4 for one in sets)
    assert {i for one in sets for i in one.tolist()} == set(range(7))
    assert rows(sets) == rows(datasets.random_sets(7, 200, 4, random_state=0))
    assert rows(sets) != rows(datasets.random_sets(7, 200, 4, random_state=1))


def test_random_sets_of_several_sizes_use_every_size():
    sizes = [len(one) for one in datasets.random_sets(9, 300, (2, 5))]
    assert {size: sizes.count(size) > 40 for size in sizes} == {2: True, 3: True, 4: True, 5: True}


def test_random_sets_show_every_object_equally_often():
    counts = np.bincount(np.concatenate(datasets.random_sets(10, 5000, 3)), minlength=10)
    # Binomial(5000, 0.3): mean 1500, standard deviation 32.
    assert np.all(np.abs(counts - 1500) < 5 * 32.4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1, 5, 2), "n_objects must be a whole number of at least 2; got 1"),
        ((5.0, 5, 2), "n_objects must be a whole number of at least 2; got 5.0"),
        ((5, 0, 2), "n_sets must be a whole number of at least 1; got 0"),
        ((5, True, 2), "n_sets must be .* got True"),
        ((5, 5, 1), "set_size must be a whole number of at least 2; got 1"),
        ((5, 5, 6), "set_size 6 is more than the 5 objects"),
        ((5, 5, "3"), "set_size must be a whole number of at least 2; got '3'"),
        ((5, 5, (2, 3, 4)), r"\(smallest, largest\)"),
        ((5, 5, (4, 3)), "the largest set_size must be a whole number of at least 4; got 3"),
        ((5, 5, (1, 3)), "the smallest set_size must be a whole number of at least 2; got 1"),
        ((5, 5, (2, 6)), "set_size 6 is more than the 5 objects"),
        ((5, 5, 2, -1), "random_state must be a whole number of at least 0; got -1"),
        ((5, 5, 2, 1.5), "random_state must be .* got 1.5"),
    ],
)
def test_random_sets_refuse(arguments, message):
    with pytest.raises(ChoiceGPError, match=message):
        datasets.random_sets(*arguments)


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: datasets.random_sets(30, 20, random_state=seed),
        lambda seed: [datasets.sincos(random_state=seed).U],
        lambda seed: [datasets.counterexample(random_state=seed).U],
        lambda seed: [datasets.gp_utilities(random_state=seed).U],
        lambda seed: [datasets.inconsistent_preferences(random_state=seed).U],
        lambda seed: datasets.noisy_choices(np.eye(3), np.eye(3), [[0, 1, 2]] * 200, random_state=seed).chosen,
        lambda seed: [datasets.vehicle(random_state=seed).U],
        lambda seed: [datasets.alice_choices(random_state=seed).U],
    ],
)
def test_without_a_seed_every_data_set_is_a_new_one(make):
    first, second = (np.concatenate([np.ravel(part) for part in make(None)]) for _ in range(2))
    assert not np.array_equal(first, second)
    assert np.array_equal(*(np.concatenate([np.ravel(part) for part in make(3)]) for _ in range(2)))


def test_all_pairs():
    pairs = datasets.all_pairs(4)
    assert pairs.tolist() == [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]
    assert len(datasets.all_pairs(50)) == 1225
    with pytest.raises(ChoiceGPError, match="n_objects"):
        datasets.all_pairs(1)


def test_sincos_example_of_the_paper():
    X = np.array([[0.0], [0.5], [2.36]])
    U = datasets.sincos_utilities(X)
    np.testing.assert_allclose(U, [[1, 0], [0.54, -0.84], [0, 1]], atol=0.01)
    data = ChoiceData.from_utilities(X, U, [[0, 1, 2]])
    assert sorted(data.chosen[0]) == [0, 2]


def test_sincos_shapes_and_range():
    data, U, _ = datasets.sincos(n_objects=500, n_sets=60, set_size=(3, 5), random_state=1)
    assert data.X.shape == (500, 1)
    assert U.shape == (500, 2)
    assert len(data) == 60
    assert -4.5 <= data.X.min() < -4.4
    assert 4.4 < data.X.max() <= 4.5
    np.testing.assert_array_equal(U, datasets.sincos_utilities(data.X))
    assert {len(shown) for shown in data.shown} == {3, 4, 5}


def test_counterexample_has_one_winner_per_pair():
    data, U, _ = datasets.counterexample()
    assert data.X.shape == (150, 1)
    assert len(data) == 500
    assert -2.6 <= data.X.min() < -2.5
    assert 2.5 < data.X.max() <= 2.6
    assert all(len(shown) == 2 and len(chosen) == 1 for shown, chosen in zip(data.shown, data.chosen, strict=True))
    # u(pi / 5) = cos(pi) + exp(-pi^2 / 200)
    value = datasets.counterexample_utility([np.pi / 5]).item()
    assert value == pytest.approx(-1 + 0.95185, abs=1e-5)
    np.testing.assert_array_equal(U, datasets.counterexample_utility(data.X))


@pytest.mark.parametrize("utilities", [datasets.sincos_utilities, datasets.counterexample_utility])
def test_one_feature_utilities_refuse_more(utilities):
    assert len(utilities([0.0, 1.0])) == len(utilities([[0.0], [1.0]])) == 2
    with pytest.raises(ChoiceGPError, match=r"one feature.*\(3, 2\)"):
        utilities(np.zeros((3, 2)))


def test_gp_utilities_have_the_moments_of_their_prior():
    simulated = datasets.gp_utilities(40, 1, 4000, n_sets=1, lengthscale=0.7)
    x = simulated.data.X[:, 0]
    expected = np.exp(-((x[:, None] - x[None, :]) ** 2) / (2 * 0.7**2))
    np.testing.assert_allclose(simulated.U @ simulated.U.T / 4000, expected, atol=0.1)


def test_gp_utilities_ignore_a_feature_with_a_long_lengthscale():
    data, U, _ = datasets.gp_utilities(60, 2, 1, n_sets=1, lengthscale=(1e6, 1.0))
    order = np.argsort(data.X[:, 1])
    # A smooth function of the second feature alone: neighbours along it are close.
    gaps = np.diff(data.X[order, 1])
    assert np.all(np.abs(np.diff(U[order, 0])) <= 4 * gaps + 1e-3)


@pytest.mark.parametrize("lengthscale", [0.0, -1.0, np.nan, [1.0, 2.0, 3.0]])
def test_gp_utilities_refuse_a_bad_lengthscale(lengthscale):
    with pytest.raises(ChoiceGPError, match=r"lengthscale must be a positive number.*2 features"):
        datasets.gp_utilities(lengthscale=lengthscale)


@pytest.mark.parametrize("name", ["n_objects", "n_features", "n_utilities", "n_sets", "set_size"])
def test_gp_utilities_refuse_zero(name):
    with pytest.raises(ChoiceGPError, match=name):
        datasets.gp_utilities(**{name: 0})


def inconsistent(**arguments):
    return datasets.inconsistent_preferences(**{"n_objects": 20, "sparsity": 0.3} | arguments)


def test_inconsistent_preferences_split_all_pairs_by_sparsity():
    simulated = inconsistent()
    train, test = simulated.pareto_train, simulated.pareto_test
    assert len(test) == 57  # 30% of 190
    assert len(train) == 133
    seen = sorted(tuple(sorted(shown)) for part in (train, test) for shown in rows(part.shown))
    assert seen == [tuple(pair) for pair in datasets.all_pairs(20).tolist()]
    assert rows(simulated.forced_train.shown) == rows(train.shown)
    assert rows(simulated.forced_test.shown) == rows(test.shown)
    np.testing.assert_array_equal(simulated.forced_train.X, test.X)


def test_inconsistent_preferences_follow_their_definition():
    simulated = inconsistent(n_classes=3)
    U, classes = simulated.U, simulated.classes
    column = {frozenset(pair): k for k, pair in enumerate(simulated.class_pairs.tolist())}
    assert U.shape == (20, 6)
    assert len(column) == 6
    assert set(classes.tolist()) == {0, 1, 2}
    for forced, pareto in (
        (simulated.forced_train, simulated.pareto_train),
        (simulated.forced_test, simulated.pareto_test),
    ):
        for (i, j), winner, kept in zip(rows(pareto.shown), forced.chosen, pareto.chosen, strict=True):
            k = column[frozenset((classes[i], classes[j]))]
            assert winner.tolist() == [i if U[i, k] > U[j, k] else j]
            expected = [i] if np.all(U[i] > U[j]) else [j] if np.all(U[j] > U[i]) else [i, j]
            assert sorted(kept.tolist()) == sorted(expected)


def test_one_class_gives_one_utility_and_equal_answers():
    simulated = inconsistent(n_classes=1)
    assert simulated.U.shape == (20, 1)
    assert rows(simulated.forced_train.chosen) == rows(simulated.pareto_train.chosen)
    assert rows(simulated.forced_test.chosen) == rows(simulated.pareto_test.chosen)


def test_two_classes_give_circular_forced_answers():
    simulated = inconsistent()
    assert simulated.U.shape == (20, 3)
    assert simulated.class_pairs.tolist() == [[0, 0], [0, 1], [1, 1]]
    beats = np.zeros((20, 20), dtype=int)
    for part in (simulated.forced_train, simulated.forced_test):
        for shown, chosen in zip(rows(part.shown), rows(part.chosen), strict=True):
            (loser,) = set(shown) - set(chosen)
            beats[chosen[0], loser] = 1
    assert np.trace(beats @ beats @ beats) > 0
    sizes = [len(chosen) for chosen in simulated.pareto_train.chosen]
    assert sizes.count(2) > sizes.count(1) > 0


def test_inconsistent_preferences_are_repeatable():
    first, again, other = inconsistent(), inconsistent(), inconsistent(random_state=1)
    np.testing.assert_array_equal(first.U, again.U)
    assert rows(first.forced_train.chosen) == rows(again.forced_train.chosen)
    assert not np.array_equal(first.U, other.U)


@pytest.mark.parametrize("sparsity", [0, 1, -0.1, 1.5, np.nan, "0.4", True])
def test_inconsistent_preferences_refuse_a_bad_sparsity(sparsity):
    with pytest.raises(ChoiceGPError, match="fraction of the pairs left out of training"):
        inconsistent(sparsity=sparsity)


@pytest.mark.parametrize("sparsity", [0.001, 0.999])
def test_both_parts_keep_a_pair(sparsity):
    simulated = inconsistent(n_objects=3, sparsity=sparsity)
    assert sorted([len(simulated.pareto_train), len(simulated.pareto_test)]) == [1, 2]


@pytest.mark.parametrize("name", ["n_objects", "n_features", "n_classes"])
def test_inconsistent_preferences_refuse_zero(name):
    with pytest.raises(ChoiceGPError, match=name):
        inconsistent(**{name: 0})

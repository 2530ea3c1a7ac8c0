"""The search of sets: what greedy growth finds, swaps never lose, and what must not be shown is not found."""

import itertools
import math
import time

import numpy as np
import pytest

from choicegp.elicitation.growing import search


def tangled(n, seed=0):
    """Return a value of sets that has local optima: pairs have values of their own, of either sign."""
    pair = np.random.default_rng(seed).normal(size=(n, n))

    def value(sets):
        return sum(pair[sets[:, i], sets[:, j]] for i, j in itertools.combinations(range(sets.shape[1]), 2))

    return value


def test_few_sets_are_all_valued():
    found = search(tangled(10), 10, 3)
    assert len(found.sets) == math.comb(10, 3)
    assert found.complete
    assert np.all(np.diff(found.values) <= 0)
    assert len({frozenset(one) for one in found.sets.tolist()}) == len(found.sets)


@pytest.mark.parametrize("size", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("seed", range(5))
def test_swaps_never_lose_and_end_where_none_helps(size, seed):
    value = tangled(50, seed)
    grown, swapped = (search(value, 50, size, swaps=swaps) for swaps in (False, True))
    assert swapped.values[0] >= grown.values[0]
    best = swapped.sets[0]
    assert len(set(best.tolist())) == size
    for place in range(size):
        others = np.setdiff1d(np.arange(50), best)
        near = np.sort(np.column_stack([np.tile(np.delete(best, place), (len(others), 1)), others]), axis=1)
        assert np.max(value(near)) <= swapped.values[0] + 1e-5


def test_greedy_growth_takes_the_best_pair_and_then_what_gains_most():
    value = tangled(40)
    found = search(value, 40, 3, swaps=False)
    pairs = np.array(list(itertools.combinations(range(40), 2)))
    pair = pairs[np.argmax(value(pairs))]
    assert set(pair.tolist()) <= set(found.sets[0].tolist())


def test_a_start_can_only_help():
    value = tangled(50, 3)
    starts = np.array([[0, 1, 2, 3], [4, 5, 6, 7]])
    assert search(value, 50, 4, starts=starts).values[0] >= search(value, 50, 4).values[0]


@pytest.mark.parametrize("n", [8, 60])
def test_banned_sets_are_not_found(n):
    value, banned = tangled(n), set()
    for _ in range(10):
        best = frozenset(search(value, n, 3, banned=banned).sets[0].tolist())
        assert best not in banned
        banned.add(best)


def test_nothing_is_found_where_everything_is_banned():
    banned = {frozenset(one) for one in itertools.combinations(range(5), 2)}
    assert len(search(tangled(5), 5, 2, banned=banned).sets) == 0


def test_the_first_of_equal_sets_is_taken():
    assert search(lambda sets: np.zeros(len(sets)), 60, 4).sets[0].tolist() == [0, 1, 2, 3]


def test_time_is_kept():
    def slow(sets):
        time.sleep(0.02)
        return np.zeros(len(sets))

    begun = time.monotonic()
    found = search(slow, 60, 4, starts=np.array([[0, 1, 2, 3]]), deadline=begun + 0.05)
    assert time.monotonic() - begun < 0.5
    assert not found.complete
    assert found.sets[0].tolist() == [0, 1, 2, 3]

"""Sets as arrays, against loops over the sets; joined moments against the moments of the whole."""

import numpy as np
import pytest

from choicegp.data.packing import FeatureScaling, padded_places, sets_by_shape, sets_by_size, split_sets


@pytest.fixture(params=range(6))
def ragged(request):
    """Return offsets of sets of different sizes (one kind has empty sets), marks, and a generator."""
    rng = np.random.default_rng(request.param)
    sizes = rng.integers(0 if request.param % 2 else 1, 2 + request.param, size=40)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return offsets, rng.random(offsets[-1]) < 0.5, rng


def test_split_sets(ragged):
    offsets, marks, _ = ragged
    parts = split_sets(marks, offsets)
    assert len(parts) == len(offsets) - 1
    for k, part in enumerate(parts):
        np.testing.assert_array_equal(part, marks[offsets[k] : offsets[k + 1]])
        assert part.size == 0 or np.shares_memory(part, marks)
    values = np.arange(len(marks))
    for part, own, kept in zip(split_sets(values, offsets, marks), split_sets(values, offsets), parts, strict=True):
        np.testing.assert_array_equal(part, own[kept])


@pytest.mark.parametrize("smallest", [1, 2, 3])
def test_sets_by_size(ragged, smallest):
    offsets, *_ = ragged
    found = {}
    last = 0
    for sets, places in sets_by_size(offsets, smallest):
        assert places.shape[0] == len(sets) > 0
        assert places.shape[1] > last  # each size once, in order
        last = places.shape[1]
        assert (np.diff(sets) > 0).all()
        found |= {k: own.tolist() for k, own in zip(sets.tolist(), places, strict=True)}
    sizes = np.diff(offsets)
    assert found == {k: list(range(offsets[k], offsets[k + 1])) for k in range(len(sizes)) if sizes[k] >= smallest}


@pytest.mark.parametrize("extra", [0, 1, 5])
@pytest.mark.parametrize("marked", [True, False])
def test_padded_places(ragged, extra, marked):
    offsets, marks, rng = ragged
    sizes = np.diff(offsets)
    filled = np.flatnonzero(sizes)
    sets = rng.choice(filled, size=25)  # in any order, and some of them twice
    size = int(sizes.max()) + extra
    places, present = padded_places(offsets, sets, size, marks if marked else None)
    assert places.shape == present.shape == (25, size)
    for k, own, real in zip(sets, places.tolist(), present.tolist(), strict=True):
        objects = list(range(offsets[k], offsets[k + 1]))
        if marked:
            objects = [i for i in objects if marks[i]] + [i for i in objects if not marks[i]]
        assert own[: len(objects)] == objects
        assert set(own[len(objects) :]) <= {objects[0]}
        assert real == [True] * len(objects) + [False] * (size - len(objects))


def test_no_sets_and_one_set():
    offsets = np.array([0, 3])
    assert [places.tolist() for _, places in sets_by_size(offsets)] == [[[0, 1, 2]]]
    assert list(sets_by_size(offsets, smallest=4)) == []
    places, present = padded_places(offsets, np.zeros(0, int), 4)
    assert places.shape == present.shape == (0, 4)


@pytest.mark.parametrize("largest", [2, 9, 40, 300])
def test_sets_by_shape(largest):
    rng = np.random.default_rng(largest)
    sizes = rng.integers(2, largest + 1, size=200)
    sets = rng.permutation(200)[:120]
    found = list(sets_by_shape(sizes, sets))
    assert len(found) <= 3
    assert [size for size, _ in found] == sorted({size for size, _ in found})
    assert sorted(np.concatenate([own for _, own in found])) == sorted(sets)
    for size, own in found:
        assert isinstance(size, int)
        assert size >= sizes[own].max()
        assert own.tolist() == [k for k in sets if k in own]  # in their order
        smaller = [other for other, _ in found if other < size]
        assert not smaller or sizes[own].min() > max(smaller)
    assert list(sets_by_shape(sizes, np.zeros(0, int))) == []


@pytest.mark.parametrize("unit", [1e-300, 1.0, 1e300])
@pytest.mark.parametrize("centre", [0.0, 1e6])
def test_joined_moments_are_those_of_the_whole(unit, centre):
    parts = [np.random.default_rng(n).normal(n, 1.0 + n, size=(5 + n, 2)) + centre for n in range(4)]
    joined = FeatureScaling.of(parts[0] * unit)
    for part in parts[1:]:
        joined = joined.joined(FeatureScaling.of(part * unit))
    whole = np.concatenate(parts)
    assert joined.n == len(whole)
    np.testing.assert_allclose(joined.mean / unit, whole.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(joined.sd / unit, whole.std(axis=0), rtol=1e-8)


def test_the_largest_numbers_do_not_overflow():
    most = np.finfo(float).max
    joined = FeatureScaling.of(np.array([[most]])).joined(FeatureScaling.of(np.array([[-most]])))
    assert joined.mean == 0.0
    assert joined.sd == most


def test_a_feature_that_does_not_vary_has_scale_one():
    joined = FeatureScaling.of(np.full((3, 1), 0.1)).joined(FeatureScaling.of(np.full((7, 1), 0.1)))
    assert joined.scale == 1.0

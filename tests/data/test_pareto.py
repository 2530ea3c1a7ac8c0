import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choicegp.data import pareto
from choicegp.data.pareto import undominated, undominated_in_sets
from choicegp.errors import ChoiceGPError


def naive(U, ties):
    keep = []
    for v in U:
        weak = any(all(o >= v) and any(o > v) for o in U)
        strict = any(all(o > v) for o in U)
        keep.append(not (weak if ties == "weak" else strict))
    return np.array(keep)


def test_dominance_known_answers():
    assert undominated([[1, 1], [0, 0]]).tolist() == [True, False]
    assert undominated([[1, 0], [0, 0]], ties="weak").tolist() == [True, False]
    assert undominated([[1, 0], [0, 0]], ties="strict").tolist() == [True, True]
    assert undominated([[1, 1], [1, 1]], ties="weak").tolist() == [True, True]
    assert undominated([[1, -1], [0, 0]]).tolist() == [True, True]
    assert undominated([[0.0], [1.0]]).tolist() == [False, True]


def test_equal_objects_are_both_kept():
    assert undominated([[1, 2], [1, 2], [0, 2]]).tolist() == [True, True, False]
    assert undominated([[1, 2], [1, 2], [0, 2]], ties="strict").tolist() == [True, True, True]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.integers(1, 4), st.sampled_from(["weak", "strict"]), st.integers(0, 2**32 - 1))
def test_undominated_equals_naive(a, d, ties, seed):
    U = np.random.default_rng(seed).integers(0, 4, size=(a, d)).astype(float)
    assert undominated(U, ties).tolist() == naive(U, ties).tolist()


@pytest.mark.parametrize("ties", ["weak", "strict"])
def test_blocks_change_nothing(monkeypatch, ties):
    rng = np.random.default_rng(3)
    U = rng.integers(0, 6, size=(90, 3)).astype(float)
    sizes = rng.integers(0, 7, size=40)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    flat = rng.integers(0, len(U), size=offsets[-1])
    whole = undominated(U, ties)
    sets = undominated_in_sets(U, flat, offsets, ties)
    monkeypatch.setattr(pareto, "_PAIRS_AT_ONCE", 50)
    assert (undominated(U, ties) == whole).all()
    assert (undominated_in_sets(U, flat, offsets, ties) == sets).all()
    assert (whole == naive(U, ties)).all()
    for k in range(40):
        part = slice(offsets[k], offsets[k + 1])
        assert (sets[part] == naive(U[flat[part]], ties)).all()


def test_a_few_thousand_objects():
    angle = np.linspace(0, np.pi / 2, 3000)
    circle = np.column_stack([np.cos(angle), np.sin(angle)])
    mask = undominated(np.vstack([circle, 0.99 * circle]))
    assert mask[:3000].all()
    assert not mask[3000:].any()


@pytest.mark.parametrize("bad", [[[np.nan, 1.0]], [[np.inf]], [["a"]], [[1.0], [1.0, 2.0]], [1.0], [[1j]], None])
def test_bad_utilities_are_refused(bad):
    with pytest.raises(ChoiceGPError, match="U"):
        undominated(bad)


def test_bad_arguments_are_refused():
    with pytest.raises(ChoiceGPError, match="ties must be"):
        undominated([[1.0]], ties="none")
    with pytest.raises(ChoiceGPError, match="ties must be"):
        undominated_in_sets([[1.0]], np.array([0]), np.array([0, 1]), ties="loose")
    with pytest.raises(ChoiceGPError, match=r"not finite: nan at position \(1, 0\)"):
        undominated([[0.0], [np.nan]])

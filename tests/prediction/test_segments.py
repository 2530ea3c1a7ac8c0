"""Segments: known groups are found, described and judged; and k-medoids against all partitions."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from choicegp import ChoiceGPError
from choicegp.prediction.segments import adjusted_rand, clustered, stability_in_words

from .known_market import known_model, two_goals

rng = np.random.default_rng(3)
CATALOGUE = pd.DataFrame(
    {"price": rng.uniform(300, 1500, 16), "speed": rng.uniform(1, 5, 16), "colour": ["red", "blue"] * 8},
    index=[f"p{i}" for i in range(16)],
)
N_THRIFTY = 7


def two_kinds(table, rng, n_draws, noise=0.1):
    """Seven people judge by price alone, five by speed alone."""
    goals = np.column_stack([(800.0 - table["price"]) / 200.0, table["speed"] - 2.0])
    care = np.array([[1.0, 0.0]] * N_THRIFTY + [[0.0, 1.0]] * 5)
    u = np.einsum("ni,ri->rn", goals, care)[None] * (1 + noise * rng.normal(size=(n_draws, 12, 1)))
    return np.repeat(u[..., None], 2, axis=3)


def test_known_groups_are_found_and_described(monkeypatch):
    found = known_model(monkeypatch, two_kinds, n_people=12, products=CATALOGUE).segments(2, n_draws=20)
    assert found.people["segment"].tolist() == [1] * N_THRIFTY + [2] * 5
    assert found.table["people"].tolist() == [7, 5]
    assert found.stability == pytest.approx(1.0)
    assert "a high price less often (by" in found.table["in_words"][0]
    assert "a high speed more often (by" in found.table["in_words"][1]
    assert "colour" not in found.table["in_words"][0]
    text = str(found)
    assert text.startswith("Segment 1: 7 respondents (58%), such as respondent r")
    assert text.endswith("Stability 1.00: the answers settle who belongs to which segment.")
    assert found.differences.groupby("segment").size().tolist() == [3, 3]


def test_people_who_are_the_same_have_no_stable_segments(monkeypatch):
    def the_same(table, rng, n_draws):
        return two_goals(table, rng, n_draws, n_people=12)

    found = known_model(monkeypatch, the_same, n_people=12, products=CATALOGUE).segments(3, n_draws=20)
    assert found.stability < 0.5
    assert "do not settle the segments" in stability_in_words(found.stability)


def test_no_swap_of_a_medoid_helps():
    points = np.random.default_rng(0).normal(size=(9, 2))
    distance = np.linalg.norm(points[:, None] - points, axis=2)
    medoids, labels, own = clustered(distance, 3)
    swapped = [some for some in combinations(range(9), 3) if len({*some} & {*medoids}) == 2]
    best = min(distance[list(some)].min(axis=0).sum() for some in swapped)
    assert own.sum() <= best
    np.testing.assert_allclose(own, distance[medoids[labels], np.arange(9)])


@pytest.mark.parametrize("seed", range(3))
def test_the_agreement_of_partitions_is_scikit_learns(seed):
    from sklearn.metrics import adjusted_rand_score

    first, second = np.random.default_rng(seed).integers(3, size=(2, 12))
    assert adjusted_rand(first, second) == pytest.approx(adjusted_rand_score(first, second))


@pytest.mark.parametrize(
    ("n_people", "k", "message"),
    [(None, 2, "pools the answers of all"), (3, 1, "k must be a whole number of at least 2"), (3, 3, "3 respondents")],
)
def test_bad_questions_are_answered_clearly(monkeypatch, n_people, k, message):
    model = known_model(monkeypatch, two_goals, n_people=n_people)
    with pytest.raises(ChoiceGPError, match=message):
        model.segments(k)

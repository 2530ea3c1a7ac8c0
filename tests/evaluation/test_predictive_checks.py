import numpy as np
import pytest

from choicegp import ChoiceData
from choicegp.datasets.noisy import noisy_choices
from choicegp.evaluation.predictive_checks import Questions, compared

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 2))
SHOWN = [RNG.choice(12, 3, replace=False).tolist() for _ in range(40)]


@pytest.fixture(scope="module")
def simulated() -> list[ChoiceData]:
    return [noisy_choices(X, 3 * X, SHOWN, random_state=1000 + i) for i in range(400)]


def kept_by(rule) -> ChoiceData:
    """Return choices of which a rule says what is kept, given the rows of a set."""
    return ChoiceData.from_sets(X, SHOWN, [[row for row in rows if rule(row, rows)] for rows in SHOWN])


def test_choices_of_the_model_itself_fit(simulated):
    found = compared(noisy_choices(X, 3 * X, SHOWN, random_state=1), simulated, X)
    assert found.fits
    assert found.message == "The choices look like those that the model would make."
    assert found.table["p"].min() > 0.02
    assert str(found).count("\n") == 11


def test_other_choices_are_named(simulated):
    found = compared(ChoiceData.from_sets(X, SHOWN, SHOWN), simulated, X)
    assert not found.fits
    assert found.table.loc["all", "p"] < 0.01
    assert "the share of sets of which everything is kept is 1, where the model expects" in found.message
    assert found.message.endswith("and check again.")


def test_a_person_who_keeps_what_is_good_enough_is_found(simulated):
    value = X.sum(axis=1)
    found = compared(kept_by(lambda row, rows: value[row] > 0.2 or value[row] == max(value[rows])), simulated, X)
    assert found.table.loc["depends", "p"] < 0.006
    assert found.table.loc["depends", "observed"] < found.table.loc["depends", "lower"]
    assert not found.fits


def test_a_person_who_likes_the_middle_is_found(simulated):
    far = {tuple(rows): np.linalg.norm(X[rows] - X[rows].mean(axis=0), axis=1) for rows in SHOWN}
    found = compared(
        kept_by(lambda row, rows: far[tuple(rows)][rows.index(row)] == far[tuple(rows)].min()), simulated, X
    )
    assert found.table.loc["best", "p"] < 0.006
    assert "the best object in a utility is kept is" in found.message


def numbers(shown, chosen):
    data = ChoiceData.from_sets(X, shown, chosen)
    return Questions.of(data, X).statistics(data)


def test_pairs_are_counted_once():
    found = numbers([[0, 1], [1, 0], [2, 3], [3, 2], [4, 5]], [[0], [1], [2], [2], [4]])
    assert (found["reversed"], found["mixed"]) == (0.5, 0.0)
    found = numbers([[0, 1], [1, 0], [2, 3], [3, 2], [4, 5, 6]], [[0], [1, 0], [2], [2], [4, 5]])
    assert (found["reversed"], found["mixed"]) == (0.0, 0.5)
    found = numbers([[0], [1, 2]], [[0], [1]])
    assert (found["reversed"], found["mixed"], found["depends"]) == (0.0, 0.0, 0.0)


def test_numbers_that_need_utilities():
    x = np.array([[0.0, 0.0], [0.1, 0.1], [5.0, -5.0], [-5.0, 5.0]])
    shown = [[0, 1, 2], [0, 1, 3], [1, 2, 3]]
    data = ChoiceData.from_sets(x, shown, [[1, 2], [0], [1]])
    found = Questions.of(data, x).statistics(data)
    # The best of each set in each utility: 2 and 1; 1 and 3; 2 and 3.
    assert found["best"] == pytest.approx((2 + 0 + 0) / 6)
    assert found["beside"] == 0.5  # 1 dominates 0, which is like it, in two sets, and is kept in one
    assert found["depends"] == pytest.approx(np.mean([0.5, 2 / 3 * 1 / 3 * 1.5, 0.5, 0.0]))


@pytest.mark.parametrize("unit", [1e-14, 1e-3, 1e9])
def test_similar_objects_do_not_depend_on_the_units_of_a_feature(unit):
    X = np.random.default_rng(0).normal(size=(12, 2))
    shown = [list(range(start, start + 4)) for start in (0, 4, 8)]
    utilities = np.column_stack([X[:, 0], X[:, 0]])
    found = [Questions.of(ChoiceData.from_sets(X * [1.0, scale], shown), utilities).beside for scale in (1.0, unit)]
    assert found[0].any()
    assert found[0].tolist() == found[1].tolist()


@pytest.mark.parametrize("rounding", [1e-16, 1e-15, 1e-13])
def test_a_feature_that_varies_by_rounding_alone_makes_no_objects_unlike(rounding):
    rng = np.random.default_rng(0)
    x, noise = rng.normal(size=(2, 12))
    shown = [list(range(start, start + 4)) for start in (0, 4, 8)]
    found = []
    for column in (np.full(12, 1e6), 1e6 * (1.0 + rounding * noise)):
        data = ChoiceData.from_sets(np.column_stack([x, column]), shown)
        found.append(Questions.of(data, np.column_stack([x, x])).beside.tolist())
    assert any(found[0])
    assert found[0] == found[1]

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choicegp.data.choices import ChoiceData
from choicegp.data.describe import describe


def test_known_answers():
    X = np.array([[0.0], [1.0], [2.0], [3.0], [4.0], [4.0], [6.0]])
    data = ChoiceData.from_sets(
        X,
        shown=[[0, 1, 2], [2, 1, 0], [1, 0, 2], [3, 4], [3, 4], [5]],
        chosen=[[0], [0], [1], [3, 4], [4, 3], [5]],
        respondents=["ann", "bo", "ann", "bo", "bo", "bo"],
    )
    found = describe(data)
    assert data.describe() == found
    assert (found.n_sets, found.smallest_set, found.median_set, found.largest_set) == (6, 1, 2.5, 3)
    assert (found.n_objects, found.n_features, found.feature_names) == (7, 1, ("x0",))
    assert found.share_chosen == pytest.approx(8 / 14)
    assert found.n_respondents == 2
    assert found.n_never_shown == 1
    assert (found.n_components, found.largest_component) == (3, 3)
    assert (found.n_repeats, found.n_contradictions) == (2, 1)
    assert found.n_identical_objects == 2
    assert found.n_skipped == 0
    assert str(found).splitlines() == [
        "6 sets of 1 to 3 objects (median 2.5), by 2 respondents.",
        "7 objects with 1 feature: x0.",
        "57.1% of the shown objects were chosen.",
        "Shown again with the same choice: 2 sets.",
        "Shown again with another choice: 1 set. No utilities explain all of these; they count as noise.",
        "Never shown: 1 object. It is predicted from its features alone.",
        "The objects fall into 3 groups never shown together: utilities of different groups cannot be "
        "compared by the choices alone. The largest group has 3 objects.",
        "Equal in all features to another: 2 objects. Features alone cannot distinguish these.",
    ]


def test_nothing_to_warn_of():
    data = ChoiceData.from_pairs([[0.0], [1.0]], [[0, 1]])
    assert str(describe(data)).splitlines() == [
        "1 set of 2 objects.",
        "2 objects with 1 feature: x0.",
        "50.0% of the shown objects were chosen.",
    ]


def test_without_choices():
    found = describe(ChoiceData.from_sets([[0.0], [1.0]], [[0, 1], [0, 1]]))
    assert (found.share_chosen, found.n_repeats, found.n_contradictions) == (None, None, None)
    assert "The data have no choices." in str(found)


def test_skipped_defects_are_told():
    with pytest.warns(UserWarning, match="1 of 2 sets"):
        data = ChoiceData.from_sets([[0.0], [1.0]], [[0, 1], [0, 1]], [[0], []], on_error="skip")
    assert describe(data).n_skipped == 1
    assert "Left out when the data were read: 1 defect." in str(describe(data))


def naive_counts(data):
    answers = [(frozenset(s.tolist()), frozenset(c.tolist())) for s, c in zip(data.shown, data.chosen, strict=True)]
    n_contradictions = len(set(answers)) - len({shown for shown, _ in answers})
    groups = [{i} for i in sorted({i for shown, _ in answers for i in shown})]
    for shown, _ in answers:
        touched = [group for group in groups if group & shown]
        groups = [group for group in groups if not group & shown] + [set().union(*touched)]
    return len(data) - len(set(answers)), n_contradictions, len(groups), max(map(len, groups))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_counts_equal_naive_ones(seed):
    rng = np.random.default_rng(seed)
    shown = [rng.permutation(7)[: rng.integers(1, 4)] for _ in range(rng.integers(1, 12))]
    data = ChoiceData.from_utilities(rng.random((7, 1)), rng.random((7, 2)), shown)
    # Other choices for some of the sets, so that contradictions occur.
    chosen = [s[:1] if rng.random() < 0.3 else c for s, c in zip(data.shown, data.chosen, strict=True)]
    data = ChoiceData.from_sets(data.X, shown, chosen)
    found = describe(data)
    counts = (found.n_repeats, found.n_contradictions, found.n_components, found.largest_component)
    assert counts == naive_counts(data)


def test_empty_answers_and_kinds_are_counted():
    X = np.arange(3.0)[:, None]
    data = ChoiceData.from_sets(
        X, [[0, 1], [1, 2], [0, 2]], [[], [1], []], kinds=["keep", "best", "keep"], empty="none"
    )
    found = describe(data)
    assert (found.n_empty, found.kinds) == (2, {"keep": 2, "best": 1})
    assert str(found).splitlines()[3:5] == ["Nothing was chosen from 2 sets.", "Kinds of sets: 2 keep, 1 best."]
    plain = describe(ChoiceData.from_sets(X, [[0, 1]], [[0]]))
    assert (plain.n_empty, plain.kinds) == (0, {"keep": 1})
    assert describe(ChoiceData.from_sets(X, [[0, 1]])).n_empty is None


def test_answers_to_different_questions_are_no_contradictions():
    X = np.arange(3.0)[:, None]
    data = ChoiceData.from_sets(X, [[0, 1, 2]] * 4, [[0], [2], [0], [1]], kinds=["best", "worst", "best", "best"])
    found = describe(data)
    assert (found.n_repeats, found.n_contradictions) == (1, 1)


def test_a_threshold_connects_what_was_never_shown_together():
    shown, chosen = [[0], [1], [2, 3], [4, 5]], [[0], [], [2], [5]]
    found = describe(ChoiceData.from_sets(np.arange(6.0)[:, None], shown, chosen, empty="none"))
    assert found.n_components == 1
    kinds = ["keep", "keep", "best", "best"]
    found = describe(ChoiceData.from_sets(np.arange(6.0)[:, None], shown, chosen, empty="none", kinds=kinds))
    assert (found.n_components, found.largest_component) == (3, 2)

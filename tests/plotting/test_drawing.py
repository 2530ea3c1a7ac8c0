"""Names beside points: never over each other, inside the picture, off the points where there is room."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from choicegp.plotting.drawing import label_places

BOUNDS = (400.0, 300.0)


def boxes(places, sizes):
    """Return the corners (n, 4) of the names that were placed."""
    kept = [(np.array(place), size) for place, size in zip(places, sizes, strict=True) if place is not None]
    return np.array([[*(centre - size / 2), *(centre + size / 2)] for centre, size in kept]).reshape(-1, 4)


def test_a_lone_name_stands_to_the_right():
    point = np.array([[100.0, 100.0]])
    assert label_places(point, np.array([[40.0, 10.0]]), point, BOUNDS, gap=6.0) == [(126.0, 100.0)]


def test_at_the_right_edge_a_name_stands_to_the_left():
    point = np.array([[395.0, 100.0]])
    [place] = label_places(point, np.array([[40.0, 10.0]]), point, BOUNDS, gap=6.0)
    assert place == (369.0, 100.0)


def test_a_name_keeps_off_other_points_where_it_can():
    points = np.array([[100.0, 100.0], [120.0, 100.0]])
    [place] = label_places(points[:1], np.array([[40.0, 10.0]]), points, BOUNDS, gap=6.0)
    [[left, low, right, high]] = boxes([place], np.array([[40.0, 10.0]]))
    assert not (left < 120 < right and low < 100 < high)


def test_a_name_too_large_for_the_picture_is_left_out():
    point = np.array([[100.0, 100.0]])
    assert label_places(point, np.array([[500.0, 10.0]]), point, BOUNDS, gap=6.0) == [None]


def test_nothing_to_name():
    assert label_places(np.empty((0, 2)), np.empty((0, 2)), np.empty((0, 2)), BOUNDS, gap=6.0) == []


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 25), st.integers(0, 10_000), st.floats(0.01, 1.0))
def test_names_never_overlap_nor_leave_the_picture(n, seed, crowding):
    rng = np.random.default_rng(seed)
    points = np.array(BOUNDS) / 2 + crowding * (rng.random((n, 2)) - 0.5) * np.array(BOUNDS)
    sizes = np.column_stack([rng.uniform(10, 90, n), np.full(n, 12.0)])
    found = boxes(label_places(points, sizes, points, BOUNDS, gap=6.0), sizes)
    assert len(found) >= 1
    assert (found[:, :2] >= 0).all()
    assert (found[:, 2:] <= np.array(BOUNDS)).all()
    for i in range(len(found)):
        for other in found[i + 1 :]:
            across = min(found[i, 2], other[2]) - max(found[i, 0], other[0])
            up = min(found[i, 3], other[3]) - max(found[i, 1], other[1])
            assert across < 1e-9 or up < 1e-9

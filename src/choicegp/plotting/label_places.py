"""Where to write names beside points so that they cover neither each other nor the points."""

import numpy as np
from numpy.typing import NDArray

# Directions in which a name may stand from its point: (across, up), the nearest to reading order first.
_AROUND = ((1, 0), (1, 1), (1, -1), (-1, 0), (-1, 1), (-1, -1), (0, 1), (0, -1))
_STEPS = (1.0, 2.0, 3.5, 5.0, 7.0, 9.0)


def label_places(
    points: NDArray[np.float64],
    sizes: NDArray[np.float64],
    obstacles: NDArray[np.float64],
    bounds: tuple[float, float],
    gap: float,
) -> list[tuple[float, float] | None]:
    """Return the centre of each name, at the first free place around its point; None where there is no room.

    All lengths are in pixels: the ``points`` (n, 2) to name, measured from the lower left corner, the width and height
    of each name (``sizes``) and of the area (``bounds``), points not to be covered (``obstacles``), and the ``gap``
    between a point and a name beside it.

    Examples
    --------
    >>> import numpy as np
    >>> one = np.array([[50.0, 50.0]])
    >>> label_places(one, np.array([[20.0, 10.0]]), one, (100.0, 100.0), gap=5.0)
    [(65.0, 50.0)]
    """
    places: list[tuple[float, float] | None] = []
    taken = np.empty((0, 4))
    for point, size in zip(points, sizes, strict=True):
        centres = _candidates(point, size, gap)
        boxes = np.hstack([centres - size / 2, centres + size / 2])
        free = np.all((boxes[:, :2] >= 0) & (boxes[:, 2:] <= np.asarray(bounds)), axis=1)
        free &= ~_overlap(boxes, taken)
        clear = free & ~_cover(boxes, obstacles, gap / 3)
        # Better over a point than not at all, but never over another name.
        choice = np.flatnonzero(clear if clear.any() else free)
        if len(choice) == 0:
            places.append(None)
            continue
        taken = np.vstack([taken, boxes[choice[0]]])
        places.append((float(centres[choice[0], 0]), float(centres[choice[0], 1])))
    return places


def _candidates(point: NDArray[np.float64], size: NDArray[np.float64], gap: float) -> NDArray[np.float64]:
    way = np.array([direction for _ in _STEPS for direction in _AROUND], dtype=float)
    far = np.repeat(_STEPS, len(_AROUND))[:, None]
    return point + way * (size / 2 + gap * far)


def _overlap(boxes: NDArray[np.float64], taken: NDArray[np.float64]) -> NDArray[np.bool_]:
    one, other = boxes[:, None], taken[None]
    apart = (one[..., 0] >= other[..., 2]) | (one[..., 2] <= other[..., 0])
    apart |= (one[..., 1] >= other[..., 3]) | (one[..., 3] <= other[..., 1])
    return np.any(~apart, axis=1)


def _cover(boxes: NDArray[np.float64], points: NDArray[np.float64], margin: float) -> NDArray[np.bool_]:
    inside = (points[None, :, 0] > boxes[:, None, 0] - margin) & (points[None, :, 0] < boxes[:, None, 2] + margin)
    inside &= (points[None, :, 1] > boxes[:, None, 1] - margin) & (points[None, :, 1] < boxes[:, None, 3] + margin)
    return np.any(inside, axis=1)

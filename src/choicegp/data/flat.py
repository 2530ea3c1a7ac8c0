"""How choice data are held: immutable flat arrays, from which sets are taken in bulk."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from choicegp.data.split import set_positions, split_positions
from choicegp.errors import ChoiceGPError, Defect
from choicegp.reading.defects import Draft, select_sets
from choicegp.reading.encoding import FeatureEncoding


@dataclass(frozen=True, eq=False, repr=False)
class FlatChoices:
    """The arrays of choice data and what needs nothing else; :class:`ChoiceData` is made of it.

    Attributes
    ----------
    X : float array (t, k)
        Encoded features, one row per object.
    flat_shown : int array (n,)
        Rows of ``X`` shown, set after set.
    offsets : int array (m + 1,)
        Set ``k`` is ``flat_shown[offsets[k]:offsets[k + 1]]``.
    flat_chosen : bool array (n,) or None
        Aligned with ``flat_shown``; None when the choices are not known.
    object_ids : array (t,)
        An id may repeat when its features differ between sets (a price per task).
    set_ids : array (m,)
    encoding : FeatureEncoding
        How the columns of the objects became ``X``.
    respondents : array (m,) or None
    weights : float array (m,) or None
    skipped : tuple of Defect
        What was left out with ``on_error="skip"``. Rows of files are counted as a spreadsheet does (the
        header is row 1), rows of a DataFrame from 0.
    """

    X: NDArray[np.float64]
    flat_shown: NDArray[np.int64]
    offsets: NDArray[np.int64]
    flat_chosen: NDArray[np.bool_] | None
    object_ids: NDArray[Any]
    set_ids: NDArray[Any]
    encoding: FeatureEncoding
    respondents: NDArray[Any] | None = None
    weights: NDArray[np.float64] | None = None
    skipped: tuple[Defect, ...] = ()

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                value.setflags(write=False)

    @property
    def has_choices(self) -> bool:
        """Whether it is known what was chosen."""
        return self.flat_chosen is not None

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the columns of ``X``."""
        return self.encoding.feature_names

    @property
    def shape(self) -> tuple[int]:
        """The number of sets, as scikit-learn asks for it."""
        return (len(self),)

    @cached_property
    def shown(self) -> tuple[NDArray[np.int64], ...]:
        """The rows of ``X`` shown in each set."""
        return _by_set(self.flat_shown, self.offsets)

    @cached_property
    def chosen(self) -> tuple[NDArray[np.int64], ...] | None:
        """The rows of ``X`` chosen from each set, or None when the choices are not known."""
        if self.flat_chosen is None:
            return None
        offsets = np.concatenate([[0], np.cumsum(self.flat_chosen)])[self.offsets]
        return _by_set(self.flat_shown[self.flat_chosen], offsets)

    def take(self, rows: Any) -> Self:
        """Return the sets at these positions, in this order; the object table is kept.

        Parameters
        ----------
        rows : sequence of int, bool mask, slice or int

        Examples
        --------
        >>> from choicegp import ChoiceData
        >>> data = ChoiceData.from_pairs([[1.0], [2.0]], [[1, 0], [0, 1], [1, 0]])
        >>> data.take([2, 0]).set_ids
        array([2, 0])
        """
        draft = Draft(**{name: getattr(self, name) for name in Draft._fields if name != "rows"})
        return replace(self, **parts_of(select_sets(draft, set_positions(rows, len(self)))))

    def split(
        self, test_size: float | int, by: Literal["set", "respondent"] = "set", random_state: int = 0
    ) -> tuple[Self, Self]:
        """Split the sets at random into a training and a test part; both keep the whole object table.

        Parameters
        ----------
        test_size : float or int
            A share between 0 and 1, or a number of sets (of respondents, with ``by="respondent"``).
        by : {"set", "respondent"}
            With ``"respondent"`` all sets of a person fall into the same part.
        random_state : int

        Examples
        --------
        >>> from choicegp import ChoiceData
        >>> data = ChoiceData.from_pairs([[1.0], [2.0]], [[1, 0], [0, 1], [1, 0]])
        >>> [len(part) for part in data.split(1)]
        [2, 1]
        """
        train, test = split_positions(len(self), self.respondents, test_size, by, random_state)
        return self.take(train), self.take(test)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, key: Any) -> Self:
        return self.take(key)

    def __iter__(self) -> Iterator[Self]:
        return (self.take(k) for k in range(len(self)))

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        # Without this NumPy would index the sets of sets of one set for ever.
        raise ChoiceGPError("choice data are not an array; their features are in data.X")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FlatChoices):
            return NotImplemented
        names = [field.name for field in fields(self) if field.name != "skipped"]
        return all(_equal(getattr(self, name), getattr(other, name)) for name in names)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        sizes = ((len(self), "set"), (len(self.X), "object"), (self.X.shape[1], "feature"))
        counted = [f"{n} {noun}{'' if n == 1 else 's'}" for n, noun in sizes]
        return f"{type(self).__name__}({', '.join(counted)}, {'choices' if self.has_choices else 'no choices'})"

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()


def parts_of(draft: Draft) -> dict[str, Any]:
    """Return the fields of choice data that a draft holds."""
    return {name: value for name, value in draft._asdict().items() if name != "rows"}


def _by_set(flat: NDArray[np.int64], offsets: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
    flat.setflags(write=False)
    bounds = offsets.tolist()
    return tuple(flat[start:stop] for start, stop in pairwise(bounds))


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return np.array_equal(one, other)
    return type(one) is type(other) and bool(one == other)

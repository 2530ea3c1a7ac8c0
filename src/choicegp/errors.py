"""What can go wrong for a user."""

from collections.abc import Sequence
from typing import NamedTuple


class ChoiceGPError(ValueError):
    """An error that the user can fix: the message says what is wrong, where, and what to do."""


class ExtrapolationWarning(UserWarning):
    """Predictions are made for objects with features outside the range of the objects shown in training."""


class Defect(NamedTuple):
    """One thing that is wrong with the data.

    Attributes
    ----------
    kind : str
        A short fixed name such as ``"chosen-not-shown"``.
    problem : str
        What is wrong, in plain words, without the place.
    row : int or None
        Row of the file, counted as a spreadsheet does (the header is row 1), or position in the input.
    set : object
        The set's id, or None when the defect belongs to no set.
    object : object
        The object's id, or None.
    """

    kind: str
    problem: str
    row: int | None = None
    set: object = None
    object: object = None

    def __str__(self) -> str:
        places = (("row", self.row), ("set", self.set), ("object", self.object))
        where = ", ".join(f"{name} {value!r}" for name, value in places if value is not None)
        return f"{where}: {self.problem}" if where else self.problem


class ChoiceDataError(ChoiceGPError):
    """Data that cannot be used as they are; ``defects`` holds everything that was found.

    Parameters
    ----------
    defects : sequence of Defect
    source : str, optional
        The file the data came from.
    """

    listed = 20

    def __init__(self, defects: Sequence[Defect], source: str | None = None) -> None:
        self.defects = tuple(defects)
        self.source = source
        lines = [str(defect) for defect in self.defects[: self.listed]]
        if len(self.defects) > self.listed:
            lines.append(f"... and {len(self.defects) - self.listed} more")
        name = f"{source}: " if source else ""
        if len(self.defects) == 1:
            message = name + lines[0]
        else:
            message = f"{name}{len(self.defects)} defects\n" + "\n".join("  " + line for line in lines)
        super().__init__(message)

    def __reduce__(self) -> tuple:
        # Exceptions are rebuilt from `args` (here the message); joblib sends them between processes.
        return (type(self), (self.defects, self.source))

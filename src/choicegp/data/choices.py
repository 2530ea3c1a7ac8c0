"""Choice data: objects, the sets in which they were shown, and what was chosen from each set."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal, NoReturn

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from choicegp.checks import counted
from choicegp.data.covariates import checked_covariates, covariates_in_rows
from choicegp.data.describe import Description, describe
from choicegp.data.long_table import long_table
from choicegp.data.other_readers import OtherReaders
from choicegp.data.packing import split_sets
from choicegp.data.split import set_positions, split_positions
from choicegp.errors import ChoiceGPError, Defect
from choicegp.reading.cells import NumberForm
from choicegp.reading.columns import Roles, answer_columns, long_columns, question_of
from choicegp.reading.defects import Draft, Empty, Missing, OnError, Rules, select_sets, settle
from choicegp.reading.encoding import FeatureEncoding, check_encoding
from choicegp.reading.long import read_long
from choicegp.reading.sequences import read_sets
from choicegp.reading.text import write_table


@dataclass(frozen=True, eq=False, repr=False)
class ChoiceData(OtherReaders):
    """Objects, the sets in which they were shown and what was chosen; immutable.

    Made by :meth:`from_sets`, :meth:`from_long`, :meth:`from_wide` and other constructors, which check everything. Sets
    may differ in size: they are held end to end.

    Attributes
    ----------
    X : float array (t, k)
        Encoded features, one row per object.
    flat_shown : int array (n,)
        Rows of ``X`` shown, set after set.
    offsets : int array (m + 1,)
        Set ``k`` is ``flat_shown[offsets[k]:offsets[k + 1]]``.
    flat_chosen : bool array (n,) or None
        Aligned with ``flat_shown``; None when the data have no choices.
    object_ids : array (t,)
        An id may repeat when its features differ between sets (a price per task).
    set_ids : array (m,)
    encoding : FeatureEncoding
        How the columns of the objects became ``X``.
    respondents : array (m,) or None
    weights : float array (m,) or None
    kinds : array (m,) or None
        What was asked of each set: ``"keep"`` (mark all that you would not reject), ``"best"`` (mark the best one) or
        ``"worst"``; None where all are ``"keep"``.
    covariates : DataFrame or None
        What is known about the respondents, such as their age: one row for each, whose index names them.
    skipped : tuple of Defect
        What was left out with ``on_error="skip"``. Rows of files are counted as a spreadsheet does (the
        header is row 1), rows of a DataFrame from 0.

    Examples
    --------
    >>> data = ChoiceData.from_sets([[1.0], [2.0], [3.0]], shown=[[0, 1], [0, 1, 2]], chosen=[[1], [1, 2]])
    >>> data
    ChoiceData(2 sets, 3 objects, 1 feature, choices)
    >>> data.chosen[1]
    array([1, 2])
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
    kinds: NDArray[Any] | None = None
    skipped: tuple[Defect, ...] = ()
    covariates: pd.DataFrame | None = None

    @classmethod
    def from_sets(
        cls,
        X: pd.DataFrame | ArrayLike,
        shown: Any,
        chosen: Any = None,
        *,
        by: Literal["row", "id"] = "row",
        object_ids: Any = None,
        respondents: Any = None,
        weights: Any = None,
        set_ids: Any = None,
        kinds: Any = None,
        encoding: FeatureEncoding | None = None,
        on_error: OnError = "raise",
        empty: Empty = "error",
        missing: Missing = "error",
        at_most: int | None = None,
    ) -> "ChoiceData":
        """Make choice data from a table of objects and one sequence of objects per set.

        Parameters
        ----------
        X : array_like (t, c) or DataFrame
            One row per object; the index of a DataFrame holds the objects' ids.
        shown, chosen : sequence of sequences
            Row numbers of ``X`` (from 0), or ids with ``by="id"``; ``chosen`` may be left out.
        by : {"row", "id"}
        object_ids, set_ids, respondents : sequence, optional
            Ids of objects (default 0, 1, ...) and sets (default 0, 1, ...), and who answered each set.
        weights : sequence of float, optional
            How much each set counts, above 0.
        kinds : {"keep", "best", "worst"} or sequence of these, optional
            What was asked of each set; see ``ChoiceData.kinds``.
        encoding : FeatureEncoding, optional
            How to encode the features (the encoding of a training set); learned from ``X`` by default.
        on_error : {"raise", "skip"}
            Raise an error that names every defect, or leave the defective sets out (see ``skipped``).
        empty : {"error", "none", "skip"}
            What a set is from which nothing was chosen: a defect, the answer "none of these" (the model then has a
            threshold), or nothing to learn from.
        missing : {"error", "skip", "level"}
            What a missing feature is: a defect, a reason to leave the object's sets out, or a value of its own: the
            category ``(missing)`` of words; of numbers their mean, and a further feature ``price=missing`` that is 1.
        at_most : int, optional
            How many objects one was allowed to choose. A set with as many is used only through the chosen objects.

        Returns
        -------
        ChoiceData

        Examples
        --------
        >>> X = pd.DataFrame({"price": [3, 5]}, index=["pen", "brush"])
        >>> ChoiceData.from_sets(X, [["pen", "brush"]], [["pen"]], by="id")
        ChoiceData(1 set, 2 objects, 1 feature, choices)
        """
        rules = Rules(on_error, empty, missing, at_most=at_most)
        read = read_sets(X, shown, chosen, by, object_ids, respondents, weights, set_ids, kinds, encoding, missing)
        return cls(**settle(*read, rules))

    @classmethod
    def from_long(
        cls,
        frame: pd.DataFrame | str | os.PathLike[str],
        *,
        set_id: str | Sequence[str] = "choice_id",
        object_id: str | None = "alt_id",
        chosen: str | Sequence[str] | None = "choice",
        features: Sequence[str] | None = None,
        respondent: str | None = None,
        weight: str | None = None,
        available: str | None = None,
        kind: str | None = None,
        numbers: Sequence[str] = (),
        decimal: str | None = None,
        encoding: FeatureEncoding | None = None,
        on_error: OnError = "raise",
        empty: Empty = "error",
        missing: Missing = "error",
        at_most: int | None = None,
        covariates: Sequence[str] = (),
    ) -> "ChoiceData":
        """Make choice data from a long table: one row per set and shown alternative.

        Parameters
        ----------
        frame : DataFrame or path
            A path names a CSV, TSV, Excel or Parquet file. The rows of a set need not be adjacent.
        set_id, object_id, chosen, respondent, weight, available : str
            Names of columns. Flags (``chosen``, ``available``) are 0/1, true/false, yes/no, or a mark such as x and
            blanks; rows that are not available were not shown. Each distinct (id, features) is an object; with
            ``object_id=None`` each distinct row of features is. With ``chosen=None`` the data have no choices. Several
            columns of ``set_id`` make ids such as ``r1/3``.
        features : sequence of str, optional
            The feature columns; by default all columns that have no other role.
        kind : str, optional
            What was asked: "keep", "best", "worst", "yes-no" (``chosen`` holds flags), "best-worst" (it holds the words
            best and worst, or names two columns, of flags for each), "ranking" (ranks) or "rating" (ratings of the
            objects that share a set id). Any other text names the column that says for each set whether it is "keep",
            "best" or "worst"; a column ``kind`` of nothing else does so by default.
        numbers : sequence of str
            Columns that hold numbers with a currency, a unit or separators, such as EUR 1,549.00.
        decimal : {".", ","}, optional
            The decimal sign of numbers that are read from text, where the columns do not show it.
        encoding, on_error, empty, missing, at_most
            As in :meth:`from_sets`.
        covariates : sequence of str
            Columns that describe the respondent, such as her age; see :meth:`with_covariates`.

        Returns
        -------
        ChoiceData

        Examples
        --------
        >>> frame = pd.DataFrame(
        ...     {"choice_id": [1, 1], "alt_id": ["pen", "brush"], "choice": [1, 0], "price": [3, 5]}
        ... )
        >>> ChoiceData.from_long(frame)
        ChoiceData(1 set, 2 objects, 1 feature, choices)
        """
        question, column = question_of(kind)
        rules = Rules(on_error, empty, missing, question, at_most)
        best, worst = answer_columns(chosen, question)
        roles = Roles(set_id, object_id, best, available, respondent, weight, column, worst)
        columns = long_columns(
            frame, roles, features, NumberForm(numbers, decimal), own_kinds=kind is None, covariates=covariates
        )
        data = cls(**settle(*read_long(columns, encoding, rules), rules))
        if columns.covariates is None or columns.respondent is None:
            return data
        return data.with_covariates(covariates_in_rows(columns.respondent, columns.covariates))

    def __post_init__(self) -> None:
        for value in self.__getstate__().values():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)

    @property
    def has_choices(self) -> bool:
        """Whether the data have choices."""
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
        return tuple(split_sets(self.flat_shown, self.offsets))

    @cached_property
    def chosen(self) -> tuple[NDArray[np.int64], ...] | None:
        """The rows of ``X`` chosen from each set, or None when the data have no choices."""
        if self.flat_chosen is None:
            return None
        parts = split_sets(self.flat_shown, self.offsets, self.flat_chosen)
        for part in parts:
            part.setflags(write=False)
        return tuple(parts)

    def take(self, rows: Any) -> "ChoiceData":
        """Return the sets at positions ``rows`` (int, ints, bool mask or slice); the object table is kept.

        Examples
        --------
        >>> data = ChoiceData.from_pairs([[1.0], [2.0]], [[1, 0], [0, 1], [1, 0]])
        >>> data.take([2, 0]).set_ids
        array([2, 0])
        """
        draft = Draft(**{name: getattr(self, name) for name in Draft._fields if name not in ("rows", "marks")})
        return replace(self, **select_sets(draft, set_positions(rows, len(self))).parts)

    def split(
        self, test_size: float | int, by: Literal["set", "respondent"] = "set", random_state: int | None = 0
    ) -> tuple["ChoiceData", "ChoiceData"]:
        """Split the sets at random into a training and a test part; both keep the whole object table.

        Parameters
        ----------
        test_size : float or int
            A share between 0 and 1, or a number of sets (of respondents, with ``by="respondent"``).
        by : {"set", "respondent"}
            With ``"respondent"`` all sets of a person fall into the same part.
        random_state : int or None
            Seed. None: a new one.

        Returns
        -------
        train, test : ChoiceData

        Examples
        --------
        >>> data = ChoiceData.from_pairs([[1.0], [2.0]], [[1, 0], [0, 1], [1, 0]])
        >>> [len(part) for part in data.split(1)]
        [2, 1]
        """
        train, test = split_positions(len(self), self.respondents, test_size, by, random_state)
        return self.take(train), self.take(test)

    def with_encoding(self, encoding: FeatureEncoding) -> "ChoiceData":
        """Return the same data with features encoded by another encoding, such as ``model.encoding_``.

        Examples
        --------
        >>> frame = pd.DataFrame({"size": ["S", "M", "L"]})
        >>> new = ChoiceData.from_sets(frame[:2], [[0, 1]])
        >>> new.with_encoding(FeatureEncoding.learn(frame)).feature_names
        ('size=L', 'size=M', 'size=S')
        """
        check_encoding(encoding)
        if encoding == self.encoding:
            return self
        return replace(self, X=encoding.recode(self.X, self.encoding, self.object_ids), encoding=encoding)

    def with_covariates(self, covariates: pd.DataFrame) -> "ChoiceData":
        """Return the same data with what is known about the respondents.

        A model with ``respondents="hierarchical"`` lets people share more the more similar they are.

        Parameters
        ----------
        covariates : DataFrame
            One row for each respondent, whose index names them; columns of numbers or categories.

        Examples
        --------
        >>> data = ChoiceData.from_sets([[1.0], [2.0]], [[0, 1]] * 2, [[0], [1]], respondents=["ann", "bo"])
        >>> known = data.with_covariates(pd.DataFrame({"age": [31, 64]}, index=["ann", "bo"]))
        >>> known.covariates["age"].tolist()
        [31, 64]
        """
        return replace(self, covariates=checked_covariates(covariates, self.respondents))

    def to_long(
        self,
        *,
        set_id: str = "choice_id",
        object_id: str = "alt_id",
        chosen: str = "choice",
        respondent: str = "respondent",
        weight: str = "weight",
        kind: str = "kind",
    ) -> pd.DataFrame:
        """Return a long table, one row per set and shown object, which :meth:`from_long` reads back.

        Features are decoded. Objects that were never shown are not in it.

        Parameters
        ----------
        set_id, object_id, chosen, respondent, weight, kind : str
            Names of the columns; the last four are there where the data have them.

        Returns
        -------
        DataFrame

        Examples
        --------
        >>> ChoiceData.from_pairs([[1.0], [2.0]], [[1, 0]]).to_long().columns.tolist()
        ['choice_id', 'alt_id', 'choice', 'x0']
        """
        return long_table(self, Roles(set_id, object_id, chosen, None, respondent, weight, kind))

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the long table to the file ``path`` (.csv, .tsv or .parquet), whole or not at all."""
        write_table(self.to_long(), path)

    def describe(self) -> Description:
        """Return sizes, objects never shown, groups, repeats and contradictions; ``print`` says them in words."""
        return describe(self)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    __getitem__ = take

    def __iter__(self) -> Iterator["ChoiceData"]:
        return (self.take(k) for k in range(len(self)))

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        # Without this NumPy would index the sets of sets of one set for ever.
        raise ChoiceGPError("choice data are not an array; their features are in data.X")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ChoiceData):
            return NotImplemented
        names = [field.name for field in fields(self) if field.name != "skipped"]
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in names)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        sizes = ((len(self), "set"), (len(self.X), "object"), (self.X.shape[1], "feature"))
        known = "choices" if self.has_choices else "no choices"
        return f"ChoiceData({', '.join(counted(n, noun) for n, noun in sizes)}, {known})"

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()

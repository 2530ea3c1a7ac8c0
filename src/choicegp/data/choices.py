"""Choice data: objects, the sets in which they were shown, and what was chosen from each set."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypedDict, Unpack

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from choicegp.data.describe import Description, describe
from choicegp.data.flat import FlatChoices, parts_of
from choicegp.data.long_table import long_table
from choicegp.data.pareto import Ties, check_utilities, undominated_in_sets
from choicegp.errors import ChoiceGPError
from choicegp.reading.defects import Draft, Findings, OnError, check_on_error, settle
from choicegp.reading.encoding import FeatureEncoding, check_encoding
from choicegp.reading.layouts import Roles, long_columns, wide_columns
from choicegp.reading.long import read_long
from choicegp.reading.sequences import flatten, read_sets
from choicegp.reading.text import write_table


class SetOptions(TypedDict, total=False):
    """What every constructor from sets takes besides; see :meth:`ChoiceData.from_sets`."""

    by: Literal["row", "id"]
    object_ids: Any
    respondents: Any
    weights: Any
    set_ids: Any
    encoding: FeatureEncoding | None


@dataclass(frozen=True, eq=False, repr=False)
class ChoiceData(FlatChoices):
    """Objects, the sets in which they were shown and what was chosen; immutable.

    Made by :meth:`from_sets`, :meth:`from_long`, :meth:`from_wide`, :meth:`from_pairs` or
    :meth:`from_utilities`, which check everything. Sets may differ in size. The attributes are those of
    :class:`~choicegp.data.flat.FlatChoices`: ``X``, ``shown``, ``chosen``, ``object_ids``, ``set_ids``,
    ``respondents``, ``weights``, ``encoding``, ``skipped``, and the flat arrays behind them.

    Examples
    --------
    >>> data = ChoiceData.from_sets([[1.0], [2.0], [3.0]], shown=[[0, 1], [0, 1, 2]], chosen=[[1], [1, 2]])
    >>> data
    ChoiceData(2 sets, 3 objects, 1 feature, choices)
    >>> data.chosen[1]
    array([1, 2])
    """

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
        encoding: FeatureEncoding | None = None,
        on_error: OnError = "raise",
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
        encoding : FeatureEncoding, optional
            How to encode the features (that of a training set); learned from ``X`` by default.
        on_error : {"raise", "skip"}
            Raise an error that names every defect, or leave the defective sets out (see ``skipped``).

        Examples
        --------
        >>> X = pd.DataFrame({"price": [3, 5]}, index=["pen", "brush"])
        >>> ChoiceData.from_sets(X, [["pen", "brush"]], [["pen"]], by="id")
        ChoiceData(1 set, 2 objects, 1 feature, choices)
        """
        check_on_error(on_error)
        draft, findings = read_sets(
            X,
            shown,
            chosen,
            by=by,
            object_ids=object_ids,
            respondents=respondents,
            weights=weights,
            set_ids=set_ids,
            encoding=encoding,
        )
        return cls._settled(draft, findings, on_error)

    @classmethod
    def from_pairs(
        cls,
        X: pd.DataFrame | ArrayLike,
        pairs: Any,
        *,
        on_error: OnError = "raise",
        **options: Unpack[SetOptions],
    ) -> "ChoiceData":
        """Make choice data from pairs of which one object was preferred.

        Parameters
        ----------
        X : array_like (t, c) or DataFrame
        pairs : array_like (m, 2)
            Rows [winner, loser] of row numbers, or of ids with ``by="id"``.
        on_error, **options
            As in :meth:`from_sets`; the options are by, object_ids, respondents, weights, set_ids, encoding.

        Examples
        --------
        >>> ChoiceData.from_pairs([[1.0], [2.0]], [[1, 0]]).chosen[0]
        array([1])
        """
        flat = flatten(pairs, "pairs")
        uneven = np.flatnonzero(flat.sizes != 2)
        if len(uneven):
            raise ChoiceGPError(
                f"pairs must have two columns, winner and loser; row {uneven[0]} has {flat.sizes[uneven[0]]}"
            )
        shown = flat.labels.to_numpy().reshape(-1, 2)
        return cls.from_sets(X, shown, shown[:, :1], on_error=on_error, **options)

    @classmethod
    def from_utilities(
        cls,
        X: pd.DataFrame | ArrayLike,
        U: ArrayLike,
        shown: Any,
        ties: Ties = "weak",
        *,
        on_error: OnError = "raise",
        **options: Unpack[SetOptions],
    ) -> "ChoiceData":
        """Make the choices of someone who keeps exactly the Pareto-undominated objects.

        Parameters
        ----------
        X : array_like (t, c) or DataFrame
        U : array_like (t, d)
            Utilities of the objects, larger is better.
        shown : sequence of sequences
        ties : {"weak", "strict"}
            See :func:`choicegp.data.pareto.dominates`.
        on_error, **options
            As in :meth:`from_sets`; the options are by, object_ids, respondents, weights, set_ids, encoding.

        Examples
        --------
        >>> data = ChoiceData.from_utilities([[1.0], [2.0]], [[1.0, 0.0], [0.0, 1.0]], [[0, 1]])
        >>> data.chosen[0]
        array([0, 1])
        """
        check_on_error(on_error)
        draft, findings = read_sets(X, shown, None, **options)
        utilities = check_utilities(U, len(draft.X))
        # Unknown objects (-1) are in sets that are refused or left out anyway.
        known = np.maximum(draft.flat_shown, 0)
        flat_chosen = undominated_in_sets(utilities, known, draft.offsets, ties)
        return cls._settled(draft._replace(flat_chosen=flat_chosen), findings, on_error)

    @classmethod
    def from_long(
        cls,
        frame: pd.DataFrame | str | os.PathLike[str],
        *,
        set_id: str = "choice_id",
        object_id: str | None = "alt_id",
        chosen: str | None = "choice",
        features: Sequence[str] | None = None,
        respondent: str | None = None,
        weight: str | None = None,
        available: str | None = None,
        encoding: FeatureEncoding | None = None,
        on_error: OnError = "raise",
    ) -> "ChoiceData":
        """Make choice data from a long table: one row per set and shown alternative.

        Parameters
        ----------
        frame : DataFrame or path
            A path names a CSV, TSV or Parquet file. The rows of a set need not be adjacent.
        set_id, object_id, chosen, respondent, weight, available : str
            Names of columns. Flags (``chosen``, ``available``) are 0/1 or true/false; rows that are not
            available were not shown. Each distinct (id, features) is an object; with ``object_id=None`` each
            distinct row of features is. ``chosen=None``: the choices are not known.
        features : sequence of str, optional
            The feature columns; by default all columns that have no other role.
        encoding, on_error
            As in :meth:`from_sets`.

        Examples
        --------
        >>> frame = pd.DataFrame(
        ...     {"choice_id": [1, 1], "alt_id": ["pen", "brush"], "choice": [1, 0], "price": [3, 5]}
        ... )
        >>> ChoiceData.from_long(frame)
        ChoiceData(1 set, 2 objects, 1 feature, choices)
        """
        roles = Roles(set_id, object_id, chosen, available, respondent, weight)
        check_on_error(on_error)
        return cls._settled(*read_long(long_columns(frame, roles, features), encoding), on_error)

    @classmethod
    def from_wide(
        cls,
        frame: pd.DataFrame | str | os.PathLike[str],
        *,
        alternatives: Sequence[Any],
        features: Sequence[str],
        set_id: str | None = None,
        object_id: str | None = None,
        chosen: str | None = "choice",
        available: str | None = None,
        respondent: str | None = None,
        weight: str | None = None,
        sep: str = "_",
        encoding: FeatureEncoding | None = None,
        on_error: OnError = "raise",
    ) -> "ChoiceData":
        """Make choice data from a wide table: one row per set, columns ``{feature}{sep}{alternative}``.

        Parameters
        ----------
        frame : DataFrame or path
        alternatives : sequence
            What stands behind ``sep`` in the columns' names. An alternative whose features are all missing
            was not shown.
        features, chosen, available, object_id : str or sequence of str
            What stands before ``sep``. Without ``object_id`` the alternative's name is the object's id.
        set_id, respondent, weight : str, optional
            Names of columns; without ``set_id`` the sets are numbered from 0.
        encoding, on_error
            As in :meth:`from_sets`.

        Examples
        --------
        >>> frame = pd.DataFrame([[3, 5, 1, 0]], columns=["cost_pen", "cost_ink", "choice_pen", "choice_ink"])
        >>> ChoiceData.from_wide(frame, alternatives=["pen", "ink"], features=["cost"])
        ChoiceData(1 set, 2 objects, 1 feature, choices)
        """
        roles = Roles(set_id, object_id, chosen, available, respondent, weight)
        check_on_error(on_error)
        columns = wide_columns(frame, roles, alternatives, features, sep)
        return cls._settled(*read_long(columns, encoding), on_error)

    @classmethod
    def _settled(cls, draft: Draft, findings: Findings, on_error: OnError) -> "ChoiceData":
        clean, skipped = settle(draft, findings, on_error)
        return cls(**parts_of(clean), skipped=skipped)

    def with_encoding(self, encoding: FeatureEncoding) -> "ChoiceData":
        """Return the same data with features encoded by another encoding, such as that of training data.

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

    def to_long(
        self,
        *,
        set_id: str = "choice_id",
        object_id: str = "alt_id",
        chosen: str = "choice",
        respondent: str = "respondent",
        weight: str = "weight",
    ) -> pd.DataFrame:
        """Return a long table, one row per set and shown object, which :meth:`from_long` reads back.

        Features are decoded. Objects that were never shown are not in it.

        Examples
        --------
        >>> ChoiceData.from_pairs([[1.0], [2.0]], [[1, 0]]).to_long().columns.tolist()
        ['choice_id', 'alt_id', 'choice', 'x0']
        """
        return long_table(self, Roles(set_id, object_id, chosen, None, respondent, weight))

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the long table to a CSV, TSV or Parquet file (by suffix), whole or not at all."""
        write_table(self.to_long(), path)

    def describe(self) -> Description:
        """Describe the data: sizes, objects never shown, groups, repeats, contradictions."""
        return describe(self)

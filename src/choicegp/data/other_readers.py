"""Choice data from wide tables, pairs, utilities, rankings, ratings, and answers of yes or no."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self, Unpack

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from choicegp.data.pareto import Ties, check_utilities, undominated_in_sets
from choicegp.data.split import joined
from choicegp.errors import ChoiceGPError
from choicegp.reading.cells import NumberForm
from choicegp.reading.columns import Roles, answer_columns, question_of
from choicegp.reading.defects import Empty, Missing, OnError, Rules, settle
from choicegp.reading.encoding import FeatureEncoding
from choicegp.reading.long import read_long
from choicegp.reading.sequences import (
    SetOptions,
    read_best_worst,
    read_pairs,
    read_rankings,
    read_ratings,
    read_sets,
    read_yes_no,
)
from choicegp.reading.wide import wide_columns

if TYPE_CHECKING:
    from choicegp.data.choices import ChoiceData


class OtherReaders:
    """Constructors of ``ChoiceData`` beside ``from_sets`` and ``from_long``."""

    __slots__ = ()

    @classmethod
    def from_wide(
        cls,
        frame: pd.DataFrame | str | os.PathLike[str],
        *,
        alternatives: Sequence[Any],
        features: Sequence[str],
        set_id: str | Sequence[str] | None = None,
        object_id: str | None = None,
        chosen: str | Sequence[str] | None = "choice",
        available: str | None = None,
        respondent: str | None = None,
        weight: str | None = None,
        sep: str = "_",
        kind: str | None = None,
        numbers: Sequence[str] = (),
        decimal: str | None = None,
        encoding: FeatureEncoding | None = None,
        on_error: OnError = "raise",
        empty: Empty = "error",
        missing: Missing = "error",
        at_most: int | None = None,
    ) -> Self:
        """Make choice data from a wide table: one row per set, columns ``{feature}{sep}{alternative}``.

        Parameters
        ----------
        frame : DataFrame or path
        alternatives : sequence
            What stands behind ``sep`` in the columns' names. An alternative whose features are all missing
            was not shown.
        features, chosen, available, object_id : str or sequence of str
            What stands before ``sep``. Without ``object_id`` the alternative's name is the object's id. A column
            that is called ``chosen`` itself holds the chosen alternative of each set, by name or by position from 1;
            the sets are then of kind "best".
        set_id, respondent, weight : str, optional
            Names of columns; without ``set_id`` the sets are numbered from 0.
        kind, numbers, decimal
            As in ``from_long``; ``numbers`` are among the features.
        encoding, on_error, empty, missing, at_most
            As in ``from_sets``.

        Returns
        -------
        ChoiceData

        Examples
        --------
        >>> from choicegp import ChoiceData
        >>> frame = pd.DataFrame([[3, 5, 1, 0]], columns=["cost_pen", "cost_ink", "choice_pen", "choice_ink"])
        >>> ChoiceData.from_wide(frame, alternatives=["pen", "ink"], features=["cost"])
        ChoiceData(1 set, 2 objects, 1 feature, choices)
        """
        question, column = question_of(kind)
        best, worst = answer_columns(chosen, question)
        roles = Roles(set_id, object_id, best, available, respondent, weight, column, worst)
        columns = wide_columns(frame, roles, alternatives, features, sep, NumberForm(numbers, decimal))
        if columns.one_chosen and question in ("best-worst", "ranking", "rating") and worst is None:
            two = ", or two columns such as this one, chosen=['BEST', 'WORST']" if question == "best-worst" else ""
            group = f"{best}{sep}{next(iter(alternatives))}"
            raise ChoiceGPError(
                f"column {best!r} names one alternative per set, which is no answer to kind={question!r}: name a group "
                f"of columns, one for each alternative, such as {group!r}{two}"
            )
        if kind is None and columns.one_chosen:
            question = "best"
        rules = Rules(on_error, empty, missing, question, at_most)
        return cls(**settle(*read_long(columns, encoding, rules), rules))

    @classmethod
    def from_pairs(
        cls, X: pd.DataFrame | ArrayLike, pairs: Any, *, on_error: OnError = "raise", **options: Unpack[SetOptions]
    ) -> Self:
        """Make choice data from pairs of which one object was preferred.

        Parameters
        ----------
        X : array_like (t, c) or DataFrame
        pairs : array_like (m, 2)
            Rows [winner, loser] of row numbers, or of ids with ``by="id"``.
        on_error, **options
            As in ``from_sets``; the options are by, object_ids, respondents, weights, set_ids, encoding.

        Returns
        -------
        ChoiceData

        Examples
        --------
        >>> from choicegp import ChoiceData
        >>> ChoiceData.from_pairs([[1.0], [2.0]], [[1, 0]]).chosen[0]
        array([1])
        """
        return cls(**settle(*read_pairs(X, pairs, **options), Rules(on_error)))

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
    ) -> Self:
        """Make the choices of someone who keeps exactly the Pareto-undominated objects.

        Parameters
        ----------
        X : array_like (t, c) or DataFrame
        U : array_like (t, d)
            Utilities of the objects, larger is better.
        shown : sequence of sequences
        ties : {"weak", "strict"}
            See :func:`choicegp.data.pareto.undominated`.
        on_error, **options
            As in ``from_sets``; the options are by, object_ids, respondents, weights, set_ids, encoding.

        Returns
        -------
        ChoiceData

        Examples
        --------
        >>> from choicegp import ChoiceData
        >>> data = ChoiceData.from_utilities([[1.0], [2.0]], [[1.0, 0.0], [0.0, 1.0]], [[0, 1]])
        >>> data.chosen[0]
        array([0, 1])
        """
        draft, findings = read_sets(X, shown, None, **options)
        utilities = check_utilities(U, len(draft.X))
        # Unknown objects (-1) are in sets that are refused or left out anyway.
        chosen = undominated_in_sets(utilities, np.maximum(draft.flat_shown, 0), draft.offsets, ties)
        return cls(**settle(draft._replace(flat_chosen=chosen), findings, Rules(on_error)))

    @classmethod
    def from_best_worst(
        cls,
        X: pd.DataFrame | ArrayLike,
        shown: Any,
        best: Any,
        worst: Any,
        *,
        on_error: OnError = "raise",
        **options: Unpack[SetOptions],
    ) -> Self:
        """Make choice data from sets of which the best and the worst object were marked.

        Each answer becomes a set of kind ``"best"`` and a set of kind ``"worst"``, which shows the objects without the
        best. Their ids are the answer's id with ``:best`` and ``:worst``.

        Parameters
        ----------
        X : array_like (t, c) or DataFrame
        shown : sequence of sequences
        best, worst : sequence
            One object per set, as a row number, or as an id with ``by="id"``.
        on_error, **options
            As in ``from_sets``; the options are by, object_ids, respondents, weights, set_ids, encoding.

        Returns
        -------
        ChoiceData

        Examples
        --------
        >>> from choicegp import ChoiceData
        >>> data = ChoiceData.from_best_worst([[1.0], [2.0], [3.0]], [[0, 1, 2]], best=[1], worst=[2])
        >>> data.set_ids.tolist(), data.kinds.tolist(), [rows.tolist() for rows in data.shown]
        (['0:best', '0:worst'], ['best', 'worst'], [[0, 1, 2], [0, 2]])
        """
        return cls(**settle(*read_best_worst(X, shown, best, worst, **options), Rules(on_error, question="best-worst")))

    @classmethod
    def from_rankings(
        cls,
        X: pd.DataFrame | ArrayLike,
        rankings: Any,
        shown: Any = None,
        *,
        on_error: OnError = "raise",
        **options: Unpack[SetOptions],
    ) -> Self:
        """Make choice data from rankings of sets.

        A ranking is the best object of the set, then the best of the rest, and so on. It becomes sets of kind
        ``"best"``, with the ids ``7:1``, ``7:2`` and so on.

        Parameters
        ----------
        X : array_like (t, c) or DataFrame
        rankings : sequence of sequences, or DataFrame
            The objects of each set, the best first. A table has one row per set and one column per place, such as
            first, second and third; its last places may be empty.
        shown : sequence of sequences, optional
            The objects of each set, if only the first of them were ranked. Objects without a rank are below all others.
        on_error, **options
            As in ``from_sets``; the options are by, object_ids, respondents, weights, set_ids, encoding.

        Returns
        -------
        ChoiceData

        Examples
        --------
        >>> from choicegp import ChoiceData
        >>> data = ChoiceData.from_rankings([[1.0], [2.0], [3.0]], [[2, 0, 1]])
        >>> [rows.tolist() for rows in data.shown], [rows.tolist() for rows in data.chosen]
        ([[2, 0, 1], [0, 1]], [[2], [0]])
        """
        return cls(**settle(*read_rankings(X, rankings, shown, **options), Rules(on_error, question="ranking")))

    @classmethod
    def from_ratings(
        cls,
        X: pd.DataFrame | ArrayLike,
        ratings: pd.DataFrame | ArrayLike,
        *,
        on_error: OnError = "raise",
        **options: Unpack[SetOptions],
    ) -> Self:
        """Make choice data from ratings of objects by persons.

        Two objects that a person rates differently are a pair of kind ``"best"``; equal ratings say nothing.

        Parameters
        ----------
        X : array_like (t, c) or DataFrame
        ratings : DataFrame or array_like (r, t)
            One row per person, with the ratings of the objects in the order of ``X``; larger is better. NaN where an
            object was not rated. The index of a DataFrame names the persons, and its columns the objects.
        on_error, **options
            As in ``from_sets``; the options are object_ids, weights (of persons), encoding.

        Returns
        -------
        ChoiceData

        Examples
        --------
        >>> import warnings
        >>> from choicegp import ChoiceData
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore")  # a note says how many pairs and ties there are
        ...     data = ChoiceData.from_ratings([[1.0], [2.0], [3.0]], [[5, 5, 2]])
        >>> [rows.tolist() for rows in data.shown]
        [[0, 2], [1, 2]]
        """
        return cls(**settle(*read_ratings(X, ratings, **options), Rules(on_error, question="rating")))

    @classmethod
    def from_yes_no(
        cls,
        X: pd.DataFrame | ArrayLike,
        objects: Any,
        answers: Any,
        *,
        on_error: OnError = "raise",
        **options: Unpack[SetOptions],
    ) -> Self:
        """Make choice data from single objects that were accepted or not.

        Each answer is a set of one object, from which nothing is chosen where the answer is no.

        Parameters
        ----------
        X : array_like (t, c) or DataFrame
        objects : sequence
            One object per answer, as a row number, or as an id with ``by="id"``.
        answers : sequence
            True or False, 1 or 0, "yes" or "no".
        on_error, **options
            As in ``from_sets``; the options are by, object_ids, respondents, weights, set_ids, encoding.

        Returns
        -------
        ChoiceData

        Examples
        --------
        >>> from choicegp import ChoiceData
        >>> data = ChoiceData.from_yes_no([[1.0], [2.0]], [0, 1], ["yes", "no"])
        >>> [rows.tolist() for rows in data.chosen]
        [[0], []]
        """
        return cls(**settle(*read_yes_no(X, objects, answers, **options), Rules(on_error, empty="none")))

    @classmethod
    def concat(cls, parts: "Sequence[ChoiceData]") -> Self:
        """Join data sets, which may be answers to different questions about the same utilities.

        An object is one object in all parts when its id and its features are equal. Where an id of a set occurs in two
        parts, all ids begin with the number of their part: ``1/7``, ``2/7``.

        Returns
        -------
        ChoiceData

        Examples
        --------
        >>> from choicegp import ChoiceData
        >>> kept = ChoiceData.from_sets([[1.0], [2.0]], [[0, 1]], [[0, 1]])
        >>> best = ChoiceData.from_sets([[2.0], [3.0]], [[0, 1]], [[0]], object_ids=[1, 2], kinds="best")
        >>> data = ChoiceData.concat([kept, best])
        >>> data.set_ids.tolist(), data.kinds.tolist(), data.object_ids.tolist()
        (['1/0', '2/0'], ['keep', 'best'], [0, 1, 2])
        """
        return cls(**joined(parts))

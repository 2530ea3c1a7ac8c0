"""The numbers that analysts ask for: shares, changes, elasticities, worth, diversion and segments."""

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from choicegp.compute.devices import computing
from choicegp.errors import ExtrapolationWarning
from choicegp.estimators.utility_gp import UtilityGP
from choicegp.prediction.shares import N_DRAWS, Asked, shares, what_if

if TYPE_CHECKING:
    import pandas as pd


class MarketNumbers(UtilityGP):
    """Numbers about assortments, each with a 95% interval from joint draws of all people's utilities.

    All methods take the same options.  ``assortment`` is a DataFrame of features whose index holds the objects' ids, or
    a list of ids of objects of the training data; by default all objects of the training data, if there are at most
    ten.  ``people`` says whose shares these are, for a model of many people: by default all respondents; a list of
    respondents; or ``"new"`` for the population at large, for which 300 new people stand, drawn anew in every draw.  A
    model that pools all answers knows one person.  ``n_draws`` is the number of joint draws, and the same
    ``random_state`` gives the same result.
    """

    def shares(
        self, assortments: Any, *, take: str = "equal", n_draws: int = N_DRAWS, random_state: int | None = 0,
        people: Any = None,
    ) -> "pd.DataFrame":  # fmt: skip
        """Return the share of people who keep each object of each assortment, and who would take it.

        Parameters
        ----------
        assortments : ChoiceData or dict
            The sets of a ChoiceData, which needs no choices; or a dict from the name of each assortment to a DataFrame
            of features, whose index holds the objects' ids, or to a list of ids of objects of the training data.
        take : {"equal", "best"}
            Which of the kept objects a person takes: each with the same probability, or the best in a utility that is
            picked at random.  Who keeps nothing takes nothing.
        n_draws, random_state : int
            Number of joint draws, and the seed.
        people : "new" or list of respondents, optional
            Whose shares, by default all respondents'; "new": of the population at large.

        Returns
        -------
        DataFrame
            One row for each assortment and object: keep, take, and the ends of their 95% intervals (``keep_low``,
            ``keep_high``, ``take_low``, ``take_high``).  Where the model has a threshold, a last row ``none`` has the
            share of people who keep nothing; the column take sums to one.

        Examples
        --------
        >>> from choicegp import ChoiceData, ChoiceGP
        >>> data = ChoiceData.from_pairs([[0.0], [1.0], [2.0]], [[1, 0], [2, 1], [2, 0]])
        >>> model = ChoiceGP(n_utilities=1, intervals="none", max_iter=60).fit(data)
        >>> found = model.shares({"all": [0, 1, 2], "without the best": [0, 1]})
        >>> found.groupby("assortment")["take"].sum().round(6).tolist()
        [1.0, 1.0]
        """
        self._check_fitted()
        with computing(self.device):
            asked = Asked.of(self.fitted_, people, n_draws, random_state, take)
            found, market = shares(self.fitted_, assortments, asked)
        self._warn_of(market)
        return found

    def what_if(
        self, assortment: Any, changes: Any, *, take: str = "equal", n_draws: int = N_DRAWS,
        random_state: int | None = 0, people: Any = None,
    ) -> "pd.DataFrame":  # fmt: skip
        """Return the shares of an assortment before and after changes, and what the changes make of them.

        Parameters
        ----------
        assortment : DataFrame or list of ids
        changes : dict
            New values of features for each object that changes, such as ``{"B": {"price": 799}}``; None for an object
            that is withdrawn.
        take, n_draws, random_state, people
            As in `shares`.

        Returns
        -------
        DataFrame
            One row for each object: ``keep_before``, ``keep_after`` and ``keep_difference`` with the ends of its 95%
            interval, from the same draws before and after; the same of take.
        """
        self._check_fitted()
        with computing(self.device):
            asked = Asked.of(self.fitted_, people, n_draws, random_state, take)
            found, market = what_if(self.fitted_, assortment, changes, asked)
        self._warn_of(market)
        return found

    def _warn_of(self, market: Any) -> None:
        """Warn of offered objects outside the range of the training objects."""
        if message := str(self._outside(market.X[np.unique(np.concatenate(market.rows))])):
            warnings.warn(message, ExtrapolationWarning, stacklevel=3)

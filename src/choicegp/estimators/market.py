"""The numbers that analysts ask for: shares, changes, elasticities, worth, diversion and segments."""

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from choicegp.compute.devices import computing
from choicegp.errors import ExtrapolationWarning
from choicegp.estimators.checking import CheckedAnswers
from choicegp.prediction.indicators import diversion, elasticities, worth
from choicegp.prediction.segments import Segments, segments
from choicegp.prediction.shares import N_DRAWS, MarketOptions, shares, what_if

if TYPE_CHECKING:
    import pandas as pd


class MarketNumbers(CheckedAnswers):
    """Numbers about assortments, each with a 95% interval from joint draws of all people's utilities.

    All methods take the same options.  ``assortment`` is a DataFrame of features whose index holds the objects' ids, or
    a list of ids of objects of the training data.  By default it is all objects of the training data, if there are at
    most ten, and otherwise up to twenty sets of the training data, over which shares are averaged.  ``people`` says
    whose shares these are, for a model of many people: by default all respondents; a list of respondents; or ``"new"``
    for the population at large, for which 300 new people stand, drawn anew in every draw.  A model that pools all
    answers knows one person.  ``n_draws`` is the number of joint draws, and the same ``random_state`` gives the same
    result.
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
            One row for each set (an assortment) and object: kept, taken, and the ends of their 95% intervals
            (``kept_lower``, ``kept_upper``, ``taken_lower``, ``taken_upper``).  Where the model has a threshold, a last
            row ``none`` has the share of people who keep nothing; the column taken sums to one.

        Examples
        --------
        >>> from choicegp import ChoiceData, ChoiceGP
        >>> data = ChoiceData.from_pairs([[0.0], [1.0], [2.0]], [[1, 0], [2, 1], [2, 0]])
        >>> model = ChoiceGP(n_utilities=1, intervals="none", max_iter=60).fit(data)
        >>> found = model.shares({"all": [0, 1, 2], "without the best": [0, 1]})
        >>> found.groupby("set")["taken"].sum().round(6).tolist()
        [1.0, 1.0]
        """
        return self._of_market(shares, (assortments,), people, n_draws, random_state, take)

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
            One row for each object: ``kept_before``, ``kept_after`` and ``kept_difference`` with the ends of its 95%
            interval, from the same draws before and after; the same of ``taken``.
        """
        return self._of_market(what_if, (assortment, changes), people, n_draws, random_state, take)

    def elasticities(
        self, feature: str, assortment: Any = None, *, step: float = 0.01, take: str = "equal",
        n_draws: int = N_DRAWS, random_state: int | None = 0, people: Any = None,
    ) -> "pd.DataFrame":  # fmt: skip
        """Return by how many percent shares change when a feature of one object rises by one percent.

        Parameters
        ----------
        feature : str
            A numeric feature.
        assortment : DataFrame or list of ids, optional
            At most ten objects; by default all objects or sets of the training data.
        step : float
            Relative change, up and down, of which the difference of log shares is taken.
        take, n_draws, random_state, people
            As in `shares`.

        Returns
        -------
        DataFrame
            One row for each object whose feature changes (``changed``) and each ``object`` whose share is looked at;
            ``kind`` is "own" where they are the same and "cross" elsewhere.  The elasticities of the shares who keep
            and who take it, with the ends of their 95% intervals.
        """
        return self._of_market(elasticities, (feature, assortment, step), people, n_draws, random_state, take)

    def worth(
        self, feature: str, in_terms_of: str = "price", change: Any = 1, assortment: Any = None, *,
        n_draws: int = N_DRAWS, random_state: int | None = 0, people: Any = None,
    ) -> "pd.DataFrame":  # fmt: skip
        """Return what a change of a feature is worth: the change of price that leaves the share who keep it as it was.

        Prices are searched within the range of the training data, and of several the one nearest to the object's own is
        taken.  Draws without such a price are counted; where they are more than 5% of all, no number is given.

        Parameters
        ----------
        feature, in_terms_of : str
            The feature that changes, and the numeric one that makes up for it.
        change : float or category
            By how much the feature rises; of a feature of categories, the new category.
        assortment : DataFrame or list of ids, optional
            At most ten objects; by default all objects or sets of the training data.
        n_draws, random_state, people
            As in `shares`.

        Returns
        -------
        DataFrame
            One row for each object: the median over draws (``worth``; positive where the price may rise), the ends of
            the 95% interval, the share of draws without such a price (``no_price``), and the same ``in_words``.
        """
        return self._of_market(worth, (feature, in_terms_of, change, assortment), people, n_draws, random_state)

    def diversion(
        self, object_id: Any, assortment: Any = None, *, take: str = "equal", n_draws: int = N_DRAWS,
        random_state: int | None = 0, people: Any = None,
    ) -> "pd.DataFrame":  # fmt: skip
        """Return where people go when an object is withdrawn.

        Parameters
        ----------
        object_id : object
            Id of the object that is withdrawn.
        assortment : DataFrame or list of ids, optional
            At most ten objects; by default all objects or sets of the training data.
        take, n_draws, random_state, people
            As in `shares`.

        Returns
        -------
        DataFrame
            One row for each other object: ``diverted``, what it gains as a share of those who took the withdrawn
            object, which sums to one and may be negative where an object comes back that the withdrawn one beat; and
            ``instead``, what those who kept the withdrawn object take now.
        """
        return self._of_market(diversion, (object_id, assortment), people, n_draws, random_state, take)

    def segments(self, k: int, *, n_draws: int = 100, random_state: int | None = 0) -> Segments:
        """Find segments of respondents who choose in the same way; for models of many people.

        People are compared by what they are predicted to keep of 40 sets drawn from the shown objects, and put around
        ``k`` of them by k-medoids.

        Parameters
        ----------
        k : int
            Number of segments.
        n_draws, random_state : int
            Number of joint draws, and the seed.

        Returns
        -------
        Segments
            Who belongs to which segment, what sets each apart, and how stable the segments are; `print` says it in
            words.
        """
        self._check_fitted()
        with computing(self.device):
            return segments(self.fitted_, k, MarketOptions.of(self.fitted_, None, n_draws, random_state))

    def _of_market(self, function: Callable[..., tuple["pd.DataFrame", Any]], given: tuple, *options: Any) -> Any:
        """Ask a function about a market, and warn of offered objects outside the range of the training objects."""
        self._check_fitted()
        with computing(self.device):
            found, market = function(self.fitted_, *given, MarketOptions.of(self.fitted_, *options))
        if message := str(self._outside(market.X[np.unique(np.concatenate(market.rows))])):
            warnings.warn(message, ExtrapolationWarning, stacklevel=3)
        return found

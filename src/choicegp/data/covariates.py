"""What is known about the people who answered: covariates such as age or segment, one row per respondent."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from choicegp.checks import kind_of, listed
from choicegp.data.packing import FeatureScaling
from choicegp.errors import ChoiceGPError
from choicegp.reading.encoding import FeatureEncoding


class CovariateCoding(NamedTuple):
    """How covariates become numbers of mean 0 and standard deviation 1 over the respondents of a fit."""

    encoding: FeatureEncoding
    mean: NDArray[np.float64]
    scale: NDArray[np.float64]

    @classmethod
    def learn(cls, frame: pd.DataFrame, respondents: Sequence[Any]) -> "CovariateCoding":
        """Learn from the covariates of these respondents."""
        own = rows_of(frame, respondents)
        encoding = FeatureEncoding.learn(own)
        scaling = FeatureScaling.of(encoding.encode(own))
        return cls(encoding, scaling.mean, scaling.scale)

    def coded(self, frame: pd.DataFrame | None, respondents: Sequence[Any]) -> NDArray[np.float64]:
        """Return the numbers (R, q) of these respondents."""
        if frame is None:
            names = listed([column.name for column in self.encoding.columns])
            raise ChoiceGPError(f"this model knows people by {names}: give the data covariates (data.with_covariates)")
        own = rows_of(frame, respondents)
        absent = [column.name for column in self.encoding.columns if column.name not in own.columns]
        if absent:
            raise ChoiceGPError(f"the covariates lack the column {absent[0]!r}, which the model was fitted with")
        own = own[[column.name for column in self.encoding.columns]]
        return (self.encoding.encode(own) - self.mean) / self.scale


def rows_of(frame: pd.DataFrame, respondents: Sequence[Any]) -> pd.DataFrame:
    """Return the rows of respondents, of whom each must have one."""
    place = {respondent: row for row, respondent in enumerate(frame.index.tolist())}
    unknown = [respondent for respondent in respondents if respondent not in place]
    if unknown:
        raise ChoiceGPError(f"there are no covariates of the respondents {listed(unknown)}")
    return frame.iloc[[place[respondent] for respondent in respondents]]


def checked_covariates(frame: Any, respondents: Any) -> pd.DataFrame:
    """Check a table of covariates, whose index names the respondents."""
    if respondents is None:
        raise ChoiceGPError("covariates belong to respondents, and the data do not say who answered")
    if not isinstance(frame, pd.DataFrame):
        raise ChoiceGPError(f"covariates must be a DataFrame whose index names the respondents; got {kind_of(frame)}")
    if not len(frame.columns):
        raise ChoiceGPError("the table of covariates has no columns")
    again = frame.index[frame.index.duplicated()]
    if len(again):
        raise ChoiceGPError(f"the respondent {again.tolist()[0]!r} has several rows of covariates")
    everyone = list(dict.fromkeys(np.asarray(respondents, dtype=object).tolist()))
    own = rows_of(frame, everyone)
    for name, column in own.items():
        lost = column.index[column.isna()]
        if len(lost):
            raise ChoiceGPError(
                f"the covariate {name!r} of respondent {lost.tolist()[0]!r} is missing: fill it in, or leave out the "
                "person's sets"
            )
    return frame


def covariates_in_rows(respondent: pd.Series, columns: pd.DataFrame) -> pd.DataFrame:
    """Return the covariates of each respondent from a table with a row for each shown object."""
    people, ids = pd.factorize(respondent.astype(object))
    named = np.flatnonzero(people >= 0)  # a row without a respondent is a defect, which was found before
    first = named[np.unique(people[named], return_index=True)[1]]
    for name, column in columns.items():
        values = pd.factorize(column, use_na_sentinel=False)[0]
        differs = named[values[named] != values[first][people[named]]]
        if len(differs):
            place = differs[0]
            several = [column.iloc[row] for row in (first[people[place]], place)]
            raise ChoiceGPError(
                f"the covariate {name!r} of respondent {ids[people[place]]!r} has several values, {listed(several)}: "
                "a covariate belongs to the person. If it belongs to the objects, make it a feature"
            )
    return columns.iloc[first].set_axis(pd.Index(ids, dtype=object), axis=0)


def joined_covariates(tables: Sequence[pd.DataFrame | None]) -> pd.DataFrame | None:
    """Return the covariates of all people of several data sets; None unless all of these have some."""
    if any(table is None for table in tables):
        return None
    whole = pd.concat([table for table in tables if table is not None])
    return whole[~whole.index.duplicated(keep="last")]

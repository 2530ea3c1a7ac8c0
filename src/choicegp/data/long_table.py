"""Choice data as a long table, one row per set and shown object."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from choicegp.checks import unique_index
from choicegp.data.covariates import rows_of
from choicegp.errors import ChoiceGPError
from choicegp.reading.columns import Roles, check_roles

if TYPE_CHECKING:
    from choicegp.data.choices import ChoiceData


def long_table(data: "ChoiceData", names: Roles) -> pd.DataFrame:
    """Return choice data as a long table; see ``ChoiceData.to_long``."""
    check_roles(names)
    unique_index(data.set_ids, "a long table needs sets with ids of their own")
    sizes = np.diff(data.offsets)
    columns: dict[Any, Any] = {names.set_id: np.repeat(data.set_ids, sizes)}
    if data.respondents is not None:
        columns[names.respondent] = np.repeat(data.respondents, sizes)
    columns[names.object_id] = data.object_ids[data.flat_shown]
    if data.flat_chosen is not None:
        columns[names.chosen] = data.flat_chosen.astype(np.int64)
    if data.weights is not None:
        columns[names.weight] = np.repeat(data.weights, sizes)
    if data.kinds is not None:
        columns[names.kind] = np.repeat(data.kinds, sizes)
    features = data.encoding.decode(data.X).iloc[data.flat_shown].reset_index(drop=True)
    if data.covariates is not None and data.respondents is not None:
        people = rows_of(data.covariates, np.asarray(data.respondents, dtype=object).tolist())
        columns |= {name: np.repeat(column.to_numpy(), sizes) for name, column in people.items()}
    clash = [name for name in features.columns if name in columns]
    if clash:
        raise ChoiceGPError(
            f"the feature {clash[0]!r} has the name of another column of the long table; "
            "give that column another name, for instance to_long(chosen='kept')"
        )
    return pd.concat([pd.DataFrame(columns), features], axis=1)

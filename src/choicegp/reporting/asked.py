"""What a report is about, and the pieces that its sections share."""

import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from choicegp.checks import in_digits
from choicegp.data.choices import ChoiceData
from choicegp.errors import ChoiceGPError
from choicegp.evaluation.effects import Effects
from choicegp.plotting.names import are_row_numbers, object_names
from choicegp.reporting.html import Markup, element
from choicegp.reporting.pictures import figure


class Asked(NamedTuple):
    """What a report is about.

    Attributes
    ----------
    model : Estimator
        Fitted.
    held_out : ChoiceData or None
        Sets with choices that the model has not seen.
    assortments : ChoiceData, dict or None
        As `ChoiceGP.shares` takes them.
    changes : dict or None
        As `ChoiceGP.what_if` takes them, for the first assortment.
    n_segments : int or None
    effects : Effects or None
        Of the model's features, where it has any.
    numbers : iterator of int
        Numbers of the figures.
    random_state : int or None
    """

    model: Any
    held_out: ChoiceData | None
    assortments: Any
    changes: dict[Any, Any] | None
    n_segments: int | None
    effects: Effects | None
    numbers: Iterator[int]
    random_state: int | None

    @property
    def data(self) -> ChoiceData:
        """The training data."""
        data: ChoiceData = self.model.data_
        return data

    @property
    def features(self) -> list[str]:
        """Names of the features' columns, the most relevant first where that is known."""
        if self.effects is None:
            return [column.name for column in self.model.encoding_.columns]
        order = np.argsort(-self.effects.relevance.mean.max(axis=0), kind="stable")
        return [self.effects.names[j] for j in order]

    def names(self) -> list[str]:
        """Return what to call the training objects."""
        data = self.data
        return object_names(list(data.object_ids), data.X, data.encoding, self.features)

    def names_by_id(self) -> dict[Any, str]:
        """Return what to call objects by their ids; empty where these are names already."""
        ids = list(self.data.object_ids)
        return dict(zip(ids, self.names(), strict=True)) if are_row_numbers(ids) else {}

    def picture(self, axes: Any, alternative: str, caption: str) -> Markup:
        """Return what was drawn, numbered."""
        drawn = np.ravel(np.asarray(axes, dtype=object))[0].figure
        number = next(self.numbers)
        return figure(drawn, number, alternative, f"Figure {number}. {caption}")


def part_or_reason(part: Callable[[], Markup | None]) -> Markup | None:
    """Return a part of a report or, where the model cannot give it, the sentence that says why."""
    try:
        return part()
    except ChoiceGPError as error:
        return element("p", sentence(str(error)), class_="note")


def sentence(message: str) -> str:
    """Make a sentence of a message.

    Examples
    --------
    >>> sentence("there are no people")
    'There are no people.'
    """
    text = message.strip()
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."


def quietly(work: Callable[[], Any], said: list[str]) -> Any:
    """Run something, and keep its warnings as sentences, each once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        result = work()
    texts = dict.fromkeys(sentence(" ".join(str(one.message).split())) for one in caught)
    said += [text for text in texts if text not in said]
    return result


def ranges(data: ChoiceData) -> pd.DataFrame:
    """Return what values the features of the shown objects have."""
    table = data.encoding.decode(data.X[np.unique(data.flat_shown)])
    rows = []
    for column in data.encoding.columns:
        values = table[column.name]
        if column.kind == "numeric":
            low, middle, high = (in_digits(value) for value in np.nanquantile(values.astype(float), [0.0, 0.5, 1.0]))
            said = f"{low} to {high}, median {middle}" if low != high else low
        else:
            counts = values.value_counts()
            said = ", ".join(f"{name} ({n})" for name, n in counts.iloc[:6].items())
            said += f" and {len(counts) - 6} more" if len(counts) > 6 else ""
        rows.append((column.name, "numbers" if column.kind == "numeric" else "categories", said))
    return pd.DataFrame(rows, columns=["feature", "kind", "values of the shown objects"])

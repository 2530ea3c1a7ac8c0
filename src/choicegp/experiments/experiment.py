"""What an experiment consists of.

An experiment is a module of this folder.  Its docstring is the protocol, fixed before any run: data, seeds, models,
options, what is measured.  It has

``TITLE : str``
    A line for lists and headings.
``runs(options) -> list of RunSettings``
    What is to be run, in an order that makes a part of it a balanced experiment (repetition by repetition).
``run(settings, data) -> RunValues``
    One run, a pure function of its settings: the same settings give the same values, up to rounding and to what
    an optimiser makes of it where there are several optima.
    ``data`` is the folder of published tables, None for the one named by CHOICEGP_DATA.
``report(outcomes) -> ExperimentReport``
    Tables and figures of whatever runs are done, beside the paper's values.  It must cope with a part of the runs.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RunSettings = dict[str, Any]
"""Everything that a run depends on, plain JSON: names, numbers, texts; among them always ``seed``."""

RunValues = dict[str, Any]
"""What a run gives, plain JSON.  Numbers and texts become columns of the table of raw results; lists (curves, scores of
single sets) are kept in the run log alone."""


class ExperimentOptions(NamedTuple):
    """What the user asks of an experiment."""

    quick: bool = False  # a much smaller version, to see within a minute or two that everything works
    seed: int = 0  # of the first repetition; the others follow it
    repetitions: int | None = None  # None for the number that the protocol states
    tables: bool = True  # whether there is a folder of published tables; an experiment may do without
    code: str = ""  # which sources make the runs, for experiments whose runs belong to their sources


class Outcome(NamedTuple):
    """A run that was done."""

    settings: RunSettings
    values: RunValues
    seconds: float  # of the run, data and scoring included
    version: str  # of choicegp


class ExperimentReport(NamedTuple):
    """What an experiment says."""

    text: str  # Markdown below the heading: tables of our values beside the paper's, and what differs
    figures: "dict[str, Figure]"  # by file name, without its ending

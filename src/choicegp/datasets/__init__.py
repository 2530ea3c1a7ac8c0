"""Data sets to learn from: simulated choices with known utilities, and loaders of published tables.

Simulated choices (a `SyntheticChoices`: data, true utilities, name)
    `sincos`, `counterexample`, `gp_utilities`, `alice_choices`, `benchmark_choices`,
    `made_choices`;
    `inconsistent_preferences` answers the same pairs in two ways (an `InconsistentPreferences`); `many_people` is a
    whole study (a `PeopleData`: data, utilities of each person).
Objects with measured outputs (an `ObjectTable`, whose `choices` method makes the choices)
    `vehicle`, `benchmark_problem` (DTLZ and ZDT, from pymoo), `made_problem` (rotated problems, random networks,
    MaF-like problems, products and ratios), and from files `load_am`, `load_edm`, `load_jura`, `load_slump`.
Choices from files
    `load_ellipses` (a real person's), `load_zurich` (approval ballots, a `Ballots`: data, voters), `load_sincos`
    (a `SinCosFiles`: train, known, new), and `load_preflib` (approval ballots in a file of PrefLib).
Pieces
    `random_sets` and `all_pairs` (what to show), `noisy_choices` and `noisy_rankings` (answers with errors),
    `sincos_utilities`, `counterexample_utility`, `vehicle_outputs`, `laptops` (a catalogue) and `alice` (what laptops
    are worth to her).

The loaders take a folder, or find it in the environment variable CHOICEGP_DATA.

For example:

>>> from choicegp import datasets
>>> data, U, name = datasets.sincos(n_sets=50)
>>> len(data), U.shape, name
(50, (200, 2), 'sincos')
"""

from choicegp.datasets.alice import alice, alice_choices, laptops
from choicegp.datasets.families import made_choices, made_problem
from choicegp.datasets.inconsistent import InconsistentPreferences, inconsistent_preferences
from choicegp.datasets.noisy import noisy_choices, noisy_rankings
from choicegp.datasets.people import PeopleData, many_people
from choicegp.datasets.preflib import load_preflib
from choicegp.datasets.problems import benchmark_choices, benchmark_problem, vehicle, vehicle_outputs
from choicegp.datasets.published import ObjectTable, load_am, load_edm, load_jura, load_slump
from choicegp.datasets.published_choices import Ballots, SinCosFiles, load_ellipses, load_sincos, load_zurich
from choicegp.datasets.simulated import (
    SyntheticChoices,
    all_pairs,
    counterexample,
    counterexample_utility,
    gp_utilities,
    random_sets,
    sincos,
    sincos_utilities,
)

__all__ = [
    "Ballots", "InconsistentPreferences", "ObjectTable", "PeopleData", "SinCosFiles", "SyntheticChoices", "alice",
    "alice_choices", "all_pairs", "benchmark_choices", "benchmark_problem", "counterexample", "counterexample_utility",
    "gp_utilities", "inconsistent_preferences", "laptops", "load_am", "load_edm", "load_ellipses", "load_jura",
    "load_preflib", "load_sincos", "load_slump", "load_zurich", "made_choices", "made_problem", "many_people",
    "noisy_choices", "noisy_rankings", "random_sets", "sincos", "sincos_utilities", "vehicle", "vehicle_outputs",
]  # fmt: skip

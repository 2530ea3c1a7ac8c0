"""Whether the intervals and probabilities of ChoiceGP are honest with default options, as a user gets them.

Protocol, fixed before any run. Every model is ``ChoiceGP(n_utilities=d)`` with default options, so that its
hyperparameters are learned; nothing else is given but a seed and the true number of utilities.

Simulated data. Features are standard normal. Each utility is a draw from a Gaussian process with an RBF kernel: log
lengthscales are normal around log sqrt(c / 2) for c features, with standard deviation 0.5, one for each feature, and
the log variance is normal around log 4 with standard deviation 0.5. Noisy answers are drawn from the model's
likelihood, normalised over all subsets of a set; noise-free answers are the objects that no other object of the set
dominates. All combinations of d = 1, 2, 3 utilities, sets of a = 2, 3, 5, 12, 16 objects, and 2 and 15 features. Of
the four repetitions 0 and 2 have 25 objects and 60 sets, 1 and 3 have 50 objects and 120 sets; in 2 and 3 the
utilities share 80% of their variance. Noisy answers are simulated in all repetitions, noise-free answers in
repetitions 0 and 3. Beyond d t = 600 there are four more data sets with noisy answers: 3 utilities, 250 objects with 2
features, 300 sets of 5.

Measured on each data set: (1) Coverage: the share of true differences between consecutive shown objects, in all
utilities, that lie in their 95% intervals, from quantiles of 1000 draws of ``sample_utilities``. Differences do not
depend on the level of a utility, about which choices say nothing. The order of utilities has no meaning: the order
nearest to the truth is taken. (2) The share of true differences whose rank among the draws is in one of the two outer
tenths, which should be 0.2. (3) Of the differences whose interval excludes zero, the share whose sign is wrong.
Answers without errors say nothing about the scale of utilities: there each true utility is first multiplied by the
number that brings it nearest to the posterior mean, which favours the model a little. (4) Log score a set (normalised,
for sets that the model can enumerate), log loss an object and exact accuracy on 40 new sets of the training objects
and 40 sets of 30 new objects, beside two answers fitted to the same training sets: a constant answer that looks at no
feature (the number of chosen objects by training frequencies with half a count added to each, which ones by lot), and
logistic regression of single objects on standardised features relative to the mean of the set, normalised over the
non-empty subsets. (5) Predicted probabilities of the objects of these held-out sets, in tenths, and how many were
chosen.

The jump. 40 objects and a "lemon" far below all of them, d = 1, 2, 3, two repetitions: what adding the lemon to 60
sets of ten objects changes in the probabilities of the ten. Sets in which, by the draws of the posterior, it is
dominated with a probability below 0.999 are left out. Beside it stands the change when the lemon is added to the first
nine objects of these sets, since a prediction may count all subsets of ten objects and not of eleven.

Tables (am, edm, jura, slump where a folder of published tables is given, and vehicle): 50 objects, or two thirds of a
smaller table, are for training; up to 30 others are new. 120 training sets of 4, from which what no other object
dominates in three measured outputs is chosen; three utilities; 100 held-out sets of known and of new objects; three
repetitions with other objects.

The quick version has one data set of each of four kinds, one jump and one table.
"""

from itertools import product

from choicegp.experiments.experiment import ExperimentOptions, RunSettings, RunValues
from choicegp.experiments.honesty_data import TABLE_OBJECTS, TABLE_TEST, TABLES, WITHOUT_FILES
from choicegp.experiments.honesty_measures import measured
from choicegp.experiments.honesty_report import report

__all__ = ["TITLE", "report", "run", "runs"]

TITLE = "Honesty: intervals and probabilities with default options"

UTILITIES, SIZES, FEATURES, REPETITIONS = (1, 2, 3), (2, 3, 5, 12, 16), (2, 15), 4
SMALL, MIDDLE, LARGE = ({"objects": t, "sets": m} for t, m in ((25, 60), (50, 120), (250, 300)))
RELATED = 0.8  # share of the variance that utilities have in common, in half of the data
NOISE_FREE_REPETITIONS = (0, 3)
TABLE_REPETITIONS, JUMP_REPETITIONS = 3, 2
# d, a, features, answers of the quick version
QUICK = ((1, 3, 2, "noisy"), (2, 5, 15, "noisy"), (2, 3, 2, "noise-free"), (3, 12, 2, "noisy"))


def runs(options: ExperimentOptions) -> list[RunSettings]:
    """List the data sets of every repetition: simulated ones, jumps, tables."""
    planned: list[RunSettings] = []
    repetitions = options.repetitions or (1 if options.quick else REPETITIONS)
    for repetition in range(repetitions):
        common = {"repetition": repetition, "seed": options.seed + repetition, "code": options.code}
        kinds = QUICK if options.quick else [*product(UTILITIES, SIZES, FEATURES, ("noisy", "noise-free"))]
        shape = {**(MIDDLE if repetition % 2 else SMALL), "related": RELATED if repetition % 4 > 1 else 0.0}
        planned += [
            {"part": "simulated", "d": d, "a": a, "features": c, "answers": answers, **shape, **common}
            for d, a, c, answers in kinds
            if answers == "noisy" or repetition % REPETITIONS in NOISE_FREE_REPETITIONS
        ]
        if not options.quick:
            kind = {"part": "simulated", "d": 3, "a": 5, "features": 2, "answers": "noisy"}
            planned.append({**kind, **LARGE, "related": shape["related"], **common})
        if repetition < JUMP_REPETITIONS:
            planned += [{"part": "jump", "d": d, **common} for d in ((2,) if options.quick else UTILITIES)]
        if repetition < TABLE_REPETITIONS:
            size = {"d": 3, "a": 4, "objects": TABLE_OBJECTS, "sets": 120, "test": TABLE_TEST}
            planned += [{"part": "table", "table": name, **size, **common} for name in _tables(options)]
    return planned


def _tables(options: ExperimentOptions) -> list[str]:
    there = [name for name in TABLES if options.tables or name in WITHOUT_FILES]
    return there[-1:] if options.quick and not options.tables else ["slump"] if options.quick else there


def run(settings: RunSettings, data: str | None = None) -> RunValues:
    """Fit one model and measure it."""
    return measured(settings, data)

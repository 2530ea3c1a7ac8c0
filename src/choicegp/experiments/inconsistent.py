"""Inconsistent preferences: forced to answer, or free to keep both of two objects.

Data (Chau et al. 2022, Section 4.1, as the paper repeats it; ``datasets.inconsistent_preferences``).  30 objects with 5
standard normal features; each is given one of L classes at random.  Every unordered pair of classes has a utility,
u(x) = sum_j alpha_j k(x, x_j), alpha standard normal, k the RBF kernel with lengthscale sqrt 5: one utility for L = 1,
three for L = 2.  The classes are hidden: no model sees them, and they do not depend on the features.  All 435 pairs of
objects are answered twice, without errors.

* Forced, for PGP, GPGP and PairGP: the winner is the better one by the utility of the two objects' classes.  For L = 2
  such answers run in circles.
* Pareto, for ChoiceGP: an object is chosen alone if it is better in all the utilities, otherwise both are chosen.

Sparsity is the share of the pairs that is left out of training and is the test: 0.1, 0.3, 0.5 (the medium), 0.7, 0.9.
Repetition r = 0 to 19 has seed r, which fixes objects, utilities and the split: all models have the same pairs, and a
denser level keeps the training pairs of a sparser one.  The paper does not state the number of objects, the
features, the lengthscale or the levels; these are ours.  Models have their default options (random_state 0), except
that ChoiceGP is fitted without intervals, of which nothing is reported.  It has as many utilities as there are: 1 for
L = 1, 3 for L = 2.  At the medium level it is also fitted with 1 to 5 utilities.

Scores, on held-out pairs.  The paper reports "the accuracy for the 4 models when predicting preferences on held-out
data" without a word on labels; we take it that each model is scored on answers of its own kind, and do the same.
Accuracy is the share of answers that are predicted exactly: one of two answers for the preference models, one of three
for ChoiceGP.  For L = 1 that is the same task.  For L = 2 it is not, so two more figures are given: the share of pairs
of which both are kept, which is the accuracy of always answering "both"; and the common accuracy, of all models on the
same pairs: of the held-out pairs of which one object is better in all the utilities, the share in which the model finds
that one the better (for ChoiceGP: gives it the larger probability to be chosen).  Log score: mean log-probability of
the held-out answers, each at least log 1e-10.

Verdicts.  Differences are taken within repetitions and averaged over the levels; their standard error is over
repetitions, of which at least five are needed.  "Better" is confirmed by a mean difference above two standard errors,
contradicted by one below minus two, and otherwise not confirmed.  "Equal" is confirmed by a mean of at most 0.01 (the
paper's rope for accuracies) where two standard errors are no more than that either, contradicted by a larger mean
beyond two standard errors, and otherwise not confirmed.  "Does not fall" is confirmed by a mean of at least -0.01,
contradicted by a smaller one beyond two standard errors, and otherwise not confirmed.  A claim of several parts is as
good as its weakest part.  The paper's error bars are standard deviations over its 20 runs, ours are standard errors.
"""

import time
from pathlib import Path

import numpy as np

from choicegp import ChoiceData, ChoiceGP, datasets
from choicegp.experiments.experiment import ExperimentOptions, ExperimentReport, Outcome, RunSettings, RunValues
from choicegp.experiments.inconsistent_report import MEDIUM, N_TRUE, Results, report_of
from choicegp.experiments.pairs import PREFERENCES, chosen_objects, common_accuracy, decided

TITLE = "Inconsistent preferences: forced answers and Pareto answers to the same pairs"

N_OBJECTS, N_FEATURES, N_REPETITIONS = 30, 5, 20
LEVELS = (0.1, 0.3, MEDIUM, 0.7, 0.9)
MOST = 5  # utilities
_FLOOR = 1e-10


def runs(options: ExperimentOptions) -> list[RunSettings]:
    """List all models at all levels, then ChoiceGP with other numbers of utilities, repetition by repetition."""
    levels = (MEDIUM,) if options.quick else LEVELS
    default = 2 if options.quick else N_REPETITIONS
    common = {"n_objects": 12 if options.quick else N_OBJECTS, "n_features": N_FEATURES}
    listed: list[RunSettings] = []
    for repetition in range(default if options.repetitions is None else options.repetitions):
        for n_classes, true in N_TRUE.items():
            own = common | {"n_classes": n_classes, "seed": options.seed + repetition}
            for sparsity in levels:
                listed += [own | {"sparsity": sparsity, "model": model} for model in PREFERENCES]
                listed.append(own | {"sparsity": sparsity, "model": "ChoiceGP", "n_utilities": true})
            others = [d for d in range(1, (3 if options.quick else MOST) + 1) if d != true]
            listed += [own | {"sparsity": MEDIUM, "model": "ChoiceGP", "n_utilities": d} for d in others]
    return listed


def run(settings: RunSettings, data: Path | None = None) -> RunValues:
    """Fit one model to the training pairs and score it on the others; no published table is needed."""
    simulated = datasets.inconsistent_preferences(
        settings["n_objects"],
        settings["n_features"],
        settings["n_classes"],
        settings["sparsity"],
        random_state=settings["seed"],
    )
    test = simulated.pareto_test
    comparable = decided(test)
    n_comparable = 0 if comparable is None else len(comparable)
    if settings["model"] == "ChoiceGP":
        values = _choices(settings["n_utilities"], simulated.pareto_train, test, comparable)
    else:
        values = _preferences(settings["model"], simulated.forced_train, simulated.forced_test, comparable)
    return values | {
        "n_train": len(simulated.pareto_train),
        "n_test": len(test),
        "n_comparable": n_comparable,
        "both_share": 1 - n_comparable / len(test),
    }


def _choices(n_utilities: int, train: ChoiceData, test: ChoiceData, comparable: ChoiceData | None) -> RunValues:
    start = time.perf_counter()
    model = ChoiceGP(n_utilities, intervals="none", random_state=0, progress=False).fit(train)
    values: RunValues = {"fit_seconds": round(time.perf_counter() - start, 2), "status": model.fit_result_.status}
    values["accuracy"] = model.score(test)
    values["log_score"] = float(np.mean(np.maximum(model.log_prob(test), np.log(_FLOOR))))
    values["elbo"] = float(model.elbo_)
    if comparable is not None:
        values["common_accuracy"] = common_accuracy(model, comparable)
    return values


def _preferences(name: str, train: ChoiceData, test: ChoiceData, comparable: ChoiceData | None) -> RunValues:
    start = time.perf_counter()
    model = PREFERENCES[name](random_state=0, progress=False).fit(train)
    values: RunValues = {"fit_seconds": round(time.perf_counter() - start, 2), "status": model.fit_result_.status}
    winners = np.array([kept[0] for kept in chosen_objects(test)])
    losers = np.array([rows[rows != kept][0] for rows, kept in zip(test.shown, winners, strict=True)])
    right = model.predict_pair_proba(test.X[winners], test.X[losers])
    values["accuracy"] = float(np.mean(right > 0.5))
    values["log_score"] = float(np.mean(np.log(np.maximum(right, _FLOOR))))
    values["log_evidence"] = float(model.log_evidence_)
    if comparable is not None:
        # Who is better in all the utilities has won the forced answer too: the labels are the same.
        values["common_accuracy"] = model.score(comparable)
    return values


def report(outcomes: list[Outcome]) -> ExperimentReport:
    """Tabulate, judge and draw what is done."""
    return report_of(Results(outcomes))

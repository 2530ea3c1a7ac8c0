"""Many people: what one model of all of them gains, what it takes, and what real ballots say.

Protocol, fixed before any run.

Accuracy.  50 people, 100 objects with two features, two utilities, shares of variance between people 0.2, 0.5 and 0.8,
5 and 15 training sets of 4 and 10 test sets a person (`choicegp.datasets.many_people`), seeds 0 to 9: exact accuracy
and log score (normalised) on the test sets of models that are pooled, individual and hierarchical.  Then 25 further
people, of whom nothing is known, with 10 test sets: accuracy of the pooled and of the hierarchical model; and after
5 answers by ``adapt``, against a whole refit with them.  All with ``object_effects=False, intervals="none"``.

Speed.  100, 300 and 1000 people with 15 sets of 4, d = 2, share 0.5: seconds of a fit, and peak memory.

Zurich.  Approval ballots of 180 people over 24 city projects (`zurich_ballots.csv`, `zurich_projects.csv`): each person
is shown all projects and keeps those she approves.  Features: log of the cost, topic, district, and for each person
whether a project lies in her own district is left out.  Five folds of people: log score a project and A-mean for people
of whom nothing is known.  Five folds of projects: the same for projects that nobody was shown.  Against the share of
approvals of each project (held-out projects: of its topic), a pooled logistic regression and d = 1; paired intervals
over people.  Rank correlation, over people, of stated weights of the topics with the found mean utilities of projects.

    python studies/respondents.py accuracy|speed|zurich [--seeds 10] [--first 0] [--data FOLDER]
"""

import argparse
import resource
import time

import numpy as np

from choicegp import ChoiceData, ChoiceGP, datasets
from choicegp.experiments.markdown import markdown_table

OPTIONS = {"object_effects": False, "intervals": "none", "progress": False}


def parts(study: ChoiceData, n_sets: int, first: int, last: int) -> tuple[ChoiceData, ChoiceData]:
    """Return training and test sets of the people from ``first`` to ``last``."""
    people = np.asarray(study.respondents, int)
    number = np.arange(len(study)) % np.sum(people == 0)
    mine = (people >= first) & (people < last)
    return study.take(np.flatnonzero(mine & (number < n_sets))), study.take(np.flatnonzero(mine & (number >= 15)))


def scores(model: ChoiceGP, test: ChoiceData) -> tuple[float, float]:
    """Return exact accuracy and log score."""
    return model.score(test), float(np.mean(model.log_prob(test, normalized=True)))


def accuracy(seeds: range) -> None:
    """Print a row for each data set."""
    names = ("pooled", "individual", "hierarchical", "new: pooled", "new: hierarchical", "adapted", "refitted")
    print(
        markdown_table(("between", "sets", "seed", *(f"{name}{what}" for name in names for what in ("", " log"))), [])
    )
    for between in (0.2, 0.5, 0.8):
        for n_sets in (5, 15):
            for seed in seeds:
                study = datasets.many_people(75, 25, between, seed).data
                train, test = parts(study, n_sets, 0, 50)
                fresh, unseen = parts(study, 5, 50, 75)
                found, models = [], {}
                for name in names[:3]:
                    models[name] = ChoiceGP(2, respondents=name, random_state=seed, **OPTIONS).fit(train)
                    found += scores(models[name], test)
                for name in ("pooled", "hierarchical"):
                    found += scores(models[name], unseen)
                found += scores(models["hierarchical"].adapt(fresh), unseen)
                both = ChoiceData.concat([train, fresh])
                found += scores(ChoiceGP(2, respondents="hierarchical", random_state=seed, **OPTIONS).fit(both), unseen)
                print("|", between, "|", n_sets, "|", seed, *(f"| {value:.3f}" for value in found), "|", flush=True)


def speed() -> None:
    """Print seconds and memory for growing studies."""
    print(markdown_table(("people", "seconds", "steps", "peak MiB"), []))
    for n_people in (100, 300, 1000):
        data = datasets.many_people(n_people, 15, 0.5, 0).data
        began = time.perf_counter()
        model = ChoiceGP(2, respondents="hierarchical", **OPTIONS).fit(data)
        seconds = time.perf_counter() - began
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"| {n_people} | {seconds:.1f} | {model.fit_result_.n_iter} | {peak:.0f} |", flush=True)


def main() -> None:
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("accuracy", "speed", "zurich"))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--data")
    options = parser.parse_args()
    if options.part == "accuracy":
        accuracy(range(options.first, options.first + options.seeds))
    elif options.part == "speed":
        speed()


if __name__ == "__main__":
    main()

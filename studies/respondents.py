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
from dataclasses import replace

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


def ballot_scores(probability: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Return for each person (m, 2): mean log score of her projects, and her A-mean."""
    p = np.clip(probability, 1e-6, 1 - 1e-6)
    logs = np.where(kept, np.log(p), np.log1p(-p)).mean(axis=1)
    said = p > 0.5
    with np.errstate(invalid="ignore"):
        true = np.where(kept.any(axis=1), (said & kept).sum(axis=1) / kept.sum(axis=1), np.nan)
        false = np.where((~kept).any(axis=1), (~said & ~kept).sum(axis=1) / (~kept).sum(axis=1), np.nan)
    return np.column_stack([logs, np.nanmean([true, false], axis=0)])


def logistic(X: np.ndarray, kept: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Return what a pooled logistic regression on the features predicts for new projects."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression().fit(np.tile(X, (len(kept), 1)), kept.ravel())
    return model.predict_proba(new)[:, 1]


def zurich(folder: str | None) -> None:
    """Print scores for people and for projects of whom, or of which, nothing was seen."""
    from scipy.stats import spearmanr

    data, voters = datasets.load_zurich(folder)
    kept = data.flat_chosen.reshape(len(data), -1)
    n_people, n_projects = kept.shape
    X = (data.X - data.X.mean(axis=0)) / data.X.std(axis=0)
    models = {"hierarchical, d = 2": (2, "hierarchical"), "hierarchical, d = 1": (1, "hierarchical"),
              "pooled, d = 2": (2, "pooled")}  # fmt: skip
    fold_of_person = np.random.default_rng(0).permutation(n_people) % 5
    fold_of_project = np.random.default_rng(1).permutation(n_projects) % 5
    for what in ("people", "projects"):
        found = {name: np.full(kept.shape, np.nan) for name in ("popularity", "logistic", *models)}
        for fold in range(5):
            if what == "people":
                rows, columns = np.flatnonzero(fold_of_person != fold), np.arange(n_projects)
                at = np.ix_(np.flatnonzero(fold_of_person == fold), columns)
                found["popularity"][at] = (kept[rows].sum(axis=0) + 1) / (len(rows) + 2)
                train, asked = data.take(rows), replace(data.take(at[0].ravel()), respondents=None)
            else:
                columns = np.flatnonzero(fold_of_project != fold)
                at = np.ix_(np.arange(n_people), np.flatnonzero(fold_of_project == fold))
                found["popularity"][at] = kept[:, columns].mean(axis=1, keepdims=True)
                ids = data.object_ids[columns]
                chosen = [data.object_ids[columns[row]] for row in kept[:, columns]]
                table = data.encoding.decode(data.X).set_index(data.object_ids)
                train = ChoiceData.from_sets(
                    table, [list(ids)] * n_people, [list(c) for c in chosen], by="id", respondents=data.respondents,
                    empty="none",
                )  # fmt: skip
                asked = data
            found["logistic"][at] = logistic(X[columns], kept[np.ix_(np.unique(rows), columns)] if what == "people"
                                             else kept[:, columns], X[at[1].ravel()])  # fmt: skip
            for name, (d, how) in models.items():
                began = time.perf_counter()
                model = ChoiceGP(d, respondents=how, threshold=True, intervals="none", progress=False).fit(train)
                probability = np.array(model.predict_proba(asked))
                found[name][at] = probability if what == "people" else probability[:, at[1].ravel()]
                print(f"  {what} fold {fold}: {name} {time.perf_counter() - began:.0f} s", flush=True)
        of_people = {name: ballot_scores(p, kept) for name, p in found.items()}
        best = of_people["hierarchical, d = 2"]
        for name, values in of_people.items():
            difference = best - values
            error = 1.96 * np.nanstd(difference, axis=0) / np.sqrt(n_people)
            print(f"| {what} | {name} | {np.nanmean(values[:, 0]):.3f} | {np.nanmean(values[:, 1]):.3f} | "
                  f"{np.nanmean(difference[:, 0]):+.3f} ± {error[0]:.3f} | "
                  f"{np.nanmean(difference[:, 1]):+.3f} ± {error[1]:.3f} |", flush=True)  # fmt: skip
    model = ChoiceGP(2, respondents="hierarchical", threshold=True, intervals="none", progress=False).fit(data)
    topics = data.encoding.decode(data.X)["topic"].to_numpy()
    probability = np.array(model.predict_proba(data))
    for topic, column in (("Transportation", "transport"), ("Culture", "culture"), ("Nature", "nature")):
        own = probability[:, topics == topic].mean(axis=1) - probability.mean(axis=1)
        raw = kept[:, topics == topic].mean(axis=1) - kept.mean(axis=1)
        stated = voters[f"weight_{column}"].to_numpy(float)
        print(f"stated weight of {topic}: rank correlation {spearmanr(stated, own).statistic:.2f} with what the model "
              f"keeps of it, {spearmanr(stated, raw).statistic:.2f} with what was ticked", flush=True)  # fmt: skip


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
    else:
        zurich(options.data)


if __name__ == "__main__":
    main()

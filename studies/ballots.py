"""Real ballots: what a model of many people says about voters and projects that it has not seen.

Protocol, fixed before any run.  180 voters saw the same 24 city projects and ticked those they approve
(`zurich_ballots.csv`, `zurich_projects.csv`).  Features of a project: log of its cost, topic, district; whether it lies
in the voter's own district is left out.  Models learn a threshold and object effects; seed 0.

People: five folds of voters (permutation of seed 0), of whom nothing is known when they are predicted.  Projects: five
folds of projects (seed 1), which nobody was shown while the model learned; their probabilities are those of a set of
all 24.  Predictors: hierarchical models with two utilities and with one, a pooled model with two, a pooled logistic
regression on the same features, and the share of voters who approve a project, of held-out projects the share of
approvals in its topic.  Beside them, for known voters, the share of projects that the voter ticked.

Reported for each: log score (mean over projects) and A-mean of each voter, averaged over voters, and the difference of
the hierarchical model with two utilities from it, with 95% intervals from paired differences of voters.  Finally, for
the model of everything: rank correlation over voters of the stated weight of a topic with what the model keeps of its
projects more than of others, and with what was ticked of them more than of others.

    python studies/ballots.py fit people|projects FOLD MODEL FOLDER [--data FOLDER]    (MODEL: one of MODELS)
    python studies/ballots.py fit all 0 hierarchical-2 FOLDER
    python studies/ballots.py report FOLDER [--data FOLDER] [--of MODEL]    (MODEL: what is compared)
    python studies/ballots.py simulate MODEL ... [--seed 0] [--folds 0]    (new projects of simulated ballots)
"""

import argparse
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtr

from choicegp import ChoiceData, ChoiceGP, datasets


class Way(NamedTuple):
    """How ballots are modelled."""

    n_utilities: int
    respondents: str
    one_by_one: bool = False  # every project is a question of its own, of yes or no
    intervals: str = "none"


MODELS = {
    "hierarchical-2": Way(2, "hierarchical"),
    "hierarchical-1": Way(1, "hierarchical"),
    "hierarchical-4": Way(4, "hierarchical"),
    "pooled-2": Way(2, "pooled"),
    "yes-no-1": Way(1, "hierarchical", one_by_one=True),
    "yes-no-2": Way(2, "hierarchical", one_by_one=True),
    "yes-no-1-sampled": Way(1, "hierarchical", one_by_one=True, intervals="auto"),
    "hierarchical-2-sampled": Way(2, "hierarchical", intervals="auto"),
}
TOPICS = {"Transportation": "transport", "Culture": "culture", "Nature": "nature"}
N_FOLDS = 5


class Ballots(NamedTuple):
    """What is known: a table of projects, who ticked what, and what voters stated."""

    projects: pd.DataFrame
    kept: np.ndarray  # (voters, projects)
    voters: pd.DataFrame

    def answers(
        self, rows: np.ndarray, columns: np.ndarray, *, named: bool = True, one_by_one: bool = False
    ) -> ChoiceData:
        """Return the ballots of some voters over some projects, as one set each, or as one for each project."""
        table = self.projects.iloc[columns]
        ids, people = table.index.to_numpy(), self.voters.index.to_numpy()[rows]
        kept = self.kept[np.ix_(rows, columns)]
        if one_by_one:
            shown, people = [[i] for i in ids] * len(rows), np.repeat(people, len(columns))
            chosen = [[i] if is_kept else [] for own in kept for i, is_kept in zip(ids, own, strict=True)]
        else:
            shown, chosen = [list(ids)] * len(rows), [list(ids[own]) for own in kept]
        who = people if named else None
        return ChoiceData.from_sets(table, shown, chosen, by="id", respondents=who, empty="none")


def loaded(folder: str | None) -> Ballots:
    """Read the tables; the cost enters by its logarithm."""
    data, voters = datasets.load_zurich(folder)
    projects = data.encoding.decode(data.X).set_index(data.object_ids)
    projects["log_cost"] = np.log(projects.pop("cost_chf").astype(float))
    return Ballots(projects, data.flat_chosen.reshape(len(data), -1), voters)


def split(ballots: Ballots, what: str, fold: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return voters and projects that are learned from, and those that are predicted."""
    voters, projects = (np.arange(n) for n in ballots.kept.shape)
    if what == "people":
        out = np.random.default_rng(0).permutation(len(voters)) % N_FOLDS == fold
        return voters[~out], projects, voters[out], projects
    out = np.random.default_rng(1).permutation(len(projects)) % N_FOLDS == fold
    return voters, projects[~out], voters, projects[out]


def simulated(seed: int, n_voters: int = 120) -> tuple[Ballots, np.ndarray]:
    """Simulate ballots over the 24 projects of a city, and return them with the probabilities of all ticks.

    Most of what a project is liked for is its own and not in its features; voters differ in how many projects they
    tick, and in their tastes for topics and districts.
    """
    rng = np.random.default_rng([seed, 24])
    topics, districts, costs = ["Nature", "Culture", "Transportation"], ["Nord", "Süd", "Ost", "West"], [8.5, 9.2]
    kinds = [(topic, district, cost) for district in districts for topic in topics for cost in costs]
    projects = pd.DataFrame(kinds, columns=["topic", "district", "log_cost"], index=range(1, 25))
    topic, district = (pd.factorize(projects[name])[0] for name in ("topic", "district"))
    score = 0.6 * rng.standard_normal(24) + 0.2 * rng.standard_normal(3)[topic] - 0.15
    score = (
        score
        + 0.5 * rng.standard_normal((n_voters, 3))[:, topic]
        + 0.4 * rng.standard_normal((n_voters, 4))[:, district]
    )
    probability = ndtr(score + 0.7 * rng.standard_normal((n_voters, 1)))
    voters = pd.DataFrame(index=[f"voter {number}" for number in range(n_voters)])
    return Ballots(projects, rng.uniform(size=probability.shape) < probability, voters), probability


def simulate(seed: int, names: list[str], folds: list[int]) -> None:
    """Print how well models predict new projects of simulated ballots, against what is simple and the truth."""
    ballots, truth = simulated(seed)
    popular = simple(ballots, "projects")
    for fold in folds:
        wanted = split(ballots, "projects", fold)[3]
        found = {name: whole[:, wanted] for name, whole in popular.items()} | {"truth": truth[:, wanted]}
        for name in (*found, *names):
            began = time.perf_counter()
            own = found[name] if name in found else predicted(ballots, "projects", fold, name)[0]
            logs, right = scores(own, ballots.kept[:, wanted]).mean(axis=0)
            print(f"| {seed} | {fold} | {name} | {logs:.3f} | {right:.3f} | {own.mean():.3f} ± {own.std():.3f} | "
                  f"{time.perf_counter() - began:.0f} s |", flush=True)  # fmt: skip


def fit(ballots: Ballots, what: str, fold: int, name: str, folder: Path) -> None:
    """Fit one model to one fold, and keep its probabilities."""
    probability, words = predicted(ballots, what, fold, name)
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / f"{what}-{fold}-{name}.npz", probability=probability)
    print(f"{what} fold {fold}, {name}: {words}", flush=True)


def predicted(ballots: Ballots, what: str, fold: int, name: str) -> tuple[np.ndarray, str]:
    """Return what a model that was fitted to one fold says about what was held out, and how the fit went."""
    way = MODELS[name]
    everyone, everything = (np.arange(n) for n in ballots.kept.shape)
    rows, columns, asked, wanted = (
        (everyone, everything, everyone, everything) if what == "all" else split(ballots, what, fold)
    )
    began = time.perf_counter()
    model = ChoiceGP(
        way.n_utilities, respondents=way.respondents, threshold=True, object_effects=True, intervals=way.intervals,
        progress=False, random_state=0,
    )  # fmt: skip
    model.fit(ballots.answers(rows, columns, one_by_one=way.one_by_one))
    fitted = time.perf_counter() - began
    # Held-out voters are new people; held-out projects were shown with all others.
    offered = ballots.answers(asked, everything, named=what != "people", one_by_one=way.one_by_one)
    probability = np.array(model.predict_proba(offered)).reshape(len(asked), len(everything))[:, wanted]
    words = f"fit {fitted:.0f} s, all {time.perf_counter() - began:.0f} s, {model.fit_result_.status}, bound "
    return probability, words + f"{model.elbo_:.1f}, {model.posterior_.prior}"


def simple(ballots: Ballots, what: str) -> dict[str, np.ndarray]:
    """Return the probabilities of the predictors without a Gaussian process."""
    from sklearn.linear_model import LogisticRegression

    kept, table = ballots.kept, pd.get_dummies(ballots.projects).astype(float)
    X = ((table - table.mean()) / table.std()).to_numpy()
    topic = ballots.projects["topic"].to_numpy()
    found = {name: np.full(kept.shape, np.nan) for name in ("popularity", "logistic")}
    if what == "projects":
        found["the voter's own share"] = np.full(kept.shape, np.nan)
    for fold in range(N_FOLDS):
        rows, columns, asked, wanted = split(ballots, what, fold)
        at, seen = np.ix_(asked, wanted), kept[np.ix_(rows, columns)]
        known = LogisticRegression().fit(np.tile(X[columns], (len(rows), 1)), seen.ravel())
        found["logistic"][at] = known.predict_proba(X[wanted])[:, 1]
        if what == "people":
            found["popularity"][at] = (seen.sum(axis=0) + 1) / (len(rows) + 2)
        else:
            for column in wanted:
                found["popularity"][:, column] = seen[:, topic[columns] == topic[column]].mean()
            found["the voter's own share"][at] = (seen.sum(axis=1, keepdims=True) + 1) / (len(columns) + 2)
    return found


def scores(probability: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Return for each voter (m, 2): mean log score of the projects, and A-mean."""
    p = np.clip(probability, 1e-6, 1 - 1e-6)
    logs = np.where(kept, np.log(p), np.log1p(-p)).mean(axis=1)
    said, own = p > 0.5, []
    for right, those in ((said & kept, kept), (~said & ~kept, ~kept)):
        number = those.sum(axis=1)
        own.append(np.where(number > 0, right.sum(axis=1) / np.maximum(number, 1), np.nan))
    return np.column_stack([logs, np.nanmean(own, axis=0)])


def report(ballots: Ballots, folder: Path, of: str) -> None:
    """Print the table of predictors, and how stated weights agree with the model of everything."""
    kept = ballots.kept
    print(f"{kept.shape[0]} voters tick {kept.sum(axis=1).mean():.1f} of {kept.shape[1]} projects on average")
    for what in ("people", "projects"):
        found = simple(ballots, what)
        for name in MODELS:
            whole = np.full(kept.shape, np.nan)
            for fold in range(N_FOLDS):
                path = folder / f"{what}-{fold}-{name}.npz"
                if path.exists():
                    _, _, asked, wanted = split(ballots, what, fold)
                    whole[np.ix_(asked, wanted)] = np.load(path)["probability"]
            if not np.isnan(whole).any():
                found[name] = whole
        if of not in found:
            print(f"{what}: some folds of {of} are missing")
            continue
        of_people = {name: scores(whole, kept) for name, whole in found.items()}
        for name, values in of_people.items():
            difference = of_people[of] - values
            error = 1.96 * np.nanstd(difference, axis=0, ddof=1) / np.sqrt(len(kept))
            cells = (f"{np.nanmean(difference[:, k]):+.3f} ± {error[k]:.3f}" for k in (0, 1))
            mean = np.nanmean(values, axis=0)
            print("|", what, "|", name, f"| {mean[0]:.3f} | {mean[1]:.3f} |", " | ".join(cells), "|")
    if (whole_path := folder / "all-0-hierarchical-2.npz").exists():
        agreement(ballots, np.load(whole_path)["probability"])


def agreement(ballots: Ballots, probability: np.ndarray) -> None:
    """Print how stated weights of topics agree with what is kept of them."""
    from scipy.stats import spearmanr

    topics = ballots.projects["topic"].to_numpy()
    for topic, column in TOPICS.items():
        mine = topics == topic
        stated = ballots.voters[f"weight_{column}"].to_numpy(float)
        with_model, with_ticks = (
            spearmanr(stated, of[:, mine].mean(axis=1) - of.mean(axis=1)).statistic
            for of in (probability, ballots.kept.astype(float))
        )
        print(f"stated weight of {topic}: rank correlation {with_model:.2f} with what the model keeps of it, "
              f"{with_ticks:.2f} with what was ticked ({mine.sum()} projects)", flush=True)  # fmt: skip


def main() -> None:
    """Fit a cell of the study, or report what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    cell = parts.add_parser("fit")
    cell.add_argument("what", choices=("people", "projects", "all"))
    cell.add_argument("fold", type=int)
    cell.add_argument("model", choices=tuple(MODELS))
    trial = parts.add_parser("simulate")
    trial.add_argument("models", nargs="+", choices=tuple(MODELS))
    trial.add_argument("--seed", type=int, default=0)
    trial.add_argument("--folds", type=int, nargs="+", default=[0])
    for one in (cell, parts.add_parser("report")):
        one.add_argument("folder", type=Path)
        one.add_argument("--data")
    one.add_argument("--of", choices=tuple(MODELS), default="hierarchical-2")
    options = parser.parse_args()
    if options.part == "simulate":
        simulate(options.seed, options.models, options.folds)
        return
    ballots = loaded(options.data)
    if options.part == "fit":
        fit(ballots, options.what, options.fold, options.model, options.folder)
    else:
        report(ballots, options.folder, options.of)


if __name__ == "__main__":
    main()

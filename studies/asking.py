"""Whether well-chosen questions need fewer answers, whether their value is right, and how long a question takes.

Protocol, fixed before any run.

People (`people`).  A catalogue of 100 objects with three standard normal features.  Four shapes of utility: "linear"
(w . x), "ideal" (minus the distance to an ideal point, drawn as an object is), "saturating" (w . tanh(2 x)) and
"smooth" (a draw of a Gaussian process of lengthscale 2); w is standard normal.  d = 2 and 3 utilities of one shape,
each scaled to mean 0 and standard deviation 5 against errors of scale 1.  Answers to sets of 4 objects are drawn from
the model's probabilities; with ``--slips 0.1`` one answer in ten is a random subset.  Every design begins with 6 equal
space-filling sets; then the model is fitted again after every answer, as in a session (from the last model, and also
from scratch whenever the answers have become a quarter more: the fit with the higher bound counts), and asks for the
next set, up to 48; "random" draws its sets, up to 60.  Fits know d and have ``intervals="none"`` and no object effects;
with slips a lapse of 0.1.  Accuracy: the part of 500 random new sets of the catalogue for which the predicted choice is
the Pareto set of the true utilities, after 8, 12, ... sets.  The number of sets that a design needs is where its
accuracy, made monotone by the running maximum and joined by straight lines, first reaches the accuracy of 60 random
sets of the same person (49 where it never does).  Seeds 0 to 19.

Best (`best`).  The same people with a catalogue of 1,000 objects, of which 30 sets show at most 120; sessions with the
designs "best", "information", "predictive" and "random".  Two hypervolumes in the true utilities, above the catalogue's
minimum, as parts of the whole catalogue's, after 15 and 30 sets: of the objects that were kept in answers, and of the
five objects that the session recommends.

Value (`value`).  Five people of seed 0 to 4, shape "smooth", d = 2, 30 random sets, default options.  The value of the
proposed set against 100,000 joint draws of the same posterior; and the ranking of 200 random sets by information under
the default inference, and under ``intervals="none"``, against MCMC: Spearman's correlation.

Seconds (`seconds`).  Catalogues of 10,000 and 100,000 objects with 5 features; a model with 60 answers; the time of the
next question without a limit, the smallest and the median of 9 after a first one, and the time of all processors.

    python studies/asking.py people --seeds 20 --first 0 -o people.jsonl [--slips 0.1] [--designs random information]
    python studies/asking.py best --seeds 20 -o best.jsonl
    python studies/asking.py summary people.jsonl ...
    python studies/asking.py volumes best.jsonl ...
    python studies/asking.py value|seconds|refits

With ``--claims FOLDER`` several processes, each with a file of its own, share the people and designs.
"""

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from choicegp import ChoiceData, ChoiceGP, ChoiceSession, datasets, next_set, next_sets
from choicegp.compute.devices import computing
from choicegp.data.packing import padded_generously
from choicegp.elicitation.information import expected, expected_answers
from choicegp.elicitation.refitting import padded

N_OBJECTS, N_FEATURES, SIZE = 100, 3, 4
SHAPES = ("linear", "ideal", "saturating", "smooth")
FIRST, MOST, OF_RANDOM = 6, 48, 60  # sets: space-filling ones, of a design, of random ones
IN_LARGE = 1000  # objects
CHECKED = range(8, 61, 4)
FEW_CHECKED = (8, 12, 16, 24, 32, 40, 48, 60)  # of random sets
GROWN = 1.25  # by which the answers have grown when a fit starts from scratch, as in a session
QUICK = {"intervals": "none", "object_effects": False, "progress": False, "random_state": 0}


class Person:
    """Someone with utilities, who answers."""

    def __init__(self, shape: str, d: int, seed: int, slips: float, n_objects: int = N_OBJECTS) -> None:
        rng = self.rng = np.random.default_rng([seed, d, SHAPES.index(shape), 21])
        X = rng.normal(size=(n_objects, N_FEATURES))
        self.table = pd.DataFrame(X, columns=[f"x{j}" for j in range(N_FEATURES)])
        w = rng.normal(size=(N_FEATURES, d))
        if shape == "linear":
            U = X @ w
        elif shape == "ideal":
            U = -np.linalg.norm(X[:, :, None] - w, axis=1)
        elif shape == "saturating":
            U = np.tanh(2 * X) @ w
        else:
            gram = np.exp(-0.5 * np.sum((X[:, None] - X[None]) ** 2, axis=2) / 4.0)
            U = np.linalg.cholesky(gram + 1e-9 * np.eye(n_objects)) @ rng.normal(size=(n_objects, d))
        self.U = 5.0 * (U - U.mean(axis=0)) / U.std(axis=0)
        self.d, self.seed, self.slips = d, seed, slips
        self.test = ChoiceData.from_utilities(self.table, self.U, draw(rng, 500))

    def answer(self, rows: np.ndarray, number: int) -> np.ndarray:
        """Return the rows that are kept; the answer to a question of this number has its own chance."""
        rng = np.random.default_rng([self.seed, number, 22])
        if rng.random() < self.slips:
            kept = rng.random(len(rows)) < 0.5
            return rows[kept] if kept.any() else rows
        seed = int(rng.integers(2**31))
        return datasets.noisy_choices(self.table, self.U, [rows], seed).chosen[0]

    def data(self, shown: list[np.ndarray], chosen: list[np.ndarray]) -> ChoiceData:
        """Return the answers."""
        return ChoiceData.from_sets(self.table, shown, chosen)


def draw(rng: np.random.Generator, n: int) -> list[np.ndarray]:
    """Draw random sets."""
    return [rng.choice(N_OBJECTS, SIZE, replace=False) for _ in range(n)]


class Learner:
    """Fits as a session does: from the last model, and from scratch whenever the answers are a quarter more."""

    def __init__(self, person: Person) -> None:
        options = QUICK | ({"lapse": person.slips} if person.slips else {})
        self.person, self.n_cold, self.last = person, 0, None
        self.fresh = lambda: ChoiceGP(person.d, **options)

    def learned(self, shown: list[np.ndarray], chosen: list[np.ndarray]) -> ChoiceGP:
        """Return the model after these answers, padded, so that few programs are compiled."""
        data = self.person.data(shown, chosen)
        few = len(np.unique(data.flat_shown)) <= 64
        with padded_generously() if few else padded_generously(N_OBJECTS, 4):
            fits = [] if self.last is None else [self.fresh().fit(data, init=self.last)]
            if len(data) >= GROWN * self.n_cold:
                fits.append(self.fresh().fit(data))
                self.n_cold = len(data)
            best = max(fits, key=lambda one: one.elbo_)
            self.last = self.fresh()._keep(best.fitted_._replace(posterior=padded(best.posterior_)))
        return self.last


def asked(person: Person, how: str, last: int) -> dict[str, float]:
    """Ask a person, and return the accuracy after some numbers of sets, and what the questions were expected to say."""
    rng = np.random.default_rng([person.seed, 23])
    shown = [np.array(one.shown) for one in next_sets(None, person.table, FIRST, SIZE, random_state=person.seed)]
    chosen = [person.answer(rows, number) for number, rows in enumerate(shown)]
    learner, found = Learner(person), {}
    while True:
        n = len(shown)
        is_checked = n in (FEW_CHECKED if how == "random" else CHECKED)
        if how != "random" or is_checked:
            model = learner.learned(shown, chosen)
        if is_checked:
            found[str(n)] = model.score(person.test)
        if n >= last:
            return found | {"objects": len(np.unique(shown))}
        if how == "random":
            new = draw(rng, 1)[0]
        else:
            avoid = {frozenset(rows.tolist()) for rows in shown}
            found_next = next_set(model, person.table, SIZE, how=how, avoid=avoid, seconds=30.0, random_state=n)
            new = np.array(found_next.shown)
        chosen.append(person.answer(new, n))
        shown.append(new)


def own_work(args: argparse.Namespace) -> Iterator[dict[str, object]]:
    """Yield who is asked by which design, in order: what is in the file already, or claimed by others, is left out."""
    path, keys = Path(args.output), ["shape", "d", "seed", "slips", "how"]
    lines = path.read_text().splitlines() if path.exists() else []
    done = {tuple(json.loads(line)[key] for key in keys) for line in lines}
    for seed in range(args.first, args.first + args.seeds):
        for d in args.utilities:
            for shape in args.shapes:
                for how in args.designs:
                    row = dict(zip(keys, (shape, d, seed, args.slips, how), strict=True))
                    if tuple(row.values()) not in done and claimed(args.claims, "-".join(map(str, row.values()))):
                        yield row


def claimed(folder: str | None, name: str) -> bool:
    """Return whether nobody else has claimed this work, and claim it."""
    if folder is None:
        return True
    Path(folder).mkdir(parents=True, exist_ok=True)
    try:
        (Path(folder) / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def kept(args: argparse.Namespace, row: dict[str, object], found: dict[str, float], begun: tuple[float, float]) -> None:
    """Append what was found to the file."""
    taken = {"seconds": time.monotonic() - begun[0], "of processors": time.process_time() - begun[1]}
    with Path(args.output).open("a") as file:
        file.write(json.dumps(row | found | taken) + "\n")
    print(*row.values(), *(f"{name}: {value:.3f}" for name, value in (found | taken).items()), flush=True)


def people(args: argparse.Namespace) -> None:
    """Ask all people by all designs, and append the accuracies to a file, which may hold some of them already."""
    for row in own_work(args):
        begun = time.monotonic(), time.process_time()
        person = Person(row["shape"], row["d"], row["seed"], args.slips)
        kept(args, row, asked(person, row["how"], OF_RANDOM if row["how"] == "random" else args.most), begun)


def needed(accuracy: np.ndarray, goal: float) -> float:
    """Return the number of sets with which the goal is first reached, from accuracies after 8, 12, ... sets."""
    best = np.maximum.accumulate(accuracy)
    if best[-1] < goal:
        return MOST + 1.0
    i = int(np.argmax(best >= goal))
    if i == 0:
        return float(CHECKED[0])
    share = (goal - best[i - 1]) / (best[i] - best[i - 1])
    return CHECKED[i - 1] + share * (CHECKED[i] - CHECKED[i - 1])


def read(paths: list[str]) -> pd.DataFrame:
    """Return what was found, one row for each person and design."""
    lines = [line for path in paths for line in Path(path).read_text().splitlines()]
    return pd.DataFrame(map(json.loads, lines)).drop_duplicates(["slips", "shape", "d", "seed", "how"])


def summary(paths: list[str]) -> None:
    """Print what designs need, and how they differ."""
    table = read(paths)
    columns = [str(n) for n in CHECKED if n <= MOST]
    for slips, own in table.groupby("slips"):
        by_how = {how: part.set_index(["shape", "d", "seed"]) for how, part in own.groupby("how")}
        for how in sorted(by_how.keys() - {"random"}):
            people = by_how[how].index.intersection(by_how["random"].index)
            goal = by_how["random"].loc[people, str(OF_RANDOM)].to_numpy()
            curves = by_how[how].loc[people, columns].to_numpy()
            need = pd.Series([needed(*one) for one in zip(curves, goal, strict=True)], index=people)
            print(f"\nslips {slips}, {how}: {len(people)} people; sets to the accuracy of 60 random ones: median "
                  f"{need.median():.1f}, quartiles {need.quantile(0.25):.1f} to {need.quantile(0.75):.1f}, not reached "
                  f"by {MOST}: {np.sum(need > MOST)}")  # fmt: skip
            print("  medians:", ", ".join(f"{shape} {d}: {value:.0f}" for (shape, d), value in
                                          need.groupby(["shape", "d"]).median().items()))  # fmt: skip
            for other in sorted(by_how.keys() - {how}):
                both = people.intersection(by_how[other].index)
                common = [n for n in columns if other != "random" or int(n) in FEW_CHECKED]
                gain = by_how[how].loc[both, common].to_numpy() - by_how[other].loc[both, common].to_numpy()
                mean = gain.mean(axis=1)
                half = 1.96 * mean.std(ddof=1) / np.sqrt(len(mean))
                halves = 1.96 * gain.std(axis=0, ddof=1) / np.sqrt(len(mean))
                print(f"  accuracy less that with {other}, after", *(
                    f"{n}: {value:+.3f} ± {own_half:.3f}"
                    for n, value, own_half in zip(common, gain.mean(axis=0), halves, strict=True)
                ), f"; mean {mean.mean():+.4f} ± {half:.4f} ({len(both)} people)")  # fmt: skip


def hypervolume(U: np.ndarray, low: np.ndarray, high: np.ndarray, n: int = 20_000) -> float:
    """Return the part of the box between low and high that utilities (t, d) dominate, by random points."""
    points = low + np.random.default_rng(0).random((n, U.shape[1])) * (high - low)
    return float(np.mean([np.any(np.all(point <= U, axis=1)) for point in points]))


def best(args: argparse.Namespace) -> None:
    """Ask all people by all designs, and append the hypervolumes of what was kept and recommended to a file."""
    for row in own_work(args):
        begun = time.monotonic(), time.process_time()
        person = Person(row["shape"], row["d"], row["seed"], args.slips, IN_LARGE)
        kept(args, row, volumes(person, row["how"]), begun)


def print_volumes(paths: list[str]) -> None:
    """Print hypervolumes, and how that of "best" differs from those of other designs."""
    table = read(paths)
    for name in [column for column in table.columns if " after " in column]:
        own = table.pivot_table(name, "how", ["slips", "shape", "d", "seed"]).dropna(axis=1)
        print(name + ":", *(f"{how} {own.loc[how].mean():.4f}" for how in own.index), f"({own.shape[1]} people)")
        for how in own.index.drop("best", errors="ignore"):
            gain = own.loc["best"] - own.loc[how]
            half = 1.96 * gain.std(ddof=1) / np.sqrt(len(gain))
            print(f"  best less {how} {gain.mean():+.4f} ± {half:.4f}; by number of utilities",
                  *(f"{d}: {part:+.4f}" for d, part in gain.groupby("d").mean().items()))  # fmt: skip


def volumes(person: Person, how: str) -> dict[str, float]:
    """Ask a person in a session, and return hypervolumes as parts of the whole catalogue's."""
    low, high, found, kept = person.U.min(axis=0), person.U.max(axis=0), {}, set()
    whole = hypervolume(person.U, low, high)
    options = QUICK | {"lapse": person.slips} if person.slips else QUICK
    model = ChoiceGP(person.d, **options)
    with ChoiceSession(person.table, design=how, set_size=SIZE, model=model, max_seconds=60.0,
                       random_state=person.seed) as session:  # fmt: skip
        for number in range(1, 31):
            question = session.ask()
            chosen = person.answer(np.array(question.shown), number).tolist()
            session.tell(question, chosen)
            kept |= set(chosen)
            if how != "random":
                session.refresh()
            if number in (15, 30):
                found[f"kept after {number}"] = hypervolume(person.U[sorted(kept)], low, high) / whole
                short = session.recommend(5)
                rows = person.table.index.get_indexer(short.index)
                found[f"recommended after {number}"] = hypervolume(person.U[rows], low, high) / whole
    return found


def value(args: argparse.Namespace) -> None:
    """Print the error of the value, and rank correlations with MCMC."""
    from choicegp.elicitation.information import Drawn

    def information(model: ChoiceGP, sets: np.ndarray) -> np.ndarray:
        with computing():
            objects = model.fitted_.objects(person.table)
            return expected_answers(model.fitted_, objects, sets, 0.02).information

    for seed in range(args.first, args.first + args.seeds):
        person = Person("smooth", 2, seed, 0.0)
        shown = draw(np.random.default_rng([seed, 24]), 30)
        data = ChoiceData.from_sets(person.table, shown, [person.answer(rows, i) for i, rows in enumerate(shown)])
        models = {
            "default": ChoiceGP(2, progress=False).fit(data),
            "intervals none": ChoiceGP(2, intervals="none", progress=False).fit(data),
            "mcmc": ChoiceGP(2, inference="mcmc", max_iter=args.draws, progress=False, random_state=1).fit(data),
            "mcmc again": ChoiceGP(2, inference="mcmc", max_iter=args.draws, progress=False, random_state=2).fit(data),
        }
        model = models["default"]
        found = next_set(model, person.table, SIZE, seconds=30.0, random_state=seed)
        rows = np.array(found.shown)
        drawn = model.sample_utilities(person.table.iloc[rows], 100_000, random_state=5)
        with computing():
            reference = expected(Drawn.of(drawn, model.errors_, 0.02), np.arange(SIZE)[None]).information[0]
        print(f"seed {seed}: value {found.value:.4f}, of 100,000 draws {reference:.4f}, "
              f"difference {found.value - reference:+.4f}", flush=True)  # fmt: skip
        sets = np.array(draw(np.random.default_rng([seed, 25]), 200))
        values = {name: information(one, sets) for name, one in models.items()}
        for name in ("default", "intervals none", "mcmc again"):
            rank = pd.Series(values[name]).corr(pd.Series(values["mcmc"]), method="spearman")
            top = np.mean(values["mcmc"][np.argsort(-values[name])[:10]]) / np.sort(values["mcmc"])[-10:].mean()
            means = values[name].mean(), values["mcmc"].mean()
            print(f"  {name}: Spearman {rank:.3f}, mean value {means[0]:.3f} (mcmc {means[1]:.3f}), its ten best sets "
                  f"reach {top:.3f} of the value of the ten best", flush=True)  # fmt: skip
        print("  " + models["mcmc"].fit_result_.message, flush=True)


def seconds(args: argparse.Namespace) -> None:
    """Print the time of the next question."""
    for n in (10_000, 100_000):
        rng = np.random.default_rng(0)
        table = pd.DataFrame(rng.normal(size=(n, 5)), columns=list("abcde"))
        U = 5.0 * np.tanh(table.to_numpy() @ rng.normal(size=(5, 2)))
        shown = [rng.choice(n, SIZE, replace=False) for _ in range(60)]
        data = datasets.noisy_choices(table, U, shown, 0)
        rows = np.unique(data.flat_shown)
        data = ChoiceData.from_sets(table.loc[rows], [list(one) for one in shown], data.chosen, by="id")
        for name in args.models:
            options = QUICK if name == "quick" else {"progress": False}
            model = ChoiceGP(2, **options).fit(data)
            for how in args.designs:
                taken, worked = [], []
                for i in range(10):
                    begun, before = time.perf_counter(), time.process_time()
                    next_set(model, table, SIZE, how=how, seconds=30.0, random_state=i)
                    taken.append(time.perf_counter() - begun)
                    worked.append(time.process_time() - before)
                print(f"{n} objects, {name}, {how}: smallest {min(taken[1:]):.2f} s, median {np.median(taken[1:]):.2f}"
                      f" s, of processor time {np.median(worked[1:]):.2f} s; the first took {worked[0]:.1f} s of it",
                      flush=True)  # fmt: skip


def refits(args: argparse.Namespace) -> None:
    """Print what refits took in a session: the clock's seconds and those of all processors."""
    from choicegp.elicitation.refitting import Refitter

    taken, fit = [], Refitter._fitted

    def timed(self, answered, last):
        begun, before = time.perf_counter(), time.process_time()
        current = fit(self, answered, last)
        scratch = last is None or current.n_cold != last.n_cold
        taken.append((len(answered.data), len(np.unique(answered.data.flat_shown)), scratch,
                      time.perf_counter() - begun, time.process_time() - before))  # fmt: skip
        return current

    Refitter._fitted = timed
    for d in args.utilities:
        for how in args.designs:
            taken.clear()
            person = Person("ideal", d, args.first, 0.0, 200)
            with ChoiceSession(person.table, design=how, model=ChoiceGP(d, **QUICK)) as session:
                for number in range(60):
                    question = session.ask()
                    session.tell(question, person.answer(np.array(question.shown), number).tolist())
                    session.refresh()
            table = pd.DataFrame(taken, columns=["answers", "objects", "from scratch", "seconds", "of processors"])
            print(f"d = {d}, {how}: the first {table['seconds'][0]:.1f} s; then")
            for scratch, own in table[1:].groupby("from scratch"):
                what = "also from scratch" if scratch else "warm"
                print(f"  {what}: {len(own)}, median {own['seconds'].median():.2f} s, "
                      f"largest {own['seconds'].max():.2f} s")  # fmt: skip
            print(table.sort_values("seconds").tail(6).round(2).to_string(index=False), flush=True)


def main() -> None:
    """Run one part."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=(*PARTS, *OF_FILES))
    parser.add_argument("files", nargs="*", help="for the summaries")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--slips", type=float, default=0.0, help="part of the answers that is random")
    parser.add_argument("--designs", nargs="*", default=["random", "information", "predictive"])
    parser.add_argument("--shapes", nargs="*", default=SHAPES, choices=SHAPES)
    parser.add_argument("--utilities", nargs="*", type=int, default=(2, 3), help="numbers of utilities")
    parser.add_argument("--models", nargs="*", default=["quick", "default"], choices=("quick", "default"))
    parser.add_argument("--draws", type=int, default=1000, help="of each chain of MCMC")
    parser.add_argument("--most", type=int, default=MOST, help="sets of a design")
    parser.add_argument("--claims", help="folder by which processes share the work")
    parser.add_argument("-o", "--output", default="people.jsonl")
    args = parser.parse_args()
    if args.part in OF_FILES:
        OF_FILES[args.part](args.files)
    else:
        PARTS[args.part](args)


PARTS = {"people": people, "best": best, "value": value, "seconds": seconds, "refits": refits}
OF_FILES = {"summary": summary, "volumes": print_volumes}


if __name__ == "__main__":
    main()

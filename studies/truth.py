"""How far the approximations are from the exact posterior: `dense` and `paper` against long MCMC.

Every method has the same, fixed hyperparameters and independent utilities, as the paper has them.  Eight small
problems, sets of 2 to 6 objects, 1 to 3 utilities; answers without errors, with errors, and contradictory ones.
Held-out sets are over the same objects.  Errors are mean absolute differences to MCMC: of object-choice probabilities,
of posterior means and standard deviations of utility differences (utilities matched to MCMC's), and of log P of
held-out choices.  The method "mcmc" is a second set of chains: predictions use 512 draws, and two such sets differ by
that much.

    python studies/truth.py            # under an hour on two cores
    python studies/truth.py --quick    # shorter chains and 500 Adam steps, to see that it runs

How far default options are from long chains over utilities and hyperparameters together: log scores of held-out answers
to 40 sets of the shown objects and 40 of new ones, where both models learn everything from the same 40 noisy answers
about 20 objects.  The chains start around the same dense fit, have another seed, four times as many draws (at least 512
each), and predict with 256 of their settings instead of 32.

    python studies/truth.py defaults --problems 1 2 3 4 5 6 --seeds 10 > rows.jsonl
    python studies/truth.py summary rows.jsonl
"""

import argparse
import json
import re
import time
from itertools import permutations, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from choicegp import MCMC, ChoiceData, ChoiceGP, datasets
from choicegp.experiments.honesty_data import simulated
from choicegp.experiments.results import markdown_table, table_row
from choicegp.inference import mcmc
from choicegp.kernels import RBF

LENGTHSCALE, VARIANCE = 1.5, 9.0
N_TEST = 200
METHODS = ("dense", "paper-converged", "paper", "mcmc")


class Setting(NamedTuple):
    """One problem: objects, utilities, sets and their size, and how answers come about."""

    name: str
    n_objects: int
    n_utilities: int
    n_sets: int
    size: int
    answers: str


SETTINGS = (
    Setting("pairs, errors", 20, 1, 60, 2, "noisy"),
    Setting("pairs, no errors", 20, 2, 80, 2, "exact"),
    Setting("triples, no errors", 20, 2, 50, 3, "exact"),
    Setting("triples, errors", 20, 2, 60, 3, "noisy"),
    Setting("triples, contradictory", 15, 2, 60, 3, "contradictory"),
    Setting("fours, errors", 20, 3, 60, 4, "noisy"),
    Setting("fives, no errors", 20, 2, 40, 5, "exact"),
    Setting("sixes, errors", 20, 2, 40, 6, "noisy"),
)
LEARNED = tuple(product((1, 2), (2, 3, 5)))  # utilities and set sizes of the comparison with default options
TIMES, FEWEST, REFERENCE_SETTINGS = 4, 512, 256


def make(setting: Setting, seed: int) -> tuple[ChoiceData, ChoiceData]:
    """Draw utilities from the prior and answers as the setting says: training and held-out sets."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(setting.n_objects, 2))
    gram = VARIANCE * np.exp(-0.5 * np.sum((X[:, None] - X[None]) ** 2, axis=2) / LENGTHSCALE**2)
    root = np.linalg.cholesky(gram + 1e-8 * np.eye(len(X)))
    U = root @ rng.normal(size=(len(X), setting.n_utilities))
    train = datasets.random_sets(len(X), setting.n_sets, setting.size, random_state=seed)
    test = datasets.random_sets(len(X), N_TEST, setting.size, random_state=seed + 1000)
    if setting.answers == "exact":
        return ChoiceData.from_utilities(X, U, train), ChoiceData.from_utilities(X, U, test)
    if setting.answers == "contradictory":
        # Every set is shown twice; the second answer is what the first rejected, or everything.
        half = ChoiceData.from_utilities(X, U, train[: setting.n_sets // 2])
        others = [
            rest if len(rest := np.setdiff1d(rows, kept)) else rows
            for rows, kept in zip(half.shown, half.chosen, strict=True)
        ]
        both = ChoiceData.from_sets(X, [*half.shown, *half.shown], [*half.chosen, *others])
        return both, ChoiceData.from_utilities(X, U, test)
    return datasets.noisy_choices(X, U, train, seed), datasets.noisy_choices(X, U, test, seed + 1)


def differences(model: ChoiceGP, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return posterior means and standard deviations (n - 1, d) of differences between consecutive objects."""
    drawn = model.sample_utilities(X, 4000, random_state=1)
    steps = drawn[:, 1:] - drawn[:, :-1]
    return steps.mean(axis=0), steps.std(axis=0)


def matched(mean: np.ndarray, sd: np.ndarray, to: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Put utilities into the order nearest to another model's."""
    best = min(permutations(range(mean.shape[1])), key=lambda order: np.abs(mean[:, order] - to).sum())
    return mean[:, best], sd[:, best]


def against_defaults(d: int, size: int, seed: int) -> dict[str, Any]:
    """Return the log scores of a default fit and of long chains on one data set."""
    data = simulated({
        "d": d, "a": size, "features": 2, "objects": 20, "sets": 40, "answers": "noisy", "related": 0.0, "seed": seed,
    })  # fmt: skip
    found: dict[str, Any] = {"d": d, "a": size, "seed": seed}
    model = ChoiceGP(d, random_state=seed, progress=False)
    tests = {"known": data.known, "new": data.new}
    for name in ("default", "long"):
        start = time.process_time()
        if name == "default":
            model.fit(data.train)
        else:
            own = int(re.findall(r"(\d+) draws", found["default_words"])[0]) // mcmc.N_CHAINS
            method, usual = MCMC(n_draws=max(FEWEST, TIMES * own)), mcmc.MOST_SETTINGS
            mcmc.MOST_SETTINGS = REFERENCE_SETTINGS
            model = ChoiceGP(d, inference=method, random_state=seed + 1000, progress=False).fit(data.train, init=model)
            mcmc.MOST_SETTINGS = usual
        found |= {f"{name}_words": model.intervals_, f"{name}_seconds": round(time.process_time() - start, 1)}
        for place, test in tests.items():
            found[f"{name}_{place}"] = float(np.mean(model.log_prob(test, normalized=True)))
    return found


def summarise(paths: list[str]) -> None:
    """Print mean differences of log scores a set, default minus long chains, with standard errors over data sets."""
    rows = [json.loads(line) for path in paths for line in Path(path).read_text().splitlines()]
    mixed = [row for row in rows if "not mixed" not in row["long_words"]]
    for d, size in [*LEARNED, (0, 0)]:
        for name, some in (("", rows), (", long chains mixed", mixed)):
            own = [row for row in some if size == 0 or (row["d"], row["a"]) == (d, size)]
            words = []
            for place in ("known", "new"):
                gaps = np.array([row[f"default_{place}"] - row[f"long_{place}"] for row in own])
                if len(gaps) > 1:
                    error = gaps.std(ddof=1) / len(gaps) ** 0.5
                    words.append(f"{place} {gaps.mean():+.4f} ± {error:.4f} (lowest {gaps.min():+.3f})")
            print(f"{f'd = {d}, a = {size}' if size else 'all'}{name}: {len(own)} data sets: {'; '.join(words)}")


def main() -> None:
    """Run all settings and print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=["fixed"], help="fixed, defaults, or summary and files of rows")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=10, help="data sets of each problem, of defaults")
    parser.add_argument("--methods", nargs="*", default=METHODS, choices=METHODS)
    parser.add_argument(
        "--problems", nargs="*", type=int, default=range(1, len(SETTINGS) + 1), help="by number, from 1"
    )
    args = parser.parse_args()
    if args.what[0] == "summary":
        return summarise(args.what[1:])
    if args.what[0] == "defaults":
        for seed, (number, problem) in product(range(args.seed, args.seed + args.seeds), enumerate(LEARNED, 1)):
            if number in args.problems:
                print(json.dumps(against_defaults(*problem, seed)), flush=True)
        return None
    options = {
        "kernel": RBF(LENGTHSCALE, VARIANCE), "learn_hyperparameters": False, "shared_part": False,
        "standardize": False, "progress": False, "random_state": args.seed,
    }  # fmt: skip
    n_draws = 200 if args.quick else 3000
    head = ("problem", "d", "method", "choice probabilities", "means", "sds", "log P", "exact posterior: R-hat, draws")
    print(markdown_table(head, []))
    errors: dict[str, list[float]] = {method: [] for method in args.methods}
    for number, setting in enumerate(SETTINGS):
        if number + 1 not in args.problems:
            continue
        train, test = make(setting, args.seed + number)
        d = setting.n_utilities
        truth = ChoiceGP(d, inference="mcmc", max_iter=n_draws, **options).fit(train)
        probability, log_p = np.concatenate(truth.predict_proba(test)), truth.log_prob(test, normalized=True)
        mean, sd = differences(truth, train.X)
        for method in args.methods:
            steps = 500 if args.quick and method == "paper" else n_draws if method == "mcmc" else None
            # Other chains: how far the truth is from itself.
            own = options | {"random_state": args.seed + 1} if method == "mcmc" else options
            model = ChoiceGP(d, inference=method, max_iter=steps, **own).fit(train)
            own_mean, own_sd = matched(*differences(model, train.X), mean)
            error = np.abs(np.concatenate(model.predict_proba(test)) - probability).mean()
            errors[method].append(error)
            rest = [
                np.abs(own_mean - mean).mean(), np.abs(own_sd - sd).mean(),
                np.abs(model.log_prob(test, normalized=True) - log_p).mean(),
            ]  # fmt: skip
            told = truth.fit_result_.message if method == args.methods[0] else ""
            numbers = (f"{error:.4f}", *(f"{value:.3f}" for value in rest))
            print(table_row((setting.name, d, method, *numbers, told)), flush=True)
    for method, values in errors.items():
        print(f"{method}: mean {np.mean(values):.4f}, largest {np.max(values):.4f}")
    return None


if __name__ == "__main__":
    main()

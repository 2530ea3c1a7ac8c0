"""What slips cost, and what a lapse rate saves.

Protocol, fixed before the run.  Two utilities, linear in four standard normal features with normal coefficients, 40
objects, 120 training sets and 200 test sets of four; answers are Pareto choices without errors.  A share of 0, 5, 10 or
20% of the training answers is replaced by a random non-empty subset.  Three models learn from them (`intervals="none"`,
no object effects): no lapse, a fixed lapse of the true share, and a learned lapse.  The measure is the exact accuracy
on test sets, against clean answers.  The goal: at 10% slips a learned lapse wins back at least two thirds of what the
slips cost the model without one, in the mean over seeds.  The cost is the accuracy that the model without a lapse
has without slips, less what it has with them.

Run: ``python studies/slips.py --seeds 10 --log slips.jsonl``; what the log holds is not fitted again.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from choicegp import ChoiceData, ChoiceGP

SHARES = (0.0, 0.05, 0.1, 0.2)
KINDS = ("none", "fixed", "learned")


def made(seed: int, share: float) -> tuple[ChoiceData, ChoiceData]:
    """Make training sets with slips, and clean test sets."""
    rng = np.random.default_rng([seed, 24])
    X = rng.normal(size=(40, 4))
    U = X @ rng.normal(size=(4, 2))
    shown = [rng.choice(40, 4, replace=False).tolist() for _ in range(320)]
    clean = ChoiceData.from_utilities(X, U, shown)
    train, test = clean.take(range(120)), clean.take(range(120, 320))
    chosen = [rows.tolist() for rows in train.chosen]
    for k in np.flatnonzero(rng.random(120) < share):
        code = int(rng.integers(1, 16))
        chosen[k] = [row for i, row in enumerate(shown[k]) if code >> i & 1]
    return ChoiceData.from_sets(X, shown[:120], chosen), test


def accuracy(seed: int, share: float, lapse: float | str) -> float:
    """Fit to one data set and score clean choices."""
    train, test = made(seed, share)
    model = ChoiceGP(2, lapse=lapse, intervals="none", object_effects=False, random_state=seed).fit(train)
    return model.score(test)


def table(found: dict[tuple[float, int, str], float], seeds: range) -> str:
    """Return the means over seeds of each share, and how much of the cost of slips each lapse wins back."""
    lines = ["| slips | no lapse | fixed lapse | learned lapse | learned minus none | won back by fixed, learned |"]
    lines.append("|---|---|---|---|---|---|")
    runs = {share: np.array([[found[share, seed, kind] for kind in KINDS] for seed in seeds]) for share in SHARES}
    clean = runs[0.0][:, 0].mean()
    for share, own in runs.items():
        means, gain = own.mean(axis=0), own[:, 2] - own[:, 0]
        error = gain.std(ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else float("nan")
        cost = clean - means[0]
        back = ", ".join(f"{(mean - means[0]) / cost:.2f}" for mean in means[1:]) if share else ""
        shown = " | ".join(f"{mean:.3f}" for mean in means)
        lines.append(f"| {share:.0%} | {shown} | {gain.mean():+.3f} ± {error:.3f} | {back} |")
    return "\n".join(lines)


def main() -> None:
    """Fit what the log does not hold yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10, help="number of data sets for each share")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--log", type=Path, default=Path("slips.jsonl"))
    options = parser.parse_args()
    lines = options.log.read_text().splitlines() if options.log.exists() else []
    found = {(one["share"], one["seed"], one["lapse"]): one["exact"] for one in map(json.loads, lines)}
    seeds = range(options.first, options.first + options.seeds)
    for seed in seeds:
        for share in SHARES:
            for kind, lapse in zip(KINDS, (0.0, share, "learn"), strict=True):
                if (share, seed, kind) not in found:
                    found[share, seed, kind] = accuracy(seed, share, lapse)
                    line = {"share": share, "seed": seed, "lapse": kind, "exact": found[share, seed, kind]}
                    with options.log.open("a") as log:
                        log.write(json.dumps(line) + "\n")
    print(table(found, seeds))


if __name__ == "__main__":
    main()

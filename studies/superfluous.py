"""What a utility too many costs, and whether the number is found.

Protocol, fixed before the run.  `datasets.inconsistent_preferences` as in the experiment "inconsistent": 60 objects
with 4 features, half of all pairs for training, Pareto answers without errors.  L = 1 has one true utility, L = 2
three.  Models with default options but ``intervals="none"``: for L = 1 one utility, three, and ``n_utilities="auto"``;
for L = 2 three and "auto".  The measure is the exact accuracy on held-out pairs, seeds 200, 201, ...  Goals: with one
true utility, three cost at most 0.01; "auto" is within 0.005 of the true number for both.

Run: ``python studies/superfluous.py --seeds 10``
"""

import argparse

import numpy as np

from choicegp import ChoiceGP, datasets

FIRST_SEED = 200
MODELS: dict[int, tuple[int | str, ...]] = {1: (1, 3, "auto"), 2: (3, "auto")}


def scored(n_classes: int, n_utilities: int | str, seed: int) -> tuple[float, int]:
    """Fit to one data set; return the accuracy on its held-out pairs and the number of utilities."""
    simulated = datasets.inconsistent_preferences(60, 4, n_classes, 0.5, random_state=seed)
    model = ChoiceGP(n_utilities, intervals="none", random_state=0, progress=False).fit(simulated.pareto_train)
    return model.score(simulated.pareto_test), model.n_utilities_


def main() -> None:
    """Print every fit, then means and paired differences to the true number."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=10)
    seeds = range(FIRST_SEED, FIRST_SEED + parser.parse_args().seeds)
    found: dict[tuple[int, int | str], list[float]] = {}
    for seed in seeds:
        for n_classes, numbers in MODELS.items():
            for number in numbers:
                accuracy, used = scored(n_classes, number, seed)
                found.setdefault((n_classes, number), []).append(accuracy)
                print(f"seed {seed}, L = {n_classes}, d = {number} ({used}): {accuracy:.4f}", flush=True)
    for (n_classes, number), values in found.items():
        difference = np.array(values) - found[n_classes, MODELS[n_classes][0]]
        error = difference.std(ddof=1) / np.sqrt(len(difference)) if len(difference) > 1 else float("nan")
        print(
            f"L = {n_classes}, d = {number}: {np.mean(values):.4f}, difference {difference.mean():+.4f} ± {error:.4f}"
        )


if __name__ == "__main__":
    main()

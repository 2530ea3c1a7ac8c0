"""Problems on which no kernel was tuned: ChoiceGP and ParetoEmbedding on 40,960 sets of ten objects each.

Protocol: the problems of `choicegp.datasets.made_choices`, objects and sets with seed 0; the test sets are the first
4,096 of a permutation drawn with seed 1234, the rest is for training; as many utilities as objectives; all options of
both models at their defaults, seed 0.  Twelve problems were used for development; `ASIDE` were looked at once, when the
options were fixed.

    python benchmarks/made.py ratios products                     # some problems, both models
    python benchmarks/made.py --write DIR                         # write the choices, to be carried elsewhere
    python benchmarks/made.py --data DIR --models ChoiceGP        # all problems, without pymoo

Prints one line of JSON per problem and model: pooled A-mean, share of sets predicted exactly and seconds of the fit
(the first of each number of utilities and features compiles); of ChoiceGP also the mean normalised log probability of
the answers, and for every tenth of predicted probability its size and how far the prediction is from what was observed,
with the number of tenths whose 95% interval does not hold the prediction.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np

from choicegp import ChoiceData, ChoiceGP, ParetoEmbedding, datasets, metrics
from choicegp.datasets.families import MADE_PROBLEMS, sizes_of
from choicegp.evaluation.calibration import calibration

N_SETS, SIZE, N_TEST = 40960, 10, 4096
ASIDE = ("rotated-dtlz7", "network-kinked", "maf-distances", "interactions")
MODELS = ("ChoiceGP", "ParetoEmbedding")


def load(name: str, folder: Path | None) -> tuple[ChoiceData, int]:
    """Make the choices, or read them from where a machine with pymoo has written them; also the number of utilities."""
    n_variables, n_objectives = sizes_of(name)
    if folder is None:
        return datasets.made_choices(name, N_SETS, SIZE).data, n_objectives
    chosen = np.unpackbits(np.load(folder / f"{name}.npy"), count=N_SETS * SIZE).astype(bool).reshape(N_SETS, SIZE)
    X = np.random.default_rng(0).uniform(size=(N_SETS * SIZE, n_variables))
    shown = np.arange(len(X)).reshape(N_SETS, SIZE)
    return ChoiceData.from_sets(X, shown, [row[mask] for row, mask in zip(shown, chosen, strict=True)]), n_objectives


def run(name: str, kind: str, data: ChoiceData, d: int) -> dict:
    """Fit, predict the test sets once, and measure."""
    order = np.random.default_rng(1234).permutation(len(data))
    train, test = data.take(np.sort(order[N_TEST:])), data.take(np.sort(order[:N_TEST]))
    start = time.perf_counter()
    model = ChoiceGP(d, inference="sparse") if kind == "ChoiceGP" else ParetoEmbedding(d)
    model.fit(train)
    seconds, predicted = time.perf_counter() - start, model.predict(test)
    found = {
        "problem": name, "aside": name in ASIDE, "model": kind, "a_mean": round(metrics.a_mean(test, predicted), 4),
        "exact": round(metrics.exact_accuracy(test, predicted), 4), "seconds": round(seconds, 1),
    }  # fmt: skip
    if not isinstance(model, ChoiceGP):
        return found
    table = calibration(test, model.predict_proba(test))
    apart = table["predicted"] - table["observed"]
    outside = (table["predicted"] < table["low"]) | (table["predicted"] > table["high"])
    return found | {
        "log_prob": round(float(np.mean(model.log_prob(test, normalized=True))), 4), "apart": apart.round(3).tolist(),
        "objects": table["objects"].tolist(), "outside": int(outside.sum()), "steps": model.fit_result_.n_iter,
        "notes": list(model.fit_result_.notes[:3]),
    }  # fmt: skip


def main() -> None:
    """Run the named problems, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", default=MADE_PROBLEMS)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--write", type=Path)
    args = parser.parse_args()
    for name in args.problems:
        if args.write is not None:
            args.write.mkdir(parents=True, exist_ok=True)
            chosen = datasets.made_choices(name, N_SETS, SIZE).data.flat_chosen
            assert chosen is not None
            np.save(args.write / f"{name}.npy", np.packbits(chosen))
            continue
        data, d = load(name, args.data)
        for kind in args.models:
            print(json.dumps(run(name, kind, data, d)), flush=True)


if __name__ == "__main__":
    main()

"""Which options predict best, by cross-validation inside the training pairs of a published table.

    python studies/inside_training.py edm --seed 0 --ways default "no shared part"

The splits are those of `choicegp reproduce real-data`; its test pairs are not looked at, unless ``--test`` is given.
"""

import argparse
import json
import os
import time

import numpy as np

from choicegp import MCMC, ChoiceGP, HyperPriors
from choicegp.experiments.real_data import drawn
from choicegp.inference import intervals

WAYS = {
    "default": {}, "effects": {"object_effects": True}, "no effects": {"object_effects": False},
    "no shared part": {"shared_part": False, "object_effects": True}, "two": {"n_utilities": 2},
    "four": {"n_utilities": 4}, "matern": {"kernel": "matern52"}, "rough": {"kernel": "matern12"},
    "starts": {"n_restarts": 32}, "no hyperpriors": {"hyperpriors": None, "object_effects": True},
    "sampled": {"intervals": "auto"}, "sampled several": {"intervals": "auto"},
    "sampled effects": {"intervals": "auto", "object_effects": True},
    "sampled two": {"intervals": "auto", "n_utilities": 2},
    "sampled no shared part": {"intervals": "auto", "shared_part": False, "object_effects": True},
    "sampled matern": {"intervals": "auto", "kernel": "matern52"},
    "sampled starts": {"intervals": "auto", "n_restarts": 32},
    "sampled small effects": {"intervals": "auto", "hyperpriors": HyperPriors(effect_variance=(-1.0, 2.0))},
    "sampled large effects": {"intervals": "auto", "hyperpriors": HyperPriors(effect_variance=(3.0, 2.0))},
    "sampled small variance": {"intervals": "auto", "hyperpriors": HyperPriors(variance=(2.0, 1.5))},
    "sampled long": {"inference": MCMC(n_draws=4000), "object_effects": True},
}  # fmt: skip


def main() -> None:
    """Fit every fold in several ways, and print accuracies and log scores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--ways", nargs="+", default=[*WAYS])
    parser.add_argument("--test", action="store_true")
    args = parser.parse_args()
    pairs = drawn({"table": args.table, "n_objects": 50, "seed": args.seed}, os.environ.get("CHOICEGP_DATA"))
    n = pairs.n_train
    order = np.random.default_rng([args.seed, 1]).permutation(n)
    folds = [(np.setdiff1d(order, own), own) for own in np.array_split(order, args.folds)]
    if args.test:
        folds = [(np.arange(n), np.arange(n, len(pairs.choices)))]
    large = intervals._LARGE_SET
    for way in args.ways:
        intervals._LARGE_SET = 1 if "several" in way else large
        options = {"n_utilities": 3, "intervals": "none", **WAYS[way]}
        right, scores, start, words = [], [], time.process_time(), []
        for train, test in folds:
            model = ChoiceGP(**options, progress=False, random_state=args.seed).fit(pairs.choices.take(train))
            held = pairs.choices.take(test)
            right.append(model.score(held))
            scores.append(float(np.mean(model.log_prob(held, normalized=True))))
            words.append(f"{model.elbo_:.1f} {model.fitted_.has_effects} {model.intervals_[-130:]}")
        print(json.dumps({"table": args.table, "seed": args.seed, "way": way, "test": args.test,
                          "accuracy": float(np.mean(right)), "score": float(np.mean(scores)),
                          "seconds": round(time.process_time() - start, 1), "words": words[0]}),
              flush=True)  # fmt: skip


if __name__ == "__main__":
    main()

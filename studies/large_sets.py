"""Answers without errors to large sets: what chains around several fits change.

    python studies/large_sets.py --utilities 2 --size 12 --features 15 --seed 100

The data sets are those of `choicegp honesty`. Ways: ``one``, all chains around the fit with the best bound of the
default's starts; ``several``, as the default is; ``gaussian``, Gaussian utilities around the same fits without chains.
"""

import argparse
import json
import os
import time

import numpy as np

from choicegp import ChoiceGP
from choicegp.experiments.honesty_baselines import constant_answers, model_answers
from choicegp.experiments.honesty_data import simulated, table_split
from choicegp.experiments.honesty_measures import coverage, tenths
from choicegp.inference import intervals, mcmc


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in {"utilities": 2, "size": 12, "features": 2, "seed": 100}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--answers", default="noise-free")
    parser.add_argument("--ways", nargs="+", default=["one", "several", "weighted", "gaussian"])
    parser.add_argument("--scored", type=int, default=40)
    parser.add_argument("--table")
    args = parser.parse_args()
    settings = {"part": "simulated", "d": args.utilities, "a": args.size, "features": args.features, "objects": 25,
                "sets": 60, "answers": args.answers, "related": 0.0, "seed": args.seed}  # fmt: skip
    if args.size <= 10:
        intervals._LARGE_SET = 1
    if args.table:
        settings = {
            "part": "table",
            "table": args.table,
            "d": 3,
            "a": 4,
            "objects": 50,
            "sets": 120,
            "test": 100,
            "seed": args.seed,
        }
        intervals._LARGE_SET, args.utilities = 1, 3
    data = table_split(settings, os.environ.get("CHOICEGP_DATA")) if args.table else simulated(settings)
    with_intervals, find = intervals.with_intervals, intervals._modes
    seen = {}
    intervals.with_intervals = lambda task, before: seen.update(task=task, before=before) or (before, "none")
    start = time.process_time()
    model = ChoiceGP(args.utilities, progress=False, random_state=args.seed).fit(data.train)
    model.score(data.train.take(range(1)))
    task, before, plain = seen["task"], seen["before"], model.fitted_
    print(json.dumps({"settings": settings, "fit": time.process_time() - start, "elbo": model.elbo_,
                      "effects": plain.has_effects}), flush=True)  # fmt: skip
    new = data.new.take(range(args.scored))
    constant = constant_answers(data.train, new).values(new, "new")["new_score"]
    start = time.process_time()
    most, intervals._MOST_MODES = intervals._MOST_MODES, 99
    every = find(task, before)
    modes = every[:most]
    print(
        json.dumps({"modes": [round(one.elbo, 1) for one in every], "seconds": time.process_time() - start}), flush=True
    )
    for way in args.ways:
        start = time.process_time()
        slots = drawn(every, most) if way == "weighted" else modes if way == "several" else [before]
        if way == "gaussian":
            found, words = gaussian(task, modes), way
        else:
            intervals._modes = lambda task, before, slots=slots: slots
            found, words = with_intervals(task, before)
        seconds = time.process_time() - start
        model.fitted_ = plain._replace(posterior=found.posterior)
        values = {} if args.table else coverage(model, data, args.seed, is_noisy=args.answers == "noisy")
        values |= tenths(model, [data.known, data.new])
        start = time.process_time()
        values |= model_answers(model, new).values(new, "new")
        if args.table:
            values |= model_answers(model, data.known).values(data.known, "known")
        values = {name: np.asarray(value).tolist() for name, value in values.items()}
        print(json.dumps({"way": way, **values, "constant": constant, "seconds": seconds,
                          "score_seconds": time.process_time() - start, "words": words}), flush=True)  # fmt: skip


def drawn(fits, n):
    weights = np.cumsum(np.exp(0.5 * np.array([one.elbo - fits[0].elbo for one in fits])))
    return [fits[row] for row in np.searchsorted(weights / weights[-1], (np.arange(n) + 0.5) / n)]


def gaussian(task, modes):
    sampler = mcmc.MCMCInference(task, modes[0], 0, 0.8, modes=modes)
    rng = np.random.default_rng(0)
    kept = []
    for number in range(mcmc.MOST_SETTINGS):
        own = sampler.model_of(number)
        half = rng.normal(size=(8, modes[0].posterior.prior.n_parts, len(task.problem.valid)))
        hyper = rng.normal(size=own.approximation.n_learned)
        kept.append(mcmc.duals_at(hyper, np.concatenate([half, -half]), own))
    return modes[0]._replace(posterior=mcmc.posterior_of_settings(modes[0].posterior, kept))


if __name__ == "__main__":
    main()

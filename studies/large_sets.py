"""Intervals and log scores where the posterior has many modes, such as after answers without errors to large sets.

    python studies/large_sets.py --utilities 2 --size 12 --features 15 --seed 100 --ways one default

The data sets are those of `choicegp honesty`.  Ways: ``default``, as a user gets it; ``one``, all chains around the
best of the default's starts; ``equal``, one chain around each of the eight best fits within ten nats; ``gaussian``,
Gaussian utilities around these fits, without chains.
"""

import argparse
import json
import time
from typing import Any

import numpy as np

from choicegp import ChoiceGP
from choicegp.experiments.honesty_baselines import constant_answers, model_answers
from choicegp.experiments.honesty_data import simulated
from choicegp.experiments.honesty_measures import coverage, tenths
from choicegp.inference import intervals, mcmc
from choicegp.inference.driver import Inferred, Task

CLOSE, N_MODES = 10.0, 8


def main() -> None:
    """Fit one data set, make its intervals in several ways, and print what is measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = {"utilities": 2, "size": 12, "features": 2, "seed": 100, "objects": 25, "sets": 60, "scored": 40}
    for name, value in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--related", type=float, default=0.0)
    parser.add_argument("--answers", default="noise-free")
    parser.add_argument("--ways", nargs="+", default=["one", "default", "equal", "gaussian"])
    args = parser.parse_args()
    same = {name: getattr(args, name) for name in ("objects", "sets", "features", "answers", "related", "seed")}
    settings = {"part": "simulated", "d": args.utilities, "a": args.size, **same}
    data = simulated(settings)
    seen: dict[str, Any] = {}
    with_intervals, find = intervals.with_intervals, intervals._modes
    intervals.with_intervals = lambda task, before: seen.update(task=task, before=before) or (before, "none")
    start = time.process_time()
    model = ChoiceGP(args.utilities, progress=False, random_state=args.seed).fit(data.train)
    print(json.dumps({"settings": settings, "seconds": time.process_time() - start, "elbo": model.elbo_}), flush=True)
    plain, new = model.fitted_, data.new.take(range(args.scored)) if args.scored else None
    for way in args.ways:
        start = time.process_time()
        if way == "gaussian":
            found, words = gaussian(seen["task"], close(find, seen))
        else:
            intervals._modes = {"default": find, "one": alone, "equal": lambda *_: close(find, seen)}[way]
            found, words = with_intervals(**seen)
        values: dict[str, Any] = {"way": way, "seconds": time.process_time() - start, "words": words}
        model.fitted_ = plain._replace(posterior=found.posterior)
        values |= {"elbo": found.elbo} | coverage(model, data, args.seed, is_noisy=args.answers == "noisy")
        values |= tenths(model, [data.known, data.new])
        if new is not None:
            start = time.process_time()
            values |= model_answers(model, new).values(new, "new")
            values |= {"score_seconds": time.process_time() - start} | constant_answers(data.train, new).values(
                new, "constant"
            )
        print(json.dumps({name: np.asarray(value).tolist() for name, value in values.items()}), flush=True)


def alone(task: Task, before: Inferred) -> list[Inferred]:
    """Return the fit that a user gets, and no other."""
    return [before]


def close(find: Any, seen: dict[str, Any]) -> list[Inferred]:
    """Return the best of all fits, once each."""
    nats, slots = intervals._NATS, intervals._N_SLOTS
    intervals._NATS, intervals._N_SLOTS = np.inf, 1 + intervals._N_RIVALS
    found = find(**seen)
    intervals._NATS, intervals._N_SLOTS = nats, slots
    return [one for one in found if one.elbo > found[0].elbo - CLOSE][:N_MODES]


def gaussian(task: Task, modes: list[Inferred]) -> tuple[Inferred, str]:
    """Draw Gaussian utilities at settings of the hyperparameters around several fits."""
    sampler = mcmc.MCMCInference(task, modes[0], 0, 0.8, modes=modes)
    rng = np.random.default_rng(0)
    kept = []
    for number in range(mcmc.MOST_SETTINGS):
        own = sampler.model_of(number)
        half = rng.normal(size=(8, modes[0].posterior.prior.n_parts, len(task.problem.valid)))
        hyper = rng.normal(size=own.approximation.n_learned)
        kept.append(mcmc.duals_at(hyper, np.concatenate([half, -half]), own))
    return modes[0]._replace(posterior=mcmc.posterior_of_settings(modes[0].posterior, kept)), f"{len(modes)} fits"


if __name__ == "__main__":
    main()

"""Files of the models of preferences between two objects."""

import os
from collections.abc import Callable
from itertools import count
from typing import Any, TypeVar

import jax
import numpy as np

from choicegp.estimators.files import kernel_from_json, kernel_to_json, rebuild, structure_of
from choicegp.estimators.preference_gp import PairwiseGP
from choicegp.fitting.record import FitResult
from choicegp.inference.pair_process import PairProcess
from choicegp.model.kernels import Kernel
from choicegp.model.prior import HyperPriors
from choicegp.reading.encoding import FeatureEncoding
from choicegp.storage.archive import plain, read_archive, write_archive

VERSION = 1
_ESTIMATOR = TypeVar("_ESTIMATOR", bound=PairwiseGP)


def save_pairwise(model: PairwiseGP, path: "str | os.PathLike[str]") -> None:
    """Write a fitted model; a file of that name is replaced only when the new one is complete."""
    params = dict(model.get_params(deep=False))
    if isinstance(params["kernel"], Kernel):
        params["kernel"] = kernel_to_json(params["kernel"])
    if isinstance(params["hyperpriors"], HyperPriors):
        params["hyperpriors"] = params["hyperpriors"]._asdict()
    process = model.process_
    arrays = {
        "dual": process.dual, "gain": process.gain, "centre": model.centre_, "scale": model.scale_,
        "trace": model.fit_result_.elbo_trace,
        **{f"points_{number}": points for number, points in enumerate(process.points)},
        **{f"kernel_{number}": leaf for number, leaf in enumerate(jax.tree.leaves(process.kernels))},
    }  # fmt: skip
    about = {
        "format": _format(type(model)), "version": VERSION, "params": plain(params),
        "kernel": structure_of(process.kernels), "encoding": model.encoding_.to_json(),
        "evidence": model.log_evidence_, "fit": plain(model.fit_result_._asdict() | {"elbo_trace": None}),
    }  # fmt: skip
    write_archive(path, arrays, about)


def load_pairwise(make: type[_ESTIMATOR], path: "str | os.PathLike[str]") -> _ESTIMATOR:
    """Read a model file of that class; anything else is a clear error."""
    return read_archive(path, _maker(make), kind=_format(make), version=VERSION)


def _format(of: type[PairwiseGP]) -> str:
    return f"choicegp-{of.__name__}"


def _maker(make: type[_ESTIMATOR]) -> Callable[[dict[str, Any], dict[str, Any]], _ESTIMATOR]:
    def made(arrays: dict[str, Any], about: dict[str, Any]) -> _ESTIMATOR:
        params = dict(about["params"])
        if isinstance(params["kernel"], dict):
            params["kernel"] = kernel_from_json(params["kernel"])
        if params["hyperpriors"] is not None:
            params["hyperpriors"] = HyperPriors(**{k: tuple(v) for k, v in params["hyperpriors"].items()})
        model = make(**params)
        leaves = (arrays[f"kernel_{number}"] for number in count())
        points = tuple(arrays[name] for name in sorted(name for name in arrays if name.startswith("points_")))
        kernels = rebuild(about["kernel"], leaves)
        model.process_ = PairProcess(kernels, points, arrays["dual"], arrays["gain"])
        model.log_evidence_ = about["evidence"]
        fit = about["fit"] | {"elbo_trace": np.asarray(arrays["trace"]), "notes": tuple(about["fit"]["notes"])}
        model.fit_result_ = FitResult(**fit)
        model.centre_, model.scale_ = arrays["centre"], arrays["scale"]
        model.encoding_ = FeatureEncoding.from_json(about["encoding"])
        return model

    return made

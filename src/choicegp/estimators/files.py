"""Model files of the estimators whose utilities are Gaussian processes.

Version 1 holds ``about``, a JSON page as a string array (format, version, options, encoding, kernel
structure, fit result, ids, and the names of all other arrays), and arrays under the names used below.
Version 2 is for sampled posteriors, and adds their draws; version 3 for kernels of warped features.  Other models are
still written as version 1.
A reader refuses versions it does not know.
"""

import os
from dataclasses import replace
from itertools import count
from typing import Any, TypeVar

import jax
import numpy as np

from choicegp.checks import id_array
from choicegp.data.choices import ChoiceData
from choicegp.data.packing import split_sets
from choicegp.errors import ChoiceGPError
from choicegp.estimators.utility_gp import UtilityGP
from choicegp.fitting.options import Method
from choicegp.fitting.record import FitResult, Fitted
from choicegp.inference.posterior import Draws, Posterior
from choicegp.model import kernels
from choicegp.model.error_models import DISCERNIBILITY, ERROR_MODELS
from choicegp.model.kernels import Kernel
from choicegp.model.prior import HyperPriors, Objects, UtilityPrior
from choicegp.reading.encoding import FeatureEncoding
from choicegp.storage.archive import plain, plain_ids, read_archive, write_archive

VERSION = 3
_ESTIMATOR = TypeVar("_ESTIMATOR", bound=UtilityGP)
_CHILDREN = ("first", "second", "kernel")
_KERNELS: dict[str, Any] = {name: vars(kernels)[name] for name in kernels.__all__ if name[0].isupper()}


def save_model(model: UtilityGP, path: "str | os.PathLike[str]") -> None:
    """Write a fitted model; a file of that name is replaced only when the new one is complete."""
    write_archive(path, *_unmake(model))


def load_model(make: type[_ESTIMATOR], path: "str | os.PathLike[str]") -> _ESTIMATOR:
    """Read a model file of that class; anything else is a clear error."""
    return read_archive(path, lambda arrays, about: _make(make, arrays, about), kind=make._format, version=VERSION)


def _unmake(model: UtilityGP) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    posterior: Posterior = model.posterior_
    data: ChoiceData = model.data_
    params = dict(model.get_params(deep=False))
    if isinstance(params["kernel"], Kernel):
        params["kernel"] = kernel_to_json(params["kernel"])
    if isinstance(params["hyperpriors"], HyperPriors):
        params["hyperpriors"] = params["hyperpriors"]._asdict()
    if isinstance(params.get("inference"), Method):
        params["inference"] = params["inference"].to_json()
    arrays = {
        "X": posterior.objects.X, "codes": posterior.objects.codes, "mean": posterior.mean,
        "dual": posterior.dual, "gain": posterior.gain, "centre": model.fitted_.centre, "scale": model.fitted_.scale,
        "elbo_trace": model.fit_result_.elbo_trace,
        "data_X": data.X, "data_shown": data.flat_shown, "data_offsets": data.offsets,
        "data_chosen": data.flat_chosen,
    }  # fmt: skip
    if posterior.lapse is not None:
        arrays["lapse"] = posterior.lapse
    if posterior.draws is not None:
        arrays |= {"draws_dual": posterior.draws.dual, "draws_inverse": posterior.draws.inverse}
    if posterior.prior.log_effect_variance is not None:
        arrays["log_effect_variance"] = posterior.prior.log_effect_variance
    if data.weights is not None:
        arrays["data_weights"] = data.weights
    for number, leaf in enumerate(jax.tree.leaves(posterior.prior.kernels)):
        arrays[f"kernel_{number}"] = leaf
    about = {
        "format": model._format, "version": _version_of(posterior), "params": plain(params),
        "kernel": structure_of(posterior.prior.kernels), "encoding": data.encoding.to_json(),
        "elbo": model.elbo_,
        "fit": plain(model.fit_result_._asdict() | {"elbo_trace": None}),
        "known_ids": plain_ids(model.fitted_.codes), "object_ids": plain_ids(data.object_ids),
        "set_ids": plain_ids(data.set_ids),
        "respondents": None if data.respondents is None else plain_ids(data.respondents),
    }  # fmt: skip
    if "noise" in params:
        # The one of the fit, whatever the option was set to since.
        about["errors"] = model.errors_.name
    return {name: np.asarray(array) for name, array in arrays.items()}, about


def _make(make: type[_ESTIMATOR], arrays: dict[str, Any], about: dict[str, Any]) -> _ESTIMATOR:
    params = dict(about["params"])
    if isinstance(params["kernel"], dict):
        params["kernel"] = kernel_from_json(params["kernel"])
    if params["hyperpriors"] is not None:
        params["hyperpriors"] = HyperPriors(**{k: tuple(v) for k, v in params["hyperpriors"].items()})
    if isinstance(params.get("inference"), dict):
        params["inference"] = Method.from_json(params["inference"])
    encoding = FeatureEncoding.from_json(about["encoding"])
    leaves = (arrays[f"kernel_{number}"] for number in count())
    prior = UtilityPrior(rebuild(about["kernel"], leaves), arrays.get("log_effect_variance"))
    objects = Objects(arrays["X"], arrays["codes"])
    draws = Draws(arrays["draws_dual"], arrays["draws_inverse"]) if "draws_dual" in arrays else None
    moments = arrays["mean"], arrays["dual"], arrays["gain"]
    posterior = Posterior(prior, objects, *moments, arrays.get("lapse"), draws)
    result = FitResult(**about["fit"] | {"elbo_trace": arrays["elbo_trace"], "notes": tuple(about["fit"]["notes"])})
    errors = ERROR_MODELS[about["errors"]] if "noise" in params else DISCERNIBILITY
    codes = {value: number for number, value in enumerate(about["known_ids"])}
    data = _data(arrays, about, encoding)
    fitted = Fitted(posterior, about["elbo"], result, arrays["centre"], arrays["scale"], codes, errors, data)
    return make(**params)._keep(fitted)


def _data(arrays: dict[str, Any], about: dict[str, Any], encoding: FeatureEncoding) -> ChoiceData:
    shown, offsets = arrays["data_shown"], arrays["data_offsets"]
    data = ChoiceData.from_sets(
        arrays["data_X"], split_sets(shown, offsets), split_sets(shown, offsets, arrays["data_chosen"]),
        object_ids=about["object_ids"], respondents=about["respondents"], weights=arrays.get("data_weights"),
        encoding=encoding,
    )  # fmt: skip
    # Set ids may repeat after data.take (a bootstrap sample), which from_sets refuses.
    return replace(data, set_ids=id_array(about["set_ids"], len(data), "set_ids", "sets"))


def _version_of(posterior: Posterior) -> int:
    if "Warped" in str(structure_of(posterior.prior.kernels)):
        return 3
    return 1 if posterior.draws is None else 2


def structure_of(kernel: Kernel) -> Any:
    """Name the classes of a kernel; its parameters are stored as arrays, in the order of the leaves."""
    name = type(kernel).__name__
    if _KERNELS.get(name) is not type(kernel):
        raise ChoiceGPError(f"a model with the kernel {name} cannot be saved: only choicegp's own kernels can")
    children = [getattr(kernel, part) for part in _CHILDREN if hasattr(kernel, part)]
    return [name, *(structure_of(child) for child in children)]


def rebuild(structure: Any, leaves: Any) -> Kernel:
    """Make a kernel of that structure whose parameters are the next arrays."""
    name, *children = structure
    inner = [rebuild(child, leaves) for child in children]
    kernel = _KERNELS[name](*inner)
    # A kernel's own parameters are fields after those that are kernels.
    fields, treedef = jax.tree.flatten(kernel)
    of_inner = jax.tree.leaves(inner)
    return jax.tree.unflatten(treedef, [*of_inner, *(next(leaves) for _ in fields[len(of_inner) :])])


def kernel_to_json(kernel: Kernel) -> dict[str, Any]:
    """Turn a kernel into what JSON holds."""
    leaves = [np.asarray(leaf).tolist() for leaf in jax.tree.leaves(kernel)]
    return {"structure": structure_of(kernel), "leaves": leaves}


def kernel_from_json(spec: dict[str, Any]) -> Kernel:
    """Make the kernel that `kernel_to_json` wrote."""
    return rebuild(spec["structure"], iter([np.asarray(leaf)[()] for leaf in spec["leaves"]]))

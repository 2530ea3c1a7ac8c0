"""Model files: one zip archive of plain arrays and a JSON page, written by NumPy; nothing in it is executed.

Version 1 holds ``about``, a JSON page as a string array (format, version, options, encoding, kernel
structure, fit result, ids, and the names of all other arrays), and arrays under the names used below.
Version 2 is for sampled posteriors, and adds their draws; other models are still written as version 1.
A reader refuses versions it does not know.
"""

import json
import os
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import jax
import numpy as np

from choicegp.data.choices import ChoiceData
from choicegp.data.encoding import FeatureEncoding
from choicegp.data.sequences import id_array
from choicegp.data.whole_file import whole_file
from choicegp.errors import ChoiceGPError
from choicegp.estimators.result import FitResult
from choicegp.inference.posterior import Draws, Posterior
from choicegp.model import kernels
from choicegp.model.hyperpriors import HyperPriors
from choicegp.model.kernels import Kernel
from choicegp.model.prior import Objects, UtilityPrior

FORMAT = "choicegp-model"
VERSION = 2
_ESTIMATOR = TypeVar("_ESTIMATOR")
_KERNELS: dict[str, Any] = {name: vars(kernels)[name] for name in kernels.__all__ if name[0].isupper()}


def save_model(model: Any, path: "str | os.PathLike[str]") -> None:
    """Write a fitted model; a file of that name is replaced only when the new one is complete."""
    target = _checked_path(path)
    arrays, about = _unmake(model)
    page = np.array(json.dumps(about | {"arrays": sorted(arrays)}, allow_nan=True))
    members: dict[str, Any] = arrays | {"about": page}
    # NumPy would pickle an array of objects, and its option against that is younger than NumPy 2.0.
    assert not any(array.dtype.hasobject for array in members.values())
    with whole_file(target) as handle:
        np.savez_compressed(handle, **members)


def load_model(make: Callable[..., _ESTIMATOR], path: "str | os.PathLike[str]") -> _ESTIMATOR:
    """Read a model file; anything else is a clear error."""
    source = _checked_path(path)
    try:
        if not source.is_file():
            raise ChoiceGPError("no such model file")
        with source.open("rb") as stream:
            arrays, about = _read(stream)
    except ChoiceGPError as error:
        raise ChoiceGPError(f"{source}: {error}") from None
    except OSError as error:
        raise ChoiceGPError(f"{source}: cannot be read ({error.strerror or error})") from None
    # Where a damaged archive breaks decides which of many errors it raises: directory, stream, array or page.
    except Exception as error:
        raise ChoiceGPError(f"{source}: not a choicegp model, or a damaged one ({error!r})") from None
    try:
        return _make(make, arrays, about)
    except Exception as error:
        raise ChoiceGPError(f"{source}: a choicegp model with missing or wrong parts ({error!r})") from None


def _checked_path(path: Any) -> Path:
    if not isinstance(path, str | os.PathLike) or not os.fspath(path) or "\0" in str(path):
        raise ChoiceGPError(f"a file name is wanted, not {path!r}")
    return Path(path)


def _read(stream: BinaryIO) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    if not zipfile.is_zipfile(stream):
        raise ChoiceGPError("not a choicegp model, or a damaged one (it is no zip archive)")
    stream.seek(0)
    with np.load(stream, allow_pickle=False) as archive:
        if "about" not in archive.files:
            raise ChoiceGPError("not a choicegp model")
        about = json.loads(str(archive["about"]))
        if not isinstance(about, dict) or about.get("format") != FORMAT:
            raise ChoiceGPError("not a choicegp model")
        if about.get("version") not in range(1, VERSION + 1):
            raise ChoiceGPError(
                f"written in model format {about.get('version')}, this choicegp reads up to {VERSION}: upgrade choicegp"
            )
        return {name: archive[name] for name in about["arrays"]}, about


def _unmake(model: Any) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    posterior: Posterior = model.posterior_
    data: ChoiceData = model.data_
    params = dict(model.get_params(deep=False))
    if isinstance(params["kernel"], Kernel):
        params["kernel"] = _kernel_to_json(params["kernel"])
    if isinstance(params["hyperpriors"], HyperPriors):
        params["hyperpriors"] = params["hyperpriors"]._asdict()
    arrays = {
        "X": posterior.objects.X, "codes": posterior.objects.codes, "mean": posterior.mean,
        "dual": posterior.dual, "gain": posterior.gain, "centre": model.centre_, "scale": model.scale_,
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
        "format": FORMAT, "version": 1 if posterior.draws is None else 2, "params": _plain(params),
        "kernel": _structure(posterior.prior.kernels), "encoding": data.encoding.to_json(),
        "elbo": model.elbo_, "fit": _plain(model.fit_result_._replace(elbo_trace=None)._asdict()),
        "known_ids": _plain_ids(model.known_ids_), "object_ids": _plain_ids(data.object_ids),
        "set_ids": _plain_ids(data.set_ids),
        "respondents": None if data.respondents is None else _plain_ids(data.respondents),
    }  # fmt: skip
    return {name: np.asarray(array) for name, array in arrays.items()}, about


def _make(make: Callable[..., _ESTIMATOR], arrays: dict[str, Any], about: dict[str, Any]) -> _ESTIMATOR:
    params = dict(about["params"])
    if isinstance(params["kernel"], dict):
        params["kernel"] = _kernel_from_json(params["kernel"])
    if params["hyperpriors"] is not None:
        params["hyperpriors"] = HyperPriors(**{k: tuple(v) for k, v in params["hyperpriors"].items()})
    model: Any = make(**params)
    encoding = FeatureEncoding.from_json(about["encoding"])
    leaves = (arrays[f"kernel_{number}"] for number in count())
    prior = UtilityPrior(_rebuild(about["kernel"], leaves), arrays.get("log_effect_variance"))
    objects = Objects(arrays["X"], arrays["codes"])
    draws = Draws(arrays["draws_dual"], arrays["draws_inverse"]) if "draws_dual" in arrays else None
    moments = arrays["mean"], arrays["dual"], arrays["gain"]
    model.posterior_ = Posterior(prior, objects, *moments, arrays.get("lapse"), draws)
    model.centre_, model.scale_, model.elbo_ = arrays["centre"], arrays["scale"], about["elbo"]
    fit = about["fit"] | {"elbo_trace": arrays["elbo_trace"], "notes": tuple(about["fit"]["notes"])}
    model.fit_result_ = FitResult(**fit)
    model.n_utilities_ = len(arrays["dual"])
    model.known_ids_ = {value: number for number, value in enumerate(about["known_ids"])}
    model.encoding_ = encoding
    offsets = arrays["data_offsets"]
    shown = np.split(arrays["data_shown"], offsets[1:-1])
    masks = np.split(arrays["data_chosen"], offsets[1:-1])
    data = ChoiceData.from_sets(
        arrays["data_X"], shown, [rows[mask] for rows, mask in zip(shown, masks, strict=True)],
        object_ids=about["object_ids"], respondents=about["respondents"], weights=arrays.get("data_weights"),
        encoding=encoding,
    )  # fmt: skip
    # Set ids may repeat after data.take (a bootstrap sample), which from_sets refuses.
    model.data_ = replace(data, set_ids=id_array(about["set_ids"], len(data), "set_ids", "sets"))
    return model


def _plain(value: Any) -> Any:
    """Turn NumPy scalars, tuples and dicts into what JSON holds."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise _unwritable(value)


def _plain_ids(ids: Iterable[Any]) -> list[Any]:
    plain = [_plain(value) for value in ids]
    for value in plain:
        # A tuple would come back as a list, which is no id: better refused now than when it is read.
        if isinstance(value, list | dict):
            raise _unwritable(tuple(value))
    return plain


def _unwritable(value: Any) -> ChoiceGPError:
    return ChoiceGPError(
        f"{value!r} ({type(value).__name__}) cannot be written to a model file: use numbers or text as ids"
    )


def _structure(kernel: Kernel) -> Any:
    """Name the classes of a kernel; its parameters are stored as arrays, in the order of the leaves."""
    name = type(kernel).__name__
    if _KERNELS.get(name) is not type(kernel):
        raise ChoiceGPError(f"a model with the kernel {name} cannot be saved: only choicegp's own kernels can")
    children = [getattr(kernel, part) for part in ("first", "second") if hasattr(kernel, part)]
    return [name, *(_structure(child) for child in children)]


def _rebuild(structure: Any, leaves: Any) -> Kernel:
    """Make a kernel of that structure whose parameters are the next arrays."""
    name, *children = structure
    if children:
        return _KERNELS[name](*(_rebuild(child, leaves) for child in children))
    kernel = _KERNELS[name]()
    fields, treedef = jax.tree.flatten(kernel)
    return jax.tree.unflatten(treedef, [next(leaves) for _ in fields])


def _kernel_to_json(kernel: Kernel) -> dict[str, Any]:
    leaves = [np.asarray(leaf).tolist() for leaf in jax.tree.leaves(kernel)]
    return {"structure": _structure(kernel), "leaves": leaves}


def _kernel_from_json(spec: dict[str, Any]) -> Kernel:
    return _rebuild(spec["structure"], iter([np.asarray(leaf)[()] for leaf in spec["leaves"]]))

"""Model files: the options of an estimator and what it has learned, for all estimators.

A file is an archive of arrays and a JSON page, which holds the format, its version, the options, the encoding of
features, the structure of the kernel, how the fit went, ids, and the names of all arrays.  A reader refuses versions
that it does not know.

Models of several utilities (`ChoiceGP`, `BatchPreferenceGP`) have version 1; version 2 (read, no longer written) adds
draws of a sampled posterior at one setting of the hyperparameters, version 3 kernels of warped features, version 4
draws at several settings and a shared part of the utilities, version 5 a threshold, the rule by which objects are kept,
and kinds of sets, version 6 kernels of a network's outputs and many people, version 7 people's covariates and draws of
all people, version 8 features with a direction.  Each model is written in the lowest version that can hold it.  The
other formats have version 1.  The inference "joint" was removed: files that name it are read, as
models with ``inference="dense"`` and the posterior that "joint" found.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import jax
import numpy as np

from choicegp.compute.devices import computing
from choicegp.data.choices import ChoiceData
from choicegp.errors import ChoiceGPError, Defect
from choicegp.fitting.methods import Method
from choicegp.fitting.record import ChosenNumber, FitResult, Fitted
from choicegp.inference.posterior import Draws, Posterior, draws_of
from choicegp.model import kernels, mapped, monotone, warped, waves
from choicegp.model.covariates import OfPeople
from choicegp.model.error_models import DISCERNIBILITY, ERROR_MODELS, KEPT_BY
from choicegp.model.kernels import Kernel
from choicegp.model.own_likelihood import Likelihood
from choicegp.model.prior import HyperPriors, Objects, UtilityPrior
from choicegp.reading.encoding import FeatureEncoding
from choicegp.reading.sequences import id_array
from choicegp.storage.archive import check_shapes, leaves_of, numbered, plain_ids, read_archive, write_archive
from choicegp.storage.studies import packed_covariates, packed_study, unpacked_covariates, unpacked_study

if TYPE_CHECKING:
    from choicegp.fitting.embedding import FittedEmbedding
    from choicegp.fitting.pairwise import FittedPairs

_MODEL = TypeVar("_MODEL")
_CHILDREN = ("first", "second", "kernel")
_KERNELS: dict[str, Any] = {
    name: kind
    for name, kind in {
        **vars(kernels),
        **vars(waves),
        **vars(warped),
        **vars(mapped),
        **vars(monotone),
        "OfPeople": OfPeople,
    }.items()
    if isinstance(kind, type) and issubclass(kind, Kernel)
}
_BEST_OBJECT = "choicegp-BatchPreferenceGP"
_DRAWS_AT_THE_BEST = "draws at the most probable hyperparameters: intervals are too narrow"  # of version 2
Arrays = dict[str, Any]
Page = dict[str, Any]


class Format(NamedTuple):
    """How the records of an estimator are written: the newest version, and the two ways between record and file."""

    version: int
    pack: Callable[[Any], tuple[Arrays, Page]]
    unpack: Callable[[Arrays, Page], Any]


def save_model(path: "str | os.PathLike[str]", kind: str, params: dict[str, Any], fitted: Any) -> None:
    """Write a model; a file of that name is replaced only when the new one is complete.

    Parameters
    ----------
    path : str or path
    kind : str
        A name from `FORMATS`.
    params : dict
        The options of the estimator.
    fitted : Fitted, FittedPairs or FittedEmbedding
    """
    arrays, page = FORMATS[kind].pack(fitted)
    if kind == _BEST_OBJECT:
        # The one of the fit, whatever the option was set to since.
        page["errors"] = fitted.errors.name
    write_archive(path, arrays, {"format": kind, "version": 1} | page | {"params": _packed_params(params)})


def load_model(
    path: "str | os.PathLike[str]", make: Callable[[str, dict[str, Any]], Callable[[Any], _MODEL]], kind: str = ""
) -> _MODEL:
    """Read a model file, perhaps of a given kind only; else a clear error.

    ``make`` takes the kind and the options of the estimator, and returns what makes the model of its record.
    """

    def made(arrays: Arrays, page: Page) -> _MODEL:
        known = make(page["format"], _unpacked_params(page["params"]))
        return known(FORMATS[page["format"]].unpack(arrays, page))

    return read_archive(
        path, made, versions={name: known.version for name, known in FORMATS.items() if kind in ("", name)}
    )


# What the formats have in common


def _packed_params(params: dict[str, Any]) -> Page:
    packed = dict(params)
    for name, value in params.items():
        if isinstance(value, Kernel):
            leaves = [np.asarray(leaf).tolist() for leaf in jax.tree.leaves(value)]
            packed[name] = {"structure": _structure(value), "leaves": leaves}
        elif isinstance(value, Likelihood):
            raise ChoiceGPError(
                f"a model with the likelihood {value.name} cannot be saved: a model file contains no code. Save the "
                "answers, and fit again"
            )
        elif isinstance(value, HyperPriors):
            packed[name] = value._asdict()
        elif isinstance(value, Method):
            if not value.is_built_in:
                raise ChoiceGPError(
                    f"a model with the inference {type(value).__name__} cannot be saved: a model file contains no "
                    "code. Save the answers, and fit again"
                )
            packed[name] = value.to_json()
        elif isinstance(value, np.ndarray):
            packed[name] = value.tolist()
    return packed


def _unpacked_params(packed: Page) -> dict[str, Any]:
    params: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in packed.items()
    }
    if isinstance(params.get("kernel"), dict):
        spec = params["kernel"]
        params["kernel"] = _rebuilt(spec["structure"], iter([np.asarray(leaf)[()] for leaf in spec["leaves"]]))
    inference = params.get("inference")
    if isinstance(inference, dict):
        removed = inference["inference"] == "Joint"
        params["inference"] = "dense" if removed else Method.from_json(inference)
    elif inference == "joint":
        params["inference"] = "dense"
    if params.get("hyperpriors") is not None:
        params["hyperpriors"] = HyperPriors(**{name: tuple(pair) for name, pair in params["hyperpriors"].items()})
    return params


def _structure(kernel: Kernel) -> Any:
    """Name the classes of a kernel; its parameters are stored as arrays, in the order of the leaves."""
    name = type(kernel).__name__
    if _KERNELS.get(name) is not type(kernel):
        raise ChoiceGPError(f"a model with the kernel {name} cannot be saved: only choicegp's own kernels can")
    children = [getattr(kernel, part) for part in _CHILDREN if hasattr(kernel, part)]
    return [name, *(_structure(child) for child in children)]


def _rebuilt(structure: Any, leaves: Iterator[Any]) -> Kernel:
    """Make a kernel of that structure whose parameters are the next arrays."""
    name, *children = structure
    inner = [_rebuilt(child, leaves) for child in children]
    kernel = _KERNELS[name](*inner)
    # A kernel's own parameters are fields after those that are kernels.
    fields, treedef = jax.tree.flatten(kernel)
    of_inner = jax.tree.leaves(inner)
    return jax.tree.unflatten(treedef, [*of_inner, *(next(leaves) for _ in fields[len(of_inner) :])])


def _packed_data(data: ChoiceData) -> tuple[Arrays, Page]:
    arrays = {
        "data_X": data.X, "data_shown": data.flat_shown, "data_offsets": data.offsets, "data_chosen": data.flat_chosen,
    }  # fmt: skip
    if data.weights is not None:
        arrays["data_weights"] = data.weights
    return arrays, {
        "object_ids": plain_ids(data.object_ids),
        "set_ids": plain_ids(data.set_ids),
        "respondents": None if data.respondents is None else plain_ids(data.respondents),
        **({} if data.covariates is None else {"covariates": packed_covariates(data.covariates)}),
        **({} if data.kinds is None else {"kinds": plain_ids(data.kinds)}),
        **({} if not data.skipped else {"skipped": [_packed_defect(defect) for defect in data.skipped]}),
    }


def _packed_defect(defect: Defect) -> list[Any]:
    # An id that made a set defective may be anything: what is no text and no number is written as text.
    values = [value.item() if isinstance(value, np.generic) else value for value in defect]
    return [value if value is None or isinstance(value, str | int) else str(value) for value in values]


def _unpacked_data(arrays: Arrays, page: Page, encoding: FeatureEncoding) -> ChoiceData:
    offsets = arrays["data_offsets"]
    shown = np.split(arrays["data_shown"], offsets[1:-1])
    masks = np.split(arrays["data_chosen"], offsets[1:-1])
    data = ChoiceData.from_sets(
        arrays["data_X"], shown, [rows[mask] for rows, mask in zip(shown, masks, strict=True)],
        object_ids=page["object_ids"], respondents=page["respondents"], weights=arrays.get("data_weights"),
        kinds=page.get("kinds"), encoding=encoding, empty="none",
    )  # fmt: skip
    # Set ids may repeat after data.take (a bootstrap sample), which from_sets refuses.
    skipped = tuple(Defect(*values) for values in page.get("skipped", ()))
    covariates = unpacked_covariates(page["covariates"]) if "covariates" in page else None
    set_ids = id_array(page["set_ids"], len(data), "set_ids", "sets")
    return replace(data, set_ids=set_ids, skipped=skipped, covariates=covariates)


def _packed_data_if_any(data: ChoiceData | None) -> tuple[Arrays, Page]:
    """Pack data that predictions do not need: ids that no file holds are no reason not to save the model."""
    try:
        return ({}, {}) if data is None else _packed_data(data)
    except ChoiceGPError:
        return {}, {}


def _unpacked_data_if_any(arrays: Arrays, page: Page, encoding: FeatureEncoding) -> ChoiceData | None:
    return _unpacked_data(arrays, page, encoding) if "data_X" in arrays else None


# Utilities that are Gaussian processes


def _pack(fitted: Fitted) -> tuple[Arrays, Page]:
    posterior, data = fitted.posterior, fitted.data
    structure = _structure(posterior.prior.kernels)
    own, ids = _packed_data(data)
    arrays: Arrays = own | leaves_of("kernel", posterior.prior.kernels) | {
        "X": posterior.objects.X, "codes": posterior.objects.codes, "mean": posterior.mean, "dual": posterior.dual,
        "gain": posterior.gain, "centre": fitted.centre, "scale": fitted.scale,
        "elbo_trace": fitted.result.elbo_trace, "lapse": posterior.lapse,
        "log_effect_variance": posterior.prior.log_effect_variance,
        "log_threshold_variance": posterior.prior.log_threshold_variance,
    }  # fmt: skip
    study_page: Page = {}
    if fitted.study is not None:
        # The population's posterior is made again from the study.
        study_arrays, study_page = packed_study(fitted.study)
        arrays |= study_arrays
    elif posterior.draws is not None:
        # What the draws leave unknown is computed again on loading: it would be the largest part of the file.
        arrays |= leaves_of("draws_prior", posterior.draws.prior) | {"draws_dual": posterior.draws.dual}
    version = 4 if posterior.draws is not None else 3 if "Warped" in str(structure) else 1
    version = 6 if "Mapped" in str(structure) else version
    other = fitted.errors.name in KEPT_BY and fitted.errors != DISCERNIBILITY
    if fitted.study is not None:
        version = 6 if fitted.study.draws is None and fitted.study.covariates is None else 7
    version = 8 if "Monotone" in str(structure) else version
    page = {
        "version": max(5, version) if other or data.kinds is not None else version,
        "kernel": structure, "shared": posterior.prior.shared, "encoding": data.encoding.to_json(), "elbo": fitted.elbo,
        "fit": fitted.result.to_json(), "known_ids": plain_ids(fitted.codes),
    }  # fmt: skip
    if other:
        page["errors"] = fitted.errors.name
    if fitted.chosen is not None:
        page["chosen"] = fitted.chosen._asdict()
    return {name: array for name, array in arrays.items() if array is not None}, page | ids | study_page


def _unpack(arrays: Arrays, page: Page) -> Fitted:
    encoding = FeatureEncoding.from_json(page["encoding"])
    result = FitResult.from_json(page["fit"], arrays["elbo_trace"])
    known = ERROR_MODELS if page["format"] == _BEST_OBJECT else KEPT_BY
    errors = known[page.get("errors", DISCERNIBILITY.name)]
    kernel, effects = _rebuilt(page["kernel"], numbered(arrays, "kernel")), arrays.get("log_effect_variance")
    shared = page["version"] >= 4 and page["shared"]
    prior = UtilityPrior(kernel, effects, shared, arrays.get("log_threshold_variance"))
    objects = Objects(arrays["X"], arrays["codes"])
    check_shapes(arrays, prior, has_threshold=errors.has_threshold)
    draws, gain = None, arrays["gain"]
    if "draws_inverse" in arrays:
        # Versions before 4: all draws have the same hyperparameters, and no sites are known.
        one = jax.tree.map(lambda leaf: leaf[None], prior)
        draws, gain = Draws(one, arrays["draws_dual"][None], arrays["draws_inverse"][None]), gain[:, :0, :0]
    elif "draws_dual" in arrays:
        leaves, like = jax.tree.flatten(prior)
        settings = jax.tree.unflatten(like, numbered(arrays, "draws_prior", len(leaves)))
        with computing("cpu"):
            draws = draws_of(settings, objects, arrays["draws_dual"])
    posterior = Posterior(prior, objects, arrays["mean"], arrays["dual"], gain, arrays.get("lapse"), draws)
    study = None
    if "study" in page:
        study = unpacked_study(arrays, page, prior, arrays.get("lapse"))
        with computing("cpu"):
            posterior = study.population()
    if draws is not None and not result.intervals:
        result = result._replace(intervals=_DRAWS_AT_THE_BEST)
    codes = {value: number for number, value in enumerate(page["known_ids"])}
    data = _unpacked_data(arrays, page, encoding)
    chosen = ChosenNumber(**page["chosen"]) if "chosen" in page else None
    return Fitted(
        posterior, page["elbo"], result, arrays["centre"], arrays["scale"], codes, errors, data, study, chosen
    )  # fmt: skip


# Preferences between two objects


def _pack_pairs(fitted: "FittedPairs") -> tuple[Arrays, Page]:
    process = fitted.process
    own, ids = _packed_data_if_any(fitted.data)
    arrays = own | leaves_of("points", process.points) | leaves_of("kernel", process.kernels) | {
        "dual": process.dual, "gain": process.gain, "centre": fitted.centre, "scale": fitted.scale,
        "trace": fitted.result.elbo_trace,
    }  # fmt: skip
    return arrays, ids | {
        "kernel": _structure(process.kernels), "encoding": fitted.encoding.to_json(), "evidence": fitted.log_evidence,
        "fit": fitted.result.to_json(),
    }  # fmt: skip


def _unpack_pairs(arrays: Arrays, page: Page) -> "FittedPairs":
    from choicegp.fitting.pairwise import FittedPairs
    from choicegp.inference.pair_process import PairProcess

    points = tuple(numbered(arrays, "points", sum(name.startswith("points_") for name in arrays)))
    kernel = _rebuilt(page["kernel"], numbered(arrays, "kernel"))
    encoding = FeatureEncoding.from_json(page["encoding"])
    return FittedPairs(
        PairProcess(kernel, points, arrays["dual"], arrays["gain"]), page["evidence"],
        FitResult.from_json(page["fit"], arrays["trace"]), arrays["centre"], arrays["scale"], encoding,
        _unpacked_data_if_any(arrays, page, encoding),
    )  # fmt: skip


# A network


def _pack_embedding(fitted: "FittedEmbedding") -> tuple[Arrays, Page]:
    result, embedding = fitted.result, fitted.embedding
    own, ids = _packed_data_if_any(fitted.data)
    arrays = own | leaves_of("matrix", embedding.matrices) | leaves_of("shift", embedding.shifts) | {
        "centre": fitted.centre, "scale": fitted.scale, "losses": result.losses,
        "validation_losses": result.validation_losses,
    }  # fmt: skip
    kept = ("status", "message", "best_epoch", "seconds")
    return arrays, ids | {
        "fit": {name: getattr(result, name) for name in kept}, "n_matrices": len(embedding.matrices),
        "encoding": fitted.encoding.to_json(),
    }  # fmt: skip


def _unpack_embedding(arrays: Arrays, page: Page) -> "FittedEmbedding":
    from choicegp.fitting.embedding import EmbeddingFit, FittedEmbedding
    from choicegp.model.embedding import Embedding

    matrices, shifts = (tuple(numbered(arrays, name, page["n_matrices"])) for name in ("matrix", "shift"))
    losses = {name: arrays[name] for name in ("losses", "validation_losses")}
    result = EmbeddingFit(**page["fit"], n_epochs=len(losses["losses"]), **losses)
    encoding = FeatureEncoding.from_json(page["encoding"])
    return FittedEmbedding(
        Embedding(matrices, shifts), result, arrays["centre"], arrays["scale"], encoding,
        _unpacked_data_if_any(arrays, page, encoding),
    )  # fmt: skip


_PAIRS = Format(1, _pack_pairs, _unpack_pairs)
FORMATS = {
    "choicegp-model": Format(8, _pack, _unpack),
    _BEST_OBJECT: Format(6, _pack, _unpack),
    "choicegp-PreferenceGP": _PAIRS,
    "choicegp-GeneralPreferenceGP": _PAIRS,
    "choicegp-PairGP": _PAIRS,
    "choicegp-embedding": Format(1, _pack_embedding, _unpack_embedding),
}
"""What each kind of model file holds, by the name that its page gives."""

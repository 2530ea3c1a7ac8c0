"""Files of arrays and a JSON page: one zip archive, written by NumPy; nothing in it is executed.

An archive holds ``about``, a JSON page as a string array (format, version, the names of all other arrays, and
whatever the writer says), and the arrays.
"""

import json
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import numpy as np

from choicegp.checks import file_path
from choicegp.errors import ChoiceGPError
from choicegp.files import replaced_when_complete

if TYPE_CHECKING:
    from choicegp.model.prior import UtilityPrior

_MADE = TypeVar("_MADE")
_LARGE = 2**28  # bytes of an unpacked archive, beyond which it is looked at more closely
_TIGHTEST = 100  # times


def write_archive(
    path: "str | os.PathLike[str]", arrays: dict[str, Any], about: dict[str, Any], *, compressed: bool = True
) -> None:
    """Write an archive; a file of that name is replaced only when the new one is complete."""
    page = np.array(json.dumps(plain(about | {"arrays": sorted(arrays)})))
    members: dict[str, Any] = {name: np.asarray(array) for name, array in arrays.items()} | {"about": page}
    with replaced_when_complete(path) as handle:
        _write(handle, members, zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED)
        # Many columns of zeros and ones can be packed so tightly that they would be refused when they are read; twice,
        # because a reader counts other bytes.
        if _is_too_tight(2 * sum(array.nbytes for array in members.values()), handle.tell()):
            handle.seek(0)
            handle.truncate()
            _write(handle, members, zipfile.ZIP_STORED)


def _write(handle: BinaryIO, members: dict[str, np.ndarray], compression: int) -> None:
    """Write arrays as `numpy.savez` does, but close the archive also where the disk is full."""
    with zipfile.ZipFile(handle, "w", compression) as archive:
        for name, array in members.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as part:
                np.lib.format.write_array(part, array, allow_pickle=False)


def read_archive(
    path: "str | os.PathLike[str]",
    make: Callable[[dict[str, Any], dict[str, Any]], _MADE],
    *,
    versions: Mapping[str, int],
    noun: str = "model",
) -> _MADE:
    """Read an archive and turn its arrays and its page into what ``make`` makes; else a clear error.

    ``versions`` are the newest versions of the formats that are read; errors speak of a ``noun``.
    """
    source = file_path(path)
    try:
        if not source.is_file():
            raise ChoiceGPError(f"no such {noun} file")
        with source.open("rb") as stream:
            arrays, about = _read(stream, versions, noun)
    except ChoiceGPError as error:
        raise ChoiceGPError(f"{source}: {error}") from None
    except OSError as error:
        raise ChoiceGPError(f"{source}: cannot be read ({error.strerror or error})") from None
    # Where a damaged archive breaks decides which of many errors it raises: directory, stream, array or page.
    except Exception as error:
        raise ChoiceGPError(f"{source}: not a choicegp {noun}, or a damaged one ({error!r})") from None
    try:
        return make(arrays, about)
    except ChoiceGPError as error:
        raise ChoiceGPError(f"{source}: {error}") from None
    except Exception as error:
        raise ChoiceGPError(f"{source}: a choicegp {noun} with missing or wrong parts ({error!r})") from None


def kind_of(path: "str | os.PathLike[str]") -> str:
    """Return the format that an archive names, or nothing: what is wrong with it is said when it is loaded."""
    try:
        source = file_path(path)
        if not source.is_file():
            return ""  # a pipe would be waited for
        with source.open("rb") as stream:
            _check_size(stream, "model")
            with np.load(stream, allow_pickle=False) as archive:
                return str(json.loads(str(archive["about"]))["format"])
    except Exception:
        return ""


def _read(stream: BinaryIO, versions: Mapping[str, int], noun: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    if not zipfile.is_zipfile(stream):
        raise ChoiceGPError(f"not a choicegp {noun}, or a damaged one (it is not a zip archive)")
    stream.seek(0)
    _check_size(stream, noun)
    with np.load(stream, allow_pickle=False) as archive:
        if "about" not in archive.files:
            raise ChoiceGPError(f"not a choicegp {noun}")
        about = json.loads(str(archive["about"]))
        if not isinstance(about, dict) or not str(about.get("format")).startswith("choicegp-"):
            raise ChoiceGPError(f"not a choicegp {noun}")
        if about["format"] not in versions:
            wanted = f"a {noun}" if len(versions) > 1 else next(iter(versions))
            raise ChoiceGPError(f"a file of another kind ({about['format']}, not {wanted})")
        version = versions[about["format"]]
        if about.get("version") not in range(1, version + 1):
            written = about.get("version")
            raise ChoiceGPError(
                f"written in {noun} format {written}, this choicegp reads up to {version}: upgrade choicegp"
            )
        names = about["arrays"]
        if not isinstance(names, list) or len(names) != len(archive.files) - 1:
            raise ChoiceGPError(f"a choicegp {noun} with missing or wrong parts (its list of arrays)")
        return {name: archive[name] for name in names}, about


def _check_size(stream: BinaryIO, noun: str) -> None:
    """Refuse an archive that would fill the memory: `write_archive` packs nothing so tightly."""
    with zipfile.ZipFile(stream) as archive:
        size, packed = (
            sum(getattr(part, name) for part in archive.infolist()) for name in ("file_size", "compress_size")
        )
    if _is_too_tight(size, packed):
        raise ChoiceGPError(f"not a choicegp {noun}: its {packed:,} bytes unpack to {size:,}")
    stream.seek(0)


def _is_too_tight(size: int, packed: int) -> bool:
    return size > _LARGE and size > _TIGHTEST * packed


def check_shapes(arrays: dict[str, Any], prior: "UtilityPrior", *, has_threshold: bool) -> None:
    """Refuse arrays that do not agree on the numbers of objects, features, utilities and parts of utilities.

    Arrays of wrong shapes, in a file from elsewhere, are often broadcast without an error, and then predict something
    else.
    """
    import jax

    from choicegp.model.prior import Objects

    if has_threshold and prior.log_threshold_variance is None:
        raise ChoiceGPError("a choicegp model with wrong parts: it has a threshold, and not the variance of that")
    n_objects, n_features, n_parts = len(arrays["codes"]), arrays["centre"].size, len(arrays["dual"])
    n_utilities = n_parts - prior.shared
    n_covariates = np.size(arrays.get("covariates_mean", ()))  # of people: further features of what they see
    points = (n_objects, n_features + n_covariates)
    known: dict[str, list[tuple[int, ...]]] = {
        "codes": [(n_objects,)], "centre": [(n_features,)], "scale": [(n_features,)],
        "X": [points, (n_parts, *points)], "mean": [(n_utilities, n_objects)], "dual": [(n_parts, n_objects)],
        "gain": [(n_utilities, n_objects, n_objects), (n_utilities, 0, 0)], "lapse": [()],
        "elbo_trace": [arrays["elbo_trace"].shape[:1]], "log_effect_variance": [(n_parts,)],
        "log_threshold_variance": [(n_parts,)],
    }  # fmt: skip
    for name, allowed in known.items():
        if name in arrays:
            _check(name, arrays[name], allowed)
    for leaf in jax.tree.leaves(prior.kernels):
        _check("kernel", leaf, [(n_parts, *np.shape(leaf)[1:])])
    one = Objects(np.zeros((1, n_features)), np.zeros(1, int))
    # Nothing is computed here but the shape; a kernel for other features fails.
    found = jax.eval_shape(prior.covariance, Objects(arrays["X"], arrays["codes"]), one)
    _check("kernel", found, [(n_parts, n_objects, 1)])


def _check(name: str, array: Any, allowed: list[tuple[int, ...]]) -> None:
    if tuple(array.shape) not in allowed:
        shapes = " or ".join(map(str, allowed))
        raise ChoiceGPError(f"a choicegp model with wrong parts: {name} has the shape {array.shape}, not {shapes}")


def leaves_of(name: str, tree: Any) -> dict[str, Any]:
    """Return the arrays of a tree under numbered names: ``name_0``, ``name_1`` and so on."""
    import jax

    return {f"{name}_{number}": leaf for number, leaf in enumerate(jax.tree.leaves(tree))}


def numbered(arrays: dict[str, Any], name: str, n: int | None = None) -> Iterator[Any]:
    """Yield the arrays that `leaves_of` named, ``n`` of them or as many as are asked for."""
    return (arrays[f"{name}_{number}"] for number in (count() if n is None else range(n)))


def plain(value: Any) -> Any:
    """Turn NumPy scalars, tuples and dicts into what JSON holds."""
    if isinstance(value, np.datetime64 | np.timedelta64):
        raise _unwritable(value)  # NumPy would make a number of one that counts nanoseconds
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise _unwritable(value)


def plain_ids(ids: Iterable[Any]) -> list[Any]:
    """Turn ids into what JSON holds, or say which cannot be."""
    written = [plain(value) for value in ids]
    for value in written:
        # A tuple would come back as a list, which is no id: better refused now than when it is read.
        if isinstance(value, list | dict):
            raise _unwritable(tuple(value))
    return written


def _unwritable(value: Any) -> ChoiceGPError:
    return ChoiceGPError(
        f"{value!r} ({type(value).__name__}) cannot be written to a model file: use numbers or text as ids"
    )

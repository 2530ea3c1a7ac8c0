"""To which fit a checkpoint belongs: a text that differs where the steps of the fit would."""

import hashlib

import jax
import numpy as np

from choicegp import __version__
from choicegp.compute.devices import present_device
from choicegp.data.choices import ChoiceData
from choicegp.data.folder import ChoiceFolder
from choicegp.errors import ChoiceGPError
from choicegp.fitting.options import FitOptions
from choicegp.fitting.record import Fitted

_NO_MATTER = ("progress", "n_jobs", "max_seconds", "kernel", "drawn_seed")


def identity(data: ChoiceData | ChoiceFolder, options: FitOptions, warm: Fitted | None = None) -> str:
    """Describe the options and the data of a fit, and the fit at which it starts, if any; the caller sets the device.

    Parameters
    ----------
    data : ChoiceData or ChoiceFolder
    options : FitOptions
    warm : Fitted, optional
    """
    if options.drawn_seed:
        raise ChoiceGPError("with random_state=None no fit continues another: give checkpoint= together with a seed")
    platform = present_device().platform
    leaves, structure = jax.tree.flatten(options.kernel)
    kernel = str(structure), [np.asarray(leaf).tolist() for leaf in leaves]
    wanted = {name: value for name, value in options._asdict().items() if name not in _NO_MATTER}
    start = None if warm is None else (warm.elbo, hashlib.sha256(np.asarray(warm.posterior.mean).tobytes()).hexdigest())
    return repr((__version__, platform, len(jax.devices(platform)), wanted, kernel, start, _fingerprint(data)))


def _fingerprint(data: ChoiceData | ChoiceFolder) -> str:
    """Return a fingerprint of the data; of a folder, of the names, sizes and times of its files."""
    found = hashlib.sha256()
    if isinstance(data, ChoiceFolder):
        about = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in data.files]
        found.update(repr((about, data.encoding.to_json())).encode())
        return found.hexdigest()
    for part in (data.X, data.flat_shown, data.offsets, data.flat_chosen, data.weights):
        found.update(b"" if part is None else np.ascontiguousarray(part).view(np.uint8).data)
    for ids in (data.object_ids, data.respondents, data.kinds):
        found.update(b"" if ids is None else repr(np.asarray(ids, dtype=object).tolist()).encode())
    return found.hexdigest()

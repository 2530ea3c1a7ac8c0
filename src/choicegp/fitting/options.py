"""The options of a fit: each is checked once, and the first wrong one is a clear error."""

import secrets
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from choicegp.checks import flag_option, jobs_option, number_option, whole_number
from choicegp.data.choices import ChoiceData
from choicegp.data.folder import ChoiceFolder
from choicegp.errors import ChoiceGPError
from choicegp.inference.registry import METHODS, Auto, Method, Paper, Sparse
from choicegp.model.error_models import DISCERNIBILITY, ErrorModel
from choicegp.model.hyperpriors import HyperPriors
from choicegp.model.kernels import Kernel, kernel_named

AUTO_DENSE = 1500
"""Shown objects up to which "auto" means dense inference: then it takes about as long as a sparse one."""
_STARTS, MORE_STARTS, _FEW_OBJECTS = 3, 9, 160  # where a start costs little, more are tried
# From three utilities on there are many more optima: on 200 sets of ten of 100 objects, nine starts of dense inference
# ended up to 42 nats below the best of six seeds, sixteen at most 11, and took a fifth more time.
_MOST_STARTS = 16
_FIRST_LAPSE = 0.05
_KEYWORDS = {"max_iter": None, "n_inducing": None, "batch_size": None, "learn_inducing": False}


def _optional(check: Any) -> Any:
    """Make a check that lets None pass."""
    return lambda name, value: None if value is None else check(name, value)


_count = partial(whole_number, least=1)
_METHOD_CHECKS: dict[str, Any] = {
    "max_iter": _count, "n_draws": _count, "n_warm_up": partial(whole_number, least=0),
    "target_acceptance": partial(number_option, least=0.01, most=0.99), "converged": flag_option,
    "n_inducing": _optional(_count), "batch_size": _optional(_count), "learn_inducing": flag_option,
}  # fmt: skip


class FitOptions(NamedTuple):
    """The validated options of a fit."""

    n_utilities: int
    method: Method
    kernel: Kernel
    any_kernel: bool
    object_effects: bool
    lapse: float
    learn_lapse: bool
    standardize: bool
    hyperpriors: HyperPriors | None
    learn_hyperparameters: bool
    n_restarts: int | None
    max_seconds: float | None
    tol: float
    n_jobs: int | None
    progress: bool | str
    random_state: int
    drawn_seed: bool = False
    errors: ErrorModel = DISCERNIBILITY

    @classmethod
    def validated(cls, params: dict[str, Any]) -> "FitOptions":
        """Check the parameters of an estimator."""
        method = method_option(params)
        lapse, kernel = params["lapse"], params["kernel"]
        learn = isinstance(lapse, str) and lapse == "learn"
        rate = _FIRST_LAPSE if learn else number_option("lapse", lapse, 0.0, 1.0)
        if rate >= 1.0:
            raise ChoiceGPError("lapse must be below 1: at 1 the choices say nothing")
        if learn and isinstance(method, Paper):
            raise ChoiceGPError("lapse='learn' works with inference='dense', 'joint' or 'mcmc' only")
        any_kernel = isinstance(kernel, str) and kernel == "auto"
        seconds = _optional(partial(number_option, least=0.0, most=np.inf))
        return cls(
            n_utilities=whole_number("n_utilities", params["n_utilities"], 1),
            method=method,
            kernel=kernel_named("rbf" if any_kernel else kernel),
            any_kernel=any_kernel,
            object_effects=flag_option("object_effects", params["object_effects"]),
            lapse=rate,
            learn_lapse=learn,
            standardize=flag_option("standardize", params["standardize"]),
            hyperpriors=hyperpriors_option(params["hyperpriors"]),
            learn_hyperparameters=flag_option("learn_hyperparameters", params["learn_hyperparameters"]),
            n_restarts=_optional(_count)("n_restarts", params["n_restarts"]),
            max_seconds=seconds("max_seconds", params["max_seconds"]),
            tol=number_option("tol", params["tol"], 0.0, np.inf),
            n_jobs=jobs_option(params["n_jobs"]),
            progress=params["progress"],
            random_state=seed_option(params["random_state"]),
            drawn_seed=params["random_state"] is None,
        )

    @property
    def inference(self) -> str:
        """The name of the inference."""
        return self.method.name

    @property
    def first_lapse(self) -> float | None:
        """Lapse rate, or where it starts when it is learned; None where nobody lapses."""
        return self.lapse if self.learn_lapse or self.lapse > 0 else None

    def decided(self, data: ChoiceData | ChoiceFolder) -> "FitOptions":
        """Fill in the inference, where it depends on the data."""
        method = self.method
        if isinstance(data, ChoiceFolder) and not isinstance(method, Auto | Sparse):
            raise ChoiceGPError(
                f"a ChoiceFolder is fitted by inference='sparse', not {method.name!r}: leave it at 'auto', "
                "or fit a sample of the sets (folder.sample)"
            )
        if isinstance(method, Auto):
            few = isinstance(data, ChoiceData) and (self.object_effects or _n_different(data) <= AUTO_DENSE)
            method = method.decided(few)
        return self._replace(method=method)

    def n_starts(self, n_objects: int) -> int:
        """Return how many starts are tried for that number of shown objects."""
        if self.n_restarts is not None:
            return self.n_restarts
        if n_objects > _FEW_OBJECTS:
            return _STARTS
        return _MOST_STARTS if self.n_utilities >= 3 and self.method.begins_dense else MORE_STARTS


def _n_different(data: ChoiceData) -> int:
    """Count the shown objects that differ in their features, as far as it takes to choose the inference."""
    shown = np.unique(data.flat_shown)
    return len(shown) if len(shown) <= AUTO_DENSE else len(np.unique(data.X[shown], axis=0))


def method_option(params: dict[str, Any]) -> Method:
    """Return the record of an inference: the given one, or the one that its name and the keywords mean."""
    value = params["inference"]
    given = {name: params.get(name, unset) for name, unset in _KEYWORDS.items()}
    given = {name: option for name, option in given.items() if option is not _KEYWORDS[name]}
    if isinstance(value, Method):
        if given:
            name, kind = next(iter(given)), type(value).__name__
            options = ", ".join(f"{option}=..." for option in value.option_names())
            raise ChoiceGPError(f"{name} is given beside inference={kind}(...): give it there, as {kind}({options})")
        return checked_method(value)
    if not isinstance(value, str) or value not in METHODS:
        raise ChoiceGPError(f"inference must be one of {', '.join(METHODS)}; got {value!r}")
    method = METHODS[value]
    named: dict[str, Any] = {}
    for name, option in given.items():
        own = "n_draws" if name == "max_iter" and value == "mcmc" else name
        if own not in method.option_names():
            if _METHOD_CHECKS[name](name, option) is False:  # as it is by default
                continue
            raise ChoiceGPError(f"{name} belongs to inference='sparse': leave it at {_KEYWORDS[name]}")
        named[own] = _METHOD_CHECKS[name](name, option)
    return replace(method, **named)


def checked_method(method: Method) -> Method:
    """Check every option of an inference's record."""
    own = {name: getattr(method, name) for name in method.option_names()}
    maybe = isinstance(method, Paper | Auto) and own["max_iter"] is None
    checked = {
        name: _METHOD_CHECKS[name](name, value) for name, value in own.items() if not (maybe and name == "max_iter")
    }
    return replace(method, **checked)


def seed_option(value: Any) -> int:
    """Check a seed; None draws one."""
    return secrets.randbelow(2**31) if value is None else whole_number("random_state", value, 0)


def hyperpriors_option(value: Any) -> HyperPriors | None:
    """Check hyperpriors: pairs of a mean and a standard deviation."""
    if value is None:
        return None
    if not isinstance(value, HyperPriors):
        raise ChoiceGPError(f"hyperpriors must be a HyperPriors or None; got {value!r}")
    pairs: dict[str, tuple[float, float]] = {}
    for name, pair in value._asdict().items():
        try:
            mean, sd = (float(number) for number in pair)
        except (TypeError, ValueError):
            mean, sd = np.nan, np.nan
        if not (np.isfinite(mean) and 0.0 < sd < np.inf):
            raise ChoiceGPError(f"hyperpriors: {name} must be a mean and a standard deviation above 0; got {pair!r}")
        pairs[name] = (mean, sd)
    return HyperPriors(**pairs)

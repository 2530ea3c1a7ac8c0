"""The options of a fit: each is declared and checked once, and the first wrong one is a clear error.

Here are also the inferences by name: which options each one has, how many steps it makes, and what a step is.
``ChoiceGP(inference=...)`` takes a name or one of the records below; a name means its record with default values.
"""

from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from choicegp.checks import flag_option, jobs_option, number_option, seed, whole_number
from choicegp.data.choices import ChoiceData
from choicegp.data.folder import ChoiceFolder
from choicegp.errors import ChoiceGPError
from choicegp.model.error_models import DISCERNIBILITY, ErrorModel
from choicegp.model.kernels import Kernel, kernel_named
from choicegp.model.prior import HyperPriors

if TYPE_CHECKING:
    from choicegp.inference.driver import Inference, Inferred, Task

AUTO_DENSE = 1500
"""Shown objects up to which "auto" means dense inference: then it takes about as long as a sparse one."""
_STARTS, MORE_STARTS, _FEW_OBJECTS = 3, 9, 160  # where a start costs little, more are tried
# From three utilities on there are many more optima: on 200 sets of ten of 100 objects, nine starts of dense inference
# ended up to 42 nats below the best of six seeds, sixteen at most 11, and took a fifth more time.
_MOST_STARTS = 16
_FIRST_LAPSE = 0.05
_count = partial(whole_number, least=1)
_CHECKS: dict[str, Any] = {
    "max_iter": _count, "n_draws": _count, "n_inducing": _count, "batch_size": _count, "learn_inducing": flag_option,
    "converged": flag_option, "n_warm_up": partial(whole_number, least=0),
    "target_acceptance": partial(number_option, least=0.01, most=0.99),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Method:
    """An inference and its options."""

    step: ClassVar[str]
    """What one step is."""
    begins_dense: ClassVar[bool] = False
    """Whether it is, or begins with, a dense fit: then ``init=`` is possible."""

    @property
    def name(self) -> str:
        """The name by which ``inference=`` knows it."""
        return type(self).__name__.lower()

    @property
    def n_steps(self) -> int:
        """Maximum number of steps."""
        return self.max_iter  # type: ignore[attr-defined]

    @property
    def n_shown(self) -> int:
        """Number of steps that a progress bar counts."""
        return self.n_steps

    def inference(self, task: "Task", before: "Inferred | None") -> "Inference":
        """Make the inference at the shown objects, after a dense one where it begins with that."""
        raise ChoiceGPError(f"inference={self.name!r} does not work at the shown objects")

    @classmethod
    def option_names(cls) -> tuple[str, ...]:
        """Return the names of the options."""
        return tuple(field.name for field in fields(cls))

    def validated(self) -> Self:
        """Check every option; None passes where it is the default."""
        own = {field.name: (getattr(self, field.name), field.default) for field in fields(self)}
        return replace(self, **{
            name: None if value is default is None else _CHECKS[name](name, value)
            for name, (value, default) in own.items()
        })  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Return what JSON holds."""
        return {"inference": type(self).__name__, **asdict(self)}

    @staticmethod
    def from_json(spec: dict[str, Any]) -> "Method":
        """Make the record that `to_json` wrote."""
        kinds = {type(method).__name__: type(method) for method in METHODS.values()}
        return kinds[spec["inference"]](**{name: value for name, value in spec.items() if name != "inference"})


@dataclass(frozen=True, kw_only=True)
class Auto(Method):
    """Dense inference for few different objects, sparse inference for many; it has the options of both."""

    step: ClassVar[str] = "as with the inference that is chosen"
    n_inducing: int | None = None
    batch_size: int | None = None
    learn_inducing: bool = False
    max_iter: int | None = None

    def decided(self, few: bool) -> "Dense | Sparse":
        """Return the record of the inference that is chosen; the options of the other are left out."""
        if few:
            return Dense() if self.max_iter is None else Dense(max_iter=self.max_iter)
        own = asdict(self)
        return Sparse(**{name: value for name, value in own.items() if name != "max_iter" or value is not None})


@dataclass(frozen=True, kw_only=True)
class Dense(Method):
    """Block sites by natural gradient, exact for up to a few thousand shown objects.

    Parameters
    ----------
    max_iter : int
        Maximum number of steps.

    Examples
    --------
    >>> from choicegp import ChoiceGP, Dense
    >>> ChoiceGP(inference=Dense(max_iter=100))
    ChoiceGP(inference=Dense(max_iter=100))
    """

    step: ClassVar[str] = "one update of all sites and of the hyperparameters"
    begins_dense: ClassVar[bool] = True
    max_iter: int = 300


@dataclass(frozen=True, kw_only=True)
class Sparse(Method):
    """Dense inference's steps at inducing points and by mini-batches, for any number of objects and sets.

    Parameters
    ----------
    n_inducing : int, optional
        Inducing points for each utility; by default 256 on a CPU, 1024 on an accelerator.
    batch_size : int, optional
        Sets in a step; by default 256 on a CPU, 512 on an accelerator.
    learn_inducing : bool
        Whether the inducing points are moved; they stay well spread objects otherwise.
    max_iter : int
        Maximum number of steps.
    """

    step: ClassVar[str] = "one update from a mini-batch of sets"
    n_inducing: int | None = None
    batch_size: int | None = None
    learn_inducing: bool = False
    max_iter: int = 2000


@dataclass(frozen=True, kw_only=True)
class Paper(Method):
    """The approximation of the paper's authors.

    Parameters
    ----------
    converged : bool
        Whether the same family of posteriors is taken to its optimum by L-BFGS, instead of the authors' Adam.
    max_iter : int, optional
        Maximum number of steps; by default the authors' 5000, or 1000 iterations of L-BFGS.
    """

    step: ClassVar[str] = "one step of Adam on a Monte Carlo bound; converged: one iteration of L-BFGS"
    converged: bool = False
    max_iter: int | None = None

    @property
    def name(self) -> str:
        """The name by which ``inference=`` knows it."""
        return "paper-converged" if self.converged else "paper"

    @property
    def n_steps(self) -> int:
        """Maximum number of steps."""
        return self.max_iter or (1000 if self.converged else 5000)

    def inference(self, task: "Task", before: "Inferred | None") -> "Inference":
        """Make the inference."""
        from choicegp.inference import paper

        return paper.ConvergedPaperInference(task) if self.converged else paper.PaperInference(task)


@dataclass(frozen=True, kw_only=True)
class MCMC(Method):
    """Draws from the exact posterior by the no-U-turn sampler, at the hyperparameters of a dense fit.

    Parameters
    ----------
    n_draws : int
        Draws of each of four chains that are kept; fewer where ``max_seconds`` ends the fit.
    n_warm_up : int
        Draws of each chain before those, by which step size and scales are adapted.
    target_acceptance : float
        Acceptance rate at which the adaptation aims.
    """

    step: ClassVar[str] = "one kept draw of each of four chains, after a dense fit of its own 300 steps"
    begins_dense: ClassVar[bool] = True
    n_draws: int = 1000
    n_warm_up: int = 300
    target_acceptance: float = 0.8

    @property
    def n_steps(self) -> int:
        """Number of kept draws of each chain."""
        return self.n_draws

    @property
    def n_shown(self) -> int:
        """Number of steps that a progress bar counts: the warm-up and the kept draws."""
        return self.n_warm_up + self.n_draws

    def inference(self, task: "Task", before: "Inferred | None") -> "Inference":
        """Make the inference, after a dense one."""
        from choicegp.inference.mcmc import MCMCInference

        assert before is not None
        return MCMCInference(task, before, self.n_warm_up, self.target_acceptance)


METHODS: dict[str, Method] = {
    method.name: method
    for method in (Auto(), Dense(), Sparse(), Paper(), Paper(converged=True), MCMC())
}  # fmt: skip
"""Every name that ``inference=`` knows, with the record that it means."""


class FitOptions(NamedTuple):
    """The validated options of a fit."""

    n_utilities: int
    method: Method
    kernel: Kernel
    any_kernel: bool
    shared_part: bool
    intervals: bool
    object_effects: bool | None  # None: the fit decides
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
            raise ChoiceGPError(
                "lapse='learn' works with inference='dense', 'sparse' or 'mcmc': give a number with the "
                "paper's approximation"
            )
        any_kernel = isinstance(kernel, str) and kernel == "auto"
        restarts, seconds = params["n_restarts"], params["max_seconds"]
        return cls(
            n_utilities=whole_number("n_utilities", params["n_utilities"], 1),
            method=method,
            kernel=kernel_named("rbf" if any_kernel else kernel),
            any_kernel=any_kernel,
            shared_part=flag_option("shared_part", params.get("shared_part", False)),
            intervals=_intervals_option(params.get("intervals", "none")),
            object_effects=_effects_option(params["object_effects"]),
            lapse=rate,
            learn_lapse=learn,
            standardize=flag_option("standardize", params["standardize"]),
            hyperpriors=hyperpriors_option(params["hyperpriors"]),
            learn_hyperparameters=flag_option("learn_hyperparameters", params["learn_hyperparameters"]),
            n_restarts=None if restarts is None else _count("n_restarts", restarts),
            max_seconds=None if seconds is None else number_option("max_seconds", seconds, 0.0, np.inf),
            tol=number_option("tol", params["tol"], 0.0, np.inf),
            n_jobs=jobs_option(params["n_jobs"]),
            progress=params["progress"],
            random_state=seed(params["random_state"]),
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
            few = isinstance(data, ChoiceData) and (bool(self.object_effects) or _n_different(data) <= AUTO_DENSE)
            method = method.decided(few)
            self = self._replace(intervals=self.intervals and few)
        else:
            self = self._replace(intervals=False)
        effects = self.object_effects
        if effects is None and not (method.begins_dense and self.learn_hyperparameters):
            effects = False
        return self._replace(method=method, object_effects=effects)

    def as_in(self, has_effects: bool) -> "FitOptions":
        """Return the options with object effects as in another fit, where they are left open."""
        return self._replace(object_effects=has_effects if self.object_effects is None else self.object_effects)

    @property
    def dense(self) -> "Method":
        """The dense inference with which this one begins."""
        return self.method if isinstance(self.method, Dense) else Dense()

    @property
    def plain(self) -> "FitOptions":
        """The options of a first fit: dense, without object effects and intervals."""
        return self._replace(object_effects=False, intervals=False, method=self.dense)

    def hyperpriors_for(self, n_features: int) -> HyperPriors | None:
        """Return the hyperpriors for that number of features."""
        return None if self.hyperpriors is None else self.hyperpriors.for_features(max(1, n_features))

    @property
    def has_shared_part(self) -> bool:
        """Whether the utilities of this fit have a shared part: one utility has nobody to share with."""
        return self.shared_part and self.n_utilities > 1 and self.method.begins_dense

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
    value, learn = params["inference"], flag_option("learn_inducing", params["learn_inducing"])
    given = {name: params[name] for name in ("max_iter", "n_inducing", "batch_size")} | {
        "learn_inducing": learn or None
    }
    given = {name: _CHECKS[name](name, option) for name, option in given.items() if option is not None}
    if isinstance(value, Method):
        if given:
            name, kind = next(iter(given)), type(value).__name__
            options = ", ".join(f"{option}=..." for option in value.option_names())
            raise ChoiceGPError(f"{name} is given beside inference={kind}(...): give it there, as {kind}({options})")
        return value.validated()
    if not isinstance(value, str) or value not in METHODS:
        removed = ". It was removed; use 'mcmc'" if isinstance(value, str) and value == "joint" else ""
        raise ChoiceGPError(f"inference must be one of {', '.join(METHODS)}; got {value!r}{removed}")
    method = METHODS[value]
    if isinstance(method, MCMC) and "max_iter" in given:
        given["n_draws"] = given.pop("max_iter")
    for name in given:
        if name not in method.option_names():
            raise ChoiceGPError(
                f"{name} belongs to inference='sparse': leave it at {'False' if given[name] is True else None}"
            )
    return replace(method, **given)


def _effects_option(value: Any) -> bool | None:
    if isinstance(value, str):
        if value != "auto":
            raise ChoiceGPError(f"object_effects must be True, False or 'auto'; got {value!r}")
        return None
    return flag_option("object_effects", value)


def _intervals_option(value: Any) -> bool:
    if not isinstance(value, str) or value not in ("auto", "none"):
        raise ChoiceGPError(f"intervals must be 'auto' or 'none'; got {value!r}")
    return value == "auto"


def hyperpriors_option(value: Any) -> HyperPriors | None:
    """Check hyperpriors: pairs of a mean and a standard deviation."""
    if value is None:
        return None
    if not isinstance(value, HyperPriors):
        raise ChoiceGPError(f"hyperpriors must be a HyperPriors or None; got {value!r}")
    for name, pair in value._asdict().items():
        try:
            mean, sd = map(float, pair)
        except (TypeError, ValueError):
            mean, sd = np.nan, np.nan
        if not (np.isfinite(mean) and 0.0 < sd < np.inf):
            raise ChoiceGPError(f"hyperpriors: {name} must be a mean and a standard deviation above 0; got {pair!r}")
    return HyperPriors(*((float(mean), float(sd)) for mean, sd in value))

"""The inferences by name: which options each one has, how many steps it makes, and what a step is.

``ChoiceGP(inference=...)`` takes a name or one of the records below; a name means its record with default values.
"""

from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

from choicegp.checks import flag_option, number_option, whole_number
from choicegp.errors import ChoiceGPError

if TYPE_CHECKING:
    from choicegp.inference.driver import Inference, Inferred, Task

_count = partial(whole_number, least=1)
_CHECKS: dict[str, Any] = {
    "max_iter": _count, "n_draws": _count, "n_inducing": _count, "batch_size": _count, "learn_inducing": flag_option,
    "network": flag_option, "grow": flag_option,
    "converged": flag_option, "n_warm_up": partial(whole_number, least=0),
    "target_acceptance": partial(number_option, least=0.01, most=0.99),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Method:
    """An inference and its options; the base class of all, and of inferences of one's own.

    A subclass is a frozen dataclass whose fields are its options.  It says in ``step`` what one step is, has
    ``max_iter`` or ``n_steps``, and makes the inference in `inference`.

    Examples
    --------
    >>> from choicegp import Dense
    >>> Dense(max_iter=50).name, Dense(max_iter=50).n_steps, Dense.option_names()
    ('dense', 50, ('max_iter',))
    """

    step: ClassVar[str]
    """What one step is."""
    begins_dense: ClassVar[bool] = False
    """Whether it is, or begins with, a dense fit: then ``init=`` is possible."""

    @property
    def name(self) -> str:
        """The name by which ``inference=`` knows it."""
        return type(self).__name__.lower()

    @property
    def is_built_in(self) -> bool:
        """Whether it is an inference of choicegp, which a model file can name."""
        return any(type(self) is type(method) for method in METHODS.values())

    @property
    def n_steps(self) -> int:
        """Maximum number of steps."""
        return self.max_iter  # type: ignore[attr-defined]

    @property
    def n_shown(self) -> int:
        """Number of steps that a progress bar counts."""
        return self.n_steps

    def inference(self, task: "Task", before: "Inferred | None") -> "Inference":
        """Make the inference at the shown objects.

        Parameters
        ----------
        task : Task
        before : Inferred or None
            The result of a dense fit, where the inference begins with one.

        Returns
        -------
        Inference
            An object with ``begin``, ``step``, ``verdict`` and ``conclude``.
        """
        raise ChoiceGPError(f"inference={self.name!r} does not work at the shown objects")

    @classmethod
    def option_names(cls) -> tuple[str, ...]:
        """Return the names of the options."""
        return tuple(field.name for field in fields(cls))

    def validated(self) -> Self:
        """Return the record with every option checked; None passes where it is the default."""
        own = {field.name: (getattr(self, field.name), field.default) for field in fields(self)}
        return replace(self, **{
            name: None if value is default is None else _CHECKS[name](name, value)
            for name, (value, default) in own.items() if name in _CHECKS  # a user's method checks its own options
        })  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Return what JSON holds."""
        return {"inference": type(self).__name__, **asdict(self)}

    @staticmethod
    def from_json(spec: dict[str, Any]) -> "Method":
        """Return the record of ``spec``, which `to_json` wrote."""
        kinds = {type(method).__name__: type(method) for method in METHODS.values()}
        return kinds[spec["inference"]](**{name: value for name, value in spec.items() if name != "inference"})


@dataclass(frozen=True, kw_only=True)
class Auto(Method):
    """Dense inference for few different objects, sparse inference for many; it has the options of both."""

    step: ClassVar[str] = "as with the inference that is chosen"
    n_inducing: int | None = None
    batch_size: int | None = None
    learn_inducing: bool = False
    network: bool = True
    grow: bool = False
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
    network : bool
        Whether ``kernel="auto"`` may see the outputs of a network that is trained first; from 4000
        training sets on.
    grow : bool
        Whether the fit is repeated with twice as many inducing points, and again, while that makes the choices from the
        held-out sets clearly more probable. Where these cannot judge it, a note says why it is not.
    max_iter : int
        Maximum number of steps.

    Examples
    --------
    >>> from choicegp import ChoiceGP, Sparse
    >>> model = ChoiceGP(inference=Sparse(n_inducing=512, grow=True))
    >>> model.inference.n_inducing, model.inference.network
    (512, True)
    """

    step: ClassVar[str] = "one update from a mini-batch of sets"
    n_inducing: int | None = None
    batch_size: int | None = None
    learn_inducing: bool = False
    network: bool = True
    grow: bool = False
    max_iter: int = 4000


@dataclass(frozen=True, kw_only=True)
class Paper(Method):
    """The approximation of the paper's authors.

    Parameters
    ----------
    converged : bool
        Whether the same family of posteriors is taken to its optimum by L-BFGS, instead of the authors' Adam.
    max_iter : int, optional
        Maximum number of steps; by default the authors' 5000, or 1000 iterations of L-BFGS.

    Examples
    --------
    >>> from choicegp import ChoiceGP, Paper
    >>> ChoiceGP(inference=Paper(converged=True))
    ChoiceGP(inference=Paper(converged=True, max_iter=None))
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
        """Return the inference of a ``task``; nothing comes ``before`` it."""
        from choicegp.inference import paper

        return paper.ConvergedPaperInference(task) if self.converged else paper.PaperInference(task)


@dataclass(frozen=True, kw_only=True)
class MCMC(Method):
    """Draws of utilities and hyperparameters from their exact posterior, by chains that start around a dense fit.

    Parameters
    ----------
    n_draws : int
        Draws of each of four chains, in whole blocks of 16; fewer where ``max_seconds`` ends the fit.  All of them are
        judged.  Predictions use 32 of them, evenly spaced, and from each 16 further draws of the utilities, its
        hyperparameters held.  Beyond about 340 objects with two utilities, hyperparameters are drawn from a Gaussian
        approximation, and a learned lapse rate is always held at its best value.
    n_warm_up : int
        Draws of each chain before those, by which step size and scales are adapted.
    target_acceptance : float
        Acceptance rate at which the adaptation aims.

    Examples
    --------
    >>> from choicegp import MCMC, ChoiceGP
    >>> ChoiceGP(inference=MCMC(n_draws=4000))
    ChoiceGP(inference=MCMC(n_draws=4000, n_warm_up=300, target_acceptance=0.8))
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
        """Return the inference of a ``task``, after a dense one, ``before``."""
        from choicegp.inference.mcmc import MCMCInference

        assert before is not None
        return MCMCInference(task, before, self.n_warm_up, self.target_acceptance)


METHODS: dict[str, Method] = {
    method.name: method
    for method in (Auto(), Dense(), Sparse(), Paper(), Paper(converged=True), MCMC())
}  # fmt: skip
"""Every name that ``inference=`` knows, with the record that it means."""


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

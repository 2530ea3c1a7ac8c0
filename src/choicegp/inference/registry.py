"""The inferences by name: which options each one has, how many steps it makes, and what a step is.

``ChoiceGP(inference=...)`` takes a name or one of the records below; a name means its record with default values.
"""

from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar


@dataclass(frozen=True, kw_only=True)
class Method:
    """An inference and its options."""

    step: ClassVar[str]
    """What one step is."""
    begins_dense: ClassVar[bool] = False
    """Whether it is, or begins with, a dense fit: then the lapse rate can be learned and ``init=`` is possible."""

    @property
    def name(self) -> str:
        """The name by which ``inference=`` knows it."""
        return type(self).__name__.lower()

    @property
    def n_steps(self) -> int:
        """Maximum number of steps."""
        return self.max_iter  # type: ignore[attr-defined]

    @classmethod
    def option_names(cls) -> tuple[str, ...]:
        """Return the names of the options."""
        return tuple(field.name for field in fields(cls))

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
    """Dense inference for few different objects, sparse inference for many; options are those of both."""

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


@dataclass(frozen=True, kw_only=True)
class Joint(Method):
    """A dense fit, and then correlations between utilities, whose intervals have the right width (small problems).

    Parameters
    ----------
    max_iter : int
        Maximum number of steps after the dense fit.
    """

    step: ClassVar[str] = "one update of all sites by moment matching, after a dense fit of its own 300 steps"
    begins_dense: ClassVar[bool] = True
    max_iter: int = 200


@dataclass(frozen=True, kw_only=True)
class MCMC(Method):
    """Draws from the exact posterior by the no-U-turn sampler, at the hyperparameters of a dense fit.

    Parameters
    ----------
    n_draws : int
        Draws of each of four chains that are kept.
    n_warm_up : int
        Draws of each chain before those, by which step size and scales are adapted.
    target_acceptance : float
        Acceptance rate at which the adaptation aims.
    """

    step: ClassVar[str] = "one kept draw of each of four chains, after a dense fit of its own 300 steps"
    begins_dense: ClassVar[bool] = True
    n_draws: int = 1000
    n_warm_up: int = 400
    target_acceptance: float = 0.8

    @property
    def n_steps(self) -> int:
        """Number of kept draws of each chain."""
        return self.n_draws


METHODS: dict[str, Method] = {
    method.name: method
    for method in (Auto(), Dense(), Sparse(), Paper(), Paper(converged=True), Joint(), MCMC())
}  # fmt: skip
"""Every name that ``inference=`` knows, with the record that it means."""

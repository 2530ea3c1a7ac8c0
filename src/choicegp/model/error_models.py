"""How a person errs: the one place where the likelihood of a set is chosen.

An error model has no parameters, and no arrays: it travels with the sets (`choicegp.inference.problem.SetBatch`) as
part of the structure of a compiled program's arguments, so that a program knows its likelihood when it is compiled.
"""

from abc import abstractmethod
from typing import ClassVar

import equinox as eqx
from jax import Array
from jaxtyping import Float

from choicegp.model import batch_preference, best_in_one, best_object, derivatives, likelihood, threshold
from choicegp.model.derivatives import ExpectedDerivatives
from choicegp.model.shapes import AnyArray, Lapse, Masks, MasksOfSets, OfBatch, Samples


class ErrorModel(eqx.Module):
    """The likelihood of a set's choice, in the forms in which it is needed.

    Attributes
    ----------
    name : str
    n_nodes : int
        How often each difference of utilities is evaluated; it decides how many sets are processed at a time.
    pair_variance : float
        Variance, in units of sigma², of the error with which two objects are compared.
    """

    name: ClassVar[str]
    n_nodes: ClassVar[int]
    pair_variance: ClassVar[float]

    @property
    def has_threshold(self) -> bool:
        """Whether every set has one more object that is never seen, see `choicegp.model.threshold`."""
        return False

    def with_threshold(self) -> "ErrorModel":
        """Return the same with a threshold."""
        raise ValueError(f"errors of the kind {self.name} have no threshold")

    def of_kind(self, kind: str) -> "ErrorModel":
        """Return how people with the same utilities answer questions of a kind: "keep", "best" or "worst"."""
        return Mirrored(self) if kind == "worst" else self

    def check_size(self, a: int) -> None:
        """Refuse a set of this size where its answers can neither be enumerated nor drawn."""

    def answers(self, u: OfBatch) -> Float[Array, "answers *batch"]:
        """Return p(C | A, u) of every subset C of the visible objects, up to a factor; the threshold comes last."""
        raise ValueError(f"errors of the kind {self.name} are for answers of one object")

    @abstractmethod
    def log_likelihood(self, u: OfBatch, present: Masks, chosen: Masks, lapse: Lapse = None) -> Float[Array, "*batch"]:
        """Return log p(C | A, u), (...), at utilities (d, a, ...); can be differentiated."""

    def sampled(
        self, u: Samples, present: MasksOfSets, chosen: MasksOfSets, lapse: Lapse = None
    ) -> Float[Array, "m S"]:
        """Return log p(C | A, u), (m, S), at utilities (d, a, m, S) of sets whose chosen objects come first.

        The threshold, if there is one, comes next.
        """
        return self.log_likelihood(u, present, chosen, lapse)

    @abstractmethod
    def expected_derivatives(
        self, u: Samples, present: MasksOfSets, chosen: MasksOfSets, lapse: Lapse = None
    ) -> ExpectedDerivatives:
        """Average value, gradient and negative Hessian of log p over samples, (d, a, m, S), chosen objects first."""


class Discernibility(ErrorModel):
    """A limit of discernibility, eq:likelihoodexpanse0: errors are more likely the closer two objects are.

    With one utility the probabilities of the single objects of a set are divided by their sum, see
    `choicegp.model.likelihood`.
    """

    name: ClassVar[str] = "discernibility"
    n_nodes: ClassVar[int] = 1
    pair_variance: ClassVar[float] = 1.0
    answers = staticmethod(likelihood.subset_probabilities)
    log_likelihood = staticmethod(likelihood.log_likelihood)
    sampled = staticmethod(derivatives.sampled_log_likelihood)
    expected_derivatives = staticmethod(derivatives.expected_derivatives)

    def with_threshold(self) -> ErrorModel:
        """Return the same with a threshold."""
        return WithThreshold()

    def of_kind(self, kind: str) -> ErrorModel:
        """Return the errors of questions of a kind."""
        return self if kind == "keep" else BestObject().of_kind(kind)


class GaussianNoise(ErrorModel):
    """Gaussian noise on the utility of every object, eq:likelihoodbatch: one utility, one best object of each set."""

    name: ClassVar[str] = "gaussian"
    n_nodes: ClassVar[int] = batch_preference.N_NODES
    pair_variance: ClassVar[float] = 2.0

    def log_likelihood(self, u: OfBatch, present: Masks, chosen: Masks, lapse: Lapse = None) -> Float[Array, "*batch"]:
        """Return log p(o | A, u) of the chosen object o."""
        _check_no_lapse(lapse)
        return batch_preference.log_best(u, present, chosen)

    def sampled(
        self, u: Samples, present: MasksOfSets, chosen: MasksOfSets, lapse: Lapse = None
    ) -> Float[Array, "m S"]:
        """Return log p(o | A, u) for many samples."""
        return self.log_likelihood(u, present[..., None], chosen[..., None], lapse)

    def expected_derivatives(
        self, u: Samples, present: MasksOfSets, chosen: MasksOfSets, lapse: Lapse = None
    ) -> ExpectedDerivatives:
        """Average value, gradient and negative Hessian of log p over samples."""
        _check_no_lapse(lapse)
        return batch_preference.expected_best_derivatives(u, present, chosen)


def _check_no_lapse(lapse: Lapse) -> None:
    # A lapse is a random subset, and here only single objects are chosen.
    if lapse is not None:
        raise ValueError("a lapse rate is not part of the Gaussian noise model")


class WithThreshold(ErrorModel):
    """A limit of discernibility, with a threshold in every set."""

    name: ClassVar[str] = "discernibility with a threshold"
    n_nodes: ClassVar[int] = 1
    pair_variance: ClassVar[float] = 1.0
    answers = staticmethod(threshold.answer_probabilities_with_threshold)
    log_likelihood = staticmethod(threshold.log_likelihood_with_threshold)
    sampled = staticmethod(threshold.sampled_with_threshold)
    expected_derivatives = staticmethod(threshold.expected_derivatives_with_threshold)

    @property
    def has_threshold(self) -> bool:
        """Whether every set has a threshold."""
        return True

    def with_threshold(self) -> ErrorModel:
        """Return the same: it has one."""
        return self

    def of_kind(self, kind: str) -> ErrorModel:
        """Return the errors of questions of a kind."""
        return self if kind == "keep" else BestObject().of_kind(kind)


class BestInOne(ErrorModel):
    """The rule that keeps what is best in at least one utility, see `choicegp.model.best_in_one`."""

    threshold: bool = eqx.field(static=True, default=False)
    n_nodes: ClassVar[int] = 2
    pair_variance: ClassVar[float] = 1.0

    @property
    def name(self) -> str:  # type: ignore[override]  # two models in one class
        """The name of the rule."""
        return "best-in-one with a threshold" if self.threshold else "best-in-one"

    @property
    def has_threshold(self) -> bool:
        """Whether every set has a threshold."""
        return self.threshold

    def with_threshold(self) -> ErrorModel:
        """Return the same with a threshold."""
        return BestInOne(threshold=True)

    def of_kind(self, kind: str) -> ErrorModel:
        """Return the errors of questions of a kind."""
        return self if kind == "keep" else BestOfOne().of_kind(kind)

    def answers(self, u: OfBatch) -> Float[Array, "answers *batch"]:
        """Return the probabilities of all answers."""
        return best_in_one.answer_probabilities(u, threshold=self.threshold)

    def log_likelihood(self, u: OfBatch, present: Masks, chosen: Masks, lapse: Lapse = None) -> Float[Array, "*batch"]:
        """Return log p(C | A, u); the chosen objects come first."""
        return best_in_one.log_best_in_one(u, *_trailing(u, present, chosen), lapse, threshold=self.threshold)

    def expected_derivatives(
        self, u: Samples, present: MasksOfSets, chosen: MasksOfSets, lapse: Lapse = None
    ) -> ExpectedDerivatives:
        """Average value, gradient and negative Hessian of log p over samples."""
        return best_in_one.expected_best_in_one_derivatives(u, present, chosen, lapse, threshold=self.threshold)


class BestObject(ErrorModel):
    """One best object of a set, which nothing dominates, see `choicegp.model.best_object`."""

    name: ClassVar[str] = "best object"
    n_nodes: ClassVar[int] = 2
    pair_variance: ClassVar[float] = 1.0
    expected_derivatives = staticmethod(best_object.expected_best_object_derivatives)

    def log_likelihood(self, u: OfBatch, present: Masks, chosen: Masks, lapse: Lapse = None) -> Float[Array, "*batch"]:
        """Return log p(o | A, u) of the chosen object o."""
        return best_object.log_best_object(u, *_trailing(u, present, chosen), lapse)


class BestOfOne(ErrorModel):
    """One best object of a set, the winner of a utility that is picked at random."""

    name: ClassVar[str] = "best of one utility"
    n_nodes: ClassVar[int] = 2
    pair_variance: ClassVar[float] = 1.0
    expected_derivatives = staticmethod(best_in_one.expected_best_of_one_derivatives)

    def log_likelihood(self, u: OfBatch, present: Masks, chosen: Masks, lapse: Lapse = None) -> Float[Array, "*batch"]:
        """Return log p(o | A, u) of the chosen object o."""
        return best_in_one.log_best_of_one(u, *_trailing(u, present, chosen), lapse)


class Mirrored(ErrorModel):
    """The worst object of a set: the best one, were all utilities of the opposite sign."""

    best: ErrorModel
    pair_variance: ClassVar[float] = 1.0

    @property
    def name(self) -> str:  # type: ignore[override]  # there is one for each model of the best
        """The name of the model."""
        return f"worst by {self.best.name}"

    @property
    def n_nodes(self) -> int:  # type: ignore[override]  # as of the best
        """How often each difference of utilities is evaluated."""
        return self.best.n_nodes

    def log_likelihood(self, u: OfBatch, present: Masks, chosen: Masks, lapse: Lapse = None) -> Float[Array, "*batch"]:
        """Return log p(o | A, u) of the chosen object o, the worst one."""
        return self.best.log_likelihood(-u, present, chosen, lapse)

    def sampled(
        self, u: Samples, present: MasksOfSets, chosen: MasksOfSets, lapse: Lapse = None
    ) -> Float[Array, "m S"]:
        """Return log p(o | A, u) for many samples."""
        return self.best.sampled(-u, present, chosen, lapse)

    def expected_derivatives(
        self, u: Samples, present: MasksOfSets, chosen: MasksOfSets, lapse: Lapse = None
    ) -> ExpectedDerivatives:
        """Average value, gradient and negative Hessian of log p over samples."""
        found = self.best.expected_derivatives(-u, present, chosen, lapse)
        return found._replace(gradient=-found.gradient)


def _trailing(u: AnyArray, *masks: Masks) -> tuple[Masks, Masks]:
    """Append axes to two masks until they broadcast against the batch of ``u``."""
    first, second = (mask.reshape(mask.shape + (1,) * (u.ndim - 1 - mask.ndim)) for mask in masks)
    return first, second


DISCERNIBILITY = Discernibility()
ERROR_MODELS: dict[str, ErrorModel] = {errors.name: errors for errors in (GaussianNoise(), DISCERNIBILITY)}
"""How the best object of a set is found by one utility, by name."""
RULES: dict[str, ErrorModel] = {"pareto": DISCERNIBILITY, "best-in-one": BestInOne()}
"""Which objects of a set are kept, by the name of the rule."""
KEPT_BY: dict[str, ErrorModel] = {
    errors.name: errors for rule in RULES.values() for errors in (rule, rule.with_threshold())
}
"""Every model of the objects that are kept, by its name."""

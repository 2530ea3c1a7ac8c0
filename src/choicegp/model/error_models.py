"""How a person errs: the one place where the likelihood of a set is chosen.

An error model has no parameters, and no arrays: it travels with the sets (`choicegp.inference.problem.SetBatch`) as
part of the structure of a compiled program's arguments, so that a program knows its likelihood when it is compiled.
"""

from abc import abstractmethod
from typing import ClassVar

import equinox as eqx
from jax import Array
from jaxtyping import Bool, Float

from choicegp.model import batch_preference, derivatives, likelihood
from choicegp.model.derivatives import ExpectedDerivatives
from choicegp.model.shapes import AnyArray, Scalar

Samples = Float[AnyArray, "d a m S"]
Masks = Bool[AnyArray, "a ..."]
MasksOfSets = Bool[AnyArray, "a m"]
Lapse = Scalar | None


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

    @abstractmethod
    def log_likelihood(
        self, u: Float[AnyArray, "d a *batch"], present: Masks, chosen: Masks, lapse: Lapse = None
    ) -> Float[Array, "*batch"]:
        """Return log p(C | A, u), (...), at utilities (d, a, ...); can be differentiated."""

    @abstractmethod
    def sampled(
        self, u: Samples, present: MasksOfSets, chosen: MasksOfSets, lapse: Lapse = None
    ) -> Float[Array, "m S"]:
        """Return log p(C | A, u), (m, S), at utilities (d, a, m, S) of sets whose chosen objects come first."""

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

    def log_likelihood(
        self, u: Float[AnyArray, "d a *batch"], present: Masks, chosen: Masks, lapse: Lapse = None
    ) -> Float[Array, "*batch"]:
        """Return log p(C | A, u)."""
        return likelihood.log_likelihood(u, present, chosen, lapse=lapse)

    def sampled(
        self, u: Samples, present: MasksOfSets, chosen: MasksOfSets, lapse: Lapse = None
    ) -> Float[Array, "m S"]:
        """Return log p(C | A, u) for many samples, from probabilities, in a quarter of the time."""
        return derivatives.sampled_log_likelihood(u, present, chosen, lapse=lapse)

    def expected_derivatives(
        self, u: Samples, present: MasksOfSets, chosen: MasksOfSets, lapse: Lapse = None
    ) -> ExpectedDerivatives:
        """Average value, gradient and negative Hessian of log p over samples."""
        return derivatives.expected_derivatives(u, present, chosen, lapse=lapse)


class GaussianNoise(ErrorModel):
    """Gaussian noise on the utility of every object, eq:likelihoodbatch: one utility, one best object of each set."""

    name: ClassVar[str] = "gaussian"
    n_nodes: ClassVar[int] = batch_preference.N_NODES
    pair_variance: ClassVar[float] = 2.0

    def log_likelihood(
        self, u: Float[AnyArray, "d a *batch"], present: Masks, chosen: Masks, lapse: Lapse = None
    ) -> Float[Array, "*batch"]:
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


DISCERNIBILITY = Discernibility()
ERROR_MODELS: dict[str, ErrorModel] = {errors.name: errors for errors in (GaussianNoise(), DISCERNIBILITY)}

"""A likelihood of one's own: log p of one set is written down, and the rest follows by automatic differentiation."""

from abc import abstractmethod
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float

from choicegp.errors import ChoiceGPError
from choicegp.model.derivatives import ExpectedDerivatives
from choicegp.model.error_models import ErrorModel
from choicegp.model.likelihood import with_lapse
from choicegp.model.shapes import AnyArray, Lapse, Masks, MasksOfSets, OfBatch, Samples, Scalar

MOST_OBJECTS = 10
"""Objects of the largest set whose answers are enumerated; without a sampler of its own, no larger set is predicted."""


class Likelihood(ErrorModel):
    """How likely a choice is, given utilities: a subclass says it for one set in `log_prob`.

    An instance is given as ``ChoiceGP(rule=...)``, for dense inference and draws.  Gradients and Hessians come from
    JAX, so that a step takes several times as long as with a likelihood of choicegp.  Fields of a subclass must be
    static (``equinox.field(static=True)``): nothing of a likelihood is learned but the lapse rate.  Sets that are
    predicted have at most ten objects, because their answers are enumerated and divided by their sum; `recommend` and
    `dominance_proba` are about dominance in the utilities, whatever the likelihood is.  A model with a likelihood of
    one's own cannot be saved: a file contains no code.

    Attributes
    ----------
    name : str
        The name of the class.

    Examples
    --------
    Each object is kept if its utility is above the mean of the set, but for errors:

    >>> import jax.numpy as jnp
    >>> from jax.scipy.stats import norm
    >>> from choicegp import ChoiceGP
    >>> from choicegp.likelihoods import Likelihood
    >>> class AboveTheMean(Likelihood):
    ...     def log_prob(self, u, present, chosen):
    ...         above = u[0] - jnp.mean(u[0], where=present)
    ...         kept = norm.logcdf(jnp.where(chosen, above, -above))
    ...         return jnp.sum(jnp.where(present, kept, 0.0))
    >>> model = ChoiceGP(1, rule=AboveTheMean())
    >>> two = jnp.array([True, True])
    >>> round(float(AboveTheMean().log_prob(jnp.zeros((1, 2)), two, two)), 3)  # two coins
    -1.386
    """

    n_nodes: ClassVar[int] = 4
    pair_variance: ClassVar[float] = 1.0

    @property
    def name(self) -> str:  # type: ignore[override]  # the name of each subclass
        """The name of the class."""
        return type(self).__name__

    @abstractmethod
    def log_prob(
        self, u: Float[Array, "d a"], present: Bool[AnyArray, " a"], chosen: Bool[AnyArray, " a"]
    ) -> Float[Array, ""]:
        """Return log p(C | A, u) of one set; JAX must be able to differentiate it twice.

        Parameters
        ----------
        u : Array (d, a)
            Utilities of the objects, in units of the scale of errors.  Only differences between the objects of a set
            are known: a number that is added to a utility of all objects must change nothing.
        present, chosen : bool Array (a,)
            Which objects the set really has, the others are padding and must have no influence; and which are chosen.

        Returns
        -------
        Array ()
        """

    def of_kind(self, kind: str) -> ErrorModel:
        """Return itself for the ``kind`` "keep"; other questions than which objects are kept are refused."""
        if kind != "keep":
            raise ChoiceGPError(
                f"{self.name} says which objects are kept, and these sets ask for the {kind} object: leave them out "
                "with data.take, or use rule='pareto'"
            )
        return self

    def with_threshold(self) -> ErrorModel:
        """Return nothing: a threshold belongs to the rule, and is refused."""
        raise ChoiceGPError(
            f"{self.name} has no threshold, which empty answers need: leave these sets out (empty='skip'), or use "
            "rule='pareto'"
        )

    def check_differences(self, n_utilities: int) -> None:
        """Refuse a likelihood of the ``n_utilities`` themselves, which inference knows up to a number for each set."""
        u = np.random.default_rng(0).normal(size=(n_utilities, 2))
        here, kept = np.array([True, True]), np.array([True, False])
        one, other = (float(self.log_prob(jnp.asarray(at), here, kept)) for at in (u, u + 1.0))
        if not np.isclose(one, other, rtol=1e-3, atol=1e-3, equal_nan=True):
            raise ChoiceGPError(
                f"{self.name} changes when 1 is added to the utilities of all objects, of which only differences can "
                "be known: compare objects with each other, for example with the mean of their set"
            )

    def check_size(self, a: int) -> None:
        """Refuse sets of ``a`` objects whose answers are too many to enumerate."""
        if a > MOST_OBJECTS:
            raise ChoiceGPError(
                f"a set has {a} objects; with a likelihood of one's own, sets of at most {MOST_OBJECTS} are predicted"
            )

    def answers(self, u: OfBatch) -> Float[Array, "answers *batch"]:
        """Return p(C | A, u), (2**a, ...), of every subset C at utilities ``u`` (d, a, ...).

        Bit i of the number of a subset is set where object i is chosen.
        """
        a = u.shape[1]
        self.check_size(a)
        subsets = jnp.asarray((np.arange(2**a)[:, None] >> np.arange(a)) & 1 == 1)
        flat = u.reshape(*u.shape[:2], -1)
        all_here = jnp.ones(a, bool)

        def of_subset(chosen: Bool[Array, " a"]) -> Float[Array, " n"]:
            return jax.vmap(lambda one: self.log_prob(one, all_here, chosen), in_axes=-1)(flat)

        table = jnp.exp(jax.lax.map(of_subset, subsets))
        return jnp.where(jnp.arange(2**a)[:, None] > 0, table, 0.0).reshape(2**a, *u.shape[2:])

    def log_likelihood(self, u: OfBatch, present: Masks, chosen: Masks, lapse: Lapse = None) -> Float[Array, "*batch"]:
        """Return log p(C | A, u), (...), of many sets or at many utilities ``u`` (d, a, ...).

        ``present`` and ``chosen`` (a, ...) are masks, and ``lapse`` is the rate of random answers.
        """
        d, a, *batch = u.shape
        trailing = (1,) * (u.ndim - 1 - present.ndim)
        masks = [jnp.broadcast_to(mask.reshape(mask.shape + trailing), (a, *batch)).reshape(a, -1) for mask in
                 (jnp.asarray(present), jnp.asarray(chosen))]  # fmt: skip
        values = jax.vmap(self.log_prob, in_axes=-1)(jnp.asarray(u).reshape(d, a, -1), *masks)
        found = values.reshape(tuple(batch))
        return found if lapse is None else with_lapse(found, masks[0].reshape(a, *batch), lapse)

    def expected_derivatives(
        self, u: Samples, present: MasksOfSets, chosen: MasksOfSets, lapse: Lapse = None
    ) -> ExpectedDerivatives:
        """Return value, gradient and negative Hessian of log p, averaged over samples, by automatic differentiation.

        ``u`` (d, a, m, s) are samples of the utilities of m sets, whose masks are ``present`` and ``chosen`` (a, m);
        ``lapse`` is the rate of random answers.
        """

        def of_sample(one: Float[Array, "d a"], here: Array, kept: Array) -> tuple[Array, ...]:
            def value(part: Float[Array, "d a"]) -> Float[Array, ""]:
                return _mixed(self.log_prob(part, here, kept), here, lapse)

            def of_utility(i: int) -> Float[Array, "a a"]:
                return jax.hessian(lambda own: value(one.at[i].set(own)))(one[i])

            own = self.log_prob(one, here, kept)
            log_p, slope = jax.value_and_grad(value)(one)
            lapsed = jnp.zeros_like(log_p) if lapse is None else 1.0 - jnp.exp(jnp.log1p(-lapse) + own - log_p)
            return log_p, slope, -jnp.stack([of_utility(i) for i in range(len(one))]), lapsed

        over_samples = jax.vmap(of_sample, in_axes=(-1, None, None), out_axes=-1)
        over_sets = jax.vmap(over_samples, in_axes=(2, 1, 1), out_axes=-2)
        found = over_sets(jnp.asarray(u), jnp.asarray(present), jnp.asarray(chosen))
        return ExpectedDerivatives(*(jnp.mean(part, axis=-1) for part in found))


def _mixed(log_p: Float[Array, ""], present: Bool[AnyArray, " a"], lapse: Scalar | None) -> Float[Array, ""]:
    return log_p if lapse is None else with_lapse(log_p, present, lapse)

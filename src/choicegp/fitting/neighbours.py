"""One utility more, or one less: starts for d + 1 or d - 1 utilities from a posterior of d."""

import jax
import numpy as np

from choicegp.compute.programs import program
from choicegp.inference.posterior import Posterior
from choicegp.inference.problem import Problem
from choicegp.inference.sites import Sites
from choicegp.inference.starts import Start, covariance_at
from choicegp.model.prior import Objects, UtilityPrior


@program
def moments_at(posterior: Posterior, objects: Objects) -> tuple[jax.Array, jax.Array]:
    """Return posterior means (d, n) and covariances (d, n, n)."""
    return posterior.mean_and_covariance_at(objects)


def grown_starts(posterior: Posterior, fresh: UtilityPrior, problem: Problem) -> list[Start]:
    """Add a copy of each utility in turn, and a utility that is zero everywhere.

    A copy changes little of what dominates what, and zero leaves each utility's say as it was: from either,
    the larger model begins no worse than where the smaller one ended.

    Parameters
    ----------
    posterior : Posterior
        Of the smaller model, fitted to the same problem.
    fresh : UtilityPrior
        Where the hyperparameters of a utility start that knows nothing.
    problem : Problem
    """
    precision, linear = recovered_sites(posterior, problem)

    def start(prior: UtilityPrior, i: int, say: float) -> Start:
        """Append utility ``i`` of a prior, with the sites of utility ``i`` or with none."""
        extended = jax.tree.map(
            lambda own, more: np.concatenate([np.asarray(own), np.asarray(more)[i : i + 1]]), posterior.prior, prior
        )
        more = Sites(say * precision[i : i + 1], say * linear[i : i + 1])
        return Start(extended, jax.tree.map(lambda *parts: np.concatenate(parts), Sites(precision, linear), more))

    return [*(start(posterior.prior, i, 1.0) for i in range(posterior.n_utilities)), start(fresh, 0, 0.0)]


def shrunk_starts(posterior: Posterior, problem: Problem) -> list[Start]:
    """Leave out each utility in turn: one that a larger model was given too many may have kept others apart."""
    sites = recovered_sites(posterior, problem)

    def start(i: int) -> Start:
        return Start(
            *(jax.tree.map(lambda leaf: np.delete(leaf, i, axis=0), part) for part in (posterior.prior, sites))
        )

    return [start(i) for i in range(posterior.n_utilities)]


def recovered_sites(posterior: Posterior, problem: Problem) -> Sites:
    """Return the sites that make this posterior of the prior: Λ = G (I - K G)^-1 and η = K^-1 m + Λ m.

    G = (K + Λ^-1)^-1 is what a posterior keeps; padding has no sites.
    """
    n, t = problem.n_objects, len(problem.valid)
    covariance = np.asarray(covariance_at(posterior.prior, problem))[:, :n, :n]
    gain, mean = np.asarray(posterior.gain), np.asarray(posterior.mean)
    # Solved from the right: Λ (I - K G) = G, and both Λ and G are symmetric.
    precision = np.linalg.solve(np.eye(n) - np.swapaxes(covariance @ gain, 1, 2), gain)
    precision = 0.5 * (precision + np.swapaxes(precision, 1, 2))
    linear = np.asarray(posterior.dual) + (precision @ mean[..., None])[..., 0]
    more = (0, t - n)
    return Sites(np.pad(precision, ((0, 0), more, more)), np.pad(linear, ((0, 0), more)))  # type: ignore[arg-type]

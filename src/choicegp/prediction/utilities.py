"""Questions about utilities: joint samples, dominance between objects, recommendations."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import solve_triangular

from choicegp.checks import seed, whole_number
from choicegp.compute.programs import program
from choicegp.data.packing import FeatureScaling
from choicegp.data.pareto import undominated
from choicegp.errors import ChoiceGPError
from choicegp.fitting.record import Utilities
from choicegp.inference.expectation import sobol_normals
from choicegp.inference.posterior import FIRST_JITTER, Draws, Posterior, factorise
from choicegp.model.error_models import DISCERNIBILITY, BestInOne, ErrorModel
from choicegp.model.likelihood import pair_logs
from choicegp.model.prior import Objects, threshold_like, with_room
from choicegp.prediction.set_utilities import set_utilities

MOST_JOINT = 5000  # objects sampled jointly
_FACTORED = 3e10  # multiplications of the factors for samples from draws: with many objects, of fewer settings
_MOST_CANDIDATES = 1500
_N_SAMPLES = 512
_REFERENCE = 64  # objects of the largest sums, with which all others are compared first
_OF_FRONT = 256  # objects on the front of the means, with which candidates are compared
_CERTAIN = 1.0 - 1e-12  # a probability of which the complement has a logarithm
_PART = 2048  # objects compared at a time


def _root(covariance: Array, real: Array, scale: Array) -> Array:
    """Return roots (p, n, n) of covariances: the rows of real objects, which come first, are as without the others.

    With a ladder of jitters: a posterior covariance C is often singular to rounding.  A jitter is no variance, and is
    taken out again: with C + j I = L L^T the root is C L^-T, whose square is C where C is far larger than j, and much
    less than j where C is nothing but rounding errors.
    """
    apart = jnp.where(real[:, None] & real, 0.5 * (covariance + jnp.swapaxes(covariance, 1, 2)), jnp.eye(len(real)))
    found = factorise(apart, jnp.full(len(apart), FIRST_JITTER), scale).root
    return jax.lax.map(lambda both: solve_triangular(both[0], both[1], lower=True).T, (found, apart))


@program
def _joint_roots(posterior: Posterior, objects: Objects, real: Array) -> tuple[Array, Array]:
    mean, covariance = posterior.mean_and_covariance_at(objects)
    scale = jnp.mean(jnp.diagonal(covariance, axis1=1, axis2=2), axis=1, where=real)
    return mean, _root(covariance, real, scale)


@program
def _continued(draws: Draws, shown: Objects, objects: Objects, real: Array) -> tuple[Array, Array]:
    """Return what the draws of one setting predict, (S, p, n), and a root (p, n, n) of the covariance that is left."""
    cross = draws.prior.covariance(shown, objects)
    left = draws.prior.covariance(objects, objects) - jnp.swapaxes(cross, 1, 2) @ (draws.inverse @ cross)
    # Of shown objects nothing is left but rounding errors, of the size of the prior's variance.
    root = _root(left, real, jnp.mean(draws.prior.variance(objects), axis=1, where=real))
    return jnp.einsum("ptn,spt->spn", cross, draws.dual), root


def _samples_from_draws(posterior: Posterior, objects: Objects, n_samples: int, rng: np.random.Generator) -> np.ndarray:
    """Each sample continues one draw: its own means, and what the draw does not say."""
    draws, n = posterior.draws, len(objects.X)
    assert draws is not None
    n_settings, n_draws, p, _ = draws.dual.shape
    used = np.linspace(0, n_settings - 1, int(np.clip(_FACTORED / (p * n**3), min(4, n_settings), n_settings)))
    setting = np.resize(rng.permutation(used.astype(int)), n_samples)
    result = np.empty((n_samples, posterior.n_utilities, n))
    roomy, real = with_room(objects)
    for h in np.unique(setting):
        one = jax.tree.map(lambda leaf, h=h: np.asarray(leaf[h]), draws)
        mean, root = (np.asarray(part) for part in _continued(one, posterior.objects, roomy, real))
        mean, root = mean[..., :n], root[:, :n, :n]
        mine = np.flatnonzero(setting == h)
        # Every draw once before any is used twice.
        picked = np.concatenate([rng.permutation(n_draws) for _ in range(-(-len(mine) // n_draws))])[: len(mine)]
        noise = np.moveaxis(root @ rng.normal(size=(p, n, len(mine))), 2, 0)
        parts = mean[picked] + noise
        result[mine] = parts[:, :1] + parts[:, 1:] if posterior.prior.shared else parts
    return np.swapaxes(result, 1, 2)


def joint_samples(posterior: Posterior, objects: Objects, n_samples: int, random_state: int | None) -> np.ndarray:
    """Return joint samples of the utilities at the objects, (S, n, d)."""
    n_samples = whole_number("n_samples", n_samples, 1)
    n = len(objects.X)
    if n > MOST_JOINT:
        raise ChoiceGPError(f"joint samples are drawn for at most {MOST_JOINT} objects at a time; got {n}")
    rng = np.random.default_rng(seed(random_state))
    if n == 0:
        return np.zeros((n_samples, 0, posterior.n_utilities))
    if posterior.draws is not None:
        return _samples_from_draws(posterior, objects, n_samples, rng)
    mean, roots = (np.asarray(part) for part in _joint_roots(posterior, *with_room(objects)))
    draws = rng.normal(size=(mean.shape[0], n, n_samples))
    return np.moveaxis(mean[:, :n, None] + roots[:, :n, :n] @ draws, (0, 1, 2), (2, 1, 0))


@program
def _dominance(posterior: Posterior, first: Objects, second: Objects) -> Array:
    def difference(one: Objects, other: Objects) -> tuple[Array, Array]:
        both = Objects(jnp.stack([one.X, other.X]), jnp.stack([one.codes, other.codes]))
        mean, covariance = posterior.mean_and_covariance_at(both)
        return mean[:, 0] - mean[:, 1], covariance[:, 0, 0] + covariance[:, 1, 1] - 2 * covariance[:, 0, 1]

    mean, variance = jax.vmap(difference)(first, second)
    # E[Φ(z)] = Φ(μ / sqrt(1 + v)), and the utilities are independent: no sampling is needed.
    z = mean / jnp.sqrt(1.0 + jnp.maximum(variance, 0.0))
    logs = pair_logs(z.T)
    return jnp.exp(jnp.stack([logs.dominates, logs.dominated, logs.incomparable], axis=1))


def dominance_probabilities(posterior: Posterior, first: Objects, second: Objects) -> np.ndarray:
    """Return P(first dominates), P(second dominates), P(incomparable) for pairs of objects, (n, 3)."""
    if len(first.X) != len(second.X):
        raise ChoiceGPError(f"X1 has {len(first.X)} rows and X2 {len(second.X)}: they are compared row by row")
    if posterior.draws is not None:
        return _sampled_dominance(posterior, first, second)
    parts = []
    for start in range(0, len(first.X), 512):
        part = slice(start, start + 512)
        parts.append(np.asarray(_dominance(
            posterior, Objects(first.X[part], first.codes[part]), Objects(second.X[part], second.codes[part])
        )))  # fmt: skip
    return np.concatenate(parts) if parts else np.zeros((0, 3))


def _sampled_dominance(posterior: Posterior, first: Objects, second: Objects) -> np.ndarray:
    """Average over draws: their utilities depend on each other, so no product of averages will do."""
    normals = sobol_normals(posterior.prior.n_parts, 1, _N_SAMPLES, np.random.default_rng(0))
    parts = [np.zeros((0, 3))]
    for start in range(0, len(first.X), 512):
        part = slice(start, start + 512)
        both = jax.tree.map(lambda one, other, part=part: np.stack([one[part], other[part]]), first, second)
        parts.append(np.asarray(_dominance_of_draws(posterior, both, normals)).T)
    return np.concatenate(parts)


@program
def _dominance_of_draws(posterior: Posterior, both: Objects, normals: Array) -> Array:
    u = set_utilities(posterior, both, normals.shape[-1]).sampled(normals)
    logs = pair_logs(u[:, 0] - u[:, 1])
    return jnp.mean(jnp.exp(jnp.stack([logs.dominates, logs.dominated, logs.incomparable])), axis=-1)


def recommended(
    posterior: Posterior, objects: Objects, utilities: Utilities, n: int, random_state: int | None,
    errors: ErrorModel = DISCERNIBILITY,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Return the rows most probably kept among all objects, by the rule of ``errors``, and the probabilities.

    Where there is a threshold, it is one more rival.

    An object that something beats by far in every utility is left out first; of the rest, the front of the means and
    those that it beats least probably, at most 1500 in all, are sampled jointly.  The order of rows matters only
    between equal objects.  The probabilities are about the utilities themselves: errors that people make when they
    answer are not part of them, as they are of the probabilities of choices.
    """
    # Equal objects are one: rounding errors alone would let one copy dominate another.
    key = np.asarray(objects.X)
    if posterior.prior.log_effect_variance is not None:
        key = np.column_stack([key, objects.codes])
    rows = _candidates(utilities.mean, utilities.sd, key)
    if len(rows) < min(n, len(objects.X)):
        # Fewer than asked for can be the best of all: the next ones by the sum of their utilities come along.
        centre = utilities.mean / FeatureScaling.of(utilities.mean).scale
        rest = np.setdiff1d(np.arange(len(key)), rows, assume_unique=True)
        rest = rest[_ranked(centre[rest].sum(axis=1), key[rest])]
        rows = np.concatenate([rows, rest[: min(n, _MOST_CANDIDATES) - len(rows)]])
    _, first, copy = np.unique(key[rows], axis=0, return_index=True, return_inverse=True)
    copy = copy.ravel()
    distinct = Objects(objects.X[rows[first]], objects.codes[rows[first]])
    if errors.has_threshold:
        rival = threshold_like(distinct)
        distinct = Objects(np.concatenate([distinct.X, rival.X]), np.concatenate([distinct.codes, rival.codes]))
    sampled = joint_samples(posterior, distinct, _N_SAMPLES, random_state)
    marks = _best_in_one(sampled) if isinstance(errors, BestInOne) else _undominated(sampled)
    probability = marks.mean(axis=0)[copy]
    order = np.lexsort((rows, copy, -probability))[:n]
    return rows[order], probability[order]


def _best_in_one(u: np.ndarray) -> np.ndarray:
    """Mark the objects (S, n) of samples (S, n, d) that are the best in some utility."""
    return np.any(u == u.max(axis=1, keepdims=True), axis=2)


def _undominated(u: np.ndarray) -> np.ndarray:
    """Mark the undominated objects (S, n) of samples (S, n, d)."""
    result = np.zeros(u.shape[:2], dtype=bool)
    for sample, marks in zip(u, result, strict=True):
        # What the objects of the largest sums leave over is little, and holds every undominated object.
        best = sample[np.argsort(-sample.sum(axis=1), kind="stable")[:_REFERENCE]]
        left = np.flatnonzero(_n_beating(sample, best) == 0)
        marks[left] = undominated(sample[left])
    return result


def _candidates(mean: np.ndarray, sd: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Rows of the objects worth sampling, in ascending order; rows of ``key`` decide between equally good ones."""
    low, high = mean - 2.0 * sd, mean + 2.0 * sd
    # Only objects on the front of the pessimistic values can rule others out.
    rows = np.flatnonzero(_n_beating(high, low[_front(low)]) == 0)
    if len(rows) <= _MOST_CANDIDATES:
        return rows
    front = rows[_front(mean[rows] / FeatureScaling.of(mean[rows]).scale, _MOST_CANDIDATES)]
    rest = np.setdiff1d(rows, front)
    # Of a long front some members, evenly spread over it.
    places = np.linspace(0, len(front) - 1, min(len(front), _OF_FRONT)).round().astype(int)
    some = front[np.lexsort(mean[front].T)][places]
    score = _log_undominated(mean[rest], sd[rest], mean[some], sd[some])
    return np.sort(np.concatenate([front, rest[_ranked(score, key[rest])[: _MOST_CANDIDATES - len(front)]]]))


def _ranked(score: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Order by score, the largest first, then by the columns of ``key``, and not by the row."""
    # Equal scores differ by rounding errors, which depend on the row.
    return np.lexsort((*key.T, -np.round(score, 9)))


def _log_undominated(mean: np.ndarray, sd: np.ndarray, by_mean: np.ndarray, by_sd: np.ndarray) -> np.ndarray:
    """Return log prod_o (1 - P(o dominates v)) for each object v (n, d), were all utilities independent."""
    from scipy.special import ndtr

    result = np.empty(len(mean))
    for start in range(0, len(mean), _PART):
        part = slice(start, start + _PART)
        dominates = np.ones((len(mean[part]), len(by_mean)))
        for i in range(mean.shape[1]):
            ahead = by_mean[:, i] - mean[part, i, None]
            # Known utilities have no spread: only the sign counts.
            with np.errstate(all="ignore"):
                z = ahead / np.hypot(sd[part, i, None], by_sd[:, i])
            dominates *= ndtr(np.where(ahead == 0, 0.0, z))
        result[part] = np.log1p(-np.minimum(dominates, _CERTAIN)).sum(axis=1)
    return result


def _front(values: np.ndarray, most: int = 512) -> np.ndarray:
    """Rows of undominated values (at most ``most``), found from the largest sum down: a dominator's sum is larger."""
    # Equal sums are ordered by the values, so that the rows' order does not decide which are found.
    ordered = np.lexsort((*values.T, -values.sum(axis=1)))
    front = ordered[:0]
    for start in range(0, len(ordered), _PART):
        part = ordered[start : start + _PART]
        part = part[_n_beating(values[part], values[front]) == 0]
        front = np.concatenate([front, part[undominated(values[part])]]) if len(part) else front
        if len(front) >= most:
            break
    return front[:most]


def _n_beating(values: np.ndarray, by: np.ndarray) -> np.ndarray:
    """Count, for each row of ``values``, the rows of ``by`` that are larger in every utility."""
    counts = np.zeros(len(values), dtype=int)
    for start in range(0, len(values), _PART):
        part = values[start : start + _PART]
        larger = np.ones((len(part), len(by)), dtype=bool)
        for i in range(values.shape[1]):
            larger &= by[:, i] > part[:, i, None]
        counts[start : start + _PART] = np.count_nonzero(larger, axis=1)
    return counts

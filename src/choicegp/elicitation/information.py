"""What an answer is expected to say, from joint draws of the utilities.

With draws u_s of the utilities and the normalised probabilities p_s(C | A) of all answers C to the set A, the answer
says about the utilities, in nats,

    I(A) = H(mean_s p_s(. | A)) - mean_s H(p_s(. | A)),

the entropy of the predicted answer less what of it is error.  The empty answer counts where there is a threshold.  The
entropy of a mean of S draws is too small by about half the sum over C of Var_s p_s(C) / (S mean_s p_s(C)), which is
added.
"""

from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from choicegp.compute.programs import program
from choicegp.fitting.record import Fitted
from choicegp.inference.expectation import sobol_normals
from choicegp.inference.posterior import Posterior
from choicegp.model.error_models import ErrorModel
from choicegp.model.prior import THRESHOLD, Objects
from choicegp.prediction.set_utilities import set_utilities

N_HISTORIES = 16
_FEW_HISTORIES = 4  # by which what is said about targets is judged, which takes longer
# Sets times draws that one call of a program values.  Tables that leave a processor's cache take three times as long:
# 128 sets of four objects at 512 draws took 37 ms at once and 15 ms in parts of 32.
_AT_ONCE = 16_384
_PAIRS_AT_ONCE = 8 * _AT_ONCE  # they have few answers
_LEAST_EFFECTIVE = 1 / 8  # part of the draws that still counts once sets before were answered
_N_POINTS = 4096  # at which few sets are valued well
_POINTS_AT_ONCE = 512
_FEW = 16
_TINY = 1e-30


class Drawn(NamedTuple):
    """Joint draws of the utilities of some objects, and how a person errs.

    Attributes
    ----------
    utilities : ndarray (d, n, S)
        In units of the error scale.  The threshold is the last object, where there is one.
    errors : ErrorModel
    lapse : float
        Probability of a random answer.
    weights : ndarray (M, S)
        Of the draws: a row for each history of answers that is thought possible; the values are averaged over them.
    """

    utilities: np.ndarray
    errors: ErrorModel
    lapse: float
    weights: np.ndarray

    @classmethod
    def of(cls, utilities: np.ndarray, errors: ErrorModel, lapse: float) -> "Drawn":
        """Take draws (S, n, d) of equal weight; the threshold is the last object, where there is one."""
        n_draws = len(utilities)
        return cls(np.ascontiguousarray(utilities.T, np.float32), errors, lapse, np.full((1, n_draws), 1.0 / n_draws))

    def after(self, sets: list[np.ndarray], rng: np.random.Generator) -> "Drawn":
        """Weigh the draws by answers to sets (k,) that are asked before.

        A history of answers is simulated from one draw, and all draws are weighed by its probability.  Where that would
        leave fewer than an eighth of the draws (their effective number), the answers count less.
        """
        n_draws = self.utilities.shape[2]
        people = rng.permutation(n_draws)[:N_HISTORIES]
        logs = np.zeros((len(people), n_draws))
        for one in sets:
            table = np.asarray(answer_tables(self, one[None]))[:, 0]  # (answers, S)
            level = rng.random(len(people))
            answers = np.minimum(np.sum(np.cumsum(table[:, people], axis=0) < level, axis=0), len(table) - 1)
            logs += np.log(table[answers] + _TINY)
        return self._replace(weights=_tempered(logs, _LEAST_EFFECTIVE * n_draws))


def _tempered(logs: np.ndarray, least: float) -> np.ndarray:
    """Return weights from their logs (M, S), flattened until their effective number is at least ``least``."""
    low, high = 0.0, 1.0
    power = 1.0
    for _ in range(20):
        weights = np.exp(power * (logs - logs.max(axis=1, keepdims=True)))
        weights /= weights.sum(axis=1, keepdims=True)
        enough = np.mean(1.0 / np.sum(weights**2, axis=1)) >= least
        if power == 1.0 and enough:
            break
        low, high = (power, high) if enough else (low, power)
        power = 0.5 * (low + high)
    return weights


def _answers(u: Array, errors: ErrorModel, lapse: Array) -> Array:
    """Return the probabilities (answers, ...) of all answers to sets with utilities (d, a, ...), lapses included."""
    table = errors.answers(u)
    table = table / jnp.sum(table, axis=0)
    first = 0 if errors.has_threshold else 1  # the empty answer is none without a threshold
    return (1.0 - lapse) * table[first:] + lapse / (len(table) - first)


def _entropy(p: Array) -> Array:
    """Return the entropy, in nats, along the leading axis."""
    return -jnp.sum(p * jnp.log(jnp.maximum(p, _TINY)), axis=0)


@program
def _tables(u: Array, rows: Array, lapse: Array, errors: ErrorModel) -> Array:
    own = u[:, rows]  # (d, k, m, S)
    if errors.has_threshold:
        own = jnp.concatenate([own, jnp.broadcast_to(u[:, -1:, None], (*own.shape[:1], 1, *own.shape[2:]))], axis=1)
    return _answers(own, errors, lapse)


@program
def _expected(u: Array, rows: Array, weights: Array, lapse: Array, errors: ErrorModel) -> tuple[Array, Array]:
    """Return information and entropy (m,) of the answers to sets of these rows (k, m)."""
    table = _tables(u, rows, lapse, errors)
    mean, square = jnp.einsum("kms,ws->kwm", table, weights), jnp.einsum("kms,ws->kwm", table**2, weights)
    concentration = jnp.sum(weights**2, axis=1)[:, None]
    spread = jnp.sum(jnp.maximum(square - mean**2, 0.0) / jnp.maximum(mean, _TINY), axis=0)
    total = _entropy(mean) + 0.5 * spread * concentration / (1.0 - concentration)
    errs = jnp.einsum("ms,ws->wm", _entropy(table), weights)
    return jnp.mean(total - errs, axis=0), jnp.mean(total, axis=0)


class Expected(NamedTuple):
    """What sets are expected to bring, in nats: the information (m,) of their answers, and the entropy (m,)."""

    information: np.ndarray
    entropy: np.ndarray


def expected(drawn: Drawn, sets: np.ndarray) -> Expected:
    """Value sets (m, k), given as rows of the drawn objects."""
    u, weights = jnp.asarray(drawn.utilities), jnp.asarray(drawn.weights, jnp.float32)
    parts = [_expected(u, rows, weights, jnp.float32(drawn.lapse), drawn.errors) for rows in _chunks(sets, drawn)]
    information, entropy = (np.concatenate([np.asarray(part) for part in both]) for both in zip(*parts, strict=True))
    return Expected(information[: len(sets)].astype(float), entropy[: len(sets)].astype(float))


def answer_tables(drawn: Drawn, sets: np.ndarray) -> Array:
    """Return p_s(C | A) for sets (m, k): (answers, m, S); the empty answer is first where there is a threshold."""
    u = jnp.asarray(drawn.utilities)
    parts = [_tables(u, rows, jnp.float32(drawn.lapse), drawn.errors) for rows in _chunks(sets, drawn)]
    return jnp.concatenate(parts, axis=1)[:, : len(sets)]


def _chunks(sets: np.ndarray, drawn: Drawn) -> Iterator[np.ndarray]:
    """Yield rows (k, m) of sets (m, k), the last chunk filled up by its last set, so that few programs are compiled."""
    cells = _PAIRS_AT_ONCE if sets.shape[1] == 2 else _AT_ONCE
    most = max(_FEW, cells // drawn.utilities.shape[2])
    size = most if len(sets) > _FEW else 1 << (len(sets) - 1).bit_length()
    for start in range(0, len(sets), size):
        yield np.ascontiguousarray(sets[np.minimum(np.arange(start, start + size), len(sets) - 1)].T)


class Targets(NamedTuple):
    """Answers to the sets about which is asked: p_s(C* | A*) (L, T, S)."""

    tables: Array

    @classmethod
    def of(cls, drawn: Drawn, sets: np.ndarray) -> "Targets":
        """Predict the answers to sets (T, l) of rows of the drawn objects."""
        return cls(answer_tables(drawn, sets))


@program
def _mutual(u: Array, rows: Array, targets: Array, weights: Array, lapse: Array, errors: ErrorModel) -> Array:
    """Return the information (m,) that answers to sets of these rows (k, m) have about targets (L, T, S)."""
    own = _tables(u, rows, lapse, errors)
    n, m, n_draws = own.shape
    others = targets.reshape(-1, n_draws)

    def under(weight: Array) -> Array:
        concentration = jnp.sum(weight**2)
        factor = 0.5 * concentration / (1.0 - concentration)

        def entropy(mean: Array, square: Array) -> Array:
            spread = jnp.maximum(square - mean**2, 0.0) / jnp.maximum(mean, _TINY)
            return factor * spread - mean * jnp.log(jnp.maximum(mean, _TINY))

        alone = jnp.sum(entropy(own @ weight, own**2 @ weight), axis=0)
        wanted = jnp.sum(entropy(others @ weight, others**2 @ weight)) / targets.shape[1]
        flat = own.reshape(n * m, n_draws)
        both = entropy((flat * weight) @ others.T, (flat**2 * weight) @ (others**2).T)
        return alone + wanted - jnp.sum(both.reshape(n, m, -1), axis=(0, 2)) / targets.shape[1]

    return jnp.mean(jax.lax.map(under, weights), axis=0)


def about_targets(drawn: Drawn, sets: np.ndarray, targets: Targets) -> np.ndarray:
    """Return what the answers to sets (m, k) say about the answers to target sets, averaged over these: (m,).

    For one target A* it is KL(mean_s p_s(C|A) p_s(C*|A*) || p(C|A) p(C*|A*)).  Entropies are corrected for the number
    of draws as above.
    """
    u, weights = jnp.asarray(drawn.utilities), jnp.asarray(drawn.weights[:_FEW_HISTORIES], jnp.float32)
    lapse = jnp.float32(drawn.lapse)
    parts = [
        np.asarray(_mutual(u, rows, targets.tables, weights, lapse, drawn.errors)) for rows in _chunks(sets, drawn)
    ]
    return np.concatenate(parts)[: len(sets)].astype(float)


@program
def _in_sets(posterior: Posterior, objects: Objects, normals: Array, lapse: Array, errors: ErrorModel) -> Array:
    """Return the mean table, and below it the mean entropy, of sets with objects (a, m): (answers + 1, m)."""
    u = set_utilities(posterior, objects, normals.shape[-1]).sampled(normals)
    blocks = jnp.moveaxis(u.reshape(*u.shape[:3], -1, min(_POINTS_AT_ONCE, u.shape[3])), 3, 0)

    def of_block(block: Array) -> Array:
        table = _answers(block, errors, lapse)
        return jnp.mean(jnp.concatenate([table, _entropy(table)[None]]), axis=-1)

    return jnp.mean(jax.lax.map(of_block, blocks), axis=0)


class ExpectedAnswers(NamedTuple):
    """The answers that a model expects: probabilities (answers, m), and the mean entropy (m,) of a draw's answers."""

    probability: np.ndarray
    error: np.ndarray

    @property
    def entropy(self) -> np.ndarray:
        """Entropy (m,) of the predicted answers, in nats."""
        return -np.sum(self.probability * np.log(np.maximum(self.probability, _TINY)), axis=0)

    @property
    def information(self) -> np.ndarray:
        """What the answers say about the utilities, (m,), in nats."""
        return np.maximum(self.entropy - self.error, 0.0)


def expected_answers(fitted: Fitted, objects: Objects, sets: np.ndarray, lapse: float) -> ExpectedAnswers:
    """Predict the answers to sets (m, k) of rows of some objects, at 4096 points for each set."""
    parts = []
    for start in range(0, len(sets), _FEW):
        rows = sets[np.minimum(np.arange(start, start + _FEW), len(sets) - 1)].T
        X, codes = np.asarray(objects.X)[rows], np.asarray(objects.codes)[rows]
        if fitted.errors.has_threshold:
            X, codes = np.concatenate([X, X[:1]]), np.pad(codes, ((0, 1), (0, 0)), constant_values=THRESHOLD)
        normals = sobol_normals(fitted.posterior.prior.n_parts, len(codes) - 1, _N_POINTS, np.random.default_rng(0))
        parts.append(np.asarray(_in_sets(fitted.posterior, Objects(X, codes), normals, lapse, fitted.errors)))
    found = np.concatenate(parts, axis=1)[:, : len(sets)]
    return ExpectedAnswers(found[:-1], found[-1])

"""Which objects of an assortment a person with given utilities keeps, and which one of them she takes.

Of assortments of up to ten objects every answer is scored by the model's own likelihood, divided by the sum over all
answers; of larger ones answers are drawn from the same probabilities (`choicegp.prediction.answers`).
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from choicegp.compute.programs import program
from choicegp.errors import ChoiceGPError
from choicegp.model.error_models import BestInOne, ErrorModel
from choicegp.model.likelihood import MAX_ENUMERATED
from choicegp.prediction.answers import MAX_CONTENDERS, Chances, draw_chances, sampled_answers, sampled_winners

TAKE_RULES = ("equal", "best")
"""Which of the kept objects is taken: each with the same probability, or the best in a utility picked at random."""
_CELLS = 250_000  # numbers of the tables of answers worked on at a time
_PAIRS = 500_000  # the same of comparisons, where answers are drawn
_ANSWERS = 128  # drawn for each draw of the utilities, of all people together


class Taken(NamedTuple):
    """Probabilities of a person, or shares of people, for one assortment of a objects.

    Attributes
    ----------
    keep, take : ndarray (..., a)
    none : ndarray (...)
        That nothing is kept.
    """

    keep: np.ndarray
    take: np.ndarray
    none: np.ndarray


def answered(u: np.ndarray, errors: ErrorModel, lapse: float | None, take: str, seed: int = 0) -> Taken:
    """Return the probabilities of people with utilities (s, R, n, d); a threshold is the last object."""
    s, n_people, n, d = u.shape
    a = n - errors.has_threshold
    errors.check_size(a)
    if n == 1:
        sure = np.ones((s, n_people, 1))
        return Taken(sure, sure, np.zeros((s, n_people)))
    flat = np.moveaxis(u, (3, 2), (0, 1)).reshape(d, n, s * n_people)
    found = _enumerated(flat, errors, lapse, take) if a <= MAX_ENUMERATED else _sampled(
        flat, errors, lapse, take, seed, -(-_ANSWERS // n_people)
    )  # fmt: skip
    keep, taken, none = (np.moveaxis(part.reshape(-1, s, n_people), 0, 2) for part in found)
    return Taken(keep, taken, none[..., 0])


def _enumerated(u: np.ndarray, errors: ErrorModel, lapse: float | None, take: str) -> tuple[np.ndarray, ...]:
    """Return P(kept), P(taken) (a, N) and P(nothing is kept) (1, N) at utilities (d, n, N)."""
    _, n, n_all = u.shape
    size = 1 << (_CELLS // (2**n * n)).bit_length() - 1  # the same for every N: one program serves all of them
    filled = np.pad(u, ((0, 0), (0, 0), (0, -n_all % size)), mode="edge")
    rate = None if lapse is None else np.asarray(lapse)
    blocks = [
        [np.asarray(part) for part in _of_block(filled[..., start : start + size], errors, rate, take)]
        for start in range(0, n_all, size)
    ]
    return tuple(np.concatenate(parts, axis=1)[:, :n_all] for parts in zip(*blocks, strict=True))


@partial(program, static="take")
def _of_block(u: Array, errors: ErrorModel, lapse: Array | None, take: str) -> tuple[Array, Array, Array]:
    a = u.shape[1] - errors.has_threshold
    subsets = np.arange(2**a)
    member = jnp.asarray(((subsets[None, :] >> np.arange(a)[:, None]) & 1).astype(float))
    table = errors.answers(u)
    table = table / jnp.sum(table, axis=0)
    if lapse is not None:
        first = 0 if errors.has_threshold else 1  # the empty answer is none without a threshold
        table = (1.0 - lapse) * table + lapse * jnp.where(subsets >= first, 1.0 / (2**a - first), 0.0)[:, None]
    if take == "equal":
        taken = (member / jnp.maximum(member.sum(axis=0), 1.0)) @ table
    else:
        taken = jnp.mean(jax.lax.map(lambda own: _best_kept(own, member, table), u[:, :a]), axis=0)
    return member @ table, taken, table[:1]


def _best_kept(u: Array, member: Array, table: Array) -> Array:
    """Return P(object is taken) (a, b) if the best of the kept objects by one utility (a, b) is taken; ties share."""
    better = (u[None, :] > u[:, None]).astype(table.dtype)  # (o, v): v is better than o
    beaten = jnp.einsum("vc,ovb->ocb", member, better)
    is_best = jnp.where((beaten == 0) & (member[:, :, None] > 0), 1.0, 0.0)
    return jnp.sum(is_best / jnp.maximum(jnp.sum(is_best, axis=0), 1.0) * table, axis=1)


def check_offered(n_objects: int) -> None:
    """Refuse an assortment that is too large, before utilities of its objects are drawn jointly."""
    if n_objects >= MAX_CONTENDERS:
        most = MAX_CONTENDERS - 1
        raise ChoiceGPError(f"shares are for assortments of at most {most} objects; this one has {n_objects}")


def _sampled(
    u: np.ndarray, errors: ErrorModel, lapse: float | None, take: str, seed: int, repeats: int
) -> tuple[np.ndarray, ...]:
    """Do as `_enumerated` does for larger assortments, from several answers drawn at each utilities."""
    d, n, n_all = u.shape
    a = n - errors.has_threshold
    check_offered(a)
    rng = np.random.default_rng([seed, 7])
    size = max(1, min(n_all, _PAIRS // (d * n * n * repeats)))
    program = _winners if isinstance(errors, BestInOne) else _drawn_answers
    found = []
    for start in range(0, n_all, size):
        some = u[..., np.minimum(np.arange(start, start + size), n_all - 1)]
        chances = draw_chances(d, n, size * repeats, rng)
        inclusion, drawn = (np.asarray(part)[:a, 0] for part in program(_repeated(some, repeats), chances))
        taken = _taken(np.repeat(some[:, :a], repeats, axis=-1), drawn, take)
        parts = inclusion, taken, ~np.any(drawn, axis=0, keepdims=True)
        found.append([part.reshape(len(part), size, repeats).mean(axis=-1) for part in parts])
    keep, taken, none = (np.concatenate(parts, axis=1)[:, :n_all] for parts in zip(*found, strict=True))
    if lapse is None:
        return keep, taken, none
    random = 0.5**a if errors.has_threshold else 0.0  # that a random answer is empty
    mixed = ((keep, 0.5), (taken, (1.0 - random) / a), (none, random))
    return tuple((1.0 - lapse) * part + lapse * chance for part, chance in mixed)


def _repeated(u: np.ndarray, repeats: int) -> np.ndarray:
    return np.repeat(u, repeats, axis=-1)[:, :, None]


def _taken(u: np.ndarray, drawn: np.ndarray, take: str) -> np.ndarray:
    """Return the probability (a, N) with which each object is taken of answers (a, N)."""
    if take == "equal":
        return drawn / np.maximum(drawn.sum(axis=0), 1)
    worth = np.where(drawn, u, -np.inf)
    best = drawn & (worth == worth.max(axis=1, keepdims=True))
    return (best / np.maximum(best.sum(axis=1, keepdims=True), 1)).mean(axis=0)


@program
def _drawn_answers(u: Array, chances: Chances) -> Any:
    return sampled_answers(u, chances)


@program
def _winners(u: Array, chances: Chances) -> Any:
    return sampled_winners(u, chances)

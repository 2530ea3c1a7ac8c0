"""What would be chosen: probabilities of choices under the posterior (eq:infer).

For sets of at most ten objects every subset is scored: the paper's likelihood of each, averaged over
posterior samples, after division by the sum over all subsets (the likelihood does not sum to one by itself).
For larger sets answers are drawn from the same probabilities (`choicegp.prediction.answers`).  Probabilities of given
choices are divided by the sum over all subsets for sets of at most 16 objects; where a set has more than ten, they are
found by tempering (`choicegp.prediction.tempering`).  A threshold is one more object, the last of each set: it takes
part in everything but is not shown, and a set may be left empty.

Sample points and other random numbers are fixed, so predictions repeat exactly.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from choicegp.compute.programs import present_device, program
from choicegp.data.choices import ChoiceData
from choicegp.data.packing import split_sets
from choicegp.errors import ChoiceGPError
from choicegp.fitting.record import Fitted
from choicegp.inference.expectation import Marginals
from choicegp.inference.respondents.personal import AnyPosterior
from choicegp.model.error_models import DISCERNIBILITY, BestInOne, Discernibility, ErrorModel
from choicegp.model.likelihood import FLOOR, MAX_ENUMERATED, MAX_SUMMED, pair_logs
from choicegp.model.prior import THRESHOLD, Objects
from choicegp.prediction.answers import (
    MAX_CONTENDERS,
    N_PROPOSALS,
    Answers,
    Chances,
    draw_chances,
    mean_answers,
    mean_winners,
    probable,
    proposals,
)
from choicegp.prediction.set_utilities import Group, SetUtilities, asked, groups, points_for, set_utilities
from choicegp.prediction.tempering import N_LAST, TemperedMeans, log_sums, tempered_means

N_SAMPLES = 512
SCORE_SAMPLES = 1024
LARGE_SAMPLES = 128  # of sets of more than `_WELL_SAMPLED` objects
_WELL_SAMPLED = 32
_IN_CACHE = 32_768  # numbers in a table of subsets on a CPU, where twice as fast as tables that leave its cache
_ON_ACCELERATOR = 16_000_000  # the same there
_BLOCK = 500_000  # numbers in the largest temporary array where a chunk is worked through in blocks of points


def _cells(a: int, hidden: int = 0) -> int:
    if a > MAX_ENUMERATED:
        return (a + hidden) ** 2 * _n_samples(a + hidden)
    a += hidden
    # On accelerators few large chunks: every call of a program costs about as much as a thousand tables.
    return 2**a * (N_SAMPLES if present_device().platform == "cpu" else 1)


def _n_samples(a: int) -> int:
    return N_SAMPLES if a <= _WELL_SAMPLED else LARGE_SAMPLES


@program
def subset_table(
    posterior: AnyPosterior, objects: Objects, normals: Array, errors: ErrorModel = DISCERNIBILITY
) -> Array:
    """Return P(C | A) of every subset of each set, (2^a, m); the columns sum to one."""
    m = objects.codes.shape[1]
    a = objects.codes.shape[0] - errors.has_threshold
    if len(objects.codes) == 1:
        return jnp.tile(jnp.array([[0.0], [1.0]]), (1, m))
    utilities = set_utilities(posterior, objects, normals.shape[-1])
    independent = utilities.moves is None and utilities.marginal.root.ndim == 4
    exact = a == 2 and independent and isinstance(errors, Discernibility)
    table = _pair_table(utilities.marginal) if exact else _mean_table(utilities, normals, errors)
    if posterior.lapse is None:
        return table
    first = 0 if errors.has_threshold else 1  # the empty answer is none without a threshold
    uniform = jnp.where(jnp.arange(2**a) >= first, 1.0 / (2**a - first), 0.0)[:, None]
    return (1.0 - posterior.lapse) * table + posterior.lapse * uniform


def _mean_table(utilities: SetUtilities, normals: Array, errors: ErrorModel) -> Array:
    """Average the tables of the samples, a few samples at a time: (2^a, m)."""
    drawn = utilities.sampled(normals)
    _, n, m, n_points = drawn.shape
    a = n - errors.has_threshold
    most = _IN_CACHE if present_device().platform == "cpu" else _ON_ACCELERATOR

    def add(total: Array, block: Array) -> tuple[Array, None]:
        subsets = errors.answers(block)
        return total + jnp.sum(subsets / jnp.sum(subsets, axis=0), axis=-1), None

    blocks = _in_blocks(drawn, most // (2**n * m))
    return jax.lax.scan(add, jnp.zeros((2**a, m), drawn.dtype), blocks)[0] / n_points


def _in_blocks(drawn: Array, most: int) -> Array:
    """Lay the points along a first axis of blocks, of at most ``most`` each; numbers of points are powers of two."""
    n_points = drawn.shape[-1]
    size = min(n_points, 1 << max(0, most.bit_length() - 1))
    return jnp.moveaxis(drawn.reshape(*drawn.shape[:3], n_points // size, size), 3, 0)


def _pair_table(marginal: Marginals) -> Array:
    """Return the exact table for two objects: E[Φ(z)] = Φ(μ / sqrt(1 + v)), and utilities are independent."""
    z = -marginal.mean[:, 0] / jnp.sqrt(1.0 + marginal.root[:, 0, 0] ** 2)  # first minus second
    logs = pair_logs(z)
    table = jnp.exp(jnp.stack([logs.dominates, logs.dominated, logs.incomparable])) + FLOOR
    return jnp.pad(table / jnp.sum(table, axis=0), ((1, 0), (0, 0)))


@program
def _drawn_answers(
    posterior: AnyPosterior, objects: Objects, normals: Array, chances: Chances, errors: ErrorModel = DISCERNIBILITY
) -> Answers:
    u = set_utilities(posterior, objects, normals.shape[-1]).sampled(normals)
    return mean_winners(u, chances) if isinstance(errors, BestInOne) else mean_answers(u, chances)


def log_likelihoods(
    posterior: AnyPosterior, objects: Objects, chosen: np.ndarray, normals: np.ndarray, errors: ErrorModel
) -> Array:
    """Return log p(C | A, u) for the chosen masks (a, m), per sample: (m, S).  Not to be traced."""
    # Utilities are put in order once they are drawn, so that different choices from one set are compared at the same
    # draws.
    order = _chosen_first(chosen, errors)
    return _log_likelihoods(posterior, objects, order, np.take_along_axis(chosen, order, 0), normals, errors)


def _chosen_first(chosen: np.ndarray, errors: ErrorModel) -> np.ndarray:
    """Return the places (a, m) of the objects in the order that the quick form of the likelihood wants.

    Chosen objects come first, then the threshold, which is the last object here.
    """
    rank = np.where(chosen, 0, 2)
    if errors.has_threshold:
        rank[-1] = 1
    return np.argsort(rank, axis=0, kind="stable")


@program
def _log_likelihoods(
    posterior: AnyPosterior, objects: Objects, order: Array, chosen: Array, normals: Array, errors: ErrorModel
) -> Array:
    drawn = set_utilities(posterior, objects, normals.shape[-1]).sampled(normals)
    d, a, m, n_points = drawn.shape
    present = jnp.ones(chosen.shape, bool)

    def of_block(block: Array) -> Array:
        u = jnp.take_along_axis(block, order[None, :, :, None], axis=1, mode="promise_in_bounds")
        return errors.sampled(u, present, chosen, posterior.lapse)

    blocks = _in_blocks(drawn, _BLOCK // (d * a * a * m * errors.n_nodes))
    return jnp.moveaxis(jax.lax.map(of_block, blocks), 0, 1).reshape(m, n_points)


@partial(program, static="n_samples")
def mean_of_logs(values: Array, n_samples: int) -> Array:
    """Return the log of the mean of likelihoods over samples (m,) from their logs (m, S)."""
    return jax.nn.logsumexp(values, axis=-1) - jnp.log(n_samples)


class ChoicePredictor(NamedTuple):
    """Predicts choices for the sets of a ChoiceData.

    Attributes
    ----------
    posterior : Posterior
    objects : Objects
        The rows of the data's table, as the posterior sees them.
    data : ChoiceData
    errors : ErrorModel
        Which objects are kept, and how people err.
    people : int array (m,) or None
        The person who is asked each set, as her place in a `PersonalPosterior`.
    """

    posterior: AnyPosterior
    objects: Objects
    data: ChoiceData
    errors: ErrorModel = DISCERNIBILITY
    people: np.ndarray | None = None

    @classmethod
    def of(cls, fitted: Fitted, data: ChoiceData, objects: Objects | None = None) -> "ChoicePredictor":
        """Predict by what a fit has learned; ``objects`` are the rows of the data's table, where they are at hand."""
        # Taken to the device once, not with every chunk of sets.
        posterior = jax.tree.map(jnp.asarray, fitted.posterior)
        return cls(posterior, fitted.objects(data) if objects is None else objects, data, fitted.errors)

    def _chunks(self) -> Iterator[tuple[Group, Objects]]:
        """Yield groups of sets and their objects, the threshold last where there is one."""
        hidden = int(self.errors.has_threshold)
        for group in groups(self.data, lambda a: _cells(a, hidden)):
            X, codes = self.objects.X[group.rows], self.objects.codes[group.rows]
            if hidden:
                X, codes = np.concatenate([X, X[:1]]), np.pad(codes, ((0, 1), (0, 0)), constant_values=THRESHOLD)
            yield group, Objects(X, codes, asked(self.people, self.data, group))

    def probabilities(self) -> list[np.ndarray]:
        """P(object is chosen), one array per set aligned with ``data.shown``."""
        (probability,) = self._of_shown(self._chances)
        return split_sets(probability, self.data.offsets)

    def choices(self) -> list[np.ndarray]:
        """Most probable choice from each set, as row numbers of ``data.X``."""
        (chosen,) = self._of_shown(self._best)
        return split_sets(self.data.flat_shown, self.data.offsets, chosen > 0)

    def of_shown(self) -> tuple[np.ndarray, np.ndarray]:
        """P(object is chosen) and whether the most probable choice has it, aligned with ``data.flat_shown``."""
        probability, chosen = self._of_shown(self._chances, self._best)
        return probability, chosen > 0

    def none(self) -> np.ndarray:
        """P(nothing is kept) of each set (m,)."""
        result = np.zeros(len(self.data))
        if self.errors.has_threshold:
            for group, objects in self._chunks():
                n, a = len(group.sets), len(group.rows)
                if a <= MAX_ENUMERATED:
                    result[group.sets] = self._table(objects)[0, :n]
                else:
                    nothing = np.mean(~np.any(self._answers(objects).drawn[:a, :n], axis=0), axis=-1)
                    lapse = 0.0 if self.posterior.lapse is None else float(self.posterior.lapse)
                    result[group.sets] = (1.0 - lapse) * nothing + lapse * 0.5**a
        return result

    def _of_shown(self, *parts: Callable[[Objects, np.ndarray | Answers], np.ndarray]) -> list[np.ndarray]:
        """Score the sets once, and lay end to end what each part makes of the scores: an array (a, m)."""
        results = [np.empty(len(self.data.flat_shown)) for _ in parts]
        for group, objects in self._chunks():
            n = len(group.sets)
            scores = self._table(objects) if len(group.rows) <= MAX_ENUMERATED else self._answers(objects)
            own, scores = jax.tree.map(lambda part, n=n: part[:, :n], (objects, scores))
            for result, part in zip(results, parts, strict=True):
                result[group.places[:, :n]] = part(own, scores)
        return results

    def _chances(self, objects: Objects, scores: np.ndarray | Answers) -> np.ndarray:
        a = len(objects.codes) - self.errors.has_threshold
        if isinstance(scores, Answers):
            lapse, inclusion = self.posterior.lapse, scores.inclusion[:a]
            # A random non-empty subset holds an object with probability 1/2, but for the empty one.
            lapsed = inclusion if lapse is None else inclusion + float(lapse) * (0.5 - inclusion)
            return np.clip(lapsed, 0.0, 1.0)
        member = (np.arange(2**a)[:, None] >> np.arange(a)) & 1
        return np.clip(member.T @ scores, 0.0, 1.0)

    def _best(self, objects: Objects, scores: np.ndarray | Answers) -> np.ndarray:
        if isinstance(scores, Answers):
            return self._best_proposed(objects, scores)
        a = len(objects.codes) - self.errors.has_threshold
        return (np.argmax(scores, axis=0)[None, :] >> np.arange(a)[:, None]) & 1 == 1

    def _table(self, objects: Objects) -> np.ndarray:
        points = points_for(self.posterior, objects.codes.shape[0], N_SAMPLES)
        return np.asarray(subset_table(self.posterior, objects, points, self.errors))

    def _answers(self, objects: Objects) -> Answers:
        a, d = len(objects.codes), self.posterior.n_utilities
        self.errors.check_size(a)
        points = points_for(self.posterior, a, _n_samples(a))
        chances = draw_chances(d, a, _n_samples(a), np.random.default_rng(1))
        return jax.tree.map(np.asarray, _drawn_answers(self.posterior, objects, points, chances, self.errors))

    def _best_proposed(self, objects: Objects, answers: Answers) -> np.ndarray:
        """Most likely of the subsets that samples propose, (a, m); object by object for very large sets."""
        hidden = int(self.errors.has_threshold)
        n, m = objects.codes.shape
        inclusion, drawn = (np.asarray(part) for part in answers)
        a = n - hidden
        if self.posterior.n_utilities == 1:
            return np.arange(a)[:, None] == np.argmax(inclusion, axis=0)
        best = probable(inclusion)[:a]
        if a > MAX_CONTENDERS:
            return best
        n_points = LARGE_SAMPLES if a <= _WELL_SAMPLED else 32
        normals = points_for(self.posterior, n, n_points)
        for column in range(m):
            tried = proposals(inclusion[:, column], drawn[:, column])
            if hidden:
                tried[-1] = False  # two proposals may differ in the threshold alone, which is not seen
                tried[:, -1] = False  # and nothing may be kept
            repeated = jax.tree.map(lambda of, k=column: np.repeat(of[:, k, None], N_PROPOSALS, 1), objects)
            values = log_likelihoods(self.posterior, repeated, tried, normals, self.errors)
            best[:, column] = tried[:a, int(np.argmax(mean_of_logs(values, n_points)))]
        return best

    def log_probabilities(self, *, normalized: bool) -> np.ndarray:
        """Log P(C(A) | A, training data) of the data's own choices (m,)."""
        if self.data.flat_chosen is None:
            raise ChoiceGPError("log_prob needs data with choices: these have none")
        result = np.empty(len(self.data))
        is_plain = isinstance(self.errors, Discernibility) and not self.errors.has_threshold
        most = MAX_SUMMED if is_plain else MAX_ENUMERATED
        for group, objects in self._chunks():
            a, m = group.rows.shape
            chosen = self.data.flat_chosen[group.places]
            # With one utility the likelihood is divided by its sum over single objects already, and with one winner of
            # each utility it sums to one.
            sums_to_one = isinstance(self.errors, BestInOne) or (is_plain and self.posterior.n_utilities == 1)
            is_divided = a > MAX_ENUMERATED and sums_to_one
            if len(objects.codes) == 1:
                logs = np.zeros(m)  # a set of one object, which is certain to be kept
            elif not normalized or is_divided:
                marks = np.pad(chosen, ((0, len(objects.codes) - a), (0, 0)))
                is_rare = MAX_ENUMERATED < a <= MAX_SUMMED and not sums_to_one
                logs = np.asarray(self._tempered(objects, marks).log_mean) if is_rare else self._scored(objects, marks)
            elif a <= MAX_ENUMERATED:
                table = self._table(objects)
                code = np.sum(chosen << np.arange(a)[:, None], axis=0)
                with np.errstate(divide="ignore"):
                    logs = np.log(table[code, np.arange(m)])
            elif a <= most:
                logs = self._divided(objects, chosen)
            else:
                raise ChoiceGPError(
                    f"set {self.data.set_ids[group.sets].tolist()[0]!r} has {a} objects: normalized log probabilities "
                    f"need the sum over all subsets, which is taken up to {most} objects; "
                    "use normalized=False"
                )
            possible = chosen.any(axis=0) | self.errors.has_threshold
            result[group.sets] = np.where(possible, logs, -np.inf)[: len(group.sets)]
        return result

    def _scored(self, objects: Objects, chosen: np.ndarray) -> np.ndarray:
        """Return the log of the mean likelihood of answers, log E[p], (m,)."""
        values = log_likelihoods(
            self.posterior, objects, chosen, points_for(self.posterior, len(chosen), SCORE_SAMPLES), self.errors
        )
        return np.asarray(mean_of_logs(values, SCORE_SAMPLES))

    def _tempered(self, objects: Objects, chosen: np.ndarray, *, lapses: bool = True) -> TemperedMeans:
        """Return the same for answers that few draws explain."""
        order, points = _chosen_first(chosen, self.errors), points_for(self.posterior, len(chosen), SCORE_SAMPLES)
        ordered, lapse = np.take_along_axis(chosen, order, 0), self.posterior.lapse if lapses else None
        return jax.tree.map(
            np.asarray, tempered_means(self.posterior, objects, order, ordered, points, lapse, self.errors)
        )

    def _divided(self, objects: Objects, chosen: np.ndarray) -> np.ndarray:
        """Divide the likelihood by its sum over all subsets: log E[p / Z], (m,).

        E[p / Z] = E[p] E[1 / Z | C], and Z varies little among draws that explain the answer: it is summed at few.
        """
        found = self._tempered(objects, chosen, lapses=False)
        logs = np.asarray(found.log_mean + mean_of_logs(-log_sums(found.utilities), N_LAST))
        if self.posterior.lapse is None:
            return logs
        lapse, a = float(self.posterior.lapse), len(chosen)
        return np.logaddexp(np.log1p(-lapse) + logs, np.log(lapse) - a * np.log(2.0) - np.log1p(-(0.5**a)))

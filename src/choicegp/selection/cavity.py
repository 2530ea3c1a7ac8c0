"""Cavity leave-one-out: take a set's own site out of its own posterior marginal.

The posterior is prior times one Gaussian site per set.  Dividing set k's site out of the marginal of its objects
leaves what all other sets say about them,

    S_-k = S + S P (I - S P)^-1 S,    m_-k = m - S_-k g,

and the likelihood of k's choice is averaged over that.  What this neglects is that the other sites were made with
k at hand.  The sets on which that matters have the largest gap between their scores with and without themselves:
those are fitted again without the set, until the corrections that are still to be expected are small against the
standard error.

A site acts on differences of utilities only, so everything is done with differences to the first object of a set.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from choicegp.compute.devices import in_threads
from choicegp.compute.programs import program
from choicegp.compute.progress import Clock
from choicegp.errors import ChoiceGPError
from choicegp.inference.expectation import Marginals, SharedCovariance, quasi_normals, samples, sobol_normals
from choicegp.inference.posterior import Posterior
from choicegp.inference.problem import Problem
from choicegp.inference.reduced import whole_roots
from choicegp.inference.sites import Sites, neighbours
from choicegp.inference.starts import covariance_at, recovered_sites
from choicegp.model.error_models import ErrorModel
from choicegp.selection.loo import CavityDiagnostics, LooResult, loo_result, standard_error
from choicegp.selection.settling import OwnSites, Settled, no_sites, settle

MOST_REFITS = 60
_N_POINTS = (16, 64, 256)  # of the expectations: least, usual and most, where a fit has 16
_FEW_NUMBERS, _MOST_NUMBERS = 100_000, 16_000_000  # in all points together, to have more or fewer than usual
_SCORE_POINTS = 1024
_BLOCK = 500_000  # numbers worked on at a time
_WIDTH = 16  # sets scored at a time
_UNSETTLED = 5e-2  # relative change of the sites
_ROUND = 4  # refits between two looks at what they changed
_SMALL = 0.1  # corrections still expected, as a share of the standard error
_DOUBTFUL = 0.25  # nats by which a set's score may be wrong


@program
def _log_scores(
    marginal: Marginals, present: Array, chosen: Array, normals: Array, lapse: Array | None, errors: ErrorModel
) -> Array:
    """Return the log of the mean likelihood (m,) of each set's choice under its own marginal."""
    d, n, _, n_points = normals.shape
    m = present.shape[1]

    def of_block(draws: Array) -> Array:
        u = samples(marginal, jnp.broadcast_to(draws, (d, n, m, draws.shape[-1])))
        return errors.sampled(u, present, chosen, lapse)

    size = min(n_points, _power_of_two(_BLOCK / (d * (n + 1) ** 2 * m * errors.n_nodes)))
    blocks = jnp.moveaxis(normals.reshape(d, n, 1, n_points // size, size), 3, 0)
    values = jax.lax.map(of_block, blocks)
    return jax.nn.logsumexp(values, axis=(0, 2)) - jnp.log(n_points)


class _Differences(NamedTuple):
    """Gaussians of the D = d (a - 1) utility differences inside sets: mean (m, D), root of the covariance (m, D, D)."""

    mean: np.ndarray
    root: np.ndarray


def own_marginals(posterior: Settled, rows: np.ndarray) -> _Differences:
    """Marginals of the differences to the first object of the sets whose objects are ``rows`` (a, m)."""
    mean = np.asarray(posterior.mean)
    if isinstance(posterior.covariance, SharedCovariance):
        inside = np.asarray(jax.tree.map(np.asarray, posterior.covariance).inside(rows))
    else:
        independent = np.asarray(posterior.covariance)[:, rows[:, None], rows[None, :]]
        inside = np.zeros((len(independent), *independent.shape))
        inside[range(len(inside)), range(len(inside))] = independent
    inside = np.moveaxis(inside, 4, 0)  # (m, d, d, a, a)
    to_first = inside[..., 1:, 1:] - inside[..., 1:, :1] - inside[..., :1, 1:] + inside[..., :1, :1]
    m, d, _, n, _ = to_first.shape
    values, vectors = np.linalg.eigh(np.swapaxes(to_first, 2, 3).reshape(m, d * n, d * n))
    root = vectors[..., ::-1] * np.sqrt(np.maximum(values[..., None, ::-1], 0.0))
    own = np.moveaxis(mean[:, rows], 2, 0)
    return _Differences((own[..., 1:] - own[..., :1]).reshape(m, d * n), root)


def sites_together(precision: np.ndarray, linear: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Turn sites (d, n, n, m), (d, n, m) of differences into sites of all utilities, (m, D, D) and (m, D)."""
    d, n, m = linear.shape
    whole = np.zeros((m, d, n, d, n))
    for i in range(d):
        whole[:, i, :, i] = np.moveaxis(precision[i], 2, 0)
    return whole.reshape(m, d * n, d * n), np.moveaxis(linear, 2, 0).reshape(m, d * n)


def cavities(own: _Differences, precision: np.ndarray, linear: np.ndarray) -> tuple[_Differences, np.ndarray]:
    """Take sites (m, D, D), (m, D) out of marginals; also the largest eigenvalue of S P of each set."""
    root_t = np.swapaxes(own.root, -1, -2)
    share, turn = np.linalg.eigh(root_t @ precision @ own.root)
    # Below 1 in exact arithmetic, because the site is part of the marginal.
    share = np.clip(share, 0.0, 1.0 - 1e-12)
    root = own.root @ turn / np.sqrt(1.0 - share[..., None, :])
    pull = (precision @ own.mean[..., None])[..., 0] - linear
    moved = (root @ (np.swapaxes(root, -1, -2) @ pull[..., None]))[..., 0]
    return _Differences(own.mean + moved, root), np.max(share, axis=1, initial=0.0)


class _Scores:
    """Scores sets under given marginals, on the same points whatever the marginals are."""

    def __init__(self, problem: Problem, n_utilities: int, lapse: Array | None) -> None:
        self.batches, self.lapse = problem.batches, lapse
        self.normals = [
            sobol_normals(n_utilities, batch.rows.shape[0] - 1, _SCORE_POINTS, np.random.default_rng(0))
            for batch in problem.batches
        ]

    def __call__(self, number: int, own: _Differences, columns: np.ndarray) -> np.ndarray:
        """Score the sets in ``columns`` of a batch; ``own`` holds the marginals of just these."""
        batch, scores = self.batches[number], np.zeros(len(columns))
        for start in range(0, len(columns), _WIDTH):
            # One width, hence one program, for many sets as for few.
            part = np.minimum(np.arange(start, start + _WIDTH), len(columns) - 1)
            shape = (*self.normals[number].shape[:2], len(part))
            mean, root = own.mean[part].T.reshape(shape), np.moveaxis(own.root[part], 0, 2)
            masks = (batch.present[:, columns[part]], batch.chosen[:, columns[part]])
            marginal = Marginals(mean, root)  # type: ignore[arg-type]
            scores[part] = _log_scores(marginal, *masks, self.normals[number], self.lapse, batch.errors)
        return scores


class CavityFits:
    """Fits the posterior at the hyperparameters of ``posterior``, to all sets or to all but one."""

    def __init__(self, posterior: Posterior, problem: Problem, seed: int = 0) -> None:
        d = posterior.n_utilities
        self.problem, self.lapse = problem, posterior.lapse
        self.normals = jax.tree.map(jnp.asarray, quasi_normals(problem, d, _n_points(d, problem), seed))
        self.roots = jnp.asarray(whole_roots(np.asarray(covariance_at(posterior.prior, problem)), problem.valid))
        among = neighbours(problem)
        precision, linear = recovered_sites(posterior, problem)
        first = Sites(jnp.asarray(among.of_matrices(np.asarray(precision))), linear)
        self.nothing = jax.tree.map(np.zeros_like, first)
        self.among = jax.tree.map(jnp.asarray, among)
        self.full = self._settled(tuple(no_sites(d, batch) for batch in problem.batches), first, problem)

    def _settled(self, sites: tuple[OwnSites, ...], more: Sites, problem: Problem) -> Settled:
        found = settle(sites, more, self.roots, problem, self.among, self.normals, self.lapse)
        settled = jax.tree.map(np.asarray, found)
        if not (np.isfinite(settled.change) and np.all(np.isfinite(settled.mean))):
            raise ChoiceGPError("leave-one-out failed: without a set the posterior has no finite mean")
        return settled

    def without(self, number: int, column: int) -> Settled:
        """Return the posterior without one set of one batch, started from the other sets' sites with all."""
        batches = list(self.problem.batches)
        weight = batches[number].weight.copy()
        weight[column] = 0.0
        batches[number] = batches[number]._replace(weight=weight)
        return self._settled(self.full.sites, self.nothing, self.problem._replace(batches=tuple(batches)))


def _n_points(d: int, problem: Problem) -> int:
    """Return how many points the expectations have: the more, the smaller the problem."""
    numbers = max(1, sum(d * (batch.rows.shape[0] - 1) * batch.rows.shape[1] for batch in problem.batches))
    least, usual, most = _N_POINTS
    n_points = min(max(_power_of_two(_FEW_NUMBERS / numbers), usual), most)
    return min(n_points, max(_power_of_two(_MOST_NUMBERS / numbers), least))


def _power_of_two(most: float) -> int:
    return 1 << max(0, int(most).bit_length() - 1)


def cavity_loo(
    posterior: Posterior, problem: Problem, n_sets: int, *, seed: int = 0, max_refits: int = MOST_REFITS,
    n_jobs: int = 1, notes: tuple[str, ...] = (), clock: Clock = Clock(None),  # noqa: B008 - immutable
) -> LooResult:  # fmt: skip
    """Leave out one set after the other, by cavities and, where these are not enough, by refits.

    Parameters
    ----------
    posterior : Posterior
        Its hyperparameters and lapse rate are kept.
    problem : Problem
        The training data.
    n_sets : int
        Number of sets of the data, including sets of one object.
    seed : int
        Of the points of the expectations.
    max_refits : int
        Maximum number of sets that are left out by a fit.
    n_jobs : int
        Threads that refit in parallel.
    notes : tuple of str
        Passed on to the result.
    clock : Clock
        Ends the refits.
    """
    fits = CavityFits(posterior, problem, seed)
    score = _Scores(problem, posterior.n_utilities, posterior.lapse)
    taken = _take_out(fits, score, n_sets)
    weight = taken.weight

    def refit(sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return _refitted(fits, score, [taken.place[int(k)] for k in sets], n_jobs)

    remedied = _remedy(weight * taken.inside, weight * taken.outside, weight, refit, max_refits, clock)
    gap = weight * taken.inside - remedied.scores
    diagnostics = CavityDiagnostics(gap, taken.leverage, taken.clipped, remedied.refitted)
    if float(fits.full.change) > _UNSETTLED:
        notes = (*notes, f"the posterior did not settle (its sites still change by {float(fits.full.change):.0%})")
    why = f"fits without them were not made (at most {max_refits}), or did not settle"
    return loo_result(remedied.scores, diagnostics, remedied.doubtful, why, notes)


class _TakenOut(NamedTuple):
    """Scores with and without each set's own site, and where a set stands: its batch and column."""

    inside: np.ndarray
    outside: np.ndarray
    leverage: np.ndarray
    clipped: np.ndarray
    weight: np.ndarray
    place: dict[int, tuple[int, int]]


def _take_out(fits: CavityFits, score: _Scores, n_sets: int) -> _TakenOut:
    """Take every set's own site out of its own marginal."""
    zeros = [np.zeros(n_sets) for _ in range(5)]
    result = _TakenOut(zeros[0], zeros[1], zeros[2], zeros[3], zeros[4], {})
    for number, (batch, sites) in enumerate(zip(fits.problem.batches, fits.full.sites, strict=True)):
        columns = np.flatnonzero(batch.sets >= 0)
        sets = batch.sets[columns]
        own = own_marginals(fits.full, batch.rows[:, columns])
        weighted = (batch.weight * sites.precision)[:, 1:, 1:, columns], (batch.weight * sites.linear)[:, 1:, columns]
        cavity, leverage = cavities(own, *sites_together(*weighted))
        values = (score(number, own, columns), score(number, cavity, columns), leverage, sites.clipped[columns])
        for whole, part in zip(result, (*values, batch.weight[columns]), strict=False):
            whole[sets] = part  # type: ignore[index]
        result.place.update({int(k): (number, int(column)) for column, k in zip(columns, sets, strict=True)})
    return result


def _refitted(
    fits: CavityFits, score: _Scores, places: list[tuple[int, int]], n_jobs: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores of some sets from fits without them, and whether these fits settled."""
    settled = in_threads(lambda place: fits.without(*place), places, n_jobs)
    batches = fits.problem.batches
    own = [own_marginals(one, batches[k].rows[:, [column]]) for one, (k, column) in zip(settled, places, strict=True)]
    scores = np.zeros(len(places))
    for number in {number for number, _ in places}:
        mine = [i for i, place in enumerate(places) if place[0] == number]
        together = _Differences(*(np.concatenate(part) for part in zip(*(own[i] for i in mine), strict=True)))
        scores[mine] = score(number, together, np.array([places[i][1] for i in mine]))
    return scores, np.array([float(posterior.change) < _UNSETTLED for posterior in settled])


class _Remedied(NamedTuple):
    scores: np.ndarray
    refitted: np.ndarray
    doubtful: np.ndarray


def _remedy(
    inside: np.ndarray, outside: np.ndarray, weight: np.ndarray, refit: Callable, most: int,
    clock: Clock = Clock(None),  # noqa: B008 - immutable
) -> _Remedied:  # fmt: skip
    """Refit the sets of the largest gaps, a few at a time, until little is left to correct.

    A correction grows with the gap; the newest ones show by what factor, and so what the other sets would get.
    """
    scores = outside.copy()
    gap = np.maximum(inside - outside, 0.0)
    order = np.argsort(-gap, kind="stable")
    order = order[weight[order] > 0]
    refitted, failed = np.zeros(len(gap), bool), np.zeros(len(gap), bool)
    done, factor = 0, 1.0

    def much_is_left() -> bool:
        return factor * gap[order[done:]].sum() > _SMALL * standard_error(scores)

    while done < min(most, len(order)) and much_is_left() and not clock.is_up:
        newest = order[done : min(done + _ROUND, most)]
        values, settled = refit(newest)
        corrected = weight[newest] * values
        factor = np.abs(corrected - outside[newest]).sum() / max(gap[newest].sum(), 1e-12)
        scores[newest], refitted[newest], failed[newest] = corrected, True, ~settled
        done += len(newest)
    left = order[done:]
    # Where the newest corrections promised little, none of the rest is in doubt.
    in_doubt = left[factor * gap[left] > _DOUBTFUL] if much_is_left() else left[:0]
    return _Remedied(scores, refitted, np.sort(np.concatenate([in_doubt, np.flatnonzero(failed)])))

"""Joint draws of the utilities of all people of a study, at any objects."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from choicegp.compute.programs import program
from choicegp.fitting.record import Fitted
from choicegp.inference.respondents.personal import PersonalDraws, PersonalPosterior
from choicegp.inference.respondents.posterior import NEW, StudyPosterior
from choicegp.model.prior import Objects
from choicegp.prediction.utilities import joint_samples


def utilities_of_people(
    fitted: Fitted, objects: Objects, n_draws: int, random_state: int, people: np.ndarray | None = None
) -> np.ndarray:
    """Return joint draws (S, R, n, d) of the utilities of people at objects.

    In each draw all people belong to one population.  ``people`` are numbers of respondents, -1 for a new one; by
    default all respondents.  A model that pools all answers knows one person.
    """
    study = fitted.study
    if study is None:
        drawn = joint_samples(fitted.posterior, objects, n_draws, random_state)
        return np.repeat(drawn[:, None], 1 if people is None else len(people), axis=1)
    people = np.arange(len(study.ids)) if people is None else people
    rng = np.random.default_rng(random_state)
    if study.draws is not None:
        return _continued(study, objects, n_draws, rng, people)
    population = study.mean + rng.normal(size=(n_draws, len(study.mean))) @ study.root
    order = study.prior.n_utilities * len(objects.X)
    result = np.empty((n_draws, len(people), len(objects.X), study.prior.n_utilities))
    places = study.places_of(people)
    for crowd in np.unique(places[:, 0]).tolist():
        mine = np.flatnonzero(places[:, 0] == crowd)
        # New people differ in every draw.
        posterior = study.of_crowd(crowd, *_who(study, crowd, places[mine, 1], rng))
        normals = rng.normal(size=(len(posterior.gain), n_draws, order))
        drawn = np.asarray(_drawn(jax.tree.map(jnp.asarray, posterior), objects, population, normals))
        result[:, mine] = np.swapaxes(drawn[: len(mine)], 0, 1)
    return result


def _continued(
    study: StudyPosterior, objects: Objects, n_draws: int, rng: np.random.Generator, people: np.ndarray
) -> np.ndarray:
    """Do the same where people were sampled: each sample continues one draw of all of them."""
    assert study.draws is not None
    n_settings, n_each = study.draws.population.shape[:2]
    used = np.unique(np.linspace(0, n_settings - 1, min(n_settings, n_draws)).astype(int))
    k = -(-n_draws // len(used))  # samples of each setting, the same for all: one program serves them
    # Every draw once before any is used twice.
    picked = [np.concatenate([rng.permutation(n_each) for _ in range(-(-k // n_each))])[:k] for _ in used]
    d = study.prior.n_utilities
    result = np.empty((len(used), k, len(people), len(objects.X), d))
    places = study.places_of(people)
    for crowd in np.unique(places[:, 0]).tolist():
        mine = np.flatnonzero(places[:, 0] == crowd)
        whole = study.drawn_crowd(crowd, *_who(study, crowd, places[mine, 1], rng))
        for number, h in enumerate(used):
            one = whole.of_setting(h, picked[number])
            normals = rng.normal(size=(len(one.own), k, d * len(objects.X)))
            drawn = np.asarray(_continued_draws(one, objects, normals))
            result[number][:, mine] = np.swapaxes(drawn[: len(mine)], 0, 1)
    order = rng.permutation(len(used) * k)[:n_draws]
    return result.reshape(len(used) * k, *result.shape[2:])[order]


def _who(
    study: StudyPosterior, crowd: int, places: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return the places of known people, or the covariates of new ones, which are like those of respondents."""
    if crowd != NEW:
        return places, None
    return None, study.covariates_of(rng.integers(len(study.ids), size=len(places)))


@program
def _continued_draws(posterior: PersonalDraws, objects: Objects, normals: Array) -> Array:
    return posterior.drawn(objects, normals)


@program
def _drawn(posterior: PersonalPosterior, objects: Objects, population: Array, normals: Array) -> Array:
    return posterior.drawn(objects, population, normals)

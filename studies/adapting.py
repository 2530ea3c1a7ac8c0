"""Where `adapt` loses against a whole fit: steps between the two, on development studies.

50 people with 5 sets, then 25 further ones, as in the protocol of `respondents.py`; exact accuracy and log score on 10
test sets of each of the 25, and the bound.  "joint": everyone again, from the population that `adapt` is given, with
the hyperparameters held or learned; "learned" is what a whole fit does after its first people.  "people again": the new
people start anew twice, given what they have said about the population.  "adapt, to the whole
without them": what 25 people say is taken out of a whole fit, and learned again.

python studies/adapting.py [--seeds 2] [--first 200] [--between 0.2 0.5 0.8] [--rows 3]
"""

import argparse
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
from respondents import OPTIONS, parts, scores

from choicegp import ChoiceData, ChoiceGP, datasets
from choicegp.compute.devices import computing, linear_algebra_for
from choicegp.compute.progress import Clock
from choicegp.fitting import adapting
from choicegp.fitting.options import FitOptions
from choicegp.fitting.respondents import gathered, infer_study, numbered_respondents, posterior_of, started_anew
from choicegp.inference.driver import Learning, Task, Watch
from choicegp.inference.respondents.course import InferredStudy, StudyInference
from choicegp.inference.respondents.posterior import CrowdSites
from choicegp.inference.respondents.steps import Population
from choicegp.inference.respondents.study import Known, studied
from choicegp.inference.sites import Sites


def anew(inference: StudyInference) -> InferredStudy:
    """Let people start anew twice, given what they have said about the population."""
    return started_anew(inference, infer_study(inference), 2)


def joint(model: ChoiceGP, prior: Any, data: ChoiceData, *, learn: bool, n_restarts: int) -> ChoiceGP:
    """Fit everyone again, from the known population, with these hyperparameters held or learned."""
    fitted = model.fitted_
    before = fitted.study
    assert before is not None
    options = FitOptions.validated(model.get_params(deep=False))._replace(object_effects=False).decided(data)
    people, ids = numbered_respondents(data)
    codes: dict[Any, int] = {}
    numbers = np.array([codes.setdefault(i, len(codes)) for i in data.object_ids])
    X = (data.X - fitted.centre) / fitted.scale
    objects, answers = gathered(data, X, numbers, people, options.errors, effects=False)
    study = studied(objects, before.points, answers, len(ids), before.prior.n_utilities)
    learning = Learning(options.hyperpriors_for(X.shape[1]) if learn else None, learn_lapse=False, learn_prior=learn)
    task = Task(before.prior.population, None, learning, Watch(Clock(None)), 1, 90, 0.02, 0.0, 0)  # type: ignore[arg-type]
    root = before.root
    population = Population(before.mean, root, np.asarray(-2.0 * np.linalg.slogdet(root)[1]))  # type: ignore[arg-type]
    with computing(), linear_algebra_for(len(before.mean)):
        found = infer_study(StudyInference(task, study, (prior, population), n_restarts=n_restarts))
    posterior = posterior_of(found, study, ids)
    later = fitted._replace(posterior=posterior.population(), codes=codes, data=data, study=posterior, elbo=found.elbo)
    return ChoiceGP(**model.get_params(deep=False))._keep(later)


def at_prior(model: ChoiceGP, prior: Any) -> ChoiceGP:
    """Return a model with other hyperparameters, and the population that its people's sites then make."""
    study = model.fitted_.study
    assert study is not None
    study = study._replace(prior=prior)
    said = [study.said_by(crowd, np.arange(len(crowd.people))) for crowd in study.crowds]
    order = len(study.mean)
    known = Known(np.eye(order) + sum(own for own, _ in said), np.zeros(order) + sum(own for _, own in said))
    mean, root, _ = adapting.population_of(known)
    study = study._replace(mean=np.asarray(mean), root=np.asarray(root))
    later = model.fitted_._replace(study=study, posterior=study.population())
    return ChoiceGP(**model.get_params(deep=False))._keep(later)


def before_them(model: ChoiceGP, data: ChoiceData) -> ChoiceGP:
    """Return a model without the people of ``data``; the sites of all others stay."""
    fitted = model.fitted_
    study = fitted.study
    assert study is not None
    theirs = numbered_respondents(data)[1]
    mean, root, _ = adapting.population_of(adapting.known_without(study, theirs))
    stays = [number for number, respondent in enumerate(study.ids) if respondent not in set(theirs)]
    crowds = []
    for crowd in study.crowds:
        kept = np.flatnonzero(np.isin(crowd.people, stays))
        if len(kept):
            sites = Sites(crowd.sites.precision[kept], crowd.sites.linear[kept])
            crowds.append(CrowdSites(np.searchsorted(stays, crowd.people[kept]), crowd.rows[kept], sites))
    ids = tuple(study.ids[number] for number in stays)
    study = study._replace(mean=np.asarray(mean), root=np.asarray(root), crowds=tuple(crowds), ids=ids)
    others = np.flatnonzero([respondent not in set(theirs) for respondent in np.asarray(fitted.data.respondents)])
    later = fitted._replace(study=study, posterior=study.population(), data=fitted.data.take(others))
    return ChoiceGP(**model.get_params(deep=False))._keep(later)


def models(train: ChoiceData, fresh: ChoiceData, seed: int) -> Iterator[tuple[str, ChoiceGP]]:
    """Yield models that know the fresh people, in the order in which they are of interest."""
    model = ChoiceGP(2, respondents="hierarchical", random_state=seed, **OPTIONS).fit(train)
    both, known = ChoiceData.concat([train, fresh]), model.fitted_.study
    assert known is not None
    yield "adapt", model.adapt(fresh)
    adapting.infer_study = anew
    again = model.adapt(fresh)
    adapting.infer_study = infer_study
    yield "adapt, people again", again
    whole = ChoiceGP(2, respondents="hierarchical", random_state=seed, **OPTIONS).fit(both)
    found = whole.fitted_.study
    assert found is not None
    yield "whole", whole
    yield "joint, learned", joint(model, known.prior, both, learn=True, n_restarts=3)
    yield "adapt, to the whole without them", before_them(whole, fresh).adapt(fresh)
    yield "adapt, prior of the whole", at_prior(model, found.prior).adapt(fresh)
    yield "joint, held", joint(model, known.prior, both, learn=False, n_restarts=3)
    yield "joint, of the whole", joint(model, found.prior, both, learn=False, n_restarts=3)


def main() -> None:
    """Print exact accuracy, log score and bound, and seconds since the row before."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first", type=int, default=200)
    parser.add_argument("--between", type=float, nargs="+", default=[0.2, 0.5, 0.8])
    parser.add_argument("--rows", type=int, help="the first of the models alone")
    options = parser.parse_args()
    for seed in range(options.first, options.first + options.seeds):
        for between in options.between:
            study = datasets.many_people(75, 25, between, seed).data
            train, _ = parts(study, 5, 0, 50)
            fresh, unseen = parts(study, 5, 50, 75)
            began = time.perf_counter()
            with computing():
                for name, model in islice(models(train, fresh, seed), options.rows):
                    right, logs = scores(model, unseen)
                    print(f"| {seed} | {between} | {name} | {right:.3f} | {logs:.3f} | {model.elbo_:.1f} | "
                          f"{time.perf_counter() - began:.0f} s |", flush=True)  # fmt: skip
                    began = time.perf_counter()


if __name__ == "__main__":
    main()

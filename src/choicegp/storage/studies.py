"""The part of a model file that holds what is known about many people."""

from typing import Any

import jax
import numpy as np
import pandas as pd

from choicegp.data.covariates import CovariateCoding
from choicegp.inference.respondents.posterior import CrowdSites, PeopleDraws, StudyPosterior
from choicegp.inference.sites import Sites
from choicegp.model.prior import Objects, UtilityPrior
from choicegp.model.respondents import StudyPrior
from choicegp.reading.encoding import FeatureEncoding
from choicegp.storage.archive import leaves_of, numbered, plain_ids

_OF_CROWD = ("people", "rows", "precision", "linear")


def packed_study(study: StudyPosterior) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arrays of a study, less the population's prior and the lapse rate, and its entry of the page."""
    arrays: dict[str, Any] = {
        "study_ratio": study.prior.log_ratio, "study_threshold": study.prior.log_own_threshold_variance,
        "study_points_X": study.points.X, "study_points_codes": study.points.codes, "study_mean": study.mean,
        "study_root": study.root, "study_X": study.objects.X, "study_codes": study.objects.codes,
    }  # fmt: skip
    for number, crowd in enumerate(study.crowds):
        parts = (crowd.people, crowd.rows, *crowd.sites)
        arrays |= {f"crowd_{name}_{number}": part for name, part in zip(_OF_CROWD, parts, strict=True)}
    if study.draws is not None:
        arrays |= leaves_of("people_prior", study.draws.prior) | {"people_population": study.draws.population}
        arrays |= {f"people_own_{number}": own for number, own in enumerate(study.draws.people)}
    page: dict[str, Any] = {
        "respondents": plain_ids(study.ids),
        "n_crowds": len(study.crowds),
        "alone": study.prior.alone,
    }
    if study.covariates is not None:
        arrays |= {"covariates_mean": study.covariates.mean, "covariates_scale": study.covariates.scale}
        page["covariates"] = study.covariates.encoding.to_json()
    return arrays, {"study": page}


def unpacked_study(arrays: dict[str, Any], page: dict[str, Any], prior: UtilityPrior, lapse: Any) -> StudyPosterior:
    """Make the study of what `packed_study` returned."""
    own = page["study"]
    of_people = StudyPrior(prior, arrays["study_ratio"], arrays.get("study_threshold"), own["alone"])
    crowds = []
    for number in range(own["n_crowds"]):
        people, rows, precision, linear = (arrays[f"crowd_{name}_{number}"] for name in _OF_CROWD)
        crowds.append(CrowdSites(people, rows, Sites(precision, linear)))
    n_people = sum(len(crowd.people) for crowd in crowds)
    everyone = np.sort(np.concatenate([crowd.people for crowd in crowds]))
    # A file from elsewhere must not make later look-ups read the wrong person.
    if n_people != len(own["respondents"]) or not np.array_equal(everyone, np.arange(n_people)):
        raise ValueError("the respondents do not agree with their answers")
    points = Objects(arrays["study_points_X"], arrays["study_points_codes"])
    objects = Objects(arrays["study_X"], arrays["study_codes"])
    draws = None
    if "people_population" in arrays:
        leaves, like = jax.tree.flatten(of_people)
        settings = jax.tree.unflatten(like, numbered(arrays, "people_prior", len(leaves)))
        each = tuple(arrays[f"people_own_{number}"] for number in range(len(crowds)))
        draws = PeopleDraws(settings, arrays["people_population"], each)
    return StudyPosterior(
        of_people, points, arrays["study_mean"], arrays["study_root"], objects, tuple(crowds),
        tuple(own["respondents"]), lapse, draws, _coding(arrays, own),
    )  # fmt: skip


def _coding(arrays: dict[str, Any], page: dict[str, Any]) -> CovariateCoding | None:
    if "covariates" not in page:
        return None
    encoding = FeatureEncoding.from_json(page["covariates"])
    return CovariateCoding(encoding, arrays["covariates_mean"], arrays["covariates_scale"])


def packed_covariates(frame: pd.DataFrame) -> dict[str, Any]:
    """Return covariates of respondents as an entry of the page."""
    columns = {str(name): plain_ids(column) for name, column in frame.items()}
    return {"respondents": plain_ids(frame.index), "columns": columns}


def unpacked_covariates(entry: dict[str, Any]) -> pd.DataFrame:
    """Make the table of what `packed_covariates` returned."""
    return pd.DataFrame(entry["columns"], index=pd.Index(entry["respondents"], dtype=object))

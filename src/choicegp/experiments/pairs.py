"""What experiments with pairs of objects share: the models of preferences, and the score that all models can have."""

import numpy as np

from choicegp import ChoiceData, ChoiceGP, GeneralPreferenceGP, PairGP, PreferenceGP

PreferenceModel = type[PreferenceGP] | type[GeneralPreferenceGP] | type[PairGP]
PREFERENCES: dict[str, PreferenceModel] = {"PGP": PreferenceGP, "GPGP": GeneralPreferenceGP, "PairGP": PairGP}


def chosen_objects(data: ChoiceData) -> tuple[np.ndarray, ...]:
    """Return what was chosen from each set."""
    assert data.chosen is not None
    return data.chosen


def decided(data: ChoiceData) -> ChoiceData | None:
    """Return the pairs of which one object was chosen; None where there are none."""
    alone = np.array([len(rows) == 1 for rows in chosen_objects(data)])
    return data[alone] if alone.any() else None


def common_accuracy(model: ChoiceGP, pairs: ChoiceData) -> float:
    """Return the share of decided pairs whose chosen object has the larger probability to be chosen."""
    found = [
        probability[rows == own[0]][0] > probability[rows != own[0]][0]
        for probability, rows, own in zip(model.predict_proba(pairs), pairs.shown, chosen_objects(pairs), strict=True)
    ]
    return float(np.mean(found))

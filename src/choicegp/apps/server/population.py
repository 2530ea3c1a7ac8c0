"""What a worker learns from all people: as if they were one, and as many who differ (shares and segments)."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from choicegp.apps.server.learning import Learner, saved, what_was_learned
from choicegp.apps.server.results import Learned, LearnedPeople, Segment, Share
from choicegp.apps.server.standing import Standing
from choicegp.checks import plain

if TYPE_CHECKING:
    from choicegp.data.choices import ChoiceData
    from choicegp.estimators.choice_gp import ChoiceGP
    from choicegp.prediction.segments import Segments

LEAST_PEOPLE = 6
"""Fewer people have no segments."""
_OFFERED = 10  # objects of which shares are estimated: the answers of as many can be enumerated
_SEGMENTS = (2, 3, 4)
_PEOPLE_IN_ONE = 3  # at least, on average
_MOST_CRITERIA = 3
_SECONDS = 120.0  # of one fit


def pooled(learner: Learner, people: Mapping[str, Standing]) -> Learned:
    """Say what all answers show, as if they were one person's."""
    model = _fitted(learner, "pooled", _data(learner, people))
    return what_was_learned(model, learner.objects, learner.setup, None)


def separate(learner: Learner, people: Mapping[str, Standing]) -> LearnedPeople:
    """Say what people would keep, who is like whom, and how many criteria their answers show.

    Every person has utilities of her own, which are similar to the others' as far as the answers say so.
    """
    from choicegp.apps.server.pictures import people_pictures
    from choicegp.prediction.segments import stability_in_words

    data = _data(learner, people)
    model = _fitted(learner, "hierarchical", data)
    offered = [plain(one) for one in model.recommend(learner.objects, min(_OFFERED, len(learner.objects))).index]
    shares = model.shares({"offered together": learner.objects.loc[offered]})
    found = _segmented(model, len(people))
    kinds: tuple[Segment, ...] = ()
    stability = ""
    if found is not None:
        labels = learner.setup.words_in(None)["labels"]
        members = found.people.groupby("segment")["respondent"].apply(list)
        rows = found.table[["segment", "share", "in_words"]].itertuples(index=False)
        kinds = tuple(
            Segment(int(number), float(share), _labelled(words, labels), tuple(map(str, members[number])))
            for number, share, words in rows
        )
        stability = f"{found.stability:.2f}: {stability_in_words(found.stability)}"
    columns = ["object", "kept", "kept_lower", "kept_upper", "taken"]
    return LearnedPeople(
        sum(len(now.shown) for now in people.values()),
        len(people),
        *_criteria(learner, data),
        tuple(Share(str(name), *map(float, numbers)) for name, *numbers in shares[columns].itertuples(index=False)),
        kinds,
        stability,
        people_pictures(shares, found),
        saved(model),
    )


def _segmented(model: "ChoiceGP", n_people: int) -> "Segments | None":
    """Return the most stable segments of a few numbers of them; None for few people."""
    if n_people < LEAST_PEOPLE:
        return None
    tried = [model.segments(k) for k in _SEGMENTS if k == _SEGMENTS[0] or n_people >= _PEOPLE_IN_ONE * k]
    # A person alone is no segment.
    return max(tried, key=lambda found: (found.table["people"].min() > 1, found.stability))


def _labelled(words: str, labels: Mapping[str, str]) -> str:
    """Call columns as the cards do."""
    names = "|".join(sorted(map(re.escape, labels), key=len, reverse=True))
    return re.sub(rf"\b({names})\b", lambda found: labels[found[0]], words) if names else words


def _criteria(learner: Learner, data: "ChoiceData") -> tuple[int, str]:
    """Return how many criteria the answers of all show, and why."""
    from choicegp.estimators.n_utilities import select_n_utilities

    found = select_n_utilities(data, _MOST_CRITERIA, **_options(learner))
    return found.n_utilities, found.reason


def _fitted(learner: Learner, respondents: str, data: "ChoiceData") -> "ChoiceGP":
    from choicegp.data.packing import padded_generously
    from choicegp.estimators.choice_gp import ChoiceGP

    with padded_generously(32, 1):  # there will be more answers the next time
        return ChoiceGP(learner.setup.utilities, respondents=respondents, **_options(learner)).fit(data)


def _options(learner: Learner) -> dict[str, Any]:
    own = {"threshold": learner.setup.threshold, "max_seconds": _SECONDS}
    return {"intervals": "none", "object_effects": False, "n_jobs": 1, "progress": False, **own}


def _data(learner: Learner, people: Mapping[str, Standing]) -> "ChoiceData":
    from choicegp.data.choices import ChoiceData

    return ChoiceData.from_sets(
        learner.objects,
        [shown for now in people.values() for shown in now.shown],
        [chosen for now in people.values() for chosen in now.chosen],
        by="id",
        respondents=[name for name, now in people.items() for _ in now.shown],
        empty="none" if learner.setup.threshold else "error",
        missing="level",
    )

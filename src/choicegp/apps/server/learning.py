"""What a worker does: models of people, the sets to show them next, and what their answers say."""

import math
import random
import warnings
from collections import OrderedDict
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, NamedTuple

from choicegp.apps.server.results import Driver, Learned, Proposal, Setup
from choicegp.checks import plain
from choicegp.elicitation.events import ObjectId

if TYPE_CHECKING:
    import pandas as pd

    from choicegp.data.choices import ChoiceData
    from choicegp.elicitation.refitting import Current
    from choicegp.estimators.choice_gp import ChoiceGP
    from choicegp.evaluation.effects import Effects

N_SHORT = 5
LEAST_AHEAD, _MOST_AHEAD = 3, 12
_MOST_DRIVERS = 4
_NEGLIGIBLE = 0.15  # share of the largest effect below which a feature is not worth a word
_MOST_MODELS = 200
_N_PROBES = 16
_SECONDS = 2.0  # of a refit
#: Starts of a fit from scratch for the next sets.  With 4 in place of 9 (8 simulated people) the CPU time fell from 1.0
#: to 0.35 s after 8 answers and from 1.3 to 0.45 s after 20; the accuracy on new sets from 0.56 to 0.52 after 20.
_FEW_STARTS = 4
_DESIGN_SECONDS = 0.75  # of the search for all next sets of a person
_MOST_DRAWN = 2000


class LearningTask(NamedTuple):
    """Answers of a person to learn from."""

    person: int
    shown: tuple[tuple[ObjectId, ...], ...]
    chosen: tuple[tuple[ObjectId, ...], ...]
    asked: frozenset[frozenset[ObjectId]] = frozenset()
    language: object = None


class Learner:
    """Models of the people of one study, as far as this process knows them.

    Parameters
    ----------
    setup : Setup
    objects : DataFrame
        The features that are learned from, one row per object.
    """

    def __init__(self, setup: Setup, objects: "pd.DataFrame") -> None:
        from choicegp.data.choices import ChoiceData
        from choicegp.elicitation.refitting import Refitter
        from choicegp.estimators.choice_gp import ChoiceGP

        # What is predicted outside of the training range is not news to anybody here.
        warnings.simplefilter("ignore")
        self.setup, self.objects = setup, objects
        rng, n = random.Random(0), len(objects)
        sets = [rng.sample(range(n), setup.set_size) for _ in range(_N_PROBES)]
        # Not "auto": the design must know of "none of these" before somebody answers it for the first time.
        options: dict[str, Any] = {"threshold": setup.threshold, "n_jobs": 1, "progress": False}
        self._whole = ChoiceGP(setup.utilities, intervals="none", object_effects=False, **options)
        quick = ChoiceGP(**self._whole.get_params() | {"n_restarts": _FEW_STARTS})
        probe = ChoiceData.from_sets(objects, sets, missing="level")
        self._refitter: Refitter = Refitter(quick, _SECONDS, probe)
        self._seen: OrderedDict[int, None] = OrderedDict()

    @property
    def fits(self) -> bool:
        """Whether the design needs models."""
        return self.setup.design not in ("random", "space-filling")

    def first_sets(self, n_people: int, n_sets: int) -> list[list[Proposal]]:
        """Return sets for people of whom nothing is known: each of them sees objects that differ much."""
        from choicegp.elicitation.design import next_sets

        how = "random" if self.setup.design == "random" else "space-filling"
        size = self.setup.set_size
        return [
            [_proposal(one) for one in next_sets(None, self.objects, n_sets, size, how=how, random_state=i)]
            for i in range(n_people)
        ]

    def warm_up(self, n_objects: int) -> None:
        """Compile what models of this many objects need before a person waits for one: a nobody answers at random."""
        rng, labels, size = random.Random(1), [plain(one) for one in self.objects.index], self.setup.set_size
        labels = rng.sample(labels, min(n_objects - bool(self.setup.threshold), len(labels)))  # a threshold is one more
        shown = tuple(tuple(labels[i : i + size]) for i in range(0, len(labels) - size + 1, size))
        chosen = [tuple(rng.sample(one, rng.randint(1, len(one)))) for one in shown]
        if self.setup.threshold:
            chosen[-1] = ()
        self.next_sets(LearningTask(-1, shown, tuple(chosen), frozenset(map(frozenset, shown))), LEAST_AHEAD)
        self.forget([-1])

    def next_sets(self, task: LearningTask, n_since: int) -> list[Proposal]:
        """Fit a person's answers and return the sets to show next, the best first.

        Parameters
        ----------
        task : LearningTask
        n_since : int
            How many answers she gave since sets were prepared for her the last time: with many people, as many sets
            and half more are needed until her next turn.
        """
        from choicegp.elicitation.design import next_sets

        setup = self.setup
        n = min(max(LEAST_AHEAD, math.ceil(1.5 * n_since)), _MOST_AHEAD, max(setup.sets - len(task.asked), 1))
        model = self._fitted(task).roomy if self.fits else None
        found = next_sets(
            model, self.objects, n, setup.set_size, how=setup.design, avoid=task.asked, seconds=_DESIGN_SECONDS / n,
            random_state=len(task.asked),
        )  # fmt: skip
        return [_proposal(one, f"{len(task.shown)} answers") for one in found]

    def explain(self, task: LearningTask) -> Learned:
        """Say what a person's answers show, by a fit from all starts."""
        from choicegp.data.packing import padded_generously
        from choicegp.estimators.choice_gp import ChoiceGP

        with padded_generously():
            model = ChoiceGP(**self._whole.get_params()).fit(self._data(task))
        return what_was_learned(model, self.objects, self.setup, task.language)

    def known(self) -> set[int]:
        """Return the people whose models are kept."""
        return set(self._seen)

    def forget(self, people: Collection[int]) -> None:
        """Forget the models of people."""
        for person in people:
            self._seen.pop(person, None)
            self._refitter.forget(person)

    def _fitted(self, task: LearningTask) -> "Current":
        """Return the model of these answers, started from the last one."""
        from choicegp.elicitation.refitting import Answered

        answers = hash((task.shown, task.chosen))
        self._refitter.request(task.person, lambda: Answered(self._data(task), answers))
        self._refitter.wait()
        self._seen[task.person] = None
        self._seen.move_to_end(task.person)
        while len(self._seen) > _MOST_MODELS:
            self.forget([next(iter(self._seen))])
        found = self._refitter.current(task.person)
        assert found is not None
        return found

    def _data(self, task: LearningTask) -> "ChoiceData":
        from choicegp.data.choices import ChoiceData

        return ChoiceData.from_sets(
            self.objects, task.shown, task.chosen, by="id", empty="none" if self.setup.threshold else "error",
            missing="level",
        )  # fmt: skip


def what_was_learned(model: "ChoiceGP", objects: "pd.DataFrame", setup: Setup, language: object) -> Learned:
    """Say what a model has learned."""
    from choicegp.apps.server.pictures import matters, owner_pictures
    from choicegp.data.packing import padded_generously
    from choicegp.elicitation.refitting import with_room
    from choicegp.evaluation.effects import model_effects

    with padded_generously():
        roomy = with_room(model)
    effects = model_effects(roomy)
    best = roomy.recommend(objects, min(N_SHORT, len(objects)))
    words = setup.words_in(language)
    drivers = tuple(_drivers(effects, i) for i in range(model.n_utilities_))
    sizes = effects.relevance.mean.max(axis=0)
    order = sorted(range(len(sizes)), key=lambda j: -sizes[j])
    names = [effects.names[j] for j in order]
    bars = [(words["labels"].get(name, name), sizes[j]) for name, j in zip(names, order, strict=True)]
    pictures = {"matters": matters(bars, words["axis"])}
    pictures |= owner_pictures(roomy, effects, objects.iloc[:_MOST_DRAWN])
    shortlist = tuple((plain(label), float(p)) for label, p in best["probability"].items())
    return Learned(len(model.fitted_.data), drivers, tuple(names), shortlist, pictures, saved(model))


def saved(model: "ChoiceGP") -> bytes:
    """Return the file of a model."""
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model.cgp")
        return (Path(folder) / "model.cgp").read_bytes()


def _drivers(effects: "Effects", utility: int) -> tuple[Driver, ...]:
    sizes = effects.relevance.mean[utility]
    order = sorted(range(len(sizes)), key=lambda j: -sizes[j])
    return tuple(
        Driver(effects.names[j], str(effects.direction[utility, j]), plain(effects.best[utility, j]), float(sizes[j]))
        for j in order[:_MOST_DRIVERS]
        if sizes[j] >= _NEGLIGIBLE * sizes.max() and effects.direction[utility, j] != "unclear"
    )


def _proposal(one: Any, model: str | None = None) -> Proposal:
    return Proposal(one.shown, one.how, None if math.isnan(one.value) else float(one.value), one.reason, model)

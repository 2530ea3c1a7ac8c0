"""What the computing process does: models of people, the sets to show them next, and what their answers say."""

import math
import random
import tempfile
import warnings
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from choicegp.checks import plain
from choicegp.elicitation.events import ObjectId

if TYPE_CHECKING:
    import pandas as pd

    from choicegp.data.choices import ChoiceData
    from choicegp.elicitation.refitting import Current, Refitter
    from choicegp.evaluation.effects import Effects

N_SHORT = 5
N_AHEAD = 3
_MOST_DRIVERS = 4
_NEGLIGIBLE = 0.15  # share of the largest effect below which a feature is not worth a word
_MOST_MODELS = 200
_N_PROBES = 16
_N_WARM = 6
_SECONDS = 2.0
_MOST_DRAWN = 2000


class Setup(NamedTuple):
    """What stays the same during a study."""

    objects: "pd.DataFrame"
    set_size: int
    design: str
    utilities: int
    threshold: bool


class Task(NamedTuple):
    """Answers to learn from; ``person`` is None for all people together, ``words`` what the picture says."""

    person: int | None
    shown: tuple[tuple[ObjectId, ...], ...]
    chosen: tuple[tuple[ObjectId, ...], ...]
    asked: frozenset[frozenset[ObjectId]] = frozenset()
    labels: tuple[tuple[str, str], ...] = ()
    axis: str = ""


class Proposal(NamedTuple):
    """A set to show, and why."""

    shown: tuple[ObjectId, ...]
    design: str
    value: float | None = None
    reason: str | None = None
    model: str | None = None


class Driver(NamedTuple):
    """What a feature does to one criterion: its column, the direction, the best value and the size."""

    column: str
    direction: str
    best: Any
    size: float


class Learned(NamedTuple):
    """What was learned from answers.

    Attributes
    ----------
    n_answers : int
    drivers : tuple of tuple of Driver
        For each criterion, the largest first.
    matter : tuple of str
        Columns by how much they matter in any criterion.
    shortlist : tuple of (id, probability)
    pictures : dict of str to bytes
        SVG: "matters" for participants, "effects" and "objects" for the owner.
    model : bytes
        The file that ``choicegp predict`` reads.
    """

    n_answers: int
    drivers: tuple[tuple[Driver, ...], ...]
    matter: tuple[str, ...]
    shortlist: tuple[tuple[ObjectId, float], ...]
    pictures: dict[str, bytes]
    model: bytes


_SETUP: list[Setup] = []
_REFITTERS: "list[Refitter]" = []
_SEEN: OrderedDict[int | None, None] = OrderedDict()


def start(setup: Setup) -> None:
    """Prepare the process: remember the catalogue and load what fits need."""
    from choicegp.data.choices import ChoiceData
    from choicegp.elicitation.refitting import Refitter
    from choicegp.estimators.choice_gp import ChoiceGP

    # What is predicted outside of the training range is not news to anybody here.
    warnings.simplefilter("ignore")
    rng, n = random.Random(0), len(setup.objects)
    sets = [rng.sample(range(n), setup.set_size) for _ in range(_N_PROBES)]
    # Not "auto": the design must know of "none of these" before somebody answers it for the first time.
    template = ChoiceGP(setup.utilities, intervals="none", object_effects=False, threshold=setup.threshold, n_jobs=1)
    _SETUP[:] = [setup]
    _REFITTERS[:] = [Refitter(template, _SECONDS, ChoiceData.from_sets(setup.objects, sets, missing="level"))]
    _SEEN.clear()


def first_sets(n_people: int, n_sets: int, random_state: int) -> list[list[Proposal]]:
    """Return sets for people of whom nothing is known: each of them sees objects that differ much."""
    from choicegp.elicitation.design import next_sets

    setup = _SETUP[0]
    how = "random" if setup.design == "random" else "space-filling"
    return [
        [
            Proposal(one.shown, one.how, _value(one.value), one.reason)
            for one in next_sets(None, setup.objects, n_sets, setup.set_size, how=how, random_state=random_state + i)
        ]
        for i in range(n_people)
    ]


def warm_up() -> None:
    """Compile what fits need before the first person waits for one: a nobody answers a few sets at random."""
    rng = random.Random(1)
    shown = tuple(one.shown for one in first_sets(1, _N_WARM, 1)[0])
    chosen = [tuple(rng.sample(one, rng.randint(1, len(one)))) for one in shown]
    if _SETUP[0].threshold:
        chosen[-1] = ()
    next_sets_for(Task(-1, shown, tuple(chosen), frozenset(map(frozenset, shown))))
    forget(-1)


def next_sets_for(task: Task) -> list[Proposal]:
    """Fit a person's answers and return the sets to show next, the best first."""
    from choicegp.elicitation.design import next_sets

    setup = _SETUP[0]
    how, model = setup.design, None
    if how not in ("random", "space-filling"):
        model = _fitted(task).roomy
    found = next_sets(
        model, setup.objects, N_AHEAD, setup.set_size, how=how, avoid=task.asked, random_state=len(task.asked)
    )
    version = f"{len(task.shown)} answers"
    return [Proposal(one.shown, one.how, _value(one.value), one.reason, version) for one in found]


def explain(task: Task) -> Learned:
    """Say what a person's answers show, or the answers of all people together."""
    from choicegp.apps.server.pictures import matters, owner_pictures
    from choicegp.evaluation.effects import model_effects

    setup = _SETUP[0]
    model = _fitted(task).model
    effects = model_effects(model)
    best = model.recommend(setup.objects, min(N_SHORT, len(setup.objects)))
    labels = dict(task.labels)
    drivers = tuple(_drivers(effects, i) for i in range(model.n_utilities_))
    sizes = effects.relevance.mean.max(axis=0)
    order = sorted(range(len(sizes)), key=lambda j: -sizes[j])
    pictures = {
        "matters": matters([(labels.get(effects.names[j], effects.names[j]), sizes[j]) for j in order], task.axis)
    }
    pictures |= owner_pictures(model, effects, setup.objects.iloc[:_MOST_DRAWN])
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model.cgp")
        content = (Path(folder) / "model.cgp").read_bytes()
    shortlist = tuple((plain(label), float(p)) for label, p in best["probability"].items())
    return Learned(len(task.shown), drivers, tuple(effects.names[j] for j in order), shortlist, pictures, content)


def forget(person: int) -> None:
    """Forget the model of a person."""
    _REFITTERS[0].forget(person)


def _fitted(task: Task) -> "Current":
    """Return the model of these answers, started from the last one."""
    from choicegp.elicitation.refitting import Answered

    answers = hash((task.shown, task.chosen))
    refitter = _REFITTERS[0]
    refitter.request(task.person, lambda: Answered(_data(task), answers))
    refitter.wait()
    _SEEN[task.person] = None
    _SEEN.move_to_end(task.person)
    while len(_SEEN) > _MOST_MODELS:
        refitter.forget(_SEEN.popitem(last=False)[0])
    found = refitter.current(task.person)
    assert found is not None
    return found


def _data(task: Task) -> "ChoiceData":
    from choicegp.data.choices import ChoiceData

    return ChoiceData.from_sets(
        _SETUP[0].objects, task.shown, task.chosen, by="id", empty="none" if _SETUP[0].threshold else "error",
        missing="level",
    )  # fmt: skip


def _drivers(effects: "Effects", utility: int) -> tuple[Driver, ...]:
    sizes = effects.relevance.mean[utility]
    order = sorted(range(len(sizes)), key=lambda j: -sizes[j])
    return tuple(
        Driver(effects.names[j], str(effects.direction[utility, j]), plain(effects.best[utility, j]), float(sizes[j]))
        for j in order[:_MOST_DRIVERS]
        if sizes[j] >= _NEGLIGIBLE * sizes.max() and effects.direction[utility, j] != "unclear"
    )


def _value(value: float) -> float | None:
    return None if math.isnan(value) else float(value)

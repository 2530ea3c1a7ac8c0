"""A session: what is asked, what is recorded, and a model that follows without being waited for."""

import itertools
import math
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from choicegp import ChoiceGP, ChoiceGPError, ChoiceSession, Store
from choicegp.elicitation import design, refitting
from choicegp.elicitation.refitting import RECENT, Current, Refitter
from choicegp.elicitation.request import Proposed

TABLE = pd.DataFrame(
    {"price": np.linspace(0, 1, 12), "weight": np.cos(np.arange(12))}, index=[f"o{i}" for i in range(12)]
)
QUICK = {"n_utilities": 1, "intervals": "none", "object_effects": False, "max_iter": 6, "n_restarts": 1}


class FakeErrors:
    has_threshold = False


class FakeModel:
    """Stands for a fitted model: what a session does with it needs no fit."""

    def __init__(self, data: Any = None, init: Any = None) -> None:
        self.data, self.init, self.errors_ = data, init, FakeErrors()
        self.elbo_ = -1.0 if init is None else -2.0
        self.posterior_ = SimpleNamespace(objects=SimpleNamespace(X=np.zeros((64, 2))))
        self.encoding_ = None if data is None else data.encoding
        self.fit_result_ = self
        self.out_of_time = False

    def _probabilities(self, data: Any) -> list[np.ndarray]:
        return [np.full(4, 1.0 / len(self.data))]


@pytest.fixture
def fits(monkeypatch) -> list[FakeModel]:
    """Replace fits by fakes and return the list of them; what is asked does not look at a model."""
    made: list[FakeModel] = []

    def fit(self: Refitter, data: Any, init: Any, **options: Any) -> tuple[FakeModel, FakeModel]:
        made.append(FakeModel(data, init))
        return made[-1], made[-1]

    monkeypatch.setattr(Refitter, "_fit", fit)
    real = design.next_set
    monkeypatch.setattr(design, "next_set", lambda model, *args, **options: real(None, *args, **options))
    return made


def held_fits(monkeypatch):
    """Let fits wait: return the events that one has begun, and that it goes on."""
    begun, goes_on = threading.Event(), threading.Event()
    fit = Refitter._fit

    def slow(self: Refitter, data: Any, init: Any, **_: Any) -> Any:
        begun.set()
        assert goes_on.wait(30)
        return fit(self, data, init)

    monkeypatch.setattr(Refitter, "_fit", slow)
    return begun, goes_on


def reply(session: ChoiceSession, n: int = 1) -> None:
    """Answer questions: of each set, the cheapest is kept."""
    for _ in range(n):
        session.answer(question := session.ask(), [min(question.ids, key=lambda one: TABLE["price"][one])])


def test_questions_are_asked_and_answered(fits):
    session = ChoiceSession(TABLE)
    question = session.ask()
    assert (len(question.shown), question.design, question.model) == (4, "space-filling", None)
    assert session.ask(2) == question._replace(repeated=True), "while it is open"
    assert not session.answer(question, question.shown[:2]).repeated
    assert session.answer(question.key, question.shown[:2]).repeated
    assert len(session.ask(2).shown) == 2
    session.none()
    session.ask()
    session.skip()
    with pytest.raises(ChoiceGPError, match=r"no question is open: call ask\(\) first"):
        session.skip()
    assert [len(part) for part in session.data.chosen] == [2, 0]
    assert session.data.respondents.tolist() == ["me", "me"]
    again = session.undo()
    assert session.ask() == again._replace(repeated=True)
    assert session.skip().event.kind == "skipped"


def test_a_question_is_told_and_skipped_as_a_record(tmp_path, fits):
    with ChoiceSession(TABLE, db=tmp_path / "study.db", participant="p1", threshold="auto") as session:
        assert session._refitter._template.threshold == "auto"
        question = session.ask()
        assert (question.id, question.why) == (question.key, question.reason)
        assert [session.tell(question, question.shown[:1]).repeated for _ in range(2)] == [False, True]
        with pytest.raises(ChoiceGPError, match=r"an answer .* was recorded for this question before"):
            session.tell(question, [])
        with pytest.raises(ChoiceGPError, match="a question has a key of its own: leave key out"):
            session.tell(question, [], key="k")
        session.none(session.ask())
        assert session.skip(session.ask()).event.kind == "skipped"
        assert session.n_answers == 2
    with pytest.raises(ChoiceGPError, match="store and db name the same thing"):
        ChoiceSession(TABLE, tmp_path / "study.db", db=tmp_path / "study.db")


def test_objects_may_be_given_by_their_rows(tmp_path, fits):
    with ChoiceSession(TABLE, tmp_path / "study.db") as session:
        session.ask()
    other = TABLE[::-1]
    with ChoiceSession(other, tmp_path / "study.db") as session:
        question = session.ask()
        assert other.index[list(question.shown)].tolist() == list(question.ids), "rows of the table at hand"
        assert session.tell(question, np.array(question.shown[1:2])).event.chosen == question.ids[1:2]
        assert session.tell([0, 1], [1]).event.chosen == ("o10",)
        assert session.undo().shown == (0, 1)
        with pytest.raises(ChoiceGPError, match="not in the catalogue: 12"):
            session.tell([0, 12], [0])


def test_an_array_is_a_catalogue(fits):
    with ChoiceSession(TABLE.to_numpy()) as session:
        question = session.ask()
        assert question.ids == question.shown
        session.tell(question, question.shown[:2])
        assert set(session.data.chosen[0].tolist()) == set(question.shown[:2])
    numbered = TABLE.set_axis(range(1, 13))
    with ChoiceSession(numbered) as session:
        question = session.ask()
        assert [row + 1 for row in question.shown] == list(question.ids)
        assert session.tell(question, question.shown[1:3]).event.chosen == question.ids[1:3]
        session.undo()
        assert session.answer(session.ask().key, question.ids[1:3]).event.chosen == question.ids[1:3], "of a key, ids"


def test_a_catalogue_may_be_smaller_than_a_set():
    with ChoiceSession(TABLE[:3], model=ChoiceGP(**QUICK), max_seconds=5.0) as session:
        for pair in itertools.combinations(TABLE.index[:3], 2):
            session.tell(pair, pair[:1])
        session.tell(TABLE.index[:3], TABLE.index[:1])
        assert session.refresh().model is not None


def test_the_default_model_knows_of_none_before_the_first():
    session = ChoiceSession(TABLE)
    assert session._refitter._template.threshold is True
    session.close()


def test_answers_from_elsewhere_can_be_told(fits):
    session = ChoiceSession(TABLE)
    session.tell(["o1", "o2"], ["o2"])
    question = session.ask()
    session.tell(question.shown, [])
    assert [len(part) for part in session.data.shown] == [2, 4]
    session.ask()
    with pytest.raises(ChoiceGPError, match="another question is open, which shows o"):
        session.tell(["o1", "o2"], ["o2"])


def test_what_is_told_is_recorded_whole_and_once(fits):
    session = ChoiceSession(TABLE)
    with pytest.raises(ChoiceGPError, match="chosen holds objects that were not shown: 'o3'"):
        session.tell(["o1", "o2"], ["o3"])
    assert session.store.open_question(session.participant) is None, "no question is left open"
    assert [session.tell(["o1", "o2"], ["o2"], key="k").repeated for _ in range(2)] == [False, True]
    shown = session.ask().shown
    assert [session.tell(shown, shown[:1], key="l").repeated for _ in range(2)] == [False, True]
    session.ask()
    assert session.tell(["o1", "o2"], ["o2"], key="k").repeated
    assert len(session.data) == 2
    with pytest.raises(ChoiceGPError, match="belongs to another question"):
        session.tell(["o1", "o4"], [], key="k")


def test_no_set_is_asked_twice(fits):
    session = ChoiceSession(TABLE[:4], set_size=3)
    shown = set()
    for _ in range(4):
        question = session.ask()
        shown.add(frozenset(question.ids))
        session.skip()
    assert len(shown) == 4
    with pytest.raises(ChoiceGPError, match="all sets of 3 of these 4 objects were shown already"):
        session.ask()


def test_what_the_design_is_asked_and_what_is_recorded(monkeypatch, fits):
    calls: list[tuple] = []
    rehearsed: list[tuple] = []

    def next_set(model: Any, objects: pd.DataFrame, size: int, **options: Any) -> Proposed:
        if options["seconds"] == math.inf:
            rehearsed.append((model, threading.current_thread().name))
            return Proposed((), 0.0, "", "")
        calls.append((model, size, options))
        return Proposed(tuple(objects.index[len(calls) : len(calls) + size]), 0.5, options["how"], "a reason")

    monkeypatch.setattr(design, "next_set", next_set)
    session = ChoiceSession(TABLE, design="predictive", set_size=2)
    reply(session, 4)
    session.refresh()
    question = session.ask()
    assert rehearsed == [(fits[0], "choicegp-refit")], "programs are compiled where nobody waits for them"
    assert [model for model, *_ in calls] == [None] * 4 + [fits[0]]
    assert calls[4][2]["avoid"] == {frozenset(TABLE.index[i + 1 : i + 3]) for i in range(4)}
    assert len({options["random_state"] for *_, options in calls}) == 5
    assert (question.design, question.value, question.reason) == ("predictive", 0.5, "a reason")
    assert question.model.endswith(f"/{session._current.last}")
    reply(session)
    session.refresh()
    assert len(rehearsed) == 1, "the next model has the same size"


def test_a_session_resumes(tmp_path, fits):
    with ChoiceSession(TABLE, tmp_path / "study.db", participant="Anna") as session:
        reply(session, 5)
        question = session.ask()
    with ChoiceSession(None, tmp_path / "study.db", participant="Anna") as again:
        assert again.ask() == question._replace(repeated=True)
        assert len(again.data) == 5
        assert again.refresh().model is fits[-1]
        assert len(fits[-1].data) == 5
    with Store.open(tmp_path / "study.db") as store, ChoiceSession(None, store, participant="Anna") as third:
        third.close()
        assert len(store.answers("Anna")) == 5, "a store that was given stays open"


def test_several_people_have_models_of_their_own(fits):
    session = ChoiceSession(TABLE, participant="Anna")
    bert = session.of("Bert")
    reply(session, 4)
    reply(bert, 5)
    assert session.refresh().model is not bert.refresh().model
    assert len(bert.model.data) == 5
    assert session.of(bert.participant.id).data == bert.data
    assert set(session.store.data().respondents) == {"Anna", "Bert"}


def test_a_pooled_model_learns_from_all(fits):
    session = ChoiceSession(TABLE, participant="Anna", pooled=True)
    reply(session, 2)
    reply(session.of("Bert"), 2)
    assert session.refresh().model is session.of("Cleo").model
    assert len(session.model.data) == len(session.data) == 4


def test_nobody_waits_for_a_fit(monkeypatch, fits):
    session = ChoiceSession(TABLE)
    reply(session, 4)
    first = session.refresh().model
    begun, go_on = held_fits(monkeypatch)
    reply(session)
    assert begun.wait(30)
    reply(session, 5)
    assert session.ask().model.endswith(f"/{session._current.last}")
    assert session.model is first, "the last model asks"
    go_on.set()
    session.refresh()
    assert len(session.model.data) == 10
    assert len({len(fit.data) for fit in fits}) <= 3, "fits that were overtaken are left out"


def test_a_fit_that_fails_leaves_the_last_model(monkeypatch, fits):
    session = ChoiceSession(TABLE)
    reply(session, 4)
    first = session.refresh().model

    def failing(*_: Any, **__: Any) -> Any:
        raise ChoiceGPError("the fit failed")

    monkeypatch.setattr(Refitter, "_fit", failing)
    reply(session, 2)
    with pytest.raises(ChoiceGPError, match="the fit failed"):
        session.refresh()
    assert session.model is first


def test_a_refit_starts_from_the_last_model_and_from_scratch_when_much_is_new(fits):
    session = ChoiceSession(TABLE)
    for _ in range(9):
        reply(session)
        session.refresh()
    assert [len(fit.data) for fit in fits] == [4, 5, 5, 6, 7, 7, 8, 9, 9]
    assert [fit.init is None for fit in fits] == [True, False, True, False, False, True, False, False, True]
    session.undo()
    assert len(session.refresh().model.data) == 8
    assert fits[-1].init is fits[-2], "the fit from scratch had the higher bound"
    session.none()
    session.refresh()
    assert fits[-1].init is None, "the first empty answer brings a threshold"


def test_of_two_fits_the_one_with_the_higher_bound_is_kept(monkeypatch, fits):
    session = ChoiceSession(TABLE)
    reply(session, 4)
    session.refresh()
    worse = lambda data=None, init=None: SimpleNamespace(**vars(FakeModel(data, init)) | {"elbo_": -3.0})  # noqa: E731
    fit = Refitter._fit
    monkeypatch.setattr(
        Refitter, "_fit", lambda *given, **_: fit(*given) if given[2] is not None else (worse(given[1]),) * 2
    )
    reply(session)
    assert session.refresh().model is fits[-1]
    assert fits[-1].init is fits[0]
    assert session._current.n_cold == 5, "the next fit from scratch is due when there are a quarter more"


def test_a_fit_that_was_cut_by_the_time_limit_continues_once(monkeypatch, fits):
    fit = Refitter._fit

    def cut(self: Refitter, data: Any, init: Any, **options: Any) -> Any:
        model, roomy = fit(self, data, init)
        model.out_of_time = True
        return model, roomy

    monkeypatch.setattr(Refitter, "_fit", cut)
    session = ChoiceSession(TABLE)
    reply(session, 4)
    session.refresh()
    assert len(fits) == 2
    assert fits[1].init is fits[0]


def test_both_fits_of_a_refit_have_one_time_limit(monkeypatch, fits):
    limits, fit = [], Refitter._fit

    def timed(self: Refitter, data: Any, init: Any, **options: Any) -> Any:
        limits.append(options.get("max_seconds"))
        return fit(self, data, init)

    monkeypatch.setattr(Refitter, "_fit", timed)
    session = ChoiceSession(TABLE, max_seconds=3.0)
    reply(session, 4)
    session.refresh()
    reply(session)
    session.refresh()
    assert limits[:2] == [None, None]
    assert 1.0 < limits[2] <= 2.4, "what follows the fit takes time too"


def test_the_next_size_is_prepared_while_there_is_nothing_to_fit(monkeypatch, fits):
    """Of 80 objects 40 were shown: programs for more than 64 are compiled, which nobody waits for."""
    table = pd.DataFrame({"price": np.linspace(0, 1, 80)})
    monkeypatch.setattr(FakeModel, "_probabilities", lambda self, data: [np.full(4, 0.5)])
    session = ChoiceSession(table)
    monkeypatch.setattr(session._refitter, "_prepare", lambda model: None)
    begun, goes_on = threading.Event(), threading.Event()
    compiled, compile_ = [], Refitter._compile

    def slow(self: Refitter, size: int, now: Current) -> None:
        begun.set()
        goes_on.wait(60)
        compile_(self, size, now)
        compiled.append(size)

    monkeypatch.setattr(Refitter, "_compile", slow)
    with monkeypatch.context() as still:
        still.setattr(ChoiceSession, "_request", lambda self: None)
        for shown in range(0, 40, 4):
            session.tell(range(shown, shown + 4), [shown])
    session.refresh()
    assert begun.wait(60)
    assert len(session.model.data) == 10, "nobody waits for what is prepared"
    session.close()
    thread = session._refitter._thread
    goes_on.set()
    thread.join(60)
    assert compiled == [64]
    assert [fit.init is None for fit in fits[-3:]] == [True, False, False]
    assert all(64 < len(np.unique(fit.data.flat_shown)) <= 68 for fit in fits[-3:])


def test_the_next_size_is_prepared_although_something_waited_during_the_fit(monkeypatch, fits):
    """Who answers and asks again while a fit runs asks for a model twice: the second time there is nothing to fit."""
    session = ChoiceSession(TABLE)
    (begun, goes_on), compiled = held_fits(monkeypatch), threading.Event()
    monkeypatch.setattr(Refitter, "_next_size", lambda self, now: (64, now))
    monkeypatch.setattr(Refitter, "_compile", lambda *_: compiled.set())
    reply(session, 4)
    assert begun.wait(30)
    session.ask()
    assert session._refitter._wanted, "it waits"
    goes_on.set()
    assert compiled.wait(30)
    assert len(fits) == 1
    session.close()


def test_a_defect_of_what_is_prepared_is_no_error_of_a_fit(monkeypatch, fits):
    session, begun, goes_on = ChoiceSession(TABLE), threading.Event(), threading.Event()

    def failing(*_: Any) -> None:
        begun.set()
        goes_on.wait(30)
        raise ValueError("nobody asked for this")

    monkeypatch.setattr(Refitter, "_next_size", lambda self, now: (64, now))
    monkeypatch.setattr(Refitter, "_compile", failing)
    reply(session, 4)
    assert begun.wait(30)
    thread = session._refitter._thread
    goes_on.set()
    thread.join(30)
    assert len(session.refresh().model.data) == 4
    session.close()


def test_a_session_that_is_closed_prepares_nothing(monkeypatch, fits):
    session, (begun, goes_on), compiled = ChoiceSession(TABLE), held_fits(monkeypatch), []
    monkeypatch.setattr(Refitter, "_next_size", lambda self, now: (64, now))
    monkeypatch.setattr(Refitter, "_compile", lambda *_: compiled.append(True))
    reply(session, 4)
    assert begun.wait(30)
    thread = session._refitter._thread
    threading.Timer(0.2, goes_on.set).start()
    session.close()
    thread.join(30)
    assert compiled == []
    assert len(session.model.data) == 4, "the fit that ran is waited for"


def test_an_interrupt_in_one_session_leaves_the_fits_of_others(fits):
    session = ChoiceSession(TABLE, participant="Anna")
    with pytest.raises(KeyboardInterrupt), session.of("Bert"):
        raise KeyboardInterrupt
    reply(session, 4)
    assert len(session.refresh().model.data) == 4
    with session.of("Bert"):
        pass
    reply(session)
    assert len(session.refresh().model.data) == 5
    session.close()


def current(*course: tuple[int, float]) -> Current:
    return Current(None, None, 0, 4, tuple((n, np.full(5, value)) for n, value in course))  # type: ignore[arg-type]


def test_the_hint_says_whether_the_last_answers_changed_much(monkeypatch, fits):
    session = ChoiceSession(TABLE)
    assert session.hint == (False, "it takes about 8 answers more to say whether further ones would change much")
    number = session.participant.id
    session._refitter._models[number] = current((4, 0.5), (11, 0.5))
    assert not session.done
    session._refitter._models[number] = current((4, 0.50), (6, 0.52), (14, 0.57), (15, 0.6))
    said = f"the last {RECENT} answers changed predicted probabilities by 8.0 percentage points on average"
    assert session.hint == (False, f"{said}: more answers would still change much")
    session._refitter._models[number] = current((4, 0.5), (6, 0.59), (14, 0.57), (15, 0.6))
    assert session.hint.reason.endswith("by 1.0 percentage points on average: more answers would change little")
    assert session.done


def test_the_course_of_a_session_is_kept_and_follows_undoes(fits):
    session = ChoiceSession(TABLE)
    for _ in range(13):
        reply(session)
        session.refresh()
    assert session._current.change == pytest.approx(1 / 5 - 1 / 13)
    session.undo()
    session.refresh()
    assert [n for n, _ in session._current.course][-2:] == [11, 12]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"set_size": 1}, "set_size must be a whole number of at least 2; got 1"),
        ({"model": 3}, "model must be a ChoiceGP, not an int"),
        ({"pooled": 3}, "pooled must be True or False"),
        ({"max_seconds": -1}, "max_seconds must be a number between 0 and inf"),
        ({"participant": 5}, "there is no participant 5"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ChoiceGPError, match=message):
        ChoiceSession(TABLE, **options)


def test_a_recommendation_needs_answers():
    with pytest.raises(ChoiceGPError, match="a recommendation needs at least 4 answers"):
        ChoiceSession(TABLE).recommend()


# With real models


@pytest.fixture(scope="module")
def real() -> ChoiceSession:
    session = ChoiceSession(TABLE, set_size=3, model=ChoiceGP(**QUICK))
    for _ in range(6):
        reply(session)
        session.refresh()
    yield session
    session.close()


def test_a_session_learns(real):
    asked = [event for event in real.store.events() if event.kind == "asked"]
    assert [event.design for event in asked] == ["space-filling"] * 4 + ["information"] * 2
    assert real.model.data_ == real.data
    assert real.recommend(3)["probability"].idxmax() in ("o0", "o1", "o2")


def test_padding_changes_no_prediction(real):
    current = real._current
    n = len(current.model.posterior_.objects.X)
    assert len(current.roomy.posterior_.objects.X) > n
    for one, other in zip(current.model.predict_proba(real.data), current.roomy.predict_proba(real.data), strict=True):
        assert np.allclose(one, other, atol=1e-6)
    drawn = [model.sample_utilities(TABLE, 8, random_state=1) for model in (current.model, current.roomy)]
    assert np.allclose(*drawn, atol=1e-6)
    # Utilities are differences from the mean of the shown objects, of which copies are none.
    for one, other in zip(*(model.utilities(TABLE) for model in (current.model, current.roomy)), strict=True):
        assert np.allclose(one, other, atol=1e-6)


def test_sparse_posteriors_are_not_padded(real):
    class Sparse:
        is_sparse = True

    assert refitting.padded(sparse := Sparse()) is sparse  # type: ignore[arg-type]

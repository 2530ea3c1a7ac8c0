"""Workers and the page, by the queue between them; fits are stubs here."""

import multiprocessing
import os
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pandas as pd
import pytest

from choicegp.apps.server import cards, crew, learning, population, worker
from choicegp.apps.server.cards import Cards
from choicegp.apps.server.crew import Crew
from choicegp.apps.server.pictures import matters, without_styles
from choicegp.apps.server.results import Learned, LearnedPeople, Proposal, Segment, Share, setup_of, unpacked
from choicegp.apps.server.study_file import read_study
from choicegp.apps.server.thinking import Thinking, setup_for
from choicegp.apps.server.worker import Worker
from choicegp.elicitation.queue import Queue
from choicegp.elicitation.store import Store
from choicegp.plotting.drawing import short, wrapped
from choicegp.plotting.style import new_axes

from .conftest import PICTURE

FIRST = Proposal(("o1", "o2"), "space-filling")


class Clock:
    now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self):
        return self.now

    def later(self, seconds):
        self.now += timedelta(seconds=seconds)


class Fake:
    """Stands for the models: notes what it was asked."""

    def __init__(self, setup, objects):
        self.setup, self.objects, self.calls, self.fits, self.models = setup, objects, [], True, set()

    def first_sets(self, n_people, n_sets):
        return [[FIRST._replace(shown=(f"o{i % 12}", f"o{(i + 1) % 12}"))] for i in range(n_people)]

    def warm_up(self, n_objects):
        self.calls.append(("warm", n_objects))

    def next_sets(self, task, n_since):
        self.calls.append(("next", task.person, len(task.shown), n_since))
        self.models.add(task.person)
        if task.person == 666:
            raise ValueError("a secret")
        return [Proposal((f"o{i}", "o9"), "information", 1.5) for i in (0, 1)]

    def explain(self, task):
        self.calls.append(("explain", task.person, task.language))
        return Learned(len(task.shown), (), (), (("o1", 0.5),), {"matters": PICTURE}, b"model")

    def known(self):
        return self.models

    def forget(self, people):
        self.models -= set(people)


@pytest.fixture
def world(objects, tmp_path, monkeypatch):
    """Return a page's view, a worker with fakes in it, and the store and clock they share."""
    monkeypatch.setattr(learning, "Learner", Fake)
    store, clock, study = Store.open(tmp_path / "s.sqlite", objects), Clock(), read_study(sets=5)
    queue = Queue(store, clock)
    page = Thinking(queue, setup_for(study, Cards(objects, study)), clock)
    made = Worker(store, "w")
    made._queue = queue
    yield SimpleNamespace(page=page, worker=made, store=store, queue=queue, clock=clock)
    store.close()


def joined(world, n_answers=3):
    """Let somebody join and answer; return her number and the version of her answers."""
    person, _ = world.store.join(panel={"language": "de"})
    for i in range(n_answers):
        recorded = world.store.answer(world.store.ask(person, [f"o{i}", "o11"]).key, ["o11"])
    return person.id, recorded.event.id if n_answers else 0


def work(world):
    """Do what waits, and nothing else."""
    while world.queue.waiting():
        assert world.worker.step()


class TestBetween:
    def test_newcomers_get_sets_of_their_own(self, world):
        assert world.page.next_set(1, ()) is None, "nobody worked yet"
        work(world)
        first = world.page.next_set(1, ())
        assert first.design == "space-filling"
        assert world.page.next_set(2, ()).shown != first.shown
        assert world.page.next_set(1, {frozenset(first.shown)}) is None

    def test_the_next_sets_follow_the_answers(self, world):
        number, version = joined(world)
        world.page.learn(number, version)
        work(world)
        assert world.page.next_set(number, ()) == Proposal(("o0", "o9"), "information", 1.5)
        assert world.page.next_set(number, {frozenset(("o0", "o9"))}).shown == ("o1", "o9")
        both = {frozenset(("o0", "o9")), frozenset(("o1", "o9"))}
        assert world.page.next_set(number, both).design == "space-filling"
        for one in ("o7", "o8"):
            version = world.store.answer(world.store.ask(number, [one, "o9"]).key, []).event.id
        world.page.learn(number, version)
        work(world)
        assert [call for call in world.worker._learner.calls if call[0] == "next"] == [
            ("next", number, 3, 3), ("next", number, 5, 2),
        ]  # fmt: skip

    def test_a_result_is_worked_out_once_in_the_persons_language(self, world):
        number, version = joined(world)
        assert world.page.explained(number, version) is None
        assert world.page.explained(number, version) is None
        work(world)
        assert world.page.explained(number, version).shortlist == (("o1", 0.5),)
        assert world.page.explained(number, version + 1) is None, "there are new answers"
        assert ("explain", number, "de") in world.worker._learner.calls
        assert len(world.worker._learner.calls) == 1

    def test_results_of_everyone_are_renewed_at_most_once_a_minute(self, world, monkeypatch):
        found = []
        monkeypatch.setattr(population, "pooled", lambda learner, people: found.append(people) or learner.explain(
            SimpleNamespace(person=None, language=None, shown=sum((now.shown for now in people.values()), ()))
        ))  # fmt: skip
        number, _ = joined(world)
        work(world)
        assert world.page.everyone() is None
        work(world)
        assert world.page.everyone().n_answers == 3
        world.store.answer(world.store.ask(number, ["o7", "o8"]).key, [])
        assert (world.page.everyone().n_answers, world.queue.waiting()) == (3, 0)
        world.clock.later(61)
        assert world.page.everyone().n_answers == 3
        work(world)
        assert world.page.everyone().n_answers == 4
        assert len(found) == 2

    def test_people_who_differ(self, world, monkeypatch):
        known = LearnedPeople(
            4, 2, 1, "why", (Share("o1", 0.5, 0.1, 0.9, 0.4),), (Segment(1, 1.0, "all", ("a", "b")),), "0.9: sure",
            {"shares": PICTURE}, b"people",
        )  # fmt: skip
        monkeypatch.setattr(population, "separate", lambda learner, people: known)
        joined(world)
        work(world)
        assert world.page.people() is None
        work(world)
        assert world.page.people() == known

    def test_a_failure_is_reported_and_forgotten_after_a_while(self, world, caplog, monkeypatch):
        number, version = joined(world)
        explain = Fake.explain
        monkeypatch.setattr(Fake, "explain", lambda self, task: int("a secret"))
        world.page.explained(number, version)
        work(world)
        assert world.page.explained(number, version) == "failed"
        assert "could not do 'explain': ValueError" in caplog.text
        assert "secret" not in caplog.text
        monkeypatch.setattr(Fake, "explain", explain)
        world.clock.later(31)
        assert world.page.explained(number, version) is None
        work(world)
        assert world.page.explained(number, version).n_answers == 3

    def test_what_ended_two_workers_is_not_tried_again(self, world):
        number, version = joined(world)
        world.page.explained(number, version)
        work_before = Queue(world.store)
        for name in ("one", "two"):
            while (job := work_before.claim(name)).kind != "explain":
                work_before.finish(job, name, b"")
            work_before.release(name)
        work(world)
        assert world.page.explained(number, version) == "failed"
        assert world.worker._learner.calls == []

    def test_nothing_is_remembered_of_who_was_deleted(self, world):
        number, version = joined(world)
        world.page.learn(number, version)
        work(world)
        assert world.worker._learner.models == {number}
        world.store.delete_participant(number)
        world.worker.step()
        assert world.worker._learner.models == set()

    def test_programs_are_compiled_while_nobody_waits(self, world):
        work(world)
        while world.worker.step():
            pass
        assert world.worker._learner.calls == [("warm", 64)]
        assert worker._shapes(200) == [64, 128, 192, 256]

    @pytest.mark.parametrize(("threshold", "shapes"), [(True, [64, 128]), (False, [64])])
    def test_a_threshold_is_one_object_more(self, world, monkeypatch, threshold, shapes):
        setup = setup_of(world.queue.result("setup").content)._replace(threshold=threshold, sets=40)
        monkeypatch.setattr(worker, "setup_of", lambda content: setup)
        monkeypatch.setattr(cards, "learned_from", lambda *_: pd.DataFrame({"price": range(64)}))
        assert world.worker._prepared()
        assert world.worker._shapes == shapes

    def test_a_changed_study_reaches_workers_that_run(self, world, objects):
        work(world)
        study = read_study(sets=5, set_size=3)
        Thinking(world.queue, setup_for(study, Cards(objects, study)))
        assert world.queue.waiting() == 1, "the first sets are made again"
        work(world)
        assert world.worker._learner.setup.set_size == 3
        assert len(unpacked(world.queue.result("first").content)) == worker.N_NEWCOMERS

    @pytest.mark.parametrize("size", [3, 4, 5])
    def test_first_sets_that_still_wait_become_those_of_a_changed_study(self, world, objects, size):
        study = read_study(sets=5, set_size=size)
        page = Thinking(world.queue, setup_for(study, Cards(objects, study)))
        same = Thinking(world.queue, setup_for(study, Cards(objects, study)))
        assert world.queue.waiting() == 1
        work(world)
        assert page.next_set(1, ()) == same.next_set(1, ()) is not None

    def test_first_sets_that_failed_are_wanted_by_the_next_server(self, world, objects):
        world.queue.finish(world.queue.claim("w"), "w", None)
        study = read_study(sets=5)
        page = Thinking(world.queue, setup_for(study, Cards(objects, study)))
        work(world)
        assert page.next_set(1, ()) is not None

    def test_a_job_of_somebody_who_is_gone_is_done_at_once(self, world):
        number, version = joined(world)
        world.store.delete_participant(number)
        world.queue.want("explain", number, version)
        work(world)
        assert world.worker._learner.calls == []

    def test_a_database_that_is_away_does_not_lose_an_answer(self, world, caplog, monkeypatch):
        from choicegp.errors import Unavailable

        def away(*arguments):
            raise Unavailable("s.sqlite is away")

        monkeypatch.setattr(world.queue, "want", away)
        world.page.learn(1, 1)
        assert "learned later" in caplog.text


class Process:
    """Stands for a process: the first one that is made ends with a job in its hands."""

    made = 0

    def __init__(self, target, args, daemon):
        self.args, self.alive, self.exitcode = args, True, None
        self.sentinel, self._end = os.pipe()

    def start(self):
        Process.made += 1
        place, name, kinds, _ = self.args
        with Store.open(place) as store:
            queue = Queue(store)
            job = queue.claim(name, kinds)
            if Process.made == 1:
                self.kill()
            else:
                queue.finish(job, name, name.encode())

    def is_alive(self):
        return self.alive

    def kill(self):
        if self.alive:
            self.alive, self.exitcode = False, -9
            os.close(self._end)

    def join(self):
        os.close(self.sentinel)


def test_a_worker_that_dies_is_replaced_and_its_job_done(objects, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(crew, "_PATIENCE", 0.01)
    monkeypatch.setattr(multiprocessing, "get_context", lambda kind: SimpleNamespace(Process=Process))
    with Store.open(tmp_path / "s.sqlite", objects) as store:
        queue = Queue(store)
        queue.want("next", 1, 1)
        workers = Crew(str(tmp_path / "s.sqlite"), 1)
        end = time.monotonic() + 60
        while queue.result("next", 1) is None and time.monotonic() < end:
            time.sleep(0.01)
        # What takes minutes has a process of its own: nobody's next question waits for it.
        queue.want("people", 0, 1)
        while queue.result("people") is None and time.monotonic() < end:
            time.sleep(0.01)
        workers.close()
        assert queue.result("next", 1).content.endswith(b"-0")
        assert queue.result("people").content.endswith(b"-slow")
    assert Process.made == 3
    assert "a worker ended (-9)" in caplog.text


def test_a_worker_ends_with_its_parent(monkeypatch):
    class Gone(BaseException):
        pass

    def end(code):
        raise Gone

    joined = []
    monkeypatch.setattr("multiprocessing.parent_process", lambda: SimpleNamespace(join=lambda: joined.append(True)))
    monkeypatch.setattr(os, "_exit", end)
    with pytest.raises(Gone):
        worker._end_with_parent()
    assert joined


@pytest.mark.parametrize(
    ("error", "says", "code"),
    [
        (ImportError("libjax.so: failed to map segment from shared object"), "error: there is not enough memory", 2),
        (ValueError("Anna ticked the pen"), "internal error: ValueError", 70),
    ],
)
def test_a_worker_that_cannot_work_says_why_in_one_line(error, says, code, monkeypatch, capsys):
    def fail(*_):
        raise error

    for name in ("share_one_heap", "_end_with_parent"):
        monkeypatch.setattr(worker, name, lambda: None)
    monkeypatch.setattr(worker.signal, "signal", lambda *_: None)
    monkeypatch.setattr(worker, "_work", fail)
    with pytest.raises(SystemExit) as ended:
        worker.work("a.db", "w", worker.QUICK, 1.0)
    assert ended.value.code == code
    [message] = capsys.readouterr().err.splitlines()
    assert message.startswith(says)
    assert "Anna" not in message
    monkeypatch.setenv("CHOICEGP_DEBUG", "1")
    with pytest.raises(SystemExit):
        worker.work("a.db", "w", worker.QUICK, 1.0)
    *traced, message = capsys.readouterr().err.splitlines()
    assert traced[0] == "Traceback (most recent call last):"
    assert message.startswith(says)


class TestPictures:
    def test_styles_become_attributes(self):
        text = matters([("Price & <b>", 2.0), ("A name that is much too long for its place", 1.0)], "How much").decode()
        assert "style" not in text
        assert "<script" not in text
        assert text.count("<svg") == 1

    @pytest.mark.parametrize("label", ["$5 to $9", r"$\nonsense{$"])
    def test_dollars_are_no_formulas(self, label):
        ax = new_axes(4.0, 3.0)
        ax.set_xlabel(wrapped(short(label), 28))
        assert ax.xaxis.label._preprocess_math(ax.get_xlabel()) == (label, False)
        assert matters([(label, 1.0)], label).startswith(b"<?xml")

    def test_text_without_styles_stays(self):
        assert without_styles('<svg a="1"><g/></svg>').endswith('a="1"><g/></svg>')

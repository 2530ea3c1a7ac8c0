"""Fits beside the page: coalesced, in turn, in a process that may die."""

import os
import threading
import time

import pandas as pd
import pytest

from choicegp.apps.server import learning
from choicegp.apps.server.learning import Proposal, Setup, Task
from choicegp.apps.server.pictures import matters, without_styles
from choicegp.apps.server.process import ComputingProcess, Failed, _end_with_parent
from choicegp.apps.server.worker import Worker
from choicegp.plotting.drawing import short, wrapped
from choicegp.plotting.style import new_axes

SETUP = Setup(pd.DataFrame({"x": range(9)}), 3, "information", 1, True)


class Fake:
    """Stands for the process: notes every call and waits at a gate."""

    def __init__(self):
        self.calls, self.gate, self.broken = [], threading.Event(), False
        self.gate.set()

    def call(self, function, arguments, seconds):
        self.gate.wait(10)
        self.calls.append((function.__name__, *arguments))
        if function is learning.first_sets:
            return [[Proposal((f"f{i}", "a"), "space-filling")] for i in range(arguments[0])]
        if self.broken:
            raise Failed("the process ended")
        if function is learning.next_sets_for:
            return [Proposal((n, len(arguments[0].shown)), "information") for n in "ab"]
        return "learned"

    def close(self):
        self.gate.set()


@pytest.fixture
def fake():
    return Fake()


@pytest.fixture
def worker(fake):
    made = Worker(SETUP, fake)
    yield made
    made.close()


def soon(found):
    for _ in range(500):
        if (value := found()) not in (None, False):
            return value
        time.sleep(0.01)
    raise AssertionError("nothing came")


def task(person, n):
    return Task(person, tuple((i,) for i in range(n)), tuple(() for _ in range(n)))


class TestWorker:
    def test_newcomers_get_sets_of_their_own(self, worker):
        first = soon(lambda: worker.next_set(1, frozenset()))
        assert first.design == "space-filling"
        assert worker.next_set(2, frozenset()).shown != first.shown
        assert worker.next_set(1, {frozenset(first.shown)}) is None

    def test_the_next_sets_follow_the_answers(self, worker):
        first = soon(lambda: worker.next_set(1, frozenset()))
        worker.learn(task(1, 5))
        soon(lambda: bool(worker._ready))
        assert worker.next_set(1, {frozenset(first.shown)}).shown == ("a", 5)
        assert worker.next_set(1, {frozenset(("b", 5))}) is None, "it was shown before"

    def test_a_late_fit_leaves_the_sets_of_the_start(self, worker, fake):
        soon(lambda: len(fake.calls) >= 2)
        fake.gate.clear()
        worker.learn(task(1, 5))
        assert worker.next_set(1, {1}).design == "space-filling"

    def test_too_few_answers_are_not_learned(self, worker, fake):
        worker.learn(task(1, 2))
        assert worker.waiting() == 0

    def test_of_each_person_the_newest_answers_count(self, worker, fake):
        soon(lambda: len(fake.calls) >= 2)  # first sets, and the programs compiled
        fake.gate.clear()
        worker.learn(task(7, 3))
        soon(lambda: worker.waiting() == 0)
        for n in range(4, 9):
            worker.learn(task(1, n))
            worker.learn(task(2, n))
        assert worker.waiting() == 2
        fake.gate.set()
        soon(lambda: worker.waiting() == 0)
        soon(lambda: sum(call[0] == "next_sets_for" for call in fake.calls) == 3)
        learned = [call[1] for call in fake.calls if call[0] == "next_sets_for"]
        assert [(one.person, len(one.shown)) for one in learned] == [(7, 3), (1, 8), (2, 8)]

    def test_a_result_is_worked_out_once_and_before_other_things(self, worker, fake):
        assert worker.explained(task(1, 4)) is None
        assert soon(lambda: worker.explained(task(1, 4))) == "learned"
        assert worker.explained(task(1, 5)) is None, "there are new answers"
        assert sum(call[0] == "explain" and len(call[1].shown) == 4 for call in fake.calls) == 1

    def test_everyone_together_comes_last_and_at_most_once_a_minute(self, fake):
        now = [0.0]
        worker = Worker(SETUP, fake, clock=lambda: now[0])
        soon(lambda: len(fake.calls) >= 2)
        fake.gate.clear()
        worker.learn(task(9, 3))
        soon(lambda: worker.waiting() == 0)
        assert worker.explained(task(None, 20)) is None
        worker.learn(task(1, 5))
        worker.explained(task(2, 4))
        fake.gate.set()
        soon(lambda: worker.explained(task(None, 20)))
        assert [call[1].person for call in fake.calls if isinstance(call[-1], Task)] == [9, 2, 1, None]
        assert worker.explained(task(None, 21)) == "learned", "the last known result"
        assert worker.waiting() == 0
        now[0] = 61.0
        fake.gate.clear()
        assert worker.explained(task(None, 22)) == "learned"
        fake.gate.set()
        soon(lambda: sum(call[0] == "explain" and call[1].person is None for call in fake.calls) == 2)
        worker.close()

    def test_a_failure_is_reported_and_does_not_last(self, worker, fake, caplog):
        soon(lambda: len(fake.calls) >= 2)
        fake.broken = True
        worker.explained(task(1, 4))
        assert soon(lambda: worker.explained(task(1, 4))) == "failed"
        fake.broken = False
        worker.learn(task(1, 5))
        soon(lambda: any(call[0] == "next_sets_for" for call in fake.calls))
        soon(lambda: bool(worker._ready))
        assert worker.next_set(1, {1}).shown == ("a", 5)
        assert "the process ended" in caplog.text

    def test_a_failure_is_forgotten_after_a_while(self, fake):
        now = [0.0]
        worker = Worker(SETUP, fake, clock=lambda: now[0])
        soon(lambda: len(fake.calls) >= 2)
        fake.broken = True
        for person in (1, None):
            worker.explained(task(person, 4))
            soon(lambda person=person: worker.explained(task(person, 4)) == "failed")
        fake.broken, now[0] = False, 31.0
        for person in (1, None):
            assert worker.explained(task(person, 4)) is None
            assert soon(lambda person=person: worker.explained(task(person, 4))) == "learned"
        worker.close()

    def test_nothing_is_remembered_of_who_was_deleted(self, worker, fake):
        worker.explained(task(1, 4))
        soon(lambda: worker.explained(task(1, 4)))
        worker.forget(1)
        soon(lambda: ("forget", 1) in fake.calls)
        assert worker.explained(task(1, 4)) is None
        assert worker.next_set(1, {1}).design == "space-filling"

    def test_no_call_waits_for_a_fit(self, worker, fake):
        fake.gate.clear()
        begun = time.perf_counter()
        for n in range(3, 100):
            worker.learn(task(n, n))
            worker.explained(task(n, n))
            worker.next_set(n, {1})
        assert time.perf_counter() - begun < 0.1


class TestProcess:
    def test_results_errors_deaths_and_delays(self):
        process = ComputingProcess()
        assert process.call(max, (2, 3), 60) == 3
        assert process.call(os.getpid, (), 60) != os.getpid()
        with pytest.raises(Failed, match=r"^ValueError$"):
            process.call(int, ("a secret",), 60)
        assert process.n_started == 1
        with pytest.raises(Failed, match="the process ended"):
            process.call(os._exit, (3,), 60)
        assert process.call(max, (2, 3), 60) == 3
        with pytest.raises(Failed, match="no result within 0 s"):
            process.call(time.sleep, (60,), 0.3)
        assert process.call(max, (2, 3), 60) == 3
        assert process.n_started == 3
        process.close()

    def test_closing_ends_a_call_that_waits(self):
        process, found = ComputingProcess(), []

        def wait():
            try:
                process.call(time.sleep, (60,), 60)
            except Failed as error:
                found.append(str(error))

        thread = threading.Thread(target=wait)
        thread.start()
        soon(lambda: process._process is not None)
        process.close()
        thread.join(10)
        assert found in (["the process ended"], ["the process was closed"])
        with pytest.raises(Failed, match="was closed"):
            process.call(max, (2, 3), 60)

    def test_the_process_ends_with_its_parent(self, monkeypatch):
        class Gone(BaseException):
            pass

        class Parent:
            def join(self):
                joined.append(True)

        def end(code):
            raise Gone

        joined = []
        monkeypatch.setattr("multiprocessing.parent_process", Parent)
        monkeypatch.setattr(os, "_exit", end)
        with pytest.raises(Gone):
            _end_with_parent()
        assert joined


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

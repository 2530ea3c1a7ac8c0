"""The queue: one job for each kind and person, taken by one worker at a time, on both databases."""

from datetime import UTC, datetime, timedelta

import pytest

from choicegp.elicitation import queue as module
from choicegp.elicitation.queue import LEASE, Queue


class Clock:
    """A clock that is set by hand."""

    def __init__(self):
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self):
        return self.now

    def later(self, seconds):
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def queue(store, clock):
    return Queue(store, clock)


def taken(queue, worker="w"):
    return [job[:3] for job in iter(lambda: queue.claim(worker), None)]


def test_what_is_asked_again_keeps_its_place_and_becomes_newer(queue, clock):
    for version, person in ((5, 1), (6, 2), (7, 1), (6, 1)):
        queue.want("next", person, version)
        clock.later(1)
    assert queue.waiting() == 2
    assert taken(queue) == [("next", 1, 7), ("next", 2, 6)]


def test_what_is_due_first_is_done_first(queue, clock):
    queue.want("everyone", 0, 1, 30)
    queue.want("next", 1, 1)
    queue.want("explain", 2, 1, -60)
    clock.later(40)
    queue.want("next", 3, 1)
    assert [job[:2] for job in taken(queue)] == [("explain", 2), ("next", 1), ("everyone", 0), ("next", 3)]


def test_a_worker_may_take_some_kinds_alone(queue):
    queue.want("next", 1, 1)
    assert (queue.waits(), queue.waits(("people", "everyone"))) == (True, False)
    assert queue.claim("slow", ("people", "everyone")) is None
    queue.want("people", 0, 1)
    assert queue.claim("slow", ("people", "everyone")).kind == "people"
    assert queue.claim("quick", ("next",)).kind == "next"


def test_new_answers_during_the_work_are_learned_at_the_end_of_the_queue(queue, clock):
    queue.want("next", 1, 5)
    job = queue.claim("w")
    clock.later(1)
    queue.want("next", 2, 6)
    clock.later(1)
    queue.want("next", 1, 7)
    assert queue.finish(job, "w", b"five")
    assert queue.result("next", 1)[::2] == (5, b"five")
    assert taken(queue) == [("next", 2, 6), ("next", 1, 7)]


def test_who_asks_late_makes_nothing_older(store, queue):
    queue.want("next", 1, 5)
    job = queue.claim("w")
    for version in (7, 6):  # two servers, of which the slower one has looked before the other wrote
        store._database.write(module._want, "next", 1, version, queue._text())
    assert queue.finish(job._replace(version=6), "w", b"six")
    assert taken(queue) == [("next", 1, 7)]


def test_what_all_need_to_know_has_versions_in_order(queue):
    assert [queue.keep("setup", content) for content in (b"one", b"one", b"two", b"one")] == [1, 1, 2, 3]
    assert queue.result("setup")[::2] == (3, b"one")


def test_who_learned_more_than_was_asked_is_done(queue):
    queue.want("next", 1, 5)
    job = queue.claim("w")
    queue.want("next", 1, 7)
    assert queue.finish(job._replace(version=7), "w", b"seven")
    assert queue.waiting() == 0


def test_the_job_of_a_dead_worker_is_taken_over(queue, clock):
    queue.want("next", 1, 5)
    lost = queue.claim("dead")
    clock.later(LEASE - 1)
    queue.renew(lost, "dead")
    clock.later(LEASE - 1)
    assert queue.claim("other") is None
    clock.later(2)
    job = queue.claim("other")
    assert job.tries == 2
    assert queue.finish(lost, "dead", b"late") is False
    assert queue.finish(job, "other", None)
    assert queue.result("next", 1).content is None


def test_what_a_worker_gives_back_is_free_at_once(queue):
    queue.want("next", 1, 5)
    queue.claim("w")
    queue.release("somebody else")
    assert queue.claim("other") is None
    queue.release("w")
    assert queue.claim("other").tries == 2


def test_nothing_stays_of_who_was_deleted(store, queue):
    bert, _ = store.join("Bert")
    for kind, person in (("next", 1), ("explain", 1), ("everyone", 0), ("people", 0), ("next", bert.id), ("first", 0)):
        queue.want(kind, person, 1)
        queue.finish(queue.claim("w"), "w", kind.encode())
    queue.want("next", 1, 2)
    job = queue.claim("w")
    store.delete_participant(1)
    assert queue.finish(job, "w", b"too late") is False
    assert [queue.result(*of) for of in (("next", 1), ("explain", 1), ("everyone", 0), ("people", 0))] == [None] * 4
    assert queue.result("next", bert.id).content == b"next"
    assert queue.result("first").content == b"first"
    assert (queue.deleted({1, 2}), queue.deleted({2}), queue.waiting()) == ({1}, set(), 0)


def test_the_version_of_everyones_answers(store, queue):
    before = queue.version()
    question = store.ask(1, ["pen", "ink"])
    assert queue.version() == before
    store.answer(question.key, ["pen"])
    answered = queue.version()
    store.undo(1)
    undone = queue.version()
    store.delete_participant(1)
    assert before < answered < undone < queue.version()


def test_two_workers_never_wait_for_each_other(postgres_url, pens):
    """While one transaction holds a row, another takes the next one."""
    from choicegp import Store

    with Store.open(postgres_url, pens) as store:
        queue = Queue(store)
        for person in (1, 2):
            queue.want("next", person, 1)
        now, free = queue._text(), module._free(queue._text(-LEASE), None)
        engine = store._database.engine
        with engine.begin() as one, engine.begin() as other:
            people = [module._claim(connection, "w", now, free).participant for connection in (one, other)]
            assert people == [1, 2]


def test_progress_is_counted_as_from_all_events(store):
    from choicegp.apps.server.standing import standing

    for place, chosen in enumerate([["pen"], [], None, ["ink"]]):
        question = store.ask(1, ["pen", "ink", "cap"][: 2 + place % 2])
        store.skip(question.key) if chosen is None else store.answer(question.key, chosen)
    store.undo(1)
    now = standing(store.events(1))
    found = store.progress()[1]
    assert (found.n_done, found.n_answers) == (now.n_done, len(now.shown)) == (3, 2)
    assert found.n_asked == 5
    assert found.last == store.events(1)[-1].at

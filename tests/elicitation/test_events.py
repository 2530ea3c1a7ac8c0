"""The state that follows from what happened."""

from datetime import UTC, datetime

from choicegp.elicitation.events import Event, Question, answers, last_response, open_questions

AT = datetime(2026, 1, 1, tzinfo=UTC)


def log(*lines: str) -> list[Event]:
    """Make events from lines such as "answered k pen"."""
    made = []
    for number, line in enumerate(lines, 1):
        kind, key, *ids = line.split()
        shown = ("pen", "ink", "cap") if kind == "asked" else None
        made.append(Event(number, AT, kind, 1, key, shown, tuple(ids) if kind == "answered" else None))
    return made


def test_answers_are_in_the_order_in_which_they_were_given():
    events = log("asked a", "asked b", "answered b pen", "answered a ink cap")
    assert [(one.question.key, one.chosen) for one in answers(events)] == [("b", ("pen",)), ("a", ("ink", "cap"))]
    assert open_questions(events) == []


def test_nothing_chosen_is_an_answer_and_a_skip_is_none():
    events = log("asked a", "answered a", "asked b", "skipped b", "asked c")
    assert [one.chosen for one in answers(events)] == [()]
    assert [one.key for one in open_questions(events)] == ["c"]


def test_an_undo_takes_back_the_last_answer_or_skip():
    events = log("asked a", "answered a pen", "asked b", "skipped b", "asked c", "undone b", "withdrawn c")
    assert last_response(events[:5]).question == "b"
    assert last_response(events).question == "a"
    assert [one.question.key for one in answers(events)] == ["a"]
    assert answers([*events, Event(8, AT, "undone", 1, "a")]) == []
    assert last_response([*events, Event(8, AT, "undone", 1, "a")]) is None


def test_events_about_no_question_change_nothing():
    assert answers([Event(1, AT, "opened"), Event(2, AT, "joined", 1)]) == []


def test_a_record_is_plain_and_leaves_out_what_is_not_set():
    event = Event(3, AT, "answered", 1, "a", chosen=())
    expected = {"id": 3, "at": "2026-01-01T00:00:00+00:00", "kind": "answered", "participant": 1, "question": "a"}
    assert event.record() == expected | {"chosen": ()}


def test_records_of_one_question_are_equal():
    first = Question("k", 1, ("pen", "ink"), 1, AT)
    again, other = first._replace(repeated=True, shown=(0, 1)), first._replace(key="l")
    assert (first == again, first != again, first == other, first != other) == (True, False, False, True)
    assert {first, again, other} == {first, other}
    assert first != tuple(first)

"""A study on both kinds of databases: what is recorded, once, and what is refused."""

import json
import re
import subprocess
import sys
import threading
from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pytest

from choicegp import AlreadyAnswered, ChoiceData, ChoiceGPError, Store, StoreError, StudyFull


def kinds(store: Store) -> list[str]:
    return [event.kind for event in store.events("Anna")]


def test_a_study_is_found_again(place, pens):
    with Store.open(place, pens, {"title": "Pens", "sizes": [2, 4]}) as first:
        assert first.owner_token is not None
        assert first.is_owner(first.owner_token)
    with Store.open(place) as again:
        assert again.owner_token is None
        assert again.settings == {"title": "Pens", "sizes": [2, 4]}
        pd.testing.assert_frame_equal(again.objects.astype({"colour": pens["colour"].dtype}), pens)
        assert again.objects.index.name == "thing"
        assert again.objects["width"]["nib"] == 1e-17
        new = again.new_owner_token()
        assert again.is_owner(new)
        assert not again.is_owner(first.owner_token)
    Store.open(place, pens.iloc[::-1]).close()  # the order of the objects does not matter


def test_another_catalogue_or_other_settings_are_refused(place, pens):
    Store.open(place, pens, {"a": 1, "b": 2}).close()
    with pytest.raises(StoreError, match="1 object is missing: 'pen'; 'price' differs for 1 object: 'ink'"):
        Store.open(place, pens.assign(price=[3, 6, 4, 9]).iloc[1:])
    with pytest.raises(StoreError, match="1 object is new: 'hat'; 2 columns are missing: 'colour', 'width'; 1 column"):
        Store.open(place, pd.DataFrame({"price": [3, 5, 4, 9, 1], "x": 1.0}, index=[*pens.index, "hat"]))
    with pytest.raises(StoreError, match=r"a study with other settings; these differ: 'b', 'c'"):
        Store.open(place, pens, {"a": 1, "c": 2})


def test_a_study_needs_objects(place):
    with pytest.raises(StoreError, match=r"there is no (file .*study.db$|study in .* yet: pass the objects)"):
        Store.open(place)
    with pytest.raises(StoreError, match=r"there is no study in :memory: yet"):
        Store.open(":memory:")


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        ([[1], [2]], "objects must be a DataFrame with one row per object, not list"),
        (pd.DataFrame({"x": [1]}), "at least two rows"),
        (pd.DataFrame({"x": [1, 2]}, index=["a", "a"]), "these repeat: 'a'"),
        (pd.DataFrame({"x": [1, 2]}, index=[0.5, 1.5]), "must be texts or whole numbers; got 0.5, 1.5"),
        (pd.DataFrame({"x": [1, np.inf]}), "finite features"),
    ],
)
def test_objects_are_checked(objects, message):
    with pytest.raises(ChoiceGPError, match=message):
        Store.open(":memory:", objects)


@pytest.mark.parametrize("settings", [3, {"a": {1, 2}}, {"a": float("nan")}, {1: 2}])
def test_settings_must_be_plain(settings, pens):
    with pytest.raises(ChoiceGPError, match="settings must be a dict of what JSON can hold"):
        Store.open(":memory:", pens, settings)


def test_a_question_is_recorded_with_its_reason(store):
    why = {"design": "information", "value": 0.7, "model": "3", "reason": "it says most"}
    question = store.ask("Anna", ["cap", "pen", "nib"], **why)
    [event] = [event for event in store.events() if event.kind == "asked"]
    assert question.ids == event.shown == ("cap", "pen", "nib")
    assert {name: getattr(event, name) for name in why} == why
    assert abs((datetime.now(UTC) - event.at).total_seconds()) < 60
    assert event.at.tzinfo is not None


def test_while_a_question_is_open_the_same_one_is_asked(store):
    first = store.ask("Anna", ["pen", "ink"])
    other = store.ask("Anna", ["cap", "nib"])
    assert not first.repeated
    assert other == first._replace(repeated=True)
    assert store.open_question("Anna") == other
    assert store.ask("Anna", ["pen", "ink"], key=first.key).repeated
    with pytest.raises(StoreError, match="belongs to another question; use a new one"):
        store.ask("Anna", ["cap", "ink"], key=first.key)
    store.answer(first.key, ["pen"])
    assert store.open_question("Anna") is None
    assert store.ask("Anna", ["cap", "nib"]).ids == ("cap", "nib")


def test_an_answer_sent_twice_counts_once(store):
    question = store.ask("Anna", ["pen", "ink", "cap"])
    first = store.answer(question.key, ["cap", "pen"])
    again = store.answer(question.key, ["pen", "cap"])
    assert (first.repeated, again.repeated) == (False, True)
    assert again.event == first.event
    assert kinds(store) == ["joined", "asked", "answered"]


def test_a_different_answer_is_refused(store):
    question = store.ask("Anna", ["pen", "ink"])
    store.answer(question.key, [])
    with pytest.raises(AlreadyAnswered, match=r"an answer \(none of these\) was recorded for this question before"):
        store.answer(question.key, ["pen"])
    with pytest.raises(AlreadyAnswered, match=r"an answer \(none of these\)"):
        store.skip(question.key)
    other = store.ask("Anna", ["pen", "cap"])
    assert not store.skip(other.key).repeated
    assert store.skip(other.key).repeated
    with pytest.raises(AlreadyAnswered, match='"can\'t say" was recorded'):
        store.answer(other.key, [])


def test_answers_at_the_same_moment_count_once(store):
    question = store.ask("Anna", ["pen", "ink"])
    outcomes: list[object] = []

    def answer(chosen: list[str]) -> None:
        try:
            outcomes.append(store.answer(question.key, chosen).repeated)
        except AlreadyAnswered:
            outcomes.append("refused")

    threads = [threading.Thread(target=answer, args=(["pen"] if i % 2 else [],)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, outcomes)) == ["False"] + ["True"] * 3 + ["refused"] * 4


def test_an_undo_asks_the_same_question_again(store):
    question = store.ask("Anna", ["pen", "ink"], design="random")
    store.answer(question.key, ["pen"])
    waiting = store.ask("Anna", ["cap", "nib"])
    again = store.undo("Anna", question.key)
    assert (again.ids, again.design, again.repeated) == (("pen", "ink"), "random", False)
    assert again.key != question.key
    assert store.undo("Anna", question.key) == again._replace(repeated=True), "sent again it counts once"
    assert store.answers() == []
    with pytest.raises(AlreadyAnswered, match="the question was withdrawn"):
        store.answer(waiting.key, ["cap"])
    assert store.answer(question.key, ["pen"]).repeated, "what was late does not count as a new answer"
    assert store.answers() == []
    store.answer(again.key, ["ink"])
    assert [one.chosen for one in store.answers()] == [("ink",)]
    assert kinds(store)[1:] == ["asked", "answered", "asked", "undone", "withdrawn", "asked", "answered"]


def test_undoes_take_back_one_answer_after_the_other(store):
    for shown in (["pen", "ink"], ["cap", "nib"]):
        store.answer(store.ask("Anna", shown).key, shown[:1])
    first, second = (one.question.key for one in store.answers())
    with pytest.raises(StoreError, match="only the last answer can be undone"):
        store.undo("Anna", first)
    assert store.undo("Anna").ids == ("cap", "nib")
    assert store.undo("Anna").ids == ("pen", "ink")
    assert store.answers() == []
    with pytest.raises(StoreError, match="there is no answer to undo"):
        store.undo("Anna")
    assert second


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.ask("Anna", []), "shown is empty"),
        (lambda s: s.ask("Anna", ["pen", "hat"]), "not in the catalogue: 'hat'"),
        (lambda s: s.ask("Anna", ["pen", "pen"]), "shown holds an object twice"),
        (lambda s: s.ask("Anna", "pen"), "shown must be a list of object ids, not 'pen'"),
        (lambda s: s.ask("Bert", ["pen"]), "there is no participant 'Bert'"),
        (lambda s: s.ask(17, ["pen"]), "there is no participant 17"),
        (lambda s: s.ask(None, ["pen"]), "named by a text or an id, not by None"),
        (lambda s: s.ask("Anna", ["pen"], key="x" * 200), "a key must be a text of 1 to 100"),
        (lambda s: s.answer("nothing", ["pen"]), "there is no question with the key 'nothing'"),
        (lambda s: s.answer(s.ask("Anna", ["pen", "ink"]).key, ["cap"]), "were not shown: 'cap'"),
        (lambda s: s.answer(s.ask("Anna", ["pen", "ink"]).key, ["pen", "pen"]), "chosen holds an object twice"),
        (lambda s: s.join("Anna"), "called 'Anna' already"),
        (lambda s: s.join(" "), "a name must be a text"),
        (lambda s: s.join("participant-3"), "what a participant without a name is called"),
        (lambda s: s.join("Bert", {"a": {1}}), "panel must be a dict"),
        (lambda s: s.set_state("off"), "state must be 'open', 'paused' or 'closed', not 'off'"),
        (lambda s: s.data(), "there are no answers"),
    ],
)
def test_what_is_wrong_is_refused_and_leaves_no_trace(pens, call, message):
    store = Store.open(":memory:", pens)
    store.join("Anna")
    with pytest.raises(ChoiceGPError, match=message):
        call(store)
    assert set(kinds(store)) <= {"joined", "asked"}
    assert store.answers() == []


def test_participants_are_known_by_token_name_and_id(store, place):
    anna = store.participant("Anna")
    bert, token = store.join(panel={"PROLIFIC_PID": "5f"})
    assert store.by_token(token) == bert == store.participant(bert.id) == store.participant(bert)
    assert store.by_token("guess") is None
    assert (bert.label, bert.panel, bert.state) == (f"participant-{bert.id}", {"PROLIFIC_PID": "5f"}, "active")
    assert store.participants() == [anna, bert]
    assert store.found_or_joined("Anna") == anna
    assert store.found_or_joined("Cleo").name == "Cleo"
    new = store.new_token(bert)
    assert store.by_token(token) is None
    assert store.by_token(new) == bert
    with Store.open(place) as again:
        assert again.by_token(new) == bert


def test_tokens_are_not_in_the_database(tmp_path, pens):
    with Store.open(tmp_path / "study.db", pens) as store:
        _, token = store.join("Anna")
        written = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"Anna" in written
    assert token.encode() not in written
    assert store.owner_token.encode() not in written


def test_who_has_finished_is_asked_nothing_until_an_answer_is_undone(store):
    store.answer(store.ask("Anna", ["pen", "ink"]).key, ["pen"])
    store.finish("Anna")
    store.finish("Anna")
    assert kinds(store).count("finished") == 1
    with pytest.raises(StoreError, match="Anna has finished and is not asked any more"):
        store.ask("Anna", ["pen", "cap"])
    store.undo("Anna")
    assert store.participant("Anna").state == "active"


def test_a_paused_study_takes_answers_and_a_closed_one_does_not(store):
    question = store.ask("Anna", ["pen", "ink"])
    store.set_state("paused")
    store.set_state("paused")
    assert store.ask("Anna", ["cap", "nib"]) == question._replace(repeated=True)
    store.answer(question.key, ["pen"])
    with pytest.raises(StoreError, match="the study is paused: nothing new is asked"):
        store.ask("Anna", ["cap", "nib"])
    store.set_state("open")
    other = store.ask("Anna", ["cap", "nib"])
    store.set_state("closed")
    with pytest.raises(StoreError, match="the study is closed: no answer is taken any more"):
        store.answer(other.key, [])
    with pytest.raises(StoreError, match="the study is closed"):
        store.undo("Anna")
    assert store.answer(question.key, ["pen"]).repeated
    assert store.state == "closed"
    assert [event.kind for event in store.events() if event.participant is None] == [
        "opened", "paused", "opened", "closed"
    ]  # fmt: skip


def test_a_deleted_participant_leaves_nothing_behind(tmp_path, pens):
    with Store.open(tmp_path / "study.db", pens) as store:
        secret, _ = store.join("Rumpelstiltskin", {"id": "miller's daughter"})
        store.answer(store.ask(secret, ["pen", "ink"], reason="a private reason").key, ["pen"])
        kept, _ = store.join("Anna")
        store.answer(store.ask(kept, ["pen", "ink"]).key, ["ink"])
        store.delete_participant("Rumpelstiltskin")
        written = b"".join(path.read_bytes() for path in tmp_path.iterdir())
        assert not re.search(b"Rumpel|miller|private", written)
        assert [event.kind for event in store.events() if event.participant == secret.id] == ["deleted"]
        assert [one.chosen for one in store.answers()] == [("ink",)]
        # What pages read for all people does not grow with the number of those who were deleted.
        assert {event.participant for event in store.events(of_questions=True)} == {kept.id} == set(store.progress())
        assert [one.id for one in store.participants()] == [kept.id]
        with pytest.raises(StoreError, match="there is no participant"):
            store.ask(secret.id, ["pen"])
        with pytest.raises(StoreError, match="there is no participant"):
            store.delete_participant(secret.id)
        assert store.join()[0].id not in (secret.id, kept.id)


def test_deleting_does_not_wait_for_who_reads_and_ends_when_they_do(tmp_path, pens):
    import sqlite3

    def written():
        return b"".join(path.read_bytes() for path in tmp_path.iterdir())

    with Store.open(tmp_path / "study.db", pens, timeout=60.0) as store:
        store.join("Rumpelstiltskin")
        reader = sqlite3.connect(tmp_path / "study.db", isolation_level=None)
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM choicegp_participants").fetchone() == (1,)
        store.delete_participant("Rumpelstiltskin")  # at once: waiting would take a minute
        assert b"Rumpel" in written(), "somebody still reads it"
        reader.close()
        store.join("Anna")
        assert b"Rumpel" not in written()


def test_a_new_file_is_its_owners_alone(tmp_path, pens):
    with Store.open(tmp_path / "study.db", pens) as store:
        store.join("Anna")
        assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


def test_deleting_works_on_both_databases(store):
    store.answer(store.ask("Anna", ["pen", "ink"]).key, ["pen"])
    store.delete_participant("Anna")
    assert store.answers() == []
    assert store.participants() == []
    assert store.found_or_joined("Anna").name == "Anna"


def numbered(store: Store) -> Store:
    bert, _ = store.join()
    store.answer(store.ask("Anna", [2, 0]).key, [0])
    store.answer(store.ask(bert, [3, 0, 1]).key, [])
    store.skip(store.ask("Anna", [3, 2]).key)
    return store


@pytest.fixture
def answered(place) -> Store:
    with Store.open(place, pd.DataFrame({"price": [3.0, 5.0, 4.0, 9.0]})) as store:
        store.join("Anna")
        yield numbered(store)


def test_answers_are_choice_data(answered):
    data = answered.data()
    assert [part.tolist() for part in data.shown] == [[2, 0], [3, 0, 1]]
    assert [part.tolist() for part in data.chosen] == [[0], []]
    assert data.respondents.tolist() == ["Anna", "participant-2"]
    assert len(data.X) == 4
    assert len(answered.data("Anna")) == 1
    assert [event.kind for event in answered.events(after=answered.answers()[-1].question.number)][-1] == "skipped"


def test_answers_are_exported_as_fit_reads_them(answered, tmp_path):
    answered.export_long(tmp_path / "long.csv")
    read = ChoiceData.from_long(tmp_path / "long.csv", respondent="respondent", empty="none")
    assert read.respondents.tolist() == ["Anna", "participant-2"]
    assert [read.object_ids[part].tolist() for part in read.shown] == [[2, 0], [3, 0, 1]]
    assert [read.object_ids[part].tolist() for part in read.chosen] == [[0], []]


def test_a_missing_feature_is_a_value_of_its_own(pens):
    store = Store.open(":memory:", pens)
    store.join("Anna")
    store.answer(store.ask("Anna", ["ink", "pen"]).key, ["pen"])
    assert {"colour=(missing)", "width=missing"} <= set(store.data().feature_names)


def test_events_are_exported_line_by_line(answered, tmp_path):
    answered.export_events(tmp_path / "events.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [line["kind"] for line in lines] == [event.kind for event in answered.events()]
    assert lines[3]["shown"] == [2, 0]
    assert lines[6]["chosen"] == []


def test_the_store_is_light_to_import():
    code = (
        "import sys, choicegp.elicitation.store; print(*{'jax', 'pandas', 'sqlalchemy', 'alembic'} & set(sys.modules))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.split() == []


@pytest.mark.parametrize("missing", ["sqlalchemy", "alembic"])
def test_a_missing_extra_is_named(monkeypatch, pens, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ImportError, match=re.escape("pip install 'choicegp[store]'")):
        Store.open(":memory:", pens)


def test_a_store_in_memory_is_used_by_several_threads(pens):
    store = Store.open(":memory:", pens)

    def answer(name: str) -> None:
        store.join(name)
        for _ in range(5):
            store.answer(store.ask(name, ["pen", "ink"]).key, ["pen"])

    threads = [threading.Thread(target=answer, args=(name,)) for name in ("Anna", "Bert", "Cleo")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.answers()) == 15


def test_joining_by_a_token_counts_once_and_a_full_study_takes_nobody_more(store):
    bert, token = store.join(token="t" * 43, most=2)
    assert store.join(token=token, most=2) == (bert, token)
    with pytest.raises(StudyFull, match="has 2 participants"):
        store.join(most=2)
    store.delete_participant("Anna")
    assert store.join(most=2)[0].id != bert.id

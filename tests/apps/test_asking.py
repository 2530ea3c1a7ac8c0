"""`choicegp ask` and `choicegp answers`: the whole loop in a terminal."""

import io
import json
import threading

import pandas as pd
import pytest

from choicegp import ChoiceData, ChoiceSession, Store
from choicegp.apps import asking, terminal
from choicegp.elicitation import refitting
from choicegp.reporting import summaries

PENS = "alt_id,price,colour\n007,3,red\nink,5,blue\ncap,4,red\nnib,9,blue\npad,6,red\ntip,7,red\n"


@pytest.fixture
def typed(run, tmp_path, monkeypatch):
    """Return a function that runs `choicegp ask` with these lines typed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pens.csv").write_text(PENS)

    def run_with(lines: str, *options: str, file: str = "pens.csv") -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(lines))
        return run("ask", file, "--db", "study.db", *options)

    return run_with


def recorded() -> list[tuple[tuple, tuple]]:
    with Store.open("study.db") as store:
        return [(answer.question.ids, answer.chosen) for answer in store.answers()]


def test_sets_are_shown_and_answered_by_numbers(typed):
    code, out, err = typed("2 1\nnone\nstop\n", "--participant", "Anna", "--set-size", "3")
    assert (code, err) == (0, "")
    first, second = recorded()
    assert first[1] == tuple(one for one in first[0] if one in first[0][:2])
    assert second[1] == ()
    assert all(f"{i}  {label}" in out for i, label in enumerate(first[0], 1))
    assert "price" in out
    assert "2 answers of Anna are in study.db." in out
    assert "A model needs at least 4 answers; the same command continues." in out


def test_objects_without_names_are_answered_by_their_places(typed, tmp_path):
    (tmp_path / "bare.csv").write_text("price,weight\n" + "".join(f"{i},{20 - i}\n" for i in range(9)))
    assert typed("1 3\n2\n4\nstop\n", "--set-size", "4", file="bare.csv")[0] == 0
    assert [(len(ids), chosen) for ids, chosen in recorded()] == [
        (4, tuple(ids[place] for place in places))
        for (ids, _), places in zip(recorded(), ((0, 2), (1,), (3,)), strict=True)
    ]


def test_the_end_of_the_input_stops_and_the_same_command_resumes(typed):
    assert typed("1\n", "--participant", "Anna", "--set-size", "2")[0] == 0
    code, out, _ = typed("", "--participant", "Anna", "--set-size", "2")
    assert code == 0
    assert out.startswith("Welcome back, Anna: 1 answer is in study.db.")
    code, out, _ = typed("1", "--participant", "Anna", "--set-size", "2")
    assert "2 answers of Anna are in study.db." in out
    assert "0 answers of Bert are in study.db." in typed("", "--participant", "Bert")[1]


def test_a_number_of_sets_can_be_given(typed):
    code, out, _ = typed("1\n1\n1\n1\n", "--sets", "2", "--set-size", "2")
    assert code == 0
    assert len(recorded()) == 2
    assert out.count("keep: ") == 2


def test_skip_and_undo(typed):
    code, out, _ = typed("undo\nskip\n1\nundo\n2\n", "--set-size", "2")
    assert code == 0
    assert "there is no answer to undo." in out
    [(shown, chosen)] = recorded()
    assert chosen == shown[1:]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("5", "5 is not a number from 1 to 4."),
        ("0", "0 is not a number from 1 to 4."),
        ("1 x", "x is not a number from 1 to 4."),
        ("none 1", "none is not a number from 1 to 4."),
        ("", "The line is empty."),
        ("\x1b[2J", "\\x1b[2j is not a number"),
    ],
)
def test_what_is_no_answer_is_explained_and_asked_again(typed, line, problem):
    code, out, _ = typed(f"{line}\n1\nSTOP\n")
    assert code == 0
    assert f"keep: {problem}" in out
    assert "Type the numbers of those that you would keep, such as 1 3; or none, skip, undo or stop." in out
    assert len(recorded()) == 1


def test_objects_are_named_by_a_column(tmp_path):
    file = tmp_path / "pens.csv"
    file.write_text(PENS)
    assert asking.read_objects(str(file), None, None).index.tolist() == ["007", "ink", "cap", "nib", "pad", "tip"]
    assert asking.read_objects(str(file), "price", ["colour"]).index.tolist() == ["3", "5", "4", "9", "6", "7"]
    assert asking.read_objects(str(file), None, ["price"]).columns.tolist() == ["price"]
    file.write_text(PENS.replace("alt_id", "thing"))
    assert asking.read_objects(str(file), None, None).index.name == "thing"
    file.write_text("price,weight\n3,1\n5,2\n")
    assert asking.read_objects(str(file), None, None).index.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--object-id", "thing"), "pens.csv has no column 'thing'; its columns are alt_id, price, colour"),
        (("--features", "weight"), "pens.csv has no column 'weight'"),
        (("--set-size", "1"), "--set-size"),
        (("--design", "clever"), "design must be 'random', 'space-filling'"),
        (("--participant", " "), "a name must be a text"),
    ],
)
def test_wrong_options_are_one_line(typed, options, problem):
    code, _, err = typed("1\n", *options)
    assert code == 2
    assert problem in err
    assert len(err.splitlines()) == 1


def test_other_objects_are_refused(typed, tmp_path):
    typed("1\n")
    (tmp_path / "pens.csv").write_text(PENS.replace("9", "8"))
    code, _, err = typed("1\n")
    assert (code, err) == (2, "error: study.db holds a study of other objects: 'price' differs for 1 object: 'nib'\n")


def test_what_was_learned_is_said(typed, monkeypatch):
    best = pd.DataFrame({"probability": [0.9, 0.4]}, index=["cap", "ink"])
    monkeypatch.setattr(ChoiceSession, "_request", lambda self: None)
    monkeypatch.setattr(ChoiceSession, "recommend", lambda self, n: best)
    monkeypatch.setattr(ChoiceSession, "model", object())
    monkeypatch.setattr(ChoiceSession, "done", True)
    monkeypatch.setattr(summaries, "drivers_in_words", lambda model: "Utility 1 falls with price (2.0).")
    code, out, err = typed("1\n1\n1\n1\n", "--set-size", "2", "--sets", "4")
    assert (code, err) == (0, "")
    assert out.count("You may stop here: ") == 1
    learned = out.partition("4 answers of me are in study.db.")[2]
    assert "Utility 1 falls with price (2.0)." in learned
    assert "The short list: of 6 objects, those that most probably no other beats:" in learned
    assert learned.index("cap") < learned.index("ink")


def test_answers_are_exported(typed, run):
    typed("1\nnone\nskip\n", "--set-size", "2", "--participant", "Anna")
    code, out, err = run("answers", "study.db", "-o", "long.csv")
    assert (code, err) == (0, "")
    assert out.startswith("2 answers are in long.csv. Learn from them:\n  choicegp fit long.csv")
    data = ChoiceData.from_long("long.csv", respondent="respondent", empty="none")
    assert [len(part) for part in data.chosen] == [1, 0]
    code, out, err = run("answers", "study.db", "-o", "events.jsonl", "--events")
    assert (code, out, err) == (0, "9 events are in events.jsonl.\n", "")
    with open("events.jsonl") as lines:
        assert [json.loads(line)["kind"] for line in lines].count("skipped") == 1


def test_a_participant_is_removed(typed, run):
    typed("1\nnone\n", "--set-size", "2", "--participant", "Anna")
    typed("1\n", "--set-size", "2", "--participant", "Bert")
    assert run("answers", "study.db", "-o", "people.csv", "--participants")[1] == "2 participants are in people.csv.\n"
    assert pd.read_csv("people.csv")[["label", "n_answers"]].to_numpy().tolist() == [["Anna", 2], ["Bert", 1]]
    assert run("answers", "study.db", "--delete", "Anna")[:2] == (0, "Anna and 2 answers were removed from study.db.\n")
    with Store.open("study.db") as store:
        assert {answer.question.participant for answer in store.answers()} == {2}
    code, _, err = run("answers", "study.db", "--delete", "Anna")
    assert (code, err) == (2, "error: there is no participant 'Anna' in study.db; add one with join\n")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("study.db", "-o", "long.csv", "--delete", "me"), "or pass --delete NAME alone"),
        (("study.db",), "the answers need a file: pass -o FILE.csv"),
        (("absent.db", "-o", "long.csv"), "there is no file absent.db"),
        (("study.db", "-o", "absent/long.csv"), "there is no folder absent"),
        (("study.db", "-o", "long.csv"), "there are no answers in study.db yet"),
    ],
)
def test_what_cannot_be_exported(typed, run, arguments, problem):
    typed("")
    code, _, err = run("answers", *arguments)
    assert code == 2
    assert problem in err


@pytest.mark.parametrize("lines", ["1\n1\n1\n1\n", "1\n1\n1\n1\nstop\n"], ids=["asked", "at the end"])
def test_an_interrupt_waits_for_no_fit(typed, monkeypatch, lines):
    """A fit is under way that never ends: Ctrl-C ends the command nevertheless, and no answer is lost."""
    begun, ended, left = threading.Event(), threading.Event(), []

    def endless(self, answered, last):
        begun.set()
        ended.wait(60)
        raise ValueError("too late")

    def interrupted(*_):
        begun.wait(60)
        raise KeyboardInterrupt

    monkeypatch.setattr(refitting.Refitter, "_fitted", endless)
    read = asking._read
    rest = iter(lines.split())
    monkeypatch.setattr(asking, "_read", lambda question: read(question) if next(rest, None) else interrupted())
    monkeypatch.setattr(refitting.Refitter, "wait", interrupted)
    monkeypatch.setattr(terminal, "_end_at_once", left.append)
    code, out, err = typed(lines)
    ended.set()
    assert left == [code] == [130]
    assert "4 answers of me are in study.db." in out
    assert err == "interrupted: every answer is kept, and the same command continues\n"
    assert len(recorded()) == 4

"""An analyst's first hour: tables as surveys export them, and what the command line says about them."""

import random

import pandas as pd
import pytest

PRODUCTS = ("Alder", "Birch", "Cinder", "Dune", "Ember", "Fjord")


@pytest.fixture
def survey(tmp_path, monkeypatch) -> str:
    """Return the name of a survey of 6 people with 4 tasks of 4 products, with ticks in some tasks."""
    monkeypatch.chdir(tmp_path)
    rng = random.Random(0)
    lines = ["respondent,task,product,price,comment,Choice"]
    for person in range(1, 7):
        for task in range(1, 5):
            for place, product in enumerate(rng.sample(PRODUCTS, 4)):
                tick = "x" if task > 1 and place < 2 else ""
                lines.append(f'r{person},{task},{product},"EUR {rng.randint(300, 900)}",said {len(lines)},{tick}')
    (tmp_path / "survey.csv").write_text("\n".join(lines) + "\n")
    return "survey.csv"


ROLES = ("--set-id", "respondent,task", "--object-id", "product", "--chosen", "Choice")


def test_each_message_leads_to_the_next_option(survey, run):
    code, _, err = run("describe", survey, *ROLES[:4])
    assert code == 2
    assert "there is no column 'choice' (chosen); did you mean --chosen Choice? " in err
    _, _, err = run("describe", survey, "--chosen", "Choice")
    assert "; name the right ones with --set-id COLUMN, --object-id COLUMN" in err
    code, _, err = run("describe", survey, "--set-id", "task", *ROLES[2:])
    assert code == 2
    assert "duplicate-object: if a set id needs several columns, name them all: --set-id respondent,task" in err
    code, _, err = run("describe", survey, *ROLES)
    assert code == 2
    first, counted, *rest = err.splitlines()
    assert first == "error: survey.csv (the header is row 1): 6 defects"
    assert counted == (
        "  6 x nothing-chosen: where keeping nothing is an answer, pass --empty none; to leave such sets out, "
        "--empty skip"
    )
    assert rest[0] == "  row 2, set 'r1/1': nothing is chosen from the set"
    code, out, err = run("describe", survey, *ROLES, "--empty", "none")
    assert code == 0
    assert "Nothing was chosen from 6 sets." in out
    note, price, comment = err.splitlines()
    assert note == "note: column 'Choice' was read as 'x' for yes and blank for no"
    assert price.startswith(
        "warning: column 'price' is read as words, though most are numbers with a currency or a unit"
    )
    assert price.endswith("; to read them as numbers, pass --number price")
    assert comment == (
        "warning: column 'comment' has 96 different words in 96 rows, and each becomes a feature; to leave it out, "
        "pass --features price"
    )
    code, out, err = run("describe", survey, *ROLES, "--empty", "skip", "--number", "price", "--features", "price")
    assert code == 0
    assert "18 sets of 4 objects." in out
    assert "1 feature: price." in out
    assert err.splitlines()[1:] == ["warning: 6 of 24 sets were left out (6 defects)"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--kind", "best"), "2 objects are marked where one is the best"),
        (("--at-most", "1"), "--at-most 1 asks for one object, not for all that are good enough: use --kind best"),
        (("--missing", "never"), "'--missing': 'never' is not one of 'error', 'skip', 'level'"),
        (("--empty", "maybe"), "'--empty': 'maybe' is not one of 'error', 'none', 'skip'"),
        (("--decimal", ";"), "decimal must be '.' or ','"),
        (("--number", "prize"), "there is no feature column 'prize' (numbers); did you mean 'price'?"),
        (("--kind", "kinds"), "there is no column 'kinds' (kind)"),
    ],
)
def test_options_that_do_not_fit(survey, run, options, said):
    code, out, err = run("describe", survey, *ROLES, *options)
    assert (code, out) == (2, "")
    assert said in err


def test_kinds_and_limits(tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ranks.csv").write_text("choice_id,alt_id,choice,price\n1,a,1,2\n1,b,3,4\n1,c,2,3\n")
    code, out, _ = run("describe", "ranks.csv", "--kind", "ranking")
    assert code == 0
    assert "2 sets of 2 to 3 objects (median 2.5)." in out
    assert "Kinds of sets: 2 best." in out
    (tmp_path / "ticks.csv").write_text("choice_id,alt_id,choice,price\n1,a,1,2\n1,b,1,4\n1,c,0,3\n")
    code, out, err = run("describe", "ticks.csv", "--at-most", "2")
    assert code == 0
    assert "1 set of 2 objects." in out
    assert err.startswith("note: 1 of 1 sets have the 2 ticks that were allowed")


def test_a_wide_table_with_one_column_of_choices(tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wide.csv").write_text("id,price_1,price_2,pick\na,3,4,2\nb,2,1,1\n")
    code, _, err = run("describe", "wide.csv")
    assert code == 2
    assert "--wide --alternatives 1,2 --features price" in err
    options = "--wide --alternatives 1,2 --features price --set-id id --chosen pick"
    code, out, err = run("describe", "wide.csv", *options.split())
    assert code == 0
    assert "Kinds of sets: 2 best." in out
    assert (
        err
        == "note: column 'pick' holds the names of one alternative per set, the best one unless you pass --kind keep\n"
    )


def test_numbers_in_the_files_of_a_folder(tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "choices").mkdir()
    code, _, err = run("fit", "choices", "-o", "model.cgp", "--number", "price")
    assert code == 2
    assert "there is no .parquet file in the folder choices: it is empty" in err
    rows = [("a", 1, 1, "1,549 EUR"), ("a", 2, 0, "2,000 EUR"), ("b", 1, 0, "999 EUR"), ("b", 2, 1, "1,100 EUR")]
    frame = pd.DataFrame(rows, columns=["choice_id", "alt_id", "choice", "price"])
    frame.to_parquet(tmp_path / "choices" / "one.parquet")
    code, _, err = run("fit", "choices", "-o", "model.cgp", "--number", "prize")
    assert code == 2
    assert "there is no feature column 'prize' (numbers); did you mean 'price'?" in err
    code, _, err = run("fit", "choices", "-o", "model.cgp", "--number", "price")
    assert code == 2
    assert "may separate thousands or decimals. Pass the decimal sign of the column: --decimal . or --decimal ," in err

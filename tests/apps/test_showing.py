"""Commands that show a model: which plots of what, and a report with what it was asked for."""

from types import SimpleNamespace

import pandas as pd
import pytest

from choicegp import ChoiceData, ParetoEmbedding
from choicegp.apps import models, showing
from choicegp.plotting import files

TABLE = "page,alt_id,tick,price,colour\n1,pen,1,3,red\n1,7,0,5,blue\n2,pen,1,3,red\n2,cap,1,4,red\n"


@pytest.fixture
def fitted(tmp_path, monkeypatch):
    """Return the name of a model's file; a table that is like its own lies beside it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "table.csv").write_text(TABLE)
    data = ChoiceData.from_long("table.csv", set_id="page", chosen="tick")
    ParetoEmbedding(1, n_layers=0, max_epochs=1, progress=False).fit(data).save("model.cgp")
    return "model.cgp"


def test_a_report_is_written_with_what_was_asked_for(fitted, run, tmp_path):
    code, out, err = run(
        "report", fitted, "-o", "out.html", "--data", "table.csv", "--set-id", "page", "--chosen", "tick", "--title",
        "Pens & caps",
    )  # fmt: skip
    assert (code, out, err) == (0, "The report is in out.html.\n", "")
    text = (tmp_path / "out.html").read_text("utf-8")
    assert "<h1>Pens &amp; caps</h1>" in text
    assert "Predictions for 2 held-out sets" in text
    assert "choicegp report model.cgp -o out.html --data table.csv --set-id page --chosen tick --title" in text


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["report", "none.cgp"], "none.cgp"),
        (["report", "model.cgp", "-o", "none/out.html"], "there is no folder none"),
        (["report", "model.cgp", "--change", "pen price=3"], "OBJECT:FEATURE=VALUE or OBJECT:withdrawn"),
        (["report", "model.cgp", "--change", "pen:price=cheap"], "the feature price has numbers, not 'cheap'"),
        (["report", "model.cgp", "--data", "table.csv"], "choice_id"),
        (["plot", "model.cgp", "--kind", "effects"], "has no posterior of utilities"),
    ],
)
def test_what_is_wrong_is_said_in_a_line_and_nothing_is_written(fitted, run, tmp_path, arguments, problem):
    code, out, err = run(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert problem in err
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model.cgp", "table.csv"]


def test_changes_have_the_types_of_the_data(fitted):
    model = models.load(fitted)
    texts = ["pen:price=2.5", "pen:colour=blue", "7: withdrawn", "new: x:price=1"]
    assert showing._changes(model, None, texts) == {
        "pen": {"price": 2.5, "colour": "blue"}, "7": None, "new: x": {"price": 1.0},
    }  # fmt: skip
    offered = ChoiceData.from_sets(pd.DataFrame({"price": [1.0], "colour": ["red"]}, index=[7]), [[0]])
    assert showing._changes(model, offered, ["7:withdrawn"]) == {7: None}


@pytest.mark.parametrize(
    ("options", "kinds", "features", "n_held_out"),
    [
        ([], ["drivers", "elbo"], None, 0),
        (["--feature", "price"], ["effects"], ["price"], 0),
        (["--kind", "utilities", "--feature", "price"], ["utilities"], ["price"], 0),
        (["--data", "table.csv"], ["drivers", "elbo", "calibration"], None, 2),
        (["--kind", "calibration"], ["calibration"], None, 0),
    ],
)
def test_plots_are_of_what_was_named(fitted, run, monkeypatch, options, kinds, features, n_held_out):
    asked = SimpleNamespace()

    def save_all(model, folder, kinds, wanted):
        asked.kinds, asked.wanted = kinds, wanted
        return [folder / f"{kind}.png" for kind in kinds]

    monkeypatch.setattr(files, "save_all", save_all)
    monkeypatch.setattr(files, "suitable_kinds", lambda model: ["drivers", "elbo"])
    code, out, err = run("plot", fitted, "-o", "out", "--set-id", "page", "--chosen", "tick", *options)
    assert (code, err) == (0, "")
    assert out.split() == [f"out/{kind}.png" for kind in kinds]
    assert (asked.kinds, asked.wanted.features) == (kinds, features)
    assert len(asked.wanted.held_out or ()) == n_held_out

"""The shell reaches every model: fit with a name, then predict, plot and select from the file."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from choicegp import BatchPreferenceGP, ChoiceData, ChoiceGP
from choicegp.apps import models
from choicegp.apps.models import MODELS, class_of, load, made
from choicegp.errors import ChoiceGPError, ReadingNote
from choicegp.estimators import n_utilities
from choicegp.reporting import summaries
from choicegp.storage import archive

TABLE = "choice_id,alt_id,choice,price\n1,a,1,3\n1,b,0,5\n2,a,1,3\n2,c,0,4\n3,b,0,5\n3,c,1,4\n"


def test_every_name_is_a_model_with_a_file_format_of_its_own():
    assert len({class_of(name)._format for name in MODELS}) == len(MODELS)


def test_a_wrong_name_is_refused_with_the_right_ones():
    with pytest.raises(ChoiceGPError, match=r"--model must be 'choice', 'best', .* or 'embedding', not 'worst'$"):
        class_of("worst")


def test_the_name_is_checked_before_the_place_and_both_before_anything_is_read_or_imported(run, monkeypatch):
    monkeypatch.setattr(models, "class_of", lambda name: pytest.fail(f"the class of {name} was imported"))
    code, _, err = run("fit", "missing.csv", "--model", "worst", "-o", "nowhere/model.cgp")
    assert (code, "--model must be 'choice', 'best', " in err) == (2, True)
    code, _, err = run("fit", "missing.csv", "--model", "best", "-o", "nowhere/model.cgp")
    assert (code, "there is no folder nowhere" in err) == (2, True)


def test_an_option_of_another_model_is_refused():
    with pytest.raises(ChoiceGPError, match="--lapse is not an option of --model best"):
        made("best", {"lapse": ("--lapse", 0.1)})


def test_options_reach_the_model():
    assert made("preference", {"max_seconds": ("--max-seconds", 3.0)}).max_seconds == 3.0


def test_a_fitted_model_is_read_by_predict_plot_and_select(run, tmp_path, monkeypatch):
    file, model, plots = str(tmp_path / "choices.csv"), str(tmp_path / "model.cgp"), str(tmp_path / "plots")
    (tmp_path / "choices.csv").write_text(TABLE)
    code, out, err = run("fit", file, "--model", "preference", "-o", model)
    assert code == 0, err
    assert "log evidence" in out
    assert type(load(model)).__name__ == "PreferenceGP"
    code, out, _ = run("predict", model, file)
    assert code == 0
    assert out.split()[:2] == ["set", "object"]
    code, out, err = run("plot", model, "-o", plots)
    assert code == 0, err
    assert out.split() == [f"{plots}/objects.png", f"{plots}/preferences.png"]
    code, _, err = run("plot", model, "--kind", "effects", "-o", plots)
    assert (code, "PreferenceGP has no posterior of utilities" in err) == (2, True)
    asked = searched(monkeypatch)
    assert run("select", model)[0] == 0
    assert asked[0][0] == load(model).data_
    assert asked[0][1]["rule"] == "pareto"


def searched(monkeypatch) -> list:
    """Return the data and options of every search for a number of utilities, none of which is made."""
    asked = []
    monkeypatch.setattr(n_utilities, "select_n_utilities", lambda data, *_, **options: asked.append((data, options)))
    monkeypatch.setattr(summaries, "selection_in_words", str)
    return asked


@pytest.mark.parametrize(
    ("name", "kinds"),
    [("general-preference", ["preferences"]), ("pair", ["preferences"]), ("embedding", ["objects"])],
)
def test_every_model_has_a_picture(name, kinds, run, tmp_path):
    data = ChoiceData.from_pairs([[0.0], [1.0], [2.0]], [[1, 0], [2, 1], [2, 0]])
    quick = {"max_epochs": 2, "n_units": 4} if name == "embedding" else {"max_iter": 2, "n_restarts": 1}
    class_of(name)(progress=False, **quick).fit(data).save(tmp_path / "model.cgp")
    code, out, err = run("plot", str(tmp_path / "model.cgp"), "-o", str(tmp_path))
    assert code == 0, err
    assert [line.rpartition("/")[2] for line in out.split()] == [f"{kind}.png" for kind in kinds]


def test_a_search_takes_the_choices_and_the_options_of_a_model_file(run, monkeypatch):
    asked = searched(monkeypatch)
    data = ChoiceData.from_pairs([[0.0], [1.0], [2.0]], [[1, 0], [2, 1], [2, 0]])
    people = SimpleNamespace(prior=SimpleNamespace(alone=False))
    theirs = replace(data, respondents=np.array(["Anna", "Anna", "Bert"]))
    files = {
        "a.cgp": ChoiceGP(1, rule="best-in-one", object_effects=False)._keep(SimpleNamespace(data=data, study=None)),
        "b.cgp": BatchPreferenceGP()._keep(SimpleNamespace(data=data)),
        "c.cgp": ChoiceGP(1, respondents="auto")._keep(SimpleNamespace(data=theirs, study=people)),
    }
    monkeypatch.setattr(archive, "kind_of", lambda path: files[path]._format)
    monkeypatch.setattr(models, "load", files.get)
    assert run("select", "a.cgp", "--lapse", "0.1")[0] == 0
    found, options = asked[0]
    assert found == data
    assert (options["rule"], options["lapse"], options["object_effects"]) == ("best-in-one", 0.1, False)
    code, _, err = run("select", "a.cgp", "--set-id", "task")
    assert (code, "whose choices are read already: leave --set-id out" in err) == (2, True)
    assert run("select", "b.cgp")[0] == 0
    assert asked[1][0].kinds.tolist() == ["best"] * 3
    assert run("select", "c.cgp")[0] == 0
    assert run("select", "c.cgp", "--people", "individual")[0] == 0
    assert [options.get("respondents") for _, options in asked] == ["pooled", None, "hierarchical", "individual"]


@pytest.mark.parametrize("people", ["individual", "hierarchical", "auto"])
def test_models_of_many_people_name_the_option_that_they_need(people, run, table):
    words = f"error: --people {people}: the choices of choices.csv do not say who answered; pass their table with "
    for command in (("select",), ("fit", "-o", "m.cgp")):
        code, out, err = run(*command, table, "--people", people)
        assert (code, out, err) == (2, "", f"{words}--respondent COLUMN\n")


def test_a_threshold_and_a_rule_reach_the_model(run, tmp_path):
    file, model = str(tmp_path / "choices.csv"), str(tmp_path / "model.cgp")
    (tmp_path / "choices.csv").write_text(TABLE + "4,b,0,5\n4,d,0,6\n")
    code, _, err = run("fit", file, "-o", model)
    assert (code, "--empty none" in err) == (2, True)
    options = ("--empty", "none", "--rule", "best-in-one", "-d", "1", "--intervals", "none", "--no-object-effects")
    code, _, err = run("fit", file, *options, "-o", model)
    assert code == 0, err
    fitted = load(model)
    assert fitted.rule == "best-in-one"
    assert fitted.errors_.has_threshold


QUICK = ("-d", "1", "--intervals", "none", "--no-object-effects")


def test_a_model_of_yes_and_no_predicts_yes_and_no(run, tmp_path):
    rows = [(person, name, price) for person in "uv" for name, price in zip("abcde", (1, 2, 3, 4, 5), strict=True)]
    lines = [f"{person},{name},{'yes' if price < 4 else 'no'},{price}" for person, name, price in rows]
    (tmp_path / "answers.csv").write_text("\n".join(["choice_id,alt_id,choice,price", *lines]) + "\n")
    file, model, found = (str(tmp_path / name) for name in ("answers.csv", "model.cgp", "found.csv"))
    code, _, err = run("fit", file, "--kind", "yes-no", *QUICK, "-o", model)
    assert code == 0, err
    code, _, err = run("predict", model, file, "-o", found)
    assert code == 0
    assert "so each is predicted by itself; for what is kept of each set, pass --kind keep\n" in err
    table = pd.read_csv(found)
    assert table["set"].is_unique
    assert table.loc[table["object"].isin(["a", "b"]), "chosen"].all()  # b, too, though a beats it
    assert not table.loc[table["object"] == "e", "chosen"].any()
    again = str(tmp_path / "again.csv")
    code, _, err = run("predict", model, file, "--kind", "yes-no", "-o", again)
    assert (code, err) == (0, "")
    assert (tmp_path / "again.csv").read_text() == (tmp_path / "found.csv").read_text()
    code, _, err = run("predict", model, file, "--kind", "keep", "-o", found)
    assert (code, err) == (0, "")
    kept = pd.read_csv(found)
    assert kept.groupby("set")["chosen"].sum().tolist() == [1, 1]


def test_a_model_of_best_objects_predicts_the_best(run, tmp_path):
    data = ChoiceData.from_pairs([[0.0], [1.0], [2.0]], [[1, 0], [2, 1], [2, 0]])
    asked = ChoiceData.from_sets(data.X, data.shown, data.chosen, kinds="best")
    options = {"intervals": "none", "object_effects": False, "progress": False}
    ChoiceGP(1, **options).fit(asked).save(tmp_path / "model.cgp")
    data.take([0]).write(tmp_path / "new.csv")
    place, table = str(tmp_path / "model.cgp"), str(tmp_path / "new.csv")
    code, out, err = run("predict", place, table)
    assert (code, "the best, so that is what is predicted" in err) == (0, True)
    probabilities = [float(line.split()[-2]) for line in out.splitlines()[1:]]
    assert sum(probabilities) == pytest.approx(1.0, abs=0.002)
    (tmp_path / "sets").mkdir()
    data.take([0]).write(tmp_path / "sets" / "new.parquet")
    code, _, err = run("predict", place, str(tmp_path / "sets"), "-o", str(tmp_path / "found.parquet"))
    assert (code, "the best, so that is what is predicted" in err) == (0, True)
    assert pd.read_parquet(tmp_path / "found.parquet")["probability"].sum() == pytest.approx(1.0)
    data.take([0]).to_long().assign(kind="keep").to_csv(table, index=False)
    code, _, err = run("predict", place, table)
    assert (code, "column 'kind' says" in err, "so that is what is predicted" in err) == (0, True, False)


def test_sets_that_say_what_is_asked_are_asked_that():
    data = ChoiceData.from_pairs([[0.0], [1.0]], [[1, 0]])
    worst = replace(data, kinds=np.array(["worst"], dtype=object))
    best = replace(data, kinds=np.array(["best"], dtype=object))
    fitted = ChoiceGP()._keep(SimpleNamespace(data=worst))
    assert models.asked_as_learned(fitted, best) is best
    with pytest.warns(ReadingNote, match="which object of a set is the worst"):
        assert models.asked_as_learned(fitted, data).kinds.tolist() == ["worst"]
    assert models.learned_question(ChoiceGP()._keep(SimpleNamespace(data=data))) is None

"""The shell reaches every model: fit with a name, then predict and plot from the file."""

import pytest

from choicegp.apps.models import MODELS, class_of, load, made
from choicegp.errors import ChoiceGPError

TABLE = "choice_id,alt_id,choice,price\n1,a,1,3\n1,b,0,5\n2,a,1,3\n2,c,0,4\n3,b,0,5\n3,c,1,4\n"


def test_every_name_is_a_model_with_a_file_format_of_its_own():
    assert len({class_of(name)._format for name in MODELS}) == len(MODELS)


def test_a_wrong_name_is_refused_with_the_right_ones():
    with pytest.raises(ChoiceGPError, match="there is no model 'worst': --model takes one of choice, best"):
        class_of("worst")


def test_an_option_of_another_model_is_refused():
    with pytest.raises(ChoiceGPError, match="--lapse is not an option of --model best"):
        made("best", {"lapse": ("--lapse", 0.1)})


def test_options_reach_the_model():
    assert made("preference", {"max_seconds": ("--max-seconds", 3.0)}).max_seconds == 3.0


def test_a_fitted_model_is_read_by_predict_and_refused_by_plot(run, tmp_path):
    file, model = str(tmp_path / "choices.csv"), str(tmp_path / "model.cgp")
    (tmp_path / "choices.csv").write_text(TABLE)
    code, out, err = run("fit", file, "--model", "preference", "-o", model)
    assert code == 0, err
    assert "log evidence" in out
    assert type(load(model)).__name__ == "PreferenceGP"
    code, out, _ = run("predict", model, file)
    assert code == 0
    assert out.split()[:2] == ["set", "object"]
    code, _, err = run("plot", model, "-o", str(tmp_path / "plots"))
    assert code == 2
    assert "a PreferenceGP has no posterior of utilities to draw" in err


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

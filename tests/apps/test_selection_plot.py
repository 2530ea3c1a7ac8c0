"""The picture of the scores, and the command that makes them."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from choicegp import ChoiceGP, SelectionResult, datasets
from choicegp.estimators import n_utilities
from choicegp.plotting.trust_plots import plot_selection
from choicegp.reporting.summaries import selection_in_words
from choicegp.selection.loo import PsisDiagnostics, loo_result


@pytest.fixture
def found():
    table = pd.DataFrame(
        {
            "elpd": [-3213.0, -69.0, -75.0], "se": [200.0, 8.0, 8.5], "elpd_diff": [3144.0, 0.0, 6.0],
            "dse": [201.0, 0.0, 2.5], "p": [3.0, 10.0, 14.0], "doubtful": [0, 0, 1],
        },
        index=pd.Index([1, 2, 3], name="n_utilities"),
    )  # fmt: skip
    none = PsisDiagnostics(np.zeros(4), np.zeros(4))
    results = {d: loo_result(np.zeros(4), none, np.arange(d == 3), "because", ()) for d in (1, 2, 3)}
    return SelectionResult(2, table, {}, "2 utilities: the best.", results)


def test_scores_are_drawn_with_their_errors(found):
    ax = plot_selection(found)
    chosen = next(line for line in ax.lines if line.get_label() == "Chosen: 2.")
    assert (list(chosen.get_xdata()), list(chosen.get_ydata())) == ([2], [-69.0])
    whole, paired = ax.containers
    np.testing.assert_allclose(whole.lines[0].get_ydata(), [-69.0, -75.0])
    ends = [segment[:, 1].tolist() for segment in whole.lines[2][0].get_segments()]
    assert ends == [[-77.0, -61.0], [-83.5, -66.5]]
    assert [segment[:, 1].tolist() for segment in paired.lines[2][0].get_segments()][1] == [-77.5, -72.5]
    assert list(ax.get_xticks()) == [1, 2, 3]


def test_a_score_far_below_is_named_instead(found):
    ax = plot_selection(found)
    [text] = ax.texts
    assert (text.get_text(), text.xy[0]) == ("-3213, off\nthe scale", 1)  # above its number
    assert ax.get_xlim() == (0.5, 3.5)
    assert ax.get_ylim()[0] > -200


def test_it_draws_where_it_is_told(found):
    ax = Figure().add_subplot()
    assert plot_selection(found, ax=ax) is ax


def test_in_words(found):
    lines = selection_in_words(found).splitlines()
    assert lines[0].split() == ["utilities", "elpd", "se", "below", "best", "its", "se", "parameters", "doubtful"]
    assert lines[2].split()[:3] == ["2", "-69.0", "8.0"]
    assert lines[-2] == "Warning: 3: leave-one-out cannot be trusted on one set of 4: because."
    assert lines[-1] == "Chosen: 2 utilities: the best."


class TestCrossValidated:
    @pytest.fixture
    def compared(self, found):
        return found._replace(
            n_utilities=3, table=found.table.assign(cv=[np.nan, -88.0, -80.0], cv_se=[np.nan, 3.0, 0.0])
        )

    def test_in_words(self, compared):
        lines = selection_in_words(compared).splitlines()
        assert lines[0].split()[-3:] == ["cv", "cv", "se"]
        assert lines[2].split()[-2:] == ["-88.0", "3.0"]
        assert lines[1].split()[-1] == "0"  # one utility was not compared: nothing stands there

    def test_columns_without_a_score_are_not_shown(self, found, compared):
        empty = found._replace(table=compared.table.assign(cv=np.nan, cv_se=np.nan))
        assert selection_in_words(empty) == selection_in_words(found)

    def test_the_picture_says_so(self, found, compared):
        labels = [line.get_label() for line in plot_selection(compared).lines]
        assert "Chosen: 3\nby cross-validation." in labels
        empty = found._replace(table=compared.table.assign(cv=np.nan, cv_se=np.nan))
        assert "Chosen: 2." in [line.get_label() for line in plot_selection(empty).lines]


class TestCommand:
    @pytest.fixture
    def choices(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        datasets.sincos(n_objects=16, n_sets=20).data.write("choices.csv")
        return tmp_path

    def test_it_shows_the_table_and_keeps_the_chosen_model(self, choices, run):
        code, out, err = run(
            "select", "choices.csv", "--max-utilities", "1", "--restarts", "1", "-o", "model.cgp", "--plot", "s.png",
        )  # fmt: skip
        assert code == 0, err
        first, *lines = out.splitlines()
        assert first.split()[:3] == ["utilities", "elpd", "se"]
        assert lines[0].split()[0] == "1"
        assert next(line for line in lines if line.startswith("Chosen: ")).startswith("Chosen: 1 utility: ")
        assert ChoiceGP.load("model.cgp").n_utilities_ == 1
        assert lines[-3] == (
            "Intervals: Gaussian utilities at the most probable hyperparameters: intervals are too narrow. "
            "For better ones run choicegp fit with -d 1."
        )
        assert lines[-2:] == ["The model is in model.cgp.", "The plot is in s.png."]
        assert (choices / "s.png").read_bytes().startswith(b"\x89PNG")

    def test_folds_are_passed_on(self, choices, run, found, monkeypatch):
        asked = []

        def search(*_, **options):
            asked.append(options["folds"])
            return found

        monkeypatch.setattr(n_utilities, "select_n_utilities", search)
        assert run("select", "choices.csv", "--folds", "7")[0] == 0
        assert run("select", "choices.csv")[0] == 0
        assert asked == [7, None]

    def test_a_place_that_cannot_be_written_is_found_before_the_work(self, choices, run):
        code, out, err = run("select", "choices.csv", "-o", "nowhere/model.cgp")
        assert (code, out) == (2, "")
        assert "there is no folder nowhere" in err

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["--lapse", "often"], "--lapse takes a number or the word learn"),
            (["--folds", "1"], "greater than or equal to 2"),
            (["--max-utilities", "0"], "greater than or equal to 1"),
        ],
    )
    def test_wrong_options_are_one_line(self, choices, run, options, message):
        code, _, err = run("select", "choices.csv", *options)
        assert code == 2
        assert message in err
        assert len(err.splitlines()) == 1

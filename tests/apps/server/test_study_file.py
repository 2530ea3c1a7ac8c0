"""The study file: what it says, and every way in which it can be wrong."""

import tomllib
from importlib.resources import files

import pandas as pd
import pytest

from choicegp.apps.server.cards import Cards, learned_from
from choicegp.apps.server.demo import STUDY
from choicegp.apps.server.study_file import default_feature, read_study, said
from choicegp.apps.server.thinking import setup_for
from choicegp.errors import ChoiceGPError


def written(tmp_path, text):
    (tmp_path / "study.toml").write_text(text, encoding="utf-8")
    return tmp_path / "study.toml"


def test_defaults():
    study = read_study()
    assert (study.sets, study.set_size, study.design, study.threshold) == (12, 4, "information", True)
    assert [one.code for one in study.languages] == ["en", "de"]
    assert study.language("fr").code == "en"


def test_options_win_over_the_file(tmp_path):
    file = written(tmp_path, "sets = 5\nset_size = 3")
    assert (read_study(file, sets=7, set_size=None).sets, read_study(file).set_size) == (7, 3)


def test_the_demo_study(tmp_path):
    for name in ("consent.txt", "einwilligung.txt"):
        (tmp_path / name).write_text("One.\n\nTwo.")
    study = read_study(written(tmp_path, STUDY))
    assert said(study.title, "de").startswith("Welchen Laptop")
    assert [one.unit for one in study.features] == ["€", "", "GB", "h", "kg", "″", ""]
    assert study.language("de").consent == ("One.", "Two.")
    assert "four at a time" in study.language("en").say("welcome")


def test_languages_say_the_same(tmp_path):
    texts = files("choicegp.apps.server") / "texts"
    english, german = (tomllib.loads((texts / f"{code}.toml").read_text(encoding="utf-8")) for code in ("en", "de"))
    assert list(english) == list(german)


def test_a_third_language_by_a_file(tmp_path):
    own = (
        (files("choicegp.apps.server") / "texts" / "en.toml").read_text(encoding="utf-8").replace("Start", "Commencer")
    )
    (tmp_path / "fr.toml").write_text(own, encoding="utf-8")
    study = read_study(written(tmp_path, 'languages = ["fr.toml", "en"]'))
    assert study.language("fr").say("start") == "Commencer"
    assert study.languages[0].code == "fr"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("sets = 0", "sets must be a whole number from 1 to 200"),
        ("set_size = 7", "set_size must be a whole number from 2 to 6"),
        ("set_size = true", "set_size must be a whole number"),
        ('sets = "many"', "sets must be a whole number"),
        ('design = "magic"', "there is no design 'magic'"),
        ('threshold = "yes"', "threshold must be true or false"),
        ("color = 1", "there is no setting 'color'"),
        ('languages = ["fr"]', "there are no texts in 'fr'"),
        ("languages = []", "languages must be a list"),
        ('languages = ["../x.toml"]', "cannot read"),
        ('[texts.en]\nwelcom = "Hi"', "which the page does not use"),
        ('[texts.en]\nwelcome = "Hi {you}"', "a gap that is not filled"),
        ('[texts.en]\nquestion_number = "{number.__class__}"', "a gap that is not filled"),
        ('completion_url = "javascript:alert(1)"', "completion_url must begin with"),
        ("completion_url = 3", "completion_url must be a text"),
        ('panel = ["a b"]', "panel must be a list"),
        ('consent = "nowhere.txt"', "cannot read the consent text"),
        ("title = 3", "title must be a text"),
        ("features = 3", "features must be written as"),
        ("[[features]]\nlabel = 'x'", "a feature has the settings"),
        ("[[features]]\ncolumn = 'x'\ndecimals = 99", "decimals must be"),
        ('decimal = ";"', "decimal must be"),
        ("sets = ", "is not a TOML file"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, text, problem):
    with pytest.raises(ChoiceGPError, match=problem):
        read_study(written(tmp_path, text))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ChoiceGPError, match="cannot read"):
        read_study(tmp_path / "nowhere.toml")


@pytest.mark.parametrize(
    ("column", "label", "unit"),
    [("battery_h", "Battery", "h"), ("price", "Price", ""), ("h", "H", ""), ("cpu_score", "Cpu score", "")],
)
def test_labels_and_units_out_of_names(column, label, unit):
    feature = default_feature(column)
    assert (feature.label["en"], feature.unit) == (label, unit)


class TestCards:
    def test_units_of_the_table_are_kept_and_learned_as_numbers(self):
        table = pd.DataFrame(
            {"price": ["EUR 549", "EUR 1,099"], "size": [13.3, 14.0], "kind": ["a", None]}, index=["p", "q"]
        )
        cards = Cards(table, read_study()).of(["q", "p"], "en")
        assert [fact.value for fact in cards[0].facts] == ["EUR 1,099", "14.0", "–"]
        assert learned_from(table, ["price"], ".")["price"].tolist() == [549, 1099]
        with pytest.raises(ChoiceGPError, match="may separate decimals or thousands"):
            learned_from(table, ["price"], None)
        clear = table.assign(price=["549 €", "1.099,50 €"])
        assert learned_from(clear, ["price"], None)["price"].tolist() == [549, 1099.5]

    def test_only_what_the_cards_show_is_learned(self, tmp_path):
        study = read_study(written(tmp_path, "[[features]]\ncolumn = 'b'\ndecimals = 1"))
        table = pd.DataFrame({"a": [1, 2], "b": [3, 4]})
        cards = Cards(table, study)
        assert setup_for(study, cards).columns == ("b",)
        assert list(learned_from(table, ["b"], None)) == ["b"]
        assert cards.of([1], "de")[0].facts[0].value == "4,0"

    def test_columns_that_are_not_there(self, tmp_path):
        table = pd.DataFrame({"a": [1, 2]})
        with pytest.raises(ChoiceGPError, match="the study shows 'b', which the table lacks"):
            Cards(table, read_study(written(tmp_path, "[[features]]\ncolumn = 'b'")))
        with pytest.raises(ChoiceGPError, match="no column 'p' with pictures"):
            Cards(table, read_study(images="p"))

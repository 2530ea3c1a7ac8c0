"""The options of every command that reads a table."""

import pytest
import typer

from choicegp import ChoiceGP
from choicegp.apps import cli
from choicegp.apps.options import DefectRule, ModelOptions, TableOptions, takes_options
from choicegp.errors import ChoiceGPError


def test_defaults_are_those_of_the_library():
    assert TableOptions("x.csv").arguments() == {"on_error": "raise"}


def test_the_options_of_a_model_have_the_defaults_of_the_library():
    parameters = ChoiceGP().get_params()
    assert ModelOptions().arguments() == {name: parameters[name] for name in ModelOptions().arguments()}


@pytest.mark.parametrize(("text", "rate"), [("0.1", 0.1), ("learn", "learn")])
def test_a_lapse_rate_is_a_number_or_learned(text, rate):
    assert ModelOptions(lapse=text).arguments()["lapse"] == rate


def test_directions_of_features():
    assert ModelOptions(monotone="falling price, rising battery life").arguments()["monotone"] == {
        "price": -1, "battery life": 1
    }  # fmt: skip
    for text in ("falling price, rising price", "falling price, falling  price"):
        with pytest.raises(ChoiceGPError, match="--monotone names a feature twice: 'falling price"):
            ModelOptions(monotone=text).arguments()


def test_what_is_given_is_passed_on():
    options = TableOptions("x.csv", wide=True, features="a, b", alternatives="1,2", on_error=DefectRule.SKIP)
    assert options.arguments() == {
        "features": ["a", "b"],
        "alternatives": ["1", "2"],
        "on_error": "skip",
    }


@pytest.mark.parametrize("text", ["", " ", ",", "a,,b", 'a,"b'])
def test_bad_lists_of_names(text):
    with pytest.raises(ChoiceGPError, match="--features: "):
        TableOptions("x.csv", features=text).arguments()


def test_a_command_may_have_options_of_its_own(run, monkeypatch, table):
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)

    @app.callback()
    def start() -> None: ...

    @app.command()
    @takes_options
    def count(table: TableOptions, times: int = 1) -> None:
        print(len(table.read()) * times)

    monkeypatch.setattr(cli, "app", app)
    assert run("count", table, "--times", "3") == (0, "6\n", "")

"""The registry of inferences: names, records, their options, and the table in the documentation."""

import re
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
from sklearn.base import clone

from choicegp import MCMC, ChoiceGP, ChoiceGPError, Dense, Paper, Sparse
from choicegp.fitting.methods import METHODS, Auto, Method
from choicegp.fitting.options import FitOptions

RECORDS = (
    Dense(max_iter=9),
    Sparse(n_inducing=8, learn_inducing=True),
    Paper(converged=True),
    MCMC(n_draws=7),
)


def method(**params) -> Method:
    """Return the record that these parameters of an estimator mean."""
    return FitOptions.validated(ChoiceGP(**params).get_params()).method


@pytest.mark.parametrize("name", METHODS)
def test_a_name_means_its_record_with_default_values(name):
    assert method(inference=name) == METHODS[name]
    assert METHODS[name].name == name
    assert type(METHODS[name])() == METHODS[name] or name == "paper-converged"


@pytest.mark.parametrize("record", RECORDS, ids=repr)
def test_records_are_values(record):
    assert method(inference=record) == record
    assert eval(repr(record)) == record
    assert Method.from_json(record.to_json()) == record
    assert clone(ChoiceGP(inference=record)).inference == record
    with pytest.raises(FrozenInstanceError):
        record.max_iter = 3


def test_keywords_say_what_records_say():
    same = {"n_inducing": 8, "batch_size": 4, "learn_inducing": True, "max_iter": 30}
    assert method(inference="sparse", **same) == Sparse(**same)
    assert method(inference="auto", **same) == Auto(**same)
    assert Auto(**same).decided(few=False) == Sparse(**same)
    assert Auto(**same).decided(few=True) == Dense(max_iter=30)
    assert Auto().decided(few=False) == Sparse()
    assert method(inference="mcmc", max_iter=30) == MCMC(n_draws=30)
    assert MCMC(n_draws=30, n_warm_up=20).n_shown == 50, "a progress bar counts the warm-up too"
    assert method(inference="paper-converged", max_iter=30) == Paper(converged=True, max_iter=30)
    assert method(inference="dense", learn_inducing=False) == Dense()


@pytest.mark.parametrize(
    ("params", "says"),
    [
        (
            {"inference": Sparse(n_inducing=8), "n_inducing": 8},
            r"n_inducing is given beside inference=Sparse\(...\): give it there, as Sparse\(n_inducing=...",
        ),
        (
            {"inference": MCMC(), "max_iter": 8},
            r"max_iter is given beside inference=MCMC.*as MCMC\(n_draws=..., n_warm_up",
        ),
        ({"inference": Dense(max_iter=0)}, "max_iter must be a whole number of at least 1; got 0"),
        ({"inference": Paper(max_iter=2.5)}, "max_iter must be a whole number of at least 1; got 2.5"),
        ({"inference": Sparse(batch_size="x")}, "batch_size must be a whole number"),
        ({"inference": Sparse(max_iter=None)}, "max_iter must be a whole number"),
        (
            {"inference": MCMC(target_acceptance=1.0)},
            "target_acceptance must be a number between 0.01 and 0.99; got 1.0",
        ),
        ({"inference": Dense}, "inference must be one of auto, dense"),
        ({"inference": "joint"}, r"mcmc; got 'joint'\. It was removed; use 'mcmc'$"),
        ({"inference": "mcmc", "n_inducing": 8}, "n_inducing belongs to inference='sparse': leave it at None"),
        (
            {"inference": "dense", "learn_inducing": True},
            "learn_inducing belongs to inference='sparse': leave it at False",
        ),
        (
            {"inference": Paper(), "lapse": "learn"},
            "lapse='learn' works with inference='dense', 'sparse' or 'mcmc'",
        ),
    ],
)
def test_what_cannot_be_is_one_clear_error(params, says):
    with pytest.raises(ChoiceGPError, match=says):
        method(**params)


def table() -> str:
    """Write the table of the documentation."""
    rows = ["| `inference=` | record | options and defaults | one step is | steps |", "|---|---|---|---|---|"]
    for name, record in METHODS.items():
        options = ", ".join(f"`{option}={getattr(record, option)}`" for option in record.option_names())
        steps = record.n_steps or ""
        rows.append(f'| `"{name}"` | {"" if name == "auto" else f"`{type(record).__name__}`"} | {options} | '
                    f"{record.step} | {steps} |")  # fmt: skip
    return "\n".join(rows)


def test_the_documentation_has_the_table_of_the_registry():
    page = (Path(__file__).parents[2] / "docs" / "model.md").read_text()
    assert table() in page, f"docs/model.md should hold:\n{table()}"


def test_the_docstring_names_every_number_of_steps():
    text = re.sub(r"\s+", " ", ChoiceGP.__doc__)
    for name, record in METHODS.items():
        assert name == "auto" or f'{record.n_steps} ("{name}")' in text


def test_a_shared_part_is_the_default_of_dense_inference_and_an_option_of_sparse():
    def has(**params) -> bool:
        return FitOptions.validated(ChoiceGP(**params).get_params()).has_shared_part

    names = ("dense", "mcmc", "sparse", "paper")
    assert [has(inference=name) for name in names] == [True, True, False, False]
    assert [has(inference=name, shared_part=True) for name in names] == [True, True, True, False]
    assert not any(has(inference=name, shared_part=False) for name in names)
    assert not has(n_utilities=1, inference="sparse", shared_part=True)
    with pytest.raises(ChoiceGPError, match="shared_part must be True, False or 'auto'; got 'no'"):
        has(shared_part="no")


@pytest.mark.parametrize(
    ("n_utilities", "n_objects", "n_starts"),
    [(2, 160, 9), (2, 161, 3), (3, 160, 16), (3, 161, 9), (3, 400, 9), (3, 401, 3)],
)
def test_problems_with_many_optima_have_more_starts(n_utilities, n_objects, n_starts):
    options = FitOptions.validated(ChoiceGP(n_utilities, inference="dense").get_params())
    assert options.n_starts(n_objects) == n_starts
    assert options._replace(n_restarts=2).n_starts(n_objects) == 2

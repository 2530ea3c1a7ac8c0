"""Utilities that may only fall with a price."""

import numpy as np
import pandas as pd
import pytest

from choicegp import ChoiceData, ChoiceGP, ChoiceGPError
from choicegp.apps.options import ModelOptions
from choicegp.datasets.noisy import noisy_choices
from choicegp.inference.problem import pose
from choicegp.inference.sites import neighbours
from choicegp.inference.starts import neighbouring_starts, recovered_sites
from choicegp.model.monotone import N_STEPS
from choicegp.model.prior import STEP

QUICK = {"n_restarts": 1, "max_iter": 48, "object_effects": False, "progress": False}
FALLING = {"price": -1}


def answers(slope: float) -> ChoiceData:
    """Simulate answers of somebody whose utilities change with the price by this slope."""
    rng = np.random.default_rng(4)
    X = rng.uniform(0.0, 4.0, (12, 2))
    u = slope * X[:, :1] + X[:, 1:] * [2.0, -2.0]
    shown = [rng.choice(12, 3, replace=False) for _ in range(30)]
    chosen = noisy_choices(np.zeros((12, 1)), u, shown, 0).chosen
    return ChoiceData.from_sets(pd.DataFrame(X, columns=["price", "size"]), shown, [list(kept) for kept in chosen])


@pytest.fixture(scope="module")
def flat() -> ChoiceGP:
    """Return a model of somebody to whom the price means nothing: where the direction has most to do."""
    return ChoiceGP(2, monotone=FALLING, intervals="none", **QUICK).fit(answers(0.0))


def steps_up(model: ChoiceGP) -> np.ndarray:
    """Return by how much utilities rise over 7 equal steps of the price of one object, in draws (S, 7, 2)."""
    line = pd.DataFrame({"price": np.linspace(0.2, 3.8, 8), "size": 1.0}, index=["one"] * 8)
    return np.diff(model.sample_utilities(line, 200), axis=1)


def test_draws_fall_with_the_price(flat):
    # The noise of the order, a tenth of people's errors, is all that a draw may rise by.
    assert np.mean(steps_up(flat) > 0.2) < 0.01
    free = ChoiceGP(2, intervals="none", **QUICK).fit(answers(0.0))
    assert np.mean(steps_up(free) > 0.2) > 0.1


@pytest.mark.usefixtures("short_chains")  # no draw may rise, be there few or many
def test_sampled_draws_fall_too():
    model = ChoiceGP(2, monotone=FALLING, **QUICK).fit(answers(0.0))
    assert "NUTS" in model.intervals_
    assert np.mean(steps_up(model) > 0.2) < 0.02


def test_answers_that_contradict_the_direction_are_named():
    notes = ChoiceGP(2, monotone=FALLING, intervals="none", **QUICK).fit(answers(2.0)).fit_result_.notes
    assert any("the answers speak against monotone" in note and "look at 'price'" in note for note in notes)


def test_a_direction_that_fits_is_not_complained_of(flat):
    fitting = ChoiceGP(2, monotone=FALLING, intervals="none", **QUICK).fit(answers(-2.0))
    assert not any("monotone" in note for note in (*flat.fit_result_.notes, *fitting.fit_result_.notes))


def test_a_saved_model_says_the_same(flat, tmp_path):
    flat.save(tmp_path / "model.cgp")
    read = ChoiceGP.load(tmp_path / "model.cgp")
    assert read.monotone == FALLING
    line = pd.DataFrame({"price": [0.5, 3.5], "size": [1.0, 1.0]})
    np.testing.assert_array_equal(read.utilities(line).mean, flat.utilities(line).mean)
    # Sets are scored by what the posterior says without them: ordered pairs are none of them.
    assert len(read.loo().pointwise) == len(flat.data_)


def test_ordered_pairs_have_precision_where_sets_are_left_out(flat):
    problem = flat.fitted_.training_problem()
    precision, _ = recovered_sites(flat.posterior_, problem)
    own = [np.zeros((2, len(batch.rows), len(batch.rows), batch.rows.shape[1])) for batch in problem.batches]
    own[-1][:] = np.array([[1.0, -1.0], [-1.0, 1.0]])[..., None]
    values = np.asarray(neighbours(problem).values(own))
    assert np.abs(values).sum() == pytest.approx(2 * 4 * N_STEPS), "of each utility and step four numbers"
    assert np.abs(np.asarray(precision)).sum() > 0.0


def test_later_answers_about_other_prices_move_the_knots(flat):
    data, more = answers(0.0), answers(0.0)
    wider = pd.DataFrame(more.X * [4.0, 1.0], columns=["price", "size"])
    ids = [f"wide {i}" for i in range(12)]
    far = ChoiceData.from_sets(wider.set_axis(ids), more.shown, more.chosen)
    both = ChoiceData.from_sets(
        pd.concat([pd.DataFrame(data.X, columns=["price", "size"]), wider], ignore_index=True),
        [*data.shown, *(rows + 12 for rows in far.shown)], [*data.chosen, *(rows + 12 for rows in far.chosen)],
    )  # fmt: skip
    model = ChoiceGP(2, monotone=FALLING, intervals="none", **QUICK).fit(both, init=flat)
    line = pd.DataFrame({"price": np.linspace(1.0, 15.0, 15), "size": 1.0}, index=["one"] * 15)
    assert np.mean(np.diff(model.sample_utilities(line, 200), axis=1) > 0.2) < 0.01
    ends = model.fitted_.posterior.prior.kernels
    assert np.all(np.asarray(ends.high) > np.asarray(flat.fitted_.posterior.prior.kernels.high))


def test_a_shared_part_has_no_steps():
    held = ChoiceGP(2, monotone=FALLING, learn_hyperparameters=False, intervals="none", **QUICK).fit(answers(0.0))
    alone = ChoiceGP(1, monotone=FALLING, intervals="none", **QUICK).fit(answers(0.0))
    problem = alone.fitted_.training_problem()
    grown = neighbouring_starts(alone.posterior_, held.posterior_.prior, problem)
    for prior in (held.posterior_.prior, *(start.prior for start in grown)):
        assert np.asarray(prior.kernels.is_there).tolist() == [0.0, 1.0, 1.0]


def test_ordered_pairs_are_no_sets():
    data = answers(0.0)
    problem = pose(data, data.X, np.arange(12), effects=True, directions={0: -1.0})
    assert problem.n_sets == len(data)
    assert problem.n_objects == 12 + np.sum(problem.objects.codes == STEP)
    better, worse = problem.objects.X[problem.batches[-1].rows, 0]
    assert np.all(better < worse)
    assert np.ptp(problem.objects.X[problem.objects.codes == STEP, 1]) == 0.0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"monotone": ["price"]}, "monotone must name features with 1"),
        ({"monotone": {"price": 2}}, "monotone must name features with 1"),
        ({"monotone": {"cost": -1}}, "no numeric feature has this name; the numeric features are 'price', 'size'"),
        ({"monotone": FALLING, "respondents": "hierarchical"}, "does not work with respondents='hierarchical'"),
        ({"monotone": FALLING, "inference": "paper"}, "does not work with inference='paper'"),
    ],
)
def test_what_cannot_be_is_a_clear_error(options, words):
    with pytest.raises(ChoiceGPError, match=words):
        ChoiceGP(2, **options).fit(answers(0.0))


def test_the_command_line_reads_directions():
    assert ModelOptions(monotone="falling price, rising battery life").arguments()["monotone"] == {
        "price": -1, "battery life": 1,
    }  # fmt: skip
    with pytest.raises(ChoiceGPError, match="--monotone takes features such as"):
        ModelOptions(monotone="price").arguments()

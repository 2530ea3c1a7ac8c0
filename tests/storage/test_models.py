"""Model files with draws and a shared part, and files that earlier versions of the format have left."""

import json
import resource
import warnings
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import jax
import numpy as np
import pytest

from choicegp import ChoiceData, ChoiceGP
from choicegp.errors import ChoiceGPError, Defect
from choicegp.fitting.record import PLUG_IN, ChosenNumber
from choicegp.inference import chain, intervals

from ..estimators.conftest import all_shown

KEPT = Path(__file__).parent / "data"
OLDEST = Path(__file__).parents[1] / "estimators" / "data"
QUICK = {"n_restarts": 1, "max_iter": 30, "progress": False}


@pytest.fixture(scope="module")
def data() -> ChoiceData:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(16, 2))
    shown = all_shown(rng, 12)  # as many as other tests sample models of: one program serves them all
    return ChoiceData.from_utilities(X, np.column_stack([X[:, 0], X[:, 1] - X[:, 0] ** 2]), shown)


@pytest.fixture(scope="module")
def sampled(data) -> ChoiceGP:
    """Return a model with a shared part, object effects and draws at several settings of the hyperparameters."""
    with pytest.MonkeyPatch.context() as patch:
        # Few draws: what counts here is that they come back.
        patch.setattr(intervals, "n_steps", lambda inference: (2 * chain.BLOCK, chain.BLOCK // 4))
        return ChoiceGP(2, object_effects=True, **QUICK).fit(data)


def test_how_the_number_was_chosen_and_what_was_left_out_come_back(sampled, data, tmp_path):
    chosen = ChosenNumber(
        2, "2 utilities: the best.", {"n_utilities": [1, 2], "elpd": [-9.5, -3.0], "cv": [np.nan, -4.0]}
    )
    skipped = (
        Defect("duplicate-object", "it is there twice", row=3, set=np.int64(7), object=("a", 1)),
        Defect("x", "y"),
    )
    model = ChoiceGP(2)._keep(sampled.fitted_._replace(chosen=chosen, data=replace(data, skipped=skipped)))
    model.save(tmp_path / "model.cgp")
    loaded = ChoiceGP.load(tmp_path / "model.cgp")
    assert loaded.fitted_.chosen[:2] == chosen[:2]
    assert loaded.fitted_.chosen.table.loc[2].tolist() == [-3.0, -4.0]
    first, second = loaded.data_.skipped
    assert (first.row, first.set, first.object) == (3, 7, "('a', 1)"), "ids of any kind can be read"
    assert second == skipped[1]


def kept(version: int) -> Path:
    """Return a file that was written when this version was the newest."""
    return (OLDEST if version == 1 else KEPT) / f"model-v{version}.cgp"


def version_of(path: Path) -> int:
    with np.load(path) as archive:
        return json.loads(str(archive["about"]))["version"]


def test_draws_at_several_settings_and_a_shared_part_come_back(sampled, data, tmp_path):
    before = sampled.posterior_.draws
    assert before.dual.shape == (8, chain.BLOCK, 3, 16), "two settings of each of four chains, three parts"
    assert np.ptp(before.prior.kernels.log_variance, axis=0).min() > 0, "every setting has hyperparameters of its own"
    path = tmp_path / "model.cgp"
    sampled.save(path)
    assert version_of(path) == 4
    loaded = ChoiceGP.load(path)
    assert loaded.posterior_.prior.shared
    for one, same in zip(jax.tree.leaves(loaded.posterior_), jax.tree.leaves(sampled.posterior_), strict=True):
        assert np.array_equal(one, same)
    assert loaded.intervals_ == sampled.intervals_
    assert loaded.fit_result_.intervals.startswith(intervals.SAMPLED)


def test_a_loaded_model_of_draws_predicts_bit_for_bit_the_same(sampled, data, tmp_path):
    sampled.save(tmp_path / "model.cgp")
    loaded = ChoiceGP.load(tmp_path / "model.cgp")
    new = np.random.default_rng(5).normal(size=(5, 2))
    for X in (data, new):
        for one, same in zip(loaded.utilities(X), sampled.utilities(X), strict=True):
            assert np.array_equal(one, same)
        assert np.array_equal(loaded.sample_utilities(X, 9), sampled.sample_utilities(X, 9))
        assert loaded.recommend(X, 3).equals(sampled.recommend(X, 3))
    assert np.array_equal(loaded.log_prob(data), sampled.log_prob(data))
    for one, same in zip(loaded.predict_proba(data), sampled.predict_proba(data), strict=True):
        assert np.array_equal(one, same)
    assert np.array_equal(loaded.dominance_proba(new[:2], new[2:4]), sampled.dominance_proba(new[:2], new[2:4]))
    with warnings.catch_warnings(action="ignore"):  # of sets that would be fitted again
        assert np.array_equal(loaded.loo(max_refits=0).pointwise, sampled.loo(max_refits=0).pointwise)


@pytest.mark.parametrize(("version", "written"), [(1, 1), (2, 4), (3, 3)])
def test_a_model_is_written_in_the_lowest_version_that_can_hold_it(version, written, tmp_path):
    """Draws at one setting, of version 2, are a case of draws at several."""
    model = ChoiceGP.load(kept(version))
    model.save(tmp_path / "model.cgp")
    assert version_of(tmp_path / "model.cgp") == written
    loaded = ChoiceGP.load(tmp_path / "model.cgp")
    assert loaded.posterior_.has_sites == model.posterior_.has_sites == (version != 2)
    assert loaded.intervals_ == model.intervals_
    # What draws leave unknown was part of files of version 2, and is computed again since.
    same = {"rtol": 1e-6, "atol": 1e-6} if version == 2 else {"rtol": 0.0, "atol": 0.0}
    for one, other in zip(loaded.utilities(model.data_), model.utilities(model.data_), strict=True):
        np.testing.assert_allclose(one, other, **same)


@pytest.mark.parametrize("version", [2, 3])
def test_files_of_earlier_versions_still_give_their_predictions(version):
    """Read files that were written when these versions were the newest.

    They were made once, together with the JSON files beside them, from the table and the choices of
    ``tests/estimators/data/model-v1.cgp`` (without respondents and weights), by::

        2: ChoiceGP(inference=MCMC(n_draws=64, n_warm_up=64), n_restarts=1, progress=False).fit(data)
        3: ChoiceGP(inference=Sparse(n_inducing=4, max_iter=40), n_restarts=2, progress=False).fit(data)

    "pairs" is ``predict_proba`` of all pairs of objects, "mean" what ``utilities`` gave, less its mean over the six
    objects, and "sd" the standard deviation of 20,000 joint samples, less their means over the objects.
    """
    path = kept(version)
    assert version_of(path) == version
    model, answers = ChoiceGP.load(path), json.loads(path.with_suffix(".json").read_text())
    assert (model.elbo_, model.fit_result_.message) == (answers["elbo"], answers["message"])
    drawn = "draws at the most probable hyperparameters: intervals are too narrow"
    assert model.intervals_ == (drawn if version == 2 else PLUG_IN)
    table = model.encoding_.decode(model.data_.X).set_axis(model.data_.object_ids)
    found = model.utilities(table)
    # Draws: "mean" is of all that were made, of which the file holds some.
    assert found.mean == pytest.approx(np.array(answers["mean"]), abs=1e-6 if version == 3 else 0.02)
    assert found.sd == pytest.approx(np.array(answers["sd"]), rel=0.03)
    pairs = ChoiceData.from_sets(table, list(combinations(range(6), 2)))
    # A sparse posterior has closed forms for pairs; draws are combined with other points than they were.
    tolerance = 1e-6 if version == 3 else 0.02
    assert np.array(model.predict_proba(pairs)) == pytest.approx(np.array(answers["pairs"]), abs=tolerance)


def test_a_full_disk_leaves_the_file_that_was_there(tmp_path):
    model, path = ChoiceGP.load(kept(1)), tmp_path / "model.cgp"
    path.write_bytes(b"an older model")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, limits[1]))
    try:
        with pytest.raises(ChoiceGPError, match=r"cannot write .*model.cgp: "):
            model.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == b"an older model"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_the_kept_files_are_small(version):
    assert kept(version).stat().st_size < 31_000

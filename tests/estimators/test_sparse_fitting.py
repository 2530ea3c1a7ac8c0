"""Sparse fits through the estimator: which inference is chosen, checkpoints, several devices, what does not work."""

import json
import os
import socket
import subprocess
import sys

import numpy as np
import pytest

from choicegp import ChoiceData, ChoiceGP, ChoiceGPError, datasets
from choicegp.fitting.record import PLUG_IN
from choicegp.inference.sparse.plan import kernel_starts
from choicegp.kernels import RBF

SMALL = {
    "inference": "sparse",
    "shared_part": True,
    "n_inducing": 8,
    "batch_size": 8,
    "max_iter": 200,
    "progress": False,
}


@pytest.fixture(scope="module")
def data() -> ChoiceData:
    return datasets.sincos(n_objects=24, n_sets=40, set_size=3, random_state=3).data


@pytest.fixture(scope="module")
def model(data) -> ChoiceGP:
    return ChoiceGP(2, **SMALL).fit(data)


def test_many_objects_are_fitted_sparsely_and_few_are_not(data, model, monkeypatch):
    monkeypatch.setattr("choicegp.fitting.options.AUTO_DENSE", 20)
    automatic = ChoiceGP(2, **(SMALL | {"inference": "auto"})).fit(data)
    assert automatic.posterior_.is_sparse
    assert "sparse inference with 8 inducing points" in automatic.fit_result_.notes[0]
    assert automatic.elbo_ == model.elbo_
    monkeypatch.setattr("choicegp.fitting.options.AUTO_DENSE", 24)
    quick = {"intervals": "none", "object_effects": False, "n_restarts": 1, "progress": False}
    few = ChoiceGP(2, max_iter=12, **quick).fit(data)
    assert not few.posterior_.is_sparse


def test_it_learns(model, data):
    assert model.score(data) > 0.7
    assert np.isfinite(model.elbo_)
    assert model.fit_result_.n_iter <= 200
    assert model.fit_result_.n_annealing == 50  # half of the hundred steps that each start is tried for
    probability = np.concatenate(model.predict_proba(data))
    assert np.all((probability >= 0) & (probability <= 1))


def test_intervals_are_those_of_contrasts_and_said_to_be_too_narrow(model, data):
    assert model.intervals_ == model.fit_result_.intervals == PLUG_IN
    mean, sd, lower, upper = model.utilities(data)
    u = model.sample_utilities(data, 4000)
    u -= u[:, np.unique(data.flat_shown)].mean(axis=1, keepdims=True)
    assert u.std(axis=0) == pytest.approx(sd, rel=0.1)
    assert np.mean((lower < u) & (u < upper)) == pytest.approx(0.95, abs=0.01)
    assert np.mean(mean[np.unique(data.flat_shown)], axis=0) == pytest.approx(np.zeros(2), abs=1e-9)


def test_the_same_seed_gives_the_same_model(model, data):
    again = ChoiceGP(2, **SMALL).fit(data)
    assert np.array_equal(again.posterior_.dual, model.posterior_.dual)


def test_the_scales_of_features_are_learned_and_the_ends_of_their_ranges_are_not(model, data):
    found = model.posterior_.prior.kernels
    assert np.ptp(found.log_warp) > 0.5  # all begin alike
    (first, *_) = kernel_starts(None, (data.X - model.centre_) / model.scale_, 2, learn=True, shared=True)
    np.testing.assert_allclose(found.ends, first.prior.kernels.ends, rtol=1e-12)


def test_a_loaded_model_predicts_the_same(model, data, tmp_path):
    model.save(tmp_path / "model")
    loaded = ChoiceGP.load(tmp_path / "model")
    assert np.array_equal(loaded.log_prob(data), model.log_prob(data))
    # A reader that does not know a shared part says so.
    assert json.loads(str(np.load(tmp_path / "model")["about"]))["version"] == 4
    assert loaded.get_params() == model.get_params()
    assert loaded.posterior_.prior.shared
    assert loaded.posterior_.prior.n_parts == 3


def test_a_killed_fit_goes_on_to_the_same_result(model, data, tmp_path, killed_after):
    file = tmp_path / "fit.checkpoint"
    for count in (3, 55):  # once while starts are tried, once after
        with killed_after(count):
            ChoiceGP(2, **SMALL).fit(data, checkpoint=file)
        assert file.exists()
    resumed = ChoiceGP(2, **SMALL).fit(data, checkpoint=file)
    assert np.array_equal(resumed.posterior_.dual, model.posterior_.dual)
    assert resumed.elbo_ == model.elbo_
    assert np.array_equal(resumed.fit_result_.elbo_trace, model.fit_result_.elbo_trace)
    assert not file.exists()  # done


def test_single_objects_and_lapses_are_no_fault():
    alone = ChoiceData.from_sets([[0.0], [1.0]], [[0], [1]], [[0], [1]])
    model = ChoiceGP(1, **(SMALL | {"max_iter": 10, "kernel": "rbf"}), lapse=0.1).fit(alone)
    assert np.isfinite(model.elbo_)


def test_a_linear_kernel_at_the_centre_is_no_fault():
    data = ChoiceData.from_pairs([[-1.0], [0.0], [1.0]], [[2, 1], [1, 0], [2, 0]])
    for seed in (2, 3):
        model = ChoiceGP(1, **(SMALL | {"n_inducing": 2, "max_iter": 20, "kernel": "linear"}), random_state=seed).fit(
            data
        )
        assert np.isfinite(model.elbo_)


def test_a_checkpoint_of_other_data_is_refused(data, tmp_path, killed_after):
    file = tmp_path / "fit.checkpoint"
    with killed_after(1):
        ChoiceGP(2, **SMALL).fit(data, checkpoint=file)
    with pytest.raises(
        ChoiceGPError, match=r"fit\.checkpoint: it belongs to a fit of other data or with other options"
    ):
        ChoiceGP(2, **SMALL).fit(data[:39], checkpoint=file)
    with pytest.raises(ChoiceGPError, match="belongs to a fit of other data or with other options: remove it"):
        ChoiceGP(2, **SMALL, random_state=1).fit(data, checkpoint=file)
    with pytest.raises(ChoiceGPError, match="give checkpoint= together with a seed"):
        ChoiceGP(2, **SMALL, random_state=None).fit(data, checkpoint=file)


MACHINE = """
import sys
import numpy as np, jax
jax.distributed.initialize(sys.argv[2], num_processes=2, process_id=int(sys.argv[3]))
from choicegp import ChoiceGP, datasets
data = datasets.sincos(n_objects=24, n_sets=40, set_size=3, random_state=3).data
model = ChoiceGP(2, **eval(sys.argv[4])).fit(data)
np.savez(sys.argv[1], devices=len(jax.devices()), dual=model.posterior_.dual, elbo=model.elbo_)
"""


def test_four_devices_of_two_machines_give_the_result_of_one(data, tmp_path):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        meeting = f"localhost:{free.getsockname()[1]}"
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    options = SMALL | {"max_iter": 60, "kernel": "rbf", "n_restarts": 1}
    files = [str(tmp_path / f"{number}.npz") for number in range(2)]
    machines = [
        subprocess.Popen([sys.executable, "-c", MACHINE, file, meeting, str(number), repr(options)], env=environment)
        for number, file in enumerate(files)
    ]
    one = ChoiceGP(2, **options).fit(data)
    assert one.posterior_.prior.shared
    try:
        assert [machine.wait(timeout=300) for machine in machines] == [0, 0]
    finally:
        for machine in machines:
            machine.kill()
    for file in files:
        found = dict(np.load(file))
        assert found["devices"] == 4
        assert found["elbo"] == pytest.approx(one.elbo_, abs=1e-4)
        assert found["dual"] == pytest.approx(one.posterior_.dual, rel=1e-4, abs=1e-4)


def test_what_sparse_inference_cannot_do_is_said(model, data):
    for options, message in (
        ({"object_effects": True}, "object_effects work with dense inference only"),
        ({"n_inducing": 0}, "n_inducing must be a whole number of at least 1; got 0"),
        ({"batch_size": 2.5}, "batch_size must be a whole number"),
        ({"learn_inducing": 1}, "learn_inducing must be True or False"),
    ):
        with pytest.raises(ChoiceGPError, match=message):
            ChoiceGP(2, **(SMALL | options)).fit(data)
    with pytest.raises(ChoiceGPError, match="init= works with"):
        ChoiceGP(2, **SMALL).fit(data, init=model)
    with pytest.raises(ChoiceGPError, match="leave-one-out needs inference='dense'"):
        model.loo()
    with pytest.raises(ChoiceGPError, match="diagnose needs inference='dense'"):
        model.diagnose()
    with pytest.raises(ChoiceGPError, match="learn_inducing belongs to inference='sparse'"):
        ChoiceGP(2, inference="dense", learn_inducing=True).fit(data)
    with pytest.raises(ChoiceGPError, match="batch_size belongs to inference='sparse'"):
        ChoiceGP(2, inference="dense", batch_size=8).fit(data)
    with pytest.raises(ChoiceGPError, match="the number of utilities is chosen with inference='dense'"):
        ChoiceGP("auto", **SMALL).fit(data)


def test_the_lapse_rate_is_learned(data):
    rng = np.random.default_rng(0)
    chosen = [
        rows if rng.random() < 0.6 else rng.permutation(all_)[:1]
        for rows, all_ in zip(data.chosen, data.shown, strict=True)
    ]
    noisy = ChoiceData.from_sets(data.X, data.shown, chosen)
    learned = ChoiceGP(2, **(SMALL | {"kernel": "rbf", "max_iter": 150}), lapse="learn").fit(noisy)
    clean = ChoiceGP(2, **(SMALL | {"kernel": "rbf", "max_iter": 150}), lapse="learn").fit(data)
    assert 0.0 < float(clean.posterior_.lapse) < float(learned.posterior_.lapse) < 1.0


def test_the_starts_are_smooth_and_of_several_waves():
    objects = np.random.default_rng(0).normal(size=(50, 4))
    tried = kernel_starts(None, objects, 2, learn=True)
    names = [start.name for start in tried]
    assert names[0] == "smooth"
    assert len(set(names)) == 5
    for start in tried:
        np.testing.assert_array_equal(start.prior.kernels.ends[1], [objects.min(axis=0), objects.max(axis=0)])
    own = kernel_starts(RBF(2.0, 3.0), objects, 2, learn=True)
    lengths = [float(np.exp(np.asarray(start.prior.kernels.log_lengthscale)[0, 0])) for start in own]
    assert lengths == pytest.approx([4.0, 2.0, 1.0])  # times the square root of the number of features
    (held,) = kernel_starts(RBF(2.0, 3.0), objects, 2, learn=False)
    assert np.exp(np.asarray(held.prior.kernels.log_lengthscale)) == pytest.approx(2.0)

"""Model files: what is written comes back, and nothing else is ever taken for a model."""

import copy
import io
import json
import os
import zipfile
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from choicegp import MCMC, ChoiceData, ChoiceGP, ChoiceGPError, HyperPriors
from choicegp.kernels import RBF, Additive, Kernel, Sum

KEPT = Path(__file__).parent / "data" / "model-v1.cgp"


def assert_same_answers(loaded: ChoiceGP, model: ChoiceGP, data: ChoiceData) -> None:
    """Check that two models answer with the same bits."""
    for one, other in zip(loaded.predict_proba(data), model.predict_proba(data), strict=True):
        assert np.array_equal(one, other)
    for one, other in zip(loaded.utilities(data), model.utilities(data), strict=True):
        assert np.array_equal(one, other)


def assert_restored(loaded: ChoiceGP, model: ChoiceGP) -> None:
    """Check that everything a model keeps has come back."""
    assert repr(loaded) == repr(model)
    assert loaded.get_params().keys() == model.get_params().keys()
    assert set(vars(loaded)) == set(vars(model))
    assert loaded.data_ == model.data_
    assert loaded.encoding_ == model.encoding_
    assert loaded.fitted_.codes == model.fitted_.codes
    assert (loaded.elbo_, loaded.n_utilities_) == (model.elbo_, model.n_utilities_)
    result, expected = loaded.fit_result_, model.fit_result_
    assert result._replace(elbo_trace=None) == expected._replace(elbo_trace=None)
    assert isinstance(result.notes, tuple)
    assert np.array_equal(result.elbo_trace, expected.elbo_trace)


@pytest.fixture(scope="module")
def rich(quick, data) -> ChoiceGP:
    """Return a model whose data have weights, respondents, ids of several kinds and sets that came twice."""
    sets = ChoiceData.from_sets(
        data.X, data.shown, data.chosen, object_ids=[*range(8), *"abcdef", 0.5, "pen"],
        set_ids=[f"page {k}" for k in range(24)], respondents=[10 + k % 3 for k in range(24)],
        weights=np.linspace(0.5, 2.0, 24),
    )  # fmt: skip
    # Set after the fit, which needs no compilation then.
    fitted = quick(random_state=2**40).fit(sets.take([*range(12), *range(12)]))
    hyperpriors = HyperPriors(lengthscale=(0.1, 1.5))
    return fitted.set_params(hyperpriors=hyperpriors, max_seconds=float("inf"), tol=1e-300)


@pytest.fixture
def saved(model, tmp_path) -> Path:
    model.save(tmp_path / "model.cgp")
    return tmp_path / "model.cgp"


@pytest.mark.parametrize("name", ["model", "rich", "composed", "lapsing", "twins"])
def test_what_is_saved_comes_back(name, request, tmp_path):
    model = request.getfixturevalue(name)
    model.save(tmp_path / "model.cgp")
    loaded = ChoiceGP.load(tmp_path / "model.cgp")
    assert_restored(loaded, model)
    assert_same_answers(loaded, model, model.data_)
    assert [path.name for path in tmp_path.iterdir()] == ["model.cgp"], "no draft is left"


def test_rich_data_keep_their_kinds(rich, tmp_path):
    rich.save(str(tmp_path / "a model without a suffix"))
    loaded = ChoiceGP.load(str(tmp_path / "a model without a suffix"))
    ids = loaded.data_.object_ids.tolist()
    assert ids == [*range(8), *"abcdef", 0.5, "pen"]
    assert [type(i) for i in ids[:8]] == [int] * 8
    assert loaded.data_.set_ids.tolist() == [f"page {k}" for k in range(12)] * 2
    assert loaded.data_.weights.tolist() == rich.data_.weights.tolist()
    assert loaded.hyperpriors == HyperPriors(lengthscale=(0.1, 1.5))
    assert isinstance(loaded.hyperpriors, HyperPriors)
    assert (loaded.max_seconds, loaded.tol, loaded.random_state) == (float("inf"), 1e-300, 2**40)


def test_a_composed_kernel_comes_back(composed, tmp_path):
    composed.save(tmp_path / "m.cgp")
    kernel = ChoiceGP.load(tmp_path / "m.cgp").kernel
    assert isinstance(kernel, Sum)
    assert isinstance(kernel.first, RBF)
    assert isinstance(kernel.second, Additive)
    assert np.array_equal(kernel.second.log_lengthscale, np.log(0.3))


def test_a_loaded_model_goes_on_working(twins, twin_table, model, data, quick, tmp_path):
    model.save(tmp_path / "m.cgp")
    loaded = ChoiceGP.load(tmp_path / "m.cgp")
    assert np.array_equal(loaded.log_prob(data), model.log_prob(data))
    assert quick().fit(data, init=loaded).elbo_ == quick().fit(data, init=model).elbo_
    loaded.save(tmp_path / "again.cgp")
    assert_restored(ChoiceGP.load(tmp_path / "again.cgp"), model)
    assert quick(**loaded.get_params()).fit(loaded.data_).elbo_ == model.elbo_
    twins.save(tmp_path / "m.cgp")
    effects = ChoiceGP.load(tmp_path / "m.cgp")
    good, bad = twin_table[::2], twin_table[1::2]
    assert np.array_equal(effects.dominance_proba(good, bad), twins.dominance_proba(good, bad))
    unseen = twin_table.set_axis(range(16))
    assert np.array_equal(effects.utilities(unseen).sd, twins.utilities(unseen).sd)


WRITABLE = {
    "huge": [10**30 + i for i in range(16)],
    "unsigned": np.arange(16, dtype=np.uint64) + 2**63,
    "fractions": np.arange(16) / 3,
    "unicode": [f"é\n{i}" for i in range(16)],
}


@pytest.mark.parametrize("kind", WRITABLE)
def test_ids_of_many_kinds(kind, quick, data, tmp_path):
    model = quick().fit(ChoiceData.from_sets(data.X, data.shown, data.chosen, object_ids=WRITABLE[kind]))
    model.save(tmp_path / "m.cgp")
    assert ChoiceGP.load(tmp_path / "m.cgp").data_.object_ids.tolist() == list(model.data_.object_ids)


# Saving that fails

UNWRITABLE = {
    "dates": pd.date_range("2026-01-01", periods=16).astype("datetime64[us]"),
    "nanoseconds": pd.date_range("2026-01-01", periods=16).astype("datetime64[ns]"),
    "tuples": [(i, "a") for i in range(16)],
    "bytes": [b"%d" % i for i in range(16)],
}


@pytest.mark.parametrize("kind", UNWRITABLE)
def test_ids_that_no_file_holds_are_refused_when_saving(kind, quick, data, saved):
    model = quick().fit(ChoiceData.from_sets(data.X, data.shown, data.chosen, object_ids=UNWRITABLE[kind]))
    before = saved.read_bytes()
    with pytest.raises(ChoiceGPError, match="cannot be written to a model file: use numbers or text as ids"):
        model.save(saved)
    assert [path.name for path in saved.parent.iterdir()] == ["model.cgp"]
    assert saved.read_bytes() == before, "the old file is still there"


def test_saving_that_breaks_off_leaves_nothing(model, saved, monkeypatch):
    before = saved.read_bytes()

    def broken(part: io.BufferedWriter, *_: object, **__: object) -> None:
        part.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array", broken)
    with pytest.raises(ChoiceGPError, match=r"model\.cgp: No space left on device"):
        model.save(saved)
    assert [path.name for path in saved.parent.iterdir()] == ["model.cgp"]
    assert saved.read_bytes() == before


@pytest.mark.parametrize("place", ["missing/model.cgp", "folder", "", None, b"model.cgp", "a\0b", 3])
def test_saving_to_no_place(place, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(ChoiceGPError, match=r"there is no folder missing|is a folder|a file name is needed"):
        model.save(place)
    assert [path.name for path in tmp_path.rglob("*")] == ["folder"]


class Foreign(RBF):
    """A kernel of a user's own."""


def test_a_kernel_of_ones_own_cannot_be_saved(model, tmp_path):
    model = copy.copy(model).set_params(kernel=Foreign())
    with pytest.raises(ChoiceGPError, match="the kernel Foreign cannot be saved"):
        model.save(tmp_path / "m.cgp")
    assert not any(tmp_path.iterdir())


# Loading what is no model


def members(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as archive:
        return {name: archive[name] for name in archive.files}


def page(arrays: dict[str, np.ndarray], **changes: object) -> np.ndarray:
    return np.array(json.dumps(json.loads(str(arrays["about"])) | changes))


def write(path: Path, arrays: dict[str, np.ndarray]) -> None:
    with path.open("wb") as stream:
        np.savez(stream, **arrays)


def write_zip(path: Path, name: str, text: str) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, text)


def write_npy(path: Path) -> None:
    with path.open("wb") as stream:
        np.save(stream, np.zeros(3))


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (lambda path: path.write_bytes(b""), "not a choicegp model"),
    "text": (lambda path: path.write_text("format: choicegp-model\n"), "not a choicegp model"),
    "foreign zip": (lambda path: write_zip(path, "letter.txt", "dear"), "not a choicegp model"),
    "zip with a page of text": (lambda path: write_zip(path, "about", "dear"), "not a choicegp model"),
    "zip with a broken array": (lambda path: write_zip(path, "about.npy", "dear"), "not a choicegp model"),
    "foreign npz": (lambda path: write(path, {"X": np.zeros(3)}), "not a choicegp model"),
    "npz with other pages": (lambda path: write(path, {"about": np.zeros(3)}), "not a choicegp model"),
    "npz with another page": (lambda path: write(path, {"about": np.array("[]")}), "not a choicegp model"),
    "npy": (write_npy, "not a choicegp model"),
    "pickle": (lambda path: pd.to_pickle({"about": 1}, path), "not a choicegp model"),
    "gone": (lambda path: path.unlink(), "no such model file"),
    "folder": (lambda path: (path.unlink(), path.mkdir()), "no such model file"),
}  # fmt: skip


@pytest.mark.parametrize("kind", DAMAGE)
def test_what_is_no_model_is_refused(kind, saved):
    damage, says = DAMAGE[kind]
    damage(saved)
    with pytest.raises(ChoiceGPError) as raised:
        ChoiceGP.load(saved)
    assert str(raised.value).startswith(str(saved))
    assert says in str(raised.value)
    assert "pickle" not in str(raised.value), "nobody is told to trust a file"


@pytest.mark.parametrize("path", [None, 3, "", "a\0b", b"model.cgp"])
def test_loading_takes_a_file_name(path):
    with pytest.raises(ChoiceGPError, match="a file name is needed"):
        ChoiceGP.load(path)


def test_a_truncated_file_is_refused(saved):
    whole = saved.read_bytes()
    for length in np.linspace(0, len(whole) - 1, 40).astype(int):
        saved.write_bytes(whole[:length])
        with pytest.raises(ChoiceGPError, match=r"model\.cgp: not a choicegp model, or a damaged one"):
            ChoiceGP.load(saved)


def test_flipped_bytes_are_refused_or_harmless(saved, model, data):
    whole = saved.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(150):
        damaged = bytearray(whole)
        for place in rng.integers(0, len(whole), 3):
            damaged[place] ^= int(rng.integers(1, 256))
        saved.write_bytes(damaged)
        try:
            loaded = ChoiceGP.load(saved)
        except ChoiceGPError as error:
            refused += str(error).startswith(str(saved))
        else:  # only times and flags of the archive were hit
            assert np.array_equal(loaded.posterior_.gain, model.posterior_.gain)
    assert refused > 120


@pytest.mark.parametrize("version", [9, 0, "1", None, 1.5])
def test_another_version_is_refused(version, saved):
    arrays = members(saved)
    write(saved, arrays | {"about": page(arrays, version=version)})
    says = f"model.cgp: written in model format {version}, this choicegp reads up to 8: upgrade choicegp"
    with pytest.raises(ChoiceGPError) as raised:
        ChoiceGP.load(saved)
    assert says in str(raised.value)


@pytest.mark.parametrize("name", ["twins", "rich", "lapsing"])
def test_a_missing_member_is_refused(name, request, tmp_path):
    path = tmp_path / "model.cgp"
    request.getfixturevalue(name).save(path)
    arrays = members(path)
    assert {"X", "gain", "kernel_0", "kernel_1", "data_chosen"} < set(arrays)
    assert {"log_effect_variance", "data_weights", "lapse"} & set(arrays)
    for missing in arrays:
        write(path, {key: array for key, array in arrays.items() if key != missing})
        with pytest.raises(ChoiceGPError, match=r"model\.cgp: "):
            ChoiceGP.load(path)


def test_a_missing_or_wrong_entry_of_the_page_is_refused(saved):
    arrays = members(saved)
    about = json.loads(str(arrays["about"]))
    changes = [{key: value for key, value in about.items() if key != missing} for missing in about]
    changes += [about | {"kernel": ["Kernel"]}, about | {"kernel": ["kernel_named"]}, about | {"kernel": ["os.system"]}]
    changes += [about | {"params": about["params"] | {"colour": 1}}, about | {"known_ids": [[1]]}]
    for changed in changes:
        write(saved, arrays | {"about": np.array(json.dumps(changed))})
        with pytest.raises(ChoiceGPError, match=r"model\.cgp: "):
            ChoiceGP.load(saved)


class Trap:
    """Something that leaves a trace when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return (os.mkdir, (str(self.path),))


@pytest.mark.parametrize("name", ["about", "X", "elbo_trace"])
def test_no_pickle_is_ever_loaded(name, saved):
    trace = saved.parent / "executed"
    write(saved, members(saved) | {name: np.array([Trap(trace)], dtype=object)})
    with pytest.raises(ChoiceGPError, match=r"model\.cgp: not a choicegp model, or a damaged one"):
        ChoiceGP.load(saved)
    assert not trace.exists()


def test_a_file_holds_no_objects(rich, tmp_path):
    rich.save(tmp_path / "m.cgp")
    arrays = members(tmp_path / "m.cgp")
    assert not any(array.dtype.hasobject for array in arrays.values())
    about = json.loads(str(arrays["about"]))
    assert about["arrays"] == sorted(set(arrays) - {"about"})


# Files of earlier versions are read for ever


def test_a_file_of_version_1_still_gives_its_predictions():
    """Read a file that was written when version 1 of the format was made.

    It was made once, together with the JSON file beside it, by::

        table = pd.DataFrame(
            {"price": [3.0, 5.0, 4.0, 9.0, 7.5, 6.0], "colour": ["red", "blue", "red", "green", "blue", "green"]},
            index=["pen", "ink", "cap", "lamp", "desk", "chair"],
        )
        shown = [["pen", "ink", "cap"], ["lamp", "desk"], ["pen", "chair", "lamp"], ["ink", "desk", "chair"],
                 ["cap", "lamp"], ["pen", "desk", "ink"]]
        chosen = [["pen", "cap"], ["desk"], ["pen", "chair"], ["ink"], ["cap", "lamp"], ["pen"]]
        data = ChoiceData.from_sets(
            table, shown, chosen, by="id", set_ids=[f"page {k}" for k in range(6)],
            respondents=["ann", "bob"] * 3, weights=[1.0, 2.0, 1.0, 1.0, 0.5, 1.0],
        )
        model = ChoiceGP(
            kernel=RBF() + Additive(lengthscale=0.5), object_effects=True, lapse=0.05, n_restarts=1,
            max_iter=60, progress=False,
        ).fit(data)
        model.save("model-v1.cgp")
        pairs = ChoiceData.from_sets(table, list(combinations(range(6), 2)))
        answers = {
            "mean": model.utilities(table).mean.tolist(),
            "sd": model.utilities(table).sd.tolist(),
            "pairs": np.array(model.predict_proba(pairs)).tolist(),
            "elbo": model.elbo_,
            "message": model.fit_result_.message,
        }
        Path("model-v1.json").write_text(json.dumps(answers, indent=1))
    """
    model = ChoiceGP.load(KEPT)
    answers = json.loads(KEPT.with_suffix(".json").read_text())
    data = model.data_
    assert data.object_ids.tolist() == ["pen", "ink", "cap", "lamp", "desk", "chair"]
    assert data.feature_names == ("price", "colour=blue", "colour=green", "colour=red")
    assert data.respondents.tolist() == ["ann", "bob"] * 3
    assert data.weights.tolist() == [1.0, 2.0, 1.0, 1.0, 0.5, 1.0]
    assert isinstance(model.kernel, Kernel)
    assert (model.object_effects, model.lapse, model.random_state) == (True, 0.05, 0)
    assert (model.elbo_, model.fit_result_.message) == (answers["elbo"], answers["message"])
    # All these have closed forms: other machines and versions of JAX round differently, and no more.
    mean, variance = (np.asarray(part).T for part in model.posterior_.mean_and_variance_at(model.fitted_.objects(data)))
    assert mean == pytest.approx(np.array(answers["mean"]), abs=1e-6)
    assert np.sqrt(variance) == pytest.approx(np.array(answers["sd"]), abs=1e-6)
    # What a user is given has been relative to the mean of the shown objects since.
    assert model.utilities(data).mean == pytest.approx(mean - mean.mean(axis=0), abs=1e-6)
    table = data.encoding.decode(data.X).set_axis(data.object_ids)
    pairs = ChoiceData.from_sets(table, list(combinations(range(6), 2)))
    assert np.array(model.predict_proba(pairs)) == pytest.approx(np.array(answers["pairs"]), abs=1e-6)


@pytest.mark.parametrize("written", ["joint", {"inference": "Joint", "max_iter": 5}])
def test_a_file_of_the_removed_inference_joint_is_read_as_a_dense_one(written, quick, data, half, tmp_path):
    """Its posterior consists of draws, as those of "mcmc" do."""
    model = quick(inference=MCMC(n_draws=10, n_warm_up=10), max_iter=None).fit(data)
    path = tmp_path / "model.cgp"
    model.save(path)
    arrays = members(path)
    params = json.loads(str(arrays["about"]))["params"]
    write(path, arrays | {"about": page(arrays, params=params | {"inference": written})})
    loaded = ChoiceGP.load(path)
    assert loaded.inference == "dense"
    assert_same_answers(loaded, model, half)
    loaded.save(path)
    assert_same_answers(ChoiceGP.load(path), model, half)
    clone(loaded).set_params(max_iter=2).fit(half)

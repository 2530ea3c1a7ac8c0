"""Checkpoints by themselves; fits that continue from one are tested with the estimators."""

import json

import jax
import numpy as np
import pytest

from choicegp.errors import ChoiceGPError
from choicegp.inference.annealing import Course, StepTrace
from choicegp.inference.sparse.stopping import Scored
from choicegp.kernels import RBF
from choicegp.model.prior import UtilityPrior
from choicegp.storage import checkpoints
from choicegp.storage.checkpoints import BesideOutput, Checkpoint, checkpointed
from choicegp.storage.records import RECORDS, packed, unpacked

KNOWN = Scored(-1.5, np.arange(3.0))
NAMES = [
    "fitting.record.FitResult", "inference.annealing.Course", "inference.annealing.StepTrace",
    "inference.chain.Chain", "inference.chain.SampledBlock", "inference.dense.Adam", "inference.dense.DenseState",
    "inference.descent.Descent", "inference.mcmc.MCMCState", "inference.paper.PaperCourse",
    "inference.paper.PaperState", "inference.paper.Parameters", "inference.posterior.Draws",
    "inference.posterior.Factor", "inference.posterior.Posterior", "inference.reduced.ReducedState",
    "inference.respondents.steps.StudySites", "inference.respondents.steps.StudyState", "inference.sites.Sites",
    "inference.sparse.plan.SparseCourse", "inference.sparse.step.SparseState", "inference.sparse.stopping.LastGain",
    "inference.sparse.stopping.Scored", "model.prior.Objects", "model.prior.UtilityPrior",
    "model.respondents.StudyPrior", "selection.loo.CavityDiagnostics", "selection.loo.LooResult",
]  # fmt: skip


def interrupted(place, belongs_to: str, *known: Scored) -> str:
    """Keep something and be interrupted; return what the interrupt says."""

    def work() -> None:
        with checkpointed(place, belongs_to) as keeper:
            for one in known:
                keeper.keep("state", one)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        work()
    return str(stopped.value)


def test_records_come_back():
    prior = UtilityPrior.create(RBF(2.0) + RBF(0.5), 3, 2, 0.3, shared=True)
    trace = StepTrace(*np.arange(6.0).reshape(3, 2))
    known = (Course(prior, (trace, trace), 1), None, "text", -np.inf, True, np.float64(0.1), np.float32(0.1))
    found = packed(known, "x")
    assert all(place.startswith("x:") for place in found.arrays)
    assert json.loads(json.dumps(found.page)) == found.page
    course, *rest = unpacked(found, RBF() + RBF())
    assert type(course.traces[1]) is StepTrace
    assert jax.tree.structure(course) == jax.tree.structure(known[0])
    assert all(map(np.array_equal, jax.tree.leaves(course), jax.tree.leaves(known[0])))
    assert rest == list(known[1:])
    assert [type(value) for value in rest[-2:]] == [float, np.ndarray]


def test_every_kind_of_state_has_a_name_of_its_own():
    assert len(RECORDS) == len(set(RECORDS.values()))


def test_other_names_of_records_need_another_version():
    """Whoever changes a name here gives `checkpoints._VERSION` a new number, and changes both in this test."""
    assert (checkpoints._VERSION, sorted(RECORDS)) == (4, NAMES)


def test_a_checkpoint_of_another_version_is_refused_and_one_that_nobody_asked_for_is_begun_anew(tmp_path, monkeypatch):
    file = tmp_path / "m.cgp.checkpoint"
    for version, says in (
        (3, "written in checkpoint format 3, this choicegp continues from 4 only: remove it to start again"),
        (5, "written in checkpoint format 5, this choicegp reads up to 4: upgrade choicegp"),
    ):
        with monkeypatch.context() as other:
            other.setattr(checkpoints, "_VERSION", version)
            keeper = Checkpoint(file, "this fit")
            keeper.keep("state", KNOWN)
            assert keeper.write()
        with pytest.raises(ChoiceGPError) as refused:
            Checkpoint(file, "this fit")
        assert str(refused.value) == f"{file}: {says}"
        unasked = Checkpoint(BesideOutput(str(tmp_path / "m.cgp")), "this fit")
        assert unasked.recall("state") is None
        unasked.keep("state", KNOWN)
        assert unasked.write()
        assert Checkpoint(file, "this fit").recall("state").score == -1.5
        file.unlink()


def test_parts_have_names_of_their_own(tmp_path):
    file = tmp_path / "a.checkpoint"
    keeper = Checkpoint(file, "this fit")
    first, second = keeper.part("first"), keeper.part("first").part("second")
    second.keep("state", KNOWN)
    first.keep("start 0", KNOWN)
    first.keep("state", (KNOWN, 1), alone=True)
    assert first.recall("start 0") is None
    assert keeper.write()
    again = Checkpoint(file, "this fit")
    assert again.write(), "what nobody has recalled yet stays"
    again = Checkpoint(file, "this fit").part("first")
    assert again.recall("state")[1] == 1
    assert again.part("second").recall("state").score == -1.5
    again.forget()
    assert again.recall("state") is again.part("second").recall("state") is None


def test_an_interrupt_leaves_the_file_and_says_how_to_continue(tmp_path):
    file = tmp_path / "a.checkpoint"
    says = f"interrupted: what is known so far is in {file}; run the same again to continue"
    assert interrupted(file, "this fit", KNOWN) == says
    with checkpointed(file, "this fit") as keeper:
        assert keeper.recall("state").score == -1.5
    assert not file.exists()
    assert interrupted(file, "this fit") == "", "nothing was known yet"
    assert list(tmp_path.iterdir()) == []


def test_where_nobody_asked_for_a_checkpoint_short_fits_leave_none(tmp_path, monkeypatch):
    place, file = BesideOutput(str(tmp_path / "m.cgp")), tmp_path / "m.cgp.checkpoint"
    assert interrupted(place, "this fit", KNOWN) == ""
    assert not file.exists()
    monkeypatch.setattr(checkpoints, "_WORTH_A_FILE", 0.0)
    assert "m.cgp.checkpoint" in interrupted(place, "this fit", KNOWN)
    with checkpointed(place, "another fit") as keeper:
        assert keeper.recall("state") is None, "the checkpoint of another fit is passed over"
        assert file.exists()
    assert not file.exists()
    file.write_text("somebody's own")
    assert interrupted(place, "this fit", KNOWN) == ""
    with checkpointed(place, "this fit") as keeper:
        keeper.keep("state", KNOWN)
    assert file.read_text() == "somebody's own"


def test_a_checkpoint_that_cannot_be_written_does_not_end_the_fit(tmp_path):
    file = tmp_path / "a.checkpoint"
    keeper = Checkpoint(file, "this fit")
    keeper.every = 0.0
    with pytest.warns(UserWarning, match="the fit continues without a checkpoint: a set cannot be kept in a file"):
        keeper.keep("state", {1})
    keeper.keep("state", {1, 2})  # and says so once
    assert not keeper.write_last()
    keeper = Checkpoint(file, "this fit")
    file.mkdir()
    with pytest.warns(UserWarning, match="continues without a checkpoint: .* is a folder"):
        assert not keeper.write()


def test_what_is_wrong_with_a_file_is_said(tmp_path):
    file = tmp_path / "a.checkpoint"
    keeper = Checkpoint(file, "this fit")
    keeper.keep("state", KNOWN)
    keeper.write()
    with pytest.raises(ChoiceGPError, match=r"a\.checkpoint: it belongs to a fit of other data or with other options"):
        Checkpoint(file, "another fit")
    with pytest.raises(ChoiceGPError, match="there is no folder"):
        Checkpoint(tmp_path / "nowhere" / "file", "this fit")
    with np.load(file) as archive:
        arrays = {name: archive[name] for name in archive.files}
    for forged in ("os.system", "inference.dense.Adam"):
        page = str(arrays["about"]).replace("inference.sparse.stopping.Scored", forged)
        with file.open("wb") as stream:
            np.savez(stream, **arrays | {"about": np.array(page)})
        with pytest.raises(ChoiceGPError, match=r"a\.checkpoint: a checkpoint with missing or wrong parts"):
            Checkpoint(file, "this fit").recall("state")
    file.write_bytes(b"no checkpoint")
    with pytest.raises(ChoiceGPError, match=r"a\.checkpoint: not a choicegp checkpoint"):
        Checkpoint(file, "this fit")

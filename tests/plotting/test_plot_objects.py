"""The plot of objects: points, the front, and names that can be read."""

import numpy as np
import pytest

from choicegp import ChoiceGPError, plots
from choicegp.data.pareto import undominated
from choicegp.fitting.record import Utilities
from choicegp.model.error_models import KEPT_BY

from .conftest import Model, bars, choices, laptop_table, legend_texts

pytestmark = pytest.mark.usefixtures("no_pyplot_figures")


class TestObjects:
    def test_points_are_posterior_means_and_the_front_is_marked(self, model):
        ax = plots.plot_objects(model)
        mean, sd, _, _ = model.utilities(model.data_)
        front = undominated(mean)
        rest, marked = (
            next(c for c in ax.collections if str(c.get_label()).startswith(name))
            for name in ("Dominated", "Undominated")
        )
        assert np.asarray(rest.get_offsets()) == pytest.approx(mean[~front])
        assert np.asarray(marked.get_offsets()) == pytest.approx(mean[front])
        # One standard deviation more in both would lift these to the front.
        near = np.array([not np.any(np.all(mean[front] >= one, axis=1)) for one in mean + sd]) | front
        assert front.sum() < near.sum() < len(mean)
        [across, up] = [c.get_segments() for c in ax.containers[0][2]]
        assert np.array(across)[:, 1, 0] == pytest.approx((mean[:, 0] + sd[:, 0])[near])
        assert np.array(up)[:, 0, 1] == pytest.approx((mean[:, 1] - sd[:, 1])[near])

    def test_the_undominated_are_named_at_their_points(self, model):
        ax = plots.plot_objects(model)
        mean = model.utilities(model.data_).mean
        front = np.flatnonzero(undominated(mean))
        named = {text.get_text(): text.xy for text in ax.texts}
        assert set(named) == {f"laptop {row}" for row in front}
        for row in front:
            assert named[f"laptop {row}"] == pytest.approx(mean[row])

    def test_names_do_not_overlap(self, model):
        ax = plots.plot_objects(model)
        ax.figure.draw_without_rendering()
        found = [text.get_window_extent() for text in ax.texts]
        assert len(found) > 1
        # Sizes of letters are estimated: a hair is allowed.
        inner = [box.padded(-1.5) for box in found]
        assert not any(a.overlaps(b) for i, a in enumerate(inner) for b in inner[i + 1 :])

    def test_new_objects_keep_their_ids(self, model):
        frame = laptop_table(2, n=6, seed=3).set_axis(list("abcdef"))
        ax = plots.plot_objects(model, frame)
        front = undominated(model.utilities(frame).mean)
        assert {text.get_text() for text in ax.texts} == set(np.array(list("abcdef"))[front])
        data = choices(frame)
        assert {text.get_text() for text in plots.plot_objects(model, data=data).texts} == set(
            np.array(list("abcdef"))[front]
        )

    def test_objects_without_ids_are_named_by_what_they_are(self, model):
        ax = plots.plot_objects(model, model.data_.X)
        front = np.flatnonzero(undominated(model.utilities(model.data_.X).mean))
        first = model.encoding_.decode(model.data_.X)["size_0"]
        assert {text.get_text().split(",")[0] for text in ax.texts} == {f"size_0 {first[row]:.3g}" for row in front}

    def test_other_names_can_be_given(self, model):
        frame = laptop_table(2, n=6, seed=3)
        ax = plots.plot_objects(model, frame, names=list("abcdef"))
        front = undominated(model.utilities(frame).mean)
        assert {text.get_text() for text in ax.texts} == set(np.array(list("abcdef"))[front])
        with pytest.raises(ChoiceGPError, match="one for each of the 6 objects; got 1"):
            plots.plot_objects(model, frame, names=["a"])

    def test_other_utilities_but_the_front_of_all(self):
        three = Model(choices(laptop_table(2)), n_utilities=3)
        ax = plots.plot_objects(three, utilities=(2, 0))
        mean = three.utilities(three.data_).mean
        marked = next(c for c in ax.collections if str(c.get_label()).startswith("Undominated"))
        assert np.asarray(marked.get_offsets()) == pytest.approx(mean[undominated(mean)][:, [2, 0]])
        assert ax.get_xlabel().startswith("utility 3")
        assert "in all 3" in ax.get_title()

    def test_objects_at_one_point_share_a_name(self, model):
        frame = laptop_table(2, n=1).loc[["laptop 0"] * 5].set_axis(list("abcde"))
        ax = plots.plot_objects(model, frame)
        assert [text.get_text() for text in ax.texts] == ["a (+4)"]
        assert "Undominated: no other\nobject is." in legend_texts(ax.get_legend())

    def test_a_long_front_is_named_in_part(self):
        frame = laptop_table(1, categories=(), n=400)
        many = Model(choices(frame.iloc[:30]))

        def utilities(X):
            angle = np.linspace(0, np.pi / 2, 400)
            return Utilities(np.column_stack([np.sin(angle), np.cos(angle)]), np.full((400, 2), 0.1))

        many.utilities = utilities
        ax = plots.plot_objects(many, frame)
        assert 8 <= len(ax.texts) <= 15
        assert len(ax.containers) == 0, "400 bars would be a mesh"
        assert f"({len(ax.texts)} of 400 are named)" in " ".join(legend_texts(ax.get_legend()))

    def test_with_one_utility_the_best_are_listed(self):
        single = Model(choices(laptop_table(2, n=40)), n_utilities=1)
        ax = plots.plot_objects(single)
        mean, sd, _, _ = single.utilities(single.data_)
        best = np.argsort(-mean[:, 0])[:30]
        points, ends = bars(ax, "Bars are standard deviations.")
        assert points[:, 0] == pytest.approx(mean[best, 0])
        assert ends[:, 1, 0] == pytest.approx(mean[best, 0] + sd[best, 0])
        assert [label.get_text() for label in ax.get_yticklabels()] == [f"laptop {row}" for row in best]
        assert ax.get_title() == "The best 30 of 40 objects"

    @pytest.mark.parametrize("utilities", [(0, 0), (0, 2), (-1, 0), (0,), 1, "01", (0.0, 1.0)])
    def test_wrong_utilities_are_refused(self, model, utilities):
        with pytest.raises(ChoiceGPError, match="two different numbers from 0 to 1"):
            plots.plot_objects(model, utilities=utilities)

    def test_both_kinds_of_objects_are_refused(self, model):
        with pytest.raises(ChoiceGPError, match="not as both"):
            plots.plot_objects(model, model.data_.X, data=model.data_)
        with pytest.raises(ChoiceGPError, match="data must be a ChoiceData, not a DataFrame"):
            plots.plot_objects(model, data=laptop_table())
        with pytest.raises(ChoiceGPError, match="at most 5000 objects are drawn; got 5001"):
            plots.plot_objects(model, np.zeros((5001, 5)))


class WithThreshold(Model):
    """A model whose threshold is among its objects."""

    errors_ = KEPT_BY["discernibility with a threshold"]

    def threshold_utilities(self):
        mean = np.linspace(0.4, -0.8, self.n_utilities_)
        return Utilities(mean, mean - mean + 0.3, mean - 0.5, mean + 0.9)


class TestThreshold:
    def test_it_is_a_marked_point_with_its_interval(self):
        model = WithThreshold(choices(laptop_table(2)), n_utilities=3)
        ax = plots.plot_objects(model, utilities=(2, 0))
        tau = model.threshold_utilities()
        [found] = [c for c in ax.containers if str(c.get_label()).startswith("The threshold")]
        point, _, (across, up) = found
        assert np.ravel(point.get_data()) == pytest.approx(tau.mean[[2, 0]])
        assert across.get_segments()[0][:, 0] == pytest.approx([tau.lower[2], tau.upper[2]])
        assert up.get_segments()[0][:, 1] == pytest.approx([tau.lower[0], tau.upper[0]])
        [words] = [text for text in legend_texts(ax.get_legend()) if "threshold" in text]
        assert " ".join(words.split()) == (
            "The threshold, with 95% intervals: an object below it in all 3 utilities is rejected even alone."
        )
        names = {text.get_text() for text in ax.texts}
        assert names == {f"laptop {row}" for row in np.flatnonzero(undominated(model.utilities(model.data_).mean))}

    def test_with_one_utility_it_is_a_line(self):
        model = WithThreshold(choices(laptop_table(2)), n_utilities=1)
        ax = plots.plot_objects(model)
        [line] = [line for line in ax.lines if str(line.get_label()).startswith("The threshold")]
        assert np.unique(line.get_xdata()) == pytest.approx(model.threshold_utilities().mean)
        [band] = ax.patches
        ends = band.get_extents().transformed(ax.transData.inverted())
        assert (ends.x0, ends.x1) == pytest.approx((-0.1, 1.3))
        assert "an object below it is rejected" in " ".join(legend_texts(ax.get_legend())[0].split())

    def test_a_model_without_one_has_no_such_mark(self, model):
        assert not any("threshold" in text for text in legend_texts(plots.plot_objects(model).get_legend()))

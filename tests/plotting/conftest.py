"""What the tests of the plots share: models without a fit, and what a picture shows."""

import sys
from collections.abc import Iterator
from functools import cached_property

import jax
import numpy as np
import pandas as pd
import pytest

from choicegp import ChoiceData
from choicegp.fitting.record import FitResult, Utilities
from choicegp.inference.posterior import Posterior
from choicegp.model.prior import Objects, UtilityPrior, kernel_named


class Model:
    """What the plots need of a fitted model, without a fit: a posterior of effects, and made-up utilities."""

    def __init__(self, data, n_utilities=2):
        self.data_, self.encoding_, self.n_utilities_ = data, data.encoding, n_utilities
        self.centre_, scale = data.X.mean(axis=0), data.X.std(axis=0)
        self.scale_ = np.where(scale > 0, scale, 1.0)
        self.elbo_ = -12.5
        trace = np.array([-9.0, -20.0, -14.0, -12.0])
        self.fit_result_ = FitResult("converged", "a block gained 0.01 nats", 4, 1.0, trace)

    def utilities(self, X):
        X = X.with_encoding(self.encoding_).X if isinstance(X, ChoiceData) else self.encoding_.encode(X)
        scaled = (X - self.centre_) / self.scale_
        waves = np.random.default_rng(1).normal(size=(X.shape[1], self.n_utilities_))
        mean, sd = 3 * np.sin(scaled @ waves), 0.3 + 0.1 * np.cos(scaled @ waves)
        # Draws have intervals with the mean anywhere inside.
        return Utilities(mean, sd, mean - 2.3 * sd, mean + 1.6 * sd)

    @cached_property
    def posterior_(self):
        """A Gaussian posterior, of noisy values seen at the objects."""
        n, d = len(self.data_.X), self.n_utilities_
        prior = UtilityPrior.create(kernel_named("rbf"), self.data_.X.shape[1], d)
        objects = Objects((self.data_.X - self.centre_) / self.scale_, np.arange(n))
        with jax.enable_x64(True):
            K = np.asarray(prior.covariance(objects, objects)) + 1e-8 * np.eye(n)
        precision = np.array([4.0 * np.eye(n)] * d)
        covariance = np.linalg.inv(np.linalg.inv(K) + precision)
        seen = np.random.default_rng(2).normal(size=(d, n, 1))
        mean = covariance @ precision @ seen
        dual = np.linalg.solve(K, mean)[..., 0]
        gain = precision - precision @ covariance @ precision
        return Posterior(prior, objects, mean[..., 0], dual, gain)


def laptop_table(n_numeric=1, categories=("de", "uk", "us"), n=24, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({f"size_{j}": rng.normal(size=n) for j in range(n_numeric)})
    if categories:
        frame["keyboard"] = rng.choice(categories, size=n)
    return frame.set_axis([f"laptop {i}" for i in range(n)])


def choices(frame):
    # The last object is never shown.
    return ChoiceData.from_sets(frame, [[i, i + 1] for i in range(len(frame) - 2)])


@pytest.fixture(scope="package")
def line_model():
    return Model(choices(laptop_table(1, categories=())))


@pytest.fixture(scope="package")
def model():
    return Model(choices(laptop_table(2)))


@pytest.fixture
def no_pyplot_figures() -> Iterator[None]:
    """Check that a plot leaves nothing behind in pyplot."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        assert sys.modules["matplotlib.pyplot"].get_fignums() == []


def bars(ax, label):
    """Return the points (n, 2) and the ends (n, 2) of the error bars of one label."""
    [found] = [c for c in ax.containers if c.get_label() == label]
    points, _, (segments, *_) = found
    return np.column_stack(points.get_data()), np.array(segments.get_segments())


def legend_texts(legend):
    return [text.get_text() for text in legend.get_texts()]

"""
A million sets
==============

Choices that do not fit into memory are kept in a folder of Parquet files, and learned a few files at a time. The full
version of this page makes a million sets; a fast build makes two thousand. |profile|
"""

# %%
# A folder of answers
# -------------------
# Each file is a long table: one row for each object of each set. All rows of a set are in one file.

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from choicegp import ChoiceFolder, ChoiceGP, metrics, plots

FULL = os.environ.get("CHOICEGP_TUTORIALS") == "full"
n_sets, n_files, n_new = (1_000_000, 200, 5000) if FULL else (2000, 4, 200)

rng = np.random.default_rng(0)


def answers(first: int, n: int) -> pd.DataFrame:
    """Make n sets of four objects with three features, of which is kept what no other beats in two utilities."""
    X = rng.uniform(size=(n, 4, 3))
    U = np.stack([X[..., 0] - X[..., 2] ** 2, X[..., 1] + 0.5 * np.sin(4 * X[..., 2])], axis=-1)
    beaten = (U[:, None, :, :] > U[:, :, None, :]).all(axis=-1).any(axis=2)
    table = pd.DataFrame(X.reshape(-1, 3), columns=["speed", "comfort", "price"])
    return table.assign(choice_id=np.repeat(np.arange(first, first + n), 4), choice=(~beaten).ravel().astype(int))


path = Path(tempfile.mkdtemp())
for i in range(n_files):
    answers(i * n_sets // n_files, n_sets // n_files).to_parquet(path / f"part-{i:03d}.parquet")
folder = ChoiceFolder(path, object_id=None)
print(f"{len(folder)} sets in {len(folder.files)} files, {sum(f.stat().st_size for f in path.iterdir()) / 1e6:.1f} MB")

# %%
# Opening the folder read every file once. Had anything been wrong with a row, it would have been named here, before
# anything was learned.
#
# Learning from it
# ----------------
# Sparse inference looks at a few hundred sets in a step, and keeps a covariance of its inducing points alone: neither
# the time nor the memory of a step grows with the number of sets. These utilities are smooth, so that the kernel
# ``"rbf"`` and few inducing points are enough. The default, ``kernel="auto"``, also looks for fast waves and trains a
# network, which takes many times as long on a CPU.

smooth = {"kernel": "rbf", "n_restarts": 1}
sizes = {"n_inducing": 64, "batch_size": 512} if FULL else {"n_inducing": 16, "batch_size": 64, "max_iter": 150}
start = time.perf_counter()
model = ChoiceGP(2, inference="sparse", **smooth, **sizes).fit(folder)
print(f"{model.fit_result_.status} after {model.fit_result_.n_iter} steps and {time.perf_counter() - start:.0f} s")
for note in model.fit_result_.notes:
    print("note:", note)

# %%
# New sets of new objects, which the model has not seen:

from choicegp import ChoiceData

test = ChoiceData.from_long(answers(n_sets, 200), object_id=None)
metrics.summary(test, model.predict(test)).T.round(3)

# %%
# What was learned: one utility is speed for the money, the other comfort with a wave in the price.

picture = plots.plot_effects(model)

# %%
# Predictions are written while they are made, so that a folder of any size can be predicted. Here are 5,000 new sets
# in two files (200 in a fast build), which have no column of choices:

questions = Path(tempfile.mkdtemp())
for i in range(2):
    half = answers(i * n_new // 2, n_new // 2)
    half.drop(columns="choice").to_parquet(questions / f"part-{i}.parquet")
model.predict_file(ChoiceFolder(questions, object_id=None, chosen=None), path / "predictions.parquet")
print(pd.read_parquet(path / "predictions.parquet").head(4).round(3))

# %%
# What it does not do
# -------------------
# The intervals of sparse inference are too narrow, which ``model.intervals_`` says, and it refuses effects of single
# objects and questions for the best or the worst object. With up to 1500 different objects, leave ``inference`` at
# ``"auto"``, which means dense inference there.

print(model.intervals_)

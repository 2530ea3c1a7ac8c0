"""
Laptops with Alice
==================

Alice needs a new laptop. She is shown four at a time and ticks every one that she would not reject. We learn what she
looks for, and find the laptops that she should see. |profile|

Alice is simulated, so that we can compare what is learned with the truth.
"""

# %%
# The data
# --------
# A catalogue of 60 laptops, and 80 pages of four. ``simulated.data`` is what a survey would give us;
# ``simulated.U``, what each laptop is worth to Alice, is what nobody ever sees.

import os

from choicegp import ChoiceGP, datasets, metrics, plots

FULL = os.environ.get("CHOICEGP_TUTORIALS") == "full"
quick = {} if FULL else {"intervals": "none", "object_effects": False, "n_restarts": 1}  # seconds instead of a minute

simulated = datasets.alice_choices(n_objects=60, n_sets=80, error=0.05, random_state=0)
train, test = simulated.data.split(test_size=20, random_state=0)
print(train.describe())

# %%
# One page: what Alice saw, and what she kept (1) or rejected (0).

page = train.to_long()
page[page["choice_id"] == page["choice_id"].iloc[0]].T

# %%
# She often keeps several laptops, which is not indecision: one is fast, the other is light. With a single utility one
# of them would have to be better. So we assume two.
#
# Learning
# --------

model = ChoiceGP(n_utilities=2, random_state=0, **quick).fit(train)
print(model.fit_result_.status, "after", model.fit_result_.n_iter, "steps")
print("intervals:", model.intervals_)

# %%
# Is it any good? Twenty pages were held out. The rule "keep everything" is the yardstick: who keeps much is easily
# predicted to keep all.

metrics.summary(test, model.predict(test)).T.round(3)

# %%
# What drives her choices
# -----------------------
# The effect of a feature: the utility as this feature alone changes, averaged over the other features.

picture = plots.plot_effects(model, ["cpu_score", "price_eur", "weight_kg"])

# %%
# Which utility comes first has no meaning. One of them is about power for the money, the other about comfort, as they
# are in the simulation. What is learned is a curve and not a single weight. Where one utility is much larger than the
# other, each has a scale of its own, on the left and on the right.
#
# The laptops themselves
# ----------------------
# Each point is a laptop, in the plane of the two utilities. Nothing lies above and to the right of the laptops on the
# front: these are the ones that Alice would not reject if she saw the whole catalogue.

picture = plots.plot_objects(model, datasets.laptops(60))

# %%
# The probability that no other laptop beats it, and both utilities as differences from the mean laptop:

model.recommend(datasets.laptops(60), n=5)

# %%
# How close to the truth?
# -----------------------
# Utilities are known up to their order, and only differences matter, so we compare ranks.

import numpy as np
from scipy.stats import spearmanr

learned = model.utilities(datasets.laptops(60)).mean
ranks = np.array([[spearmanr(learned[:, i], simulated.U[:, j]).statistic for j in range(2)] for i in range(2)])
best = max(([0, 1], [1, 0]), key=lambda order: ranks[[0, 1], order].sum())
for i, j in enumerate(best):
    print(f"utility {i + 1} and {['power for the money', 'comfort'][j]}: rank correlation {ranks[i, j]:.2f}")

"""
Many people and market shares
=============================

A study has many people with a few answers each. Nobody answers enough to be known by her own answers alone, and
no two people are the same. One model learns all of them together, and says what an assortment would do. |profile|
"""

# %%
# A study
# -------
# Simulated people whose utilities vary around what their population has in common. The last two answers of everyone are
# held out.

import os
from dataclasses import replace

import numpy as np
import pandas as pd

from choicegp import ChoiceGP, datasets, metrics, plots

FULL = os.environ.get("CHOICEGP_TUTORIALS") == "full"
people, answers = (60, 12) if FULL else (8, 8)
quick = {"object_effects": False} if FULL else {"object_effects": False, "n_restarts": 1, "max_iter": 36}

study = datasets.many_people(people, answers, between=0.5, random_state=3, n_objects=12, set_size=3)
number = np.arange(len(study.data)) % answers
train, later = (study.data.take(np.flatnonzero(part)) for part in (number < answers - 2, number >= answers - 2))
print(train.describe())

# %%
# One model for all
# -----------------

model = ChoiceGP(2, respondents="hierarchical", **quick).fit(train)
print(model.fit_result_.status, "-", model.intervals_)

# %%
# Does it help to know who answers? The same sets are predicted for the person who answered, and for a person about whom
# nothing is known. A higher log score is better.

known = model.log_prob(later, normalized=True)
unknown = model.log_prob(replace(later, respondents=None), normalized=True)
pd.DataFrame(
    {
        "mean log score": [known.mean(), unknown.mean()],
        "exact accuracy": [
            metrics.exact_accuracy(later, model.predict(later)),
            metrics.exact_accuracy(later, model.predict(replace(later, respondents=None))),
        ],
    },
    index=["who answers is known", "a new person"],
).round(3)

# %%
# Shares of an assortment
# -----------------------
# ``kept`` is the share of people who would not reject an object, ``taken`` the share who take it when each person takes
# one of the objects that she keeps.

objects = pd.DataFrame(study.data.X, columns=study.data.feature_names, index=[f"product {i}" for i in range(12)])
today = objects.iloc[[0, 3, 7]]
shares = model.shares({"today": today, "with product 5": objects.iloc[[0, 3, 7, 5]]})
picture = plots.plot_shares(shares)

# %%
# What would happen if one were withdrawn? Both figures come from the same draws, so that the interval is the interval
# of the change.

change = model.what_if(today, {"product 3": None})
picture = plots.plot_what_if(change)

# %%
# **Intervals need draws.** ``intervals_`` above says whether people were sampled. Where they were not, a Gaussian
# takes the place of draws, and in simulated studies its 95% intervals contained the true share in about 80% of the
# cases; "Shares, prices and segments" has the figures.
#
# Kinds of people
# ---------------
# k-medoids always finds k groups. ``stability`` says whether the answers settle who belongs where: near 1 they do, near
# 0 the groups are made of noise.

segments = model.segments(2, n_draws=20)
print(segments)

# %%
# A new person arrives
# --------------------
# Her answers are learned given the population; nobody else is fitted again.

newcomer = later.take([0, 1])
wiser = model.adapt(replace(newcomer, respondents=np.array(["Ada", "Ada"])))
print(f"{len(model.respondents_)} people before, {len(wiser.respondents_)} after; the last is {wiser.respondents_[-1]}")

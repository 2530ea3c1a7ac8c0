"""
Asking well
===========

A person's patience is the scarcest thing in a study. Some sets say more than others: what the model is unsure about,
and what the answer would settle. |profile|
"""

# %%
# Before any answer
# -----------------
# Without a model nothing is known, so the first sets show laptops that differ much from each other.

import os

import numpy as np
import pandas as pd

from choicegp import ChoiceData, ChoiceGP, datasets, metrics, next_set

FULL = os.environ.get("CHOICEGP_TUTORIALS") == "full"

laptops = datasets.laptops(60)[["cpu_score", "weight_kg", "price_eur"]]
speed = np.log2(laptops["cpu_score"] / 10000) - 0.8 * np.log2(laptops["price_eur"] / 1000)  # for the money
U = np.column_stack([speed, -laptops["weight_kg"] - 0.3 * laptops["price_eur"] / 1000])  # and light
first = next_set(None, laptops, size=3, random_state=0)
print(first.reason)
laptops.loc[list(first.shown)]

# %%
# After some answers
# ------------------
# Alice answers eight such sets. Then the model chooses the set whose answer is expected to say most about her
# utilities. ``proposed.value`` is the same number in nats.


def ask(history: list, how: str, model: ChoiceGP | None, seed: int) -> tuple:
    """Return one more set, as row numbers."""
    asked = [frozenset(laptops.index[list(rows)]) for rows in history]
    proposed = next_set(model, laptops, size=3, how=how, avoid=asked, seconds=60, random_state=seed)
    return tuple(laptops.index.get_indexer(proposed.shown)), proposed


def learn(history: list) -> ChoiceGP:
    """Fit Alice's answers to all sets so far."""
    data = ChoiceData.from_utilities(laptops, U, [list(rows) for rows in history])
    return ChoiceGP(2, intervals="none", object_effects=False, n_restarts=9 if FULL else 3).fit(data)


history: list = []
for seed in range(8):
    history.append(ask(history, "space-filling", None, seed)[0])
model = learn(history)
rows, proposed = ask(history, "information", model, 8)
print(proposed.reason)
laptops.iloc[list(rows)]

# %%
# Is it worth it?
# ---------------
# Two conversations from the same eight sets: one continues with sets that say most, the other with random ones. After
# every few answers, both models predict the same 300 sets. ``seconds`` is the time limit of the search: half a second
# by default, because a person waits; on a busy machine it finds poorer sets, so that it is longer here.

steps, refit = (40, 4) if FULL else (8, 4)
test = ChoiceData.from_utilities(laptops, U, datasets.random_sets(60, 300, 3, random_state=7))
curves = {}
for how in ("information", "random"):
    asked, known, scores = list(history), model, [metrics.exact_accuracy(test, model.predict(test))]
    for step in range(steps):
        asked.append(ask(asked, how, known, 100 + step)[0])
        if (step + 1) % refit == 0:
            known = learn(asked)
            scores.append(metrics.exact_accuracy(test, known.predict(test)))
    curves[how] = scores
table = pd.DataFrame(curves, index=pd.Index(8 + refit * np.arange(steps // refit + 1), name="answers"))
table.round(3)

# %%

import matplotlib.pyplot as plt

figure, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
for how, style, colour in (("information", "o-", "#0072B2"), ("random", "s--", "#D55E00")):
    ax.plot(table.index, table[how], style, color=colour, label=f"{how} sets")
ax.set(xlabel="number of answers", ylabel="share of 300 sets predicted exactly")
ax.set_title("One simulated person: chance plays a part")
legend = ax.legend(frameon=False)

# %%
# Where a curve drops, a fit has ended in a poor optimum, which more starts make rarer.
#
# One person is an anecdote, and while little is known nearly every answer says something. Of 24 simulated people, sets
# that say most needed 38 answers (median) for what random sets reached with 60, and a third did not get there within
# 48: "Asking" has the figures, and "What to ask next" says where asking well does not work.

"""
Preferences or choices: when forced answers mislead
===================================================

"Which of these two is better?" forces an answer. A person with several criteria may have none: each of the two is
better in something. What she says then depends on what she happens to look at. Asking "which would you not reject?"
lets her keep both. |profile|
"""

# %%
# The same pairs, asked in two ways
# ---------------------------------
# Objects have a hidden class, and every pair of classes has a utility of its own (the simulation of Chau et al., 2022).
# A forced answer compares two objects by the utility of their two classes; the other answer rejects an object only
# where the other one is better in all utilities.

import os

import numpy as np

from choicegp import ChoiceGP, PreferenceGP, datasets

FULL = os.environ.get("CHOICEGP_TUTORIALS") == "full"
quick = {} if FULL else {"intervals": "none", "object_effects": False, "n_restarts": 1}

pairs = datasets.inconsistent_preferences(n_objects=40, n_features=2, n_classes=2, sparsity=0.6, random_state=3)
both = np.array([len(kept) == 2 for kept in pairs.pareto_train.chosen])
print(f"{len(both)} pairs; in {both.mean():.0%} of them neither object is better in everything")

# %%
# Forced answers run in circles
# -----------------------------
# Of three objects, the first may beat the second, the second the third, and the third the first. No utility does that.

U = np.zeros((40, 40), bool)
for shown, kept in zip(pairs.forced_train.shown, pairs.forced_train.chosen, strict=True):
    loser = shown[shown != kept[0]][0]
    U[kept[0], loser] = True
circles = int(np.trace(np.linalg.matrix_power(U.astype(int), 3))) // 3
print(f"{circles} circles of three in the forced answers")

# %%
# A preference model on forced answers, a choice model on free ones
# -----------------------------------------------------------------

forced = PreferenceGP().fit(pairs.forced_train)
free = ChoiceGP(n_utilities=3, **quick).fit(pairs.pareto_train)
print(f"forced answers, one utility: {forced.score(pairs.forced_test):.2f} of the held-out answers are right")
print(f"free answers, three utilities: {free.score(pairs.pareto_test):.2f} of the held-out answers are right")

# %%
# These two numbers answer different questions: the second task has three answers and the first has two. A common
# question is who wins where one object really is better in everything.

rows = [k for k, kept in enumerate(pairs.pareto_test.chosen) if len(kept) == 1]
truth = pairs.pareto_test.take(rows)
first = np.array([shown[0] for shown in truth.shown])
second = np.array([shown[1] for shown in truth.shown])
wins = np.array([kept[0] for kept in truth.chosen]) == first
dominance = free.dominance_proba(truth.X[first], truth.X[second])
asked = pairs.forced_test.take(rows)
preferred = np.array([kept[0] for kept in forced.predict(asked)]) == np.array([shown[0] for shown in asked.shown])
right = {
    "forced answers": float(np.mean(preferred == wins)),
    "free answers": float(np.mean((dominance[:, 0] > dominance[:, 1]) == wins)),
}
print(f"{len(rows)} held-out pairs have a clear winner. Who wins is predicted right:")
for answers, share in right.items():
    print(f"  {answers}: {share:.1%}")

# %%
# What forced answers hide
# ------------------------
# How sure is each model about the pairs that have no winner? A preference model can only say that it is a close call,
# which is also what it says about two objects that are equal. The choice model has a word for it: incomparable.

import matplotlib.pyplot as plt

open_rows = [k for k, kept in enumerate(pairs.pareto_test.chosen) if len(kept) == 2]
unclear = pairs.pareto_test.take(open_rows)
sure = np.array([np.max(p) for p in forced.predict_proba(pairs.forced_test.take(open_rows))])
a, b = (np.array([shown[j] for shown in unclear.shown]) for j in (0, 1))
incomparable = free.dominance_proba(unclear.X[a], unclear.X[b])[:, 2]
figure, axes = plt.subplots(1, 2, figsize=(8.5, 3.2), layout="constrained", sharey=True)
axes[0].hist(sure, bins=np.linspace(0.5, 1, 11), color="#D55E00")
axes[0].set(title="forced answers", xlabel="probability of the preferred object", ylabel="pairs without a winner")
axes[1].hist(incomparable, bins=np.linspace(0, 1, 11), color="#0072B2")
axes[1].set(title="free answers", xlabel="probability that they are incomparable")
print(f"forced: the mean probability of the preferred object is {sure.mean():.2f}, although there is none")
print(f"free: incomparable with a mean probability of {incomparable.mean():.2f}")

"""
How many criteria does a person have?
=====================================

Nobody says how many utilities there are. Each number is fitted, and judged by sets that it has not seen. |profile|
"""

# %%
# A person with two criteria
# --------------------------
# The first example of the paper: objects are numbers x, and a person likes a large cos 2x and a small sin 2x.

import os

from choicegp import datasets, plots, select_n_utilities

FULL = os.environ.get("CHOICEGP_TUTORIALS") == "full"

quick = {} if FULL else {"n_restarts": 1, "max_iter": 60}  # a fast build also tries two numbers only
simulated = datasets.sincos(n_objects=200 if FULL else 24, n_sets=150 if FULL else 24, random_state=1)
print(simulated.data.describe())

# %%
# Fit each number, and compare
# ----------------------------
# ``elpd`` is the log probability of each answer given all others, summed over the sets, with its standard error ``se``.
# ``elpd_diff`` is how much worse a number is than the best one, and ``dse`` is the standard error of this difference,
# from a paired comparison. ``p`` is the effective number of parameters.

found = select_n_utilities(simulated.data, max_utilities=5 if FULL else 2, random_state=0, **quick)
print(found.reason)
found.table[["elpd", "se", "elpd_diff", "dse", "p", "elbo"]].round(1)

# %%
# The rule chooses the smallest number that is within one standard error of the best. Look at the first row: with one
# utility two kept objects are impossible, and each such pair costs 23 nats, a floor that the paper's authors chose. So
# this row says "not one", and its size says nothing more.

picture = plots.plot_selection(found)

# %%
# What was learned
# ----------------
# The two utilities of the chosen model, in any order, and up to a shift:

model = found.model
picture = plots.plot_utilities(model)

# %%
# What the figure does not say
# ----------------------------
# Leave-one-out holds the hyperparameters, although the set that was left out helped to learn them. Where several
# numbers are within one standard error, ``select_n_utilities(data, folds=10)`` lets cross-validation decide. On real
# data, two utilities are often as good as three: then the answers do not say how many there are, and neither does this
# table.

print("best first:", found.table["elpd"].sort_values(ascending=False).round(1).to_dict())

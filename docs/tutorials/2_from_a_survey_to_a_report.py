"""
From a survey export to a report
================================

A survey tool gives you a spreadsheet, not an array: semicolons, currencies, an ``x`` for a tick, comments, a task in
which nothing was ticked. This page takes such a file to a fitted model, to tables, and to a report that can be
mailed. |profile|
"""

# %%
# The export
# ----------
# Twenty people saw four backpacks in each of three tasks and ticked what they would consider. We write the file that
# a survey tool would have given us.

import os
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from choicegp import ChoiceData, ChoiceGP, metrics, plots

FULL = os.environ.get("CHOICEGP_TUTORIALS") == "full"
quick = {} if FULL else {"intervals": "none", "object_effects": False, "n_restarts": 1}

rng = np.random.default_rng(4)
bags = pd.DataFrame(
    {
        "litres": rng.integers(14, 40, 24),
        "grams": rng.integers(500, 2100, 24),
        "price": rng.integers(35, 240, 24),
        "closure": rng.choice(["roll", "zip"], 24),
    },
    index=[f"bag {i:02d}" for i in range(24)],
)
room = bags["litres"] / 6 - bags["price"] / 45  # much room for the money
ease = -bags["grams"] / 300 + (bags["closure"] == "zip")  # light, and easily opened
rows = []
for person in range(20):
    for task in range(3):
        shown = rng.choice(24, 4, replace=False)
        U = np.column_stack([room.iloc[shown], ease.iloc[shown]]) + 0.3 * rng.standard_normal((4, 2))
        for j, bag in enumerate(shown):
            other = (U - U[j] > 0).all(axis=1).any()  # is better in both
            beaten = other or U[j, 0] < -0.5 or U[j, 1] < -5.0  # or not good enough
            rows.append((f"P{person:02d}", task + 1, *bags.iloc[[bag]].reset_index().iloc[0], "" if beaten else "x"))
table = pd.DataFrame(rows, columns=["respondent", "task", "bag", "litres", "grams", "price", "closure", "consider"])
table["price"] = [f"EUR {price}" for price in table["price"]]
table["comment"] = ""
folder = Path(tempfile.mkdtemp())
table.to_csv(folder / "export.csv", index=False, sep=";")
print((folder / "export.csv").read_text()[:370])

# %%
# Reading it
# ----------
# The options answer what the file leaves open. A set is a respondent and a task; prices hold numbers; a task without
# a tick means "none of these", which is an answer. Whatever else is unclear is an error that names its rows, or a note.

import warnings

with warnings.catch_warnings(record=True) as notes:
    warnings.simplefilter("always")
    data = ChoiceData.from_long(
        folder / "export.csv",
        set_id=["respondent", "task"],
        object_id="bag",
        chosen="consider",
        features=["litres", "grams", "price", "closure"],
        numbers=["price"],
        respondent="respondent",
        empty="none",
    )
for note in notes:
    print("note:", note.message)
print(data.describe())

# %%
# The same in a shell, where the notes are printed:
#
# .. code-block:: console
#
#    $ choicegp describe export.csv --set-id respondent,task --object-id bag --chosen consider \
#          --features litres,grams,price,closure --number price --empty none
#
# Fitting, with people held out
# -----------------------------
# Who is in the training data must not be in the test: the question is what other people will do.

train, test = data.split(test_size=0.2, by="respondent", random_state=0)
model = ChoiceGP(n_utilities=2, **quick).fit(train)
print(model)
metrics.summary(test, model.predict(test)).T.round(3)

# %%
# Some tasks were left empty, so the model has a threshold, and says how probable an empty task is:

print(pd.Series(model.predict_none(test), index=test.set_ids, name="P(none)").sort_values().round(2).tail())

# %%
# What the report shows
# ---------------------
# What drives the choices, what would be considered, and what an assortment does:

picture = plots.plot_effects(model, ["litres", "grams", "price", "closure"])

# %%

shares = model.shares({"today": list(bags.index[:3]), "with bag 13": [*bags.index[:3], "bag 13"]})
picture = plots.plot_shares(shares)
shares[["set", "object", "kept", "kept_lower", "kept_upper"]].round(2)

# %%
# A model is one file, which contains no code. From it, one command makes one page to mail:
#
# .. code-block:: console
#
#    $ choicegp fit export.csv --set-id respondent,task --object-id bag --chosen consider \
#          --features litres,grams,price,closure --number price --empty none -o model.cgp
#    $ choicegp report model.cgp -o report.html

model.save(folder / "model.cgp")
model.predict_frame(test).to_csv(folder / "predictions.csv", index=False)
print(sorted(path.name for path in folder.iterdir()))

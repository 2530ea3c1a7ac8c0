"""
A page for your participants
============================

``choicegp serve`` opens a page on which people answer in their browser. This tutorial prepares a study, lets two
simulated people answer it, and learns from the log, without opening a browser. |profile|
"""

# %%
# The objects and the study file
# ------------------------------
# Objects are a table with one row each. Everything in the study file is optional.

# sphinx_gallery_thumbnail_path = 'figures/page-question.png'
import tempfile
from pathlib import Path

from choicegp import ChoiceData, ChoiceGP, Store, datasets, next_set

folder = Path(tempfile.mkdtemp())
laptops = datasets.laptops(24)[["price_eur", "weight_kg", "battery_h"]]
laptops.to_csv(folder / "laptops.csv")
study = """
title = "Which laptop would you keep?"
sets = 10
set_size = 3

[[features]]
column = "price_eur"
label = "Price"
unit = "€"
decimals = 0
"""
_ = (folder / "study.toml").write_text(study, encoding="utf-8")

# %%
# The command prints two links: one for the participants, one for you.
#
# .. code-block:: console
#
#    $ choicegp serve laptops.csv --study study.toml --db answers.db
#
# This is what participants see. They tick what they would not reject; "None of these" is an answer, and "Can't say" is
# none.
#
# .. image:: /figures/page-question.png
#    :alt: Four laptops on cards, of which two are ticked
#
# The log
# -------
# Every answer is in the log before the next page appears. The log can be used without a page, which is what we do here:
# two people answer six sets each, one by price and weight, the other by battery and weight.

store = Store.open(folder / "answers.db", laptops)
wishes = {"Anna": ["price_eur", "weight_kg"], "Bert": ["battery_h", "weight_kg"]}
signs = {"price_eur": -1, "weight_kg": -1, "battery_h": 1}
for number, (name, wanted) in enumerate(wishes.items()):
    person, _ = store.join(name)
    for i in range(6):
        shown = next_set(None, laptops, size=3, how="random", random_state=10 * number + i).shown
        question = store.ask(person, shown, design="random")
        U = laptops.loc[list(question.ids), wanted] * [signs[feature] for feature in wanted]
        kept = [a for a in U.index if not any((U.loc[b] > U.loc[a]).all() for b in U.index)]
        store.answer(question.key, kept)
print([event.kind for event in store.events()][:8], "...")

# %%
# An answer counts once. A page that lost its connection sends it again, and nothing changes:

print(store.answer(question.key, kept).repeated)

# %%
# From the log to a model
# -----------------------
# The owner's page offers the same table for download.

store.export_long(folder / "long.csv")
store.close()
data = ChoiceData.from_long(folder / "long.csv", respondent="respondent", empty="none")
print(data.describe())
model = ChoiceGP(2, intervals="none", object_effects=False, n_restarts=1).fit(data)
model.recommend(laptops, n=3)

# %%
# While people answer, your own page shows their progress, what each of them seems to look for, and a short list:
#
# .. image:: /figures/page-owner.png
#    :alt: The owner's table of participants with their progress
#
# "The page" in the how-to guides lists every setting, and says how to put the page behind a web server.

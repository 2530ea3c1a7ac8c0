"""The figures and numbers of docs/gallery.md that need published tables.

Run: CHOICEGP_DATA=/path/to/tables python docs/gallery/real_questions.py docs/figures [zurich] [ellipses]
The numbers are kept in real_questions.json, with which a test compares the page.
"""

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

from choicegp import ChoiceGP, datasets, metrics, plots

KEPT = Path(__file__).with_suffix(".json")


def keep(question: str, numbers: dict[str, object]) -> None:
    """Replace the numbers of one question in the file."""
    known = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    KEPT.write_text(json.dumps(known | {question: numbers}, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def ellipses(folder: Path) -> None:
    """What a real person looks for in an ellipse."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # two records choose what was not shown
        data = datasets.load_ellipses(on_error="skip")
    train, test = data.split(test_size=40, random_state=0)
    model = ChoiceGP(n_utilities=2, random_state=0).fit(train)
    print(data.describe())
    print(model.intervals_)
    scores = metrics.summary(test, model.predict(test))
    print(scores.T.round(3).to_string())
    names = ["exact_accuracy", "object_accuracy", "a_mean"]
    rows = {row: [round(float(scores.loc[row, name]), 3) for name in names] for row in ("model", "everything chosen")}
    keep("ellipses", {"sets": [len(train), len(test)], "intervals": model.intervals_, **rows})
    axes = plots.plot_effects(model, ["a", "b", "rotation"])
    for ax, words in zip(axes, ("half-axis a", "half-axis b", "rotation, in radians"), strict=True):
        ax.set_xlabel(words)
    axes[0].figure.savefig(folder / "gallery-ellipses.png", dpi=100)


def zurich(folder: Path) -> None:
    """Whether people vote for the topics whose weight they state."""
    ballots = datasets.load_zurich()
    data, voters = ballots.data, ballots.voters
    print(data.describe())
    weights = voters[["weight_transport", "weight_culture", "weight_nature"]]
    first = weights.idxmax(axis=1).str.removeprefix("weight_")
    objects = data.encoding.decode(data.X)
    rows = {}
    for topic, group in first.groupby(first):
        own = np.flatnonzero(np.isin(np.asarray(data.respondents), group.index))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = ChoiceGP(2, intervals="none", object_effects=False, n_restarts=2, random_state=0).fit(
                data.take(own)
            )
        kept = pd.Series(np.mean(model.predict_proba(data.take(own)), axis=0), index=objects["topic"])
        rows[f"{topic} ({len(own)} voters)"] = kept.groupby(level=0).mean()
    table = pd.DataFrame(rows).T
    print(table.round(2).to_string())
    keep("zurich", {group: table.loc[group].round(3).to_dict() for group in table.index})
    colours = ["#CC79A7", "#009E73", "#0072B2"]
    ax = table.plot.bar(rot=0, figsize=(7, 3.6), ylabel="mean probability of approval", width=0.75, color=colours)
    ax.set(xlabel="topic to which voters gave the largest weight", ylim=(0, 0.78))
    ax.legend(title="topic of the project", frameon=False, ncols=3, loc="upper center")
    ax.figure.tight_layout()
    ax.figure.savefig(folder / "gallery-zurich.png", dpi=100)


if __name__ == "__main__":
    for draw in (zurich, ellipses):
        if len(sys.argv) < 3 or draw.__name__ in sys.argv[2:]:
            draw(Path(sys.argv[1]))

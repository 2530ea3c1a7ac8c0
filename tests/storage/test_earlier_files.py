"""Files of everything that each format of models has added, from versions 1 to 8, written when that was the newest.

``earlier.json`` holds what the programs that wrote them predicted, and ``data`` the files.  They are models of
six objects and eight sets (the network: of the first eight of 1,100 sets), of few draws and steps.  Predicted are
``predict_proba`` of all pairs of objects, answered in turn by "ann", "bob" and "carl", of whom the model knows nothing,
where there are people; of the network's own sets; and for an embedding the kept rows.  Versions 1 to 3 of `ChoiceGP`
have tests of their own.
"""

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import choicegp
from choicegp import ChoiceData

KEPT = Path(__file__).parent / "data"
EARLIER = json.loads((KEPT / "earlier.json").read_text())
TABLE = pd.DataFrame(
    {
        "price": [1.0, 2.5, 4.0, 30.0, 80.0, 55.0],
        "colour": ["red", "blue", "red", "green", "blue", "green"],
    },
    index=["pen", "ink", "cap", "lamp", "desk", "chair"],
)
CLASSES = {"choicegp-model": "ChoiceGP", "choicegp-embedding": "ParetoEmbedding"}


def asked(name: str, model) -> ChoiceData:
    if name == "network-v6":
        return model.data_
    pairs = list(combinations(TABLE.index, 2))
    if not any(word in name for word in ("people", "alone", "covariates")):
        return ChoiceData.from_sets(TABLE, pairs, by="id")
    whom = [("ann", "bob", "carl")[k % 3] for k in range(len(pairs))]
    found = ChoiceData.from_sets(TABLE, pairs, by="id", respondents=whom)
    if "covariates" not in name:
        return found
    known = {"age": [20.0, 60.0, 40.0], "home": ["town", "land", "town"]}
    return found.with_covariates(pd.DataFrame(known, index=["ann", "bob", "carl"]))


@pytest.mark.filterwarnings("ignore:1 of the 3 respondents")
@pytest.mark.parametrize("name", EARLIER)
def test_a_file_of_an_earlier_program_is_read_and_predicts_the_same(name, tmp_path):
    known, path = EARLIER[name], KEPT / f"{name}.cgp"
    with np.load(path) as archive:
        page = json.loads(str(archive["about"]))
    assert (page["format"], page["version"]) == (known["format"], known["version"])
    kind = getattr(choicegp, CLASSES.get(known["format"], known["format"].removeprefix("choicegp-")))
    model = kind.load(path)
    model.save(tmp_path / "again.cgp")
    for one in (model, kind.load(tmp_path / "again.cgp")):
        sets = asked(name, one)
        if "chosen" in known:
            assert [rows.tolist() for rows in one.predict(sets)] == known["chosen"]
            continue
        found = np.concatenate(one.predict_proba(sets))
        assert found == pytest.approx(np.ravel(known["proba"]), abs=1e-5)
        if "elbo" in known:
            assert (one.elbo_, one.intervals_) == (known["elbo"], known["intervals"])


def test_every_format_and_version_is_here():
    from choicegp.storage.models import FORMATS

    found = {(known["format"], known["version"]) for known in EARLIER.values()}
    newest = {(name, one.version) for name, one in FORMATS.items()}
    # The newest version of this format has never been written: its newest file has another.
    assert newest - found == {("choicegp-BatchPreferenceGP", 6)}
    assert {version for name, version in found if name == "choicegp-model"} == {4, 5, 6, 7, 8}

"""scikit-learn's manners, without its base class."""

import pytest
from sklearn.base import clone, is_classifier, is_regressor

from choicegp import ChoiceGP, ChoiceGPError
from choicegp.estimators.base import Estimator


class Thing(Estimator):
    def __init__(self, size=1, *, name="thing", kinds=("a",)):
        self.size = size
        self.name = name
        self.kinds = kinds


def test_parameters_are_those_of_init():
    assert Thing(2).get_params() == {"size": 2, "name": "thing", "kinds": ("a",)}
    assert Thing(2).get_params(deep=False) == Thing(2).get_params()


def test_set_params_sets_all_or_none():
    thing = Thing()
    assert thing.set_params(size=3, name="other") is thing
    assert (thing.size, thing.name) == (3, "other")
    with pytest.raises(ChoiceGPError, match="Thing has no parameter 'sise': it has size, name, kinds"):
        thing.set_params(size=4, sise=5)
    assert thing.size == 3


def test_repr_tells_what_is_not_the_default():
    assert repr(Thing()) == repr(Thing(kinds=("a",))) == "Thing()"
    assert repr(Thing(2, name="it")) == "Thing(size=2, name='it')"


def test_scikit_learn_takes_it_for_an_estimator():
    copy = clone(Thing(5))
    assert copy.size == 5
    assert not is_classifier(copy)
    assert not is_regressor(copy)


def test_scikit_learn_is_not_imported():
    import subprocess
    import sys

    script = "import sys; from choicegp import ChoiceGP; ChoiceGP(); print('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout.strip() == "False"
    assert ChoiceGP(3).get_params()["n_utilities"] == 3

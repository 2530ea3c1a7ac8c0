"""ParetoEmbedding as its users meet it."""

import inspect
import io
import os
import pickle
import subprocess
import sys
import zipfile

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import KFold, cross_val_score
from sklearn.utils.validation import check_is_fitted

from choicegp import ChoiceData, ChoiceGP, ChoiceGPError, ParetoEmbedding, datasets, metrics


def small(**options) -> ParetoEmbedding:
    """Return a model that is trained in a moment."""
    quick = {"n_layers": 1, "n_units": 16, "learning_rate": 0.02, "max_epochs": 60, "progress": False}
    return ParetoEmbedding(**{**quick, **options})


def equal(one, other) -> bool:
    return len(one) == len(other) and all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.fixture(scope="module")
def embedded(easy) -> ParetoEmbedding:
    """Return a model of the easy sets; no test may change it."""
    return small().fit(easy[0])


@pytest.fixture(scope="module")
def laptops() -> tuple[ChoiceData, ChoiceData, ParetoEmbedding]:
    """Return Alice's choices, which have a column of words, and a model of them."""
    train, test = datasets.alice_choices(n_objects=40, n_sets=120, set_size=3).data.split(40, random_state=0)
    return train, test, small(max_epochs=30).fit(train)


# What is learned


def test_an_easy_problem_is_learned(easy, embedded):
    train, test = easy
    everything = metrics.exact_accuracy(test, metrics.everything_chosen(test))
    assert everything < 0.45
    assert embedded.score(test) > 0.85
    assert embedded.score(train) > 0.85
    # Another direction of the same features: what is learned comes from the choices.
    turned = ChoiceData.from_utilities(train.X, -train.X, train.shown)
    assert small().fit(turned).score(turned) > 0.85
    assert embedded.score(turned) < 0.5


def test_one_utility_learns_an_order_and_no_more(easy):
    train, test = easy
    ordered = ChoiceData.from_utilities(train.X, train.X[:, :1], train.shown)
    model = small(n_utilities=1).fit(ordered)
    assert model.score(ordered) > 0.85
    assert all(len(rows) == 1 for rows in model.predict(test))
    assert model.score(test) < 0.7


def test_curved_utilities_are_learned():
    data = datasets.gp_utilities(n_objects=100, n_sets=400, set_size=5, random_state=3).data
    train, test = data.split(80, random_state=0)
    everything = metrics.exact_accuracy(test, metrics.everything_chosen(test))
    assert small(n_units=32, max_epochs=150).fit(train).score(test) > everything + 0.4


def test_predictions_are_the_pareto_sets_of_the_outputs(easy, embedded):
    _, test = easy
    U = embedded.utilities(test)
    assert U.shape == (60, 2)
    for rows, predicted in zip(test.shown, embedded.predict(test), strict=True):
        beaten = [any((U[v] >= U[o]).all() and (U[v] > U[o]).any() for v in rows) for o in rows]
        assert predicted.tolist() == rows[~np.array(beaten)].tolist()


def test_equal_objects_are_chosen_together(easy, embedded):
    X = np.vstack([easy[0].X[:9], easy[0].X[:9]])
    assert np.array_equal(embedded.utilities(X)[:9], embedded.utilities(X)[9:])
    twins = ChoiceData.from_sets(X, [[k, k + 9, (k + 1) % 9] for k in range(9)])
    for k, rows in enumerate(embedded.predict(twins)):
        assert (k in rows) == (k + 9 in rows)
    alone = ChoiceData.from_sets(X, [[k, k + 9] for k in range(9)])
    assert [rows.tolist() for rows in embedded.predict(alone)] == [[k, k + 9] for k in range(9)]


def test_unseen_objects_and_choices_that_are_not_known(easy, embedded):
    X = 5.0 + 3.0 * np.random.default_rng(9).normal(size=(50, 2))
    shown = datasets.random_sets(50, 100, 3, random_state=2)
    new = ChoiceData.from_utilities(X, X, shown)
    assert embedded.score(new) > 0.8
    bare = ChoiceData.from_sets(X, shown)
    assert equal(embedded.predict(bare), embedded.predict(new))
    with pytest.raises(ChoiceGPError, match="choices"):
        embedded.score(bare)
    assert [len(rows) for rows in embedded.predict(ChoiceData.from_sets(X, [[4]]))] == [1]


def test_utilities_take_tables_arrays_lists_and_choice_data(easy, embedded):
    train, _ = easy
    table = pd.DataFrame(train.X, columns=train.feature_names)
    U = embedded.utilities(train)
    for same in (train.X, train.X.tolist(), table, table[["x1", "x0"]]):
        assert np.array_equal(embedded.utilities(same), U)
    many = embedded.utilities(np.vstack([train.X, np.random.default_rng(0).normal(size=(4100, 2))]))
    assert many.shape == (4160, 2), "more rows than are computed at once"
    assert many[:60] == pytest.approx(U)


def test_words_are_encoded_as_in_training(laptops):
    train, test, model = laptops
    frame = train.encoding.decode(test.X)
    words = frame.select_dtypes(exclude="number").columns[0]
    few = np.flatnonzero(frame[words] == frame[words][0])[:4]
    table = frame.iloc[few].reset_index(drop=True).astype({words: str})
    asked = ChoiceData.from_sets(table, [range(len(few))])
    assert asked.X.shape[1] < train.X.shape[1], "some words do not occur"
    assert model.utilities(asked) == pytest.approx(model.utilities(test)[few])
    expected = model.predict(ChoiceData.from_sets(frame, [few], encoding=train.encoding))[0]
    assert few[model.predict(asked)[0]].tolist() == expected.tolist()
    with pytest.raises(ChoiceGPError, match="features have no names"):
        model.predict(ChoiceData.from_sets([[1.0], [2.0]], [[0, 1]]))


def test_features_are_standardised_by_the_training_objects(easy):
    train, test = easy
    scaled = ChoiceData.from_sets(train.X * [1e6, 1e-6] + [0, 7], train.shown, train.chosen)
    asked = ChoiceData.from_sets(test.X * [1e6, 1e-6] + [0, 7], test.shown)
    model, other = small().fit(train), small().fit(scaled)
    assert model.centre_ == pytest.approx(train.X[np.unique(train.flat_shown)].mean(axis=0))
    assert equal(other.predict(asked), model.predict(test))
    raw = small(standardize=False).fit(train)
    assert raw.centre_.tolist() == [0, 0]
    assert raw.scale_.tolist() == [1, 1]
    constant = ChoiceData.from_sets(np.column_stack([train.X, np.full(60, 8.0)]), train.shown, train.chosen)
    assert small(max_epochs=2).fit(constant).scale_[2] == 1.0


def test_weights_of_the_terms_matter(easy):
    train, _ = easy
    tight = small(weights=(0, 0, 0, 1)).fit(train).utilities(train)
    assert np.abs(tight).max() < 0.2
    faithful = small(weights=(0, 0, 1, 0), max_epochs=150).fit(train)
    pairs = np.array(datasets.all_pairs(60))
    Z = (train.X - faithful.centre_) / faithful.scale_
    before, after = (np.linalg.norm(V[pairs[:, 0]] - V[pairs[:, 1]], axis=1) for V in (Z, faithful.utilities(train)))
    assert np.corrcoef(before, after)[0, 1] > 0.95
    assert np.abs(before - after).mean() < 0.3
    same = small(weights=np.array([2, 2, 1, 1]), max_epochs=3).fit(train).utilities(train)
    assert np.array_equal(same, small(weights=(4, 4, 2, 2), max_epochs=3).fit(train).utilities(train))


# How it goes


def test_the_fit_says_how_it_went(easy, embedded):
    result = embedded.fit_result_
    assert result.status in ("converged", "stopped")
    assert result.n_epochs == len(result.losses) == len(result.validation_losses) <= 60
    assert result.best_epoch == 1 + np.argmin(result.validation_losses)
    assert result.losses[-1] < result.losses[0]
    assert result.seconds > 0
    assert embedded.n_utilities_ == 2
    short = small(max_epochs=2).fit(easy[0]).fit_result_
    assert (short.status, short.n_epochs) == ("stopped", 2)
    quick = small(max_seconds=0).fit(easy[0]).fit_result_
    assert (quick.status, quick.n_epochs) == ("stopped", 1)
    patient = small(patience=1, max_epochs=1000).fit(easy[0]).fit_result_
    assert patient.status == "converged"


def test_the_same_seed_gives_the_same_bits(easy, embedded):
    again = small().fit(easy[0])
    assert np.array_equal(again.utilities(easy[1]), embedded.utilities(easy[1]))
    assert np.array_equal(again.fit_result_.losses, embedded.fit_result_.losses)
    other = small(random_state=1).fit(easy[0])
    assert not np.array_equal(other.fit_result_.losses, embedded.fit_result_.losses)


def test_the_processor_can_be_named(easy, embedded):
    assert np.array_equal(small(device="cpu").fit(easy[0]).utilities(easy[1]), embedded.utilities(easy[1]))


def test_a_progress_bar_is_shown_when_asked_for(easy, capsys):
    small(max_epochs=2).fit(easy[0])
    assert capsys.readouterr().err == ""
    small(max_epochs=2, progress=True).fit(easy[0])
    assert "epoch 2 of at most 2" in capsys.readouterr().err


@pytest.mark.parametrize("n_sets", [1, 2])
def test_few_sets(easy, n_sets):
    few = easy[0].take(range(n_sets))
    assert len(small(max_epochs=3).fit(few).predict(easy[1])) == 60


def test_sets_in_which_everything_is_chosen(easy):
    train, _ = easy
    kind = ChoiceData.from_sets(train.X, train.shown, train.shown)
    # Everything is kept where one utility rises as the other falls.
    assert small(max_epochs=150).fit(kind).score(kind) > 0.8


# scikit-learn's manners


def test_init_stores_anything_and_does_nothing_else():
    names = [name for name in inspect.signature(ParetoEmbedding.__init__).parameters if name != "self"]
    anything = {name: object() for name in names}
    assert vars(ParetoEmbedding(**anything)) == anything


def test_clone_and_parameters(embedded):
    copy = clone(embedded).set_params(n_utilities=3)
    assert copy.get_params() == embedded.get_params() | {"n_utilities": 3}
    check_is_fitted(embedded)
    with pytest.raises(NotFittedError):
        check_is_fitted(copy)
    with pytest.raises(ChoiceGPError, match="ParetoEmbedding has no parameter 'kernel': it has n_utilities, weights"):
        copy.set_params(kernel="rbf")
    assert repr(ParetoEmbedding(3, n_layers=1)) == "ParetoEmbedding(n_utilities=3, n_layers=1)"


def test_cross_validation(easy):
    scores = cross_val_score(small(), easy[0], cv=KFold(2), error_score="raise")
    assert scores.shape == (2,)
    assert scores.min() > 0.7


def test_what_is_learned_ends_in_an_underscore(easy):
    model = small(max_epochs=1)
    assert model.fit(easy[0], y=[1]) is model
    learned = set(vars(model)) - set(model.get_params())
    assert {"n_utilities_", "fit_result_", "encoding_", "embedding_"} <= learned
    assert all(name.endswith("_") for name in learned)
    assert not hasattr(model, "predict_proba"), "there are no probabilities"


# Files


def test_a_saved_model_predicts_the_same_bits(laptops, tmp_path):
    _, test, model = laptops
    model.save(tmp_path / "model.cgp")
    loaded = ParetoEmbedding.load(tmp_path / "model.cgp")
    assert np.array_equal(loaded.utilities(test), model.utilities(test))
    assert equal(loaded.predict(test), model.predict(test))
    assert loaded.get_params() == model.get_params()
    assert set(vars(loaded)) == set(vars(model))
    assert (loaded.n_utilities_, loaded.encoding_) == (model.n_utilities_, model.encoding_)
    traces = {"losses": None, "validation_losses": None}
    assert loaded.fit_result_._replace(**traces) == model.fit_result_._replace(**traces)
    assert np.array_equal(loaded.fit_result_.validation_losses, model.fit_result_.validation_losses)
    copy = pickle.loads(pickle.dumps(model))
    assert np.array_equal(copy.utilities(test), model.utilities(test))


def test_a_saved_model_predicts_the_same_bits_elsewhere(easy, embedded, tmp_path):
    embedded.save(tmp_path / "model.cgp")
    np.save(tmp_path / "X.npy", easy[1].X)
    program = (
        "import sys, numpy as np\n"
        "from choicegp import ParetoEmbedding\n"
        "model = ParetoEmbedding.load(sys.argv[1] + '/model.cgp')\n"
        "np.save(sys.argv[1] + '/U.npy', model.utilities(np.load(sys.argv[1] + '/X.npy')))\n"
    )
    # These tests compile with few optimisations, which can change the last bit.
    environment = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, timeout=100, env=environment)
    assert np.array_equal(np.load(tmp_path / "U.npy"), embedded.utilities(easy[1]))


def test_weights_given_as_an_array_are_saved(easy, tmp_path):
    model = small(weights=np.array([1.0, 1.0, 0.0, 0.0]), max_epochs=1).fit(easy[0])
    model.save(tmp_path / "model.cgp")
    assert ParetoEmbedding.load(tmp_path / "model.cgp").weights == (1.0, 1.0, 0.0, 0.0)


def test_other_files_are_refused(embedded, tmp_path):
    path = tmp_path / "model.cgp"
    with pytest.raises(ChoiceGPError, match="no such model file"):
        ParetoEmbedding.load(path)
    embedded.save(path)
    with pytest.raises(ChoiceGPError, match=r"another kind \(choicegp-embedding, not choicegp-model\)"):
        ChoiceGP.load(path)
    with zipfile.ZipFile(io.BytesIO(path.read_bytes())) as archive, zipfile.ZipFile(path, "w") as less:
        for name in archive.namelist():
            if name != "matrix_1.npy":
                less.writestr(name, archive.read(name))
    with pytest.raises(ChoiceGPError, match=r"model\.cgp: "):
        ParetoEmbedding.load(path)


# What is refused

WRONG = [
    ({"n_utilities": 0}, "n_utilities must be a whole number of at least 1; got 0"),
    ({"n_utilities": "auto"}, "n_utilities must be a whole number"),
    ({"weights": (1, 1, 1)}, "weights must be four numbers"),
    ({"weights": (1, -1, 1, 1)}, "weights must be finite and not below 0"),
    ({"weights": (0, 0, 0, 0)}, "weights must not all be 0"),
    ({"n_layers": -1}, "n_layers must be a whole number of at least 0; got -1"),
    ({"n_units": 0}, "n_units must be a whole number of at least 1; got 0"),
    ({"n_units": 2.0}, "n_units must be a whole number"),
    ({"learning_rate": 0}, "learning_rate must be above 0"),
    ({"learning_rate": "fast"}, "learning_rate must be a number between 0 and 1; got 'fast'"),
    ({"learning_rate": float("nan")}, "learning_rate must be a number"),
    ({"batch_size": 0}, "batch_size must be a whole number of at least 1; got 0"),
    ({"max_epochs": 0}, "max_epochs must be a whole number of at least 1; got 0"),
    ({"patience": 0}, "patience must be a whole number of at least 1; got 0"),
    ({"validation_size": 1.0}, "validation_size must be below 1"),
    ({"validation_size": -0.1}, "validation_size must be a number between 0 and 1; got -0.1"),
    ({"standardize": 1}, "standardize must be True or False; got 1"),
    ({"max_seconds": -1}, "max_seconds must be a number between 0 and inf; got -1"),
    ({"device": "tpu"}, "device must be 'auto', 'cpu' or 'gpu'; got 'tpu'"),
    ({"progress": "x"}, "progress must be True, False or 'auto'; got 'x'"),
    ({"random_state": None}, "random_state must be a whole number of at least 0; got None"),
]


@pytest.mark.parametrize(("options", "says"), WRONG, ids=lambda value: str(value)[:50])
def test_wrong_options_are_named(options, says, easy):
    model = small(**options)
    with pytest.raises(ChoiceGPError) as raised:
        model.fit(easy[0])
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)
    assert not model.__sklearn_is_fitted__()


def test_wrong_data_are_named(easy, embedded):
    with pytest.raises(ChoiceGPError, match="fit takes a ChoiceData; got ndarray"):
        small().fit(easy[0].X)
    with pytest.raises(ChoiceGPError, match="fit needs data with choices: these have none"):
        small().fit(ChoiceData.from_sets(easy[0].X, easy[0].shown))
    with pytest.raises(ChoiceGPError, match="a ChoiceData is needed; got ndarray"):
        embedded.predict(easy[0].X)
    for method, thing in (("predict", easy[0]), ("score", easy[0]), ("utilities", easy[0].X), ("save", "never.cgp")):
        with pytest.raises(ChoiceGPError, match=r"this ParetoEmbedding is not fitted yet: call fit\(data\) first"):
            getattr(small(), method)(thing)


def test_numbers_out_of_reach_are_named(easy, embedded):
    train, _ = easy
    tiny = ChoiceData.from_sets(train.X * 1e-9, train.shown, train.chosen)
    with pytest.raises(ChoiceGPError, match="the utilities of row 1 are no finite numbers"):
        small(max_epochs=1).fit(tiny).utilities([[0.0, 0.0], [1e308, 1e308]])
    assert np.isfinite(embedded.utilities([[1e200, -1e200]])).all()
    huge = ChoiceData.from_sets(train.X * 1e250, train.shown, train.chosen)
    with pytest.raises(ChoiceGPError, match=r"the fit failed: the loss was no finite number in epoch 1\. Try stand"):
        small(standardize=False).fit(huge)
    assert small(max_epochs=2).fit(huge).fit_result_.status == "stopped"

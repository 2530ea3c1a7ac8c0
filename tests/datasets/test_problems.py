import subprocess
import sys
import time

import numpy as np
import pytest

from choicegp import ChoiceGPError, datasets
from choicegp.datasets.problems import PROBLEMS


def test_vehicle_at_a_point_worked_by_hand():
    expected = [
        1640.2823 + 2.3573285 + 2 * 2.3220035 + 3 * 4.5688768 + 2 * 7.7213633 + 4.4559504,
        # 6.5856 + 1.15 - 2.0854 + 2.9214 + 1.6728 - 0.739 + 0.0861 + 1.4512 - 0.1106 - 3.0933 + 0.7056
        8.5444,
        # -0.0551 + 0.0181 + 0.2048 + 0.1263 - 0.0146 + 0.144 - 0.0472 - 0.1224 - 0.024 - 0.0964 + 0.0436
        0.1771,
    ]
    np.testing.assert_allclose(datasets.vehicle_outputs([[1, 2, 3, 2, 1]]), [expected], rtol=0, atol=1e-9)


def test_vehicle_is_a_latin_hypercube_with_all_outputs_minimised():
    table = datasets.vehicle(40, random_state=2)
    X = table.X.to_numpy()
    assert table.name == "vehicle"
    assert len(table) == 40
    assert list(table.X.columns) == ["x1", "x2", "x3", "x4", "x5"]
    for column in X.T:
        # One object in each of 40 equal slices of [1, 3].
        assert sorted(np.floor((column - 1) * 20).astype(int)) == list(range(40))
    np.testing.assert_array_equal(table.U, -datasets.vehicle_outputs(X))
    np.testing.assert_array_equal(X, datasets.vehicle(40, random_state=2).X)
    assert not np.array_equal(X, datasets.vehicle(40, random_state=3).X)


def test_vehicle_refuses():
    with pytest.raises(ChoiceGPError, match="n_objects"):
        datasets.vehicle(0)
    with pytest.raises(ChoiceGPError, match=r"\(t, 5\), not \(2, 4\)"):
        datasets.vehicle_outputs(np.ones((2, 4)))


def test_zdt1_by_its_formula():
    table = datasets.benchmark_problem("ZDT1", 50)
    x = table.X.to_numpy()
    g = 1 + 9 * x[:, 1:].mean(axis=1)
    expected = np.column_stack([x[:, 0], g * (1 - np.sqrt(x[:, 0] / g))])
    assert table.name == "zdt1"
    assert table.output_names == ("f1", "f2")
    np.testing.assert_allclose(table.U, -expected, rtol=1e-12)


def test_dtlz2_by_its_formula():
    table = datasets.benchmark_problem("dtlz2", 50, n_variables=4, n_objectives=3)
    x = table.X.to_numpy()
    g = ((x[:, 2:] - 0.5) ** 2).sum(axis=1)
    a, b = x[:, 0] * np.pi / 2, x[:, 1] * np.pi / 2
    sphere = np.column_stack([np.cos(a) * np.cos(b), np.cos(a) * np.sin(b), np.sin(a)])
    np.testing.assert_allclose(table.U, -(1 + g)[:, None] * sphere, rtol=1e-9)


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_problem_has_the_shape_of_the_paper(name, capsys):
    table = datasets.benchmark_problem(name, 300)
    assert table.X.shape == (300, 6)
    assert table.U.shape == (300, 5 if name.startswith("dtlz") else 2)
    assert np.isfinite(table.U).all()
    low, high = table.X.min().to_numpy(), table.X.max().to_numpy()
    lowest, highest = (np.array([0] + [-5] * 5), np.array([1] + [5] * 5)) if name == "zdt4" else (0, 1)
    width = np.asarray(highest) - np.asarray(lowest)
    assert np.all((low >= lowest) & (low < lowest + 0.05 * width))
    assert np.all((high <= highest) & (high > highest - 0.05 * width))
    assert capsys.readouterr() == ("", "")


def test_more_objectives_bring_enough_variables():
    assert datasets.benchmark_problem("dtlz7", 5, n_objectives=8).X.shape == (5, 8)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("zdt5",), "no benchmark problem is called 'zdt5'; there are dtlz1, .*zdt6"),
        ((7,), "no benchmark problem is called 7"),
        (("zdt1", 0), "n_objects"),
        (("zdt1", 5, 1), "n_variables of zdt1 must be a whole number of at least 2"),
        (("dtlz1", 5, 4), "n_variables of dtlz1 must be a whole number of at least 5"),
        (("zdt1", 5, 6, 3), "zdt1 has 2 objectives, not 3"),
        (("dtlz1", 5, 6, 1), "n_objectives must be a whole number of at least 2"),
    ],
)
def test_benchmark_problem_refuses(arguments, message):
    with pytest.raises(ChoiceGPError, match=message):
        datasets.benchmark_problem(*arguments)


@pytest.mark.parametrize("name", ["n_sets", "set_size"])
def test_benchmark_choices_refuse_zero(name):
    with pytest.raises(ChoiceGPError, match=name):
        datasets.benchmark_choices("zdt1", **{name: 0})


def test_no_object_is_in_two_sets():
    data, U, _ = datasets.benchmark_choices("dtlz1", n_sets=30, set_size=4)
    assert U.shape == (120, 5)
    assert sorted(np.concatenate(list(data.shown)).tolist()) == list(range(120))


def test_the_full_size_of_the_paper_takes_seconds():
    before = time.perf_counter()
    data, U, _ = datasets.benchmark_choices("zdt1")
    assert time.perf_counter() - before < 10
    assert len(data) == 40960
    assert data.X.shape == (409600, 6)
    sizes = np.array([len(chosen) for chosen in data.chosen])
    assert sizes.min() >= 1
    # Brute force on a sample of the sets.
    for k in range(0, 40960, 1000):
        rows = np.asarray(data.shown[k])
        kept = [i for i in rows if not any(np.all(U[j] >= U[i]) and np.any(U[j] > U[i]) for j in rows)]
        assert sorted(data.chosen[k]) == kept


def test_missing_pymoo_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymoo", None)
    monkeypatch.setitem(sys.modules, "pymoo.problems", None)
    with pytest.raises(ImportError, match=r'pip install "choicegp\[problems\]"'):
        datasets.benchmark_problem("zdt1", 5)


def test_pymoo_is_imported_only_when_needed_and_stays_silent():
    program = (
        "import sys\n"
        "from choicegp import datasets\n"
        "assert not {'pymoo', 'scipy', 'jax', 'matplotlib'} & set(sys.modules)\n"
        "datasets.benchmark_problem('dtlz1', 5)\n"
        "from pymoo.config import Config\n"
        "assert Config.warnings['not_compiled']\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

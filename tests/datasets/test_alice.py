import numpy as np
import pandas as pd
import pytest

from choicegp import ChoiceGPError, datasets


def test_catalogue_is_readable_and_believable():
    catalogue = datasets.laptops(1000)
    assert catalogue.index.is_unique
    assert catalogue.index.name == "model"
    assert all(name.split()[1] in {"13", "14", "15", "16", "17"} for name in catalogue.index)
    assert catalogue["memory_gb"].isin([8, 16, 32, 64]).all()
    assert catalogue["screen_in"].isin([13.3, 14.0, 15.6, 16.0, 17.3]).all()
    assert set(catalogue["keyboard"]) == {"us", "uk", "de"}
    for column, low, high in [
        ("cpu_score", 2000, 60000),
        ("weight_kg", 0.8, 4),
        ("battery_h", 4, 20),
        ("price_eur", 199, 6000),
    ]:
        assert catalogue[column].between(low, high).all(), column
    assert not catalogue.isna().to_numpy().any()


def test_features_go_together_as_they_do_in_shops():
    catalogue = datasets.laptops(1000).drop(columns="keyboard")
    correlation = catalogue.corr(method="spearman")
    assert correlation.loc["cpu_score", "price_eur"] > 0.6
    assert correlation.loc["cpu_score", "memory_gb"] > 0.5
    assert correlation.loc["cpu_score", "weight_kg"] > 0.1
    assert correlation.loc["cpu_score", "battery_h"] < -0.2
    assert correlation.loc["screen_in", "weight_kg"] > 0.7


def test_catalogue_is_repeatable():
    pd.testing.assert_frame_equal(datasets.laptops(30), datasets.laptops(30))
    assert not datasets.laptops(30).equals(datasets.laptops(30, random_state=1))
    with pytest.raises(ChoiceGPError, match="n_objects"):
        datasets.laptops(1)


def one_laptop(**features):
    usual = {
        "cpu_score": 10000,
        "memory_gb": 16,
        "weight_kg": 1.0,
        "battery_h": 6.0,
        "screen_in": 14.0,
        "price_eur": 1000,
        "keyboard": "uk",
    }
    return datasets.alice(pd.DataFrame([usual | features]))[0]


def test_alice_by_hand():
    np.testing.assert_allclose(one_laptop(), [0, -1.2 + 3 * (1 - np.exp(-1))], rtol=1e-12)
    # One doubling of the processor and one of the memory; price twice the budget's half.
    power, comfort = one_laptop(cpu_score=20000, memory_gb=32, price_eur=2000, screen_in=16.0, keyboard="us")
    assert power == pytest.approx(1 + 0.5 - 0.8 - 0.5)
    assert comfort == pytest.approx(one_laptop()[1] - 0.8 - 0.5)


def test_alice_has_her_limits():
    assert one_laptop(memory_gb=64)[0] == one_laptop(memory_gb=32)[0] > one_laptop(memory_gb=16)[0]
    screens = {inches: one_laptop(screen_in=inches)[1] for inches in (13.3, 14.0, 15.6, 17.3)}
    assert max(screens, key=screens.get) == 14.0
    first_hours = one_laptop(battery_h=8)[1] - one_laptop(battery_h=6)[1]
    last_hours = one_laptop(battery_h=16)[1] - one_laptop(battery_h=14)[1]
    assert first_hours > 2 * last_hours > 0


def test_alice_names_what_is_missing():
    with pytest.raises(ChoiceGPError, match="weight_kg, keyboard"):
        datasets.alice(datasets.laptops(3).drop(columns=["keyboard", "weight_kg"]))
    with pytest.raises(ChoiceGPError, match="DataFrame"):
        datasets.alice(np.zeros((3, 7)))


def test_alice_choices_are_about_the_catalogue():
    data, U, name = datasets.alice_choices(n_objects=40, n_sets=30, set_size=(2, 5), random_state=5)
    catalogue = datasets.laptops(40, random_state=5)
    assert name == "alice"
    assert list(data.object_ids) == list(catalogue.index)
    np.testing.assert_array_equal(U, datasets.alice(catalogue))
    assert {len(shown) for shown in data.shown} == {2, 3, 4, 5}
    # Neither goal decides alone: she often keeps more than one and often rejects some.
    sizes = [len(chosen) for chosen in datasets.alice_choices(n_sets=200).data.chosen]
    assert {1, 2, 3} <= set(sizes)


def test_errors_change_answers_and_not_questions():
    true = datasets.alice_choices(n_sets=2000, set_size=3)
    noisy = datasets.alice_choices(n_sets=2000, set_size=3, error=0.5)
    pairs = list(zip(true.data.shown, noisy.data.shown, strict=True))
    assert all(np.array_equal(a, b) for a, b in pairs)
    changed = np.mean([set(a) != set(b) for a, b in zip(true.data.chosen, noisy.data.chosen, strict=True)])
    # Half the sets are answered at random; 1 of 7 such answers is right by chance. Four standard errors.
    assert changed == pytest.approx(0.5 * 6 / 7, abs=4 * np.sqrt(0.43 * 0.57 / 2000))


def test_a_careless_alice_ticks_every_subset_equally_often():
    data = datasets.alice_choices(n_sets=3500, set_size=3, error=1.0).data
    counts: dict[tuple[bool, ...], int] = {}
    for shown, chosen in zip(data.shown, data.chosen, strict=True):
        subset = tuple(np.isin(shown, chosen).tolist())
        counts[subset] = counts.get(subset, 0) + 1
    assert len(counts) == 7
    # Expected 500 each, standard deviation 21.
    assert all(abs(count - 500) < 5 * 21 for count in counts.values())


@pytest.mark.parametrize("error", [-0.1, 1.1, np.nan, "0.1", True])
def test_error_must_be_a_probability(error):
    with pytest.raises(ChoiceGPError, match="probability"):
        datasets.alice_choices(error=error)

import json

import numpy as np
import pandas as pd
import pytest

from choicegp import ChoiceDataError, ChoiceGPError, datasets

TABLES = {
    "am": (
        datasets.load_am,
        (50, 6),
        ["layer_height", "nozzle_temperature", "bed_temperature", "print_speed", "material", "fan_speed"],
        {"roughness": -1, "tension_strength": 1, "elongation": -1},
    ),
    "edm": (
        datasets.load_edm,
        (30, 4),
        ["voltage_v", "current_a", "pulse_on_us", "pulse_off_us"],
        {"mrr_g_min": 1, "ewr_g_min": -1, "roughness_um": -1},
    ),
    "jura": (
        datasets.load_jura,
        (359, 6),
        ["Xloc", "Yloc", "Cr", "Ni", "Pb", "Zn"],
        {"Cd": -1, "Co": -1, "Cu": -1},
    ),
    "slump": (
        datasets.load_slump,
        (103, 7),
        ["cement", "slag", "fly_ash", "water", "sp", "coarse_aggr", "fine_aggr"],
        {"slump_cm": 1, "flow_cm": 1, "compressive_strength_mpa": 1},
    ),
}
FIRST_OUTPUTS = {
    "am": [-25, 18, -1.2],
    "edm": [0.23, -0.003, -11.558],
    "jura": [-1.74, -9.32, -25.72],
    "slump": [23.0, 62.0, 34.99],
}


def small_table(**changes):
    columns = {"a": [1.0, 2.0, 3.0], "colour": ["red", "red", "blue"]}
    arguments = {
        "name": "small",
        "X": pd.DataFrame(columns, index=["p", "q", "r"]),
        "U": np.array([[3.0, 1.0], [3.0, 0.0], [1.0, 2.0]]),
        "output_names": ("range", "speed"),
    }
    return datasets.ObjectTable(**arguments | changes)


def test_object_table_makes_choices():
    table = small_table()
    assert len(table) == 3
    weak = table.choices([[0, 1, 2], [1, 2], [0, 1]])
    assert [sorted(chosen) for chosen in weak.chosen] == [[0, 2], [1, 2], [0]]
    assert list(weak.object_ids) == ["p", "q", "r"]
    strict = table.choices([[0, 1, 2], [0, 1]], ties="strict")
    assert [sorted(chosen) for chosen in strict.chosen] == [[0, 1, 2], [0, 1]]


def test_object_table_is_frozen_and_does_not_share_its_outputs():
    U = np.array([[3.0, 1.0], [3.0, 0.0], [1.0, 2.0]])
    table = small_table(U=U)
    U[0, 0] = 99
    assert table.U[0, 0] == 3
    with pytest.raises(ValueError, match="read-only"):
        table.U[0, 0] = 1
    with pytest.raises(AttributeError):
        table.name = "other"


def test_object_table_takes_rows_and_keeps_ids():
    part = small_table().take([2, 0])
    assert list(part.X.index) == ["r", "p"]
    np.testing.assert_array_equal(part.U, [[1, 2], [3, 1]])
    for rows, message in [
        ([3], "no row 3"),
        ([-1], "no row -1"),
        ([0.5], "row numbers"),
        ([[0]], "row numbers"),
    ]:
        with pytest.raises(ChoiceGPError, match=message):
            small_table().take(rows)


def test_object_table_refuses_what_does_not_fit():
    with pytest.raises(ChoiceGPError, match="small: U has 2 columns, but 1 outputs are named"):
        small_table(output_names=("range",))
    with pytest.raises(ChoiceGPError, match="2 rows but there are 3 objects"):
        small_table(U=np.zeros((2, 2)))
    with pytest.raises(ChoiceGPError, match="small: X must be a DataFrame"):
        small_table(X=np.zeros((3, 1)))


@pytest.mark.parametrize("name", TABLES)
def test_tables_have_the_documented_columns_and_signs(name, data_folder):
    load, shape, features, signs = TABLES[name]
    table = load(data_folder)
    assert table.name == name
    assert table.X.shape == shape
    assert list(table.X.columns) == features
    assert table.output_names == tuple(signs)
    np.testing.assert_allclose(table.U[0], FIRST_OUTPUTS[name])
    raw = pd.read_csv(data_folder / f"{name}.csv")
    np.testing.assert_array_equal(table.U, raw[list(signs)].to_numpy() * list(signs.values()))
    pd.testing.assert_frame_equal(table.X, raw[features])


def test_folder_comes_from_the_environment(data_folder, monkeypatch):
    monkeypatch.setenv("CHOICEGP_DATA", str(data_folder))
    assert len(datasets.load_am()) == 50


@pytest.mark.parametrize(("name", "share"), [("am", 0.030), ("slump", 0.039)])
def test_share_of_pairs_whose_answer_hangs_on_ties(name, share, data_folder):
    table = TABLES[name][0](data_folder)
    pairs = datasets.all_pairs(len(table))
    weak, strict = (table.choices(pairs, ties=ties).chosen for ties in ("weak", "strict"))
    differ = np.mean([len(a) != len(b) for a, b in zip(weak, strict, strict=True)])
    assert differ == pytest.approx(share, abs=0.0005)


def test_edm_repeats_its_centre_point(data_folder):
    assert datasets.load_edm(data_folder).X.duplicated().sum() == 5


def test_ellipses_name_their_two_bad_records(data_folder):
    with pytest.raises(ChoiceDataError, match=r"ellipses_choices\.json") as caught:
        datasets.load_ellipses(data_folder)
    assert [defect.set for defect in caught.value.defects] == [79, 82]
    assert [defect.object for defect in caught.value.defects] == [29, 20]
    assert "79" in str(caught.value)
    assert "82" in str(caught.value)


def test_ellipses_skip_bad_records_on_request(data_folder):
    with pytest.warns(UserWarning, match="2 of 160 sets were left out"):
        data = datasets.load_ellipses(data_folder, on_error="skip")
    raw = json.loads((data_folder / "ellipses_choices.json").read_text())
    good = [k for k in range(160) if k not in (79, 82)]
    ids = np.asarray(data.object_ids)
    assert len(data) == 158
    assert list(data.set_ids) == good
    assert [defect.set for defect in data.skipped] == [79, 82]
    assert data.X.shape == (50, 5)
    assert [ids[shown].tolist() for shown in data.shown] == [raw["shown"][k] for k in good]
    assert [set(ids[chosen].tolist()) for chosen in data.chosen] == [set(raw["chosen"][k]) for k in good]


def test_ellipses_with_an_unknown_policy(data_folder):
    with pytest.raises(ChoiceGPError, match="'raise' or 'skip', not 'ignore'"):
        datasets.load_ellipses(data_folder, on_error="ignore")


def test_ellipses_with_a_broken_object_table_cannot_be_skipped(tmp_path):
    table = "object_id,a,b,rotation,ecc_sq,perimeter\n1,1,1,1,1,1\n1,2,2,2,2,2\n"
    (tmp_path / "ellipses_objects.csv").write_text(table)
    (tmp_path / "ellipses_choices.json").write_text('{"shown": [[1]], "chosen": [[1]]}')
    with pytest.raises(ChoiceGPError):
        datasets.load_ellipses(tmp_path, on_error="skip")


def test_sincos_file_agrees_with_the_formula(data_folder):
    train, known, new = datasets.load_sincos(data_folder)
    assert (len(train), len(known), len(new)) == (150, 1000, 1000)
    np.testing.assert_array_equal(train.X, known.X)
    assert not set(train.object_ids) & set(new.object_ids)
    for part in (train, known, new):
        assert part.X.shape == (200, 1)
        U = datasets.sincos_utilities(part.X)
        expected = type(part).from_utilities(part.X, U, part.shown)
        assert [set(a) for a in part.chosen] == [set(b) for b in expected.chosen]


LOADERS = [load for load, *_ in TABLES.values()] + [datasets.load_ellipses, datasets.load_sincos]


@pytest.mark.parametrize("load", LOADERS)
def test_loaders_without_a_folder_say_what_to_do(load, monkeypatch, tmp_path):
    monkeypatch.delenv("CHOICEGP_DATA", raising=False)
    with pytest.raises(ChoiceGPError, match=r"folder=.*CHOICEGP_DATA"):
        load()
    with pytest.raises(ChoiceGPError, match=r"is not in .*: check folder="):
        load(tmp_path)
    monkeypatch.setenv("CHOICEGP_DATA", str(tmp_path))
    with pytest.raises(ChoiceGPError, match=r"is not in .*: check the environment variable CHOICEGP_DATA"):
        load()


def test_a_bad_table_is_refused_with_its_place(tmp_path):
    path = tmp_path / "jura.csv"
    path.write_text("Xloc,Yloc,Cr,Ni,Pb,Zn,Cd,Co\n1,2,3,4,5,6,7,8\n")
    with pytest.raises(ChoiceGPError, match=r"jura\.csv lacks the columns Cu; it has Xloc"):
        datasets.load_jura(tmp_path)
    path.write_text("Xloc,Yloc,Cr,Ni,Pb,Zn,Cd,Co,Cu\n1,2,3,4,5,6,7,8,9\n1,2,3,many,5,6,7,,9\n")
    with pytest.raises(ChoiceDataError, match=r"row 3: Ni is not a number: 'many'") as caught:
        datasets.load_jura(tmp_path)
    assert [(defect.row, defect.kind) for defect in caught.value.defects] == [(3, "not-a-number")] * 2
    path.write_text("")
    with pytest.raises(ChoiceGPError, match=r"jura\.csv is empty"):
        datasets.load_jura(tmp_path)


def test_an_empty_category_is_refused(tmp_path):
    header = "layer_height,nozzle_temperature,bed_temperature,print_speed,material,fan_speed"
    (tmp_path / "am.csv").write_text(f"{header},roughness,tension_strength,elongation\n1,2,3,4,,6,7,8,9\n")
    with pytest.raises(ChoiceDataError, match="row 2: material is empty"):
        datasets.load_am(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read as JSON"),
        ("[]", "lacks the lists X, shown"),
        ('{"X": [], "shown": [], "chosen": 3}', "lacks the lists chosen, test_shown"),
        (None, r"sincos\.json: X must hold one number per object"),
    ],
)
def test_a_bad_json_file_is_refused(content, message, tmp_path):
    keys = ["X", "shown", "chosen", "test_shown", "test_chosen", "X_new", "new_shown", "new_chosen"]
    broken = json.dumps({key: [[1.0, 2.0]] for key in keys})
    (tmp_path / "sincos.json").write_text(content if content is not None else broken)
    with pytest.raises(ChoiceGPError, match=message):
        datasets.load_sincos(tmp_path)

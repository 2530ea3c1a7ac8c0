"""The tour with made-up data."""

import re

import pytest
from PIL import Image

import choicegp
import choicegp.reading.text
from choicegp.apps.cli import main
from choicegp.apps.demo import first_page


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """Run the demo once: its words and its folder."""
    import contextlib
    import io

    folder = tmp_path_factory.mktemp("tour") / "demo"
    words = io.StringIO()
    with contextlib.redirect_stdout(words), pytest.raises(SystemExit) as ended:
        main(["demo", "--output", str(folder)])
    assert ended.value.code == 0
    return words.getvalue(), folder


def test_it_shows_data_and_where_to_go(demo, run):
    words, _ = demo
    assert "Alice" in words
    assert "150 sets of 4 objects." in words
    for command in set(re.findall(r"^  choicegp (\w+)", words, flags=re.MULTILINE)):
        assert run(command, "--help")[0] == 0


def test_it_says_how_well_it_predicts(demo):
    words, _ = demo
    seen = re.search(r"laptops it has seen: (\d+)% of 300 sets predicted exactly .a random answer: (\d+)%", words)
    new = re.search(r"laptops it has never seen: (\d+)% of 300 sets predicted exactly", words)
    assert int(seen[1]) > 75
    assert int(new[1]) > 70
    assert int(seen[2]) == 7


def test_it_says_what_drives_alice(demo):
    words, _ = demo
    lines = re.findall(r"^Utility \d (.*)$", words, flags=re.MULTILINE)
    assert len(lines) == 2
    comfort = next(line for line in lines if "weight_kg" in line)
    work = next(line for line in lines if "cpu_score" in line)
    assert "falls with weight_kg" in comfort
    assert "keyboard = uk" in comfort
    assert "rises with cpu_score" in work
    assert "falls with price_eur" in work


def test_it_leaves_answers_model_and_plot(demo, run):
    _, folder = demo
    assert {path.name for path in folder.iterdir()} == {"alice.csv", "model.cgp", "effects.png"}
    with Image.open(folder / "effects.png") as picture:
        assert min(picture.size) > 500
    assert "150 sets of 4 objects." in run("describe", str(folder / "alice.csv"))[1]
    model = choicegp.ChoiceGP.load(folder / "model.cgp")
    data = choicegp.datasets.alice_choices(n_sets=150, set_size=4, random_state=0).data
    assert model.score(data) > 0.9


def test_the_model_predicts_and_is_drawn(demo, run, tmp_path, monkeypatch):
    _, folder = demo
    monkeypatch.chdir(tmp_path)
    code, out, _ = run("predict", str(folder / "model.cgp"), str(folder / "alice.csv"), "-o", "out.csv")
    assert code == 0
    assert "150 sets" in out
    table = choicegp.reading.text.read_rows("out.csv").frame
    assert list(table.columns) == ["set", "object", "probability", "chosen"]
    assert len(table) == 600
    assert table["probability"].between(0, 1).all()
    code, out, _ = run("plot", str(folder / "model.cgp"), "-o", "pictures")
    assert code == 0
    assert {path.name for path in (tmp_path / "pictures").iterdir()} == {
        "effects.png",
        "objects.png",
        "relevance.png",
        "elbo.png",
    }
    assert "there is no plot 'pie'" in run("plot", str(folder / "model.cgp"), "--kind", "pie")[2]


def test_the_first_page_has_her_ticks():
    catalogue = choicegp.datasets.laptops(random_state=3)
    data = choicegp.datasets.alice_choices(random_state=3).data
    page = first_page(data, catalogue)
    for row, label in zip(data.shown[0], page.index, strict=True):
        assert label == f"{'x' if row in data.chosen[0] else ' '} {data.object_ids[row]}"


def test_a_table_is_fitted(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    choicegp.datasets.sincos(n_objects=20, n_sets=15).data.write("choices.csv")
    code, out, err = run("fit", "choices.csv", "-o", "model.cgp", "-d", "1", "--restarts", "1", "--lapse", "learn")
    assert (code, err) == (0, "")
    assert "Fitted 1 utility to 15 sets" in out
    assert re.search(r"ELBO -\d", out)
    assert {path.name for path in tmp_path.iterdir()} == {"choices.csv", "model.cgp"}
    code, out, _ = run("predict", "model.cgp", "choices.csv")
    assert code == 0
    assert len(out.splitlines()) == 46

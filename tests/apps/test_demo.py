"""The tour with made-up data."""

import re

import choicegp


def test_it_shows_data_and_where_to_go(run):
    code, out, err = run("demo")
    assert (code, err) == (0, "")
    assert "Alice" in out
    assert "100 sets of 4 objects." in out
    for command in re.findall(r"choicegp (\w+)", out):
        assert run(command, "--help")[0] == 0
    assert max(map(len, out.split("All her answers")[0].splitlines())) <= 90


def test_the_first_page_has_her_ticks(run):
    data = choicegp.datasets.alice_choices(random_state=3).data
    _, out, _ = run("demo", "--seed", "3")
    page = out.split("(x: ticked)")[1].split("All her answers")[0]
    for row in data.shown[0]:
        (line,) = [line for line in page.splitlines() if f" {data.object_ids[row]}  " in line]
        assert line.startswith("x ") == (row in data.chosen[0])


def test_the_seed_decides(run):
    first = run("demo", "--seed", "1")
    assert first == run("demo", "--seed", "1")
    assert first != run("demo", "--seed", "2")


def test_its_output_can_be_described(tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    code, out, _ = run("demo", "--output", "alice.csv")
    assert code == 0
    assert "Her answers are in alice.csv." in out
    assert [path.name for path in tmp_path.iterdir()] == ["alice.csv"]
    assert "100 sets of 4 objects." in run("describe", "alice.csv")[1]

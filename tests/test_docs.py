"""What the pages promise beside their code: names that exist, short examples, a recipe that agrees, a paper."""

import importlib
import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml

import choicegp
from choicegp import datasets, inferences, kernels, likelihoods, metrics

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def table_of(page: Path, header: str) -> list[list[str]]:
    """Return the cells of the table whose header line begins with `header`."""
    rows = page.read_text(encoding="utf-8").partition(header)[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def found(name: str) -> object:
    """Return what a dotted name below `choicegp.` means; an AttributeError where there is nothing."""
    parts, thing = name.split("."), choicegp
    for i, part in enumerate(parts):
        try:
            thing = getattr(thing, part)
        except AttributeError:
            thing = importlib.import_module(".".join(["choicegp", *parts[: i + 1]]))
    return thing


NOTATION = [
    name for row in table_of(DOCS / "derivations.md", "| symbol") for name in re.findall(r"`([\w.]+)`", row[-1])
]


@pytest.mark.parametrize("name", NOTATION)
def test_the_notation_names_code_that_exists(name):
    assert found(name) is not None


def test_the_notation_has_rows_and_a_wrong_name_is_noticed():
    assert len(NOTATION) > 20
    with pytest.raises(ImportError):
        found("model.likelihood.log_likelyhood")


@pytest.mark.parametrize("module", [datasets, kernels, metrics, likelihoods, inferences], ids=lambda one: one.__name__)
def test_public_modules_begin_with_an_example(module):
    assert ">>>" in module.__doc__


def test_examples_of_extensions_are_short():
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    sections = re.split(r"^## ", text, flags=re.MULTILINE)
    own = [section for section in sections if section.partition("\n")[0].endswith("of your own")]
    assert len(own) == 4
    for section in own:
        code = "".join(re.findall(r"^```python\n(.*?)^```$", section, re.DOTALL | re.MULTILINE))
        lines = [line for line in code.splitlines() if line.strip()]
        assert 5 < len(lines) < 60, section.partition("\n")[0]


def test_every_tutorial_has_a_fast_profile_and_a_title():
    scripts = sorted((DOCS / "tutorials").glob("*.py"))
    assert len(scripts) >= 8
    for script in scripts:
        text = script.read_text(encoding="utf-8")
        assert re.match(r'"""\n.+\n=+\n', text), script.name
        assert "|profile|" in text, script.name


GALLERY = (DOCS / "gallery.md").read_text(encoding="utf-8")
REAL = json.loads((DOCS / "gallery" / "real_questions.json").read_text(encoding="utf-8"))


def agree(cells: list[str], numbers: list[float]) -> bool:
    """Check that numbers of a page are those that were computed, as far as the page gives them."""
    ends = [0.5 * 10.0 ** -len(cell.partition(".")[2]) + 5e-4 for cell in cells]
    return all(abs(float(a) - b) <= end for a, b, end in zip(cells, numbers, ends, strict=True))


def test_the_gallery_says_what_was_computed_of_ellipses():
    found = REAL["ellipses"]
    model, kept = table_of(DOCS / "gallery.md", "| on 40 held-out sets")
    assert agree(model[1:], found["model"])
    assert agree(kept[1:], found["everything chosen"])
    sets = re.search(r"learned\s+from (\d+) sets,\s+and (\d+) sets are held out", GALLERY)
    assert [int(sets[1]), int(sets[2])] == found["sets"]
    assert re.search(r"R-hat ([\d.]+)", GALLERY)[1] in found["intervals"]


def test_the_gallery_says_what_was_computed_of_zurich():
    table = table_of(DOCS / "gallery.md", "| largest stated weight")
    assert [row[0] for row in table] == list(REAL["zurich"])
    for group, *cells in table:
        assert agree(cells, [REAL["zurich"][group][topic] for topic in ("Culture", "Nature", "Transportation")]), group


def test_a_number_that_was_not_computed_is_noticed():
    assert agree(["0.60", "0.8"], [0.6, 0.849])
    assert not agree(["0.61"], [0.6])


def requirements(lines: list[str]) -> dict[str, str]:
    """Return the version of each requirement, without extras; conda calls some packages by another name."""
    parts = [re.match(r"([\w-]+)(?:\[\w+\])?\s*(.*)", line).groups() for line in lines]
    return {name.lower().removesuffix("-base") if name == "matplotlib-base" else name: rest for name, rest in parts}


def test_the_conda_recipe_requires_what_the_package_requires():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    recipe = yaml.safe_load((ROOT / "recipe" / "recipe.yaml").read_text(encoding="utf-8"))
    run = requirements(recipe["requirements"]["run"])
    assert run.pop("python") == project["requires-python"]
    assert run.pop("xarray") == ""  # the extra of arviz-stats
    assert run == requirements(project["dependencies"])
    [entry] = recipe["build"]["python"]["entry_points"]
    assert entry.split(" = ") == ["choicegp", project["scripts"]["choicegp"]]


SECTIONS = ("Summary", "Statement of need", "State of the field", "Acknowledgements", "References")


def test_the_paper_has_the_sections_of_its_journal_and_cites_what_it_lists():
    text = (ROOT / "paper.md").read_text(encoding="utf-8")
    head, body = text.split("---\n", 2)[1:]
    assert {"title", "tags", "authors", "affiliations", "date", "bibliography"} <= set(yaml.safe_load(head))
    assert [f"# {name}" in body for name in SECTIONS] == [True] * len(SECTIONS)
    listed = set(re.findall(r"^@\w+\{(\w+),", (ROOT / "paper.bib").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"@(\w+)", body)) == listed
    assert 250 < len(body.split()) < 1750

"""Pictures inside a page: nothing from elsewhere, ids of their own, and greys that follow the page."""

import re

import pytest

from choicegp.plotting.style import new_axes
from choicegp.reporting.pictures import figure, greys


@pytest.fixture(scope="module")
def drawn():
    ax = new_axes(3.0, 2.0)
    ax.plot([0, 1], [1, 0], color="0.6")
    ax.scatter([0.5], [0.5], color="white", clip_on=True)
    ax.set_title("A title")
    return ax.figure


def test_nothing_is_loaded_from_elsewhere(drawn):
    made = figure(drawn, 1, "What <is> seen", "Figure 1. How to read it.")
    assert made.startswith("<figure><div")
    without_names = re.sub(r' xmlns(:\w+)?="[^"]*"', "", made)
    assert "http" not in without_names
    assert "<?xml" not in made
    assert "<metadata" not in made
    assert "<style" not in made
    assert 'role="img" aria-label="What &lt;is&gt; seen"' in made


def test_two_pictures_share_no_ids(drawn):
    made = [figure(drawn, number, "", "") for number in (1, 2)]
    first, second = (set(re.findall(r'\bid="([^"]+)"', one)) for one in made)
    assert first
    assert not first & second
    used = re.findall(r'(?:href="#|url\(#)([^")]+)', made[0])
    assert used
    assert set(used) <= first


def test_every_grey_is_the_pages_own(drawn):
    made = figure(drawn, 1, "", "")
    assert not re.search(r"#([0-9a-f]{2})\1\1\b", made)
    rules = greys(made)
    light, dark = rules.split("@media")
    for value in set(re.findall(r"var\(--grey-([0-9a-f]{2})\)", made)):
        assert f"--grey-{value}:#{value * 3}" in light
        assert f"--grey-{value}:" in dark
    assert "--grey-ff:#181818" in dark, "white becomes the dark paper of report.css"

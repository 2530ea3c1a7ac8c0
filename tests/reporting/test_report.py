"""The report: everything is in one file, names stay text, and what a model lacks is said in a sentence."""

import re
import shutil
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from choicegp import ChoiceData, ChoiceGP, ChoiceGPError, ParetoEmbedding, PreferenceGP, report
from choicegp.errors import Defect
from choicegp.fitting.record import ChosenNumber
from choicegp.reporting import report as module
from choicegp.reporting import summaries, trust
from choicegp.reporting.asked import quietly, sentence

NAMES = ["<script>alert(1)</script>", "A & B $5", "x" * 300, *(f"object {i}" for i in range(13))]
CHOSEN = ChosenNumber(
    2, "2 utilities: the best score by leave-one-out, -20.0.",
    {"n_utilities": [1, 2], "elpd": [-40.0, -20.0], "se": [5.0, 3.0], "elpd_diff": [20.0, 0.0], "dse": [4.0, 0.0]},
)  # fmt: skip


def shown_sets(rng, n_sets):
    """Draw sets of three of 16 objects, in which all are shown: tests of estimators compile the same shapes."""
    while True:
        shown = [rng.choice(16, 3, replace=False) for _ in range(n_sets)]
        if len(np.unique(np.concatenate(shown))) == 16:
            return shown


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(16, 2)), columns=["<price>", "$size$"], index=NAMES)
    U = np.column_stack([X["<price>"], X["$size$"] - X["<price>"] ** 2])
    return ChoiceData.from_utilities(X, U, [*shown_sets(rng, 12), *shown_sets(rng, 12)])


@pytest.fixture(scope="module")
def model(data):
    """Return a fitted model with what a careful reader wants to know about it."""
    import dataclasses

    quick = ChoiceGP(2, intervals="none", object_effects=False, n_restarts=1, max_iter=30, progress=False)
    fitted = quick.fit(data).fitted_
    skipped = (Defect("chosen-not-shown", "the object <i>x</i> was chosen but not shown", row=7, set="s&1"),)
    kept = dataclasses.replace(data, skipped=skipped)
    return quick._keep(fitted._replace(chosen=CHOSEN, data=kept).noted("2 objects were <merged>"))


@pytest.fixture(scope="module")
def page(model, data):
    offered = {"today & now": [NAMES[1], NAMES[3], NAMES[4]]}
    changes = {NAMES[3]: {"<price>": 0.5}, NAMES[4]: None}
    return report(
        model, held_out=data.take(range(8)), assortments=offered, changes=changes, title="Q&A", command="choicegp <x>"
    )


class Outline(HTMLParser):
    """What a page consists of: tags that were opened and closed, and attributes."""

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.attributes = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "wbr"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_nothing_else(page):
    outline = Outline(page)
    assert outline.open == []
    assert not {"script", "link", "img", "iframe", "object", "i"} & set(outline.tags)
    links = [value for name, value in outline.attributes if name in ("src", "href", "xlink:href")]
    assert all(value.startswith("#") for value in links)
    targets = {value for name, value in outline.attributes if name == "id"}
    assert {value[1:] for value in links} <= targets
    assert not re.search(r"@import|url\((?!#)", page)
    assert len(page) < 1_000_000


def test_every_part_is_there(page):
    headings = re.findall(r"<h2>(.*?)</h2>", page)
    assert headings == [
        "In short", "The data", "The fit, and how far to trust it", "How many utilities, and why",
        "What drives the choices", "Objects by utility", "Short list", "Shares, and what if", "How this was made",
    ]  # fmt: skip
    for said in (
        "24 sets of 3 objects", "2 objects were &lt;merged&gt;.", "the object &lt;i&gt;x&lt;/i&gt; was chosen",
        "Pareto k = ", "Calibration on 8 held-out sets", "ArviZ&#x27;s method", "the best score by leave-one-out",
        "today &amp; now", "withdrawn", "choicegp &lt;x&gt;", "Benavoli", "random answer",
    ):  # fmt: skip
        assert said in page, said


@pytest.mark.parametrize(("low", "said"), [(0.2, "inside the 95% interval"), (0.4, "outside the 95% interval")])
def test_the_verdict_on_calibration_counts_the_bins_outside(monkeypatch, low, said):
    bins = pd.DataFrame({"predicted": [0.3, 0.7], "observed": [0.3, 0.6], "low": [low, 0.5], "high": [0.6, 0.8]})
    monkeypatch.setattr(trust, "draw_calibration", lambda *_: None)
    asked = SimpleNamespace(picture=lambda *_: "")
    words = trust._calibrated(asked, bins.assign(objects=[30, 10]), "Calibration")
    assert "differ by 0.025 on average over 40 objects" in words
    assert f"{said} of the observed share in {'all 2' if low == 0.2 else '1 of 2'} bins." in words


def test_the_best_value_of_a_number_has_three_digits_and_that_of_words_is_the_word():
    direction = np.array([["non-monotone", "categorical"]])
    best = np.array([[0.123456, "red"]], dtype=object)
    effects = SimpleNamespace(names=["price", "colour"], best=best, direction=direction)
    assert summaries._driver(effects, 0, 0) == "is highest where price is about 0.123"
    assert summaries._driver(effects, 0, 1) == "is highest for colour = red"


def test_hostile_names_stay_text(page):
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert f'title="{"x" * 300}"' in page


def test_without_held_out_sets_each_is_predicted_from_the_others_and_the_file_is_the_page(model, tmp_path):
    text = report(model, tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text("utf-8") == text
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
    assert "Calibration on 24 sets, each predicted from the others" in text
    assert "No sets were held out" in text


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium: apt-get install chromium")
def test_axe_finds_nothing_on_light_and_on_small_dark_screens(page, tmp_path):
    from axe_playwright_python.sync_playwright import Axe
    from playwright.sync_api import sync_playwright

    file = tmp_path / "report.html"
    file.write_text(page, "utf-8")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for width, scheme in ((1280, "light"), (360, "dark")):
            opened = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
            opened.goto(file.as_uri())
            assert Axe().run(opened).response["violations"] == []
            assert opened.evaluate("document.documentElement.scrollWidth") <= width
        browser.close()


@pytest.mark.parametrize("kind", ["network", "preferences"])
def test_what_a_model_lacks_is_said(data, kind):
    if kind == "network":
        fitted = ParetoEmbedding(2, n_layers=1, n_units=4, max_epochs=2, progress=False).fit(data)
    else:
        pairs = [[kept[0], left[0]] for kept, left in _kept_and_left(data)]
        fitted = PreferenceGP(max_iter=5, progress=False).fit(ChoiceData.from_pairs(data.X, pairs))
    text = report(fitted)
    assert Outline(text).open == []
    assert kind == "preferences" or report(fitted) == text, "the same model gives the same page"
    name = type(fitted).__name__
    for said in ("no short list", "no shares", "does not say what drives the choices", "no diagnosis"):
        assert re.search(rf"A {name} (has )?{said}", text), said
    assert f"{name} has no leave-one-out" in text


def _kept_and_left(data):
    for shown, chosen in zip(data.shown, data.chosen, strict=True):
        left = np.setdiff1d(shown, chosen)
        if len(left):
            yield chosen, left


def test_what_is_no_fitted_model_is_refused_before_any_work(data, model, tmp_path):
    for wrong in (ChoiceGP(), None, data):
        with pytest.raises(ChoiceGPError, match="report takes a fitted model"):
            report(wrong)
    with pytest.raises(ChoiceGPError, match="held_out must be a ChoiceData with choices"):
        report(model, held_out=ChoiceData.from_sets(data.X, data.shown))
    with pytest.raises(ChoiceGPError, match="there is no folder"):
        report(model, tmp_path / "none" / "report.html")


@pytest.mark.parametrize("changes", [{"nobody": None}, {NAMES[3]: {"weight": 3.0}}])
def test_a_change_of_what_is_not_there_is_an_error(model, tmp_path, monkeypatch, changes):
    monkeypatch.setattr(module, "_SECTIONS", [one for one in module._SECTIONS if one[0] == "shares"])
    with pytest.raises(ChoiceGPError, match=r"nobody|weight"):
        report(model, tmp_path / "report.html", assortments={"today": NAMES[3:6]}, changes=changes)
    assert list(tmp_path.iterdir()) == []


def test_a_failure_leaves_no_file(model, tmp_path, monkeypatch):
    def broken(*_):
        raise MemoryError

    monkeypatch.setattr(module, "_page", broken)
    with pytest.raises(MemoryError):
        report(model, tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_warnings_are_kept_as_sentences_each_once():
    import warnings

    def work():
        for _ in range(2):
            warnings.warn("beware  of\nthis", UserWarning, stacklevel=1)
        return 5

    said = ["Old."]
    assert quietly(work, said) == 5
    assert said == ["Old.", "Beware of this."]
    assert sentence("is it?") == "Is it?"

"""The writer of HTML: whatever comes from a table stays text."""

import pandas as pd
import pytest

from choicegp.reporting.html import Markup, bullets, element, joined, table, text

HOSTILE = "<script>alert(1)</script> & \"quotes\" 'too'"


def test_text_is_escaped_wherever_it_stands():
    safe = "&lt;script&gt;alert(1)&lt;/script&gt; &amp; &quot;quotes&quot; &#x27;too&#x27;"
    assert element("p", HOSTILE, title=HOSTILE) == f'<p title="{safe}">{safe}</p>'
    assert bullets([HOSTILE]) == f"<ul><li>{safe}</li></ul>"
    assert joined([HOSTILE, Markup("<b>"), None]) == f"{safe}<b>"


@pytest.mark.parametrize("letter", ["\x00", "\x1b", "\u2028", "\u202e"])
def test_letters_that_no_page_may_hold_are_shown(letter):
    assert letter not in text(f"a{letter}b")
    assert text(f"a{letter}b").startswith("a\\")
    assert letter not in element("p", "b", title=f"a{letter}b")


def test_a_table_escapes_names_and_cells_and_says_what_is_missing():
    frame = pd.DataFrame({HOSTILE: [HOSTILE, "b"], "share": [0.256, float("nan")], "n": [1234.5, 2.0]})
    made = table(frame, "A <caption>", percent=["share"])
    assert "<script" not in made
    assert "A &lt;caption&gt;</caption>" in made
    assert '<td class="number">26%</td>' in made
    assert '<td class="number">–</td>' in made
    assert '<td class="number">1,234</td>' in made
    assert made.count('scope="row"') == 2


def test_a_long_name_is_cut_and_kept_whole_as_a_title():
    name = "x" * 500
    made = table(pd.DataFrame({"object": [name]}), "Objects")
    assert f'title="{name}"' in made
    assert f">{'x' * 59}…</th>" in made


def test_a_long_name_of_a_column_is_cut_too():
    made = table(pd.DataFrame({"y" * 500: ["a"]}), "Objects")
    assert f'title="{"y" * 500}"' in made
    assert f">{'y' * 29}…</th>" in made

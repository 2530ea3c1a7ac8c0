from choicegp.experiments.results import markdown_table


def test_a_table_has_a_row_for_each_line_and_empty_cells():
    text = markdown_table(("a", "b"), [(1, None), ("x", 2.5)])
    assert text.splitlines() == ["| a | b |", "|---|---|", "| 1 |  |", "| x | 2.5 |"]


def test_a_table_without_rows_has_its_head():
    assert markdown_table(("a",), []).splitlines() == ["| a |", "|---|"]


def test_a_bar_in_a_cell_does_not_end_it():
    assert markdown_table(("a",), [("x | y",)]).splitlines()[-1] == "| x \\| y |"

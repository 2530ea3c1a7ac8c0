"""Excel files, as a spreadsheet writes them."""

import sys

import pandas as pd
import pytest

from choicegp.data.choices import ChoiceData
from choicegp.errors import ChoiceGPError, ReadingNote
from choicegp.reading.excel import _n_cells
from choicegp.reading.text import read_file, write_table

ANSWERS = pd.DataFrame(
    {
        "respondent": ["007", "007", "8", "8"],
        "task": [1, 1, 1, 1],
        "product": ["Alder", "Dune", "Alder", "Cinder"],
        "price": [549, 649.5, 549, None],
        "brand": ["A", "D", "A", None],
        "kept": ["x", None, None, "x"],
    }
)


def test_the_first_sheet_is_read(tmp_path):
    path = tmp_path / "answers.xlsx"
    with pd.ExcelWriter(path) as book:
        ANSWERS.to_excel(book, sheet_name="answers", index=False)
        ANSWERS[:1].to_excel(book, sheet_name="codes", index=False)
    read = read_file(path, ["respondent", "task"])
    assert [str(note).split(": ", 1)[1] for note in read.remarks] == [
        "the sheet 'answers', the first of 2 sheets was read"
    ]
    assert read.rows.tolist() == [2, 3, 4, 5]
    assert read.frame["respondent"].tolist() == ["007", "007", "8", "8"]
    assert read.frame["price"].tolist()[:3] == [549.0, 649.5, 549.0]
    roles = {"set_id": ["respondent", "task"], "object_id": "product", "chosen": "kept", "missing": "level"}
    with pytest.warns(ReadingNote) as caught:
        data = ChoiceData.from_long(path, **roles)
    assert len(caught) == 2
    with pytest.warns(ReadingNote):
        same = ChoiceData.from_long(ANSWERS, **roles)
    assert data == same


def test_cells_are_counted_up_to_the_last_row_and_column():
    assert _n_cells(b'<row r="2"><c r="AA2"/><c r="Z9"/></row>') == 27 * 9
    assert _n_cells(b"<sheetData/>") == 0


def test_empty_rows_and_headers(tmp_path):
    path = tmp_path / "a.xlsx"
    pd.DataFrame([["id", "x"], [1, 2.5], [None, None], [2, 3]]).to_excel(path, index=False, header=False)
    read = read_file(path, ["id"])
    assert read.rows.tolist() == [2, 4]
    assert read.frame["id"].tolist() == [1, 2]
    pd.DataFrame([["id", "id"], [1, 2]]).to_excel(path, index=False, header=False)
    with pytest.raises(ChoiceGPError, match="'id' appears twice"):
        read_file(path)
    pd.DataFrame([["id", None], [1, 2]]).to_excel(path, index=False, header=False)
    with pytest.raises(ChoiceGPError, match="column 2 has no name"):
        read_file(path)
    pd.DataFrame().to_excel(path, index=False, header=False)
    with pytest.raises(ChoiceGPError, match="is empty"):
        read_file(path)


def test_excel_files_are_only_read(tmp_path):
    with pytest.raises(
        ChoiceGPError, match=r"Excel files are only read; the suffix of a table to write is one of .csv"
    ):
        write_table(ANSWERS, tmp_path / "a.xlsx")


def test_without_openpyxl_one_sentence_says_what_to_install(tmp_path, monkeypatch):
    ANSWERS.to_excel(tmp_path / "a.xlsx", index=False)
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(ChoiceGPError, match=r"Excel files need openpyxl; run pip install 'choicegp\[excel\]'"):
        read_file(tmp_path / "a.xlsx")

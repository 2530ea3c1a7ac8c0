import gzip
import os
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from choicegp.errors import ChoiceGPError
from choicegp.reading import text as tables
from choicegp.reading.text import read_file, read_rows, write_table


def read_table(path):
    return read_rows(path).frame


def saved(folder, content, name="table.csv"):
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.CSV", "a.csv.gz", "a.TSV.GZ", "a.parquet", "a.Parquet"])
def test_round_trip_is_exact(tmp_path, name):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "id": np.arange(300),
            "value": rng.standard_normal(300) * 10.0 ** rng.integers(-300, 300, 300),
            "word": np.where(rng.random(300) > 0.5, 'say "no", now', "None"),
            "été": rng.random(300) > 0.5,
        }
    )
    write_table(frame, tmp_path / name)
    back = read_table(str(tmp_path / name))
    pd.testing.assert_frame_equal(back, frame)
    assert os.listdir(tmp_path) == [name]


def test_bom_and_windows_line_ends(tmp_path):
    frame = read_table(saved(tmp_path, b"\xef\xbb\xbfa,b\r\n1,x\r\n2,y\r\n"))
    assert frame.columns.tolist() == ["a", "b"]
    assert frame["b"].tolist() == ["x", "y"]
    assert read_table(saved(tmp_path, b"a,b\r1,x\r2,y\r"))["a"].tolist() == [1, 2]


def test_spaces_after_commas_do_not_matter(tmp_path):
    frame = read_table(saved(tmp_path, "a, b\n1, x\n2, 3\n"))
    assert frame["b"].tolist() == ["x", "3"]


def test_rows_are_those_of_the_file(tmp_path):
    content = 'a,b\n1,x\n\n2,"two\nlines"\n,\n3,z\n\n\n'
    frame, rows = read_rows(saved(tmp_path, content))
    assert rows.tolist() == [2, 4, 6]
    assert frame["a"].tolist() == [1, 2, 3]
    assert frame.index.tolist() == [0, 1, 2]
    plain = content.replace('"two\nlines"', "y")
    assert read_rows(saved(tmp_path, plain)).rows.tolist() == [2, 4, 6]


def test_missing_values(tmp_path):
    frame = read_table(saved(tmp_path, "number,word\n1,None\nNA,NA\n,\n2.5,x\nnan,\n"))
    assert frame["number"].isna().tolist() == [False, True, False, True]
    assert frame["number"].dtype == np.float64
    # In a column of words only an empty cell is missing: an alternative may be called None.
    assert frame["word"].tolist()[:3] == ["None", "NA", "x"]
    assert frame["word"].isna().tolist() == [False, False, False, True]


def test_ids_are_kept(tmp_path):
    path = saved(tmp_path, "id,n,k,x\n007,1,1,1\n7,2,,2\n")
    frame = read_rows(path, ids=["id", "n", "k", "absent"]).frame
    assert frame["id"].tolist() == ["007", "7"]
    assert frame["n"].tolist() == [1, 2]
    assert frame["n"].dtype == np.int64
    assert type(frame["k"][0]) is int
    assert frame["k"].isna().tolist() == [False, True]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("a,b\n", "header but no rows"),
        ("a,b\n,\n", "header but no rows"),
        ("\na,b\n1,2\n", "first row must hold the column names"),
        ("a,b,a\n1,2,3\n", "'a' appears twice"),
        ('a,"b",a\n1,2,3\n', "'a' appears twice"),
        ("a,,c\n1,2,3\n", "column 2 has no name"),
        (",a\n0,1\n", "column 1 has no name; name it, or delete it"),
        ("Laptops of May\na,b\n1,2\n", "delete what stands above them"),
        ("a,b\nx,1,549\n", "put a cell that holds a separator, such as 1,549, into quotation marks"),
        ("a,b\n1,2\n1,2,3\n", r"row 3: the row has 3 cells, but the header has 2"),
        ("a,b\n1,2\n\n1\n", r"row 4: the row has 1 cells, but the header has 2"),
        ('a,b\n"1",2\n1,2\n1,2,3\n', r"row 4: the row has 3 cells, but the header has 2"),
        ("a,b\n1,2,3\n4,5,6\n", r"row 2: the row has 3 cells"),
        ("a,b\n1,2\n,,\n", r"row 3: the row has 3 cells"),
        ('a,b\n1,2\n3,"x\n4,5\n', r"row 3: a quotation mark is opened and never closed"),
        ('a,b\n1,"x"y\n', r"row 2: "),
        ("a;b\n1;2;3\n", r"row 2: the row has 3 cells"),
        (b"a,b\n1,\x00\n", r"NUL byte at position 6 \(row 2\)"),
        (
            "a,b\n1,é\n".encode("latin-1"),
            r"not in UTF-8: byte 0xe9 at position 6 \(row 2\); save it as CSV in UTF-8",
        ),
        ("a,b\n1,2\n".encode("utf-16")[:-1], "begins like UTF-16 but is not"),
        (b"PK\x03\x04abc", "spreadsheet or zip"),
        (b"PAR1abc", "Parquet file"),
    ],
)
def test_broken_text(tmp_path, content, message):
    with pytest.raises(ChoiceGPError, match=message) as caught:
        read_table(saved(tmp_path, content))
    assert "\n" not in str(caught.value)
    assert "table.csv" in str(caught.value)


def test_broken_parquet(tmp_path):
    good = tmp_path / "good.parquet"
    write_table(pd.DataFrame({"a": range(100)}), good)
    cut = saved(tmp_path, good.read_bytes()[:-20], "cut.parquet")
    for path in (cut, saved(tmp_path, "a,b\n1,2\n", "text.parquet")):
        with pytest.raises(ChoiceGPError, match="not a readable Parquet file") as caught:
            read_table(path)
        assert "\n" not in str(caught.value)
    with pytest.raises(ChoiceGPError, match="is empty"):
        read_table(saved(tmp_path, b"", "nothing.parquet"))
    write_table(pd.DataFrame({"a": []}), good)
    with pytest.raises(ChoiceGPError, match="no rows"):
        read_table(good)


def test_columns_that_hardly_vary_are_no_bomb(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "_MANY_CELLS", 2**20)
    rng, path = np.random.default_rng(0), tmp_path / "rare.parquet"
    rare = {f"level {j}": (rng.random(60_000) < 0.0005).astype(np.int8) for j in range(100)}
    pd.DataFrame({"set": np.repeat(np.arange(15_000), 4)} | rare).to_parquet(path)
    assert 20 * path.stat().st_size < 100 * 60_000
    assert tables.open_parquet(path).metadata.num_rows == 60_000


def test_parquet_keeps_a_named_index_as_a_column(tmp_path):
    frame = pd.DataFrame({"price": [1.0, 2.0]}, index=pd.Index(["pen", "ink"], name="alt_id"))
    frame.to_parquet(tmp_path / "a.parquet")
    frame.rename_axis(None).to_parquet(tmp_path / "b.parquet")
    assert read_table(tmp_path / "a.parquet")["alt_id"].tolist() == ["pen", "ink"]
    assert read_table(tmp_path / "b.parquet").columns.tolist() == ["price"]


def test_parquet_with_equal_names(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table([[1], [2]], names=["a", "a"]), tmp_path / "a.parquet")
    with pytest.raises(ChoiceGPError, match="'a' appears twice"):
        read_table(tmp_path / "a.parquet")


def test_broken_gzip(tmp_path):
    whole = gzip.compress(b"a,b\n" + b"1,2\n" * 1000)
    for content in (b"a,b\n1,2\n", whole[:-10], whole[:30]):
        with pytest.raises(ChoiceGPError, match="gzip"):
            read_table(saved(tmp_path, content, "a.csv.gz"))


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("absent.csv", "there is no file"),
        ("folder.csv", "is a folder"),
        (".", "is a folder|suffix"),
        ("table.xlsx", "there is no file"),
        ("table.ods", "suffix must name the format, as one of .csv"),
        ("table", "suffix must name the format, as one of .csv"),
    ],
)
def test_wrong_paths(tmp_path, path, message):
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(ChoiceGPError, match=message):
        read_table(tmp_path / path)


@pytest.mark.parametrize("path", [None, 3, b"a.csv", "", "a\0.csv"])
def test_what_is_no_path(path):
    with pytest.raises(ChoiceGPError, match="file name"):
        read_table(path)


def test_no_permission(tmp_path, monkeypatch):
    def refuse(self, mode):
        raise PermissionError(13, "Permission denied")

    path = saved(tmp_path, "a\n1\n")
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ChoiceGPError, match="no permission to read"):
        read_table(path)


def test_devices_are_not_read(tmp_path):
    (tmp_path / "endless.csv").symlink_to("/dev/zero")
    with pytest.raises(ChoiceGPError, match=r"endless\.csv is a device"):
        read_table(tmp_path / "endless.csv")


@pytest.mark.parametrize("ending", ["\n", "\r", "\r\n"])
def test_lines_must_end(tmp_path, monkeypatch, ending):
    monkeypatch.setattr(tables, "_LONGEST_LINE", 10)
    lines = ["a,b", "1,2", "12345,78", "3,4"] * 5
    lines[1::4] = [f"{k},2" for k in range(5)]
    short = saved(tmp_path, ending.join(["a,b", *(line for line in lines if line != "a,b")]))
    assert len(read_table(short)) == 15
    long = saved(tmp_path, ending.join(["a,b", "1,2", "1,2345678901234567890123456789", "3,4"]))
    with pytest.raises(ChoiceGPError, match=r"is not a table: row \d is longer than 10 bytes"):
        read_table(long)


def test_cells_have_a_limit(tmp_path):
    word = "é" * (2**16 + 1)
    with pytest.raises(ChoiceGPError, match="row 3: a cell is longer than 131072 bytes"):
        read_table(saved(tmp_path, f"a,b\n1,x\n2,{word}\n3,y\n"))
    with pytest.raises(ChoiceGPError, match="row 3: a quotation mark is never closed, or a cell is longer"):
        read_table(saved(tmp_path, f'a,b\n1,x\n2,"{2 * word}"\n3,y\n'))
    assert read_table(saved(tmp_path, f"a,b\n1,x\n2,{word[:-1]}\n"))["b"].str.len().tolist() == [1, 2**16]


def test_writing_fails_without_a_trace(tmp_path, monkeypatch):
    path = saved(tmp_path, "a\n1\n")

    def fail(frame, handle, **options):
        handle.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pd.DataFrame, "to_csv", fail)
    with pytest.raises(ChoiceGPError, match=r"cannot write .*table.csv: No space left"):
        write_table(pd.DataFrame({"a": [2]}), path)
    assert path.read_text() == "a\n1\n"
    assert os.listdir(tmp_path) == ["table.csv"]


def test_writing_to_wrong_places(tmp_path):
    frame = pd.DataFrame({"a": [2]})
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(ChoiceGPError, match="is a folder"):
        write_table(frame, tmp_path / "folder.csv")
    with pytest.raises(ChoiceGPError, match="there is no folder"):
        write_table(frame, tmp_path / "absent" / "a.csv")
    with pytest.raises(ChoiceGPError, match="suffix"):
        write_table(frame, tmp_path / "a.xls")


def test_utf_16_is_read_and_announced(tmp_path):
    for encoding in ("utf-16", "utf-16-be"):
        mark = b"" if encoding == "utf-16" else b"\xfe\xff"
        read = read_file(saved(tmp_path, mark + "a,b\n1,né\n".encode(encoding)))
        assert read.frame["b"].tolist() == ["né"]
        assert [str(note).endswith("was read as UTF-16") for note in read.remarks] == [True]


def test_what_only_looks_like_a_number_stays_a_word(tmp_path):
    frame = read_file(
        saved(tmp_path, "id;share;fuel;day;size\n1;0.123;e5;01.02.2024;.5\n2;0.456;E10;02.02.2024;5.\n")
    ).frame
    assert frame["share"].tolist() == [0.123, 0.456]
    assert frame["fuel"].tolist() == ["e5", "E10"]
    assert frame["day"].tolist() == ["01.02.2024", "02.02.2024"]
    assert frame["size"].tolist() == [0.5, 5.0]


def test_tabs_in_a_csv_file_as_spreadsheets_save_unicode_text(tmp_path):
    file = tmp_path / "a.csv"
    file.write_bytes("size\tprice\ngroß\t1.5\nklein\t2\n".encode("utf-16"))
    read = read_file(file)
    assert read.frame["price"].tolist() == [1.5, 2.0]
    assert [str(note).removeprefix(f"{file} ") for note in read.remarks] == [
        "was read as UTF-16", "was read with tabs between its columns"
    ]  # fmt: skip


def test_words_for_missing_and_truth_with_semicolons(tmp_path):
    frame = read_file(saved(tmp_path, "id;price;wifi;note\n1;1,5;WAHR;NA\n2;NA;FALSCH;x\n")).frame
    assert frame["price"].isna().tolist() == [False, True]
    assert frame["note"].tolist() == ["NA", "x"]
    frame = read_file(saved(tmp_path, "id;wifi\n1;TRUE\n2;False\n")).frame
    assert frame["wifi"].tolist() == [True, False]


GERMAN = "Aufgabe;Preis;Gewicht;Akku;Farbe\n1;1.549,00;1,4;12;rot\n1;549,50;0,9;8;blau\n2;99;2;;rot\n"


def test_semicolons_and_decimal_commas(tmp_path):
    read = read_file(saved(tmp_path, GERMAN), ["Aufgabe"])
    assert read.frame["Preis"].tolist() == [1549.0, 549.5, 99.0]
    assert read.frame["Gewicht"].tolist() == [1.4, 0.9, 2.0]
    assert read.frame["Akku"].isna().tolist() == [False, False, True]
    assert read.frame["Farbe"].tolist() == ["rot", "blau", "rot"]
    assert read.frame["Aufgabe"].tolist() == [1, 1, 2]
    assert [str(note).split(" was ")[1] for note in read.remarks] == [
        "read with semicolons between its columns and decimal commas"
    ]
    assert read_file(saved(tmp_path, GERMAN.replace("\n", "\r"))).frame["Preis"].tolist() == [1549.0, 549.5, 99.0]


def test_semicolons_with_decimal_points(tmp_path):
    read = read_file(saved(tmp_path, 'a;b;"c, d"\n1;1.5;x\n2;12.25;y\n'))
    assert read.frame["b"].tolist() == [1.5, 12.25]
    assert read.frame["a"].dtype == np.int64


def test_thousands_are_read_only_where_they_are_clear(tmp_path):
    unclear = saved(tmp_path, "id;price\n1;1.549\n2;2.100\n")
    with pytest.raises(ChoiceGPError, match=r"'price' holds numbers such as '1.549'.*decimal='.' or decimal=','"):
        read_file(unclear)
    assert read_file(unclear, decimal=",").frame["price"].tolist() == [1549, 2100]
    assert read_file(unclear, decimal=".").frame["price"].tolist() == [1.549, 2.1]
    clear = saved(tmp_path, "id;price;weight\n1;1.549;1,5\n2;2.100;0,75\n")
    assert read_file(clear).frame["price"].tolist() == [1549, 2100]
    with pytest.raises(ChoiceGPError, match="'b' have decimal points, the numbers of column 'a' decimal commas"):
        read_file(saved(tmp_path, "a;b\n1,5;1.5\n"))
    with pytest.raises(ChoiceGPError, match=r"'price' holds numbers such as '1.549'"):
        read_file(saved(tmp_path, "id;price\n1;1.549\n2;NA\n"))
    quoted = saved(tmp_path, 'a,b\n"5,5",1\n"3",2\n')
    assert read_file(quoted, decimal=",").frame["a"].tolist() == [5.5, 3.0]
    with pytest.raises(ChoiceGPError, match=r"decimal must be '.' or ','"):
        read_file(quoted, decimal=";")


@pytest.mark.parametrize("content", ["a,b,\n1,2,\n3,4,\n", 'a,"b",,\n1,2,,\n3,4,,\n,,,\n'])
def test_empty_columns_without_a_name_are_left_out(tmp_path, content):
    (tmp_path / "t.csv").write_text(content)
    frame = read_file(tmp_path / "t.csv").frame
    assert frame.to_dict("list") == {"a": [1, 3], "b": [2, 4]}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="a system without named pipes")
def test_only_what_is_packed_has_a_limit_when_it_unpacks(tmp_path, monkeypatch):
    """A named pipe has no size of its own."""
    monkeypatch.setattr(tables, "_LARGE", 10)
    os.mkfifo(pipe := tmp_path / "pipe.csv")
    writer = threading.Thread(target=pipe.write_text, args=("price\n" + "3\n" * 50_000,), daemon=True)
    writer.start()
    try:
        assert len(read_file(pipe).frame) == 50_000
    finally:
        writer.join(30)

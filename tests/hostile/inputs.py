"""Making hostile inputs: tables with one thing wrong, and files that are no tables at all."""

import gzip
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

FILE = "choices.csv"
HEADER = "choice_id,alt_id,choice,price,colour\n"
GOOD = HEADER + "1,pen,1,3,red\n1,ink,0,5,blue\n2,pen,1,3,red\n2,cap,1,4,red\n"
ONE_CHOSEN = "page,cost_A,cost_B,choice\n1,3,5,A\n2,4,2,B\n"
WIDE = "page,cost_A,cost_B,choice_A,choice_B\n1,3,5,1,0\n2,4,2,0,1\n"

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x02\x00\x00\x00"


def swap(old: str, new: str, text: str = GOOD) -> str:
    """Return the good table with one piece of it replaced."""
    assert text.count(old) == 1, f"{old!r} must be in the table once"
    return text.replace(old, new)


def column(name: str, *cells: object) -> str:
    """Return the good table with one more column."""
    lines = GOOD.splitlines()
    assert len(cells) == len(lines) - 1
    return "".join(f"{line},{cell}\n" for line, cell in zip(lines, [name, *cells], strict=True))


def frame(**columns: object) -> pd.DataFrame:
    """Return the good table as a DataFrame, with columns replaced or added."""
    good = pd.DataFrame(
        {
            "choice_id": [1, 1, 2, 2],
            "alt_id": ["pen", "ink", "pen", "cap"],
            "choice": [1, 0, 1, 1],
            "price": [3.0, 5.0, 3.0, 4.0],
        }
    )
    return good.assign(**columns)


def parquet(table: pd.DataFrame) -> Callable[[Path], None]:
    """Return a maker of a Parquet file."""
    return lambda folder: table.to_parquet(folder / "choices.parquet")


def excel(table: pd.DataFrame) -> Callable[[Path], None]:
    """Return a maker of an Excel file."""
    return lambda folder: table.to_excel(folder / "choices.xlsx", index=False)


def damaged_excel(folder: Path) -> None:
    """Write an Excel file whose sheet is no XML."""
    path = folder / "choices.xlsx"
    frame().to_excel(path, index=False)
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, b"<worksheet><sheetData><row" if "sheet1" in name else content)


def zip_without_sheets(folder: Path) -> None:
    with zipfile.ZipFile(folder / "choices.xlsx", "w") as archive:
        archive.writestr(FILE, GOOD)


def excel_bomb(folder: Path) -> None:
    """Write an archive of which a part says that it becomes a billion bytes when it is unpacked."""
    with zipfile.ZipFile(folder / "choices.xlsx", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/worksheets/sheet1.xml", bytes(1_000_000))
        archive.infolist()[0].file_size = 1_000_000_000


def truncated_parquet(folder: Path) -> None:
    frame().to_parquet(folder / "choices.parquet")
    content = (folder / "choices.parquet").read_bytes()
    (folder / "choices.parquet").write_bytes(content[: len(content) // 2])


def damaged_parquet(folder: Path) -> None:
    """Write a Parquet file whose footer is whole but whose pages are not."""
    path = folder / "choices.parquet"
    frame().to_parquet(path)
    content = bytearray(path.read_bytes())
    content[4:200] = bytes(196)
    path.write_bytes(content)


def parquet_with_bytes_as_text(folder: Path) -> None:
    """Write a Parquet file with a text that is none."""
    path = folder / "choices.parquet"
    frame(colour=["crimson", "blue", "crimson", "crimson"]).to_parquet(path, compression=None)
    path.write_bytes(path.read_bytes().replace(b"crimson", b"crim\xff\xfen"))


def parquet_with_columns_twice(folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    values = pa.array([1, 2])
    names = ["choice_id", "alt_id", "choice", "price", "price"]
    pq.write_table(pa.Table.from_arrays([values] * 5, names=names), folder / "choices.parquet")


def gzip_as(folder: Path, name: str) -> None:
    """Write the good table, compressed, under any name."""
    (folder / name).write_bytes(gzip.compress(GOOD.encode()))


def truncated_gzip(folder: Path) -> None:
    (folder / "choices.csv.gz").write_bytes(gzip.compress(GOOD.encode() * 50)[:-20])


def many_objects(folder: Path) -> None:
    """Write one set that shows a million objects."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    n = 1_000_000
    table = {
        "choice_id": np.ones(n, int),
        "alt_id": np.arange(n),
        "choice": np.ones(n, int),
        "x": np.arange(n),
    }
    pq.write_table(pa.table(table), folder / "choices.parquet")


def many_defects(folder: Path) -> None:
    """Write 100,000 sets from which nothing is chosen."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    n = 100_000
    table = {"choice_id": np.arange(n), "alt_id": np.arange(n), "choice": np.zeros(n, int), "x": np.arange(n)}
    pq.write_table(pa.table(table), folder / "choices.parquet")


def endless_line(folder: Path) -> None:
    """Write a cell of a billion bytes (zeros, which take no room on the disk)."""
    with (folder / FILE).open("wb") as file:
        file.write(HEADER.encode() + b"1,pen,1,3,")
        file.truncate(1_000_000_000)


def gzip_bomb(folder: Path) -> None:
    """Write a small file that becomes a billion bytes when it is read."""
    line = gzip.compress(HEADER.encode() + b"1,pen,1,3,")
    # A gzip file may be several of them, one after the other.
    (folder / "choices.csv.gz").write_bytes(line + 100 * gzip.compress(b"a" * 10_000_000))


def gzip_bomb_of_rows(folder: Path) -> None:
    """Write a small file that becomes a table of 400 million bytes when it is read."""
    rows = gzip.compress(b"1,pen,1,3,red\n" * 714_000, 1)
    (folder / "choices.csv.gz").write_bytes(gzip.compress(HEADER.encode()) + 40 * rows)


def link_to_zeros(folder: Path) -> None:
    (folder / FILE).symlink_to("/dev/zero")


def long_cell(folder: Path, quote: str = "") -> None:
    """Write a cell that is long, though its line has an end."""
    (folder / FILE).write_text(swap("2,cap,1,4,red", f"2,cap,1,4,{quote}{'red' * 100_000}{quote}"))


def many_columns(folder: Path, n: int = 3000, last: str = "last") -> None:
    """Write a table with thousands of columns of features."""
    names = ",".join([f"x{j}" for j in range(n - 1)] + [last])
    (folder / FILE).write_text(f"choice_id,alt_id,choice,{names}\n1,pen,1{',1' * n}\n1,ink,0{',2' * n}\n")

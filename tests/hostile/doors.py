"""The doors that came later: model files, studies, databases and addresses. Cases as in `cases.py`."""

import io
import json
import sqlite3
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .cases import EXCEL, PARQUET, Command, table
from .inputs import GOOD

MODEL = Path(__file__).parents[1] / "storage" / "data" / "model-v3.cgp"
OBJECTS = "alt_id,price,size\n" + "".join(f"o{i},{i},{i * i}\n" for i in range(6))


def packed(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def header(*shape: int) -> bytes:
    """Return the head of an array of that shape, and a few of its numbers."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return stream.getvalue() + bytes(800)


def forged(part: str, content: bytes | Callable[[dict], Any]) -> Callable[[Path], None]:
    """Return a maker of a model file, of which one part is another; of its page, what a function changes."""

    def make(folder: Path) -> None:
        with zipfile.ZipFile(MODEL) as archive:
            parts = {name: archive.read(name) for name in archive.namelist()}
        if callable(content):
            page = json.loads(str(np.load(io.BytesIO(parts["about.npy"]))))
            content(page)
            parts["about.npy"] = packed(np.array(json.dumps(page)))
        else:
            parts[f"{part}.npy"] = content
        with zipfile.ZipFile(folder / "model.cgp", "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in parts.items():
                archive.writestr(name, text)

    return make


def model(name: str, part: str, content: bytes | Callable[[dict], Any], says: str) -> Command:
    """Return a case of a model file with a forged part."""
    return Command(f"model: {name}", forged(part, content), says, ("plot", "model.cgp"))


def assortments(name: str, rows: str, says: str) -> Command:
    """Return a case of a table of assortments, for a good model."""

    def make(folder: Path) -> None:
        (folder / "model.cgp").write_bytes(MODEL.read_bytes())
        (folder / "new.csv").write_text(rows)

    return Command(f"assortments: {name}", make, says, ("shares", "model.cgp", "new.csv", "-o", "shares.csv"))


def tight_model(folder: Path) -> None:
    """Write a model of which a part says that it becomes 300 million bytes when it is unpacked."""
    forged("mean", header(4))(folder)
    with zipfile.ZipFile(folder / "model.cgp", "a") as archive:
        archive.writestr("more.npy", b"")
        archive.infolist()[0].file_size = 300_000_000


def tight_parquet(folder: Path) -> None:
    """Write twenty million cells that are all the same."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    zeros = pa.array(np.zeros(5_000_000, np.int8))
    names = ["choice_id", "alt_id", "choice", "price"]
    pq.write_table(pa.Table.from_arrays([zeros] * 4, names=names), folder / PARQUET)


def far_cell(folder: Path) -> None:
    """Write a sheet whose last cell is the last that a sheet can have."""
    import openpyxl

    book = openpyxl.Workbook()
    book.active["A1"] = "choice_id"
    book.active.cell(row=1_048_576, column=16_384).value = 1
    book.save(folder / EXCEL)


def study(name: str, text: str | bytes, says: str) -> Command:
    """Return a case of a study file."""

    def make(folder: Path) -> None:
        (folder / "objects.csv").write_text(OBJECTS)
        (folder / "study.toml").write_bytes(text if isinstance(text, bytes) else text.encode())

    return Command(f"study: {name}", make, says, ("serve", "objects.csv", "--study", "study.toml"))


def asked(name: str, says: str, *arguments: str) -> Command:
    """Return a case of a session in the terminal."""
    return Command(f"ask: {name}", OBJECTS, says, ("ask", "objects.csv", *arguments), "objects.csv")


def served(name: str, says: str, *arguments: str) -> Command:
    """Return a case of the page's options."""
    return Command(f"serve: {name}", OBJECTS, says, ("serve", "objects.csv", *arguments), "objects.csv")


def foreign_database(folder: Path) -> None:
    with sqlite3.connect(folder / "a.db") as connection:
        connection.execute("CREATE TABLE t (a)")
    connection.close()


def damaged_database(*, names: bool) -> Callable[[Path], None]:
    """Return a maker of a study whose tables have names that are no text, or whose objects are gone."""

    def make(folder: Path) -> None:
        import pandas as pd

        from choicegp import Store

        file = folder / "a.db"
        Store.open(file, pd.DataFrame({"price": [1.0, 2.0]}, index=["pen", "ink"])).close()
        if names:
            file.write_bytes(file.read_bytes().replace(b"tablechoicegp_results", b"ta\0\0\0\x80hoicegp_results"))
            return
        with sqlite3.connect(file) as connection:
            connection.execute("UPDATE choicegp_study SET catalogue = 'null'")
        connection.close()

    return make


def database_with(change: str) -> Callable[[Path], None]:
    """Return a maker of a study with one answer, in which a statement then changes something."""

    def make(folder: Path) -> None:
        import pandas as pd

        from choicegp import Store

        with Store.open(folder / "a.db", pd.DataFrame({"price": [1.0, 2.0]}, index=["pen", "ink"])) as store:
            store.tell(store.join("Anna")[0], ["pen", "ink"], ["pen"])
        with sqlite3.connect(folder / "a.db") as connection:
            connection.execute(change)
        connection.close()

    return make


def database(name: str, place: str, says: str, make: Any = None) -> Command:
    """Return a case of exporting what a database does not hold."""
    return Command(f"database: {name}", make, says, ("answers", place, "-o", "out.csv"), "a.db")


def arrays(page: dict, names: list) -> None:
    page["arrays"] = names


DOORS = [
    model("10,000 arrays", "", partial(arrays, names=["mean"] * 10_000), "its list of arrays"),
    model("arrays not a list", "", partial(arrays, names="mean"), "its list of arrays"),  # type: ignore[arg-type]
    model("shape of a mean", "mean", packed(np.zeros((7, 2, 5))), "mean has the shape (7, 2, 5)"),
    model("shape of a dual", "dual", packed(np.zeros((2, 5))), "dual has the shape (2, 5), not (2, 4)"),
    model("shape of a gain", "gain", packed(np.zeros((2, 4, 5))), "gain has the shape"),
    model("shape of codes", "codes", packed(np.zeros((7, 2), int)), "codes has the shape (7, 2), not (7,)"),
    model("shape of a scale", "scale", packed(np.zeros(3)), "scale has the shape (3,), not (4,)"),
    model("kernel of three", "kernel_3", packed(np.zeros((3, 1))), "kernel has the shape (3, 1)"),
    model("kernel of other features", "kernel_0", packed(np.zeros((2, 9))), "the kernel has 9 values"),
    model("negative size", "mean", header(-5, 4), "not a choicegp model, or a damaged one"),
    model("1e12 numbers", "mean", header(10**12), "not a choicegp model, or a damaged one"),
    model("numbers as objects", "mean", packed(np.zeros(3, "M8[D]")), "has the shape (3,)"),
    model("a kernel that does not exist", "", lambda page: page.update(kernel=["os.system"]), "wrong parts"),
    Command("model: a bomb", tight_model, "unpack to", ("plot", "model.cgp")),
    assortments("no rows", "choice_id,alt_id,price,colour\n", "has a header but no rows"),
    assortments("no features", "choice_id,alt_id\n1,pen\n1,ink\n", "there is no feature column 'price'"),
    assortments("a colour never seen", GOOD.replace("blue", "mauve"), "unknown category 'mauve'"),
    assortments("an endless price", GOOD.replace("5", "inf"), "is not finite (inf)"),
    table("Parquet bomb", tight_parquet, "packs 20,000,000 cells", file=PARQUET),
    table("Excel with a far cell", far_cell, "cells so far apart", file=EXCEL),
    table("no choices among a billion columns", "choice_id" + "," * 1_000_000 + "\n1\n", "has no name"),
    study("not TOML", "sets = = 3", "is not a TOML file"),
    study("not text", b"\xff\xfe\x00\x00", "is not a TOML file"),
    study("an unknown word", "colour = 1", "colour"),
    study("a negative number", "[study]\nsets = -3", "sets"),
    study("an enormous number", "[study]\nsets = 1" + "0" * 400, "sets"),
    study("brackets without an end", "a = " + "[" * 5000 + "]" * 5000, "brackets are too deep"),
    Command("study: no file", OBJECTS, "no.toml", ("serve", "objects.csv", "--study", "no.toml"), "objects.csv"),
    served("an address that runs", "--url must be an address", "--url", "javascript:alert(1)"),
    served("all the world", "--host 0.0.0.0 lets other machines", "--host", "0.0.0.0"),
    served("no port", "'--port'", "--port", "99999"),
    Command("serve: a model", GOOD, "the suffix must name the format", ("serve", "model.cgp"), "model.cgp"),
    asked("a design of no name", "design must be", "--db", "a.db", "--design", "clever"),
    asked("sets of one", "'--set-size'", "--db", "a.db", "--set-size", "1"),
    asked("a database of no kind", "mysql", "--db", "mysql://a/b"),
    asked("a web page", "http", "--db", "http://example.org/a"),
    database("no file", "absent.db", "there is no file absent.db"),
    database("a folder", ".", "is a folder"),
    database("a table", "a.db", "is not", GOOD),
    database("of another program", "a.db", "a.db", foreign_database),
    database("names that are no text", "a.db", "is damaged", damaged_database(names=True)),
    database("no objects", "a.db", "are damaged", damaged_database(names=False)),
    *(
        database(name, "a.db", "is damaged", database_with(f"UPDATE choicegp_events SET {change}"))
        for name, change in {
            "a time that is none": "at = 'once'",
            "a time that is a number": "at = x'00'",
            "objects that are a number": "shown = '5' WHERE kind = 'asked'",
            "objects that are lists": "shown = '[[1]]' WHERE kind = 'asked'",
            "no objects shown": "shown = NULL WHERE kind = 'asked'",
            "an answer to nothing": "question = 'another' WHERE kind = 'answered'",
            "an event of no kind": "kind = 'fell' WHERE kind = 'answered'",
        }.items()
    ),
    database(
        "a person who never joined",
        "a.db",
        "is damaged",
        database_with("UPDATE choicegp_participants SET joined = 'x'"),
    ),
    database("only a head", "a.db", "a.db", b"SQLite format 3\0" + bytes(2000)),
    database("nobody listens", "postgresql+psycopg://nobody@127.0.0.1:1/x", "127.0.0.1"),
    Command("fit with people of no kind", GOOD, "respondents", ("fit", "choices.csv", "-o", "m", "--people", "x")),
]

"""The table of hostile inputs, and of unusual ones that are fine. Anyone can add a line.

A case of the command line writes a file (a text, bytes, or a function of the folder) and runs `choicegp` with
some arguments in that folder. A case of the API is a call. Both must end in an error whose first line holds
the given words.
"""

import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from choicegp import ChoiceData, datasets

from . import inputs
from .inputs import FILE, GOOD, HEADER, PNG, WIDE, column, frame, parquet, swap

Content = str | bytes | Callable[[Path], Any]


class Command(NamedTuple):
    """A command line in a folder that holds one file (or none)."""

    name: str
    content: Content | None
    says: str
    arguments: tuple[str, ...] = ("describe", FILE)
    file: str = FILE

    def prepare(self, folder: Path) -> None:
        """Write the file into the folder."""
        if callable(self.content):
            self.content(folder)
        elif self.content is not None:
            content = self.content.encode() if isinstance(self.content, str) else self.content
            (folder / self.file).write_bytes(content)


class Call(NamedTuple):
    """A call of the API, in an empty folder."""

    name: str
    call: Callable[[], Any]
    says: str


def table(name: str, content: Content, says: str, options: str = "", file: str = FILE) -> Command:
    """Return a case of `choicegp describe`."""
    return Command(name, content, says, ("describe", file, *shlex.split(options)), file)


X = np.array([[1.0], [2.0], [3.0]])
NAMED = pd.DataFrame({"price": [1.0, 2.0, 3.0]}, index=["pen", "ink", "cap"])
DATA = ChoiceData.from_sets(X, [[0, 1], [1, 2], [0, 2]], [[0], [1], [0, 2]])
PARQUET = "choices.parquet"
EXCEL = "choices.xlsx"
SEMICOLONS = GOOD.replace(",", ";")
WIDE_OPTIONS = "--wide --alternatives A,B --features cost --set-id page"

of = ChoiceData.from_sets
sets = partial(ChoiceData.from_sets, X)
ids = partial(ChoiceData.from_sets, NAMED, by="id")
pairs = partial(ChoiceData.from_pairs, X)
utilities = partial(ChoiceData.from_utilities, X)
long = ChoiceData.from_long

HOSTILE: list[Command | Call] = [
    # Not a table at all
    table("empty file", b"", "is empty"),
    table("only white space", " \n\n\t\n", "is empty"),
    table("only a byte order mark", b"\xef\xbb\xbf", "is empty"),
    table("only a header", HEADER, "has a header but no rows"),
    table("header and blank lines", HEADER + "\n\n,,,,\n", "has a header but no rows"),
    table("a picture", PNG, "is not text"),
    table("gzip named csv", lambda folder: inputs.gzip_as(folder, FILE), "is a gzip file, not text"),
    table("zip named csv", b"PK\x03\x04" + bytes(40), "is a spreadsheet or zip file, not text"),
    table("Parquet named csv", b"PAR1" + bytes(40) + b"PAR1", "is a Parquet file, not text"),
    table("text named gz", GOOD, "is not a readable gzip file", file="choices.csv.gz"),
    table("truncated gzip", inputs.truncated_gzip, "is not a readable gzip file", file="choices.csv.gz"),
    table("CSV named Parquet", GOOD, "is not a readable Parquet file", file=PARQUET),
    table("truncated Parquet", inputs.truncated_parquet, "is not a readable Parquet file", file=PARQUET),
    table("bytes as text", inputs.parquet_with_bytes_as_text, "is not a readable Parquet file", file=PARQUET),
    table("damaged Parquet", inputs.damaged_parquet, "is not a readable Parquet file", file=PARQUET),
    table("four bytes of Parquet", b"PAR1", "is not a readable Parquet file", file=PARQUET),
    table("NUL bytes", swap("red\n1,ink", "r\0d\n1,ink"), "is not text: it has a NUL byte"),
    table("latin-1", GOOD.replace("red", "röd").encode("latin-1"), "is not in UTF-8: byte 0xf6"),
    table("half of UTF-16", GOOD.encode("utf-16")[:-1], "begins like UTF-16 but is not"),
    table("text named Excel", GOOD, "is not a readable Excel file", file=EXCEL),
    table("damaged Excel", inputs.damaged_excel, "is not a readable Excel file", file=EXCEL),
    table("zip named Excel", inputs.zip_without_sheets, "is not a readable Excel file", file=EXCEL),
    table("1e9 bytes in an Excel file", inputs.excel_bomb, "more than the limit", file=EXCEL),
    table("Excel without rows", inputs.excel(frame()[:0]), "has a header but no rows", file=EXCEL),
    table("UTF-16 without a mark", GOOD.encode("utf-16-le"), "is not text: it has a NUL byte at position 1"),
    table("UTF-8 cut in a letter", GOOD.encode() + "é".encode()[:1], "is not in UTF-8"),
    table("JSON", '{"shown": [[1, 2]],\n "chosen": [[1]]}\n', "is a JSON file, not text"),
    # Paths
    Command("missing file", None, "there is no file nowhere.csv", ("describe", "nowhere.csv")),
    Command("a folder", None, "is a folder", ("describe", ".")),
    Command("a folder named csv", lambda f: (f / FILE).mkdir(), "choices.csv is a folder"),
    Command("a file as a folder", GOOD, "choices.csv/x.csv", ("describe", f"{FILE}/x.csv")),
    Command("no suffix", GOOD, "the suffix must name the format", ("describe", "choices"), "choices"),
    Command("unknown suffix", GOOD, "one of .csv, .tsv", ("describe", "choices.ods"), "choices.ods"),
    Command("empty name", None, "a file name is needed; got ''", ("describe", "")),
    Command("endless name", None, "File name too long", ("describe", "x" * 5000 + ".csv")),
    # The shape of the table
    table("a short row", swap("1,ink,0,5,blue", "1,ink,0,5"), "row 3: the row has 4 cells, but the header has 5"),
    table("a long row", swap("1,ink,0,5,blue", "1,ink,0,5,blue,1"), "row 3: the row has 6 cells"),
    table("unclear thousands", SEMICOLONS.replace(";3;", ";1.549;"), "--decimal . or --decimal ,"),
    table("commas in a tsv", GOOD, "seem to be separated by ','", file="choices.tsv"),
    table("column twice", swap("colour", "price"), "the column name 'price' appears twice"),
    table("column without a name", swap("price", ""), "column 4 has no name"),
    table("blank header", "\n" + GOOD, "the first row must hold the column names"),
    table("no header", "7,pen,1,3,red\n7,ink,0,5,red\n", "there is no column 'choice_id'"),
    table("Parquet column twice", inputs.parquet_with_columns_twice, "'price' appears twice", file=PARQUET),
    table("Parquet without rows", parquet(frame()[:0]), "but no rows", file=PARQUET),
    table("missing column", swap("choice_id", "page"), "there is no column 'choice_id' (set_id)"),
    table("no flags", swap("alt_id,choice", "alt_id,kept"), "there is no column 'choice' (chosen)"),
    table("no features", "choice_id,alt_id,choice\n1,a,1\n1,b,0\n", "there is no feature column"),
    table("open quotation", swap("1,pen,1,3,red", '1,"pen,1,3,red'), "never closed"),
    table("letters after a quotation", swap("1,pen,1,3,red", '1,"p"en,1,3,red'), "row 2"),
    table("a cell of 1e9 bytes", inputs.endless_line, "row 2 is longer than"),
    table("1e9 bytes in a gzip", inputs.gzip_bomb, "row 2 is longer than", file="choices.csv.gz"),
    table("4e8 bytes of rows in a gzip", inputs.gzip_bomb_of_rows, "unpacks to more than", file="choices.csv.gz"),
    table("a file without an end", inputs.link_to_zeros, "is a device"),
    table("a long cell", inputs.long_cell, "row 5: a cell is longer than"),
    table("a long quoted cell", partial(inputs.long_cell, quote='"'), "row 5: a quotation mark is never"),
    table("many columns of one name", partial(inputs.many_columns, n=20_000, last="x0"), "'x0' appears twice"),
    # Cells
    table("an infinity", swap("1,ink,0,5", "1,ink,0,inf"), "feature 'price' is not finite (inf)"),
    table("beyond floats", swap("1,ink,0,5", "1,ink,0,1e400"), "feature 'price' is not finite"),
    table("enormous whole number", swap("1,ink,0,5", f"1,ink,0,1{'0' * 400}"), "'price' is not finite"),
    table("NaN", swap("1,ink,0,5", "1,ink,0,NaN"), "set 1, object 'ink': feature 'price' is missing"),
    table("missing number", swap("1,ink,0,5", "1,ink,0,"), "feature 'price' is missing"),
    table("missing word", swap("1,ink,0,5,blue", "1,ink,0,5,"), "feature 'colour' is missing"),
    table("blank word", swap("1,ink,0,5,blue", '1,ink,0,5,"  "'), "feature 'colour' is missing"),
    table("word among numbers", swap("1,ink,0,5", "1,ink,0,five"), "must be a number like most"),
    table("decimal commas", swap("1,ink,0,5", '1,ink,0,"5,5"'), "numbers stored as text such as '5,5'"),
    table("complex", swap("1,ink,0,5", "1,ink,0,5+2j"), "must be a number like most of its column"),
    table("a column of nothing", column("size", "", "", "", ""), "4 defects"),
    table("missing set", swap("1,ink,", ",ink,"), "row 3: the set's id is missing"),
    table("missing object", swap("1,ink,", "1,,"), "row 3, set 1: the object's id is missing"),
    table("missing flag", GOOD + "3,ink,1,5,red\n3,pen,,3,red\n", "flag that is not 0/1: it is missing"),
    table("flag 2", swap("1,ink,0", "1,ink,2"), "row 3, set 1, object 'ink': the choice has a flag"),
    table("flag -1", swap("1,ink,0", "1,ink,-1"), "flag that is not 0/1: -1"),
    table("flag 0.5", swap("1,ink,0", "1,ink,0.5"), "flag that is not 0/1: 0.5"),
    table("flag yes", swap("1,ink,0", "1,ink,yes"), "flag that is not 0/1: 'yes'"),
    table("endless flag", swap("1,ink,0", "1,ink," + "y" * 100_000), "flag that is not 0/1"),
    # Sets
    table("nothing chosen", swap("1,pen,1", "1,pen,0"), "set 1: nothing is chosen from the set"),
    table("shown twice", swap("1,ink", "1,pen"), "object 'pen': the object is shown twice in the set"),
    table("two prices in a set", swap("2,cap", "2,pen"), "shown twice in the set"),
    table("equal rows", GOOD + "2,cap,1,4,red\n", "row 6, set 2, object 'cap': the object is shown twice"),
    table("a million objects in a set", inputs.many_objects, "shows 1000000 objects", file=PARQUET),
    table("100,000 defects", inputs.many_defects, "100000 defects", file=PARQUET),
    table("skip leaves nothing", GOOD.replace(",1,", ",0,"), "no set is without defects", "--on-error skip"),
    table("chosen but absent", column("in", 0, 1, 1, 1), "chosen but was not shown", "--available in"),
    table("nothing there", column("in", 0, 0, 0, 0), "no row shows", "--available in --no-choices"),
    table("a set not there", column("in", 0, 0, 1, 1), "shows no object", "--available in --no-choices"),
    table("availability 3", column("in", 1, 3, 1, 1), "the availability has a flag", "--available in"),
    table("two respondents", column("who", "a", "b", "a", "a"), "respondent differs", "--respondent who"),
    table("missing respondent", column("who", "", "", "a", "a"), "respondent is missing", "--respondent who"),
    table("negative weight", column("w", -1, -1, 1, 1), "weight must be finite and above 0", "--weight w"),
    table("infinite weight", column("w", "inf", "inf", 1, 1), "weight must be finite", "--weight w"),
    table("weight in words", column("w", "big", "big", 1, 1), "must be a number, not 'big'", "--weight w"),
    table("two weights", column("w", 2, 3, 1, 1), "weight differs inside the set", "--weight w"),
    # Parquet holds what CSV cannot
    table("dates", parquet(frame(day=pd.Timestamp("2024-02-29"))), "dates or times", file=PARQUET),
    table("lists in cells", parquet(frame(size=[[1, 2]] * 4)), "'size' holds lists", file=PARQUET),
    table("bytes in cells", parquet(frame(size=[b"\xff"] * 4)), "'size' holds a bytes", file=PARQUET),
    table("numbers as text", parquet(frame(size=["1", "2", "3", "4"])), "stored as text", file=PARQUET),
    table("lists as ids", parquet(frame(alt_id=[[1], [2], [3], [4]])), "'alt_id' holds lists", file=PARQUET),
    # Numbers, kinds and limits
    table("number of words", GOOD, "column 'colour' holds no numbers", "--number colour"),
    table("number of no column", GOOD, "no feature column 'size' (numbers)", "--number size"),
    table("number of two units", column("size", "1 kg", "2 lb", "1 kg", "3 kg"), "several units", "--number size"),
    table("unclear number", column("size", '"1,234 g"', "2 g", "1 g", "3 g"), "--decimal .", "--number size"),
    table("number empty", GOOD, "--number: ',' holds an empty name", "--number ,"),
    table("decimal point of view", GOOD, "decimal must be '.' or ','", "--decimal point"),
    table("kind of no column", GOOD, "there is no column 'bets' (kind)", "--kind bets"),
    table("kind of colours", GOOD, "3 defects", "--kind colour"),
    table("best of several", GOOD, "2 objects are marked where one is the best", "--kind best"),
    table("ranks from flags", GOOD, "defects", "--kind ranking"),
    table("ratings that are equal", GOOD.replace(",0,", ",1,"), "no two ratings", "--kind rating"),
    table("best without a worst", GOOD, "defects", "--kind best-worst"),
    table("at most one", GOOD, "use --kind best", "--at-most 1"),
    table("at most none", GOOD, "at_most must be a whole number of at least 1", "--at-most 0"),
    table("at most two of the best", GOOD, "it does not go with 'best'", "--at-most 2 --kind best"),
    table("all missing as a level", column("size", "", "", "", ""), "is missing everywhere", "--missing level"),
    table("set id of nothing", GOOD, "--set-id: ',' holds an empty name", "--set-id ,"),
    table("set id twice", GOOD, "cannot be both set_id and set_id", "--set-id choice_id,choice_id"),
    table("totals", GOOD + "Total,,3,15,\n", "the last row holds totals"),
    # Wide tables
    table("wide: unknown choice", inputs.ONE_CHOSEN + "3,1,2,C\n", "is 'C'; the alternatives are 'A'", WIDE_OPTIONS),
    table("wide: no choice", inputs.ONE_CHOSEN + "3,1,2,\n", "the chosen alternative is missing", WIDE_OPTIONS),
    table("wide: wrong alternative", WIDE, "'cost_C'", "--wide --alternatives A,C --features cost"),
    table("wide: set twice", swap("2,4,2", "1,4,2", WIDE), "the set has a second row", WIDE_OPTIONS),
    table("wide: nothing chosen", swap("4,2,0,1", "4,2,0,0", WIDE), "nothing is chosen", WIDE_OPTIONS),
    table("wide: half an alternative", swap("1,3,5,1,0", "1,3,,1,1", WIDE), "not shown", WIDE_OPTIONS),
    table("wide: no alternatives", WIDE, "needs --alternatives", "--wide --features cost"),
    table("wide: no features", WIDE, "a wide table needs", "--wide --alternatives A,B"),
    table("wide: without saying so", WIDE, "add --wide", "--alternatives A,B"),
    table("wide: an empty name", WIDE, "empty name", "--wide --alternatives A,,B --features cost"),
    # Options
    table("unknown feature", GOOD, "there is no feature column 'size'", "--features price,size"),
    table("feature twice", GOOD, "'price' appears twice", "--features price,price"),
    table("feature and flag", GOOD, "both a feature and something else", "--features price,choice"),
    table("objects as respondents", GOOD, "cannot be both object_id and respondent", "--respondent alt_id"),
    table("set and object in one", GOOD, "cannot be both set_id and object_id", "--set-id alt_id"),
    table("flag and no choices", GOOD, "contradict", "--chosen choice --no-choices"),
    table("id and no id", GOOD, "contradict", "--object-id alt_id --no-object-id"),
    table("on-error maybe", GOOD, "'--on-error': 'maybe' is not one of 'raise', 'skip'", "--on-error maybe"),
    table("unknown option", GOOD, "No such option: --colour", "--colour"),
    table("two files", GOOD, "extra argument", "more.csv"),
    Command("no file", None, "Missing argument 'FILE'", ("describe",)),
    Command("unknown command", None, "No such command 'descibe'", ("descibe", FILE)),
    Command("seed in words", None, "Invalid value for '--seed'", ("demo", "--seed", "seven")),
    Command("seed below 0", None, "Invalid value for '--seed'", ("demo", "--seed", "-1")),
    # Output
    Command("demo into a file", GOOD, "cannot make the folder", ("demo", "--output", FILE)),
    Command("demo below a file", GOOD, "cannot make the folder", ("demo", "--output", f"{FILE}/demo")),
    Command("fit without an output", GOOD, "the model needs a file", ("fit", FILE)),
    Command("fit into no folder", GOOD, "there is no folder", ("fit", FILE, "-o", "no/model.cgp")),
    Command("fit below a file", GOOD, "there is no folder", ("fit", FILE, "-o", f"{FILE}/model.cgp")),
    Command("fit into a folder", GOOD, "is a folder", ("fit", FILE, "-o", ".")),
    Command("fit with an endless name", GOOD, "cannot write", ("fit", FILE, "-o", "x" * 250 + ".cgp")),
    Command("fit without choices", GOOD, "needs data with choices", ("fit", FILE, "-o", "m", "--no-choices")),
    Command("fit with no utilities", GOOD, "--utilities", ("fit", FILE, "-o", "m", "-d", "0")),
    Command("fit with an unknown kernel", GOOD, "unknown kernel", ("fit", FILE, "-o", "m", "--kernel", "nope")),
    Command("fit with a lapse in words", GOOD, "--lapse takes", ("fit", FILE, "-o", "m", "--lapse", "often")),
    Command("fit with a lapse above 1", GOOD, "lapse must be", ("fit", FILE, "-o", "m", "--lapse", "1.5")),
    Command("fit by no inference", GOOD, "inference must be", ("fit", FILE, "-o", "m", "--inference", "x")),
    Command("predict by no model", GOOD, "no such model file", ("predict", "no.cgp", FILE)),
    Command("predict by a table", GOOD, "not a choicegp model", ("predict", FILE, FILE)),
    Command("plot of a table", GOOD, "not a choicegp model", ("plot", FILE)),
    Command("plot of nothing", None, "no such model file", ("plot", "no.cgp")),
    # Objects
    Call("X None", lambda: of(None, [[0, 1]]), "X must be an array or a DataFrame"),
    Call("X text", lambda: of("X", [[0, 1]]), "X must be an array or a DataFrame"),
    Call("X dict", lambda: of({"a": [1]}, [[0]]), "X must be an array or a DataFrame"),
    Call("X number", lambda: of(3, [[0]]), "X must have two dimensions"),
    Call("X flat", lambda: of([1.0, 2.0], [[0, 1]]), "X must have two dimensions"),
    Call("X deep", lambda: of(np.zeros((2, 2, 2)), [[0, 1]]), "two dimensions"),
    Call("X ragged", lambda: of([[1.0], [2.0, 3.0]], [[0, 1]]), "its rows differ in length"),
    Call("X empty", lambda: of(np.zeros((0, 2)), [[0]]), "there are no objects"),
    Call("X without columns", lambda: of(np.zeros((2, 0)), [[0]]), "at least one feature"),
    Call("X frame without columns", lambda: of(pd.DataFrame(index=[1, 2]), [[0]]), "at least one feature"),
    Call("X complex", lambda: of(X * 1j, [[0, 1]]), "must hold real numbers"),
    Call("X words", lambda: of([["a"], ["b"]], [[0, 1]]), "must hold real numbers"),
    Call("X objects", lambda: of(X.astype(object), [[0, 1]]), "must hold real numbers"),
    Call("X dates", lambda: of(np.array([["2024-01-01"]], "M8[D]"), [[0]]), "real numbers"),
    Call("X masked", lambda: of(np.ma.masked_greater(X, 2), [[0, 2]]), "is missing"),
    Call("X NaN", lambda: of([[1.0], [np.nan]], [[0, 1]]), "object 1: feature 'x0' is missing"),
    Call("X infinite", lambda: of([[1.0], [np.inf]], [[0, 1]]), "is not finite (inf)"),
    Call("X enormous", lambda: of([[1.0], [10**400]], [[0, 1]]), "X must hold real numbers"),
    Call("ids too few", lambda: sets([[0, 1]], object_ids=["a"]), "1 ids but there are 3 objects"),
    Call("ids a word", lambda: sets([[0, 1]], object_ids="abc"), "object_ids must be a sequence"),
    Call("ids a number", lambda: sets([[0, 1]], object_ids=3), "object_ids must be a sequence"),
    Call("ids nested", lambda: sets([[0, 1]], object_ids=[[1], [2], [3]]), "lists"),
    Call("ids missing", lambda: sets([[0, 1]], object_ids=["a", None, "c"]), "has no id"),
    Call(
        "ids of two levels",
        lambda: of(NAMED.set_axis(pd.MultiIndex.from_product([["a"], [1, 2, 3]])), [[0, 1]]),
        "several levels",
    ),
    Call("columns of one name", lambda: of(NAMED[["price", "price"]], [[0]]), "'price' appears twice"),
    # Sets
    Call("shown None", lambda: sets(None), "shown must be a list"),
    Call("shown number", lambda: sets(3), "shown must be a list"),
    Call("shown word", lambda: sets("ab"), "shown must be a list"),
    Call("shown dict", lambda: sets({0: [0, 1]}), "shown must be a list"),
    Call("shown numbers", lambda: sets([0, 1]), "shown[0] must be a list of objects, not an int"),
    Call("shown words", lambda: ids(["pen", "ink"]), "shown[0] must be a list of objects, not a str"),
    Call("shown sets", lambda: sets([{0, 1}]), "its order is not fixed"),
    Call("shown nested", lambda: sets([[[0, 1]], [[1, 2]]]), "shown[0] holds [0, 1] (a list)"),
    Call("shown deep", lambda: sets(np.zeros((2, 2, 2), int)), "shown must be a list"),
    Call("no sets", lambda: sets([]), "there are no sets"),
    Call("no sets in an array", lambda: sets(np.zeros((0, 2), int)), "there are no sets"),
    Call("an empty set", lambda: sets([[0, 1], []]), "set 1: the set shows no object"),
    Call("only empty sets", lambda: sets([[], []]), "2 defects"),
    Call("rows as floats", lambda: sets([[0.0, 1.0]]), "shown[0] holds 0.0 (a float)"),
    Call("rows NaN", lambda: sets([[0, np.nan]]), "shown[0] holds nan"),
    Call("rows None", lambda: sets([[0, 1], [0, None]]), "shown[1] holds nan"),
    Call("rows as words", lambda: sets([["0", "1"]]), "use by='id' for ids"),
    Call("rows as a mask", lambda: sets([[True, False, True]]), "shown[0] holds True (a bool)"),
    Call("rows below 0", lambda: sets([[0, -1]]), "object -1: the object is shown, but X has only rows 0 to 2"),
    Call("rows too high", lambda: sets([[0, 3]]), "object 3: the object is shown, but X has only rows 0 to 2"),
    Call("rows enormous", lambda: sets([[0, 10**400]]), "shown must hold row numbers of X"),
    Call("rows beyond 63 bits", lambda: sets([[0, 2**63]]), "object 9223372036854775808: the object is shown, but"),
    Call("rows masked", lambda: sets(np.ma.masked_equal([[0, 1]], 1)), "shown[0] holds nan"),
    Call("a row twice", lambda: sets([[0, 1, 0]]), "the object is shown twice in the set"),
    Call("unknown id", lambda: ids([["pen", "cup"]]), "object 'cup': the object is shown, but no object has this id"),
    Call("id None", lambda: ids([["pen", None]]), "an id among the shown is missing"),
    Call("ids for sets that repeat", lambda: sets([[0, 1]], by="id", object_ids=[1, 1, 2]), "these repeat"),
    Call("by name", lambda: sets([[0, 1]], by="name"), "by must be 'row' or 'id'"),
    # Choices
    Call("too few choices", lambda: sets([[0, 1], [1, 2]], [[0]]), "shown has 2 sets but chosen has 1"),
    Call("choice not a list", lambda: sets([[0, 1]], [0]), "chosen[0] must be a list"),
    Call("choices as flags", lambda: sets([[0, 1]], [[True, False]]), "chosen[0] holds True"),
    Call("nothing chosen", lambda: sets([[0, 1]], [[]]), "set 0: nothing is chosen"),
    Call("chosen, not shown", lambda: sets([[0, 1]], [[2]]), "set 0, object 2: the object is chosen but"),
    Call("chosen twice", lambda: sets([[0, 1]], [[0, 0]]), "listed twice among the chosen"),
    Call("chosen unknown", lambda: sets([[0, 1]], [[9]]), "the object is chosen, but X has only rows"),
    # What belongs to the sets
    Call("respondents too few", lambda: sets([[0, 1], [1, 2]], respondents=["a"]), "respondents has 1 ids"),
    Call("respondents a word", lambda: sets([[0, 1]], respondents="a"), "respondents must be a sequence"),
    Call("respondent missing", lambda: sets([[0, 1]], respondents=[None]), "the respondent is missing"),
    Call("weights below 0", lambda: sets([[0, 1]], weights=[-1]), "must be finite and above 0, not -1.0"),
    Call("weights NaN", lambda: sets([[0, 1]], weights=[np.nan]), "must be finite and above 0"),
    Call("weights too many", lambda: sets([[0, 1]], weights=[1, 2]), "weights has 2 numbers but there are 1"),
    Call("weights a number", lambda: sets([[0, 1]], weights=2), "weights must be a sequence of numbers"),
    Call("weights in words", lambda: sets([[0, 1]], weights=["a"]), "weights must hold real numbers"),
    Call("weights enormous", lambda: sets([[0, 1]], weights=[10**400]), "weights must hold real numbers"),
    Call("set ids that repeat", lambda: sets([[0, 1], [1, 2]], set_ids=[1, 1]), "every set needs an id"),
    Call("set id missing", lambda: sets([[0, 1]], set_ids=[None]), "no id at position 0"),
    Call("on_error maybe", lambda: sets([[0, 1]], on_error="maybe"), "on_error must be 'raise' or 'skip'"),
    Call("on_error None", lambda: sets([[0, 1]], on_error=None), "on_error must be 'raise' or 'skip'"),
    Call("encoding a dict", lambda: sets([[0, 1]], encoding={}), "encoding must be a FeatureEncoding"),
    # Pairs and utilities
    Call("pairs of equals", lambda: pairs([[0, 0]]), "the object is shown twice in the set"),
    Call("pairs of three", lambda: pairs([[0, 1, 2]]), "pairs must have two columns"),
    Call("pairs flat", lambda: pairs([0, 1]), "pairs[0] must be a list"),
    Call("pairs None", lambda: pairs(None), "pairs must be a list"),
    Call("no pairs", lambda: pairs([]), "there are no sets"),
    Call("pairs of floats", lambda: pairs(np.array([[0.0, 1.0]])), "instead of a row number of X"),
    Call("utilities too few", lambda: utilities([[1.0]], [[0, 1]]), "U has 1 rows but there are 3 objects"),
    Call("utilities flat", lambda: utilities([1.0, 2.0, 3.0], [[0, 1]]), "one row per object"),
    Call("utilities NaN", lambda: utilities([[1.0], [np.nan], [3.0]], [[0, 1]]), "U holds a value that is"),
    Call("utilities None", lambda: utilities(None, [[0, 1]]), "U must hold real numbers, but it is None"),
    Call("utilities in words", lambda: utilities([["a"], ["b"], ["c"]], [[0, 1]]), "U must hold real numbers"),
    Call("ties maybe", lambda: utilities(X, [[0, 1]], ties="maybe"), "ties must be 'weak' or 'strict'"),
    # Other questions
    Call("best a word", lambda: ChoiceData.from_best_worst(X, [[0, 1]], "ab", [1]), "best must be a sequence"),
    Call("best is worst", lambda: ChoiceData.from_best_worst(X, [[0, 1]], [0], [0]), "both the best and the worst"),
    Call("worst not shown", lambda: ChoiceData.from_best_worst(X, [[0, 1]], [0], [2]), "chosen but was not shown"),
    Call("ranked twice", lambda: ChoiceData.from_rankings(X, [[0, 0, 1]]), "shown twice in the set"),
    Call("ranked, not shown", lambda: ChoiceData.from_rankings(X, [[2]], [[0, 1]]), "chosen but was not shown"),
    Call("ranked nothing", lambda: ChoiceData.from_rankings(X, [[]], [[0, 1]]), "no object of the set has a rank"),
    Call("ratings flat", lambda: ChoiceData.from_ratings(X, [1, 2, 3]), "ratings must have two dimensions"),
    Call("ratings of nothing", lambda: ChoiceData.from_ratings(X, [[np.nan] * 3]), "the set shows no object"),
    Call("ratings None", lambda: ChoiceData.from_ratings(X, None), "ratings must be an array"),
    Call("answers in words", lambda: ChoiceData.from_yes_no(X, [0], ["perhaps"]), "must be yes or no"),
    Call("answers too few", lambda: ChoiceData.from_yes_no(X, [0, 1], [1]), "2 objects but 1 answers"),
    Call("kinds unknown", lambda: sets([[0, 1]], [[0]], kinds="most"), "must be one of keep, best, worst, not 'most'"),
    Call("at most half", lambda: sets([[0, 1]], [[0]], at_most=0.5), "at_most must be a whole number"),
    Call("join numbers", lambda: ChoiceData.concat([1, 2]), "but it holds an int"),
    Call("join features", lambda: ChoiceData.concat([DATA, ids([["pen", "ink"]], [["pen"]])]), "different features"),
    # Frames
    Call("frame None", lambda: long(None), "a DataFrame or the path"),
    Call("frame a list", lambda: long([[1, 2]]), "a DataFrame or the path"),
    Call("frame without rows", lambda: long(frame()[:0]), "has no rows"),
    Call("frame with columns twice", lambda: long(frame()[["price", "price"]]), "same name"),
    Call("frame with complex", lambda: long(frame(price=[1j, 2, 3, 4])), "complex numbers"),
    Call("frame with dates", lambda: long(frame(price=pd.Timestamp(0))), "dates or times"),
    Call("frame with lists", lambda: long(frame(price=[[1], [2], [3], [4]])), "'price' holds lists"),
    Call("frame with enormous", lambda: long(frame(price=[10**400, 1, 2, 3])), "'price' is not finite (inf)"),
    Call("frame with objects", lambda: long(frame(price=[object()] * 4)), "'price' holds an object"),
    Call("frame with mixtures", lambda: long(frame(price=[1, "a", 2.5, 3])), "row 1: feature 'price' must be"),
    Call("frame with lists as sets", lambda: long(frame(choice_id=[[1]] * 4)), "'choice_id' holds lists"),
    Call("frame with lists as flags", lambda: long(frame(choice=[[1]] * 4)), "'choice' holds lists"),
    Call("set_id None", lambda: long(frame(), set_id=None), "set_id must name the column"),
    Call("set_id a set", lambda: long(frame(), set_id={"choice_id"}), "set_id must be the name"),
    Call("set_id of nothing", lambda: long(frame(), set_id=[]), "set_id is empty"),
    Call("set_id of a list", lambda: long(frame(), set_id=[["choice_id"], "price"]), "set_id must be the name"),
    Call("features a number", lambda: long(frame(), features=3), "features must be a list of names"),
    Call("no features", lambda: long(frame(), features=[]), "features is empty"),
    Call(
        "wide without alternatives",
        lambda: ChoiceData.from_wide(frame(), alternatives=[], features=["price"]),
        "alternatives is empty",
    ),
    # Taking and splitting
    Call("split 0", lambda: DATA.split(0), "test_size must be from 1 to 2 sets"),
    Call("split all", lambda: DATA.split(3), "test_size must be from 1 to 2 sets"),
    Call("split below 0", lambda: DATA.split(-0.5), "a share between 0 and 1"),
    Call("split 1.5", lambda: DATA.split(1.5), "a share between 0 and 1"),
    Call("split NaN", lambda: DATA.split(np.nan), "a share between 0 and 1"),
    Call("split True", lambda: DATA.split(True), "not True"),
    Call("split in words", lambda: DATA.split("half"), "not 'half'"),
    Call("split None", lambda: DATA.split(None), "not None"),
    Call("split by nobody", lambda: DATA.split(0.5, by="respondent"), "have no respondents"),
    Call("split by colour", lambda: DATA.split(0.5, by="colour"), "by must be 'set' or 'respondent'"),
    Call("random state below 0", lambda: DATA.split(0.5, random_state=-1), "random_state must be"),
    Call("random state in words", lambda: DATA.split(0.5, random_state="x"), "random_state must be"),
    Call("random state 1.5", lambda: DATA.split(0.5, random_state=1.5), "random_state must be"),
    Call("random state True", lambda: DATA.split(0.5, random_state=True), "random_state must be"),
    Call("take nothing", lambda: DATA.take([]), "no sets are selected"),
    Call("take what is not there", lambda: DATA.take([3]), "there is no set at position 3"),
    Call("take floats", lambda: DATA.take([0.5]), "whole numbers or a mask"),
    Call("take a word", lambda: DATA.take("first"), "not by 'first'"),
    Call("take a short mask", lambda: DATA.take([True]), "the mask has 1 entries but there are 3 sets"),
    Call("as an array", lambda: np.asarray(DATA), "choice data are not an array"),
    # Writing
    Call("write nowhere", lambda: DATA.write("no/choices.csv"), "there is no folder no"),
    Call("write below a file", lambda: (Path("a").touch(), DATA.write("a/b.csv")), "there is no folder a"),
    Call("write to a folder", lambda: DATA.write("."), "is a folder"),
    Call("write without a suffix", lambda: DATA.write("choices"), "the suffix must name the format"),
    Call("write to a number", lambda: DATA.write(3), "a file name is needed; got 3"),
    Call("write a NUL", lambda: DATA.write("a\0.csv"), "a file name is needed"),
    Call("columns that clash", lambda: DATA.to_long(chosen="x0"), "'x0' has the name of another column"),
    # Data sets
    Call("laptops none", lambda: datasets.laptops(0), "n_objects must be a whole number"),
    Call("laptops by words", lambda: datasets.laptops(5, random_state="x"), "random_state must be a whole"),
    Call("alice without a catalogue", lambda: datasets.alice(NAMED), "lacks what Alice looks at"),
    Call("alice in error", lambda: datasets.alice_choices(error=2), "error, a probability, must be a number"),
    Call("data folder missing", lambda: datasets.load_slump("nowhere"), "slump.csv is not in nowhere"),
]

# Unusual but right: the file, and what its description must contain.
HARMLESS = [
    table("as it should be", GOOD, "2 sets of 2 objects"),
    table("byte order mark", b"\xef\xbb\xbf" + GOOD.encode(), "2 sets of 2 objects"),
    table("Windows line ends", GOOD.replace("\n", "\r\n"), "2 sets of 2 objects"),
    table("old line ends", GOOD.replace("\n", "\r"), "2 sets of 2 objects"),
    table("no last line end", GOOD.rstrip("\n"), "2 sets of 2 objects"),
    table("blank lines", GOOD.replace("\n2,", "\n\n2,") + "\n\n,,,,\n", "2 sets of 2 objects"),
    table("quotation marks", GOOD.replace("red", '"red"'), "2 features: price, colour=red"),
    table("line ends in quotation marks", GOOD.replace("red", '"dark\nred"'), "2 sets of 2 objects"),
    table("commas in quotation marks", GOOD.replace("red", '"red, dark"'), "2 sets of 2 objects"),
    table("spaces after commas", GOOD.replace(",", ", "), "2 sets of 2 objects"),
    table("other alphabets", GOOD.replace("red", "красный").replace("pen", "筆"), "2 sets of 2 objects"),
    table("flags in words", GOOD.replace(",1,", ",true,").replace(",0,", ",false,"), "75.0% of the shown"),
    table("tabs", GOOD.replace(",", "\t"), "2 sets of 2 objects", file="choices.tsv"),
    table("semicolons", SEMICOLONS, "2 sets of 2 objects"),
    table("UTF-16", GOOD.encode("utf-16"), "2 sets of 2 objects"),
    table("Excel", inputs.excel(frame()), "2 sets of 2 objects", file=EXCEL),
    table("flags and blanks", swap("1,ink,0", "1,ink,"), "75.0% of the shown"),
    table("gzip", partial(inputs.gzip_as, name="choices.csv.gz"), "2 sets of 2", file="choices.csv.gz"),
    table("capital suffix", GOOD, "2 sets of 2 objects", file="CHOICES.CSV"),
    table("Parquet", parquet(frame()), "2 sets of 2 objects", file=PARQUET),
    table("rows in any order", HEADER + "2,pen,1,3,r\n1,pen,1,3,r\n2,cap,1,4,r\n1,ink,0,5,r\n", "2 sets of 2"),
    table("ids with zeros", GOOD.replace("1,", "001,"), "2 sets of 2 objects"),
    table("a set of one", GOOD + "3,pen,1,3,red\n", "3 sets of 1 to 2 objects"),
    table("3,000 columns", inputs.many_columns, "2 objects with 3,000 features"),
    table("no ids of objects", GOOD, "3 objects", "--no-object-id --features price"),
    table("no choices", GOOD, "The data have no choices", "--no-choices --features price"),
    table("a wide table", WIDE, "2 sets of 2 objects", WIDE_OPTIONS),
    table(
        "a column with commas",
        swap("price", '"price, eur"'),
        "1 feature: price, eur",
        "--features '\"price, eur\"'",
    ),
    table("defects skipped", swap("1,ink,0", "1,ink,2"), "1 set of 2 objects", "--on-error skip"),
]

"""What the pages say is true: their Python blocks, their commands and all doctests run."""

import ast
import contextlib
import doctest
import importlib
import io
import itertools
import pkgutil
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import choicegp

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in PAGES if "_build" not in page.parts]
MODULES = ["choicegp", *(module.name for module in pkgutil.walk_packages(choicegp.__path__, "choicegp."))]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
DOCTEST = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

FENCE = re.compile(r"^```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)

RULES = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
GLOSSARY = RULES.partition("| write | instead of |\n")[2].partition("\n\n")[0]
_PHRASES = [phrase.strip(' ".') for row in GLOSSARY.splitlines()[1:] for phrase in row.split("|")[2].split(",")]
_PATTERNS = [r"\s+".join(map(re.escape, phrase.split())) for phrase in _PHRASES]  # a line may end in a phrase
AVOIDED = re.compile(rf"\b({'|'.join(_PATTERNS)})\b", re.IGNORECASE)


class Block(NamedTuple):
    """One fenced block of a page: its language, its text and the line before its first."""

    language: str
    text: str
    line: int


def blocks_of(page: Path, *languages: str) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    blocks = (Block(m["language"], m["text"], text.count("\n", 0, m.start("text"))) for m in FENCE.finditer(text))
    return [block for block in blocks if block.language in languages]


def run_page(page: Path, names: dict[str, object]) -> None:
    """Run the Python blocks of a page in one namespace; a `text` block is what the block before it prints."""
    printed = io.StringIO()
    for block in blocks_of(page, "python", "pycon", "text"):
        if block.language == "text":
            same = doctest.OutputChecker().check_output(block.text, printed.getvalue(), DOCTEST)
            assert same, f"{page.name}, line {block.line}: the output is\n{printed.getvalue()}"
        else:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                run_block(block, page, names)


def run_block(block: Block, page: Path, names: dict[str, object]) -> None:
    """Run a block in `names`; a `pycon` block must also print what it shows."""
    if block.language == "pycon":
        test = doctest.DocTestParser().get_doctest(block.text, names, page.name, str(page), block.line)
        test.globs = names  # get_doctest copies them; later blocks must see what this one defines
        doctest.DebugRunner(optionflags=DOCTEST).run(test, clear_globs=False)
    else:  # leading newlines give errors the page's own line numbers
        exec(compile("\n" * block.line + block.text, str(page), "exec"), names)


def commands_of(page: Path) -> list[list[str]]:
    """Return the words of every command shown on a page, without prompts, comments and settings before it."""
    commands = []
    for block in blocks_of(page, "console", "bash", "sh"):
        prompted = block.language == "console"
        for line in block.text.replace("\\\n", " ").splitlines():
            if line.startswith("$ ") or (line.strip() and not prompted):
                words = shlex.split(line.removeprefix("$ "), comments=True)
                commands.append(list(itertools.dropwhile(lambda word: "=" in word, words)))
    return [words for words in commands if words]


def all_commands(program: str) -> list[tuple[str, list[str]]]:
    shown = [(page.name, command) for page in PAGES for command in commands_of(page)]
    return [(name, command[1:]) for name, command in shown if command[0] == program]


@pytest.mark.usefixtures("short_chains")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page(page, {"__name__": "__main__"})


def test_the_readme_begins_with_an_example():
    assert blocks_of(ROOT / "README.md", "python", "pycon")


def test_no_fenced_block_is_overlooked():
    for page in PAGES:
        fences = re.findall(r"^\s*(?:```|~~~)", page.read_text(encoding="utf-8"), re.MULTILINE)
        found = len(FENCE.findall(page.read_text(encoding="utf-8")))
        assert len(fences) == 2 * found, f"{page.name}: a code fence is indented, unclosed or of another kind"


def test_make_targets_on_the_pages_exist():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = all_commands("make")
    assert {"demo", "test"} <= {word for _, words in commands for word in words}
    for page, words in commands:
        wanted = {word for word in words if "=" not in word and not word.startswith("-")}
        assert wanted <= targets, f"{page} names unknown make targets: {wanted - targets}"


def test_make_targets_in_the_text_exist():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        named = set(re.findall(r"`make ([a-z]+)", page.read_text(encoding="utf-8")))
        assert named <= targets, f"{page.name} names unknown make targets: {named - targets}"
        assert named


def test_the_words_to_avoid_are_avoided():
    for page in (*PAGES, ROOT / "CHANGELOG.md"):
        assert AVOIDED.findall(page.read_text(encoding="utf-8")) == [], page.name
    assert AVOIDED.findall(RULES.partition("## The map")[0] + RULES.partition(GLOSSARY)[2]) == []


def texts_of(source: str) -> list[tuple[int, str]]:
    """Return the line and the value of every text in a module: docstrings, messages, help; names are no texts."""
    texts = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)]
    return [(node.lineno, node.value) for node in texts if isinstance(node.value, str)]


@pytest.mark.parametrize("module", SOURCES, ids=lambda module: str(module.relative_to(ROOT / "src")))
def test_the_words_to_avoid_are_avoided_in_docstrings_messages_and_help(module):
    texts = texts_of(module.read_text(encoding="utf-8"))
    assert [(line, found) for line, text in texts for found in AVOIDED.findall(text)] == []


@pytest.mark.parametrize("phrase", ["mend", "goes on", "that of"])
def test_a_word_to_avoid_is_noticed(phrase):
    wrapped = phrase.replace(" ", "\n    ")
    for text in (f"""It's {phrase} x.""", f"""It's {wrapped} x.""", f"""It's {phrase.title()} x."""):
        found = [AVOIDED.findall(text) for _, text in texts_of(f"raise ValueError(f{text!r} 'and {{x}}')")]
        assert sum(map(len, found)) == 1
    assert not AVOIDED.search("amend, which_goes_on, that_of")


def test_choicegp_commands_on_the_pages_exist():
    subcommands = {words[0] for _, words in all_commands("choicegp") if not words[0].startswith("-")}
    start = "import sys; sys.argv[0] = 'choicegp'; from choicegp.apps.cli import main; main()"
    for subcommand in sorted(subcommands):
        ended = subprocess.run(
            [sys.executable, "-c", start, subcommand, "--help"], capture_output=True, text=True, timeout=60
        )
        assert ended.returncode == 0, f"choicegp {subcommand} --help\n{ended.stdout}{ended.stderr}"


@pytest.mark.usefixtures("short_chains")
@pytest.mark.parametrize("name", MODULES)
def test_doctests_pass(name, tmp_path, monkeypatch, capsys):
    module = importlib.import_module(name)
    monkeypatch.chdir(tmp_path)
    failed, _ = doctest.testmod(module, optionflags=DOCTEST)
    assert failed == 0, capsys.readouterr().out


def written(folder: Path, *blocks: str) -> Path:
    page = folder / "page.md"
    page.write_text("".join(f"```{block}\n```\n" for block in blocks))
    return page


def test_the_blocks_of_a_page_share_their_names(tmp_path):
    names: dict[str, object] = {}
    run_page(written(tmp_path, "python\nx = 1", "pycon\n>>> x\n1\n>>> y = 2", "python\nprint(y)", "text\n2"), names)
    assert (names["x"], names["y"]) == (1, 2)


@pytest.mark.parametrize("block", ["python\nassert x == 2", "pycon\n>>> x\n2", "text\n2", "python\nx +"])
def test_a_wrong_block_is_noticed(block, tmp_path):
    with pytest.raises((AssertionError, doctest.DocTestFailure, SyntaxError)):
        run_page(written(tmp_path, "python\nx = 1\nprint(x)", block), {})


def test_an_error_has_the_line_of_the_page(tmp_path):
    with pytest.raises(ZeroDivisionError) as raised:
        run_page(written(tmp_path, "python\nx = 1", "python\n\n1 / 0"), {})
    assert raised.traceback[-1].lineno + 1 == 6


def test_commands_are_found(tmp_path):
    page = written(
        tmp_path,
        "console\n$ choicegp fit a.csv \\\n    --seed 1\nfitted",
        "bash\n# first\nmake demo  # then\nSPEED=1 make test",
    )
    fit = ["choicegp", "fit", "a.csv", "--seed", "1"]
    assert commands_of(page) == [fit, ["make", "demo"], ["make", "test"]]

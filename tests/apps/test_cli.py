"""The command line: quick help, plain words, one line for each thing that goes wrong."""

import contextlib
import os
import re
import signal
import subprocess
import sys

import pandas as pd
import pytest

import choicegp
from choicegp import ChoiceData, ChoiceGP
from choicegp.apps import cli

HEAVY = ("jax", "pandas", "numpy", "scipy", "matplotlib", "sklearn", "pyarrow", "rich")
PROGRAM = [sys.executable, "-m", "choicegp.apps.cli"]
TABLE = "choice_id,alt_id,choice,price\n1,pen,1,3\n1,ink,0,5\n2,pen,1,3\n2,cap,1,4\n"


class TestStart:
    @pytest.mark.parametrize(
        "arguments",
        [
            ["--help"],
            ["--version"],
            ["describe", "--help"],
            ["demo", "-h"],
            ["reproduce", "-h"],
            ["honesty", "-h"],
            ["serve", "-h"],
        ],
    )
    def test_help_loads_nothing_heavy_and_is_quick(self, arguments):
        code = (
            "import sys, time\n"
            "from choicegp.apps import cli, terminal\n"
            f"status = terminal.run(lambda: cli._invoke({arguments}))\n"
            f"print('LOADED', *[name for name in {HEAVY} if name in sys.modules])\n"
            "print('SECONDS', time.process_time()); sys.exit(status)"
        )
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        assert ended.returncode == 0, ended.stderr
        assert "LOADED\n" in ended.stdout
        # Its own seconds, since the machine may be busy with other tests.
        assert float(re.search(r"SECONDS (\S+)", ended.stdout)[1]) < 0.5

    def test_help_lists_the_commands(self, run):
        code, out, err = run("--help")
        assert (code, err) == (0, "")
        assert "describe" in out
        assert "demo" in out
        assert "─" not in out, "plain help has no boxes"

    def test_nothing_given_is_a_wish_for_help(self, run):
        assert run() == run("--help")

    def test_the_arguments_of_the_process_are_taken(self, capsys, monkeypatch):
        monkeypatch.setattr(sys, "argv", ["choicegp", "--version"])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code == 0
        assert capsys.readouterr().out == f"choicegp {choicegp.__version__}\n"

    def test_every_command_has_a_summary_and_every_option_a_help(self):
        import typer

        for name, command in typer.main.get_command(cli.app).commands.items():
            assert command.help.partition("\n")[0].endswith("."), name
            assert all(parameter.help for parameter in command.params), name


class TestDescribe:
    def test_a_table_in_plain_words(self, table, run):
        code, out, err = run("describe", table)
        assert (code, err) == (0, "")
        assert out == str(ChoiceData.from_long(table).describe()) + "\n"
        assert "2 sets of 2 objects." in out

    def test_every_option_reaches_its_place(self, tmp_path, run):
        (tmp_path / "survey.csv").write_text(
            "page,laptop,kept,cpu,note,who,weight,here\n"
            "1,a,1,3,x,ann,2,1\n1,b,0,5,y,ann,2,1\n1,c,,7,z,ann,2,0\n2,a,1,3,x,bob,1,1\n2,b,1,5,y,bob,1,1\n"
        )
        options = "--set-id page --object-id laptop --chosen kept --features cpu --respondent who"
        options += " --weight weight --available here"
        code, out, _ = run("describe", str(tmp_path / "survey.csv"), *options.split())
        assert code == 0
        assert "2 sets of 2 objects, by 2 respondents." in out
        assert "2 objects with 1 feature: cpu." in out
        assert "75.0% of the shown objects were chosen." in out

    def test_without_ids_or_choices(self, table, run):
        code, out, _ = run("describe", table, "--no-object-id", "--no-choices", "--features", "price")
        assert code == 0
        assert "The data have no choices." in out
        assert "3 objects with 1 feature: price." in out

    def test_a_wide_table(self, tmp_path, run):
        file = tmp_path / "wide.csv"
        file.write_text("page,cost.A,cost.B,kept.A,kept.B\n1,3,5,1,0\n2,4,,1,\n")
        options = "--wide --alternatives A,B --features cost --chosen kept --sep . --set-id page"
        code, out, _ = run("describe", str(file), *options.split())
        assert code == 0
        assert "2 sets of 1 to 2 objects (median 1.5)." in out
        assert "3 objects with 1 feature: cost." in out

    def test_defects_are_refused_all_at_once(self, table, tmp_path, run):
        (tmp_path / table).write_text(TABLE.replace("1,ink,0", "1,ink,maybe").replace("2,cap,1,4", "2,cap,1,"))
        code, out, err = run("describe", table)
        assert (code, out) == (2, "")
        first, *rest = err.splitlines()
        assert first == "error: choices.csv (the header is row 1): 2 defects"
        assert rest[0].startswith(
            "  1 x wrong-flag: flags are 0/1, true/false, yes/no, ✓/✗, or one mark (x, 1, ✓) and blanks"
        )
        assert rest[1].startswith("  1 x missing-feature: to leave such sets out, pass --missing skip; ")
        assert rest[2].startswith("  row 3, set 1, object 'ink': ")
        assert rest[3].startswith("  row 5, set 2, object 'cap': ")

    def test_skipping_says_what_was_left_out(self, table, tmp_path, run):
        (tmp_path / table).write_text(TABLE + "3,pen,0,3\n3,ink,0,5\n")
        code, out, err = run("describe", table, "--on-error", "skip")
        assert code == 0
        assert "2 sets of 2 objects." in out
        assert out.splitlines()[-1] == "  row 6, set 3: nothing is chosen from the set"
        assert err == "warning: 1 of 3 sets were left out (1 defect)\n"

    @pytest.mark.parametrize(("n", "last"), [(20, "set 20:"), (23, "  ... and 3 more")])
    def test_not_all_of_many_defects_are_listed(self, table, tmp_path, run, n, last):
        bad = "".join(f"{k},pen,0,3\n" for k in range(1, n + 1))
        (tmp_path / table).write_text("choice_id,alt_id,choice,price\n" + bad + "good,pen,1,3\n")
        code, out, _ = run("describe", table, "--on-error", "skip")
        assert code == 0
        assert sum(line.endswith("nothing is chosen from the set") for line in out.splitlines()) == 20
        assert last in out.splitlines()[-1].replace("'", "")

    def test_control_characters_in_names_are_shown(self, table, tmp_path, run):
        (tmp_path / table).write_text(TABLE.replace("price", "pr\x1b[2Jice"))
        code, out, _ = run("describe", table)
        assert code == 0
        assert "\x1b" not in out
        assert r"pr\x1b[2Jice" in out


class TestProcess:
    def test_a_closed_pipe_is_quiet(self, table):
        reading, writing = os.pipe()
        os.close(reading)
        ended = subprocess.run(
            [*PROGRAM, "describe", table], stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60
        )
        os.close(writing)
        assert (ended.returncode, ended.stderr) == (141, "")

    @pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
    def test_a_full_disk_is_one_line(self, table):
        with open("/dev/full", "w") as full:
            ended = subprocess.run(
                [*PROGRAM, "describe", table], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
            )
        assert (ended.returncode, ended.stderr) == (2, "error: No space left on device\n")

    def test_an_interrupt_is_quiet(self, tmp_path):
        fifo = tmp_path / "never.csv"
        os.mkfifo(fifo)
        # Tests may run where interrupts are ignored (in the background of a shell), and children inherit that.
        program = (
            "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
            "from choicegp.apps.cli import main; main(sys.argv[1:])"
        )
        command = [sys.executable, "-c", program, "describe", str(fifo)]
        process = subprocess.Popen(command, stdout=-1, stderr=-1, text=True)
        # The process has opened the pipe for reading once it can be opened for writing. An interrupt that comes
        # after Python's last look at its signals and before the read itself waits for the next one.
        out, err = "", "it went on"
        with open(fifo, "w"):
            try:
                for _ in range(3):
                    process.send_signal(signal.SIGINT)
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        out, err = process.communicate(timeout=30)
                        break
            finally:
                process.kill()
                process.communicate()
        assert (process.returncode, out) == (130, "")
        assert err == "interrupted: no file was left incomplete; the same command begins again\n"

    def test_names_beyond_the_terminals_letters(self, tmp_path):
        (tmp_path / "choices.csv").write_text(TABLE.replace("price", "größe"), encoding="utf-8")
        ended = subprocess.run(
            [*PROGRAM, "describe", "choices.csv"],
            cwd=tmp_path, env=os.environ | {"PYTHONIOENCODING": "ascii"},
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert (ended.returncode, ended.stderr) == (0, "")
        assert r"gr\xf6\xdfe" in ended.stdout


def test_several_chosen_objects_and_objects_far_away_are_named(table, tmp_path, run):
    code, out, err = run("fit", table, "-o", "model.cgp", "-d", "1", "--max-seconds", "1")
    assert (code, err) == (0, "")
    assert "Note: with one utility no two objects can be chosen together, as they were in 1 of 2 sets; use" in out
    (tmp_path / "new.csv").write_text("choice_id,alt_id,price\n1,pen,3\n1,gold,99999\n")
    code, out, err = run("predict", "model.cgp", "new.csv")
    assert code == 0
    assert "gold" in out
    assert err.startswith(
        "warning: 1 of 2 objects lies outside what was shown in training: price 99999 (shown 3 to 5, 1 object). "
    )
    assert len(err.splitlines()) == 1
    assert run("predict", "model.cgp", table)[2] == ""


def test_shares_of_assortments_are_printed_or_written(run, table, tmp_path):
    ChoiceGP(n_utilities=2, intervals="none", object_effects=False, n_restarts=1, max_iter=5).fit(
        ChoiceData.from_long(table)
    ).save("model.cgp")
    code, out, err = run("shares", "model.cgp", table)
    assert (code, err) == (0, "")
    assert out.split()[:4] == ["set", "object", "kept", "kept_lower"]
    code, out, _ = run("shares", "model.cgp", table, "-o", "shares.csv", "--take", "best")
    assert (code, out) == (0, "Shares of 2 assortments are in shares.csv.\n")
    assert pd.read_csv(tmp_path / "shares.csv")["object"].tolist() == ["pen", "ink", "pen", "cap"]
    assert "pools the answers" in run("shares", "model.cgp", table, "--new-people")[2]

"""Exit codes, lazy loading, colours and completion: what shells, scripts and eyes rely on."""

import io
import logging
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headrace.cli.main import notices, run
from headrace.cli.output import age, notify, print_table, readable
from headrace.cli.progress import ProgressCounts, progress
from tests.support.waiting import wait_for


def test_should_print_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("headrace 0.")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["bogus"], "No such command 'bogus'."),
        (["topics", "list"], "No such command 'topics'. Did you mean 'topic'?"),
        (["consume"], "Missing argument 'TOPIC...'"),
        (["consume", "a", "--from", "x"], "neither earliest, latest, an offset such as 1200, nor a time"),
        (["consume", "a", "--from", "1 hour ago"], "write a whole number and one of ms, s, m, h, d"),
        (["consume", "a", "--group", "my_group"], "cannot name a group, which is a Kubernetes resource"),
        (["consume", "a", "--group", "g", "--partition", "0"], "--partition and --group exclude each other"),
        (["consume", "a", "--offset", "5"], "No such option '--offset': where to begin is said by --from: earliest"),
        (["produce", "--topic", "a"], "No such option '--topic': the topic is an argument: headrace produce orders."),
        (["topic", "create", "a", "--replication-factor", "3"], "Did you mean '--replicas'?"),
        (["consume", "a", "--max-messages", "1"], "the number of records is --max-records, or -m."),
        (["consume", "a", "--nonsense"], "--nonsense"),
        (["consume", "a", "--partition", "x"], "'x' is not a valid whole number"),
        (["consume", "a", "b", "--partition", "0"], "--partition is of one topic"),
        (["consume", "--group", "g"], "name topics, or --pattern with --group"),
        (["consume", "--pattern", "a.*"], "--pattern a.* is for members of a group: add --group"),
        (["consume", "a", "--instance-id", "pod-0"], "--instance-id pod-0 is for members of a group: add --group"),
        (["consume", "--pattern", "a(", "--group", "g"], "Invalid value for '--pattern': "),
        (["consume", "--pattern", "", "--group", "g"], "it is empty: give for example"),
        (["consume", "a", "--instance-id", "", "--group", "g"], "it has 0 characters: give 1 to 253"),
        (["group", "describe", "my_group"], "try my-group"),
        (["group", "reset", "g"], "Say where to"),
        (["group", "reset", "g", "--to", "12"], "give --offset TOPIC:PARTITION=OFFSET for each"),
        (["group", "reset", "g", "--offset", "a:1"], "is not TOPIC:PARTITION=OFFSET"),
        (["topic", "create", "my_topic", "--partitions", "1"], "try my-topic"),
        (["topic", "describe", "my_topic"], "try my-topic"),
        (["topic", "delete", "orders", "my_topic"], "try my-topic"),
        (["produce", "my_topic", os.devnull], "try my-topic"),
        (["consume", "my_topic"], "try my-topic"),
        (["produce", "a", os.devnull, "--key-field", "id"], "--key-field needs --format jsonl or csv"),
        (["produce", "a", os.devnull, "--key-field", "id", "--format", "records"], "records bring their keys"),
        (["produce", "a", os.devnull, "--allow-missing-key"], "--allow-missing-key is about --key-field"),
    ],
)
def test_should_exit_with_2_when_the_usage_is_wrong(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*arguments, *(["--server", "http://127.0.0.1:1"] if arguments[0] == "produce" else [])]) == 2
    assert says in " ".join(capsys.readouterr().err.split())


def test_should_exit_with_1_and_one_line_when_a_command_fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("HEADRACE_SERVER", raising=False)
    assert run(["consume", "orders"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("headrace: no server is given")


class Terminal(io.StringIO):
    """What rich and click take for one."""

    def isatty(self) -> bool:
        return True


def terminal_for(name: str, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """In the place of `stdout` or `stderr`. No fixture: pytest's own capture begins after those."""
    screen = Terminal()
    monkeypatch.setattr(sys, name, screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return screen


def test_should_show_errors_in_red_on_a_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    terminal = terminal_for("stderr", monkeypatch)
    assert run(["topic", "list", "--kubeconfig", str(tmp_path / "none")]) == 1
    assert terminal.getvalue().startswith("\x1b[31mheadrace: ")


def test_should_show_no_colour_where_nobody_wants_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    terminal = terminal_for("stderr", monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    assert run(["topic", "list", "--kubeconfig", str(tmp_path / "none")]) == 1
    assert terminal.getvalue().startswith("headrace: ")
    assert "\x1b" not in terminal.getvalue()


def test_should_say_what_the_sdk_tries_again_while_a_command_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_for("stderr", monkeypatch)
    with notices():
        logging.getLogger("headrace.client").warning("records for orders/0: connection refused; trying again")
    assert terminal.getvalue() == "\x1b[2mheadrace: records for orders/0: connection refused; trying again\x1b[0m\n"
    assert not logging.getLogger("headrace.client").handlers


def test_should_show_progress_on_a_terminal_and_take_it_away(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_for("stderr", monkeypatch)
    monkeypatch.setenv("COLUMNS", "60")
    whole = "1,234 records  50 %  0 records/s  0 B/s  0:00"
    with progress(ProgressCounts(1_234), lambda: 0.5, shown=True):
        wait_for(lambda: whole in terminal.getvalue(), "the line is there, and the bar leaves it room")
        notify("connection refused; trying again")
    shown = terminal.getvalue()
    assert "\r\x1b[2Kconnection refused; trying again\n" in shown
    assert shown.endswith("\x1b[2K")


def test_should_name_the_remedy_when_there_is_no_kubeconfig(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["topic", "list", "--kubeconfig", str(tmp_path / "none")]) == 1
    assert "give --kubeconfig PATH or set KUBECONFIG" in capsys.readouterr().err


def test_should_name_the_pip_command_when_the_kubernetes_client_is_missing() -> None:
    program = (
        "import sys; sys.modules['aiohttp'] = None; from headrace.cli.main import run; sys.exit(run(['topic', 'list']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install 'headrace[local]'" in done.stderr


@pytest.mark.parametrize(
    ("stdout", "code", "says"),
    [
        (">/dev/full", 1, "headrace: output: No space left on device\n"),
        (">&-", 1, "headrace: stdout is closed, and nothing can be printed: send it to a file, or > /dev/null\n"),
        (">&- 2>&-", 1, ""),
        (">/dev/null <&-", 0, ""),
    ],
)
def test_should_say_in_a_line_that_its_output_cannot_be_written(stdout: str, code: int, says: str) -> None:
    done = in_bash(f"topic --help {stdout}")
    assert (done.returncode, done.stderr) == (code, says)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("consume orders --server http://127.0.0.1:1 >&-", "stdout is closed, and nothing can be printed"),
        ("produce orders --server http://127.0.0.1:1 <&-", "stdin is closed: name a file, or < /dev/null"),
    ],
)
def test_should_say_at_once_that_there_is_nothing_to_read_from_or_print_to(command: str, says: str) -> None:
    done = in_bash(command)
    assert (done.returncode, done.stderr.startswith(f"headrace: {says}")) == (1, True), done.stderr


def in_bash(command: str) -> "subprocess.CompletedProcess[str]":
    line = f"'{sys.executable}' -c 'from headrace.cli.main import main; main()' {command}"
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)


def test_should_load_neither_arrow_nor_kubernetes_for_help_and_version() -> None:
    program = (
        "import sys; from headrace.cli.main import run; run(['--help']); run(['topic', 'create', '--help']);"
        " loaded = {'pyarrow', 'kubernetes', 'numpy'} & set(sys.modules); sys.exit(str(loaded) if loaded else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_should_complete_commands() -> None:
    environment = {
        **os.environ,
        "_HEADRACE_COMPLETE": "bash_complete",
        "COMP_WORDS": "headrace topic ",
        "COMP_CWORD": "2",
    }
    program = "from headrace.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["plain,create", "plain,delete", "plain,describe", "plain,list"]


def test_should_align_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["NAME", "N"], [["a", 1], ["longer", 22]])
    assert capsys.readouterr().out == "NAME     N\na        1\nlonger   22\n"


def test_should_colour_how_things_are_on_a_terminal_and_still_align(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal_for("stdout", monkeypatch)
    print_table(["READY", "AGE"], [["True", "1s"], ["False", "2s"]])
    assert screen.getvalue() == "READY   AGE\n\x1b[32mTrue\x1b[0m    1s\n\x1b[31mFalse\x1b[0m   2s\n"


@pytest.mark.parametrize(
    ("created", "shown"),
    [
        ("2026-11-21T11:59:59Z", "1s"),
        ("2026-11-21T12:00:00Z", "0s"),
        ("2026-11-21T11:55:00Z", "5m"),
        ("2026-11-21T00:00:00Z", "12h"),
        ("2026-11-01T00:00:00Z", "20d"),
        (None, "?"),
    ],
)
def test_should_show_ages_in_their_largest_unit(created: str | None, shown: str) -> None:
    assert age(created, datetime(2026, 11, 21, 12, tzinfo=UTC)) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("604800000ms", "7d"),
        ("90000ms", "90s"),
        ("1ms", "1ms"),
        ("0ms", "0s"),
        ("268435456", "256Mi"),
        ("1000", "1000"),
        ("unlimited", "unlimited"),
        (6, "6"),
        (False, "false"),
    ],
)
def test_should_show_fields_as_people_write_them(value: object, shown: str) -> None:
    assert readable(value) == shown

"""Exit codes, lazy loading and completion: what shells and scripts rely on."""

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headrace.cli.main import run
from headrace.cli.output import age, print_table, readable


def test_should_print_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("headrace 0.")


@pytest.mark.parametrize(
    "command", [[], ["topic"], ["topic", "create"], ["produce"], ["consume"], ["cluster", "status"]]
)
def test_should_show_examples_in_every_help(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command, "--help"]) == 0
    assert "headrace " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["bogus"], "No such command 'bogus'"),
        (["consume"], "Missing argument 'TOPIC'"),
        (["consume", "a", "--from", "x"], "neither earliest, latest, an offset such as 1200, nor a time"),
        (["topic", "create", "my_topic", "--partitions", "1"], "try my-topic"),
        (["produce", "a", os.devnull, "--key-field", "id"], "--key-field needs --format jsonl or csv"),
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
    monkeypatch.delenv("HEADRACE_SERVER", raising=False)
    assert run(["consume", "orders"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("headrace: no server is given")


def test_should_name_the_remedy_when_there_is_no_kubeconfig(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["topic", "list", "--kubeconfig", str(tmp_path / "none")]) == 1
    assert "give --kubeconfig PATH or set KUBECONFIG" in capsys.readouterr().err


def test_should_name_the_pip_command_when_the_kubernetes_client_is_missing() -> None:
    program = (
        "import sys; sys.modules['kubernetes'] = None; from headrace.cli.main import run;"
        " sys.exit(run(['topic', 'list']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install 'headrace[local]'" in done.stderr


@pytest.mark.parametrize(
    ("stdout", "code", "says"),
    [(">/dev/full", 1, "headrace: output: No space left on device\n"), (">&-", 0, "")],
)
def test_should_say_in_a_line_that_its_output_cannot_be_written(stdout: str, code: int, says: str) -> None:
    command = f"'{sys.executable}' -c 'from headrace.cli.main import main; main()' topic --help {stdout}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, says)


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

"""docs/cli.md says what the commands are, and every command shows how it is used.

Pages about commands show examples of their help alone: those are run as they stand (test_examples).
"""

import re
from pathlib import Path

import click
import pytest

from headrace.cli.commands import examples_of
from headrace.cli.main import headrace, run
from headrace.cli.reference import commands, reference

PAGE = Path(__file__).parents[3] / "docs" / "cli.md"
COMMANDS = list(commands(headrace, click.Context(headrace, info_name="headrace")))


def test_should_be_what_the_commands_say() -> None:
    assert PAGE.read_text() == reference(), "stale: python -m headrace.cli.reference > docs/cli.md"


@pytest.mark.parametrize(("command", "context"), COMMANDS, ids=[context.command_path for _, context in COMMANDS])
def test_should_show_examples_in_every_help(
    command: click.Command, context: click.Context, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*context.command_path.split()[1:], "--help"]) == 0
    shown = capsys.readouterr().out
    found = examples_of(command)
    assert found
    assert all(f"  {example.line}\n" in shown for example in found)
    assert any("headrace" in example.line for example in found)


@pytest.mark.parametrize(("command", "context"), COMMANDS, ids=[context.command_path for _, context in COMMANDS])
def test_should_explain_every_option(command: click.Command, context: click.Context) -> None:
    assert command.get_short_help_str()
    for option in command.params:
        if isinstance(option, click.Option):
            assert option.help, f"{context.command_path} {option.opts[-1]} has no help"


DOCS = Path(__file__).parents[3] / "docs"
_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["performance.md", "recovery.md"])
def test_should_show_only_commands_that_a_test_runs(page: str) -> None:
    every = commands(headrace, click.Context(headrace, info_name="headrace"))
    run = {example.line for command, _ in every for example in examples_of(command)}
    shown = [line for block in _BLOCK.findall((DOCS / page).read_text()) for line in block.splitlines()]
    assert shown
    assert set(shown) <= run

"""Pages about commands show examples of their help alone: those are run as they stand (test_examples)."""

import re
from pathlib import Path

import click
import pytest

from headrace.cli.commands import examples_of
from headrace.cli.main import headrace
from headrace.cli.reference import commands

DOCS = Path(__file__).parents[3] / "docs"
_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["performance.md", "recovery.md"])
def test_should_show_only_commands_that_a_test_runs(page: str) -> None:
    every = commands(headrace, click.Context(headrace, info_name="headrace"))
    run = {example.line for command, _ in every for example in examples_of(command)}
    shown = [line for block in _BLOCK.findall((DOCS / page).read_text()) for line in block.splitlines()]
    assert shown
    assert set(shown) <= run

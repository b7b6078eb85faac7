"""docs/performance.md shows examples of the bench commands alone: those are run as they stand (test_examples)."""

from pathlib import Path

import click

from headrace.cli.bench import bench
from headrace.cli.examples import examples_of

PAGE = Path(__file__).parents[3] / "docs" / "performance.md"


def test_should_show_only_commands_that_a_test_runs() -> None:
    context = click.Context(bench)
    commands = [bench.get_command(context, name) for name in bench.list_commands(context)]
    run = {example.line for command in commands if command is not None for example in examples_of(command)}
    shown = [line for line in PAGE.read_text().splitlines() if line.startswith("headrace ")]
    assert shown
    assert set(shown) <= run

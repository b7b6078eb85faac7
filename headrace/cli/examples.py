"""The examples of each command: shown at the end of its help and in docs/cli.md, and run by a test as they stand.

They are kept where people see them, in the command's epilog: what a test runs is what the help says. An example is one
line of shell; a line before it says what it is for.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import click

C = TypeVar("C", bound=click.Command)
_HEADING = "\b\nExamples:"
"""click leaves a paragraph that begins with \\b as it is."""


class _ShowingExamples(click.Command):
    """Examples under a heading of their own, as click shows options: an epilog would be indented, heading and all."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Examples"):
            for about, line in examples_of(self):
                formatter.write(f"  # {about}\n  {line}\n")


class Command(_ShowingExamples):
    pass


class Group(_ShowingExamples, click.Group):
    command_class = Command


class Example(NamedTuple):
    about: str
    line: str


def examples(*pairs: tuple[str, str]) -> Callable[[C], C]:
    """Give a command examples: what each is for, and the line of shell."""

    def attach(command: C) -> C:
        shown = [line for about, shell in pairs for line in (f"  # {about}", f"  {shell}")]
        command.epilog = "\n".join([_HEADING, *shown])
        return command

    return attach


def examples_of(command: click.Command) -> list[Example]:
    """As its help shows them."""
    if not (command.epilog or "").startswith(_HEADING):
        return []
    lines = [line.strip() for line in (command.epilog or "").removeprefix(_HEADING).strip().splitlines()]
    return [Example(about.removeprefix("# "), line) for about, line in zip(lines[::2], lines[1::2], strict=True)]

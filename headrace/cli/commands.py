"""The classes of commands and groups of commands: examples in their help, and subcommands that are loaded when used.

Examples are kept where people see them, in the command's epilog, which its help and docs/cli.md show: a test runs each
of them as it stands. An example is one line of shell; a line before it says what it is for.

A `LazyGroup` knows its commands by module path and imports one when it is called, not when help lists it:
`headrace --help` must not pay for Arrow, nor `headrace cluster status` for Kubernetes. Every command imports this
module, so it imports click alone.
"""

import importlib
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple, TypeVar

import click

C = TypeVar("C", bound=click.Command)
_HEADING = "\b\nExamples:"
"""click leaves a paragraph that begins with \\b as it is."""


class _ShowingExamples(click.Command):
    """A command that shows examples under a heading of their own, as click shows options: an epilog would be indented,
    heading and all."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Examples"):
            for about, line in examples_of(self):
                formatter.write(f"  # {about}\n  {line}\n")


class Command(_ShowingExamples):
    pass


class CommandGroup(_ShowingExamples, click.Group):
    command_class = Command


class Example(NamedTuple):
    about: str
    line: str


def examples(*pairs: tuple[str, str]) -> Callable[[C], C]:
    """Return a decorator that gives a command examples: the purpose of each, and the line of shell."""

    def attach(command: C) -> C:
        shown = [line for about, shell in pairs for line in (f"  # {about}", f"  {shell}")]
        command.epilog = "\n".join([_HEADING, *shown])
        return command

    return attach


def examples_of(command: click.Command) -> list[Example]:
    """Return the examples as the command's help shows them."""
    if not (command.epilog or "").startswith(_HEADING):
        return []
    lines = [line.strip() for line in (command.epilog or "").removeprefix(_HEADING).strip().splitlines()]
    return [Example(about.removeprefix("# "), line) for about, line in zip(lines[::2], lines[1::2], strict=True)]


class Lazy(NamedTuple):
    place: str
    """The place of the command as `module:attribute`."""
    short_help: str


class LazyGroup(CommandGroup):
    def __init__(self, *args: Any, lazy: Mapping[str, Lazy], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the definition: the most usual first."""
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._lazy:
            return None
        module, _, attribute = self._lazy[cmd_name].place.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Load the command before click resolves it: click suggests commands that are loaded already, and these are
        not."""
        name = args[0]
        if name not in self._lazy and not name.startswith("-"):
            close = get_close_matches(name, self._lazy)
            ctx.fail(f"No such command {name!r}.{f' Did you mean {close[0]!r}?' if close else ''}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.short_help) for name, lazy in self._lazy.items()])

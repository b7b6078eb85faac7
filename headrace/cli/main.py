"""Entry point of `headrace`: which command, and which exit code.

Exit codes: 0 done, 1 failed (one red line on stderr says why and what to do), 2 wrong usage, 130 Ctrl-C. A reader that
went away (`| head`) is no failure.
"""

import importlib
import os
import sys
from collections.abc import Sequence

import click

from headrace.core.errors import HeadraceError

EXIT_FAILED, EXIT_INTERRUPTED = 1, 130
_KUBERNETES_EXTRA = frozenset({"kubernetes", "aiohttp"})
"""Packages that the SDK and most commands do without."""
_COMMANDS = {
    "dev": ("headrace.cli.dev:dev", "Run a whole Headrace on this machine."),
    "topic": ("headrace.cli.topic:topic", "Create, list, describe and delete topics."),
    "produce": ("headrace.cli.produce:produce", "Write lines, JSON lines or CSV to a topic."),
    "consume": ("headrace.cli.consume:consume", "Read a topic's records."),
    "cluster": ("headrace.cli.cluster:cluster", "Look at the brokers."),
}


class LazyGroup(click.Group):
    """Commands by module path: imported when they are called, not when help lists them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def invoke(self, ctx: click.Context) -> object:
        """As click does, but a reader of our output that went away (`| head`) is no failure."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except OSError as error:
            if error.filename is not None:
                raise
            # stdout failed. What is still buffered must go nowhere, or the interpreter complains about it at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if isinstance(error, BrokenPipeError):
                raise click.exceptions.Exit(0) from None
            raise
        return result

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="headrace", prog_name="headrace", message="%(prog)s %(version)s")
def headrace() -> None:
    """A distributed commit log for Kubernetes.

    \b
    headrace dev --detach
    headrace topic create orders --partitions 6
    printf 'tea\\ncoffee\\n' | headrace produce orders
    headrace consume orders -o value
    """


def main() -> None:
    """What the `headrace` script calls."""
    if sys.stdout is None:  # closed by the shell (`>&-`): nobody wants the answer
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - until the process ends
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line; the exit code."""
    try:
        code = headrace.main(list(arguments), prog_name="headrace", standalone_mode=False)
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except HeadraceError as error:
        return _failed(error.message)
    except OSError as error:
        return _failed(f"{error.filename or 'output'}: {error.strerror or error}")
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _KUBERNETES_EXTRA:
            raise
        return _failed(
            f"this command talks to Kubernetes, and {package} is not installed: pip install 'headrace[local]'"
        )
    return code if isinstance(code, int) else 0


def _failed(message: str) -> int:
    click.secho(f"headrace: {message}", fg="red", err=True)
    return EXIT_FAILED

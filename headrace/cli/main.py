"""The entry point of `headrace`: it finds the command, and turns errors into one line and an exit code.

Exit codes: 0 done, 1 failed (one red line on stderr says why and what to do), 2 wrong usage, 130 Ctrl-C. A reader that
went away (`| head`) is no failure. While a command runs, each warning that the SDK logs (a retry, for example) is one
dim line on stderr, so that the person who waits knows for what.
"""

import errno
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

from headrace.cli.commands import Lazy, LazyGroup, examples
from headrace.cli.output import after_interrupt, notify, stdout_is_closed
from headrace.core.errors import HeadraceError

_LOGGER = "headrace.client"
_KUBERNETES_EXTRA = frozenset({"kubernetes", "aiohttp"})
"""Packages that the SDK and most commands do without."""
_COMMANDS = {
    "dev": Lazy("headrace.cli.dev:dev", "Run a whole Headrace on this machine."),
    "topic": Lazy("headrace.cli.topic:topic", "Create, list, describe and delete topics."),
    "produce": Lazy("headrace.cli.produce:produce", "Write lines, JSON lines, CSV or records to a topic."),
    "consume": Lazy("headrace.cli.consume:consume", "Read a topic's records."),
    "group": Lazy("headrace.cli.group:group", "Show, reset and delete consumer groups."),
    "bench": Lazy("headrace.cli.bench:bench", "Measure produce, consume and latency."),
    "cluster": Lazy("headrace.cli.cluster:cluster", "Look at the brokers."),
    "completion": Lazy("headrace.cli.completion:completion", "Print the script that completes command lines."),
}


class _Lines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        notify(f"headrace: {record.getMessage()}", dim=True)


@contextmanager
def notices() -> Iterator[None]:
    """Print warnings as notices for as long as a command runs."""
    handler = _Lines(logging.WARNING)
    logger = logging.getLogger(_LOGGER)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


EXIT_FAILED, EXIT_INTERRUPTED = 1, 130


class Root(LazyGroup):
    def invoke(self, ctx: click.Context) -> object:
        """Invoke the command as click does, but a reader of our output that went away (`| head`) is no failure, and
        Ctrl-C no message."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except KeyboardInterrupt:
            after_interrupt()
            raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
        except OSError as error:
            if error.filename is not None:
                raise
            # stdout failed. What is still buffered must go nowhere, or the interpreter complains about it at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if isinstance(error, BrokenPipeError):
                raise click.exceptions.Exit(0) from None
            if error.errno == errno.EBADF:
                raise stdout_is_closed() from error
            raise
        return result


@examples(
    ("Start an API, an operator and three brokers on this machine.", "headrace dev --detach"),
    ("Create a topic.", "headrace topic create orders --partitions 6"),
    ("Write a record for each line.", "printf 'tea\\ncoffee\\n' | headrace produce orders"),
    ("Read them.", "headrace consume orders -o value"),
)
@click.group(cls=Root, lazy=_COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="headrace", prog_name="headrace", message="%(prog)s %(version)s")
def headrace() -> None:
    """A distributed commit log for Kubernetes."""


def main() -> None:
    """Run the `headrace` script."""
    # A descriptor that the shell has closed (`<&-`, `>&-`) is not empty, and takes nothing that is printed: it fails
    # when used.
    sys.stdin = sys.stdin or os.fdopen(os.open(os.devnull, os.O_WRONLY))
    sys.stdout = sys.stdout or os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115 - until the process ends
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return the exit code."""
    try:
        with notices():
            code = headrace.main(list(arguments), prog_name="headrace", standalone_mode=False)
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except click.ClickException as error:
        from headrace.cli.other_tools import in_our_words

        in_our_words(error).show()
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
    notify(f"headrace: {message}", fg="red")
    return EXIT_FAILED

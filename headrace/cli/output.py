"""Output for people: sentences, tables, ages, a spinner, and the question before something is changed for good.

stdout carries answers, stderr everything else. Colour is for terminals only, and not where NO_COLOR is set
(https://no-color.org). Every command loads this module, so it loads rich and yaml only when they are used.
"""

import fcntl
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Final

import click

from headrace.core.errors import LocalError
from headrace.core.units import BYTES, MILLISECONDS

_COLORS: Final = {
    "True": "green",
    "Ready": "green",
    "False": "red",
    "offline": "red",
    "Lost": "red",
    "Unknown": "yellow",
    "unknown": "yellow",
    "Stable": "green",
}
"""The colours of words for states, wherever they stand alone in a table."""
_AGE_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


def paint(text: str, **style: str | bool) -> str:
    """Return the text with click's styles; click leaves them out again where the output is no terminal."""
    return text if os.environ.get("NO_COLOR") else click.style(text, **style)  # type: ignore[arg-type]


def notify(text: str, **style: str | bool) -> None:
    """Print a line on stderr. It bypasses click, which looks for the file behind it: a line of progress must make
    room."""
    with suppress(OSError):  # A terminal that was closed shows nothing, and the work continues.
        sys.stderr.write(f"{paint(text, **style) if sys.stderr.isatty() else text}\n")
        sys.stderr.flush()


def check_stdout() -> None:
    """Check stdout before something is read that is gone once it is printed. Raises LocalError where nothing can be
    printed."""
    if _mode_of(sys.stdout) == os.O_RDONLY:
        raise stdout_is_closed()


def check_stdin(file: Any) -> None:
    """Raise LocalError where nothing can be read from `file`, which the shell has closed."""
    if _mode_of(file) == os.O_WRONLY:
        raise LocalError("stdin is closed: name a file, or < /dev/null for an empty one")


def stdout_is_closed() -> LocalError:
    return LocalError("stdout is closed, and nothing can be printed: send it to a file, or > /dev/null")


def _mode_of(file: Any) -> int | None:
    """Return the mode; None: it is no file of the operating system."""
    try:
        return fcntl.fcntl(file.fileno(), fcntl.F_GETFL) & os.O_ACCMODE
    except (OSError, ValueError):
        return None


def after_interrupt() -> None:
    """Begin a new line: a terminal shows ^C."""
    if sys.stderr.isatty():
        notify("")


@contextmanager
def waiting(what: str) -> Iterator[Callable[[str], None]]:
    """Show a spinner on a terminal while the block waits; the function replaces its text."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console

    with Console(stderr=True).status(what) as status:
        yield status.update


@contextmanager
def waiting_aloud(what: str) -> Iterator[Callable[[str], None]]:
    """Do as `waiting`, for what may take long: where there is no terminal each new text is a line on stderr."""
    said: list[str] = []

    def line(text: str) -> None:
        if text not in said[-1:]:
            said[:] = [text]
            notify(f"headrace: {what}: {text}")

    with waiting(what) as say:
        yield (lambda text: say(f"{what}: {text}")) if sys.stderr.isatty() else line


def print_document(document: object, output: str) -> None:
    """Print a document as `json` or `yaml`."""
    if output == "json":
        click.echo(json.dumps(document, indent=2))
        return
    import yaml

    click.echo(yaml.safe_dump(document, sort_keys=False), nl=False)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print columns as kubectl aligns them, so that `awk` and eyes can read them."""
    cells = [list(columns), *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        padded = [(cell, " " * (width - len(cell))) for cell, width in zip(row, widths, strict=True)]
        click.echo("   ".join(_colored(cell) + space for cell, space in padded).rstrip())


def _colored(cell: str) -> str:
    return paint(cell, fg=_COLORS[cell]) if cell in _COLORS else cell


def age(created: str | None, now: datetime) -> str:
    """Return how long ago an RFC 3339 time was, in its largest unit: `5m`, `3d`."""
    if created is None:
        return "?"
    seconds = int((now - datetime.fromisoformat(created).astimezone(UTC)).total_seconds())
    for unit, length in _AGE_UNITS:
        if seconds >= length:
            return f"{seconds // length}{unit}"
    return "0s"


def readable(value: object) -> str:
    """Return a field of a spec as a person would have written it: `604800000ms` is `7d`, the text `268435456` is
    `256Mi`."""
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    units = MILLISECONDS if text.endswith("ms") else {unit: size for unit, size in BYTES.items() if unit.endswith("i")}
    digits = text.removesuffix("ms")
    if not isinstance(value, str) or not digits.isdecimal():
        return text
    if int(digits) == 0:
        return "0s" if text.endswith("ms") else text
    number = int(digits)
    fitting = [(size, unit) for unit, size in units.items() if number % size == 0]
    size, unit = max(fitting, default=(1, ""))
    return f"{number // size}{unit}"


def readable_spec(value: Any) -> Any:
    """Return a spec with durations and sizes as people write them, numbers and truths as they are."""
    if isinstance(value, dict):
        return {name: readable_spec(part) for name, part in value.items()}
    return readable(value) if isinstance(value, str) else value


def confirmed(question: str, yes: bool) -> bool:
    """Return the answer to the question, where a person can answer; `yes` is the answer given by --yes."""
    if yes:
        return True
    if not sys.stdin.isatty():
        return False
    return click.confirm(question, err=True)

"""Output for people: tables, ages, a spinner. stdout carries answers, stderr everything else."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import click
from rich.console import Console

stderr = Console(stderr=True)
_AGE_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns as kubectl aligns them, so that `awk` and eyes can read them."""
    cells = [list(columns), *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        line = "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo(line.rstrip())


def age(created: str | None, now: datetime) -> str:
    """`5m`, `3d`: how long ago an RFC 3339 time was, in its largest unit."""
    if created is None:
        return "?"
    seconds = int((now - datetime.fromisoformat(created).astimezone(UTC)).total_seconds())
    for unit, length in _AGE_UNITS:
        if seconds >= length:
            return f"{seconds // length}{unit}"
    return "0s"

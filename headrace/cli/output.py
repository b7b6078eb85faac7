"""Output for people: tables, ages, a spinner. stdout carries answers, stderr everything else."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import BinaryIO

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)

from headrace.core.units import BYTES, MILLISECONDS

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


def readable(value: object) -> str:
    """A field of a spec as a person would have written it: `604800000ms` is `7d`, the text `268435456` is `256Mi`."""
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


@contextmanager
def reading(file: BinaryIO) -> Iterator[tuple[Iterable[bytes], Callable[[int], None]]]:
    """The lines of `file`, and a function that shows how many records they made; a progress bar on a terminal."""
    if not stderr.is_terminal:
        yield file, lambda records: None
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.fields[records]:,} records"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=stderr, transient=True) as bar:
        task = bar.add_task("", total=_size_bytes(file), records=0)

        def lines() -> Iterator[bytes]:
            done = 0
            for line in file:
                done += len(line)
                yield line
            bar.update(task, completed=done)

        def show(records: int) -> None:
            bar.update(task, records=records, completed=_place(file))

        yield lines(), show


def _size_bytes(file: BinaryIO) -> int | None:
    """None for a pipe."""
    return os.fstat(file.fileno()).st_size or None


def _place(file: BinaryIO) -> int | None:
    return file.tell() if file.seekable() else None

"""The progress of a command that reads or writes records, and its end: how far it is, and by which signal it ends.

The command counts in a `ProgressCounts`; one line on the terminal reads it several times a second from a thread of its
own, so that counting costs next to nothing and the line moves (and the rate falls) while the command waits. Nothing is
shown where stderr is no terminal.

SIGTERM and SIGHUP work like Ctrl-C, with another exit code. Work that must not be torn apart holds them up for a
moment. `write_whole` does that for output: what is being written is finished, or was not begun to count.
"""

import select
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, BinaryIO, NamedTuple, Protocol

import click

from headrace.core.units import format_bytes

_REFRESH_PER_S = 8
_BAR_WIDTH = 30
"""The longest bar: on a narrow screen the figures come first."""
_RATE_FROM_RECORDS = 1_000
"""The number of records from which a rate is shown: a person who types records needs none."""
_WINDOW_S = 3.0
"""The time over which rates are taken: they show the present, not an average."""


@dataclass(slots=True)
class ProgressCounts:
    """The counts of what is done; one thread writes, another reads."""

    records: int = 0
    bytes: int = 0


class _Sample(NamedTuple):
    at_s: float
    records: int
    bytes: int


@dataclass(slots=True)
class Rate:
    """The rate in records and bytes per second over the last `window_s`."""

    window_s: float = _WINDOW_S
    _samples: deque[_Sample] = field(default_factory=deque)

    def of(self, counts: ProgressCounts, now_s: float) -> tuple[float, float]:
        self._samples.append(_Sample(now_s, counts.records, counts.bytes))
        while len(self._samples) > 2 and self._samples[1].at_s <= now_s - self.window_s:
            self._samples.popleft()
        first, last = self._samples[0], self._samples[-1]
        seconds = last.at_s - first.at_s
        if not seconds:
            return 0.0, 0.0
        return (last.records - first.records) / seconds, (last.bytes - first.bytes) / seconds


def line(counts: ProgressCounts, rate: tuple[float, float], elapsed_s: float, share: float | None) -> str:
    """Return `12,345 records 45 % 1,234 records/s 1.2 MiB/s 0:12`; `share` is the part of all that is done, if
    known."""
    part = "" if share is None else f"  {min(1.0, share):.0%}".replace("%", " %")
    minutes, seconds = divmod(int(elapsed_s), 60)
    return (
        f"{counts.records:,} records{part}  {rate[0]:,.0f} records/s  {format_bytes(rate[1])}/s  {minutes}:{seconds:02}"
    )


def summary(verb: str, records: int, topic: str, seconds: float) -> str:
    """Return `produced 2,000,000 records to orders in 3.1 s, 645,161 records/s`."""
    rate = f", {records / seconds:,.0f} records/s" if seconds > 1 and records >= _RATE_FROM_RECORDS else ""
    return f"{verb} {'1 record' if records == 1 else f'{records:,} records'} {topic} in {seconds:.1f} s{rate}"


@contextmanager
def progress(counts: ProgressCounts, share: Callable[[], float | None], *, shown: bool) -> Iterator[None]:
    """Show the line on stderr until the block ends, then remove it; nothing unless it is `shown` and a terminal."""
    if not shown or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.live import Live
    from rich.progress_bar import ProgressBar
    from rich.table import Column, Table
    from rich.text import Text

    rate, started = Rate(), time.monotonic()

    def render() -> Any:
        now, part = time.monotonic(), share()
        text = line(counts, rate.of(counts, now), now - started, part)
        if part is None:
            return Text(text)
        grid = Table.grid(Column(max_width=_BAR_WIDTH), Column(no_wrap=True), padding=(0, 2))
        grid.add_row(ProgressBar(total=1.0, completed=part), Text(text))
        return grid

    # stdout is left alone: it may be the very terminal, or the file, that records go to.
    live = Live(
        get_renderable=render,
        console=Console(stderr=True),
        refresh_per_second=_REFRESH_PER_S,
        transient=True,
        redirect_stdout=False,
    )
    with live:
        yield


@dataclass(slots=True)
class EndSignal:
    """The signal that ended the command."""

    number: signal.Signals = signal.SIGINT

    @property
    def exit_code(self) -> int:
        return 128 + self.number

    @property
    def word(self) -> str:
        return "interrupted" if self.number is signal.SIGINT else f"ended by {self.number.name}"


@contextmanager
def ended_by_signals() -> Iterator[EndSignal]:
    """Make SIGTERM and SIGHUP interrupts, in the main thread. An ignored Ctrl-C, as in the background of a script's
    shell, stays ignored.

    So does SIGHUP, as under nohup.
    """
    ending = EndSignal()
    interrupted = signal.getsignal(signal.SIGINT)

    def interrupt(number: int, frame: FrameType | None) -> None:
        if callable(interrupted):
            interrupted(number, frame)
        elif ending.number is not signal.SIGINT:
            raise KeyboardInterrupt

    def end(number: int, _frame: FrameType | None) -> None:
        ending.number = signal.Signals(number)
        signal.raise_signal(signal.SIGINT)

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number, handler in before.items():
        if number is signal.SIGTERM or handler is not signal.SIG_IGN:
            signal.signal(number, end)
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield ending
    except KeyboardInterrupt:
        if ending.number is not signal.SIGINT:
            raise click.exceptions.Exit(ending.exit_code) from None
        raise
    finally:
        signal.signal(signal.SIGINT, interrupted)
        for number, handler in before.items():
            signal.signal(number, handler)


class _Output(Protocol):
    def write(self, content: bytes, /) -> object: ...
    def flush(self) -> object: ...
    def fileno(self) -> int: ...


def write_whole(out: BinaryIO | _Output, content: bytes, written: Callable[[], None]) -> None:
    """Write and flush, in the main thread; `written` is called if, and only if, all of it is out.

    An interrupt waits until then, unless the output takes nothing at the moment, or a second one comes.
    """
    handler = signal.getsignal(signal.SIGINT)
    came: FrameType | None = None
    has_come = False

    def arrived(number: int, frame: FrameType | None) -> None:
        nonlocal came, has_come
        if callable(handler) and (has_come or not _takes_more(out)):
            handler(number, frame)
        came, has_come = frame, True

    signal.signal(signal.SIGINT, arrived)
    try:
        out.write(content)
        out.flush()
        written()
    finally:
        signal.signal(signal.SIGINT, handler)
    if has_come and callable(handler):
        handler(signal.SIGINT, came)


def _takes_more(out: BinaryIO | _Output) -> bool:
    return bool(select.select([], [out.fileno()], [], 0)[1])

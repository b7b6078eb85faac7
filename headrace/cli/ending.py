"""How a command that reads or writes records is told to end, so that it can say how far it came.

SIGTERM and SIGHUP count as Ctrl-C, by another exit code: they take the very way that Ctrl-C takes, which whoever may
not be torn apart holds up for a moment. `write_whole` is that for output: what is being written is finished, or was not
begun to count.
"""

import select
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import BinaryIO, Protocol

import click


@dataclass(slots=True)
class Ending:
    """What told the command to end."""

    number: signal.Signals = signal.SIGINT

    @property
    def exit_code(self) -> int:
        return 128 + self.number

    @property
    def word(self) -> str:
        return "interrupted" if self.number is signal.SIGINT else f"ended by {self.number.name}"


@contextmanager
def ended_by_signals() -> Iterator[Ending]:
    """In the main thread. Where Ctrl-C is ignored, as by what a script's shell runs in the background, it still is.

    So is SIGHUP, as by what nohup runs.
    """
    ending = Ending()
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
    """Write and flush; `written` is called if, and only if, all of it is out. In the main thread.

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

"""How a command that reads for a group is told to end, so that it can say how far it came.

SIGTERM counts as Ctrl-C, by another exit code: it takes the very way that Ctrl-C takes, which whoever may not be torn
apart holds up for a moment. `whole` is that for output: what is being written is finished, or was not begun to count.
"""

import select
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import BinaryIO, Protocol

import click

EXIT_TERMINATED = 128 + signal.SIGTERM


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """In the main thread. Where Ctrl-C is ignored, as by what a script's shell runs in the background, it still is."""
    is_terminated = False
    interrupted = signal.getsignal(signal.SIGINT)

    def interrupt(number: int, frame: FrameType | None) -> None:
        if callable(interrupted):
            interrupted(number, frame)
        elif is_terminated:
            raise KeyboardInterrupt

    def terminate(_number: int, _frame: FrameType | None) -> None:
        nonlocal is_terminated
        is_terminated = True
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGTERM, terminate)
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        if is_terminated:
            raise click.exceptions.Exit(EXIT_TERMINATED) from None
        raise
    finally:
        signal.signal(signal.SIGINT, interrupted)
        signal.signal(signal.SIGTERM, before)


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

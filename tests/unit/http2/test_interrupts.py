"""Ctrl-C is held back, told once, and told to the program's own handler."""

import signal
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

from headrace.http2.interrupts import HeldInterrupts


@pytest.fixture
def told() -> Iterator[list[int]]:
    """What the program's own handler was told."""
    numbers: list[int] = []

    def handler(number: int, _frame: FrameType | None) -> None:
        numbers.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, handler)
    yield numbers
    assert signal.getsignal(signal.SIGINT) is handler
    signal.signal(signal.SIGINT, before)


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def test_an_interrupt_waits_for_the_end(told: list[int]) -> None:
    seen = []

    def interrupted_twice() -> None:
        with HeldInterrupts():
            interrupt()
            interrupt()
            seen.append(len(told))

    with pytest.raises(KeyboardInterrupt):
        interrupted_twice()
    assert (seen, told) == ([0], [signal.SIGINT])


def test_an_interrupt_strikes_at_once_where_it_is_allowed(told: list[int]) -> None:
    with pytest.raises(KeyboardInterrupt), HeldInterrupts() as interrupts:
        interrupts.allowing(interrupt)
    assert told == [signal.SIGINT]


def test_what_was_held_back_strikes_as_soon_as_it_is_allowed(told: list[int]) -> None:
    begun: list[int] = []

    def interrupted_before() -> None:
        with HeldInterrupts() as interrupts:
            interrupt()
            interrupts.allowing(begun.append, 1)

    with pytest.raises(KeyboardInterrupt):
        interrupted_before()
    assert (begun, told) == ([], [signal.SIGINT])


def test_nothing_is_told_where_nothing_came(told: list[int]) -> None:
    with HeldInterrupts() as interrupts:
        assert interrupts.allowing(max, 1, 2) == 2
    assert told == []


def test_other_threads_and_ignored_interrupts_are_left_alone(told: list[int]) -> None:
    handlers = []

    def elsewhere() -> None:
        with HeldInterrupts():
            handlers.append(signal.getsignal(signal.SIGINT))

    handler = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with HeldInterrupts():
        handlers.append(signal.getsignal(signal.SIGINT))
    signal.signal(signal.SIGINT, handler)
    assert handlers == [handler, signal.SIG_IGN]

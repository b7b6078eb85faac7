"""What the line of progress says, and that pipes never see it.

What was printed is known, whenever an interrupt comes; SIGTERM and SIGHUP take the way of Ctrl-C.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import click
import pytest

from headrace.cli.progress import ProgressCounts, Rate, ended_by_signals, line, progress, summary, write_whole


def test_should_say_what_the_rate_is_now_and_not_what_it_was_on_average() -> None:
    rate, counts = Rate(window_s=3.0), ProgressCounts()
    assert rate.of(counts, 0.0) == (0.0, 0.0)
    for second in range(1, 11):
        counts.records += 100
        counts.bytes += 1_000
        assert rate.of(counts, float(second)) == (100.0, 1_000.0)
    for second in range(11, 15):
        last = rate.of(counts, float(second))
    assert last == (0.0, 0.0)


@pytest.mark.parametrize(
    ("share", "shown"),
    [
        (None, "1,234,567 records  2,000 records/s  1.0 MiB/s  1:05"),
        (0.456, "1,234,567 records  46 %  2,000 records/s  1.0 MiB/s  1:05"),
        (1.7, "1,234,567 records  100 %  2,000 records/s  1.0 MiB/s  1:05"),
    ],
)
def test_should_show_records_share_rates_and_time(share: float | None, shown: str) -> None:
    assert line(ProgressCounts(1_234_567), (2_000.0, float(1 << 20)), 65.4, share) == shown


@pytest.mark.parametrize(
    ("records", "seconds", "says"),
    [
        (1, 0.04, "produced 1 record to orders in 0.0 s"),
        (2, 60.0, "produced 2 records to orders in 60.0 s"),
        (2_000_000, 4.0, "produced 2,000,000 records to orders in 4.0 s, 500,000 records/s"),
    ],
)
def test_should_sum_up(records: int, seconds: float, says: str) -> None:
    assert summary("produced", records, "to orders", seconds) == says


def test_should_show_nothing_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with progress(ProgressCounts(1), lambda: 0.5, shown=True):
        pass
    assert capsys.readouterr() == ("", "")


@dataclass
class Output:
    """A pipe's end that is interrupted so many times while it is written to."""

    descriptor: int
    interrupts: int
    content: list[bytes] = field(default_factory=list)

    def write(self, content: bytes) -> None:
        for _ in range(self.interrupts):
            signal.raise_signal(signal.SIGINT)
        self.content.append(content)

    def flush(self) -> None:
        self.content.append(b"flushed")

    def fileno(self) -> int:
        return self.descriptor


@pytest.fixture(autouse=True)
def _interruptible() -> Iterator[None]:
    """Also where whoever started the tests has SIGINT ignored, as shells do for what runs in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def pipe() -> Iterator[int]:
    """The end to write to; nobody reads."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    yield writing
    os.close(reading)
    os.close(writing)


def fill(pipe: int) -> None:
    with suppress(BlockingIOError):
        while True:
            os.write(pipe, bytes(1 << 16))


def test_should_finish_what_it_writes_before_it_is_interrupted(pipe: int) -> None:
    out, written = Output(pipe, interrupts=1), list[bool]()
    with pytest.raises(KeyboardInterrupt):
        write_whole(out, b"tea", lambda: written.append(True))
    assert (out.content, written) == ([b"tea", b"flushed"], [True])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize(("interrupts", "full"), [(1, True), (2, False)])
def test_should_not_wait_for_a_reader_that_stands_still_nor_for_who_insists(
    pipe: int, interrupts: int, *, full: bool
) -> None:
    if full:
        fill(pipe)
    out, written = Output(pipe, interrupts), list[bool]()
    with pytest.raises(KeyboardInterrupt):
        write_whole(out, b"tea", lambda: written.append(True))
    assert (out.content, written) == ([], [])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_should_write_in_peace(pipe: int) -> None:
    out, written = Output(pipe, interrupts=0), list[bool]()
    write_whole(out, b"tea", lambda: written.append(True))
    assert (out.content, written) == ([b"tea", b"flushed"], [True])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_should_end_by_a_signal_as_by_ctrl_c_with_another_exit_code(number: signal.Signals, code: int) -> None:
    before = signal.getsignal(number)
    with pytest.raises(click.exceptions.Exit) as ended, ended_by_signals() as ending:
        signal.raise_signal(number)
    assert (ended.value.exit_code, ending.word) == (code, f"ended by {number.name}")
    with pytest.raises(KeyboardInterrupt), ended_by_signals():
        signal.raise_signal(signal.SIGINT)
    with ended_by_signals():
        pass
    assert signal.getsignal(number) is before


def test_should_go_on_without_its_terminal_where_nohup_says_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ended_by_signals():
            signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_should_end_by_sigterm_where_ctrl_c_is_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    heard: list[str] = []

    def interrupted_twice() -> None:
        with ended_by_signals():
            signal.raise_signal(signal.SIGINT)
            heard.append("goes on after Ctrl-C")
            signal.raise_signal(signal.SIGTERM)

    try:
        with pytest.raises(click.exceptions.Exit) as ended:
            interrupted_twice()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert (ended.value.exit_code, heard) == (143, ["goes on after Ctrl-C"])

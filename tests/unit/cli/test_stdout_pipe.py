"""Records count as read when they have left the pipe, and none after their reader did."""

import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from headrace.cli.stdout_pipe import Pipe, pipe_of_stdout
from headrace.client.record import TopicPartition
from tests.support.waiting import wait_for

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
TEA, COFFEE = b"tea\n", b"coffee\n"


class Ends:
    """A pipe: to write, and to read some bytes, or never again."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()

    def take(self, size: int) -> None:
        while size:
            size -= len(os.read(self.reading, size))

    def leave(self) -> None:
        os.close(self.reading)
        self.reading = -1

    def close(self) -> None:
        for each in (self.reading, self.writing):
            with suppress(OSError):
                os.close(each)


@pytest.fixture
def ends() -> Iterator[Ends]:
    made = Ends()
    yield made
    made.close()


def write(pipe: Pipe, place: TopicPartition, offsets: list[int], lines: list[bytes]) -> None:
    pipe.add(place, offsets, lines)
    pipe.write(b"".join(lines))


def test_should_count_a_record_once_its_last_byte_has_left_the_pipe(ends: Ends) -> None:
    pipe = Pipe(ends.writing)
    assert pipe.first_untaken(P0) is None
    write(pipe, P0, [5, 9], [TEA, COFFEE])
    write(pipe, P1, [3], [TEA])
    assert (pipe.first_untaken(P0), pipe.first_untaken(P1)) == (5, 3)
    ends.take(len(TEA) - 1)
    assert (pipe.first_untaken(P0), pipe.first_untaken(P1)) == (5, 3)
    ends.take(1)
    assert (pipe.first_untaken(P0), pipe.first_untaken(P1)) == (9, 3)
    ends.take(len(COFFEE))
    assert (pipe.first_untaken(P0), pipe.first_untaken(P1)) == (None, 3)
    assert (pipe.is_taken(), pipe.comes_again()) == (False, 1)
    ends.take(len(TEA))
    pipe.wait_until_taken()
    assert (pipe.first_untaken(P1), pipe.is_taken(), pipe.comes_again()) == (None, True, 0)
    write(pipe, P0, [10], [TEA])
    assert pipe.first_untaken(P0) == 10


def test_should_count_nothing_more_from_a_reader_that_went_away(ends: Ends) -> None:
    """Also where it took all: what it did with that nobody knows."""
    pipe = Pipe(ends.writing)
    write(pipe, P0, [0, 1, 2], [TEA, TEA, TEA])
    ends.take(len(TEA))
    assert pipe.first_untaken(P0) == 1
    ends.take(2 * len(TEA))
    ends.leave()
    assert pipe.first_untaken(P0) == 1
    pipe.wait_until_taken()
    assert (pipe.first_untaken(P0), pipe.comes_again()) == (1, 2)
    with pytest.raises(BrokenPipeError):
        pipe.write(TEA)


def test_should_wait_no_longer_when_the_reader_goes_away(ends: Ends) -> None:
    pipe = Pipe(ends.writing)
    write(pipe, P0, [0], [TEA])
    waiting = threading.Thread(target=pipe.wait_until_taken)
    waiting.start()
    for _ in range(20):  # As whoever commits meanwhile does.
        assert not pipe.is_left(within_ms=1)
        assert pipe.first_untaken(P0) == 0
    ends.leave()
    waiting.join()
    assert pipe.first_untaken(P0) == 0


def test_should_wait_as_long_as_it_is_told_to(ends: Ends) -> None:
    pipe = Pipe(ends.writing)
    write(pipe, P0, [0], [TEA])
    pipe.wait_until_taken(limit_ms=1)
    assert pipe.first_untaken(P0) == 0


def test_should_know_how_far_the_reader_is_while_the_pipe_is_full(ends: Ends) -> None:
    pipe, rows = Pipe(ends.writing), 400_000
    writing = threading.Thread(target=write, args=(pipe, P0, [*range(rows)], [TEA] * rows))
    writing.start()
    seen: list[int] = []
    for _ in range(8):
        ends.take(rows * len(TEA) // 8)
        if pipe.first_untaken(P0) is not None:
            seen.append(pipe.first_untaken(P0) or 0)
    writing.join()
    wait_for(pipe.is_taken, "all was read")
    assert seen == sorted(seen)
    assert 0 < seen[-1] < rows


def test_should_take_a_socket_for_a_pipe() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        pipe = Pipe(ours.fileno())
        write(pipe, P0, [0, 1], [TEA, TEA])
        assert pipe.first_untaken(P0) == 0
        theirs.recv(100)
        assert pipe.first_untaken(P0) is None
        write(pipe, P0, [2], [TEA])
        theirs.close()
        pipe.wait_until_taken()
        assert pipe.first_untaken(P0) == 2


def test_should_leave_files_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ends: Ends) -> None:
    with (tmp_path / "out").open("w") as file:
        monkeypatch.setattr(sys, "stdout", file)
        assert pipe_of_stdout() is None
    with os.fdopen(ends.writing, "w") as piped:
        monkeypatch.setattr(sys, "stdout", piped)
        assert pipe_of_stdout() is not None

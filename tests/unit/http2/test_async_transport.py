"""Memory to receive into is used again, but never while somebody keeps a part of it."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.http2.async_transport import ReadMemory

ROOM = 4
SIZE = 16


def memory() -> ReadMemory:
    return ReadMemory(SIZE, ROOM)


def receive(memory: ReadMemory, content: bytes, *kept: object) -> memoryview:
    memory.room()[: len(content)] = content
    view = memory.received(len(content))
    memory.handled(set(kept))
    return view


def test_should_use_the_same_memory_again_where_nothing_is_kept() -> None:
    reads = memory()
    views = [receive(reads, b"abc") for _ in range(10)]
    assert len({id(view.obj) for view in views}) == 1
    assert len(reads.room()) == SIZE


@pytest.mark.parametrize("piece", [b"abcd", b"abcde"])
def test_should_leave_alone_what_is_kept(piece: bytes) -> None:
    reads = memory()
    views = [receive(reads, piece, "frame 1") for _ in range(5)]
    assert all(bytes(view) == piece for view in views)
    receive(reads, b"end")
    assert len(reads.room()) == SIZE


def test_should_keep_no_more_than_what_came_with_what_is_kept_now() -> None:
    reads = memory()
    first = receive(reads, b"abcdefghijkl", "frame 1")
    receive(reads, b"mn", "frame 1")
    receive(reads, b"opqr", "frame 2")
    assert reads._full == []
    kept = [receive(reads, b"stuv", "frame 2") for _ in range(4)]
    assert any(view.obj is first.obj for view in kept), "it is used again"
    assert all(bytes(view) == b"stuv" for view in kept)


def test_should_keep_what_one_of_several_keeps() -> None:
    reads = memory()
    kept = receive(reads, b"abcd", "a 1")
    for number in range(9):
        receive(reads, b"efgh", "a 1", f"b {number}")
    assert bytes(kept) == b"abcd"


@given(st.lists(st.tuples(st.integers(1, SIZE), st.integers(0, 2)), max_size=40))
def test_should_never_overwrite_what_is_kept(received: Sequence[tuple[int, int]]) -> None:
    """Of each: how much comes, and whether a frame goes on, ends, or ends and another begins."""
    reads, number, kept = memory(), 0, list[tuple[memoryview, bytes]]()
    for count, (size, what) in enumerate(received):
        content = bytes([count % 251]) * min(size, len(reads.room()))
        if what or not number:
            kept.clear()
            number = count + 1 if what == 1 else 0
        names = [number] if number else []
        view = receive(reads, content, *names)
        if number:
            kept.append((view, content))
        assert all(view == content for view, content in kept)

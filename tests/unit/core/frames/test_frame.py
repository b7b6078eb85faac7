"""Frames cut out of chunks that end anywhere, and refused by their heads."""

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import BrokenSessionError
from headrace.core.frames.frame import HEAD_BYTES, Frame, FrameReader, pack_head
from headrace.core.frames.session_messages import SessionKind

BOUNDS = {int(SessionKind.PRODUCE): 1000, int(SessionKind.CLOSE): 0}


def whole(frame: Frame) -> tuple[int, int, int, int, bytes]:
    return frame.kind, frame.channel, frame.leader_epoch, frame.first, b"".join(frame.payload)


def received(data: bytes, places: list[int], allocate: Callable[[int], memoryview] | None = None) -> list[Frame]:
    """What comes of `data` in chunks that end at `places`."""
    reader, frames, at = FrameReader(BOUNDS, allocate), list[Frame](), 0
    for end in [*sorted(place % (len(data) + 1) for place in places), len(data)]:
        frames += reader.receive(data[at:end])
        at = end
    assert reader.is_between_frames
    assert not reader.missing_bytes
    return frames


@given(
    payloads=st.lists(st.none() | st.binary(max_size=200), max_size=6),
    places=st.lists(st.integers(0, 1 << 12), max_size=12),
)
def test_should_find_the_same_frames_wherever_chunks_end(payloads: list[bytes | None], places: list[int]) -> None:
    data, expected = b"", []
    for number, payload in enumerate(payloads):
        kind = SessionKind.CLOSE if payload is None else SessionKind.PRODUCE
        sent = payload or b""
        data += pack_head(kind, number, len(sent), 7, -number) + sent
        expected.append((kind, number, 7, -number, sent))
    frames = received(data, places)
    assert [whole(frame) for frame in frames] == expected
    assert all(len(chunk) for frame in frames for chunk in frame.payload)
    copied = received(data, places, lambda nbytes: memoryview(bytearray(nbytes)))
    assert [whole(frame) for frame in copied] == expected
    assert all(len(frame.payload) == bool(sent) for frame, (*_, sent) in zip(copied, expected, strict=True))


def test_should_find_frames_when_every_byte_is_a_chunk() -> None:
    data = pack_head(SessionKind.PRODUCE, 1, 3) + b"abc" + pack_head(SessionKind.CLOSE, 1, 0)
    assert [whole(frame)[-1] for frame in received(data, list(range(len(data))))] == [b"abc", b""]


def test_should_view_payloads_where_they_arrived() -> None:
    chunk = bytearray(pack_head(SessionKind.PRODUCE, 1, 3) + b"abc")
    (frame,) = FrameReader(BOUNDS).receive(chunk)
    chunk[HEAD_BYTES] = ord("x")
    assert b"".join(frame.payload) == b"xbc"


def test_should_copy_payloads_into_memory_that_it_is_given() -> None:
    memory, chunk = bytearray(3), bytearray(pack_head(SessionKind.PRODUCE, 1, 3) + b"abc")
    (frame,) = FrameReader(BOUNDS, lambda nbytes: memoryview(memory)[:nbytes]).receive(chunk)
    chunk[HEAD_BYTES] = ord("x")
    assert (bytes(memory), b"".join(frame.payload)) == (b"abc", b"abc")


def test_should_say_what_is_missing_before_it_comes() -> None:
    reader = FrameReader(BOUNDS)
    assert list(reader.receive(pack_head(SessionKind.PRODUCE, 1, 100)[:-1])) == []
    assert (reader.missing_bytes, reader.is_between_frames) == (0, False)
    assert list(reader.receive(pack_head(SessionKind.PRODUCE, 1, 100)[-1:] + b"abc")) == []
    assert (reader.missing_bytes, reader.is_between_frames) == (97, False)


def test_should_tell_a_single_whole_frame() -> None:
    whole, reader = pack_head(SessionKind.PRODUCE, 1, 3) + b"abc", FrameReader(BOUNDS)
    assert reader.is_one_frame(whole)
    assert not any(map(reader.is_one_frame, (whole[:-1], whole[:20], whole + whole, b"")))
    assert not list(reader.receive(b"\2"))
    assert not reader.is_one_frame(whole)


@pytest.mark.parametrize(
    ("at", "code", "value", "said"),
    [
        (0, "B", 0x77, "frame type 0x77 is unknown: send one of 0x02, 0x05"),
        (1, "B", 1, "flags are 0x01 and reserved is 0x0000: both must be 0"),
        (2, "H", 3, "flags are 0x00 and reserved is 0x0003: both must be 0"),
        (8, "I", 1001, "length is 1001 in a frame of type 0x02: send 1000 bytes at most in one frame"),
    ],
)
def test_should_refuse_a_frame_by_its_head(at: int, code: str, value: int, said: str) -> None:
    head = bytearray(pack_head(SessionKind.PRODUCE, 1, 0))
    struct.pack_into("<" + code, head, at, value)
    with pytest.raises(BrokenSessionError, match=said):
        list(FrameReader(BOUNDS).receive(head))


@given(st.binary(max_size=300), st.integers(1, 100))
def test_should_never_fail_otherwise(data: bytes, size: int) -> None:
    reader = FrameReader(BOUNDS)
    try:
        for at in range(0, len(data), size):
            list(reader.receive(data[at : at + size]))
    except BrokenSessionError:
        pass


def test_should_say_of_which_frame_it_keeps_what_arrived() -> None:
    reader, frame = FrameReader({1: 100}), pack_head(1, 1, 4) + b"abcd"
    kept = []
    for piece in (frame[:20], frame[20:50], frame[50:51], frame[51:] + frame[:50], frame[50:], frame[:48]):
        list(reader.receive(piece))
        kept.append(reader.kept)
    assert kept == [0, 1, 1, 2, 0, 3]

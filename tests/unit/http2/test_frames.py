"""Frames cut out of a byte stream: the same however it is chunked, and refused by their heads when too long.

What is written: in order, large payloads untouched, nothing empty.
"""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core import limits
from headrace.http2 import frames
from headrace.http2.events import ErrorCode, RemoteProtocolError
from headrace.http2.frames import H2_GOAWAY_BYTES_MAX, H2_JOINED_BYTES_MAX, H2_SETTINGS_MAX, Http2FrameReader, Output

FRAMES = [
    (frames.SETTINGS, 0, 0, b""),
    (frames.HEADERS, frames.END_HEADERS, 1, b"head"),
    (frames.DATA, 0, 1, b"body" * 9),
    (frames.DATA, frames.PADDED, 1, b"\x02body\0\0"),
    (200, 1, 7, b"unknown"),
    (frames.DATA, 0, 3, b""),
    (frames.PING, 0, 0, b"12345678"),
    (frames.DATA, frames.END_STREAM, 3, b"end"),
]
STREAM = frames.PREFACE + b"".join(frames.pack_frame(*frame) for frame in FRAMES)


def read(chunks: list[bytes]) -> list[tuple[int, int, int, bytes]]:
    """The frames of a server's peer, the pieces of those that come in pieces joined."""
    reader, whole = Http2FrameReader(frames.PREFACE), True
    found: list[tuple[int, int, int, bytes]] = []
    for chunk in chunks:
        for kind, flags, stream_id, payload in reader.frames(memoryview(chunk)):
            if whole:
                found.append((kind, flags, stream_id, bytes(payload)))
            else:
                found[-1] = (kind, flags, stream_id, found[-1][3] + payload)
            whole = not reader._left
    return found


@given(st.lists(st.integers(0, len(STREAM))))
def test_should_find_the_same_frames_when_chunked_anyhow(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    assert read([STREAM[start:end] for start, end in itertools.pairwise(edges)]) == FRAMES


def test_should_pass_a_body_on_as_it_comes_without_copying_it() -> None:
    reader = Http2FrameReader(b"")
    chunk = memoryview(frames.pack_head(frames.DATA, frames.END_STREAM, 1, 10) + b"12345")
    ((_, flags, _, payload),) = reader.frames(chunk)
    assert isinstance(payload, memoryview)
    assert payload.obj is chunk.obj
    assert (flags, bytes(payload)) == (0, b"12345")
    assert list(reader.frames(memoryview(b"67890"))) == [(frames.DATA, frames.END_STREAM, 1, b"67890")]


@pytest.mark.parametrize(
    ("kind", "length", "code"),
    [
        (frames.DATA, limits.H2_MAX_FRAME_BYTES + 1, ErrorCode.FRAME_SIZE_ERROR),
        (frames.PING, 7, ErrorCode.FRAME_SIZE_ERROR),
        (frames.PING, 0, ErrorCode.FRAME_SIZE_ERROR),
        (frames.PRIORITY, 6, ErrorCode.FRAME_SIZE_ERROR),
        (frames.RST_STREAM, 5, ErrorCode.FRAME_SIZE_ERROR),
        (frames.WINDOW_UPDATE, 3, ErrorCode.FRAME_SIZE_ERROR),
        (frames.HEADERS, limits.H2_MAX_FRAME_BYTES + 1, ErrorCode.FRAME_SIZE_ERROR),
        (frames.HEADERS, limits.H2_HEADER_BLOCK_BYTES_MAX + 300, ErrorCode.ENHANCE_YOUR_CALM),
        (frames.CONTINUATION, limits.H2_HEADER_BLOCK_BYTES_MAX + 1, ErrorCode.ENHANCE_YOUR_CALM),
        (frames.SETTINGS, 6 * H2_SETTINGS_MAX + 6, ErrorCode.ENHANCE_YOUR_CALM),
        (frames.GOAWAY, H2_GOAWAY_BYTES_MAX + 1, ErrorCode.ENHANCE_YOUR_CALM),
        (99, limits.H2_MAX_FRAME_BYTES + 1, ErrorCode.FRAME_SIZE_ERROR),
    ],
)
@pytest.mark.parametrize("cut", [1, 9])
def test_should_refuse_a_frame_by_its_head(kind: int, length: int, code: ErrorCode, cut: int) -> None:
    head = frames.pack_head(kind, 0, 1, length)
    reader = Http2FrameReader(b"")
    if cut < len(head):
        assert list(reader.frames(memoryview(head[:cut]))) == []
    with pytest.raises(RemoteProtocolError, match=f"the peer sent a frame of type {kind} with {length}") as refused:
        list(reader.frames(memoryview(head[cut % len(head) :])))
    assert refused.value.details["error_code"] == code


def test_should_refuse_what_does_not_begin_with_the_preface() -> None:
    reader = Http2FrameReader(frames.PREFACE)
    assert list(reader.frames(memoryview(b"PRI * HT"))) == []
    with pytest.raises(RemoteProtocolError, match="something else than the HTTP/2 preface"):
        list(reader.frames(memoryview(b"ML")))


def test_should_take_padding_off() -> None:
    assert bytes(frames.unpad(b"\x02body\0\0")) == b"body"
    assert bytes(frames.unpad(b"\x00")) == b""
    for wrong in (b"", b"\x01", b"\x05body"):
        with pytest.raises(RemoteProtocolError, match="padd"):
            frames.unpad(wrong)


def test_should_refuse_a_goaway_without_its_fields() -> None:
    assert frames.unpack_goaway(frames.pack_goaway(7, 11, b"why")[9:]) == (7, 11, b"why")
    with pytest.raises(RemoteProtocolError, match="without its two fields"):
        frames.unpack_goaway(b"1234567")


LARGE = bytes(H2_JOINED_BYTES_MAX)


@given(st.lists(st.tuples(st.binary(max_size=20), st.lists(st.sampled_from([b"", b"small", LARGE]), max_size=3))))
def test_should_join_what_is_small_and_leave_what_is_large(frames: list[tuple[bytes, list[bytes]]]) -> None:
    output = Output()
    for head, payload in frames:
        output.put(head)
        output.put_payload(tuple(payload))
    buffers = output.take()
    assert b"".join(buffers) == b"".join(head + b"".join(payload) for head, payload in frames)
    assert all(buffers)
    assert sum(buffer is LARGE for buffer in buffers) == sum(payload.count(LARGE) for _, payload in frames)
    assert output.take() == []

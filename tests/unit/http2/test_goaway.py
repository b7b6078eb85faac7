"""The GOAWAY splitter: nothing but GOAWAY frames is taken out, however the bytes are chunked."""

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core import limits
from headrace.http2.events import RemoteProtocolError
from headrace.http2.goaway import GoAway, GoAwaySplitter


def frame(kind: int, body: bytes, stream_id: int = 0) -> bytes:
    return struct.pack("!HBBBL", len(body) >> 8, len(body) & 0xFF, kind, 0, stream_id) + body


def split(chunks: list[bytes], passing: int = 0) -> tuple[bytes, list[GoAway]]:
    splitter = GoAwaySplitter(passing)
    pieces = [piece for chunk in chunks for piece in splitter.split(memoryview(chunk))]
    passed = b"".join(bytes(piece) for piece in pieces if not isinstance(piece, GoAway))
    return passed, [piece for piece in pieces if isinstance(piece, GoAway)]


other_frames = st.builds(frame, st.sampled_from([0, 1, 4, 6, 8, 200]), st.binary(max_size=40), st.integers(0, 9))
goaways = st.builds(GoAway, st.integers(0, 2**31 - 1), st.integers(0, 2**32 - 1), st.binary(max_size=30))


@given(frames=st.lists(other_frames | goaways, max_size=12), cuts=st.lists(st.integers(0, 600)))
def test_should_take_out_goaways_only_when_chunked_anyhow(frames: list[bytes | GoAway], cuts: list[int]) -> None:
    stream = b"".join(part.pack() if isinstance(part, GoAway) else part for part in frames)
    edges = [0, *sorted(cut for cut in cuts if cut <= len(stream)), len(stream)]
    chunks = [stream[start:end] for start, end in itertools.pairwise(edges)]

    passed, taken = split(chunks)

    assert passed == b"".join(part for part in frames if isinstance(part, bytes))
    assert taken == [part for part in frames if isinstance(part, GoAway)]


def test_should_let_the_preface_pass_when_the_peer_is_a_client() -> None:
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    goaway = GoAway(3, 0, b"bye")

    assert split([preface[:5], preface[5:] + goaway.pack()], passing=len(preface)) == (preface, [goaway])


def test_should_refuse_a_frame_by_its_header_when_it_is_too_long() -> None:
    length = limits.H2_MAX_FRAME_BYTES + 1
    with pytest.raises(RemoteProtocolError, match=f"{length} bytes"):
        split([struct.pack("!HBBBL", length >> 8, length & 0xFF, 0, 0, 1)])


@pytest.mark.parametrize("bad", [frame(7, b"\0" * 8, stream_id=1), frame(7, b"\0" * 7), frame(7, b"\0" * 20_000)])
def test_should_refuse_a_goaway_when_it_is_malformed(bad: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match=r"GOAWAY|frame of"):
        split([bad])

"""gzip in bounded steps, and who takes it.

A request's body as it arrives: order, credit, end, and failure.
"""

import asyncio
import gzip
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import InvalidRequestError
from headrace.http2.bodies import (
    GZIP_MEMBERS_MAX,
    Deflater,
    InflatedTooLargeError,
    Inflater,
    RequestBody,
    accepts_gzip,
    gzipped,
    is_gzip,
)

MIB = 1 << 20


@pytest.mark.parametrize(
    ("accept", "takes"),
    [
        ("", False),
        ("gzip", True),
        ("GZIP", True),
        ("x-gzip", True),
        ("br, deflate", False),
        ("br;q=1.0, gzip;q=0.5", True),
        ("gzip;q=0", False),
        ("gzip; q=0.000, *", False),
        ("*", True),
        ("*;q=0", False),
        ("identity", False),
        ("gzip;q=x", False),
        ("gzip;level=9", True),
    ],
)
def test_should_know_who_takes_gzip(accept: str, takes: bool) -> None:
    assert accepts_gzip(accept) is takes


def test_should_know_gzip_by_both_names() -> None:
    assert [is_gzip(name) for name in ("gzip", " X-GZIP", "br", "gzip, gzip", "")] == [True, True, False, False, False]


def inflated(*chunks: bytes, limit: int = 4 * MIB) -> bytes:
    inflater = Inflater(limit)
    decoded = b"".join(step for chunk in chunks for step in inflater.steps(chunk))
    inflater.finish()
    return decoded


@given(st.lists(st.binary(max_size=300), max_size=4), st.integers(1, 50))
def test_should_decode_whatever_pieces_it_comes_in(members: list[bytes], size: int) -> None:
    coded = b"".join(map(gzip.compress, members))
    assert inflated(*(coded[at : at + size] for at in range(0, len(coded), size))) == b"".join(members)


def test_should_decode_step_by_step_and_no_more_than_the_limit() -> None:
    bomb = gzip.compress(bytes(64 * MIB))
    steps = Inflater(3 * MIB).steps(bomb)
    assert [len(next(steps)) for _ in range(3)] == [MIB] * 3
    with pytest.raises(InflatedTooLargeError):
        next(steps)
    assert inflated(gzip.compress(bytes(3 * MIB)), limit=3 * MIB) == bytes(3 * MIB)
    noise = random.Random(1).randbytes(MIB)
    assert inflated(gzip.compress(noise)) == noise
    with pytest.raises(InflatedTooLargeError):
        inflated(gzip.compress(b"a") * 4, limit=3)


@pytest.mark.parametrize(
    ("coded", "why"),
    [
        (b"plain", "incorrect header check"),
        (gzip.compress(b"cut short")[:-1], "it ends before its checksum"),
        (gzip.compress(b"") * GZIP_MEMBERS_MAX, "it has 1000 members or more"),
        (gzip.compress(b"x") + b"garbage", "incorrect header check"),
        (gzip.compress(b"x")[:-8] + bytes(8), "incorrect data check"),
    ],
    ids=["no gzip", "cut short", "too many members", "garbage behind", "wrong checksum"],  # gzip writes the time
)
def test_should_say_what_is_wrong_with_it(coded: bytes, why: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"Content-Encoding 'gzip': .*{why}.*; send whole gzip") as refused:
        inflated(coded)
    assert refused.value.details == {"field": "Content-Encoding"}


def test_should_make_what_others_read() -> None:
    assert gzip.decompress(gzipped(b"whole")) == b"whole"
    deflater, whole = Deflater(), b""
    inflater = Inflater(MIB)
    for piece in (b"one\n", b"", b"two\n"):
        coded = deflater.piece(piece)
        whole += coded
        assert b"".join(inflater.steps(coded)) == piece, "each piece is there at once"
    assert gzip.decompress(whole + deflater.end()) == b"one\ntwo\n"


class Credits(list[int]):
    def body(self, *chunks: bytes, ended: bool = True) -> RequestBody:
        body = RequestBody(self.append, self.append)
        for chunk in chunks:
            body.feed(chunk)
        if ended:
            body.feed_eof()
        return body


async def test_should_give_chunks_as_they_came_and_credit_them_when_taken() -> None:
    credited = Credits()
    large = bytes(2_000)
    body = credited.body(b"ab", large, b"c")
    assert credited == []
    assert not body.at_eof()
    assert await body.take_chunks() == [b"ab", large, b"c"]
    assert await body.take_chunks() == []
    assert body.at_eof()
    assert credited == [2_003]


async def test_should_not_hold_a_body_byte_by_byte() -> None:
    chunks = await Credits().body(*[b"x"] * 10_000).take_chunks()
    assert b"".join(chunks) == b"x" * 10_000
    assert len(chunks) <= 10


async def test_should_wait_for_more_when_the_body_has_not_ended() -> None:
    body = Credits().body(ended=False)
    reading = asyncio.ensure_future(body.readany())
    await asyncio.sleep(0)
    assert not reading.done()
    body.feed(b"now")
    assert await reading == b"now"


async def test_should_read_the_rest_or_a_part() -> None:
    credited = Credits()
    body = credited.body(b"abc", b"def", b"g")
    assert await body.read(0) == b""
    assert await body.read(4) == b"abcd"
    assert sum(credited) == 4
    assert await body.read() == b"efg"
    assert await body.read() == b""
    assert sum(credited) == 7


async def test_should_iterate_to_the_end() -> None:
    assert [chunk async for chunk in Credits().body(b"a", b"b").iter_any()] == [b"ab"]


async def test_should_raise_in_the_reader_when_the_client_has_gone() -> None:
    body = Credits().body(ended=False)
    reading = asyncio.ensure_future(body.readany())
    await asyncio.sleep(0)
    error = ConnectionResetError("gone")
    body.set_exception(error, OSError("why"))
    with pytest.raises(ConnectionResetError, match="gone"):
        await reading
    assert body.exception() is error
    assert isinstance(error.__cause__, OSError)


def test_should_credit_what_nobody_reads() -> None:
    credited = Credits()
    credited.body(b"abc").discard()
    assert credited == [3]


def test_should_credit_at_once_what_comes_when_nobody_will_read_it() -> None:
    credited = Credits()
    body = credited.body(ended=False)
    body.discard()
    body.feed(b"abc")
    assert credited == [3]
    assert not body.has_something

"""A request's body as it arrives: order, credit, end, and failure."""

import asyncio

import pytest

from headrace.http2.bodies import RequestBody


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

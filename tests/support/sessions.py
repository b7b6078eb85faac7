"""A small client of sessions, which says what it is told to and hears everything: nothing of the SDK is in it."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit

from headrace.core.frames.session_messages import (
    FROM_BROKERS,
    SESSION_MEDIA_TYPE,
    Batches,
    BrokerMessage,
    ClientMessage,
    Failed,
    Heartbeat,
    OpenFetch,
    OpenProduce,
    Produce,
    Produced,
)
from headrace.core.frames.session_terms import FetchTerms, ProduceTerms
from headrace.core.types import PartitionId, TopicName
from headrace.http2.async_transport import AsyncStream, AsyncTransport
from tests.support.patience import patient

_T = TypeVar("_T")


class SessionClient:
    def __init__(self, stream: AsyncStream) -> None:
        self.stream = stream
        self._reader = FROM_BROKERS.reader()
        self._heard: deque[BrokerMessage] = deque()
        self.ended = False

    def say(self, *messages: ClientMessage) -> None:
        """All in one piece."""
        self.stream.send(b"".join(map(packed, messages)))

    def end(self) -> None:
        self.stream.send(ended=True)

    async def hear(self, kind: type[_T]) -> _T:
        """The next message, which is one of these. On a slow machine there may be heartbeats in between."""
        message = await self.next()
        while isinstance(message, Heartbeat) and kind is not Heartbeat:
            message = await self.next()
        assert isinstance(message, kind), message
        return message

    async def next(self) -> BrokerMessage | None:
        """None at the end of the session."""
        while not self._heard and not self.ended:
            chunks = await self.stream.receive(20)
            self.ended = not chunks
            for chunk in chunks:
                self._heard += map(FROM_BROKERS.message, self._reader.receive(chunk))
        return self._heard.popleft() if self._heard else None

    async def rest(self) -> list[BrokerMessage]:
        """All that comes until the end. On a slow machine there may be heartbeats in between."""
        heard: list[BrokerMessage] = []
        while (message := await self.next()) is not None:
            if not isinstance(message, Heartbeat):
                heard.append(message)
        return heard

    async def produced(self, count: int) -> list[Produced]:
        return [await self.hear(Produced) for _ in range(count)]

    async def failed(self, channel: int) -> Failed:
        failed = await self.hear(Failed)
        assert failed.channel == channel, failed
        return failed


def packed(message: ClientMessage) -> bytes:
    return b"".join(message.buffers()) if isinstance(message, Produce) else message.pack()


def to_produce(channel: int, topic: str = "flights", **terms: Any) -> OpenProduce:
    partition = PartitionId(terms.pop("partition", 0))
    return OpenProduce(channel, ProduceTerms(TopicName("default", topic), partition, **terms))


def to_fetch(channel: int, topic: str = "flights", **terms: Any) -> OpenFetch:
    partition = PartitionId(terms.pop("partition", 0))
    return OpenFetch(channel, FetchTerms(TopicName("default", topic), partition, **terms))


def bytes_of(batches: Batches) -> bytes:
    return b"".join(batches.batches)


@asynccontextmanager
async def session_with(transport: AsyncTransport, url: str) -> AsyncIterator[SessionClient]:
    """With the broker that this URL leads to."""
    parts = urlsplit(url)
    there = f"{parts.scheme}://{parts.netloc}/v1/sessions"
    stream = await transport.open("POST", there, headers={"Content-Type": SESSION_MEDIA_TYPE})
    try:
        yield SessionClient(stream)
    finally:
        stream.cancel()


@asynccontextmanager
async def session_at(url: str) -> AsyncIterator[SessionClient]:
    """On a connection of its own."""
    async with (
        AsyncTransport(connect_timeout_s=patient(60)) as transport,
        asyncio.timeout(patient(60)),
        session_with(transport, url) as session,
    ):
        yield session

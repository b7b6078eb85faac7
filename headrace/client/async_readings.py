"""What `async for` goes over: the records or batches of an `AsyncConsumer`.

Objects, not generators: a generator ends for good when it is cancelled, and `asyncio.wait_for(anext(records), 1)` must
be able to try again. Each takes over from the one that read before, where that had come to.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Self

from headrace.client import frames
from headrace.client.cursor import Cursor, Handed
from headrace.client.record import Record
from headrace.core.limits import CONSUMER_TURN_MS
from headrace.core.records.columns import DecodedBatch

if TYPE_CHECKING:
    from headrace.client.async_consumer import AsyncConsumer


class AsyncReading:
    def __init__(self, consumer: "AsyncConsumer", *, follow: bool) -> None:
        self.follow = follow
        self._consumer = consumer
        self._ended = False

    def __aiter__(self) -> Self:
        return self

    async def _next_batch(self) -> tuple[Cursor, DecodedBatch]:
        """Raises StopAsyncIteration at the end, and from then on."""
        found = None if self._ended else await self._consumer._next_batch(self)
        if found is None:
            self._ended = True
            raise StopAsyncIteration
        return found


class AsyncBatches(AsyncReading, AsyncIterator[Any]):
    """pyarrow.RecordBatches of CONSUMED_SCHEMA."""

    async def __anext__(self) -> Any:
        cursor, batch = await self._next_batch()
        columns = frames.columns(cursor.partition, batch)
        self._consumer._handed.given = True
        return columns


class AsyncRecords(AsyncReading, AsyncIterator[Record]):
    def __init__(self, consumer: "AsyncConsumer", *, follow: bool) -> None:
        super().__init__(consumer, follow=follow)
        self._rows: Iterator[Record] = iter(())
        self._cursor: Cursor | None = None
        self._turn = 0
        self._handed = Handed()
        self._look_ns = 0
        """When to look around again, unless there are news before."""

    async def __anext__(self) -> Record:
        cursor, consumer = self._cursor, self._consumer
        if cursor is not None and cursor.turn == self._turn and consumer._current is self:
            if (consumer._has_news or self._handed.stops or monotonic_ns() >= self._look_ns) and not await self._go_on(
                cursor
            ):
                return await self._next()
            for record in self._rows:
                self._handed.last = record
                return record
            self._handed.given, self._handed.last = True, None
        return await self._next()

    async def _go_on(self, cursor: Cursor) -> bool:
        """Others get the loop, and the group what it wants. False: the rest of the batch is not handed out."""
        if self._handed.last is not None:
            self._handed.came_back_between(cursor)
        if not self._handed.stops:
            await asyncio.sleep(0)
            await self._consumer._follow()
        self._look_ns = min(monotonic_ns() + CONSUMER_TURN_MS * 1_000_000, self._consumer._holds_until_ns)
        return self._consumer._current is self and cursor.turn == self._turn and not self._handed.stops

    async def _next(self) -> Record:
        """The first of the next batch, none of which is empty."""
        self._cursor = None
        self._cursor, batch = await self._next_batch()
        self._turn = self._cursor.turn
        self._rows = frames.records(self._cursor.partition, batch)
        self._handed = self._consumer._handed
        record = self._handed.last = next(self._rows)
        return record

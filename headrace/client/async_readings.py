"""What `async for` goes over: the records or batches of an `AsyncConsumer`.

Objects, not generators: a generator ends for good when it is cancelled, and `asyncio.wait_for(anext(records), 1)` must
be able to try again. Each takes over from the one that read before, where that had come to.
"""

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, Self

from headrace.client import frames
from headrace.client.cursor import Cursor, Handed
from headrace.client.record import Record
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
        return frames.columns(cursor.partition, batch)


class AsyncRecords(AsyncReading, AsyncIterator[Record]):
    def __init__(self, consumer: "AsyncConsumer", *, follow: bool) -> None:
        super().__init__(consumer, follow=follow)
        self._rows: Iterator[Record] = iter(())
        self._cursor: Cursor | None = None
        self._turn = 0
        self._handed = Handed()

    async def __anext__(self) -> Record:
        cursor, consumer = self._cursor, self._consumer
        if cursor is not None and cursor.turn == self._turn and consumer._current is self:
            if consumer._has_news and self._handed.last is not None:
                self._handed.came_back_between(cursor)
                await consumer._follow()
                if cursor.turn != self._turn:
                    return await self._next()
            for record in self._rows:
                self._handed.last = record
                return record
        return await self._next()

    async def _next(self) -> Record:
        """The first of the next batch, none of which is empty."""
        self._cursor = None
        self._cursor, batch = await self._next_batch()
        self._turn = self._cursor.turn
        self._rows = frames.records(self._cursor.partition, batch)
        self._handed = self._consumer._handed
        record = self._handed.last = next(self._rows)
        return record

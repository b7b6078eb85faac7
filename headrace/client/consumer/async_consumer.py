"""`AsyncConsumer`: the way to read records from an event loop, with positions that the reader owns.

It owns its connections and what was read ahead, from `async with` (or `start`) to `close`, on one event loop. One task
at a time uses it, as a file; any other may close it. Every await may be cancelled and called again: nothing is
skipped, and nothing is handed out twice.

`async for` goes over `AsyncRecords` or `AsyncBatches`. These are objects and not generators: a generator ends for good
when it is cancelled, and `asyncio.wait_for(anext(records), 1)` must be able to try again. Each continues where the one
before it had come to.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from datetime import datetime
from time import monotonic_ns
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from headrace.client import consumed_records
from headrace.client.clock import now_ms
from headrace.client.consumer.async_fetcher import AsyncBetween, AsyncFetcher
from headrace.client.consumer.cursor import Cursor, Handed
from headrace.client.consumer.positions import Positions
from headrace.client.record import GroupOffset, Place, Record, TopicPartition
from headrace.client.transport.async_brokers import AsyncBrokers
from headrace.client.transport.discovery import Servers
from headrace.core.errors import LocalError
from headrace.core.limits import CONSUMER_CLOSE_MS_DEFAULT, PRODUCE_TIMEOUT_MS_DEFAULT
from headrace.core.records.columns import DecodedBatch

if TYPE_CHECKING:
    from headrace.client.consumer.options import GroupOptions
    from headrace.client.groups.async_member import AsyncMember

CONSUMER_TURN_MS = 50
"""An asyncio consumer gives the loop back at least so often, however much there is to hand out."""


class AsyncReading:
    def __init__(self, consumer: "AsyncConsumer", *, follow: bool) -> None:
        self.follow = follow
        self._consumer = consumer
        self._ended = False

    def __aiter__(self) -> Self:
        return self

    async def _next_batch(self) -> tuple[Cursor, DecodedBatch]:
        """Return the next batch. Raises StopAsyncIteration at the end, and from then on."""
        found = None if self._ended else await self._consumer._next_batch(self)
        if found is None:
            self._ended = True
            raise StopAsyncIteration
        return found


class AsyncBatches(AsyncReading, AsyncIterator[Any]):
    """A reading that hands out pyarrow.RecordBatches of CONSUMED_SCHEMA."""

    async def __anext__(self) -> Any:
        cursor, batch = await self._next_batch()
        columns = consumed_records.columns(cursor.partition, batch)
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
        """The time at which the loop looks at the group again, unless there is news before."""

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
        """Give the loop to other tasks, and follow the group. False: the rest of the batch is not handed out."""
        if self._handed.last is not None:
            self._handed.came_back_between(cursor)
        if not self._handed.stops:
            await asyncio.sleep(0)
            await self._consumer._follow()
        self._look_ns = min(monotonic_ns() + CONSUMER_TURN_MS * 1_000_000, self._consumer._holds_until_ns)
        return self._consumer._current is self and cursor.turn == self._turn and not self._handed.stops

    async def _next(self) -> Record:
        """Return the first record of the next batch; no batch is empty."""
        self._cursor = None
        self._cursor, batch = await self._next_batch()
        self._turn = self._cursor.turn
        self._rows = consumed_records.records(self._cursor.partition, batch)
        self._handed = self._consumer._handed
        record = self._handed.last = next(self._rows)
        return record


class AsyncConsumer(Positions):
    __doc__ = Positions.__doc__
    _not_started: ClassVar[str] = "this consumer has not started: use it in `async with AsyncConsumer(...) as consumer`"

    def _connect(self, server: str | Servers | None, namespace: str | None, ca_file: str | None) -> None:
        self._brokers = AsyncBrokers(
            server,
            namespace,
            ca_file=ca_file,
            timeout_ms=self._timeout_ms,
            request_timeout_ms=PRODUCE_TIMEOUT_MS_DEFAULT,
        )
        self._fetcher: AsyncFetcher | None = None
        self._member: AsyncMember | None = None
        self._current: AsyncReading | None = None
        """The reading that hands out records now."""
        self._closed = False
        self._closing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Find the partitions and where to begin; `async with` does it. Raises as the constructor of `Consumer`."""
        self._check_open()
        self._brokers.check_loop()
        if self._reading is not None:
            return
        self._reading = self._read_from(await self._brokers.run(self._start_positions()))
        self._fetcher = AsyncFetcher(self._brokers, self._reading)
        if self._group is not None:
            self._member = self._new_member(self._group, self._fetcher)
            await self._member.join()

    def _new_member(self, options: "GroupOptions", fetcher: AsyncFetcher) -> "AsyncMember":
        # A consumer without a group does not load the modules of groups.
        from headrace.client.groups.async_member import AsyncMember

        return AsyncMember(self._brokers, fetcher, options, self._start, self._timeout_ms)

    @property
    def _errands(self) -> AsyncBrokers:
        return self._brokers

    # -- reading -----------------------------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncRecords:
        """Return records for ever, or until `wakeup`; it waits for new ones. A loop that was left goes on there."""
        if isinstance(self._current, AsyncRecords) and self._current.follow:
            return self._current
        return self.records()

    def records(self, *, follow: bool = True) -> AsyncRecords:
        """Return records of all partitions, by offset within each. Without `follow`, up to the ends at the start."""
        return AsyncRecords(self, follow=follow)

    def batches(self, *, follow: bool = True) -> AsyncBatches:
        """Return what `records` returns as pyarrow.RecordBatches, each of one partition and at least one row.

        Columns: key, value (binary), timestamp_ms (int64), headers (list of name and value), topic (dictionary),
        partition (int32), offset (int64). Keys and values are not copied on their way from the network.
        """
        return AsyncBatches(self, follow=follow)

    async def _next_batch(self, asking: AsyncReading) -> tuple[Cursor, DecodedBatch] | None:
        """Return the next batch for the reading that asks; it begins where any other reading has ended."""
        self._brokers.check_loop()
        if self._current is not asking:
            await self._begin(asking)
        assert self._fetcher is not None, "what has begun has started"
        assert self._reading is not None, "what has begun has started"
        if self._handed.stops:
            self._fetcher.settle()  # The rest of the batch is handed out to the next loop.
        found = await self._fetcher.next_batch(self._member or AsyncBetween())
        if found is None:
            self._fetcher.settle()
            self._current = None
            self._handed.stops = self._closed
            self._check_open()
        return found

    def _check_open(self) -> None:
        if self._closed:
            raise LocalError("this consumer is closed: make a new one")

    def wakeup(self) -> None:
        """End the loop over this consumer, or the next one, before its next record. Call it on the event loop.

        Nothing else changes: the consumer stays open and in its group, and iterating again goes on.
        """
        if self._reading is not None and self._fetcher is not None:
            self._reading.handed.stops = True
            self._fetcher.wake()

    @property
    def _has_news(self) -> bool:
        return self._member is not None and self._member.group_member.news

    @property
    def _holds_until_ns(self) -> int:
        return sys.maxsize if self._member is None else self._member.group_member.holds_until_ns

    async def _follow(self) -> None:
        """Do what the group wants by now, between two records."""
        if self._member is not None:
            await self._member.follow()

    async def _begin(self, reading: AsyncReading) -> None:
        await self.start()
        assert self._reading is not None, "it has started"
        assert self._fetcher is not None, "it has started"
        self._current = None
        if self._member is not None:
            await self._member.settle()
        self._fetcher.settle()
        self._handed.came_back()
        if self._member is not None:
            await self._brokers.run(self._member.resume())
        await self._brokers.run(self._end_at(follow=reading.follow))
        self._current = reading

    # -- positions ---------------------------------------------------------------------------------------------------

    async def seek(self, partition: Place, offset: int | str, *, topic: str | None = None) -> None:
        """Go on from `offset`, `earliest` or `latest`; works inside a loop over this consumer too."""
        await self.start()
        await self._brokers.run(self._seek_offset(self._cursor(partition, topic), offset))

    async def seek_to_time(self, time: int | datetime, *, partitions: Iterable[Place] | None = None) -> None:
        """Go on from the first record at or after `time` (ms since 1970, or a datetime), else from the end."""
        await self.start()
        await self._brokers.run(self._seek_time(self._select(partitions), time))

    async def end_offsets(self) -> dict[TopicPartition, int]:
        """The high watermarks as they are now: the offset that the next record of each partition will have."""
        await self.start()
        return await self._brokers.run(self._ends())

    # -- the group ---------------------------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None, metadata: str = "") -> None:
        """Commit for the group: everything that was handed out, or `offsets` of the next records to read.

        It returns when the commit is written. Raises FencedMemberError, and commits nothing, where a partition is not
        this member's (any more).
        """
        member = await self._checked_member()
        await self._brokers.run(member.commit(offsets, metadata))

    async def group_offsets(self) -> dict[TopicPartition, GroupOffset]:
        """Return the offsets that members of the group have committed."""
        member = await self._checked_member()
        return await self._brokers.run(member.group_offsets())

    async def _checked_member(self) -> "AsyncMember":
        if self._group is None:
            raise LocalError(self._no_group)
        await self.start()
        assert self._member is not None, "it has started, in a group"
        return self._member

    # -- the end -----------------------------------------------------------------------------------------------------

    async def close(self, timeout_ms: int = CONSUMER_CLOSE_MS_DEFAULT) -> None:
        """End the connections, and leave the group, in this time or a second more. Safe to call again, from any task.

        The records that were handed out last are committed only if the user came back for more, or leaves the
        `async with` without an error. The loop over this consumer raises LocalError at once. A `close` within a
        callback takes effect when the callback returns.
        """
        self._closed = True
        self._current = None
        self.wakeup()
        if self._closing is None:
            self._closing = asyncio.create_task(self._end(now_ms() + timeout_ms), name="headrace-close")
        is_inside = self._member is not None and self._member.is_in_callback()
        if not is_inside and asyncio.current_task() is not self._closing:
            await asyncio.shield(self._closing)

    async def _end(self, by_ms: int) -> None:
        try:
            if self._member is not None:
                await self._member.close(by_ms)
        finally:
            if self._fetcher is not None:
                await self._fetcher.close()
            await self._brokers.close()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._member is not None and not self._closed:
            if self._fetcher is not None:
                self._fetcher.settle()
            self._handed.came_back()
        await self.close()

"""Users of the asyncio clients whose calls are cancelled again and again, or run out of time: the twins of
`interrupted_clients`, with the same models. Whatever was not handed out is handed out by the next loop, and what a
cancelled `send` was to write is not written.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any

import pyarrow as pa

from headrace import AsyncConsumer, AsyncProducer
from headrace.client.record import RecordMetadata
from tests.support.interrupted_clients import PARTITIONS, READ_MAX, RECORDS, Progress, Written, written_in

_TURNS_FIRST = 30
_TURNS_MIN = 3
_PAUSE_S = 0.001


class Cancelling:
    """Calls that are cancelled at random turns of the loop, and how many were."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.struck: Counter[str] = Counter()
        self._usual: dict[str, int] = {}
        """How many turns a call takes that is not cancelled."""

    async def call(self, what: str, work: Callable[[], Awaitable[object]]) -> bool:
        """False: it was cancelled."""
        if self.random.random() < 0.2:
            return await self._timed(what, work)
        task = asyncio.ensure_future(_awaited(work))
        turns, usual = 0, self._usual.get(what, _TURNS_FIRST)
        after = self.random.randint(0, usual * 5 // 4)
        while not task.done() and turns < after:
            turns += 1
            await asyncio.sleep(self.random.choice([0, 0, 0, _PAUSE_S]))
        was_done = task.done()
        task.cancel()
        await asyncio.wait([task])
        return self._told(what, task, was_done=was_done, turns=turns)

    async def _timed(self, what: str, work: Callable[[], Awaitable[object]]) -> bool:
        """Cancel by `wait_for`, as most users do."""
        task = asyncio.ensure_future(_awaited(work))
        with suppress(TimeoutError):
            await asyncio.wait_for(task, self.random.uniform(0, 0.01))
        return self._told(what, task, was_done=False, turns=None)

    def _told(self, what: str, task: "asyncio.Future[None]", *, was_done: bool, turns: int | None) -> bool:
        if task.cancelled():
            self.struck[what] += 1
            self._usual[what] = self._usual.get(what, _TURNS_FIRST) * 21 // 20 + 1
            return False
        task.result()
        if was_done and turns is not None:
            self._usual[what] = max(_TURNS_MIN, turns)
        return True


class CancelledUser(ABC):
    """One whose calls are cancelled."""

    name: str

    def __init__(self, server: str, topic: str, random: Random) -> None:
        self.server, self.topic, self.random = server, topic, random
        self.interrupting = Cancelling(random)

    @property
    def struck(self) -> Counter[str]:
        """By method."""
        return self.interrupting.struck

    @abstractmethod
    async def step(self) -> None:
        """Call one method."""

    @abstractmethod
    async def end(self) -> None:
        """In peace: close what is open, and look whether all is right."""


class AsyncProducerUser(CancelledUser):
    name = "AsyncProducer"

    def __init__(self, server: str, topic: str, random: Random) -> None:
        super().__init__(server, topic, random)
        self.written = Written()
        self._producer: AsyncProducer | None = None
        self._futures: dict[int, Any] = {}
        """Of what is not known to be written yet, by number: the last of each call."""
        self._never: set[int] = set()
        """What a cancelled `send` was to write."""

    async def step(self) -> None:
        if self._producer is None:
            self._producer = AsyncProducer(self.server, linger_ms=self.random.choice([0, 5]))
        how = [self._send] * 6 + [self._send_batch, self._send_pieces, self._flush, self._result]
        ends = [self._close, self._leave] if self.random.random() < 0.3 else [self._flush]
        await self.random.choice([*how, *ends])(self._producer)

    async def _send(self, producer: AsyncProducer) -> None:
        (number,) = self.written.next(1)
        how: dict[str, Any] = self.random.choice([{"key": str(number)}, {"partition": number % PARTITIONS}])

        async def send() -> None:
            self._futures[number] = await producer.send(self.topic, str(number), **how)

        if not await self.interrupting.call("send", send):
            self._never.add(number)

    async def _send_batch(self, producer: AsyncProducer) -> None:
        numbers = self.written.next(self.random.randint(1, 20))

        async def send() -> None:
            future = await producer.send_batch(self.topic, values=[*map(str, numbers)])
            self._futures.update(dict.fromkeys(numbers, future))

        await self.interrupting.call("send_batch", send)

    async def _send_pieces(self, producer: AsyncProducer) -> None:
        numbers = self.written.next(self.random.randint(1, 20))

        async def send() -> None:
            future = await producer.send_batch(self.topic, values=pa.array([*map(str, numbers)]), partition=0)
            self._futures.update(dict.fromkeys(numbers, future))

        await self.interrupting.call("send_batch to one partition", send)

    async def _flush(self, producer: AsyncProducer) -> None:
        if await self.interrupting.call("flush", producer.flush):
            for number, future in self._futures.items():
                assert future.done(), f"flush has left {number} on its way"

    async def _result(self, _: AsyncProducer) -> None:
        if not self._futures:
            return
        number, future = next(reversed(self._futures.items()))

        async def result() -> None:
            told = await asyncio.shield(future)
            if isinstance(told, RecordMetadata):
                self.written.at[number] = (told.partition, told.offset)

        await self.interrupting.call("result", result)

    async def _close(self, producer: AsyncProducer) -> None:
        await self.interrupting.call("close", producer.close)
        await self._closed(producer)

    async def _leave(self, producer: AsyncProducer) -> None:
        (number,) = self.written.next(1)

        async def leave() -> None:
            async with producer:
                self._futures[number] = await producer.send(self.topic, str(number))

        await self.interrupting.call("async with", leave)
        await self._closed(producer)

    async def _closed(self, producer: AsyncProducer) -> None:
        """A close that was cancelled has ended it at once: the futures say what was written."""
        await producer.close()
        for number, future in self._futures.items():
            assert future.done(), f"nobody was told what has become of {number}"
            if future.exception() is None:
                self.written.sent.add(number)
        self._futures.clear()
        self._producer = None

    async def end(self) -> None:
        if self._producer is not None:
            await self._closed(self._producer)
        self.written.seen = await asyncio.to_thread(written_in, self.server, self.topic)
        self.written.judge()
        there = self._never.intersection(number for number, _, _ in self.written.seen)
        assert not there, f"a cancelled send has written {sorted(there)[:5]}"


class AsyncConsumerUser(CancelledUser):
    """A reader of a topic that is filled, alone or (again and again as another member) in a group."""

    def __init__(self, server: str, topic: str, random: Random, *, is_shared: bool = False) -> None:
        super().__init__(server, topic, random)
        self.name = "AsyncConsumer in a group" if is_shared else "AsyncConsumer"
        self._is_shared = is_shared
        self._groups = 0
        self._consumer: AsyncConsumer | None = None
        self._paused: set[int] = set()
        self._is_woken = False
        self._new_group()

    def _new_group(self) -> None:
        self._groups += 1
        self._options: dict[str, Any] = {}
        self._progress = Progress(self._is_shared)
        if self._is_shared:
            is_auto = self.random.choice([True, False])
            self._options = {"group": f"{self.topic}-async-{self._groups}", "auto_commit": is_auto}
            if is_auto:
                self._options["auto_commit_interval_ms"] = self.random.choice([1, 20, 5000])

    async def step(self) -> None:
        if self._consumer is None:
            await self._open()
            return
        await self.random.choice([*[self._read] * 6, *self._others])(self._consumer)
        if self._consumer is not None:
            self._check_positions(self._consumer)

    @property
    def _others(self) -> Sequence[Callable[[AsyncConsumer], Awaitable[None]]]:
        both = [self._pause, self._resume, self._end_offsets, self._wakeup, self._end_some]
        return both + ([self._commit, self._group_offsets] * 2 if self._is_shared else [self._seek, self._seek_to_time])

    async def _open(self) -> None:
        """One that was cancelled goes on where it was, or is left to itself."""
        consumer = AsyncConsumer(self.topic, server=self.server, **self._options)
        self._progress.begin()
        self._paused, self._is_woken = set(), False
        how = self.random.choice([consumer.start, consumer.__aenter__])
        is_open = await self.interrupting.call(how.__name__.strip("_"), how)
        if not is_open and how == consumer.start:
            is_open = await self.interrupting.call("start again", consumer.start)
        if is_open:
            self._consumer = consumer
        else:
            await consumer.close()

    # -- reading -----------------------------------------------------------------------------------------------------

    async def _read(self, consumer: AsyncConsumer) -> None:
        if self._progress.is_at_end(but=self._paused):
            await self._go_back(consumer)
            return
        waiting = [] if self._progress.may_be_at_end(but=self._paused) else [self._endless]
        how = self.random.choice([self._records, self._batches, *waiting])
        wanted = self.random.randint(1, READ_MAX)
        is_closing = self.random.choice([True, False])

        async def read() -> None:
            left, handed = wanted, how(consumer)
            async for _, offsets in handed:
                left -= len(offsets)
                if left <= 0 or (how == self._endless and self._progress.may_be_at_end(but=self._paused)):
                    if is_closing:
                        await handed.aclose()
                    return
            if self._is_woken:
                self._is_woken = False
            else:
                assert self._progress.has_ended(but=self._paused), f"ended early: {self._progress.next}"

        await self.interrupting.call(how.__name__.strip("_"), read)

    async def _records(self, consumer: AsyncConsumer) -> Any:
        async for record in consumer.records(follow=False):
            yield self._handed(record.partition, [record.offset])

    async def _endless(self, consumer: AsyncConsumer) -> Any:
        async for record in consumer:
            yield self._handed(record.partition, [record.offset])

    async def _batches(self, consumer: AsyncConsumer) -> Any:
        async for batch in consumer.batches(follow=False):
            yield self._handed(batch.column("partition")[0].as_py(), batch.column("offset").to_pylist())

    def _handed(self, partition: int, offsets: list[int]) -> tuple[int, list[int]]:
        assert partition not in self._paused, f"partition {partition} is paused"
        self._progress.handed(partition, offsets)
        return partition, offsets

    async def _go_back(self, consumer: AsyncConsumer) -> None:
        if self._paused:
            await self._resume(consumer)
        elif self._is_shared:
            await self._closed(consumer)
            self._new_group()
        else:
            for partition in range(PARTITIONS):
                await consumer.seek(partition, 0)
                self._progress.next[partition] = 0

    # -- all else ----------------------------------------------------------------------------------------------------

    def _check_positions(self, consumer: AsyncConsumer) -> None:
        for place in consumer.assignment():
            wanted = self._progress.next.get(place.partition)
            if wanted is not None:
                found = consumer.position(place)
                assert found == wanted, f"the position of {place} is {found}, {wanted} is next"

    def _moved(self, consumer: AsyncConsumer, partition: int, to: int, *, is_done: bool) -> None:
        found, before = consumer.position(partition), self._progress.next[partition]
        wanted = (to,) if is_done else (before, to)
        assert found in wanted, f"partition {partition} is at {found}: {wanted} is right"
        self._progress.next[partition] = found

    async def _seek(self, consumer: AsyncConsumer) -> None:
        partition, to = self.random.randrange(PARTITIONS), self.random.randint(0, RECORDS)
        where: int | str = {0: "earliest", RECORDS: "latest"}.get(to, to)
        is_done = await self.interrupting.call("seek", lambda: consumer.seek(partition, where))
        self._moved(consumer, partition, to, is_done=is_done)

    async def _seek_to_time(self, consumer: AsyncConsumer) -> None:
        is_done = await self.interrupting.call("seek_to_time", lambda: consumer.seek_to_time(0))
        for partition in range(PARTITIONS):
            self._moved(consumer, partition, 0, is_done=is_done)

    async def _pause(self, consumer: AsyncConsumer) -> None:
        chosen = [place for place in consumer.assignment() if self.random.random() < 0.5]
        if chosen:
            consumer.pause(*chosen)
            self._paused.update(place.partition for place in chosen)

    async def _resume(self, consumer: AsyncConsumer) -> None:
        consumer.resume()
        self._paused.clear()

    async def _end_offsets(self, consumer: AsyncConsumer) -> None:
        async def ends() -> None:
            assert set((await consumer.end_offsets()).values()) <= {RECORDS}

        await self.interrupting.call("end_offsets", ends)

    async def _wakeup(self, consumer: AsyncConsumer) -> None:
        consumer.wakeup()
        self._is_woken = True

    async def _commit(self, consumer: AsyncConsumer) -> None:
        held = {place: self._progress.next.get(place.partition) for place in consumer.assignment()}
        named = {place: offset for place, offset in held.items() if offset is not None}
        offsets = self.random.choice([None, named]) if named else None
        if await self.interrupting.call("commit", lambda: consumer.commit(offsets)):
            self._progress.all_committed()
        await self._group_offsets(consumer)

    async def _group_offsets(self, consumer: AsyncConsumer) -> None:
        await self.interrupting.call("group_offsets", consumer.group_offsets)
        told = await consumer.group_offsets()
        self._progress.committed({place.partition: offset.offset for place, offset in told.items()})

    async def _end_some(self, consumer: AsyncConsumer) -> None:
        """Not often: a new one costs as much as many calls."""
        if self.random.random() < 0.3:
            how = self.random.choice([self._close, self._leave])
            await self.interrupting.call(how.__name__.strip("_"), lambda: how(consumer))
            await self._closed(consumer)

    async def _close(self, consumer: AsyncConsumer) -> None:
        await consumer.close()

    async def _leave(self, consumer: AsyncConsumer) -> None:
        async with consumer:
            consumer.assignment()

    async def _closed(self, consumer: AsyncConsumer) -> None:
        await consumer.close()
        self._consumer = None

    async def end(self) -> None:
        """The last one reads the rest, in peace."""
        consumer = self._consumer
        if consumer is None:
            consumer = AsyncConsumer(self.topic, server=self.server, **self._options)
            self._progress.begin()
        async with consumer:
            consumer.resume()
            self._paused = set()
            for _ in range(2):  # Whoever was woken ends once before his first record.
                async for _ in self._records(consumer):
                    pass
            assert self._progress.has_ended(but=set()), f"ends at {self._progress.next}"


async def _awaited(work: Callable[[], Awaitable[object]]) -> None:
    await work()

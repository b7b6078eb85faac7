"""Endless reading: one partition from an offset on, piece by piece, in one leader epoch.

    reading ──> piece ──> reading ──> ...    silent ──(heartbeat)──> silent      drained, or records enough ──> end
       └── another leader, another epoch, deleted below its feet, damaged ──> an error, and no more

A watch is a fetch after the other, on behalf of a client that need not ask: what it may see, and what it is refused, is
what `fetch` says. It asks for more only when its caller does, so a slow client holds one piece at most.

`Watches` counts the streams of a broker, those that it passes on to another leader included, and bounds how often each
client's are written to: an append wakes all streams of its partition, and a client with hundreds of them would take the
processor from all others. What has to wait comes in one piece with what follows. One per process.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.core.errors import NotReadyError, ThrottledError
from headrace.core.holders import HolderRate
from headrace.core.limits import (
    FETCH_RECORDS_MAX,
    WATCH_DRAIN_MS,
    WATCH_HEARTBEAT_MS,
    WATCH_PIECE_INTERVAL_MS,
    WATCH_PIECES_BURST,
    WATCH_READ_BYTES,
    WATCHES_MAX,
)
from headrace.core.log.epochs import Fence
from headrace_broker.admission import Requests, Share
from headrace_broker.fetch import Fetched, fetch
from headrace_broker.partition import Partition
from headrace_broker.requests import FetchQuery, WatchQuery


@dataclass(slots=True)
class Watches:
    streams: Requests = field(default_factory=lambda: Requests(WATCHES_MAX, "streams open"))
    heartbeat_ms: int = WATCH_HEARTBEAT_MS
    drain_ms: int = WATCH_DRAIN_MS
    rate: HolderRate = field(
        default_factory=lambda: HolderRate(WATCH_PIECES_BURST, WATCH_PIECE_INTERVAL_MS, WATCHES_MAX)
    )
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    _draining: bool = False

    @property
    def open(self) -> int:
        return len(self._tasks)

    @contextmanager
    def one_more(self, holder: str | None) -> Iterator[None]:
        """Around the handling of one stream, by the task that handles it, for a client.

        Raises ThrottledError, NotReadyError.
        """
        if self._draining:
            raise NotReadyError("this broker is stopping: watch from another one")
        task = asyncio.current_task()
        assert task is not None, "handlers run as tasks"
        with self.streams.one_more(holder):
            self._tasks.add(task)
            try:
                yield
            finally:
                self._tasks.discard(task)

    async def turn(self, holder: str | None) -> None:
        """Wait until a stream of this client's may be given another piece."""
        now_ms = asyncio.get_running_loop().time() * 1000
        wait_ms = self.rate.wait_ms(holder, now_ms)
        self.rate.take(holder, now_ms)
        if wait_ms > 0:
            await asyncio.sleep(wait_ms / 1000)

    def drain(self) -> None:
        """No stream begins any more. Those that are open end by themselves; those whose clients do not read are cut.

        They hold up no stop.
        """
        self._draining = True
        asyncio.get_running_loop().call_later(self.drain_ms / 1000, self._cancel)

    def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel("the broker stops")


@dataclass(frozen=True, slots=True)
class Piece:
    fetched: Fetched
    """Without batches where there was nothing to read for so long that a heartbeat is due."""
    records_left: int | None
    """How many of its records the client still wants; None: all."""


async def watch(partition: Partition, query: WatchQuery, watches: Watches, share: Share) -> AsyncIterator[Piece]:
    """The first piece comes at once, with what is there. Raises what `fetch` raises.

    Each piece is counted in `share` until the next is asked for; a stream that waits for its turn holds nothing. Where
    there is no room for another piece, it is waited for: only a stream that has not begun is refused.
    """
    epoch = partition.replica.check_leader(str(partition.place), query.fence)
    # A later epoch of the same leader may have begun with another log: the client has to look again.
    fence = Fence(query.fence.topic_uid, epoch)
    offset, left, wait_ms = query.offset, query.max_records, 0
    silence: Piece | None = None
    while True:
        asked = FetchQuery(
            offset=offset,
            max_bytes=min(query.max_bytes, WATCH_READ_BYTES),
            max_records=FETCH_RECORDS_MAX if left is None else left,
            min_bytes=1,
            max_wait_ms=wait_ms,
            fence=fence,
            value_format=query.value_format,
        )
        try:
            fetched = await fetch(partition, asked, share)
        except ThrottledError:
            if silence is None:
                raise
            if not await share.room(watches.heartbeat_ms / 1000):
                yield silence
            continue
        yield Piece(fetched, left)
        if left is not None:
            left -= fetched.count_wanted()
        if partition.is_draining or (left is not None and left <= 0):
            return
        offset, wait_ms = fetched.next_offset, watches.heartbeat_ms
        # The records are not kept while the next ones are waited for.
        fetched = replace(fetched, buffers=(), offset=offset, records=0)
        silence = Piece(fetched, left)
        share.resize(0)
        await watches.turn(share.holder)

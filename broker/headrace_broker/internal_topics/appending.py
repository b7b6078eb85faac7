"""What one term of a coordinator has decided, on its way into the log: in order, each decision as a batch of its own.

    decided ──> encoded (at once; in a thread where it is large) ──> appended, with what came meanwhile ──> committed

Those behind a large one wait for it. Appends that come together are written together; the next ones go on their way
while those before wait for the high watermark. One object for each term. Invariants: nothing is appended in another
epoch than the term's; where anything fails, that is told once, nothing of what follows is appended, and nobody is told
any more what became of what was: the log says it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Generic

from headrace.core.coordinator_events import Append, EntryT
from headrace.core.errors import HeadraceError
from headrace.core.limits import (
    COORDINATOR_APPEND_BATCHES_MAX,
    COORDINATOR_APPEND_BYTES,
    COORDINATOR_APPENDS_IN_FLIGHT_MAX,
    COORDINATOR_ENCODE_INLINE_BYTES_MAX,
    PRODUCE_TIMEOUT_MS_DEFAULT,
)
from headrace.core.log.epochs import Fence
from headrace.core.records.raw import RawBatch
from headrace.core.types import Acks, LeaderEpoch
from headrace_broker.internal_topics.log import Codec
from headrace_broker.partition import Partition
from headrace_broker.requests import ProduceQuery

_log = logging.getLogger(__name__)


class _Decided(Generic[EntryT]):
    __slots__ = ("batch", "order")

    def __init__(self, order: Append[EntryT]) -> None:
        self.order = order
        self.batch: RawBatch | None = None
        """None while it is yet to be encoded."""


class Appends(Generic[EntryT]):
    def __init__(
        self,
        partition: Partition,
        codec: Codec[EntryT],
        epoch: LeaderEpoch,
        committed: Callable[[int], None],
        failed: Callable[[str], None],
    ) -> None:
        """`committed` is told the number of an order, and means all before it; `failed` why the term is over."""
        self._partition = partition
        self._codec = codec
        self._query = ProduceQuery(Acks.ALL, PRODUCE_TIMEOUT_MS_DEFAULT, Fence(leader_epoch=epoch))
        self._committed = committed
        self._failed = failed
        self._queue: deque[_Decided[EntryT]] = deque()
        """Not appended yet, in order."""
        self._large: deque[_Decided[EntryT]] = deque()
        """Those of them that are for the thread."""
        self._in_flight = 0
        """Appends that are not committed yet."""
        self._flushing: asyncio.Handle | None = None
        self._encoding: asyncio.Task[None] | None = None
        self._is_over = False

    def add(self, order: Append[EntryT]) -> None:
        decided = _Decided(order)
        if order.size_bytes <= COORDINATOR_ENCODE_INLINE_BYTES_MAX:
            decided.batch = self._codec.encoded(order.entries)
            self._flush_soon()
        else:
            self._large.append(decided)
            if self._encoding is None:
                self._encoding = asyncio.create_task(self._encode_large(), name=f"encode {self._partition.place}")
        self._queue.append(decided)

    def stop(self) -> None:
        """The term is over: nothing is appended any more, and nobody told of anything."""
        self._is_over = True
        self._queue.clear()
        self._large.clear()
        if self._flushing is not None:
            self._flushing.cancel()

    async def _encode_large(self) -> None:
        """One after the other: each has its bytes in memory several times meanwhile."""
        try:
            while self._large:
                decided = self._large.popleft()
                decided.batch = await asyncio.to_thread(self._codec.encoded, decided.order.entries)
                self._flush_soon()
        except Exception as error:
            _log.exception("%s: a decision cannot be encoded", self._partition.place)
            self._fail(repr(error))
        finally:
            self._encoding = None

    def _flush_soon(self) -> None:
        """After whatever else the loop has at hand: it may be more of the same."""
        if self._flushing is None and not self._is_over:
            self._flushing = asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = None
        while self._in_flight < COORDINATOR_APPENDS_IN_FLIGHT_MAX:
            number, batches = self._take()
            if not batches:
                return
            self._in_flight += 1
            try:
                self._partition.append(batches, self._query, partial(self._appended, number))
            except HeadraceError as error:
                self._fail(error.message)
            except Exception as error:  # else these would be lost, and the next ones taken for all before them
                _log.exception("%s: appending failed", self._partition.place)
                self._fail(repr(error))

    def _take(self) -> tuple[int, list[RawBatch]]:
        """What the next call appends, and the number of its last; nothing while the first is yet to be encoded."""
        batches: list[RawBatch] = []
        number = size = 0
        while self._queue and len(batches) < COORDINATOR_APPEND_BATCHES_MAX:
            batch = self._queue[0].batch
            if batch is None or (batches and size + batch.nbytes > COORDINATOR_APPEND_BYTES):
                break
            number = self._queue.popleft().order.number
            batches.append(batch)
            size += batch.nbytes
        return number, batches

    def _appended(self, number: int, error: HeadraceError | None) -> None:
        """Told what became of an append, maybe before `append` returns."""
        if self._is_over:
            return
        if error is not None:
            self._fail(error.message)
            return
        self._in_flight -= 1
        if self._queue:
            self._flush_soon()
        self._committed(number)

    def _fail(self, reason: str) -> None:
        if not self._is_over:
            self.stop()
            self._failed(reason)

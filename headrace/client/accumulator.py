"""Which batch goes out when? The producer's queues, one lane per partition, without I/O or clock.

    open_batch, add_columns ──> waiting ──> due ──> in flight ──> arrived
                                          ^          ├──> failed again: put_back(at_ms) ──> waiting
                                          │          └──> given up
                                    linger over, full, or flushed

Invariants: a lane has at most one batch in flight, so a partition's records are written in the order of `send` whatever
is retried; only a lane's last batch takes more rows; `buffered_bytes` is the sum over batches that have neither arrived
nor been given up. Called by `headrace.client.producer` and `headrace.client.sender` under the producer's lock.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from headrace.client.batches import Batch, ColumnBatch, RowBatch
from headrace.client.record import TopicPartition
from headrace.core.errors import HeadraceError

Rows = TypeVar("Rows", bound=RowBatch)


@dataclass(slots=True)
class _Lane(Generic[Rows]):
    queue: deque[Batch] = field(default_factory=deque)
    open: Rows | None = None
    """The last of `queue` while it still takes rows."""
    in_flight: Batch | None = None
    not_before_ms: int = 0
    error: HeadraceError | None = None
    """The last failure, until a batch arrives again."""

    def ready_at_ms(self, linger_ms: int) -> int | None:
        """When the first batch may go; None while there is none or one is on its way."""
        if self.in_flight is not None or not self.queue:
            return None
        head = self.queue[0]
        return max(self.not_before_ms, head.opened_ms + linger_ms if head is self.open else head.opened_ms)


@dataclass(frozen=True, slots=True)
class Due:
    """What `Accumulator.due` took from the queues."""

    send: list[Batch]
    expired: list[tuple[Batch, HeadraceError]]
    """To be given up: they waited behind failing batches for the whole delivery timeout; with the failure."""


class Accumulator(Generic[Rows]):
    def __init__(self, make_rows: Callable[[TopicPartition, int], Rows], *, linger_ms: int, timeout_ms: int) -> None:
        """`make_rows(partition, now_ms)` gives an empty batch."""
        self.buffered_bytes = 0
        self._make_rows = make_rows
        self._linger_ms, self._timeout_ms = linger_ms, timeout_ms
        self._lanes: dict[TopicPartition, _Lane[Rows]] = {}

    def open_batch(
        self, partition: TopicPartition, size_bytes: int, *, batch_bytes: int, now_ms: int
    ) -> tuple[Rows, bool]:
        """The batch that a row of this size joins, and whether it is a new one: then the sender has something to plan.

        The caller adds the row before it lets go of the lock.
        """
        lane = self._lane(partition)
        batch = lane.open
        opened = batch is None or batch.size_bytes + size_bytes > batch_bytes
        if batch is None or opened:
            batch = lane.open = self._make_rows(partition, now_ms)
            lane.queue.append(batch)
            self.buffered_bytes += batch.size_bytes
        self.buffered_bytes += size_bytes
        return batch, opened

    def add_columns(self, batch: ColumnBatch) -> None:
        lane = self._lane(batch.partition)
        lane.open = None
        lane.queue.append(batch)
        self.buffered_bytes += batch.size_bytes

    def due(self, now_ms: int) -> Due:
        """Take every batch that may go now, at most one a lane; each is in flight until it is reported on."""
        due = Due([], [])
        for lane in self._lanes.values():
            ready_at_ms = lane.ready_at_ms(self._linger_ms)
            if ready_at_ms is None or ready_at_ms > now_ms:
                continue
            batch = lane.in_flight = lane.queue.popleft()
            batch.attempt_ms = now_ms
            batch.sent_ms = batch.sent_ms or now_ms
            if batch is lane.open:
                lane.open = None
            if lane.error is None or now_ms - batch.opened_ms <= self._timeout_ms:
                due.send.append(batch)
            else:
                due.expired.append((batch, lane.error))
        return due

    def next_due_ms(self) -> int | None:
        """When `due` has something next, as far as is known now."""
        times = (lane.ready_at_ms(self._linger_ms) for lane in self._lanes.values())
        return min((at_ms for at_ms in times if at_ms is not None), default=None)

    def should_move(self, now_ms: int) -> bool:
        """Whether something is on its way, or due."""
        next_due_ms = self.next_due_ms()
        return (next_due_ms is not None and next_due_ms <= now_ms) or any(self.in_flight())

    def in_flight(self) -> Iterator[Batch]:
        return (lane.in_flight for lane in self._lanes.values() if lane.in_flight is not None)

    def arrived(self, batch: Batch) -> None:
        self._finish(batch).error = None

    def given_up(self, batch: Batch, error: HeadraceError) -> None:
        self._finish(batch).error = error if error.retriable else None

    def put_back(self, batch: Batch, error: HeadraceError, at_ms: int) -> None:
        """The batch failed and goes again, first in its lane, at `at_ms`."""
        lane = self._lanes[batch.partition]
        assert lane.in_flight is batch, "only the batch in flight can fail"
        lane.in_flight, lane.error, lane.not_before_ms = None, error, at_ms
        lane.queue.appendleft(batch)

    def close_batches(self) -> None:
        """Let nothing linger: what is queued goes as soon as its lane is free."""
        for lane in self._lanes.values():
            lane.open = None

    def waiting_batches(self) -> list[Batch]:
        """Every batch that has neither arrived nor been given up."""
        waiting: list[Batch] = []
        for lane in self._lanes.values():
            if lane.in_flight is not None:
                waiting.append(lane.in_flight)
            waiting.extend(lane.queue)
        return waiting

    def _lane(self, partition: TopicPartition) -> _Lane[Rows]:
        lane = self._lanes.get(partition)
        if lane is None:
            lane = self._lanes[partition] = _Lane()
        return lane

    def _finish(self, batch: Batch) -> _Lane[Rows]:
        lane = self._lanes[batch.partition]
        assert lane.in_flight is batch, "only the batch in flight can end"
        lane.in_flight, lane.not_before_ms = None, 0
        self.buffered_bytes -= batch.size_bytes
        return lane

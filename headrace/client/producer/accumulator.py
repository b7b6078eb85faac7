"""The producer's queues, one per partition: they decide which batch goes out, when, and under which numbers. Pure.

    put_rows, put_columns ──> waiting ──> due ──> in flight ──> arrived
                                         ^          ├──> failed, or behind one that failed: put_back ──> waiting
                                         │          └──> given up
                                   linger over, full, or flushed

A queue has one batch in flight, or several (`pipeline`) where the carrier refuses all that follow one that failed. A
batch that is not full goes only when nothing is in flight. Invariants: a queue keeps the order of `send`, also
after `put_back`, and nothing overtakes what came back; only a queue's last batch takes more rows; `buffered_bytes` is
the sum over batches that have neither arrived nor been given up. Callers hold a lock or run on one loop. An interrupt
may strike (`cursor` says where): a batch is filled before it is queued, and counted only when queued.

`Sequences` numbers a queue's batches, so that a broker recognizes a repeated one: (id, epoch, first sequence), the same
for every attempt. A batch that may be written keeps its numbers; after one was given up or refused for its sequence,
`restart` numbers the next ones in a higher epoch, from 0. No two batches that may be written have the same numbers.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, Generic, TypeVar

from headrace.client.producer.batches import Batch, ColumnBatch, RowBatch
from headrace.client.record import TopicPartition
from headrace.core.errors import HeadraceError
from headrace.core.records.header import NO_PRODUCER, NOT_IDEMPOTENT, SEQUENCES, ProducerNumbers

_EPOCH_MAX: Final = (1 << 15) - 1
_IDS: Final = 1 << 63
Rows = TypeVar("Rows", bound=RowBatch)


@dataclass(slots=True)
class Sequences:
    producer_id: int
    """The producer's id; with `NO_PRODUCER` no batch is numbered."""
    epoch: int = 0
    next_sequence: int = 0

    def number(self, batch: Batch) -> None:
        """Number a batch that is about to be sent. Batches come in their order."""
        numbers = batch.numbers
        if self.producer_id == NO_PRODUCER or batch.may_be_written or self._has(numbers):
            return
        batch.numbers = ProducerNumbers(self.producer_id, self.epoch, self.next_sequence)
        self.next_sequence = (self.next_sequence + batch.record_count) % SEQUENCES

    def leave_out(self, batch: Batch) -> None:
        """Drop the numbers of a batch that is not sent again with them: the next batches cannot go on from there."""
        if batch.numbers is NOT_IDEMPOTENT or not self._has(batch.numbers):
            return
        self.next_sequence = 0
        self.epoch += 1
        if self.epoch > _EPOCH_MAX:
            self.producer_id, self.epoch = (self.producer_id + 1) % _IDS, 0

    def _has(self, numbers: ProducerNumbers) -> bool:
        """Return whether the numbers are of the present epoch."""
        return numbers.producer_id == self.producer_id and numbers.producer_epoch == self.epoch


@dataclass(slots=True)
class _PartitionQueue(Generic[Rows]):
    sequences: Sequences
    waiting: deque[Batch] = field(default_factory=deque)
    open: Rows | None = None
    """The last batch of `waiting` while it still takes rows."""
    in_flight: list[Batch] = field(default_factory=list)
    depth: int = 1
    """The number of batches that may be in flight."""
    queued: int = 0
    """The number of batches that were ever queued."""
    not_before_ms: int = 0
    error: HeadraceError | None = None
    """The last failure, until a batch arrives again."""

    def ready_at_ms(self, linger_ms: int) -> int | None:
        """Return when the first batch may go; None while there is none, or an answer must come first."""
        if not self.waiting or len(self.in_flight) >= self.depth:
            return None
        head = self.waiting[0]
        if head is not self.open:
            return max(self.not_before_ms, head.opened_ms)
        return None if self.in_flight else max(self.not_before_ms, head.opened_ms + linger_ms)


@dataclass(frozen=True, slots=True)
class Due:
    """The batches that `Accumulator.due` took from the queues."""

    send: list[Batch]
    expired: list[tuple[Batch, HeadraceError]]
    """The batches to give up, with the failure: they waited behind failing ones for the whole delivery timeout."""


class Accumulator(Generic[Rows]):
    def __init__(
        self,
        make_rows: Callable[[TopicPartition, int], Rows],
        *,
        linger_ms: int,
        timeout_ms: int,
        producer_id: int = NO_PRODUCER,
    ) -> None:
        """Begin with no queues. `make_rows(partition, now_ms)` gives an empty batch; with a `producer_id` (of an
        idempotent producer) batches are numbered.
        """
        self.buffered_bytes = 0
        self._producer_id = producer_id
        self._make_rows = make_rows
        self._linger_ms, self._timeout_ms = linger_ms, timeout_ms
        self._queues: dict[TopicPartition, _PartitionQueue[Rows]] = {}

    def joined_batch(self, partition: TopicPartition, size_bytes: int, batch_bytes: int) -> Rows | None:
        """Return the batch that a row of this size joins; None: a new one is needed (`new_rows`).

        The caller adds the row before it lets go of the lock.
        """
        queue = self._queues.get(partition)
        if queue is None or (batch := queue.open) is None or batch.size_bytes + size_bytes > batch_bytes:
            return None
        batch.size_bytes += size_bytes
        self.buffered_bytes += size_bytes
        return batch

    def new_rows(self, partition: TopicPartition, size_bytes: int, now_ms: int) -> Rows:
        """Return a batch for a row of this size and later ones: the caller adds the row, then calls `put_rows`."""
        batch = self._make_rows(partition, now_ms)
        batch.size_bytes += size_bytes
        return batch

    def put_rows(self, batch: Rows) -> None:
        """Queue a batch of rows: the sender has something to plan."""
        self._put(self._queue(batch.partition), batch, batch)

    def put_columns(self, batch: ColumnBatch) -> None:
        self._put(self._queue(batch.partition), batch, None)

    def _put(self, queue: _PartitionQueue[Rows], batch: Batch, still_open: Rows | None) -> None:
        queue.queued += 1
        batch.number = queue.queued
        queue.open = still_open
        self.buffered_bytes += batch.size_bytes
        queue.waiting.append(batch)

    def due(self, now_ms: int) -> Due:
        """Take every batch that may go now; each is in flight until its outcome is reported."""
        due = Due([], [])
        for queue in self._queues.values():
            while (ready_at_ms := queue.ready_at_ms(self._linger_ms)) is not None and ready_at_ms <= now_ms:
                batch = queue.waiting.popleft()
                queue.in_flight.append(batch)
                batch.attempt_ms = now_ms
                batch.sent_ms = batch.sent_ms or now_ms
                queue.sequences.number(batch)
                if batch is queue.open:
                    queue.open = None
                if queue.error is None or now_ms - batch.opened_ms <= self._timeout_ms:
                    due.send.append(batch)
                else:
                    due.expired.append((batch, queue.error))
        return due

    def pipeline(self, partition: TopicPartition, depth: int) -> None:
        """Let `depth` batches be in flight, until one comes back."""
        self._queue(partition).depth = depth

    def may_go(self, batch: Batch) -> bool:
        """Return whether a batch in flight is the first of its queue: no earlier one is on its way, or came back."""
        queue = self._queues[batch.partition]
        return queue.in_flight[0] is batch and (not queue.waiting or queue.waiting[0].number > batch.number)

    def next_due_ms(self) -> int | None:
        """Return when `due` has a batch next, as far as is known now."""
        times = (queue.ready_at_ms(self._linger_ms) for queue in self._queues.values())
        return min((at_ms for at_ms in times if at_ms is not None), default=None)

    def should_move(self, now_ms: int) -> bool:
        """Return whether a batch is on its way, or due."""
        next_due_ms = self.next_due_ms()
        return (next_due_ms is not None and next_due_ms <= now_ms) or any(self.in_flight())

    def in_flight(self) -> Iterator[Batch]:
        return (batch for queue in self._queues.values() for batch in queue.in_flight)

    def arrived(self, batch: Batch) -> None:
        self._finish(batch).error = None

    def given_up(self, batch: Batch, error: HeadraceError) -> None:
        queue = self._finish(batch)
        queue.error = error if error.retriable else None
        queue.sequences.leave_out(batch)

    def renumber(self, batch: Batch) -> None:
        """Give the batch, and those after it, other numbers when they go again."""
        self._queues[batch.partition].sequences.leave_out(batch)

    def put_back(self, batches: Sequence[Batch], error: HeadraceError | None, at_ms: int) -> None:
        """Put batches of one queue back to go again, the first that failed at `at_ms`, and one at a time until a
        channel is open.
        """
        queue = self._queues[batches[0].partition]
        for batch in batches:
            queue.in_flight.remove(batch)
        queue.depth = 1
        if error is not None:
            queue.error, queue.not_before_ms = error, at_ms
        queue.waiting = deque(sorted([*batches, *queue.waiting], key=attrgetter("number")))

    def close_batches(self) -> None:
        """Let nothing linger: a batch that waits goes as soon as its queue is free."""
        for queue in self._queues.values():
            queue.open = None

    def waiting_batches(self) -> list[Batch]:
        """Return every batch that has neither arrived nor been given up."""
        batches: list[Batch] = []
        for queue in self._queues.values():
            batches.extend(queue.in_flight)
            batches.extend(queue.waiting)
        return batches

    def _queue(self, partition: TopicPartition) -> _PartitionQueue[Rows]:
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = _PartitionQueue(Sequences(self._producer_id))
        return queue

    def _finish(self, batch: Batch) -> _PartitionQueue[Rows]:
        queue = self._queues[batch.partition]
        assert batch in queue.in_flight, "only a batch in flight can end"
        queue.in_flight.remove(batch)
        queue.not_before_ms = 0
        self.buffered_bytes -= batch.size_bytes
        return queue

"""The producer's queues, one lane per partition: they decide which batch goes out, when, and under which numbers. Pure.

    put_rows, put_columns ──> waiting ──> due ──> in flight ──> arrived
                                         ^          ├──> failed, or behind one that failed: put_back ──> waiting
                                         │          └──> given up
                                   linger over, full, or flushed

A lane has one batch in flight, or several (`pipeline`) where the carrier refuses all that follow one that failed. A
batch that is not full goes only when nothing is in flight. Invariants: a lane's queue keeps the order of `send`, also
after `put_back`, and nothing overtakes what came back; only a lane's last batch takes more rows; `buffered_bytes` is
the sum over batches that have neither arrived nor been given up. Callers hold a lock or run on one loop. An interrupt
may strike (`cursor` says where): a batch is filled before it is queued, and counted only when queued.

`Sequences` numbers a lane's batches, so that a broker recognizes a repeated one: (id, epoch, first sequence), the same
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


@dataclass(slots=True)
class Sequences:
    producer_id: int
    """`NO_PRODUCER`: nothing is numbered."""
    epoch: int = 0
    next_sequence: int = 0

    def number(self, batch: Batch) -> None:
        """It is about to be sent. Batches come in their order."""
        numbers = batch.numbers
        if self.producer_id == NO_PRODUCER or batch.may_be_written or self._has(numbers):
            return
        batch.numbers = ProducerNumbers(self.producer_id, self.epoch, self.next_sequence)
        self.next_sequence = (self.next_sequence + batch.record_count) % SEQUENCES

    def leave_out(self, batch: Batch) -> None:
        """It will not be sent again, or not under its numbers: what follows it cannot go on with them."""
        if batch.numbers is NOT_IDEMPOTENT or not self._has(batch.numbers):
            return
        self.next_sequence = 0
        self.epoch += 1
        if self.epoch > _EPOCH_MAX:
            self.producer_id, self.epoch = (self.producer_id + 1) % _IDS, 0

    def _has(self, numbers: ProducerNumbers) -> bool:
        """Whether they are of the present epoch."""
        return numbers.producer_id == self.producer_id and numbers.producer_epoch == self.epoch


Rows = TypeVar("Rows", bound=RowBatch)


@dataclass(slots=True)
class _Lane(Generic[Rows]):
    sequences: Sequences
    queue: deque[Batch] = field(default_factory=deque)
    open: Rows | None = None
    """The last of `queue` while it still takes rows."""
    in_flight: list[Batch] = field(default_factory=list)
    depth: int = 1
    """So many may be in flight."""
    queued: int = 0
    """Batches that ever were."""
    not_before_ms: int = 0
    error: HeadraceError | None = None
    """The last failure, until a batch arrives again."""

    def ready_at_ms(self, linger_ms: int) -> int | None:
        """When the first batch may go; None while there is none, or an answer must come first."""
        if not self.queue or len(self.in_flight) >= self.depth:
            return None
        head = self.queue[0]
        if head is not self.open:
            return max(self.not_before_ms, head.opened_ms)
        return None if self.in_flight else max(self.not_before_ms, head.opened_ms + linger_ms)


@dataclass(frozen=True, slots=True)
class Due:
    """What `Accumulator.due` took from the queues."""

    send: list[Batch]
    expired: list[tuple[Batch, HeadraceError]]
    """To be given up: they waited behind failing batches for the whole delivery timeout; with the failure."""


class Accumulator(Generic[Rows]):
    def __init__(
        self,
        make_rows: Callable[[TopicPartition, int], Rows],
        *,
        linger_ms: int,
        timeout_ms: int,
        producer_id: int = NO_PRODUCER,
    ) -> None:
        """`make_rows(partition, now_ms)` gives an empty batch. Those of an idempotent producer are numbered."""
        self.buffered_bytes = 0
        self._producer_id = producer_id
        self._make_rows = make_rows
        self._linger_ms, self._timeout_ms = linger_ms, timeout_ms
        self._lanes: dict[TopicPartition, _Lane[Rows]] = {}

    def joined_batch(self, partition: TopicPartition, size_bytes: int, batch_bytes: int) -> Rows | None:
        """The batch that a row of this size joins; None: a new one is needed (`new_rows`).

        The caller adds the row before it lets go of the lock.
        """
        lane = self._lanes.get(partition)
        if lane is None or (batch := lane.open) is None or batch.size_bytes + size_bytes > batch_bytes:
            return None
        batch.size_bytes += size_bytes
        self.buffered_bytes += size_bytes
        return batch

    def new_rows(self, partition: TopicPartition, size_bytes: int, now_ms: int) -> Rows:
        """A batch for a row of this size and those after it: the caller adds the row, then `put_rows`."""
        batch = self._make_rows(partition, now_ms)
        batch.size_bytes += size_bytes
        return batch

    def put_rows(self, batch: Rows) -> None:
        """The sender has something to plan."""
        self._put(self._lane(batch.partition), batch, batch)

    def put_columns(self, batch: ColumnBatch) -> None:
        self._put(self._lane(batch.partition), batch, None)

    def _put(self, lane: _Lane[Rows], batch: Batch, still_open: Rows | None) -> None:
        lane.queued += 1
        batch.number = lane.queued
        lane.open = still_open
        self.buffered_bytes += batch.size_bytes
        lane.queue.append(batch)

    def due(self, now_ms: int) -> Due:
        """Take every batch that may go now; each is in flight until it is reported on."""
        due = Due([], [])
        for lane in self._lanes.values():
            while (ready_at_ms := lane.ready_at_ms(self._linger_ms)) is not None and ready_at_ms <= now_ms:
                batch = lane.queue.popleft()
                lane.in_flight.append(batch)
                batch.attempt_ms = now_ms
                batch.sent_ms = batch.sent_ms or now_ms
                lane.sequences.number(batch)
                if batch is lane.open:
                    lane.open = None
                if lane.error is None or now_ms - batch.opened_ms <= self._timeout_ms:
                    due.send.append(batch)
                else:
                    due.expired.append((batch, lane.error))
        return due

    def pipeline(self, partition: TopicPartition, depth: int) -> None:
        """Let `depth` batches be in flight, until one comes back."""
        self._lane(partition).depth = depth

    def may_go(self, batch: Batch) -> bool:
        """Whether a batch in flight is the first of its lane: nothing before it is on its way, or has come back."""
        lane = self._lanes[batch.partition]
        return lane.in_flight[0] is batch and (not lane.queue or lane.queue[0].number > batch.number)

    def next_due_ms(self) -> int | None:
        """When `due` has something next, as far as is known now."""
        times = (lane.ready_at_ms(self._linger_ms) for lane in self._lanes.values())
        return min((at_ms for at_ms in times if at_ms is not None), default=None)

    def should_move(self, now_ms: int) -> bool:
        """Whether something is on its way, or due."""
        next_due_ms = self.next_due_ms()
        return (next_due_ms is not None and next_due_ms <= now_ms) or any(self.in_flight())

    def in_flight(self) -> Iterator[Batch]:
        return (batch for lane in self._lanes.values() for batch in lane.in_flight)

    def arrived(self, batch: Batch) -> None:
        self._finish(batch).error = None

    def given_up(self, batch: Batch, error: HeadraceError) -> None:
        lane = self._finish(batch)
        lane.error = error if error.retriable else None
        lane.sequences.leave_out(batch)

    def renumber(self, batch: Batch) -> None:
        """This one and those after it get other numbers when they go again."""
        self._lanes[batch.partition].sequences.leave_out(batch)

    def put_back(self, batches: Sequence[Batch], error: HeadraceError | None, at_ms: int) -> None:
        """These of one lane go again, the first that failed at `at_ms`, and one at a time until a channel is open."""
        lane = self._lanes[batches[0].partition]
        for batch in batches:
            lane.in_flight.remove(batch)
        lane.depth = 1
        if error is not None:
            lane.error, lane.not_before_ms = error, at_ms
        lane.queue = deque(sorted([*batches, *lane.queue], key=attrgetter("number")))

    def close_batches(self) -> None:
        """Let nothing linger: what is queued goes as soon as its lane is free."""
        for lane in self._lanes.values():
            lane.open = None

    def waiting_batches(self) -> list[Batch]:
        """Every batch that has neither arrived nor been given up."""
        waiting: list[Batch] = []
        for lane in self._lanes.values():
            waiting.extend(lane.in_flight)
            waiting.extend(lane.queue)
        return waiting

    def _lane(self, partition: TopicPartition) -> _Lane[Rows]:
        lane = self._lanes.get(partition)
        if lane is None:
            lane = self._lanes[partition] = _Lane(Sequences(self._producer_id))
        return lane

    def _finish(self, batch: Batch) -> _Lane[Rows]:
        lane = self._lanes[batch.partition]
        assert batch in lane.in_flight, "only a batch in flight can end"
        lane.in_flight.remove(batch)
        lane.not_before_ms = 0
        self.buffered_bytes -= batch.size_bytes
        return lane

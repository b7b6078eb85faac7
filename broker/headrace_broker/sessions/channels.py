"""The two kinds of channels of a session: one that reads a partition, one that writes to it.

Each is about a `LedPartition`: the partition, for as long as this broker leads it in one epoch.

A `ServedFetchChannel` pushes batches as they are committed, for as long as there is credit.

    waiting ── credit, or the high watermark rises ──> ready ── its turn ──> a frame ──> ready, or waiting
                                                         └── not in the page cache ──> reading in a thread ──> ready

It holds one piece of the log at most, and a second one while the first is sent: a thread reads for a client that is far
behind, in larger pieces and ahead of the writer. The rules for what it may see are those of `partition.fetch`.

A `ServedProduceChannel` checks batches as they come, appends them in groups, answers in order. Produces that arrive
together are appended together, in one write: what is collected is appended by `flush`, before the session waits for
anything. `Ledger` (core) says what is answered when. A produce that takes long to check is checked by a task; the
session hands over no other frame before that is done (`Channels.checked`).
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from headrace.core.errors import HeadraceError, NotLeaderError
from headrace.core.frames.frame import Buffer
from headrace.core.frames.session_messages import (
    UNKNOWN_OFFSET,
    Batches,
    ChannelClosed,
    Failed,
    Ledger,
    Produce,
    Produced,
    ProduceGroup,
)
from headrace.core.frames.session_terms import FetchTerms, Standing
from headrace.core.limits import FETCH_RECORDS_MAX, SESSION_GROUP_BYTES, SESSION_GROUP_FRAMES_MAX
from headrace.core.log.epochs import Fence
from headrace.core.records.raw import RawBatch, split_batches
from headrace.core.types import LeaderEpoch, Offset
from headrace_broker.admission import Admission
from headrace_broker.cluster.locator import Elsewhere, Locator
from headrace_broker.partition.fetch import FetchedBatches, fetch, fetch_cached, known_end, start_offset
from headrace_broker.partition.partition import Partition
from headrace_broker.partition.queries import Edge, FetchQuery, Place, ProduceQuery, ValueFormat
from headrace_broker.partition.record_checks import check_bodies, check_bodies_in_thread, take_long
from headrace_broker.sessions.outgoing import OutgoingFrames, SessionReadAhead
from headrace_broker.storage.log_appender import AppendedBatches

SESSION_COLD_READ_BYTES = 4 << 20
"""The same bytes in a thread, for a reader that is behind: each read costs a hand-over to the thread and back."""


_REMEDY = "; open a session there"


@dataclass(frozen=True, slots=True)
class LedPartition:
    """A partition that this broker leads; `fence` is the topic and the epoch that the channel began in."""

    locator: Locator
    partition: Partition
    fence: Fence

    @classmethod
    def take(cls, locator: Locator, place: Place, fence: Fence) -> "LedPartition":
        """Take a partition. Raises what `Locator.locate` and `Replica.check_leader` raise, and NotLeaderError."""
        target = locator.locate(place, fence)
        if isinstance(target, Elsewhere):
            raise target.error(_REMEDY)
        epoch = target.replica.check_leader(str(place), fence)
        return cls(locator, target, Fence(target.key.uid, epoch))

    @property
    def is_over(self) -> bool:
        replica = self.partition.replica
        return not replica.leads or replica.leader_epoch != self.fence.leader_epoch

    @property
    def max_message_bytes(self) -> int:
        """Return the topic's limit. Raises what `Locator.topic` raises."""
        return self.locator.topic(self.partition.place.topic, self.fence).spec.max_message_bytes

    def why_over(self) -> HeadraceError:
        """Return the error that `is_over` means to the client: it names the leader, where that is known."""
        place = self.partition.place
        try:
            target = self.locator.locate(place, Fence(self.fence.topic_uid))
            if isinstance(target, Elsewhere):
                return target.error(_REMEDY)
            self.partition.replica.check_leader(str(place), self.fence)
        except HeadraceError as error:
            return error
        raise AssertionError("it was over")

    def with_leader(self, error: HeadraceError) -> HeadraceError:
        """Return the same error; where another broker leads, with its address."""
        if isinstance(error, NotLeaderError):
            now = self.why_over() if self.is_over else error
            if isinstance(now, NotLeaderError):
                return NotLeaderError(error.message, **now.details)
        return error

    def standing(self, offset: Offset | None = None) -> Standing:
        """Return the partition's state for the client. Raises what `Locator.topic` raises."""
        topic_uid, epoch = self.fence.topic_uid, self.fence.leader_epoch
        assert topic_uid is not None, "taken with both"
        assert epoch is not None, "taken with both"
        return Standing(
            topic_uid=topic_uid,
            leader_epoch=epoch,
            log_start_offset=self.partition.log.log_start_offset,
            high_watermark=known_end(self.partition),
            max_message_bytes=self.max_message_bytes,
            offset=offset,
        )


class ServedFetchChannel:
    is_pending = False
    """Whether a client waits for an answer: never on this channel."""

    def __init__(
        self,
        number: int,
        led: LedPartition,
        terms: FetchTerms,
        outgoing: OutgoingFrames,
        over: Callable[[Failed | ChannelClosed], None],
    ) -> None:
        """Open the channel; `over` is told the last message on it. Raises what `fetch` raises."""
        self.number = number
        self.led = led
        self._over = over
        self._max_bytes = terms.max_bytes
        self._credit = terms.credit
        offset = terms.offset if isinstance(terms.offset, int) else Edge(terms.offset)
        self.offset = start_offset(led.partition, self._query(offset, terms.max_bytes))
        """The offset where the next frame begins."""
        self._outgoing = outgoing
        self._cold = SessionReadAhead[FetchedBatches](outgoing, self)
        """The reads of what was not in the page cache."""
        self._reads_ahead = False
        """Whether the last piece came from a thread."""

    def begin(self) -> None:
        self.led.partition.follow(self.wake)
        self.wake()

    def add_credit(self, nbytes: int) -> None:
        self._credit += nbytes
        self.wake()

    def wake(self) -> None:
        """Look whether there is something to send."""
        if not self._cold.is_under_way and (self._credit > 0 or self.led.is_over):
            self._outgoing.let_speak(self)

    def next_frame(self, max_bytes: int) -> Sequence[Buffer]:
        try:
            if self.led.is_over:
                raise self.led.why_over()
            fetched = self._fetched(max_bytes)
        except HeadraceError as error:
            self.fail(error)
            return ()
        if fetched is None or not fetched.buffers:
            return ()
        self.offset = fetched.next_offset
        self._credit -= sum(map(len, fetched.buffers))
        # The high watermark is read again: what was committed since the read has woken nobody.
        if self.offset < self.led.partition.high_watermark and self._credit > 0:
            self._go_on()
        return Batches(
            self.number,
            fetched.next_offset,
            fetched.high_watermark if fetched.high_watermark is not None else UNKNOWN_OFFSET,
            fetched.log_start_offset,
            fetched.leader_epoch,
            fetched.buffers,
        ).buffers()

    def fail(self, error: HeadraceError) -> None:
        self._over(Failed(self.number, self.led.with_leader(error)))

    def close(self) -> None:
        """Close the channel, because the client wants no more of it."""
        self._over(ChannelClosed(self.number))

    def leave(self) -> None:
        """Leave the partition: the channel is over, or its session is."""
        self.led.partition.unfollow(self.wake)
        self._outgoing.silence(self)
        self._cold.cancel()

    def _fetched(self, max_bytes: int) -> FetchedBatches | None:
        """Return None where the read has to be waited for."""
        if self._cold.is_under_way:
            fetched = self._cold.take()
            self._reads_ahead = fetched is not None
            return fetched
        if self._credit <= 0:
            return None
        self._reads_ahead = False
        fetched = fetch_cached(self.led.partition, self._query(self.offset, max_bytes))
        if fetched is None:
            self._begin_reading()
        return fetched

    def _go_on(self) -> None:
        """Go on reading: there is more, and credit for it."""
        if self._reads_ahead:
            self._begin_reading()
        else:
            self.wake()

    def _begin_reading(self) -> None:
        query = self._query(self.offset, SESSION_COLD_READ_BYTES)
        self._cold.begin(lambda share: fetch(self.led.partition, query, share))

    def _query(self, offset: Offset | Edge, max_bytes: int) -> FetchQuery:
        return FetchQuery(
            offset=offset,
            max_bytes=max(1, min(max_bytes, self._max_bytes, self._credit)),
            max_records=FETCH_RECORDS_MAX,
            min_bytes=0,
            max_wait_ms=0,
            fence=self.led.fence,
            value_format=ValueFormat.TEXT,
        )


class _CheckedBatch(NamedTuple):
    """A produce whose batches may be appended."""

    sequence: int
    batches: list[RawBatch]


class ServedProduceChannel:
    def __init__(
        self,
        number: int,
        led: LedPartition,
        query: ProduceQuery,
        admission: Admission,
        outgoing: OutgoingFrames,
        over: Callable[[Failed | ChannelClosed], None],
    ) -> None:
        """Open the channel; `over` is told the last message on it."""
        self.number = number
        self.led = led
        self._query = query
        self._admission = admission
        self._outgoing = outgoing
        self._over = over
        self._ledger = Ledger(number)
        self._collected: list[_CheckedBatch] = []
        self._collected_bytes = 0
        self._batch_bytes_max = 0
        """The topic's limit when the first of them came."""
        self.checking: asyncio.Task[None] | None = None
        """The check of a produce that takes long."""

    def begin(self) -> None:
        self.led.partition.follow(self._moved)

    @property
    def is_pending(self) -> bool:
        """Return whether a client waits for an answer."""
        return self._ledger.pending > 0 or self.checking is not None

    def collect(self, produce: Produce) -> None:
        """Check it; the next `flush` appends it."""
        ledger = self._ledger
        if not ledger.takes_more:
            return
        try:
            ledger.check_room(len(self._collected))
            if not self._collected:
                self._batch_bytes_max = self.led.max_message_bytes
            checked = _CheckedBatch(
                produce.sequence, split_batches(produce.batches, batch_bytes_max=self._batch_bytes_max)
            )
            if take_long(checked.batches):
                self.checking = asyncio.create_task(self._check(checked), name="session checks")
                self.checking.add_done_callback(self._outgoing.fail_with)
                return
            check_bodies(checked.batches)
        except HeadraceError as error:
            self.fail(error, produce.sequence)
            return
        self._collect(checked)

    async def _check(self, produce: _CheckedBatch) -> None:
        """Check a produce in a thread; what comes of it is appended, or sent, at once."""
        try:
            await check_bodies_in_thread(produce.batches, self._admission)
        except HeadraceError as error:
            self.fail(error, produce.sequence)
        else:
            if self._ledger.takes_more:
                self._collect(produce)
                self.flush()
        finally:
            self.checking = None

    def _collect(self, produce: _CheckedBatch) -> None:
        self._collected.append(produce)
        self._collected_bytes += sum(batch.nbytes for batch in produce.batches)
        if len(self._collected) >= SESSION_GROUP_FRAMES_MAX or self._collected_bytes >= SESSION_GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Append what is collected: all of it, or as much as can be."""
        if not self._collected:
            return
        collected, self._collected, self._collected_bytes = self._collected, [], 0
        if not self._append(collected) and len(collected) > 1:
            # One of them is at fault: it is to be named, and those before it are to be written.
            for each in collected:
                self._append([each])
        self._tell()

    def _append(self, produces: list[_CheckedBatch]) -> bool:
        """Return whether all of them are written. One that cannot be written alone fails the channel."""
        if not self._ledger.takes_more:
            return True
        group = ProduceGroup(())
        batches = [batch for produce in produces for batch in produce.batches]
        try:
            written, epoch = self.led.partition.append(batches, self._query, partial(self._answered, group))
        except HeadraceError as error:
            if len(produces) == 1:
                self._ledger.refuse(self.led.with_leader(error), produces[0].sequence)
            return False
        group.answers = self._answers(produces, written, epoch)
        self._ledger.appended(group)
        return True

    def fail(self, error: HeadraceError, *sequence: int) -> None:
        """Fail the channel. What was collected is appended, and answered first."""
        self.flush()
        self._ledger.refuse(error, *sequence)
        self._tell()

    def close(self) -> None:
        """Close the channel, because the client wants no more of it: `ChannelClosed` follows the last answer."""
        self.flush()
        self._ledger.close()
        self._tell()

    def leave(self) -> None:
        """Leave the partition: the channel is over, or its session is."""
        self.led.partition.unfollow(self._moved)
        if self.checking is not None and self.checking is not asyncio.current_task():
            self.checking.cancel()

    def _answers(self, produces: list[_CheckedBatch], written: AppendedBatches, epoch: LeaderEpoch) -> list[Produced]:
        start = self.led.partition.log.log_start_offset
        answers, first = [], 0
        for sequence, batches in produces:
            base, last = written.base_offsets[first], written.last_offsets[first + len(batches) - 1]
            answers.append(Produced(self.number, sequence, base, last, start, epoch))
            first += len(batches)
        return answers

    def _answered(self, group: ProduceGroup, error: HeadraceError | None) -> None:
        group.is_done = True
        group.error = self.led.with_leader(error) if error is not None else None
        if group.answers:  # else `_append` has yet to say what the answers are
            self._tell()

    def _moved(self) -> None:
        if self.led.is_over:
            self.fail(self.led.why_over())

    def _tell(self) -> None:
        for said in self._ledger.take():
            if isinstance(said, Produced):
                self._outgoing.say(said.pack())
            else:
                self._over(said)

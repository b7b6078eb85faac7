"""One partition that is sent to one follower: reads what is due, and tells the partition what is reported.

    nothing due ── append, report ──> due ── its turn ──> a frame ──> due, or nothing due
      │                                │                    └── far behind, or caught up ──> MOVE, over
      │                                └── not in the page cache ──> reading in a thread ──> due
      └── high watermark ──> due a little later, with others of its stream

`LeaderChannel` says what is due and what has to move. Owned by a `ServedStream`, until it is over.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from headrace.core.errors import HeadraceError
from headrace.core.frames.frame import Buffer
from headrace.core.frames.replication_messages import AskEpochEnd, Batches, EpochEnded, Failed, Move, Report
from headrace.core.limits import FETCH_RECORDS_MAX, REPLICATION_READ_BYTES
from headrace.core.records.header import skim_batches
from headrace.core.replication.leader_stream import Due, LeaderChannel, Throttle, Tip
from headrace.core.types import Offset, Seat
from headrace_broker.admission import Share
from headrace_broker.clock import monotonic_ms
from headrace_broker.partition import Partition
from headrace_broker.replication.recent_batches import Run
from headrace_broker.session.outgoing import Outgoing
from headrace_broker.session.read_ahead import ReadAhead


class Read(NamedTuple):
    """What is sent next."""

    buffers: Sequence[Buffer]
    nbytes: int
    next_offset: Offset
    log_end: Offset
    """As it was when they were read."""


class Stream(Protocol):
    """Whose channel it is."""

    outgoing: Outgoing
    throttle: Throttle
    """How fast its batches may be read."""

    def say_later(self, channel: "ServedChannel") -> None:
        """It has something to say that may wait a moment for others."""

    def sent(self, nbytes: int) -> None:
        """So many bytes of batches."""

    def end_channel(self, channel: "ServedChannel", last_word: Failed | Move) -> None: ...


class ServedChannel:
    def __init__(self, channel: LeaderChannel, partition: Partition, stream: Stream) -> None:
        """Raises what `check_serves` raises."""
        partition.check_serves(channel.leader_epoch)
        self.channel = channel
        self.partition = partition
        self._stream = stream
        self._cold = ReadAhead[Read](stream.outgoing, self)
        self._reads_ahead = False
        """The last piece came from a thread."""
        partition.follow_appends(self.wake)

    def leave(self, seat: Seat) -> None:
        """It is over, or its stream is."""
        self.partition.follower_left(seat, self.channel.leader_epoch)
        self.partition.unfollow_appends(self.wake)
        self._stream.outgoing.silence(self)
        self._cold.cancel()

    def answer(self, question: AskEpochEnd) -> EpochEnded:
        """Raises what `check_serves` raises."""
        answer = self.partition.epoch_end(question.leader_epoch, question.epoch)
        return EpochEnded(question.channel, question.leader_epoch, answer)

    def fetch(self, offset: Offset) -> None:
        """Raises DivergedLogError."""
        self.channel.fetch(offset, self._tip)
        self.wake()

    def report(self, seat: Seat, report: Report) -> None:
        self.channel.reported(report.ends)
        self.partition.follower_reported(seat, report.leader_epoch, report.ends, report.leader_ms)
        self.wake()

    def report_again(self, seat: Seat, leader_ms: int) -> None:
        """What it reported last is still so."""
        if self.channel.ends is not None:
            self.partition.follower_reported(seat, self.channel.leader_epoch, self.channel.ends, leader_ms)
            self.wake()

    @property
    def lag(self) -> int:
        """Records that the follower has not reported."""
        ends = self.channel.ends
        return max(0, self._tip.log_end - ends.log_end) if ends is not None else 0

    def wake(self) -> None:
        """There may be something to send, or to say."""
        match self.channel.due(self._tip):
            case Due.NOW:
                self.speak()
            case Due.LATER:
                self._stream.say_later(self)

    def speak(self) -> None:
        if not self._cold.is_under_way:
            self._stream.outgoing.let_speak(self)

    def speak_if_due(self) -> None:
        """What could wait has waited."""
        if self.channel.due(self._tip) is not Due.NOTHING:
            self.speak()

    def next_frame(self, max_bytes: int) -> Sequence[Buffer]:
        channel = self.channel
        try:
            self.partition.check_serves(channel.leader_epoch)
            read = self._read(max_bytes)
        except HeadraceError as error:
            self._stream.end_channel(self, Failed(channel.number, error))
            return ()
        return self._frame(read) if read is not None else ()

    def _frame(self, read: Read) -> list[Buffer]:
        channel, tip, size = self.channel, self._tip, read.nbytes
        frame = Batches(
            channel.number,
            channel.leader_epoch,
            read.next_offset,
            tip.high_watermark,
            tip.log_start,
            monotonic_ms(),
            read.buffers,
        ).buffers()
        self._stream.sent(size)
        if channel.sent(size, read.next_offset, tip._replace(log_end=read.log_end)):
            self._stream.end_channel(self, Move(channel.number, channel.leader_epoch))
        elif self._reads_ahead and channel.due(self._tip) is Due.NOW:
            self._begin_reading()
        else:
            self.wake()
        return frame

    def _read(self, max_bytes: int) -> Read | None:
        """None where it has to be waited for."""
        if self._cold.is_under_way:
            read = self._cold.take()
            self._reads_ahead = read is not None
            return read
        self._reads_ahead = False
        tip = self._tip
        offset, room = self.channel.start(tip), self._piece(max_bytes)
        if offset >= tip.log_end or not room:
            return Read((), 0, offset, tip.log_end)
        recent = self.partition.recent.find(self.channel.key, self.channel.leader_epoch, offset, room)
        if recent is not None:
            return Read(recent.buffers, recent.nbytes, recent.next_offset, tip.log_end)
        # What has lain on the disk for a while is checked before it is handed on as a copy.
        if self._stream.throttle.wait_ms(monotonic_ms()) or offset < self.partition.log.active_segment:
            buffers = None
        else:
            buffers = self.partition.log.read_cached(offset, max_bytes=room, up_to=tip.log_end)
        if buffers is None:
            self._begin_reading()
            return None
        return self._found(buffers, offset, tip)

    def _piece(self, max_bytes: int) -> int:
        return min(max_bytes, self._stream.throttle.piece_bytes, self.channel.room_bytes)

    def _begin_reading(self) -> None:
        self._cold.begin(self._read_cold)

    async def _read_cold(self, share: Share) -> Read:
        await asyncio.sleep(self._stream.throttle.wait_ms(monotonic_ms()) / 1000)
        tip = self._tip
        offset, room = self.channel.start(tip), max(1, self._piece(REPLICATION_READ_BYTES))
        buffers = await self.partition.log.read_checked(offset, max_bytes=share.grant(room), up_to=tip.log_end)
        share.resize(sum(map(len, buffers)))
        return self._found(buffers, offset, tip)

    def _found(self, buffers: Sequence[Buffer], offset: Offset, tip: Tip) -> Read:
        size, next_offset = sum(map(len, buffers)), offset
        self._stream.throttle.took(size, monotonic_ms())
        if buffers:
            last = skim_batches(buffers[-1], FETCH_RECORDS_MAX)
            next_offset, is_one_batch = last.next_offset, len(buffers) == 1 and last.batches == 1
            run = Run(self.channel.leader_epoch, buffers, size, next_offset, is_one_batch)
            self.partition.recent.read(self.channel.key, offset, run)
        return Read(buffers, size, next_offset, tip.log_end)

    @property
    def _tip(self) -> Tip:
        log = self.partition.log
        return Tip(log.log_start_offset, log.log_end_offset, self.partition.high_watermark)

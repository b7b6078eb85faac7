"""The leader's side of one replication stream: it serves the messages of the follower and sends what is due to it.

    open ── HELLO ──> introduced ── FOLLOW, FETCH, reports ... ──> the follower ends it, or breaks the protocol
      └── not in time: cut off                                ├──> the follower falls silent: cut off
                                                              └──> this broker stops: FAILED on channel 0

Frames are handled where they were received, without a turn of the loop in between, as long as they come alone; answers
to them leave together. High watermarks with which no batches come wait a moment for each other. One timer for the whole
stream looks whether the follower lives, and says that this broker does. Made by the route, for one request.

A `ServedChannel` is one partition that is sent to one follower: it reads what is due, and tells the partition what is
reported. `LeaderChannel` (core) says what is due and what has to move.

    nothing due ── append, report ──> due ── its turn ──> a frame ──> due, or nothing due
      │                                │                    └── far behind, or caught up ──> MOVE, over
      │                                └── not in the page cache ──> reading in a thread ──> due
      └── high watermark ──> due a little later, with others of its stream
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import NamedTuple, Protocol, assert_never

from headrace.core.errors import HeadraceError, NotLeaderError, ThrottledError
from headrace.core.frames.frame import STREAM, Buffer
from headrace.core.frames.replication_messages import (
    FROM_FOLLOWERS,
    Alive,
    AskEpochEndMessage,
    EpochEnded,
    FetchMessage,
    FollowerMessage,
    FollowMessage,
    Hello,
    LeaderBatches,
    LeaderFailed,
    LeaderHeartbeat,
    Move,
    ReportMessage,
    StreamRole,
    UnfollowMessage,
)
from headrace.core.limits import FETCH_RECORDS_MAX, REPLICATION_READ_BYTES, REPLICATION_TICK_MS
from headrace.core.records.header import skim_batches
from headrace.core.replication.leader_stream import FrameDue, LeaderChannel, LeaderStream, Throttle, Tip
from headrace.core.types import BrokerId, Offset, Seat
from headrace.http2.bodies import RequestBody
from headrace_broker.admission import BudgetShare
from headrace_broker.clock import monotonic_ms
from headrace_broker.cluster.locator import OpenPartitions
from headrace_broker.cluster.view import ClusterView
from headrace_broker.partition.partition import Partition
from headrace_broker.replication.open_streams import ServedStreams
from headrace_broker.replication.recent_batches import Run
from headrace_broker.sessions.outgoing import OutgoingFrames, SessionReadAhead, StreamWriter

REPLICATION_WATERMARK_MS = 50
"""The longest time until a follower hears of a high watermark with which no batches come."""
_log = logging.getLogger(__name__)


class LogRead(NamedTuple):
    """A piece of the log that is sent next."""

    buffers: Sequence[Buffer]
    nbytes: int
    next_offset: Offset
    log_end: Offset
    """The end of the log when the piece was read."""


class ChannelStream(Protocol):
    """The stream of a channel."""

    outgoing: OutgoingFrames
    throttle: Throttle
    """The rate at which its batches may be read."""

    def say_later(self, channel: "ServedChannel") -> None:
        """A channel has something to say that may wait a moment for others."""

    def sent(self, nbytes: int) -> None:
        """Count bytes of batches that are sent."""

    def end_channel(self, channel: "ServedChannel", last_word: LeaderFailed | Move) -> None: ...


class ServedChannel:
    def __init__(self, channel: LeaderChannel, partition: Partition, stream: ChannelStream) -> None:
        """Serve a channel. Raises what `check_serves` raises."""
        partition.shell.check_serves(channel.leader_epoch)
        self.channel = channel
        self.partition = partition
        self._stream = stream
        self._cold = SessionReadAhead[LogRead](stream.outgoing, self)
        self._reads_ahead = False
        """The last piece came from a thread."""
        partition.shell.follow_appends(self.wake)

    def leave(self, seat: Seat) -> None:
        """The channel is over, or its stream is."""
        self.partition.shell.follower_left(seat, self.channel.leader_epoch)
        self.partition.shell.unfollow(self.wake)
        self._stream.outgoing.silence(self)
        self._cold.cancel()

    def answer(self, question: AskEpochEndMessage) -> EpochEnded:
        """Answer where an epoch ends. Raises what `check_serves` raises."""
        answer = self.partition.shell.epoch_end(question.leader_epoch, question.epoch)
        return EpochEnded(question.channel, question.leader_epoch, answer)

    def fetch(self, offset: Offset) -> None:
        """Begin to send from `offset` on. Raises DivergedLogError."""
        self.channel.fetch(offset, self._tip)
        self.wake()

    def report(self, seat: Seat, report: ReportMessage) -> None:
        self.channel.reported(report.ends)
        self.partition.shell.follower_reported(seat, report.leader_epoch, report.ends, report.leader_ms)
        self.wake()

    def report_again(self, seat: Seat, leader_ms: int) -> None:
        """Repeat the last report, which still holds."""
        if self.channel.ends is not None:
            self.partition.shell.follower_reported(seat, self.channel.leader_epoch, self.channel.ends, leader_ms)
            self.wake()

    @property
    def lag(self) -> int:
        """Return the number of records that the follower has not reported."""
        ends = self.channel.ends
        return max(0, self._tip.log_end - ends.log_end) if ends is not None else 0

    def wake(self) -> None:
        """Look whether there is something to send."""
        match self.channel.due(self._tip):
            case FrameDue.NOW:
                self.speak()
            case FrameDue.LATER:
                self._stream.say_later(self)

    def speak(self) -> None:
        if not self._cold.is_under_way:
            self._stream.outgoing.let_speak(self)

    def speak_if_due(self) -> None:
        """Send what has waited, where it is still due."""
        if self.channel.due(self._tip) is not FrameDue.NOTHING:
            self.speak()

    def next_frame(self, max_bytes: int) -> Sequence[Buffer]:
        channel = self.channel
        try:
            self.partition.shell.check_serves(channel.leader_epoch)
            read = self._read(max_bytes)
        except HeadraceError as error:
            self._stream.end_channel(self, LeaderFailed(channel.number, error))
            return ()
        return self._frame(read) if read is not None else ()

    def _frame(self, read: LogRead) -> list[Buffer]:
        channel, tip, size = self.channel, self._tip, read.nbytes
        frame = LeaderBatches(
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
        elif self._reads_ahead and channel.due(self._tip) is FrameDue.NOW:
            self._begin_reading()
        else:
            self.wake()
        return frame

    def _read(self, max_bytes: int) -> LogRead | None:
        """Return None where the read has to be waited for."""
        if self._cold.is_under_way:
            read = self._cold.take()
            self._reads_ahead = read is not None
            return read
        self._reads_ahead = False
        tip = self._tip
        offset, room = self.channel.start(tip), self._piece(max_bytes)
        if offset >= tip.log_end or not room:
            return LogRead((), 0, offset, tip.log_end)
        recent = self.partition.recent.find(self.channel.key, self.channel.leader_epoch, offset, room)
        if recent is not None:
            return LogRead(recent.buffers, recent.nbytes, recent.next_offset, tip.log_end)
        # Batches that have lain on the disk for a while are checked before they are handed on as a copy.
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

    async def _read_cold(self, share: BudgetShare) -> LogRead:
        await asyncio.sleep(self._stream.throttle.wait_ms(monotonic_ms()) / 1000)
        tip = self._tip
        offset, room = self.channel.start(tip), max(1, self._piece(REPLICATION_READ_BYTES))
        buffers = await self.partition.log.read_checked(offset, max_bytes=share.grant(room), up_to=tip.log_end)
        share.resize(sum(map(len, buffers)))
        return self._found(buffers, offset, tip)

    def _found(self, buffers: Sequence[Buffer], offset: Offset, tip: Tip) -> LogRead:
        size, next_offset = sum(map(len, buffers)), offset
        self._stream.throttle.took(size, monotonic_ms())
        if buffers:
            last = skim_batches(buffers[-1], FETCH_RECORDS_MAX)
            next_offset, is_one_batch = last.next_offset, len(buffers) == 1 and last.batches == 1
            run = Run(self.channel.leader_epoch, buffers, size, next_offset, is_one_batch)
            self.partition.recent.read(self.channel.key, offset, run)
        return LogRead(buffers, size, next_offset, tip.log_end)

    @property
    def _tip(self) -> Tip:
        log = self.partition.log
        return Tip(log.log_start_offset, log.log_end_offset, self.partition.high_watermark)


class ServedStream:
    def __init__(
        self, me: BrokerId, view: ClusterView, partitions: OpenPartitions, streams: ServedStreams, body: RequestBody
    ) -> None:
        self._me = me
        self._view = view
        self._partitions = partitions
        self._streams = streams
        self._body = body
        self._reader = FROM_FOLLOWERS.reader()
        self._stream = LeaderStream(monotonic_ms())
        self._channels: dict[int, ServedChannel] = {}
        self.outgoing = OutgoingFrames(self._streams.budget, None)
        self.throttle = self._streams.throttles[StreamRole.LIVE]
        self._waiting: dict[ServedChannel, None] = {}
        """The channels that have something to say that may wait."""
        self._is_over = False
        self._telling: asyncio.TimerHandle | None = None
        self._ticking: asyncio.TimerHandle | None = None

    @property
    def lag(self) -> int:
        return sum(channel.lag for channel in self._channels.values())

    @property
    def is_awaited(self) -> bool:
        return any(channel.partition.replica.waits for channel in self._channels.values())

    async def run(self, writer: StreamWriter) -> None:
        """Run the stream until it is over."""
        self._tick()
        reading = asyncio.create_task(self._read(), name="replication stream")
        reading.add_done_callback(self.outgoing.fail_with)
        try:
            await self.outgoing.write_to(writer)
        finally:
            self._body.at_once = None
            reading.cancel()
            self._leave()

    def end(self, why: HeadraceError) -> None:
        """End the stream with this as its last message, where it has sent none yet."""
        if self._is_over:
            return
        self._is_over = True
        self._body.at_once = None
        self._leave()
        self.outgoing.say(LeaderFailed(STREAM, why).pack())
        self.outgoing.end()

    def say_later(self, channel: ServedChannel) -> None:
        self._waiting[channel] = None
        if self._telling is None:
            self._telling = asyncio.get_running_loop().call_later(REPLICATION_WATERMARK_MS / 1000, self._tell)

    def sent(self, nbytes: int) -> None:
        self._streams.metrics.bytes_out.inc(nbytes)

    def end_channel(self, channel: ServedChannel, last_word: LeaderFailed | Move) -> None:
        self._forget(channel)
        if isinstance(last_word, LeaderFailed):
            self._refuse(last_word)
        else:
            self.outgoing.say(last_word.pack())

    async def _read(self) -> None:
        self._body.at_once = self._receive_at_once
        try:
            while chunks := await self._body.take_chunks():
                for chunk in chunks:
                    self._receive(chunk)
        except HeadraceError as error:
            self.end(error)
        else:
            self._leave()
            self.outgoing.end()

    def _receive_at_once(self, chunk: bytes) -> bool:
        try:
            self._receive(chunk)
        except HeadraceError as error:
            self.end(error)
        except Exception as error:
            # A mistake of ours ends this stream, as it would in the reader, and not the connection that calls.
            self.outgoing.fail(error)
        return True

    def _receive(self, chunk: bytes) -> None:
        """Handle a chunk. Raises the error that ends the stream."""
        self._stream.silence.heard(monotonic_ms())
        self.outgoing.gather()
        try:
            for frame in self._reader.receive(chunk):
                self._serve(FROM_FOLLOWERS.message(frame))
            for fed in self._stream.take_fed():
                self._channels[fed.number].wake()
        finally:
            self.outgoing.speak()

    def _serve(self, message: FollowerMessage) -> None:
        match message:
            case Hello():
                self._greet(message)
            case FollowMessage():
                self._follow(message)
            case Alive(leader_ms):
                if self._stream.repeats.is_due(monotonic_ms()):
                    for channel in tuple(self._channels.values()):
                        channel.report_again(self._stream.seat, leader_ms)
            case ReportMessage() | AskEpochEndMessage() | FetchMessage() | UnfollowMessage():
                found = self._stream.find(message.channel)
                if found is not None:
                    self._hear(self._channels[found.number], message)
            case _:
                assert_never(message)

    def _greet(self, hello: Hello) -> None:
        lease = self._view.lease(hello.seat.broker)
        self._stream.begin(hello, self._me, lease.incarnation if lease is not None else None)
        self.throttle = self._streams.throttles[hello.role]
        self._streams.introduce(self, hello.seat.broker, hello.role)
        self.outgoing.say(LeaderHeartbeat(monotonic_ms()).pack())

    def _follow(self, follow: FollowMessage) -> None:
        try:
            channel = self._stream.open(follow)
        except ThrottledError as error:
            self._refuse(LeaderFailed(follow.channel, error))
            return
        try:
            partition = self._partitions.find(follow.key)
            if partition is None:
                raise NotLeaderError(f"{follow.key} is not open on this broker; try again")
            self._channels[follow.channel] = ServedChannel(channel, partition, self)
        except HeadraceError as error:
            self._stream.close(channel)
            self._refuse(LeaderFailed(follow.channel, error))

    def _hear(
        self, channel: ServedChannel, message: ReportMessage | AskEpochEndMessage | FetchMessage | UnfollowMessage
    ) -> None:
        try:
            match message:
                case ReportMessage():
                    channel.report(self._stream.seat, message)
                case AskEpochEndMessage():
                    self.outgoing.say(channel.answer(message).pack())
                case FetchMessage():
                    channel.fetch(message.offset)
                case UnfollowMessage(_, _, why):
                    self._forget(channel)
                    if why is not None:
                        self._complain(channel, why)
        except HeadraceError as error:
            self.end_channel(channel, LeaderFailed(message.channel, error))

    def _complain(self, channel: ServedChannel, why: HeadraceError) -> None:
        self._streams.metrics.broken.labels(why.code).inc()
        # A full disk passes, and its broker says so itself.
        _log.log(
            logging.DEBUG if why.retriable else logging.WARNING,
            "%s: %s cannot use what it was sent: %s",
            channel.partition.place,
            self._stream.seat,
            why.message,
        )

    def _refuse(self, refusal: LeaderFailed) -> None:
        self._streams.metrics.refused.labels(refusal.error.code).inc()
        self.outgoing.say(refusal.pack())

    def _forget(self, channel: ServedChannel) -> None:
        del self._channels[channel.channel.number]
        self._waiting.pop(channel, None)
        self._stream.close(channel.channel)
        channel.leave(self._stream.seat)

    def _tell(self) -> None:
        self._telling = None
        waiting, self._waiting = self._waiting, {}
        for channel in waiting:
            channel.speak_if_due()

    def _tick(self) -> None:
        now_ms = monotonic_ms()
        if self._stream.silence.lasts_too_long(now_ms):
            self._streams.cut_off(self, "its follower says nothing any more")
            return
        if self._stream.is_late(now_ms):
            self._streams.cut_off(self, "nobody has said whose it is")
            return
        if self._stream.pulse.is_due(now_ms):
            self.outgoing.say(LeaderHeartbeat(now_ms).pack())
        self._ticking = asyncio.get_running_loop().call_later(REPLICATION_TICK_MS / 1000, self._tick)

    def _leave(self) -> None:
        for timer in (self._telling, self._ticking):
            if timer is not None:
                timer.cancel()
        for channel in tuple(self._channels.values()):
            self._forget(channel)

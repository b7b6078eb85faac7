"""One stream, on the leader's side: hears what the follower says, and sends what its channels have to send.

    open ── HELLO ──> introduced ── FOLLOW, FETCH, reports ... ──> the follower ends it, or breaks the protocol
      └── not in time: cut off                                ├──> the follower falls silent: cut off
                                                              └──> this broker stops: FAILED on channel 0

Frames are handled where they were received, without a turn of the loop in between, as long as they come alone; what is
said about them leaves together. High watermarks with which no batches come wait a moment for each other. One timer for
the whole stream looks whether the follower lives, and says that this broker does. Made by the route, for one request.
"""

import asyncio
import logging
from typing import assert_never

from headrace.core.errors import HeadraceError, NotLeaderError, ThrottledError
from headrace.core.frames.replication_messages import (
    STREAM,
    Alive,
    AskEpochEnd,
    Failed,
    Fetch,
    Follow,
    FollowerMessage,
    Heartbeat,
    Hello,
    Lane,
    Move,
    Report,
    Unfollow,
    follower_message,
    follower_reader,
)
from headrace.core.limits import REPLICATION_TICK_MS, REPLICATION_WATERMARK_MS
from headrace.core.replication.leader_stream import LeaderStream
from headrace.http2.bodies import RequestBody
from headrace_broker.clock import monotonic_ms
from headrace_broker.replication.served_channel import ServedChannel
from headrace_broker.serving import Serving
from headrace_broker.session.outgoing import Outgoing, Writer

_log = logging.getLogger(__name__)


class ServedStream:
    def __init__(self, serving: Serving, body: RequestBody) -> None:
        self._serving = serving
        self._streams = serving.followers
        self._body = body
        self._reader = follower_reader()
        self._stream = LeaderStream(monotonic_ms())
        self._channels: dict[int, ServedChannel] = {}
        self.outgoing = Outgoing(self._streams.budget, None)
        self.throttle = self._streams.throttles[Lane.LIVE]
        self._waiting: dict[ServedChannel, None] = {}
        """They have something to say that may wait."""
        self._is_over = False
        self._telling: asyncio.TimerHandle | None = None
        self._ticking: asyncio.TimerHandle | None = None

    @property
    def lag(self) -> int:
        return sum(channel.lag for channel in self._channels.values())

    @property
    def is_awaited(self) -> bool:
        return any(channel.partition.replica.waits for channel in self._channels.values())

    async def run(self, writer: Writer) -> None:
        """Until it is over."""
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
        """With this as its last word, where it has said none yet."""
        if self._is_over:
            return
        self._is_over = True
        self._body.at_once = None
        self._leave()
        self.outgoing.say(Failed(STREAM, why).pack())
        self.outgoing.end()

    def say_later(self, channel: ServedChannel) -> None:
        self._waiting[channel] = None
        if self._telling is None:
            self._telling = asyncio.get_running_loop().call_later(REPLICATION_WATERMARK_MS / 1000, self._tell)

    def sent(self, nbytes: int) -> None:
        self._streams.metrics.bytes_out.inc(nbytes)

    def end_channel(self, channel: ServedChannel, last_word: Failed | Move) -> None:
        self._forget(channel)
        if isinstance(last_word, Failed):
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
        """Raises what ends the stream."""
        self._stream.silence.heard(monotonic_ms())
        self.outgoing.gather()
        try:
            for frame in self._reader.receive(chunk):
                self._serve(follower_message(frame))
            for fed in self._stream.take_fed():
                self._channels[fed.number].wake()
        finally:
            self.outgoing.speak()

    def _serve(self, message: FollowerMessage) -> None:
        match message:
            case Hello():
                self._greet(message)
            case Follow():
                self._follow(message)
            case Alive(leader_ms):
                if self._stream.repeats.is_due(monotonic_ms()):
                    for channel in tuple(self._channels.values()):
                        channel.report_again(self._stream.seat, leader_ms)
            case Report() | AskEpochEnd() | Fetch() | Unfollow():
                found = self._stream.find(message.channel)
                if found is not None:
                    self._hear(self._channels[found.number], message)
            case _:
                assert_never(message)

    def _greet(self, hello: Hello) -> None:
        lease = self._serving.view.lease(hello.seat.broker)
        self._stream.begin(hello, self._serving.me, lease.incarnation if lease is not None else None)
        self.throttle = self._streams.throttles[hello.lane]
        self._streams.introduce(self, hello.seat.broker, hello.lane)
        self.outgoing.say(Heartbeat(monotonic_ms()).pack())

    def _follow(self, follow: Follow) -> None:
        try:
            channel = self._stream.open(follow)
        except ThrottledError as error:
            self._refuse(Failed(follow.channel, error))
            return
        try:
            partition = self._serving.partitions.find(follow.key)
            if partition is None:
                raise NotLeaderError(f"{follow.key} is not open on this broker; try again")
            self._channels[follow.channel] = ServedChannel(channel, partition, self)
        except HeadraceError as error:
            self._stream.close(channel)
            self._refuse(Failed(follow.channel, error))

    def _hear(self, channel: ServedChannel, message: Report | AskEpochEnd | Fetch | Unfollow) -> None:
        try:
            match message:
                case Report():
                    channel.report(self._stream.seat, message)
                case AskEpochEnd():
                    self.outgoing.say(channel.answer(message).pack())
                case Fetch():
                    channel.fetch(message.offset)
                case Unfollow(_, _, why):
                    self._forget(channel)
                    if why is not None:
                        self._complain(channel, why)
        except HeadraceError as error:
            self.end_channel(channel, Failed(message.channel, error))

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

    def _refuse(self, refusal: Failed) -> None:
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
            self.outgoing.say(Heartbeat(now_ms).pack())
        self._ticking = asyncio.get_running_loop().call_later(REPLICATION_TICK_MS / 1000, self._tick)

    def _leave(self) -> None:
        for timer in (self._telling, self._ticking):
            if timer is not None:
                timer.cancel()
        for channel in tuple(self._channels.values()):
            self._forget(channel)

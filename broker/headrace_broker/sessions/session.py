"""One session: reads frames, hands them to their channels, and writes what these say, until either side ends it.

    open ── the client's body ends ──> ending ── no channel is left ──> ended
      ├── the broker drains ──> draining ── no channel is left ──> ended
      ├── the client breaks the framing ──> FAILED on channel 0 ──> ended
      └── the client is gone ──> the task is cancelled

Two tasks: the handler's own writes, the other reads. Frames that have arrived are handled without waiting, some at a
time; then the collected batches are appended, and others have the loop. A single frame that comes alone is handled, and
answered, where it was received: no turn of the loop lies between. Nothing waits for a partition: partitions call back.
The rest of a frame that is not whole has its room in the broker's budget of bodies before it is read; a session that
finds none is not read until there is some, and `open_sessions` bounds what its client may push until then.

`Channels` opens the channels of a session, hands frames to them and says their last words; `on_empty` is called
whenever the last one is gone. Made by the route, for one request.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace

from headrace.core.errors import BrokenSessionError, HeadraceError, SlowClientError
from headrace.core.frames.channels import OpenChannels
from headrace.core.frames.frame import STREAM, Frame
from headrace.core.frames.session_messages import (
    FROM_CLIENTS,
    SESSION_CHANNELS_MAX,
    ChannelClosed,
    ChannelOpened,
    CloseChannel,
    Credit,
    Failed,
    Heartbeat,
    OpenFetch,
    OpenProduce,
    Produce,
    SessionKind,
)
from headrace.core.limits import SESSION_GROUP_BYTES, SESSION_GROUP_FRAMES_MAX
from headrace.core.resources.internal_topics import InternalTopics
from headrace.http2.bodies import RequestBody
from headrace.http2.slow_clients import Pace
from headrace_broker.admission import Admission
from headrace_broker.clock import monotonic_ms
from headrace_broker.cluster.locator import Locator
from headrace_broker.metrics import Metrics
from headrace_broker.partition.queries import Place, ProduceQuery
from headrace_broker.sessions.channels import LedPartition, ServedFetchChannel, ServedProduceChannel
from headrace_broker.sessions.open_sessions import OpenSessions
from headrace_broker.sessions.outgoing import ROOM_S, OutgoingFrames, StreamWriter

SESSION_ROOM_STALLS_MAX = 8
"""The number of times `HTTP_STALL_MS` within which a frame that room is kept for comes, however slow its client is."""


Channel = ServedProduceChannel | ServedFetchChannel


class ChannelOpener:
    """A maker of channels for partitions that this broker leads, and that clients may use. One per process."""

    def __init__(self, locator: Locator, internal: InternalTopics, admission: Admission) -> None:
        self._locator = locator
        self._internal = internal
        self._admission = admission

    def open(
        self, opening: object, outgoing: OutgoingFrames, over: Callable[[Failed | ChannelClosed], None]
    ) -> tuple[Channel, ChannelOpened]:
        """Return the channel, and the client's answer. Raises what `LedPartition.take` raises, InternalTopicError."""
        match opening:
            case OpenProduce(number, terms):
                self._internal.check_writable(terms.topic, stages=True)
                led = LedPartition.take(self._locator, Place(terms.topic, terms.partition), terms.fence)
                query = ProduceQuery(terms.acks, terms.timeout_ms, led.fence)
                opened = ChannelOpened(number, led.standing())
                return ServedProduceChannel(number, led, query, self._admission, outgoing, over), opened
            case OpenFetch(number, terms):
                self._internal.check_readable(terms.topic)
                led = LedPartition.take(self._locator, Place(terms.topic, terms.partition), terms.fence)
                channel = ServedFetchChannel(number, led, terms, outgoing, over)
                return channel, ChannelOpened(number, led.standing(channel.offset))
            case _:
                raise AssertionError("one of the two")


class Channels:
    def __init__(
        self, opener: ChannelOpener, metrics: Metrics, outgoing: OutgoingFrames, on_empty: Callable[[], None]
    ) -> None:
        self._opener = opener
        self._metrics = metrics
        self._outgoing = outgoing
        self._on_empty = on_empty
        self._open = OpenChannels[Channel]()
        self._collecting: dict[ServedProduceChannel, None] = {}
        """The channels that may have something to append."""
        self._checking: asyncio.Task[None] | None = None
        self._refusal: HeadraceError | None = None
        """The reason why no more channels are opened."""

    def __len__(self) -> int:
        return len(self._open)

    @property
    def is_pending(self) -> bool:
        """Return whether a client waits for an answer to a produce."""
        return any(channel.is_pending for channel in self._open.values())

    @property
    def is_checking(self) -> bool:
        """Return whether a produce takes long to check: no frame is to be served before that is done."""
        return self._checking is not None and not self._checking.done()

    async def checked(self) -> None:
        """Wait until nothing is being checked."""
        if self._checking is not None:
            await asyncio.wait([self._checking])
            self._checking = None

    def serve(self, frame: Frame) -> None:
        """Serve one frame; what it produces is appended with the next `flush`. Raises BrokenSessionError."""
        if frame.kind in (SessionKind.OPEN_PRODUCE, SessionKind.OPEN_FETCH):
            self._begin(frame)
            return
        message, channel = FROM_CLIENTS.message(frame), self._open.find(frame.channel)
        match message:
            case _ if channel is None:
                pass  # The channel is over: what was still sent on it is skipped.
            case Produce() if isinstance(channel, ServedProduceChannel):
                channel.collect(message)
                self._collecting[channel] = None
                self._checking = channel.checking
            case Credit() if isinstance(channel, ServedFetchChannel):
                channel.add_credit(message.nbytes)
            case CloseChannel():
                channel.close()
            case _:
                raise BrokenSessionError(
                    f"channel {frame.channel} is no channel for {SessionKind(frame.kind).name}: open another one for it"
                )

    def flush(self) -> None:
        for channel in self._collecting:
            channel.flush()
        self._collecting.clear()

    def close(self) -> None:
        """Close all channels, because the client wants no more of any."""
        for channel in tuple(self._open.values()):
            channel.close()

    def fail(self, why: HeadraceError) -> None:
        """Fail each channel as soon as what was produced is answered; no more are opened."""
        self._refusal = why
        for channel in tuple(self._open.values()):
            channel.fail(why)

    def leave(self) -> None:
        """Leave all partitions: the session is over, and nobody listens any more."""
        for channel in self._open.values():
            channel.leave()
        self._open.clear()
        self._collecting.clear()

    def _begin(self, frame: Frame) -> None:
        try:
            self._open.take_number(frame.channel, SESSION_CHANNELS_MAX)
            if self._refusal is not None:
                raise self._refusal
            channel, opened = self._opener.open(FROM_CLIENTS.message(frame), self._outgoing, self._over)
            self._open[frame.channel] = channel
            channel.begin()
        except BrokenSessionError:
            raise
        except HeadraceError as error:
            self._say_last(Failed(frame.channel, error))
        else:
            self._outgoing.say(opened.pack())

    def _over(self, last_word: Failed | ChannelClosed) -> None:
        self._open.pop(last_word.channel).leave()
        self._say_last(last_word)

    def _say_last(self, last_word: Failed | ChannelClosed) -> None:
        if isinstance(last_word, Failed):
            self._metrics.errors.labels(last_word.error.code).inc()
        self._outgoing.say(last_word.pack())
        if not self._open:
            self._on_empty()


class Session:
    def __init__(
        self,
        opener: ChannelOpener,
        sessions: OpenSessions,
        admission: Admission,
        metrics: Metrics,
        body: RequestBody,
        holder: str | None,
    ) -> None:
        """Make the session; `holder` is the client whose shares it takes."""
        self._sessions = sessions
        self._bodies = admission.bodies
        self._metrics = metrics
        self._body = body
        self._reader = FROM_CLIENTS.reader()
        self._outgoing = OutgoingFrames(admission.answers, holder)
        self._channels = Channels(opener, metrics, self._outgoing, self._maybe_end)
        self._room = self._bodies.share(holder)
        """The share of the budget of bodies that the frame under way has taken."""
        self._is_ending = False
        self._received_bytes = 0
        self._pace: Pace | None = None
        """The pace of the frame that is under way."""

    @property
    def channel_count(self) -> int:
        return len(self._channels)

    @property
    def is_pending(self) -> bool:
        return self._channels.is_pending

    async def run(self, writer: StreamWriter) -> None:
        """Run the session until it is over."""
        self._beat()
        reading = asyncio.create_task(self._read(), name="session")
        reading.add_done_callback(self._outgoing.fail_with)
        try:
            await self._outgoing.write_to(writer)
        finally:
            self._body.at_once = None
            reading.cancel()
            self._heartbeat.cancel()
            self._channels.leave()

    def drain(self, why: HeadraceError) -> None:
        """End the session as soon as what was produced is answered."""
        self._is_ending = True
        self._channels.fail(why)
        self._maybe_end()

    def size_window(self, window: int) -> None:
        self._body.size_window(window)

    def _maybe_end(self) -> None:
        if self._is_ending and not len(self._channels):
            self._outgoing.end()

    def _beat(self) -> None:
        loop, interval_s = asyncio.get_running_loop(), self._sessions.heartbeat_ms / 1000
        due_s = self._outgoing.written_s + interval_s
        if due_s <= loop.time():
            self._outgoing.say(Heartbeat().pack())
            due_s = loop.time() + interval_s
        self._heartbeat = loop.call_at(due_s, self._beat)

    def _serve_at_once(self, chunk: bytes) -> bool:
        """Serve a single frame without a turn of the loop: a client that waits for one answer gets it sooner."""
        if not self._reader.is_one_frame(chunk) or not self._outgoing.is_idle or self._channels.is_checking:
            return False
        self._received_bytes += len(chunk)
        self._outgoing.gather()
        try:
            for frame in self._reader.receive(chunk):
                self._channels.serve(frame)
            self._channels.flush()
        except HeadraceError as error:
            self._break(error)
        except Exception as error:
            # A mistake of ours ends this session, as it would in the reader, and not the connection that calls.
            self._outgoing.fail(error)
        self._outgoing.speak()
        return True

    async def _read(self) -> None:
        self._body.at_once = self._serve_at_once
        try:
            while chunks := await self._arrived():
                await self._handle(chunks)
                await self._channels.checked()  # The frame has room for as long as it is checked.
                await self._make_room()
            if not self._reader.is_between_frames:
                raise BrokenSessionError("the session ended within a frame: end it after one")
            await self._channels.checked()
        except HeadraceError as error:
            self._break(error)
        else:
            self._is_ending = True
            self._channels.close()
            self._maybe_end()
        finally:
            self._room.resize(0)

    def _break(self, error: HeadraceError) -> None:
        """End the session with an error, its last message."""
        self._body.at_once = None
        self._channels.leave()
        self._metrics.errors.labels(error.code).inc()
        self._outgoing.say(Failed(STREAM, error).pack())
        self._outgoing.end()

    async def _arrived(self) -> list[bytes]:
        """Return the chunks that arrived; none at the end of the body. Raises SlowClientError for a stalled frame."""
        wait = self._body.take_chunks if self._reader.is_between_frames else self._rest_of_frame
        arrived = await wait()
        self._received_bytes += sum(map(len, arrived))
        return arrived

    async def _rest_of_frame(self) -> list[bytes]:
        now_ms, patience = monotonic_ms(), self._sessions.patience
        # Room that is kept for what does not come keeps others waiting.
        least_bytes = max(patience.least_bytes, self._room.taken // SESSION_ROOM_STALLS_MAX)
        patience = replace(patience, least_bytes=least_bytes)
        self._pace = self._pace or Pace(patience, self._received_bytes, now_ms)
        while not self._pace.is_too_slow(self._received_bytes, now_ms):
            with suppress(TimeoutError):
                async with asyncio.timeout((self._pace.judged_ms - now_ms) / 1000):
                    return await self._body.take_chunks()
            now_ms = monotonic_ms()
        raise SlowClientError(
            f"a frame has come on by fewer than {patience.least_bytes} bytes in {patience.stall_ms / 1000:g} s: begin a"
            " frame when all of it is there"
        )

    async def _handle(self, chunks: Iterable[bytes]) -> None:
        """Serve the frames that are whole now, in portions. Raises BrokenSessionError."""
        count, size = 0, 0
        self._outgoing.gather()
        for chunk in chunks:
            for frame in self._reader.receive(chunk):
                self._pace = None
                if self._channels.is_checking:
                    await self._until_checked()
                self._channels.serve(frame)
                count += 1
                size += sum(map(len, frame.payload))
                if count >= SESSION_GROUP_FRAMES_MAX or size >= SESSION_GROUP_BYTES:
                    self._channels.flush()
                    self._outgoing.speak()
                    await asyncio.sleep(0)
                    self._outgoing.gather()
                    count, size = 0, 0
        self._channels.flush()
        self._outgoing.speak()

    async def _until_checked(self) -> None:
        """Wait for a check; what was served before is appended, and answered, meanwhile."""
        self._channels.flush()
        self._outgoing.speak()
        await self._channels.checked()
        self._outgoing.gather()

    async def _make_room(self) -> None:
        """Make room for the rest of a frame that is not whole, and for answers that the client has yet to take."""
        missing = self._reader.missing_bytes
        if missing > self._room.taken:
            self._room.resize(0)  # Nobody waits for room while holding some.
            budget = self._bodies
            missing = min(missing, budget.holder_bytes_max)
            while missing > budget.room_bytes(self._room.holder):
                await budget.room(ROOM_S)
                self._pace = None  # The broker itself has kept it waiting.
            self._room.take(missing)
        elif not missing:
            self._room.resize(0)
        await self._outgoing.room()

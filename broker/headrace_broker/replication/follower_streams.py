"""All partitions that this broker follows, leader by leader: their `StreamsPort`. One per process, until `close`.

Each leader that is followed has two streams, with a connection each: every partition begins on the live one, and its
leader moves it to the other and back (`core.replication.leader_stream`). A leader is a seat: its next life is another.
A `FollowedStream` is one of the two, for as long as anything is wanted of it:

    idle ── a partition is wanted ──> connecting ──> open ── nothing is wanted for a while ──> idle
                                        └──failed──> waiting (backoff) ──> connecting
                                       open ── lost, silent, broken ──> every partition hears of it ──> waiting

Frames are handled where they were received: what they hold is appended, and everything that is to be said about them
leaves together. A partition that its leader refuses, or that cannot use what it was sent, is tried again by itself,
later and later.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Any, assert_never

from headrace.core.errors import BrokenSessionError, BrokerUnreachableError, HeadraceError, from_problem
from headrace.core.frames.replication_messages import FROM_LEADERS, REPLICATION_MEDIA_TYPE, StreamRole
from headrace.core.limits import REPLICATION_TICK_MS
from headrace.core.replication.follower_stream import (
    FollowerStream,
    Happening,
    Moved,
    StreamEpochAnswered,
    StreamReceived,
    StreamRefused,
)
from headrace.core.replication.isr import Ends
from headrace.core.types import LeaderEpoch, Offset, PartitionKey, Seat
from headrace.http2.async_transport import AsyncStream, AsyncTransport
from headrace.kube.client import Backoff
from headrace_broker.clock import monotonic_ms
from headrace_broker.cluster.view import ClusterView
from headrace_broker.partition.shell import PartitionShell
from headrace_broker.replication.open_streams import StreamMetrics
from headrace_broker.tls import Transports

REPLICATION_IDLE_MS = 5_000
"""A stream without partitions is closed after this."""
REPLICATION_BACKOFF_MIN_MS = 50
REPLICATION_BACKOFF_MAX_MS = 1_000
"""The longest pause between two attempts of a follower to reach its leader, or to follow one partition."""
_log = logging.getLogger(__name__)
_OTHER_ROLE = {StreamRole.LIVE: StreamRole.CATCH_UP, StreamRole.CATCH_UP: StreamRole.LIVE}


def new_backoff() -> Backoff:
    return Backoff(_process_random(), REPLICATION_BACKOFF_MIN_MS, REPLICATION_BACKOFF_MAX_MS)


@cache
def _process_random() -> Random:
    """Return the process's own generator: one made on import would be the same in all processes forked from there."""
    return Random()


@dataclass(slots=True, eq=False)
class WantedPartition:
    """A partition that follows its leader in one epoch."""

    partition: PartitionShell
    leader_epoch: LeaderEpoch
    backoff: Backoff = field(default_factory=new_backoff)
    again: asyncio.TimerHandle | None = None
    """The timer until the partition is tried again."""
    is_open: bool = False
    """Whether the partition has a channel on the stream."""


@dataclass(frozen=True, slots=True)
class WayToLeader:
    """The way from this broker to a leader."""

    me: Seat
    leader: Seat
    transports: Transports
    url: Callable[[], str]
    """The leader's URL by its Lease; raises BrokerUnreachableError where that is not known."""
    metrics: StreamMetrics


class FollowedStream:
    def __init__(self, way: WayToLeader, role: StreamRole, moved: Callable[[WantedPartition], None]) -> None:
        """Make a stream; `moved` is given each partition that belongs on the other stream."""
        self._way = way
        self._role = role
        self._moved = moved
        self._wanted: dict[PartitionKey, WantedPartition] = {}
        self._follower: FollowerStream | None = None
        """The protocol of the stream, while one is open."""
        self._stream: AsyncStream | None = None
        self._reader = FROM_LEADERS.reader()
        """The reader of the present stream, or of the last one."""
        self._broken: HeadraceError | None = None
        """The error that ended the stream."""
        self._is_receiving = False
        self._flushing: asyncio.Handle | None = None
        self._task: asyncio.Task[None] | None = None
        self._idle_since_ms = 0

    @property
    def open_channels(self) -> int:
        return sum(wanted.is_open for wanted in self._wanted.values())

    @property
    def is_used(self) -> bool:
        """Return whether something is wanted of it, or its connection is still there."""
        return bool(self._wanted) or (self._task is not None and not self._task.done())

    def speak(self) -> FollowerStream | None:
        """Return the protocol of the open stream: what is said in it leaves with all else. None without a stream."""
        if self._follower is not None:
            self._flush_soon()
        return self._follower

    def add(self, wanted: WantedPartition) -> None:
        self._wanted[wanted.partition.key] = wanted
        if self._follower is not None:
            self._open(wanted)
        elif self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name=f"follow {self._way.leader} ({self._role})")

    def remove(self, wanted: WantedPartition) -> None:
        """Follow a partition no longer on this stream; it is not told that the stream is lost."""
        if self._wanted.pop(wanted.partition.key, None) is not None:
            self._close(wanted)

    async def close(self) -> None:
        """Close the stream, because this broker stops."""
        for wanted in tuple(self._wanted.values()):
            self.remove(wanted)
        if self._stream is not None:
            self._flush()
            self._stream.send(ended=True)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _flush_soon(self) -> None:
        """Send once for all that is said now."""
        if not self._is_receiving and self._flushing is None:
            self._flushing = asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = None
        if self._follower is not None and self._stream is not None:
            said = self._follower.take()
            if said:
                self._stream.send(said)

    # -- the connection -------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        backoff = new_backoff()
        while self._wanted:
            transport = self._way.transports.make()
            try:
                await self._follow(transport, backoff)
                self._way.metrics.connects.labels("ended").inc()
            except HeadraceError as error:
                self._way.metrics.connects.labels("failed").inc()
                _log.info("broker %s (%s): %s", self._way.leader, self._role, error.message)
            except Exception:
                self._way.metrics.connects.labels("failed").inc()
                _log.exception("broker %s (%s)", self._way.leader, self._role)
            finally:
                self._lost()
                await transport.close()
            if self._wanted:
                await asyncio.sleep(backoff.next_ms() / 1000)

    async def _follow(self, transport: AsyncTransport, backoff: Backoff) -> None:
        """Run one stream, from its beginning to its end. Raises HeadraceError."""
        reader = self._reader = FROM_LEADERS.reader()
        self._broken = None
        stream = await transport.open(
            "POST",
            self._way.url().rstrip("/") + "/v1/sessions",
            headers={"content-type": REPLICATION_MEDIA_TYPE},
            decode=self._receive,
            keeps=lambda: reader.kept,
        )
        self._stream, self._follower = stream, FollowerStream(self._way.me, self._role, monotonic_ms())
        for wanted in tuple(self._wanted.values()):
            self._open(wanted)
        self._flush()
        while not self._is_idle():
            try:
                said = await stream.receive(REPLICATION_TICK_MS / 1000)
            except TimeoutError:
                self._tick(backoff)
            except BrokerUnreachableError as error:
                raise self._why_over(error) from error
            else:
                raise _refusal(stream.status, said)
        stream.send(ended=True)

    def _why_over(self, error: HeadraceError) -> HeadraceError:
        """Return the error that ended the stream, where that was not the connection."""
        return self._broken or error

    def _tick(self, backoff: Backoff) -> None:
        """Do what is due by now. Raises BrokerUnreachableError where the leader is silent."""
        if self._follower is not None:
            self._follower.tick(monotonic_ms())
            self._flush()
            if self._follower.has_heard:
                backoff.reset()

    def _is_idle(self) -> bool:
        now_ms = monotonic_ms()
        if self._wanted:
            self._idle_since_ms = now_ms
        return now_ms - self._idle_since_ms > REPLICATION_IDLE_MS

    def _lost(self) -> None:
        self._follower = self._stream = None
        for wanted in tuple(self._wanted.values()):
            self._part(wanted)

    # -- what the leader says -------------------------------------------------------------------------------------

    def _receive(self, data: bytes | memoryview) -> Iterable[Any]:
        """Handle what arrives; nothing of it is left to be received."""
        self._is_receiving = True
        try:
            self._handle(data)
        except HeadraceError as error:
            self._break(error)
        except Exception as error:
            _log.exception("broker %s (%s)", self._way.leader, self._role)
            self._break(BrokenSessionError(f"what the leader sent could not be handled: {error!r}"))
        finally:
            self._is_receiving = False
        self._flush()
        return ()

    def _handle(self, data: bytes | memoryview) -> None:
        now_ms = monotonic_ms()
        for frame in self._reader.receive(data):
            if self._follower is not None:
                happening = self._follower.receive(FROM_LEADERS.message(frame), now_ms)
                if happening is not None:
                    self._happened(happening)

    def _break(self, error: HeadraceError) -> None:
        """End the stream: `_follow` raises this."""
        self._broken, self._follower = error, None
        if self._stream is not None:
            self._stream.cancel()

    def _happened(self, happening: Happening) -> None:
        wanted = self._wanted.get(happening.key)
        if wanted is None:
            return
        try:
            match happening:
                case StreamReceived():
                    self._received(wanted, happening)
                case StreamEpochAnswered(_, epoch, answer):
                    wanted.partition.epoch_answered(epoch, answer)
                case Moved():
                    del self._wanted[happening.key]
                    self._part(wanted)
                    self._way.metrics.moves.labels(self._role.value).inc()
                    self._moved(wanted)
                case StreamRefused(_, error):
                    self._try_later(wanted, error)
                case _:
                    assert_never(happening)
        except HeadraceError as error:
            self._try_later(wanted, error, why=error)

    def _received(self, wanted: WantedPartition, received: StreamReceived) -> None:
        """Append what was received. Raises what `PartitionShell.received` raises."""
        self._way.metrics.bytes_in.inc(sum(map(len, received.batches)))
        wanted.partition.received(
            received.leader_epoch, received.batches, received.high_watermark, received.log_start_offset
        )
        wanted.backoff.reset()

    # -- channels -------------------------------------------------------------------------------------------------

    def _open(self, wanted: WantedPartition) -> None:
        assert self._follower is not None, "channels are opened on a stream"
        self._follower.open(wanted.partition.key, wanted.leader_epoch)
        wanted.is_open = True
        wanted.partition.stream_opened(wanted.leader_epoch)
        self._flush_soon()

    def _close(self, wanted: WantedPartition, why: HeadraceError | None = None) -> None:
        wanted.is_open = False
        if wanted.again is not None:
            wanted.again.cancel()
            wanted.again = None
        if self._follower is not None:
            self._follower.close(wanted.partition.key, why)
            self._flush_soon()

    def _part(self, wanted: WantedPartition, why: HeadraceError | None = None) -> None:
        """End the channel of a partition; `why` is the fault in what came."""
        was_open = wanted.is_open
        self._close(wanted, why)
        if was_open:
            wanted.partition.stream_lost()

    def _try_later(self, wanted: WantedPartition, error: HeadraceError, *, why: HeadraceError | None = None) -> None:
        # An election is known to one broker sooner than to the other: that passes by itself.
        level = logging.DEBUG if error.retriable else logging.WARNING
        _log.log(level, "%s: broker %s: %s", wanted.partition.place, self._way.leader, error.message)
        self._part(wanted, why)
        delay_s = wanted.backoff.next_ms() / 1000
        wanted.again = asyncio.get_running_loop().call_later(delay_s, self._try_again, wanted)

    def _try_again(self, wanted: WantedPartition) -> None:
        wanted.again = None
        if self._follower is not None:
            self._open(wanted)


def _refusal(status: int, said: Iterable[bytes]) -> HeadraceError:
    """Return the error of an answer by which a leader takes no stream, or ends one."""
    body = b"".join(said)
    if not body:
        return BrokerUnreachableError("the leader has ended the stream", unprocessed=False)
    try:
        document = json.loads(body)
    except ValueError:
        document = {}
    return from_problem(document if isinstance(document, dict) else {}, status)


@dataclass(slots=True)
class _FollowedPartition:
    """A partition that is followed, and the stream that it is on."""

    wanted: WantedPartition
    streams: dict[StreamRole, FollowedStream]
    role: StreamRole = StreamRole.LIVE

    @property
    def at(self) -> FollowedStream:
        return self.streams[self.role]


class FollowerStreams:
    def __init__(self, me: Seat, view: ClusterView, transports: Transports, metrics: StreamMetrics) -> None:
        self._me = me
        self._view = view
        self._transports = transports
        self._metrics = metrics
        self._leaders: dict[Seat, dict[StreamRole, FollowedStream]] = {}
        self._followed: dict[PartitionKey, _FollowedPartition] = {}
        self._closed = False
        metrics.watch_followed(self._count)

    def follow(self, partition: PartitionShell, leader: Seat, leader_epoch: LeaderEpoch) -> None:
        """Follow a leader; nobody, once this is closed: partitions hear of elections for a while after that."""
        self.unfollow(partition)
        if self._closed:
            return
        streams = self._leaders.get(leader) or self._to(leader)
        followed = _FollowedPartition(WantedPartition(partition, leader_epoch), streams)
        self._followed[partition.key] = followed
        followed.at.add(followed.wanted)

    def unfollow(self, partition: PartitionShell) -> None:
        followed = self._followed.pop(partition.key, None)
        if followed is not None:
            followed.at.remove(followed.wanted)

    def ask_epoch_end(self, partition: PartitionShell, leader_epoch: LeaderEpoch, epoch: LeaderEpoch) -> None:
        if stream := self._stream_of(partition):
            stream.ask_epoch_end(partition.key, leader_epoch, epoch)

    def fetch(self, partition: PartitionShell, leader_epoch: LeaderEpoch, offset: Offset) -> None:
        if stream := self._stream_of(partition):
            stream.fetch(partition.key, leader_epoch, offset)

    def report(self, partition: PartitionShell, leader_epoch: LeaderEpoch, ends: Ends) -> None:
        if stream := self._stream_of(partition):
            stream.report(partition.key, leader_epoch, ends, partition.replica.rules.durability)

    async def close(self) -> None:
        """Follow nobody any more, because this broker stops."""
        self._closed = True
        self._followed.clear()
        streams = [stream for streams in self._leaders.values() for stream in streams.values()]
        await asyncio.gather(*(stream.close() for stream in streams))

    def _stream_of(self, partition: PartitionShell) -> FollowerStream | None:
        """Return the protocol of the stream that a partition is on; None while there is none."""
        followed = self._followed.get(partition.key)
        return followed.at.speak() if followed is not None else None

    def _to(self, leader: Seat) -> dict[StreamRole, FollowedStream]:
        """Return the streams to a leader. Older lives of the same broker are followed by nobody, or not for long."""
        for gone in [seat for seat in self._leaders if seat.broker == leader.broker and seat != leader]:
            if not any(stream.is_used for stream in self._leaders[gone].values()):
                del self._leaders[gone]
        way = WayToLeader(self._me, leader, self._transports, lambda: self._url_of(leader), self._metrics)
        streams = {role: FollowedStream(way, role, self._move) for role in StreamRole}
        self._leaders[leader] = streams
        return streams

    def _move(self, wanted: WantedPartition) -> None:
        """Follow a partition on the other stream."""
        followed = self._followed[wanted.partition.key]
        followed.role = _OTHER_ROLE[followed.role]
        followed.at.add(wanted)

    def _url_of(self, leader: Seat) -> str:
        lease = self._view.lease(leader.broker)
        if lease is None or lease.incarnation != leader.incarnation or not lease.url:
            raise BrokerUnreachableError(f"where {leader} listens is not known", unprocessed=True)
        return lease.url

    def _count(self, role: StreamRole) -> int:
        return sum(streams[role].open_channels for streams in self._leaders.values())

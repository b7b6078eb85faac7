"""The consumer's side of a session: channels on which brokers push answers ahead of the asks for them. No I/O.

    open(ask) ──> asked ──BATCHES──> answered ──ask──> answered at once, or asked
                               └── not asked: kept for the next ask

A `FetchChannel` belongs to one turn of a cursor and goes on where its last answer ended. Credit bounds what the broker
may push ahead, and goes back when an answer is handed out. An ask that has waited for `FETCH_LONG_POLL_MS` gets an
empty answer as long as the broker is heard. Messages to the broker are gathered in `outgoing`.

`FetchChannels` knows which session serves each partition. A channel is closed when the reader has moved, when an ask
ends in an error, when the partition is dropped, and when its session is over; the next ask then finds none, and the
caller opens one with the leader of that time. Invariants: a partition has one channel at most; news of a replaced
channel does nothing to its successor; a step's message to the broker is sent before the next step.

`FetchSessions` is both for a fetcher, on threads (under a guard) or on a loop. It answers each ask once.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

from headrace.client.clock import now_ms
from headrace.client.consumer.cursor import Ask
from headrace.client.consumer.read_ahead import Answered
from headrace.client.record import TopicPartition
from headrace.client.transport.calls import Fetched, fetch_terms, overdue_error
from headrace.client.transport.errands import BrokerErrands, Errand, StreamPort
from headrace.client.transport.leader_session import KnownSessions, LeaderSession
from headrace.core.errors import HeadraceError, StalledError
from headrace.core.frames.session_messages import Batches, BrokerMessage, CloseChannel, Credit, OpenFetch
from headrace.core.frames.session_terms import FetchTerms
from headrace.core.limits import FETCH_LONG_POLL_MS
from headrace.core.log.epochs import NO_EPOCH

FETCH_SILENT_MS = 3_000
"""A consumer looks up the leader again after so long a silence; a leader with no news is silent for up to 10 s."""
SESSION_SILENCE_MS_MAX = 25_000
"""A session in which the broker sends nothing for longer is dead: a live broker sends a sign of life every 10 s."""
S = TypeVar("S")
"""The stream that a face sends by."""
Asked: TypeAlias = tuple[bool, Answered | None, S, bytes]
"""The outcome of an ask: whether it is taken (else the channel was closed), the answer where it was there already, the
stream, and the bytes to send by it, often none. It is a tuple because one is made for each ask."""


@dataclass(slots=True, eq=False)
class FetchChannel:
    number: int
    partition: TopicPartition
    leader_epoch: int
    turn: int
    next_offset: int
    """The offset at which the next answer begins."""
    window_bytes: int
    asked: Ask | None
    arrived: deque[Fetched | HeadraceError] = field(default_factory=deque)
    """Answers that nobody has asked for yet; an error is the last of them."""
    uncredited_bytes: int = 0

    def goes_on_with(self, ask: Ask) -> bool:
        return self.turn == ask.turn and self.next_offset == ask.offset


class FetchSession(LeaderSession[FetchChannel, Answered]):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.heard_ms = 0
        """The time when the broker last sent something; the session's listener keeps it."""
        self._outgoing = bytearray()

    def begin(self, now_ms: int) -> None:
        """Count the broker's silence from now on, when nothing has come from it yet."""
        self.heard_ms = self.heard_ms or now_ms

    def open(self, ask: Ask, terms: FetchTerms) -> FetchChannel:
        """Ask on a new channel. Raises the error of a session that is over."""
        channel = FetchChannel(
            self._number(),
            ask.cursor.partition,
            terms.fence.leader_epoch or NO_EPOCH,
            ask.turn,
            ask.offset,
            terms.credit,
            ask,
        )
        self._channels[channel.number] = channel
        self._outgoing += OpenFetch(channel.number, terms).pack()
        return channel

    def ask(self, channel: FetchChannel, ask: Ask) -> Answered | None:
        """Ask for the next answer on the channel. None: the answer will come."""
        if not channel.arrived:
            channel.asked = ask
            return None
        return self._answer(channel, ask, channel.arrived.popleft())

    def close(self, channel: FetchChannel) -> None:
        """Close the channel: nobody wants its answers any more."""
        if self._channels.pop(channel.number, None) is not None:
            self._outgoing += CloseChannel(channel.number).pack()

    def idle(self, now_ms: int) -> list[Answered]:
        """Answer the asks that have waited for long enough: there is nothing new."""
        answered = []
        for channel in self._channels.values():
            ask = channel.asked
            if ask is not None and now_ms - ask.cursor.attempt_ms >= FETCH_LONG_POLL_MS:
                channel.asked = None
                answered.append(Answered(ask, Fetched(b"", ask.offset)))
        return answered

    def look(self, now_ms: int) -> list[Answered] | HeadraceError:
        """Return the answers of `idle`, none while the broker is silent, at last the error that ends the session."""
        silent_ms = self.silent_ms(now_ms)
        if silent_ms <= SESSION_SILENCE_MS_MAX // 2:
            return self.idle(now_ms)
        if silent_ms > SESSION_SILENCE_MS_MAX and self.error is None and self.is_asked:
            return overdue_error(self.url, silent_ms)
        return []

    def silent_ms(self, now_ms: int) -> int:
        """Return for how long nothing has come; a message that came since the last call counts as coming now."""
        if self._has_come:
            self.heard_ms, self._has_come = now_ms, False
        return now_ms - self.heard_ms

    def is_silent(self, now_ms: int) -> bool:
        return self.is_asked and self.silent_ms(now_ms) >= FETCH_SILENT_MS

    @property
    def is_asked(self) -> bool:
        return any(channel.asked is not None for channel in self._channels.values())

    def outgoing(self) -> bytes:
        """Take the bytes to send now; there are none most of the time."""
        if not self._outgoing:
            return b""
        data = bytes(self._outgoing)
        self._outgoing.clear()
        return data

    def _hear(self, channel: FetchChannel, message: BrokerMessage) -> list[Answered]:
        if not isinstance(message, Batches):
            return []
        (batches,) = message.batches or (b"",)
        fetched = Fetched(batches, message.next_offset)
        if channel.asked is None:
            channel.arrived.append(fetched)
            return []
        return [self._answer(channel, channel.asked, fetched)]

    def _failed(self, channel: FetchChannel, error: HeadraceError) -> list[Answered]:
        if channel.asked is None:
            channel.arrived.append(error)
            return []
        return [self._answer(channel, channel.asked, error)]

    def _answer(self, channel: FetchChannel, ask: Ask, outcome: Fetched | HeadraceError) -> Answered:
        channel.asked = None
        if isinstance(outcome, Fetched):
            channel.next_offset = outcome.next_offset
            channel.uncredited_bytes += len(outcome.batches)
            if channel.uncredited_bytes >= channel.window_bytes // 4 and self.is_open(channel):
                self._outgoing += Credit(channel.number, channel.uncredited_bytes).pack()
                channel.uncredited_bytes = 0
        return Answered(ask, outcome)


class FetchChannels(Generic[S]):
    def __init__(self) -> None:
        self._channels: dict[TopicPartition, tuple[FetchSession, FetchChannel, S]] = {}

    def ask(self, ask: Ask) -> Asked[S] | None:
        """Ask on the channel of the partition. None: the partition has no channel."""
        partition = ask.cursor.partition
        opened = self._channels.get(partition)
        if opened is None:
            return None
        session, channel, stream = opened
        if not ask.is_current():  # The ask came late: the channel may be that of its successor already.
            return True, None, stream, b""
        if not channel.goes_on_with(ask):
            session.close(channel)
            del self._channels[partition]
            return False, None, stream, session.outgoing()
        answered = session.ask(channel, ask)
        if answered is not None and isinstance(answered.outcome, HeadraceError):
            del self._channels[partition]
        return True, answered, stream, session.outgoing()

    def drop(self, partition: TopicPartition) -> tuple[S, bytes] | None:
        """Close the partition's channel. Return the stream and the bytes that tell the broker; None: no channel."""
        opened = self._channels.pop(partition, None)
        if opened is None:
            return None
        session, channel, stream = opened
        session.close(channel)
        return stream, session.outgoing()

    def open(self, ask: Ask, session: FetchSession, stream: S, terms: FetchTerms) -> bytes:
        """Ask on a new channel; return the bytes to send by `stream`. Raises the error of a session that is over.

        There are none where the cursor has moved meanwhile: nobody wants the answer any more.
        """
        if not ask.is_current():
            return b""
        self._channels[ask.cursor.partition] = (session, session.open(ask, terms), stream)
        return session.outgoing()

    def hear(self, news: Iterable[Answered]) -> None:
        """Drop the channels of these answers that are over, once nothing of them is left to hand out."""
        for answered in news:
            partition = answered.ask.cursor.partition
            opened = self._channels.get(partition)
            if opened is not None:
                session, channel, _ = opened
                if not session.is_open(channel) and not channel.arrived:
                    del self._channels[partition]


class FetchSessions(KnownSessions[FetchSession]):
    def __init__(self, brokers: BrokerErrands, tell: Callable[[Answered], None]) -> None:
        super().__init__(brokers, FetchSession)
        self._tell = tell
        self._channels: FetchChannels[StreamPort] = FetchChannels()

    def ask(self, ask: Ask) -> bool:
        """Ask on the channel that goes on there. False: there is none."""
        with self._guard:
            asked = self._channels.ask(ask)
            if asked is None:
                return False
            is_taken, answered, stream, data = asked
            if data:
                stream.send(data)
        if answered is not None:
            self._tell(answered)
        return is_taken

    def drop(self, partition: TopicPartition) -> None:
        """Close the partition's channel: the partition is not read any more."""
        with self._guard:
            dropped = self._channels.drop(partition)
            if dropped is not None:
                stream, data = dropped
                stream.send(data)

    def open(self, ask: Ask, window_bytes: int) -> Errand[bool]:
        """Ask on a channel, a new one where there is none; may connect. False: only requests lead there just now."""
        partition = ask.cursor.partition
        layout = yield from self._brokers.layout_with(partition)
        url = self._leader_url(layout, partition.partition)
        if url is None:
            return False
        if self.ask(ask):
            return True
        session, stream = yield from self._session(url)
        terms = fetch_terms(self._brokers.namespace, layout, partition.partition, ask.offset, window_bytes)
        with self._guard:
            session.begin(now_ms())
            if data := self._channels.open(ask, session, stream, terms):
                stream.send(data)
        return True

    def look(self) -> None:
        """Answer the asks that have waited for long; give up sessions from which nothing comes any more."""
        for session, stream in list(self._streams.values()):
            with self._guard:
                news = session.look(now_ms())
            if isinstance(news, HeadraceError):
                self._end(session, news)
                stream.cancel()
            else:
                for answered in news:
                    self._tell(answered)

    def cancelled(self, session: FetchSession) -> None:
        error = StalledError(f"the task that reads from {session.url} was cancelled: iterate again to go on")
        self._end(session, error)

    def _hear(self, session: FetchSession, news: list[Answered]) -> None:
        with self._guard:
            session.heard_ms = now_ms()
            self._channels.hear(news)
            known = self._streams.get(session.url)
            if known is not None and known[0] is session and (data := session.outgoing()):
                known[1].send(data)
        for answered in news:
            self._tell(answered)

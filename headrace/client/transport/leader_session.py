"""A client's sessions with leaders: numbered channels, each for one partition, until the session ends. No I/O.

`LeaderSession` is one session; `ProduceSession` and `FetchSession` say what a producer and a consumer do with its
channels. A channel ends by the broker's word or by ours, and every channel ends with its session; messages about a
channel that has ended mean nothing.

`KnownSessions` keeps one session for each leader and remembers the servers that know no sessions: those are asked by
requests from then on. A session that has ended stays until its leader is wanted again. The thread or task that reads
a session's stream, or finds it overdue, tells its news. One guard protects all of it; it is never held while waiting
for the network or while news is told.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from headrace.client.clock import now_ms
from headrace.client.consumed_records import allocate
from headrace.client.record import TopicPartition
from headrace.client.transport import calls
from headrace.client.transport.errands import BrokerErrands, Connect, Errand, StreamPort, alone
from headrace.client.transport.metadata import TopicLayout
from headrace.core.errors import BrokenSessionError, BrokerUnreachableError, HeadraceError, NotLeaderError
from headrace.core.frames.channels import OpenChannels
from headrace.core.frames.frame import STREAM, Frame
from headrace.core.frames.session_messages import FROM_BROKERS, BrokerMessage, ChannelClosed, Failed, Heartbeat
from headrace.http2.exchange import Response

Newest: TypeAlias = Callable[[str], TopicLayout | None]
"""The look-up of a topic's newest layout; None: the topic is not known."""
N = TypeVar("N")
"""The news of a session: an outcome that the client must hear of."""


class Channel(Protocol):
    number: int
    partition: TopicPartition
    leader_epoch: int
    """The epoch in which the broker was to lead when the channel was opened."""


C = TypeVar("C", bound=Channel)


class LeaderSession(ABC, Generic[C, N]):
    def __init__(self, url: str) -> None:
        self.url = url
        self.error: HeadraceError | None = None
        """The reason why the session is over; None while it is not."""
        self.refusal: list[bytes] = []
        """The body of an error answer, as far as it has come."""
        self._has_come = False
        """Whether bytes have arrived, whole frames or not."""
        self._channels = OpenChannels[C]()
        self._reader = FROM_BROKERS.reader(allocate)

    def is_open(self, channel: C) -> bool:
        return self._channels.get(channel.number) is channel

    def decode(self, data: bytes | memoryview) -> Iterator[Frame]:
        """Yield the frames that are whole with this data. Raises BrokenSessionError.

        It may run at the same time as `receive`.
        """
        self._has_come = True
        return self._reader.receive(data)

    def receive(self, frames: Iterable[Frame]) -> list[N]:
        """Take the broker's messages, and return their news. The session is over if the broker has broken the rules."""
        news: list[N] = []
        try:
            for frame in frames:
                news += self._take(FROM_BROKERS.message(frame))
        except BrokenSessionError as error:
            said = f"broker {self.url} does not speak as a session should: {error.message}"
            news += self.end(BrokerUnreachableError(said))
        return news

    def end(self, error: HeadraceError) -> list[N]:
        """End the session, for this reason if it has none yet."""
        self.error = self.error or error
        channels = list(self._channels.values())
        self._channels.clear()
        return [news for channel in channels for news in self._failed(channel, error)]

    @property
    def topics(self) -> set[str]:
        """The topics of the channels that are open."""
        return {channel.partition.topic for channel in self._channels.values()}

    def leave_moved(self, newest: Newest) -> list[N]:
        """End the channels to partitions with another elected leader: the former leader may never say so."""
        moved = [channel for channel in self._channels.values() if _leads_elsewhere(channel, self.url, newest)]
        return [
            news
            for channel in moved
            for news in self._over(
                channel.number, NotLeaderError(f"{self.url} does not lead {channel.partition} any more")
            )
        ]

    @abstractmethod
    def is_silent(self, now_ms: int) -> bool:
        """Return whether the broker owes an answer for longer than a live broker needs."""

    def _number(self) -> int:
        """Return the number of a new channel. Raises the error of a session that is over."""
        if self.error is not None:
            raise self.error
        return self._channels.give_number()

    def _take(self, message: BrokerMessage) -> list[N]:
        if isinstance(message, Failed):
            return self.end(message.error) if message.channel == STREAM else self._over(message.channel, message.error)
        if isinstance(message, ChannelClosed):
            return self._over(message.channel, BrokerUnreachableError(f"broker {self.url} has closed the channel"))
        channel = None if isinstance(message, Heartbeat) else self._channels.get(message.channel)
        return [] if channel is None else self._hear(channel, message)

    def _over(self, number: int, error: HeadraceError) -> list[N]:
        channel = self._channels.pop(number, None)
        return [] if channel is None else self._failed(channel, error)

    @abstractmethod
    def _hear(self, channel: C, message: BrokerMessage) -> list[N]:
        """Take a message of a channel that is open, and return its news. Raises BrokenSessionError."""

    @abstractmethod
    def _failed(self, channel: C, error: HeadraceError) -> list[N]:
        """Return the news of a channel that is over."""


def _leads_elsewhere(channel: Channel, url: str, newest: Newest) -> bool:
    """Return whether newer metadata names another leader; metadata that is older, or names no leader, says nothing."""
    topic, number = channel.partition
    layout = newest(topic)
    if layout is None or number >= len(layout.partitions):
        return False
    known = layout.partitions[number]
    return known.leader_epoch > channel.leader_epoch and known.leader_url not in (None, url)


S = TypeVar("S", bound=LeaderSession[Any, Any])


class KnownSessions(ABC, Generic[S]):
    def __init__(self, brokers: BrokerErrands, make_session: Callable[[str], S]) -> None:
        self._brokers, self._directory, self._make_session = brokers, brokers.directory, make_session
        self._guard = brokers.new_guard()
        self._opening: dict[str, Any] = {}
        """A lock for each server, held while a session is opened."""
        self._streams: dict[str, tuple[S, StreamPort]] = {}
        """The sessions and their streams, by URL."""
        self._without: set[str] = set()
        """The servers that know no sessions."""

    @abstractmethod
    def _hear(self, session: S, news: list[Any]) -> None:
        """Tell the news of a session. It is called without the guard."""

    @abstractmethod
    def cancelled(self, session: S) -> None:
        """Hear that the task that reads the session's stream was cancelled from outside."""

    def look_elsewhere(self) -> set[str]:
        """Leave leaders that were replaced, and return the topics with silent leaders: `ask_who_leads` of these."""
        silent: set[str] = set()
        for session, _ in list(self._streams.values()):
            with self._guard:
                news = session.leave_moved(self._directory.newest)
                silent |= self._silent(session, now_ms())
            if news:
                self._hear(session, news)
        return silent

    def arrived(self, session: S, stream: StreamPort, chunks: list[Any]) -> None:
        if stream.status >= 400:
            session.refusal += chunks
            return
        with self._guard:
            news = session.receive(chunks)
        self._hear(session, news)

    def ended(self, session: S, stream: StreamPort, error: HeadraceError | None = None) -> None:
        self._end(session, error or self._why(session, stream))

    def _end(self, session: S, error: HeadraceError) -> None:
        error = self._told(session, error)
        with self._guard:
            news = session.end(error)
        self._hear(session, news)

    def _session(self, url: str) -> Errand[tuple[S, StreamPort]]:
        """Return the session with this server; it may connect."""
        lock = self._opening.setdefault(url, self._brokers.new_lock())
        return (yield from alone(lock, self._opened(url)))

    def _opened(self, url: str) -> Errand[tuple[S, StreamPort]]:
        known = self._known(url)
        if known is not None:
            return known
        session = self._make_session(url)
        try:
            stream: StreamPort = yield Connect(session, self)
        except BrokerUnreachableError as error:
            raise self._directory.unreachable(url, error, now_ms()) from error.__cause__
        self._streams[url] = session, stream
        return session, stream

    def _leader_url(self, layout: TopicLayout, partition: int) -> str | None:
        """Return the leader's URL for a session. None: only requests lead there just now."""
        url = self._directory.leader_url(layout, partition, now_ms())
        return None if url in self._without else url

    def _silent(self, session: S, now_ms: int) -> set[str]:
        """Return the topics of this session if its broker is silent: their leaders are to be looked up."""
        if session.error is not None or not session.is_silent(now_ms):
            return set()
        self._directory.routes.silent(session.url, now_ms)
        return session.topics

    def _known(self, url: str) -> tuple[S, StreamPort] | None:
        """Return the session with this server that is not over, and its stream; None: there is none."""
        known = self._streams.get(url)
        return known if known is not None and known[0].error is None else None

    def _why(self, session: S, stream: StreamPort) -> HeadraceError:
        """Return the error of a stream that has ended and did not break."""
        if stream.status < 400:
            return calls.ended_error(session.url)
        error = calls.refused_session(Response(stream.status, stream.headers, b"".join(session.refusal)), session.url)
        if error.details.get("hasSessions") is False:
            self._without.add(session.url)
        return error

    def _told(self, session: S, error: HeadraceError) -> HeadraceError:
        """Return the error to end the session with, and tell the directory once of a server that cannot be reached."""
        if session.error is None and isinstance(error, BrokerUnreachableError):
            return self._directory.unreachable(session.url, error, now_ms())
        return error

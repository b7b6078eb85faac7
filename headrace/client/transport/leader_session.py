"""A client's sessions with leaders: numbered channels, each for one partition, until the session ends. No I/O.

`LeaderSession` is one session; `ProduceSession` and `FetchSession` say what a producer and a consumer do with its
channels. A channel ends by the broker's word or by ours, and every channel ends with its session; messages about a
channel that has ended mean nothing.

`KnownSessions` keeps one session for each leader and remembers the servers that know no sessions: those are asked by
requests from then on. A session that has ended stays until its leader is wanted again. News of a session is told by
whoever reads its stream, or found it overdue. One guard protects all of it; it is never held while waiting for the
network or while news is told.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from headrace.client.clock import now_ms
from headrace.client.consumed_records import allocate
from headrace.client.record import TopicPartition
from headrace.client.transport import calls
from headrace.client.transport.errands import BrokerErrands, Connect, Errand, Stream, alone
from headrace.client.transport.metadata import TopicLayout
from headrace.core.errors import BrokenSessionError, BrokerUnreachableError, HeadraceError, NotLeaderError
from headrace.core.frames.channels import OpenChannels
from headrace.core.frames.frame import STREAM, Frame
from headrace.core.frames.session_messages import FROM_BROKERS, BrokerMessage, Closed, Failed, Heartbeat
from headrace.http2.exchange import Response


class Channel(Protocol):
    number: int
    partition: TopicPartition
    leader_epoch: int
    """In which the broker was to lead when it was opened."""


Newest: TypeAlias = Callable[[str], TopicLayout | None]
"""What is known of a topic."""
C = TypeVar("C", bound=Channel)
N = TypeVar("N")
"""News: what the client must hear of."""


class LeaderSession(ABC, Generic[C, N]):
    def __init__(self, url: str) -> None:
        self.url = url
        self.error: HeadraceError | None = None
        """Why it is over; None while it is not."""
        self.refusal: list[bytes] = []
        """What came of an answer that is an error."""
        self._has_come = False
        """Something has arrived, whole frames or not."""
        self._channels = OpenChannels[C]()
        self._reader = FROM_BROKERS.reader(allocate)

    def is_open(self, channel: C) -> bool:
        return self._channels.get(channel.number) is channel

    def decode(self, data: bytes | memoryview) -> Iterator[Frame]:
        """The frames that are whole with this; may be called while `receive` is. Raises BrokenSessionError."""
        self._has_come = True
        return self._reader.receive(data)

    def receive(self, frames: Iterable[Frame]) -> list[N]:
        """What the broker has said. After it has broken the rules the session is over."""
        news: list[N] = []
        try:
            for frame in frames:
                news += self._take(FROM_BROKERS.message(frame))
        except BrokenSessionError as error:
            said = f"broker {self.url} does not speak as a session should: {error.message}"
            news += self.end(BrokerUnreachableError(said))
        return news

    def end(self, error: HeadraceError) -> list[N]:
        """It is over, for this reason if for none before."""
        self.error = self.error or error
        channels = list(self._channels.values())
        self._channels.clear()
        return [news for channel in channels for news in self._failed(channel, error)]

    @property
    def topics(self) -> set[str]:
        """Of the channels that are open."""
        return {channel.partition.topic for channel in self._channels.values()}

    def leave_moved(self, newest: Newest) -> list[N]:
        """Channels to partitions that somebody else has been elected for are over: whoever led may never say so."""
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
        """Whether the broker owes an answer for longer than one takes that lives."""

    def _number(self) -> int:
        """Of a new channel. Raises the error of a session that is over."""
        if self.error is not None:
            raise self.error
        return self._channels.give_number()

    def _take(self, message: BrokerMessage) -> list[N]:
        if isinstance(message, Failed):
            return self.end(message.error) if message.channel == STREAM else self._over(message.channel, message.error)
        if isinstance(message, Closed):
            return self._over(message.channel, BrokerUnreachableError(f"broker {self.url} has closed the channel"))
        channel = None if isinstance(message, Heartbeat) else self._channels.get(message.channel)
        return [] if channel is None else self._hear(channel, message)

    def _over(self, number: int, error: HeadraceError) -> list[N]:
        channel = self._channels.pop(number, None)
        return [] if channel is None else self._failed(channel, error)

    @abstractmethod
    def _hear(self, channel: C, message: BrokerMessage) -> list[N]:
        """Of a channel that is open. Raises BrokenSessionError."""

    @abstractmethod
    def _failed(self, channel: C, error: HeadraceError) -> list[N]:
        """A channel is over."""


def _leads_elsewhere(channel: Channel, url: str, newest: Newest) -> bool:
    """Older metadata than the channel's says nothing, and neither does a partition that nobody leads just now."""
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
        """A lock for each server."""
        self._streams: dict[str, tuple[S, Stream]] = {}
        """By URL."""
        self._without: set[str] = set()
        """Servers that know no sessions."""

    @abstractmethod
    def _hear(self, session: S, news: list[Any]) -> None:
        """Called without the guard."""

    @abstractmethod
    def cancelled(self, session: S) -> None:
        """Somebody from outside has ended the reading of its stream."""

    def look_elsewhere(self) -> set[str]:
        """Leave leaders that others have replaced -> topics whose leaders are silent: `ask_who_leads` of these."""
        silent: set[str] = set()
        for session, _ in list(self._streams.values()):
            with self._guard:
                news = session.leave_moved(self._directory.newest)
                silent |= self._silent(session, now_ms())
            if news:
                self._hear(session, news)
        return silent

    def arrived(self, session: S, stream: Stream, chunks: list[Any]) -> None:
        if stream.status >= 400:
            session.refusal += chunks
            return
        with self._guard:
            news = session.receive(chunks)
        self._hear(session, news)

    def ended(self, session: S, stream: Stream, error: HeadraceError | None = None) -> None:
        self._end(session, error or self._why(session, stream))

    def _end(self, session: S, error: HeadraceError) -> None:
        error = self._told(session, error)
        with self._guard:
            news = session.end(error)
        self._hear(session, news)

    def _session(self, url: str) -> Errand[tuple[S, Stream]]:
        """May connect."""
        lock = self._opening.setdefault(url, self._brokers.new_lock())
        return (yield from alone(lock, self._opened(url)))

    def _opened(self, url: str) -> Errand[tuple[S, Stream]]:
        known = self._known(url)
        if known is not None:
            return known
        session = self._make_session(url)
        try:
            stream: Stream = yield Connect(session, self)
        except BrokerUnreachableError as error:
            raise self._directory.unreachable(url, error, now_ms()) from error.__cause__
        self._streams[url] = session, stream
        return session, stream

    def _leader_url(self, layout: TopicLayout, partition: int) -> str | None:
        """None: only requests lead there just now."""
        url = self._directory.leader_url(layout, partition, now_ms())
        return None if url in self._without else url

    def _silent(self, session: S, now_ms: int) -> set[str]:
        """Topics whose leaders are to be asked for, because this one is silent."""
        if session.error is not None or not session.is_silent(now_ms):
            return set()
        self._directory.routes.silent(session.url, now_ms)
        return session.topics

    def _known(self, url: str) -> tuple[S, Stream] | None:
        """The session with this server that is not over."""
        known = self._streams.get(url)
        return known if known is not None and known[0].error is None else None

    def _why(self, session: S, stream: Stream) -> HeadraceError:
        """Why a stream has ended that did not break."""
        if stream.status < 400:
            return calls.ended_error(session.url)
        error = calls.refused_session(Response(stream.status, stream.headers, b"".join(session.refusal)), session.url)
        if error.details.get("hasSessions") is False:
            self._without.add(session.url)
        return error

    def _told(self, session: S, error: HeadraceError) -> HeadraceError:
        """The error to end it with: that a server cannot be reached is news for the directory, once."""
        if session.error is None and isinstance(error, BrokerUnreachableError):
            return self._directory.unreachable(session.url, error, now_ms())
        return error

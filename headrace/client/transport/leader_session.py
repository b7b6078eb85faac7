"""A client's sessions with leaders: numbered channels, each for one partition, until the session ends. No I/O, no lock.

`LeaderSession` is one session; `ProduceSession` and `FetchSession` say what a producer and a consumer do with its
channels. A channel ends by the broker's word or by ours, and every channel ends with its session; messages about a
channel that has ended mean nothing.

`KnownSessions` keeps one session for each leader and remembers the servers that know no sessions: those are asked by
requests from then on. A session that has ended stays until its leader is wanted again. `blocking_sessions` and
`async_brokers` open the streams and listen to them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from headrace.client.clock import now_ms
from headrace.client.consumed_records import allocate
from headrace.client.record import TopicPartition
from headrace.client.transport import calls
from headrace.client.transport.calls import Directory
from headrace.client.transport.metadata import TopicLayout
from headrace.core.errors import BrokenSessionError, BrokerUnreachableError, HeadraceError, NotLeaderError
from headrace.core.frames.channels import OpenChannels
from headrace.core.frames.frame import STREAM, Frame
from headrace.core.frames.session_messages import FROM_BROKERS, BrokerMessage, Closed, Failed, Heartbeat
from headrace.http2.blocking_transport import Response


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


class Answering(Protocol):
    """The stream of a session."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...


S = TypeVar("S", bound=LeaderSession[Any, Any])
T = TypeVar("T", bound=Answering)


class KnownSessions(Generic[S, T]):
    def __init__(self, directory: Directory, make_session: Callable[[str], S]) -> None:
        self._directory, self._make_session = directory, make_session
        self._streams: dict[str, tuple[S, T]] = {}
        """By URL."""
        self._without: set[str] = set()
        """Servers that know no sessions."""

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

    def _known(self, url: str) -> tuple[S, T] | None:
        """The session with this server that is not over."""
        known = self._streams.get(url)
        return known if known is not None and known[0].error is None else None

    def _why(self, session: S, stream: T, refusal: list[bytes]) -> HeadraceError:
        """Why a stream has ended that did not break: `refusal` is what came of an answer that is an error."""
        if stream.status < 400:
            return calls.ended_error(session.url)
        error = calls.refused_session(Response(stream.status, stream.headers, b"".join(refusal)), session.url)
        if error.details.get("hasSessions") is False:
            self._without.add(session.url)
        return error

    def _told(self, session: S, error: HeadraceError) -> HeadraceError:
        """The error to end it with: that a server cannot be reached is news for the directory, once."""
        if session.error is None and isinstance(error, BrokerUnreachableError):
            return self._directory.unreachable(session.url, error, now_ms())
        return error

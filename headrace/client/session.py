"""One session with a leader, as a client keeps it: numbered channels, each for a partition, until it ends. No I/O.

What a producer and a consumer make of it is `produce_session` and `fetch_session`. A channel is over by the broker's
word or by ours, and every channel is over with the session; what is said of a channel that is over means nothing.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Generic, Protocol, TypeAlias, TypeVar

from headrace.client.frames import allocate
from headrace.client.layout import TopicLayout
from headrace.client.record import TopicPartition
from headrace.core.errors import BrokenSessionError, BrokerUnreachableError, HeadraceError, NotLeaderError
from headrace.core.session.frames import Frame
from headrace.core.session.messages import (
    SESSION,
    BrokerMessage,
    Closed,
    Failed,
    Heartbeat,
    broker_message,
    broker_reader,
)


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
        self._channels: dict[int, C] = {}
        self._numbers = count(1)
        self._reader = broker_reader(allocate)

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
                news += self._take(broker_message(frame))
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
        return next(self._numbers)

    def _take(self, message: BrokerMessage) -> list[N]:
        if isinstance(message, Failed):
            return self.end(message.error) if message.channel == SESSION else self._over(message.channel, message.error)
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

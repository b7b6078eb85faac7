"""The streams between brokers: ordered both ways, and late, cut off or half closed whenever that hurts.

What was sent before a side closed may still arrive: a leader hears the votes of a process that is dead, beside those of
its next life, and of a stream that was replaced. Nothing is reordered or doubled within one stream, as it is TCP.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from headrace.core.replication import events
from headrace.core.types import BrokerId, LeaderEpoch, Offset
from tests.sim.disk import Entry

if TYPE_CHECKING:
    from tests.sim.life import Life

MESSAGES_MAX = 6
"""The number of messages on their way to a follower: the leader waits then."""


@dataclass(frozen=True, slots=True)
class Hello:
    leader_epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class Push:
    leader_epoch: LeaderEpoch
    base: Offset
    entries: tuple[Entry, ...]
    high_watermark: Offset
    log_start: Offset


@dataclass(frozen=True, slots=True)
class Reported:
    """A report, and when the leader sent what it answers."""

    report: events.Report
    heard_ms: int

    @property
    def leader_epoch(self) -> LeaderEpoch:
        return self.report.leader_epoch


ToLeader = Hello | events.AskEpochEnd | events.Fetch | Reported


class Sent(NamedTuple):
    message: Hello | Push | events.EpochAnswered
    at_ms: int
    """The time by the leader's clock."""


@dataclass(eq=False, slots=True)
class Stream:
    """A stream from a follower to its leader."""

    follower: "Life"
    leader: "Life"
    to_leader: deque[ToLeader] = field(default_factory=deque)
    to_follower: deque[Sent] = field(default_factory=deque)
    heard_ms: int = 0
    """The time when the leader sent what the follower has taken last."""
    next_offset: Offset | None = None
    """The next offset that the leader sends; None until it is asked."""
    left_by_follower: bool = False
    left_by_leader: bool = False
    label: str = ""

    def send(self, message: Hello | Push | events.EpochAnswered) -> None:
        """Send a message to the follower."""
        self.to_follower.append(Sent(message, self.leader.clock.now_ms))

    def __post_init__(self) -> None:
        self.label = f"{self.follower.label}>{self.leader.label}"


class Network:
    def __init__(self) -> None:
        self.streams: list[Stream] = []
        """The streams that at least one side still has, or on which something is on its way."""
        self.apart: set[frozenset[BrokerId]] = set()
        """Pairs of brokers that cannot reach each other."""

    def open(self, follower: "Life", leader: "Life") -> Stream:
        stream = Stream(follower, leader)
        self.streams.append(stream)
        return stream

    def leave(self, life: "Life", stream: Stream) -> None:
        """Close one side, also by its death."""
        if life is stream.follower:
            stream.left_by_follower = True
            stream.to_follower.clear()
        else:
            stream.left_by_leader = True
            stream.to_leader.clear()
        if stream.left_by_follower and stream.left_by_leader:
            self.forget(stream)

    def forget(self, stream: Stream) -> None:
        if stream in self.streams:
            self.streams.remove(stream)

    def joins(self, one: BrokerId, other: BrokerId) -> bool:
        return not self.apart or frozenset((one, other)) not in self.apart

    def upward(self) -> Sequence[Stream]:
        """Return the streams on which the leader has something to take."""
        open_there = (s for s in self.streams if not s.left_by_leader)
        return [s for s in open_there if (s.to_leader or s.left_by_follower) and self._moves(s, s.leader)]

    def downward(self) -> Sequence[Stream]:
        open_there = (s for s in self.streams if not s.left_by_follower)
        return [s for s in open_there if (s.to_follower or s.left_by_leader) and self._moves(s, s.follower)]

    def pushable(self) -> Sequence[Stream]:
        return [
            s
            for s in self.streams
            if s.next_offset is not None
            and not s.left_by_leader
            and not s.leader.is_paused
            and len(s.to_follower) < MESSAGES_MAX
        ]

    def _moves(self, stream: Stream, taker: "Life") -> bool:
        return not taker.is_paused and taker.is_up and self.joins(stream.follower.broker, stream.leader.broker)

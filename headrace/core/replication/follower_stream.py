"""The follower's side of one replication stream: the channel of each partition, and the messages that wait. No I/O.

    channel: opened (FOLLOW) ── asks, answers ──> FETCH ──> BATCHES, reports ──> closed, moved or failed: over

Messages wait until `take`, and leave in one piece. Of a partition's reports only the last one leaves, behind all
else, and only if it differs from the report before it. A report that changes no vote (batches are received and not
synced yet) waits for the next one that does, but not for long. The sign of life (ALIVE) says that nothing has changed
on any channel. Reports and signs of life carry back the leader's time as it was last heard, so that the leader knows
what they can vouch for.

Invariants: channel numbers only rise, so that a message for a channel that is over is known and dropped; a partition
has one channel at most; nothing is reported before FETCH. Owned by the broker's shell from the opening of a stream to
its end.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, assert_never

from headrace.core.errors import BrokerUnreachableError, HeadraceError
from headrace.core.frames.channels import OpenChannels
from headrace.core.frames.frame import STREAM, Buffer
from headrace.core.frames.replication_messages import (
    Alive,
    AskEpochEndMessage,
    EpochEnded,
    FetchMessage,
    FollowMessage,
    Hello,
    LeaderBatches,
    LeaderFailed,
    LeaderHeartbeat,
    LeaderMessage,
    Move,
    Pulse,
    ReportMessage,
    StreamRole,
    StreamSilence,
    UnfollowMessage,
)
from headrace.core.log.epochs import EpochEnd
from headrace.core.replication.isr import Ends
from headrace.core.resources.topic import Durability
from headrace.core.types import LeaderEpoch, Offset, PartitionKey, Seat

REPLICATION_UNREPORTED_BYTES = 1 << 20
"""A report that changes no vote waits for the next that does, until so much was received, or a second is over."""


class StreamEpochAnswered(NamedTuple):
    key: PartitionKey
    leader_epoch: LeaderEpoch
    answer: EpochEnd


class StreamReceived(NamedTuple):
    key: PartitionKey
    leader_epoch: LeaderEpoch
    batches: Sequence[Buffer]
    high_watermark: Offset
    log_start_offset: Offset


class Moved(NamedTuple):
    """The channel of a partition is over: the partition continues on the other stream."""

    key: PartitionKey


class StreamRefused(NamedTuple):
    """The leader has ended the channel of a partition, and gives the reason."""

    key: PartitionKey
    error: HeadraceError


Happening = StreamEpochAnswered | StreamReceived | Moved | StreamRefused


@dataclass(slots=True)
class _Channel:
    number: int
    key: PartitionKey
    leader_epoch: LeaderEpoch
    reported: Ends | None = None
    """The report that was last sent, or leaves with the next `take`."""
    unreported_bytes: int = 0
    """The bytes that were received since that report."""


class FollowerStream:
    def __init__(self, me: Seat, role: StreamRole, now_ms: int) -> None:
        self._said = [Hello(me, role).pack()]
        self._by_number = OpenChannels[_Channel]()
        self._by_key: dict[PartitionKey, _Channel] = {}
        self._reports: dict[int, Ends] = {}
        """The reports, by channel, that leave with the next `take` ..."""
        self._held: dict[int, Ends] = {}
        """... and those that may wait."""
        self._leader_ms = 0
        """The leader's time as it was last heard."""
        self._silence = StreamSilence(now_ms)
        self._pulse = Pulse(now_ms)

    @property
    def has_heard(self) -> bool:
        """The leader has answered."""
        return self._leader_ms > 0

    def open(self, key: PartitionKey, leader_epoch: LeaderEpoch) -> None:
        assert key not in self._by_key, "an older channel is closed first"
        channel = _Channel(self._by_number.give_number(), key, leader_epoch)
        self._by_number[channel.number] = self._by_key[key] = channel
        self._said.append(FollowMessage(channel.number, leader_epoch, key).pack())

    def close(self, key: PartitionKey, why: HeadraceError | None = None) -> None:
        """End the channel of a partition, where there is one; `why` is the fault in what came."""
        channel = self._forget(self._by_key.get(key))
        if channel is not None:
            self._said.append(UnfollowMessage(channel.number, channel.leader_epoch, why).pack())

    def ask_epoch_end(self, key: PartitionKey, leader_epoch: LeaderEpoch, epoch: LeaderEpoch) -> None:
        channel = self._channel(key, leader_epoch)
        if channel is not None:
            self._said.append(AskEpochEndMessage(channel.number, leader_epoch, epoch).pack())

    def fetch(self, key: PartitionKey, leader_epoch: LeaderEpoch, offset: Offset) -> None:
        channel = self._channel(key, leader_epoch)
        if channel is not None:
            self._said.append(FetchMessage(channel.number, leader_epoch, offset).pack())

    def report(self, key: PartitionKey, leader_epoch: LeaderEpoch, ends: Ends, durability: Durability) -> None:
        """Report the ends of this replica's log; `durability` says by which of them it votes."""
        channel = self._channel(key, leader_epoch)
        if channel is None or ends == channel.reported:
            return
        before = channel.reported
        is_vote = before is None or ends.vouched(durability) != before.vouched(durability)
        is_said_anyway = channel.number in self._reports or channel.unreported_bytes >= REPLICATION_UNREPORTED_BYTES
        if is_vote or is_said_anyway:
            self._report(channel, ends)
        else:
            self._held[channel.number] = ends

    def _report(self, channel: _Channel, ends: Ends) -> None:
        channel.reported = self._reports[channel.number] = ends
        channel.unreported_bytes = 0
        self._held.pop(channel.number, None)

    def take(self) -> bytes:
        """Return the bytes to send now; empty where there are none."""
        said, self._said = self._said, []
        for number, ends in self._reports.items():
            channel = self._by_number[number]
            said.append(ReportMessage(number, channel.leader_epoch, ends, self._leader_ms).pack())
        self._reports.clear()
        return b"".join(said)

    def tick(self, now_ms: int) -> None:
        """Send what is due; called every REPLICATION_TICK_MS. Raises BrokerUnreachableError for a silent leader."""
        if self._silence.lasts_too_long(now_ms):
            raise BrokerUnreachableError("the leader says nothing any more", unprocessed=False)
        if self._pulse.is_due(now_ms):
            for number, ends in tuple(self._held.items()):
                self._report(self._by_number[number], ends)
            # It goes behind the reports that wait, because it would otherwise stand for them.
            self._said = [self.take(), Alive(self._leader_ms).pack()]

    def receive(self, message: LeaderMessage, now_ms: int) -> Happening | None:
        """Handle a message of the leader. Raises BrokenSessionError, and the error by which the leader ends the
        stream."""
        self._silence.heard(now_ms)
        match message:
            case LeaderBatches(number, epoch, _, watermark, start, leader_ms, batches):
                self._leader_ms = leader_ms
                channel = self._by_number.find(number)
                if channel is None:
                    return None
                channel.unreported_bytes += sum(map(len, batches))
                return StreamReceived(channel.key, epoch, batches, watermark, start)
            case LeaderHeartbeat(leader_ms):
                self._leader_ms = leader_ms
                return None
            case EpochEnded(number, epoch, answer):
                channel = self._by_number.find(number)
                return StreamEpochAnswered(channel.key, epoch, answer) if channel else None
            case Move(number):
                channel = self._forget(self._by_number.find(number))
                return Moved(channel.key) if channel else None
            case LeaderFailed(number, error):
                if number == STREAM:
                    raise error
                channel = self._forget(self._by_number.find(number))
                return StreamRefused(channel.key, error) if channel else None
            case _:
                assert_never(message)

    def _channel(self, key: PartitionKey, leader_epoch: LeaderEpoch) -> _Channel | None:
        channel = self._by_key.get(key)
        return channel if channel is not None and channel.leader_epoch == leader_epoch else None

    def _forget(self, channel: _Channel | None) -> _Channel | None:
        if channel is not None:
            del self._by_number[channel.number], self._by_key[channel.key]
            self._reports.pop(channel.number, None)
            self._held.pop(channel.number, None)
        return channel

"""The events of a partition on one broker, and the effects that its replica decides: the words of `Replica.step`.

Events are past participles; effects are orders that the shell carries out in the order given: persist, then answer or
send, then wake. Each effect says why, for the log. One half of them is a leader's (`leadership`), the other a
follower's (`following`); a state, a sync and the end of it all concern both.
"""

from dataclasses import dataclass

from headrace.core.log.epochs import EpochEnd
from headrace.core.log.group_commit import Sync
from headrace.core.replication.isr import Ends, InSyncRules, PendingIsr
from headrace.core.resources.partition_set import PartitionState
from headrace.core.types import Acks, LeaderEpoch, Offset, Seat


@dataclass(frozen=True, slots=True)
class Waiter:
    """A request that waits for an append; `number` is the shell's own."""

    number: int
    acks: Acks
    expires_ms: int


@dataclass(frozen=True, slots=True)
class StateApplied:
    """The PartitionSet says so; it is ignored unless it supersedes what was applied before."""

    state: PartitionState


@dataclass(frozen=True, slots=True)
class Appended:
    """The batches were written to the page cache and end at `log_end` (exclusive)."""

    log_end: Offset
    append_bytes: int
    waiter: Waiter | None = None


@dataclass(frozen=True, slots=True)
class Repeated:
    """A request wrote nothing: all of it is in the log already, and ends at `log_end` (exclusive)."""

    log_end: Offset
    waiter: Waiter


@dataclass(frozen=True, slots=True)
class Synced:
    """The sync that was asked for came back: everything below `durable_end` is on disk."""

    durable_end: Offset


@dataclass(frozen=True, slots=True)
class SyncFailed:
    """The sync failed: the bytes that it covered may or may not be on disk."""

    error: str


@dataclass(frozen=True, slots=True)
class WriteFailed:
    """An append or a cut failed: what the log holds is not known any more, and nothing else is written to it."""

    error: str


@dataclass(frozen=True, slots=True)
class Configured:
    """The topic asks for this from now on."""

    rules: InSyncRules


@dataclass(frozen=True, slots=True)
class FollowerReported:
    """A follower has reconciled its log with this leader's in `leader_epoch`, and holds so much of it."""

    seat: Seat
    leader_epoch: LeaderEpoch
    ends: Ends
    heard_ms: int | None = None
    """The time when this leader sent what the report answers, by its own clock; None: just now."""


@dataclass(frozen=True, slots=True)
class FollowerLeft:
    """A follower's stream has ended. Its vote stays as it was; it joins no ISR before it has reported again."""

    seat: Seat
    leader_epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class IsrProposed:
    """These writes may land from now on. This is told before the PUT is sent. None: no write is on its way any more."""

    pending: PendingIsr | None


@dataclass(frozen=True, slots=True)
class Connected:
    """A new stream to the leader is open, in this epoch."""

    leader_epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The stream to the leader is over."""


@dataclass(frozen=True, slots=True)
class EpochAnswered:
    """The leader, in `leader_epoch`, says where the epoch that was asked for ends."""

    leader_epoch: LeaderEpoch
    answer: EpochEnd


@dataclass(frozen=True, slots=True)
class Truncated:
    """The cut is made, or the log begins anew, and the disk has that."""


@dataclass(frozen=True, slots=True)
class CutRefused:
    """The log cannot be cut there: it is damaged. The log has not changed, and all of it is on disk."""

    error: str


@dataclass(frozen=True, slots=True)
class Offered:
    """The leader sent this in `leader_epoch`; nothing of it is appended yet. Ask `accepts` afterwards."""

    leader_epoch: LeaderEpoch
    base_offset: Offset | None
    """The offset where the first of the batches begins; None where there are none."""
    high_watermark: Offset
    """The leader's high watermark, as in the next event."""
    log_start: Offset


@dataclass(frozen=True, slots=True)
class Received:
    """The leader sent this in this epoch. If it is accepted, so much of it was appended: 0 bytes for a heartbeat."""

    leader_epoch: LeaderEpoch
    append_bytes: int
    high_watermark: Offset
    """The leader's high watermark, which may be above this log."""
    log_start: Offset
    """The start of the leader's log."""


@dataclass(frozen=True, slots=True)
class ReplicaTicked:
    """The time went on."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The broker stops serving the partition: it shuts down, or the topic goes."""

    reason: str


LeaderEvent = (
    StateApplied
    | Appended
    | Repeated
    | Synced
    | SyncFailed
    | WriteFailed
    | Configured
    | FollowerReported
    | FollowerLeft
    | IsrProposed
    | ReplicaTicked
    | Closed
)
FollowerEvent = (
    StateApplied
    | Connected
    | Disconnected
    | EpochAnswered
    | Truncated
    | CutRefused
    | Offered
    | Received
    | Synced
    | Closed
)
Event = LeaderEvent | FollowerEvent


@dataclass(frozen=True, slots=True)
class Lead:
    """Serve, and stamp what is appended with `leader_epoch`."""

    leader_epoch: LeaderEpoch
    reason: str


@dataclass(frozen=True, slots=True)
class Resign:
    """Serve no more."""

    reason: str


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """The wait of these appends is over, with what they asked for; answer them in this order."""

    waiters: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Expire:
    """These appends took too long: whether they commit is not known."""

    waiters: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Abandon:
    """These appends will not be acknowledged here: whether they commit is not known."""

    waiters: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The disk failed: refuse these appends, surrender every seat of the broker, stop."""

    waiters: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class RaiseHighWatermark:
    """The offsets below it are committed; wake all who wait for records."""

    high_watermark: Offset
    reason: str


@dataclass(frozen=True, slots=True)
class Follow:
    """Open a stream to `leader`, again and again until told otherwise."""

    leader: Seat
    leader_epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class Unfollow:
    reason: str


@dataclass(frozen=True, slots=True)
class AskEpochEnd:
    """Ask the leader, in `leader_epoch`, where `epoch` ends in its log."""

    leader_epoch: LeaderEpoch
    epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class Truncate:
    """Cut the log, put that on disk, then report `Truncated`; nothing is appended before."""

    end: Offset
    reason: str
    allow_below_high_watermark: bool = False
    """Whether the cut may go below the high watermark: nobody relies on a replica that is not in sync."""


@dataclass(frozen=True, slots=True)
class StartAnew:
    """Drop all of the log, its epochs too, and let it begin at `offset`; put that on disk, then report `Truncated`.

    The offset is not below the log's end; or it is 0, where the log's history is not the leader's: then the
    checkpointed high watermark falls with it.
    """

    offset: Offset
    reason: str


@dataclass(frozen=True, slots=True)
class DeleteBelow:
    """Delete what lies below `offset`, in the follower's own time: it is committed, and the leader has deleted it."""

    offset: Offset
    reason: str


@dataclass(frozen=True, slots=True)
class Fetch:
    """Have the leader send everything from `offset` on, in `leader_epoch`."""

    leader_epoch: LeaderEpoch
    offset: Offset


@dataclass(frozen=True, slots=True)
class Report:
    """Tell the leader, in `leader_epoch`: this replica holds so much of its log."""

    leader_epoch: LeaderEpoch
    ends: Ends


Effect = (
    Sync
    | Lead
    | Resign
    | Acknowledge
    | Expire
    | Abandon
    | RaiseHighWatermark
    | GiveUp
    | Follow
    | Unfollow
    | AskEpochEnd
    | Truncate
    | StartAnew
    | DeleteBelow
    | Fetch
    | Report
)

"""What happens to a partition on one broker, and what its leadership decides: the words of `leadership.step`.

Events are past participles; effects are orders that the shell carries out in the order given: persist, then answer,
then wake. Each effect says why, for the log.
"""

from dataclasses import dataclass
from enum import StrEnum

from headrace.core.log.group_commit import Sync
from headrace.core.replication.followers import Ends, InSyncRules
from headrace.core.replication.isr import PendingIsr
from headrace.core.resources.partition_set import PartitionState
from headrace.core.types import LeaderEpoch, Offset, Seat


class Acks(StrEnum):
    """What a produce request waits for; spelled as in the query."""

    NONE = "0"
    """Nothing: answered before the records are written."""
    LEADER = "1"
    """Written by the leader, to the page cache: a crash of its machine may lose them."""
    ALL = "all"
    """Committed: below the high watermark."""


@dataclass(frozen=True, slots=True)
class Waiter:
    """Somebody who waits for an append; `number` is the shell's own."""

    number: int
    acks: Acks
    expires_ms: int


@dataclass(frozen=True, slots=True)
class StateApplied:
    """The PartitionSet says so; it is ignored unless it supersedes what was applied before."""

    state: PartitionState


@dataclass(frozen=True, slots=True)
class Appended:
    """Batches were written to the page cache and end at `log_end` (exclusive)."""

    log_end: Offset
    append_bytes: int
    waiter: Waiter | None = None


@dataclass(frozen=True, slots=True)
class Repeated:
    """Nothing was written: all of it is in the log already, and ends at `log_end` (exclusive)."""

    log_end: Offset
    waiter: Waiter


@dataclass(frozen=True, slots=True)
class Synced:
    """The sync that was asked for came back: everything below `durable_end` is on disk."""

    durable_end: Offset


@dataclass(frozen=True, slots=True)
class SyncFailed:
    """What the sync covered may or may not be on disk."""

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


@dataclass(frozen=True, slots=True)
class IsrProposed:
    """These writes may land from now on: told before the PUT is sent. None: nothing is on its way any more."""

    pending: PendingIsr | None


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time went by."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The broker stops serving the partition: it shuts down, or the topic goes."""

    reason: str


Event = (
    StateApplied
    | Appended
    | Repeated
    | Synced
    | SyncFailed
    | Configured
    | FollowerReported
    | IsrProposed
    | Ticked
    | Closed
)


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
    """These appends are what they asked to be; answer them in this order."""

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
    """Offsets below it are committed; wake whoever waits for records."""

    high_watermark: Offset
    reason: str


Effect = Sync | Lead | Resign | Acknowledge | Expire | Abandon | RaiseHighWatermark | GiveUp

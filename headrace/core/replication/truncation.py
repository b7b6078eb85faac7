"""Where does a follower's log stop being the leader's? Its step of the reconciliation by epoch, without I/O.

On every start and every new stream the follower asks for the end of its last epoch; the leader answers from its own log
(`LeaderEpochs.end_of`), and so on until they agree. Only then is anything fetched.

    ask(last epoch) ──answer──> AskAgain: truncate, ask for the epoch before ──> ... ──> Agreed: truncate, then fetch
                       └──────> BeginAnew: nothing of this log is the leader's

Why that is right (KIP-101, KIP-279): one leader wrote each epoch, so two logs that both hold an epoch are one up to
where the shorter of the two ends it. The leader's answer is its greatest epoch that is not above the one asked for:
what the follower has of epochs between the two is not in the leader's log. Where the follower lacks the answer's epoch,
as after two quick elections, its own epoch below may end too late as well, so it asks again.

Invariants: each `AskAgain` names an epoch below the one before, or cuts once to where the leader's log can vouch for
anything, so there are few more answers than epochs in the follower's log; nothing that both logs hold is truncated. The
high watermark has no say: a follower's may be too low, and truncating to it loses committed records. A leader that has
nothing as old as the follower's last epoch cannot vouch for any of it, so the follower keeps nothing. But its log never
ends below where the leader's first epoch began: what lay there was committed and is deleted, and a log that ended lower
could be elected and give those offsets away again.

What was deleted from the front was committed, so every leader that was elected from the ISR shares the history up to
this log's start, and has come as far. Where the two part below it, a leader out of sync was elected: what the follower
deleted is not what the leader holds there, and its start says nothing any more. It drops all, its start included, and
begins anew as a replica does that was just added (Kafka: `truncateFullyAndStartAt`). Else it would go on above records
that it never had, and vote for them.

A log that began anew knows no epoch, of what lay before its start neither. It asks for the leader's own epoch, whose
end is that of the leader's log.

Called by whoever runs the follower's stream, which truncates before it asks again or fetches. The question and the
answer carry the leader's epoch and are fenced by it, as every request is.
"""

from typing import Final

from headrace.core.errors import DivergedLogError
from headrace.core.log.epochs import NO_EPOCH, EpochEnd, LeaderEpochs
from headrace.core.slotted import dataclass
from headrace.core.types import LeaderEpoch, Offset


@dataclass(frozen=True, slots=True)
class AskAgain:
    """Truncate to `end`, then ask for the end of `epoch`, which is the last that is left."""

    end: Offset
    epoch: LeaderEpoch
    reason: str


@dataclass(frozen=True, slots=True)
class Agreed:
    """Truncate to `end`: what is left is the leader's too."""

    end: Offset
    reason: str


@dataclass(frozen=True, slots=True)
class BeginAnew:
    """Drop all of the log, and what it knows of epochs.

    It goes on at `offset`: not below its end, where the leader has deleted whatever it holds; or at `FIRST`, as that of
    a new replica.
    """

    offset: Offset
    reason: str


FIRST: Final = Offset(0)
"""Where a log begins that never held anything."""


def question(epochs: LeaderEpochs, log_end: Offset, leader_epoch: LeaderEpoch) -> LeaderEpoch | None:
    """For the end of which epoch the leader is to be asked; None where there is nothing that could differ."""
    if epochs.latest != NO_EPOCH:
        return epochs.latest
    return leader_epoch if log_end > FIRST else None


def reconcile(
    epochs: LeaderEpochs, log_start: Offset, log_end: Offset, answer: EpochEnd
) -> AskAgain | Agreed | BeginAnew:
    """What the leader's answer to `question` means for this log.

    `end` may lie within a batch that compaction has joined: `PartitionLog.truncate` says where the log then ends.
    Raises DivergedLogError for an answer that no leader gives.
    """
    if epochs.latest == NO_EPOCH:
        return _unplaced(log_start, answer.end_offset)
    if answer.epoch > epochs.latest:
        raise DivergedLogError(
            f"the leader answers with the end of epoch {answer.epoch}, above {epochs.latest} that it was asked for"
        )
    if answer.epoch == NO_EPOCH:
        return _unknown(epochs, log_start, log_end, answer.end_offset)
    mine = epochs.end_of(answer.epoch, log_end)
    end = min(mine.end_offset, answer.end_offset)
    if end < log_start:
        parted = f"this log starts at {log_start}, but it and the leader's part at {end}"
        return BeginAnew(FIRST, f"{parted}: a leader out of sync was elected")
    if mine.epoch == answer.epoch:
        return Agreed(end, f"epoch {mine.epoch} ends at {mine.end_offset} here, at {answer.end_offset} for the leader")
    left = LeaderEpochs(epochs.starts)
    left.cut(end)
    return AskAgain(end, left.latest, f"the leader has no epoch from {answer.epoch + 1} to {epochs.latest}")


def _unknown(epochs: LeaderEpochs, log_start: Offset, log_end: Offset, first: Offset) -> AskAgain | Agreed | BeginAnew:
    """The leader's first epoch, above all of this log's, begins at `first`."""
    reason = f"the leader has nothing of epoch {epochs.latest} or before"
    if first < log_start:
        return BeginAnew(FIRST, f"{reason}, and its first begins at {first}, below {log_start}, where this log starts")
    if first == log_start:
        return Agreed(log_start, reason)
    if first >= log_end:
        return BeginAnew(first, reason)
    return AskAgain(first, epochs.latest, f"{reason}, and its first begins at {first}")


def _unplaced(log_start: Offset, leader_end: Offset) -> Agreed | BeginAnew:
    """An empty log that knows no epoch."""
    if leader_end < log_start:
        return BeginAnew(FIRST, f"the leader's log ends at {leader_end}, below {log_start}, where this log starts")
    return Agreed(log_start, f"this log is empty, and the leader's ends at {leader_end}")

"""The leader epochs of a log, and the fence that checks a request against the present one.

`LeaderEpochs` holds which leader epoch begins at which offset: the file `leader-epoch-checkpoint` (KIP-101, KIP-279).
One partition's log owns it while that is open: `assign` when a batch is written, `cut` when the log ends lower,
`forget_below` when it starts higher; `end_of` is a leader's answer to a follower that reconciles
(`replication.following`). Invariants: epochs and start offsets rise from entry to entry; an entry's epoch is that of
every batch from its offset to the next entry's, so the first one may begin below the log's start. Recovery finds all
above the recovery point again, so the file has to be right only below it. The list is replaced as a whole where it
shrinks: a sync in another thread reads it meanwhile.

A `Fence` carries what a request knows of its partition: the topic's uid and the leader epoch (KIP-320). A mismatch is
refused with the present values, before anything else happens, so that a client with an old view can neither write to
nor read from another history.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple, Self

from headrace.core.errors import FencedEpochError, StaleTopicError
from headrace.core.log.checkpoints import DamagedFileError, seal, unseal
from headrace.core.types import LeaderEpoch, Offset, TopicUid

EPOCHS_FILE: Final = "leader-epoch-checkpoint"
NO_EPOCH: Final = LeaderEpoch(-1)
"""The epoch of a log without batches, below every other."""


class EpochStart(NamedTuple):
    epoch: LeaderEpoch
    offset: Offset
    """The offset of the epoch's first record in this log, which may be deleted meanwhile."""


class EpochEnd(NamedTuple):
    epoch: LeaderEpoch
    """The epoch; `NO_EPOCH` where the log has none as low as that."""
    end_offset: Offset
    """The offset where the next epoch begins, or the log ends: no batch of `epoch` lies at it or above."""


class LeaderEpochs:
    """The epochs of one log, in order."""

    def __init__(self, starts: Iterable[EpochStart] = ()) -> None:
        self._starts = list(starts)

    @property
    def starts(self) -> tuple[EpochStart, ...]:
        return tuple(self._starts)

    @property
    def latest(self) -> LeaderEpoch:
        """Return the epoch of the last batch; `NO_EPOCH` where there is none."""
        return self._starts[-1].epoch if self._starts else NO_EPOCH

    def end_of(self, epoch: LeaderEpoch, log_end: Offset) -> EpochEnd:
        """Return the greatest epoch of this log that is not above `epoch`, and where it ends (OffsetForLeaderEpoch,
        KIP-279).

        Where all are above, it is `NO_EPOCH` and where the first one begins.
        """
        index = bisect_right(self._starts, epoch, key=_epoch_of) - 1
        found = self._starts[index].epoch if index >= 0 else NO_EPOCH
        is_last = index + 1 == len(self._starts)
        return EpochEnd(found, log_end if is_last else self._starts[index + 1].offset)

    def assign(self, epoch: LeaderEpoch, offset: Offset) -> None:
        """Note that a batch of `epoch` is appended at `offset`."""
        latest = self.latest
        assert epoch >= latest, f"epoch {epoch} after {latest}: a log's epochs never fall"
        if epoch > latest:
            self._starts.append(EpochStart(epoch, offset))

    def cut(self, end: Offset) -> None:
        """Note that the log now ends at `end`: epochs that began there or later are forgotten."""
        self._starts = [start for start in self._starts if start.offset < end]

    def forget_below(self, log_start: Offset) -> None:
        """Note that the log now starts at `log_start`: epochs that ended there or before are forgotten, but never the
        last one.

        Deleted epochs count as seen: no leader may append in an epoch below the last one, however little is left.
        """
        first = bisect_right(self._starts, log_start, key=_offset_of) - 1
        self._starts = self._starts[max(first, 0) :]

    def format(self) -> bytes:
        return seal(EPOCHS_FILE, [f"{epoch} {offset}" for epoch, offset in self._starts])

    @classmethod
    def parse(cls, content: bytes) -> Self:
        """Parse the file. Raises DamagedFileError."""
        lines = unseal(EPOCHS_FILE, content)
        try:
            pairs = [tuple(map(int, line.split(" "))) for line in lines]
            starts = [EpochStart(LeaderEpoch(epoch), Offset(offset)) for epoch, offset in pairs]
        except ValueError as error:
            raise DamagedFileError(f"{lines} are not pairs of an epoch and an offset") from error
        if any(a.epoch >= b.epoch or a.offset >= b.offset for a, b in pairwise(starts)):
            raise DamagedFileError(f"{lines}: epochs and offsets must rise")
        return cls(starts)


def _epoch_of(start: EpochStart) -> LeaderEpoch:
    return start.epoch


def _offset_of(start: EpochStart) -> Offset:
    return start.offset


@dataclass(frozen=True, slots=True)
class Fence:
    """The epochs that a request names; None where the client names none."""

    topic_uid: TopicUid | None = None
    leader_epoch: LeaderEpoch | None = None

    def check_topic(self, label: str, actual: TopicUid) -> None:
        """Check the topic. Raises StaleTopicError. `label` is the topic as people write it."""
        if self.topic_uid is not None and self.topic_uid != actual:
            raise StaleTopicError(
                f"topicUid {self.topic_uid} is not that of topic {label}: it was deleted and created again, and is"
                f" {actual} now; start over with its new offsets",
                topicUid=actual,
            )

    def check_epoch(self, label: str, actual: LeaderEpoch) -> None:
        """Check the epoch. Raises FencedEpochError. `label` is the partition as people write it."""
        if self.leader_epoch is not None and self.leader_epoch != actual:
            raise FencedEpochError(
                f"leaderEpoch {self.leader_epoch} is not that of {label}, which is {actual} now; read the topic's"
                " metadata again",
                leaderEpoch=actual,
            )

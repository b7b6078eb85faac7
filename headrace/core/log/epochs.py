"""Which leader epoch begins at which offset of a log: the file `leader-epoch-checkpoint` (KIP-101).

Owned by one partition's log, for as long as that is open. Invariants: epochs and start offsets rise from entry to
entry; an entry's epoch is that of every batch from its offset to the next entry's. Batches carry their epoch, so
whatever lies above the recovery point is found again by recovery, and the file has to be right only below it.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import Final, NamedTuple, Self

from headrace.core.log.sealed import DamagedFileError, seal, unseal
from headrace.core.types import LeaderEpoch, Offset

EPOCHS_FILE: Final = "leader-epoch-checkpoint"
NO_EPOCH: Final = LeaderEpoch(-1)
"""Below every epoch: of a log without batches."""


class EpochStart(NamedTuple):
    epoch: LeaderEpoch
    offset: Offset
    """Of the epoch's first record in this log."""


class LeaderEpochs:
    """The epochs of one log, in order."""

    def __init__(self, starts: Iterable[EpochStart] = ()) -> None:
        self._starts = list(starts)

    @property
    def starts(self) -> tuple[EpochStart, ...]:
        return tuple(self._starts)

    @property
    def latest(self) -> LeaderEpoch:
        """Epoch of the last batch; `NO_EPOCH` where there is none."""
        return self._starts[-1].epoch if self._starts else NO_EPOCH

    def assign(self, epoch: LeaderEpoch, offset: Offset) -> None:
        """A batch of `epoch` is appended at `offset`."""
        latest = self.latest
        assert epoch >= latest, f"epoch {epoch} after {latest}: a log's epochs never fall"
        if epoch > latest:
            self._starts.append(EpochStart(epoch, offset))

    def cut(self, end: Offset) -> None:
        """The log now ends at `end`: epochs that began there or later are forgotten."""
        while self._starts and self._starts[-1].offset >= end:
            self._starts.pop()

    def format(self) -> bytes:
        return seal(EPOCHS_FILE, [f"{epoch} {offset}" for epoch, offset in self._starts])

    @classmethod
    def parse(cls, content: bytes) -> Self:
        """Raises DamagedFileError."""
        lines = unseal(EPOCHS_FILE, content)
        try:
            pairs = [tuple(map(int, line.split(" "))) for line in lines]
            starts = [EpochStart(LeaderEpoch(epoch), Offset(offset)) for epoch, offset in pairs]
        except ValueError as error:
            raise DamagedFileError(f"{lines} are not pairs of an epoch and an offset") from error
        if any(a.epoch >= b.epoch or a.offset >= b.offset for a, b in pairwise(starts)):
            raise DamagedFileError(f"{lines}: epochs and offsets must rise")
        return cls(starts)

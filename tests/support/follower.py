"""A follower with a log of its own, and its leader: for tests of what it does step by step."""

from dataclasses import dataclass, replace
from typing import Any

from headrace.core.log.epochs import EpochEnd, EpochStart, LeaderEpochs
from headrace.core.log.group_commit import GroupCommit
from headrace.core.replication.events import (
    Connected,
    Effect,
    EpochAnswered,
    Fetch,
    Offered,
    Received,
    Report,
    StateApplied,
    Truncated,
)
from headrace.core.replication.following import Following
from headrace.core.replication.isr import Ends
from headrace.core.resources.partition_set import PartitionState
from headrace.core.resources.topic import Durability
from headrace.core.types import BrokerId, LeaderEpoch, Offset
from tests.support.partition_sets import partition_state, seat

ME, LEADER, THIRD = seat(0), seat(1), seat(2)
STATE = partition_state(
    leader=LEADER, leader_epoch=LeaderEpoch(3), replicas=tuple(BrokerId(each) for each in range(3)), isr=(LEADER,)
)
EPOCH = LeaderEpoch(3)


@dataclass
class Log:
    log_end_offset: Offset
    epochs: LeaderEpochs
    log_start_offset: Offset


class Follower:
    """With a log of these (epoch, first offset)."""

    def __init__(self, *epochs: tuple[int, int], log_end: int = 0, durability: Durability = Durability.FSYNC) -> None:
        starts = [EpochStart(LeaderEpoch(epoch), Offset(offset)) for epoch, offset in epochs]
        self.log = Log(Offset(log_end), LeaderEpochs(starts), Offset(0))
        self.commit = GroupCommit(durability, Offset(log_end), Offset(log_end))
        self.following = Following(ME, self.log, self.commit)

    def named(self, state: PartitionState = STATE, **changes: Any) -> list[Effect]:
        return self.following.step(StateApplied(replace(state, **changes)))

    def connected(self) -> list[Effect]:
        self.named()
        return self.following.step(Connected(EPOCH))

    def answered(self, epoch: int, end: int, *, leader_epoch: LeaderEpoch = EPOCH) -> list[Effect]:
        return self.following.step(EpochAnswered(leader_epoch, EpochEnd(LeaderEpoch(epoch), Offset(end))))

    def cut(self, end: int) -> list[Effect]:
        self.log.log_end_offset = Offset(end)
        self.log.epochs.cut(Offset(end))
        return self.following.step(Truncated())

    def begun(self, offset: int) -> list[Effect]:
        """Anew, empty, and with no epoch."""
        self.log.log_start_offset = self.log.log_end_offset = Offset(offset)
        self.log.epochs.cut(Offset(0))
        return self.following.step(Truncated())

    def replicated(self, count: int) -> list[Effect]:
        self.log.epochs.assign(EPOCH, self.log.log_end_offset)
        self.log.log_end_offset = Offset(self.log.log_end_offset + count)
        return self.following.step(Received(EPOCH, 100, Offset(0), Offset(0)))

    def offered(self, base: int | None, *, log_start: int = 0, high_watermark: int = 0) -> list[Effect]:
        begins = None if base is None else Offset(base)
        return self.following.step(Offered(EPOCH, begins, Offset(high_watermark), Offset(log_start)))

    def fetching(self, **changes: Any) -> "Follower":
        self.named(**changes)
        self.following.step(Connected(EPOCH))
        self.answered(self.log.epochs.latest, self.log.log_end_offset)
        assert self.following.accepts(EPOCH)
        return self


def fetch_from(offset: int) -> list[Effect]:
    return [Fetch(EPOCH, Offset(offset)), Report(EPOCH, Ends(Offset(offset), Offset(offset)))]


IN_SYNC: dict[str, Any] = {"isr": (LEADER, ME)}

"""A follower agrees with its leader's log before it takes anything from it, and votes only then."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from headrace.core.log.epochs import EpochEnd, EpochStart, LeaderEpochs
from headrace.core.log.group_commit import GroupCommit, Sync
from headrace.core.replication.events import (
    AskEpochEnd,
    Connected,
    Disconnected,
    Effect,
    EpochAnswered,
    Fetch,
    Follow,
    Received,
    Report,
    StateApplied,
    Synced,
    Truncate,
    Truncated,
    Unfollow,
)
from headrace.core.replication.followers import Ends
from headrace.core.replication.following import Following, Phase
from headrace.core.resources.partition_set import PartitionState
from headrace.core.resources.topic import Durability
from headrace.core.types import BrokerId, LeaderEpoch, Offset, PartitionEpoch
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

    def replicated(self, count: int) -> list[Effect]:
        self.log.epochs.assign(EPOCH, self.log.log_end_offset)
        self.log.log_end_offset = Offset(self.log.log_end_offset + count)
        return self.following.step(Received(EPOCH, 100, Offset(0)))


def fetch_from(offset: int) -> list[Effect]:
    return [Fetch(EPOCH, Offset(offset)), Report(EPOCH, Ends(Offset(offset), Offset(offset)))]


def test_should_fetch_at_once_what_an_empty_log_lacks() -> None:
    follower = Follower()
    assert follower.named() == [Follow(LEADER, EPOCH)]
    assert follower.following.step(Connected(EPOCH)) == fetch_from(0)


def test_should_ask_where_its_last_epoch_ends_and_cut_what_the_leader_lacks() -> None:
    follower = Follower((1, 0), (2, 5), log_end=9)
    assert follower.connected() == [AskEpochEnd(EPOCH, LeaderEpoch(2))]
    assert not follower.following.accepts(EPOCH)
    (cut,) = follower.answered(2, 7)
    assert isinstance(cut, Truncate)
    assert cut.end == 7
    assert follower.commit.vouched_end == 7, "nothing above is vouched for from now on"
    assert follower.cut(7) == fetch_from(7)
    assert follower.following.accepts(EPOCH)


def test_should_ask_again_until_both_logs_agree() -> None:
    follower = Follower((1, 0), (2, 5), log_end=9)
    follower.connected()
    (cut,) = follower.answered(1, 3)
    assert isinstance(cut, Truncate)
    assert cut.end == 3
    assert follower.cut(3) == fetch_from(3)

    follower = Follower((0, 0), (2, 5), log_end=9)
    follower.connected()
    follower.answered(1, 7)
    assert follower.cut(5) == [AskEpochEnd(EPOCH, LeaderEpoch(0))], "the epoch below may differ, too"
    assert follower.answered(0, 5) == fetch_from(5)


def test_should_say_what_it_holds_after_each_append_and_sync() -> None:
    follower = Follower()
    follower.connected()
    assert follower.replicated(4) == [Sync(Offset(4), "append"), Report(EPOCH, Ends(Offset(4), Offset(0)))]
    assert follower.following.step(Synced(Offset(4))) == [Report(EPOCH, Ends(Offset(4), Offset(4)))]


def test_should_agree_anew_on_every_stream() -> None:
    follower = Follower((3, 0), log_end=4)
    follower.connected()
    follower.answered(3, 4)
    follower.following.step(Disconnected())
    assert not follower.following.accepts(EPOCH)
    assert follower.following.step(Connected(EPOCH)) == [AskEpochEnd(EPOCH, EPOCH)]


def test_should_drop_answers_of_another_epoch() -> None:
    follower = Follower((1, 0), log_end=9)
    follower.connected()
    assert follower.answered(1, 3, leader_epoch=LeaderEpoch(2)) == []
    assert follower.named(leader_epoch=LeaderEpoch(4), leader=THIRD) == [Follow(THIRD, LeaderEpoch(4))]
    assert follower.answered(1, 3) == []
    assert follower.following.step(Connected(EPOCH)) == []
    assert follower.following.phase is Phase.APART


def test_should_finish_a_cut_before_it_asks_another_leader() -> None:
    follower = Follower((1, 0), (2, 5), log_end=9)
    follower.connected()
    follower.answered(2, 7)
    assert follower.answered(2, 6) == [], "one answer, one cut"
    follower.named(leader_epoch=LeaderEpoch(4), leader=THIRD)
    assert follower.following.step(Connected(LeaderEpoch(4))) == []
    assert follower.cut(7) == [AskEpochEnd(LeaderEpoch(4), LeaderEpoch(2))]


def test_should_rest_after_a_cut_when_nobody_leads_meanwhile() -> None:
    follower = Follower((2, 0), log_end=9)
    follower.connected()
    follower.answered(2, 7)
    assert isinstance(follower.named(leader=None)[0], Unfollow)
    follower.following.step(Disconnected())
    assert follower.cut(7) == []
    assert follower.following.phase is Phase.RESTING


@pytest.mark.parametrize(
    "changes",
    [
        {"leader": ME, "leader_epoch": LeaderEpoch(4)},
        {"leader": None},
        {"leader": THIRD, "leader_epoch": LeaderEpoch(4), "replicas": (BrokerId(1), BrokerId(2))},
        {"leader": THIRD, "leader_epoch": LeaderEpoch(2)},
        {"leader": THIRD},
    ],
    ids=["leads itself", "nobody leads", "is no replica", "the epoch falls", "the epoch has another leader"],
)
def test_should_follow_nobody_when_it(changes: dict[str, Any]) -> None:
    follower = Follower()
    follower.connected()
    assert isinstance(follower.named(**changes)[0], Unfollow)
    assert follower.named(**changes) == []
    assert not follower.following.accepts(EPOCH)


def test_should_go_on_when_a_state_changes_nothing_for_it() -> None:
    follower = Follower()
    follower.connected()
    assert follower.named(partition_epoch=PartitionEpoch(2), isr=(LEADER, ME)) == []
    assert follower.following.accepts(EPOCH)


def test_should_not_follow_in_an_epoch_below_its_log() -> None:
    follower = Follower((4, 0), log_end=2)
    assert follower.named() == []
    assert follower.following.leader is None


def test_should_know_as_committed_what_it_has_itself() -> None:
    follower = Follower((3, 0), log_end=4)
    follower.connected()
    assert follower.following.step(Received(EPOCH, 0, Offset(4))) == []
    assert follower.following.high_watermark == 0, "not before both logs agree"
    follower.answered(3, 4)
    for heard, known in ((9, 4), (2, 4)):
        assert follower.following.step(Received(EPOCH, 0, Offset(heard))) == fetch_from(4)[1:], "it is alive"
        assert follower.following.high_watermark == known


def test_should_report_nothing_while_it_is_apart() -> None:
    follower = Follower()
    follower.connected()
    follower.replicated(4)
    follower.following.step(Disconnected())
    assert follower.following.step(Synced(Offset(4))) == []

"""One machine of two roles: what is known as committed goes along, and a log that is being cut is led by nobody."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from headrace.core.errors import NotLeaderError, NotReadyError
from headrace.core.log.epochs import EpochEnd, EpochStart, Fence, LeaderEpochs
from headrace.core.log.group_commit import Sync
from headrace.core.replication.events import (
    Abandon,
    Acknowledge,
    Appended,
    AskEpochEnd,
    Closed,
    Configured,
    Connected,
    CutRefused,
    Effect,
    EpochAnswered,
    Event,
    Follow,
    FollowerReported,
    GiveUp,
    IsrProposed,
    Lead,
    Offered,
    RaiseHighWatermark,
    Received,
    Repeated,
    ReplicaTicked,
    Report,
    Resign,
    StateApplied,
    Synced,
    SyncFailed,
    Truncate,
    Truncated,
    Unfollow,
    Waiter,
    WriteFailed,
)
from headrace.core.replication.isr import Ends, InSyncRules, PendingIsr
from headrace.core.replication.leadership import Contact
from headrace.core.replication.replica import Replica
from headrace.core.resources.partition_set import PartitionState
from headrace.core.resources.topic import Durability
from headrace.core.types import Acks, BrokerId, LeaderEpoch, Offset, PartitionEpoch
from tests.support.partition_sets import partition_state, seat

ME, OTHER = seat(0), seat(1)
IN_TOUCH = Contact(0, 0)


@dataclass
class Log:
    log_end_offset: Offset
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    log_start_offset: Offset = field(default_factory=lambda: Offset(0))


def log_of(*epochs: tuple[int, int], end: int) -> Log:
    return Log(Offset(end), LeaderEpochs(EpochStart(LeaderEpoch(epoch), Offset(offset)) for epoch, offset in epochs))


def state(leader: Any, epoch: int, number: int, isr: tuple[Any, ...] = (ME, OTHER)) -> PartitionState:
    return partition_state(
        leader=leader,
        leader_epoch=LeaderEpoch(epoch),
        partition_epoch=PartitionEpoch(number),
        replicas=(BrokerId(0), BrokerId(1)),
        isr=isr,
    )


class OneReplica:
    """With its log, and a partition epoch that rises by itself."""

    def __init__(self, log: Log, durability: Durability = Durability.REPLICATED, high_watermark: int = 0) -> None:
        self.log = log
        end = log.log_end_offset
        self.replica = Replica(
            ME,
            InSyncRules(durability),
            log,
            durable_end=end,
            last_epoch=log.epochs.latest,
            high_watermark=Offset(high_watermark),
        )
        self._number = 0

    def __call__(self, event: Event) -> list[Effect]:
        return self.replica.step(event, 0)

    def led_by(self, leader: Any, epoch: int, **changes: Any) -> list[Effect]:
        self._number += 1
        return self(StateApplied(state(leader, epoch, self._number, **changes)))

    def following(self, epoch: int, *, isr: tuple[Any, ...] = (ME, OTHER)) -> "OneReplica":
        """Of `OTHER`, once both logs agree."""
        self.led_by(OTHER, epoch, isr=isr)
        self(Connected(LeaderEpoch(epoch)))
        latest = self.log.epochs.latest
        if latest >= 0:
            self(EpochAnswered(LeaderEpoch(epoch), EpochEnd(latest, self.log.log_end_offset)))
        return self

    def received(self, count: int, epoch: int, high_watermark: int) -> list[Effect]:
        """So many records of that epoch."""
        assert self(Offered(LeaderEpoch(epoch), self.log.log_end_offset, Offset(high_watermark), Offset(0))) == []
        assert self.replica.accepts(LeaderEpoch(epoch))
        self.log.epochs.assign(LeaderEpoch(epoch), self.log.log_end_offset)
        self.log.log_end_offset = Offset(self.log.log_end_offset + count)
        return self(Received(LeaderEpoch(epoch), 10, Offset(high_watermark), Offset(0)))

    def cut(self, end: int) -> list[Effect]:
        self.log.log_end_offset = Offset(end)
        self.log.epochs.cut(Offset(end))
        return self(Truncated())

    def append(self, log_end: int, number: int = 1) -> list[Effect]:
        self.log.log_end_offset = Offset(log_end)
        return self(Appended(Offset(log_end), 10, Waiter(number, Acks.ALL, 1_000)))


def cutting() -> OneReplica:
    """The log of epochs 1 and 2 ends at 9; the leader's of epoch 2 at 7."""
    one = OneReplica(log_of((1, 0), (2, 5), end=9))
    one.led_by(OTHER, 3)
    assert one(Connected(LeaderEpoch(3))) == [AskEpochEnd(LeaderEpoch(3), LeaderEpoch(2))]
    (cut,) = one(EpochAnswered(LeaderEpoch(3), EpochEnd(LeaderEpoch(2), Offset(7))))
    assert isinstance(cut, Truncate)
    assert one.replica.is_cutting
    return one


def test_should_follow_then_lead_then_follow_again() -> None:
    one = OneReplica(log_of((1, 0), end=4))
    assert one.led_by(OTHER, 2) == [Follow(OTHER, LeaderEpoch(2))]
    assert (one.replica.leads, one.replica.leader_epoch, one.replica.state) == (False, 2, state(OTHER, 2, 1))

    led = one.led_by(ME, 3)
    assert [type(effect) for effect in led] == [Lead, Unfollow]
    assert one.replica.leads
    assert one.append(6, number=7) == []
    deposed = one.led_by(OTHER, 4)
    assert [type(effect) for effect in deposed] == [Resign, Abandon, Follow]
    assert not one.replica.leads


def test_should_take_what_is_committed_along_when_the_role_changes() -> None:
    one = OneReplica(log_of((1, 0), end=4)).following(2)
    one.received(2, 2, high_watermark=5)
    assert one.replica.high_watermark == 5

    one.led_by(ME, 3)
    assert one.replica.high_watermark == 5, "it serves what it knew as committed"
    one.append(8)
    one(FollowerReported(OTHER, LeaderEpoch(3), Ends(Offset(8), Offset(0))))
    assert one.replica.high_watermark == 8

    one.led_by(OTHER, 4)
    assert one.replica.high_watermark == 8
    one(Closed("the broker stops"))
    assert one.replica.high_watermark == 8


def test_should_begin_with_what_its_disk_says_is_committed() -> None:
    assert OneReplica(log_of((1, 0), end=4), high_watermark=3).replica.high_watermark == 3
    assert OneReplica(log_of((1, 0), end=4), high_watermark=9).replica.high_watermark == 4
    log = log_of((1, 0), end=4)
    log.log_start_offset = Offset(2)
    assert OneReplica(log).replica.high_watermark == 2


def test_should_ignore_a_state_that_is_not_newer() -> None:
    one = OneReplica(log_of(end=0))
    one.led_by(OTHER, 2)
    assert one(StateApplied(state(ME, 3, 1))) == []
    assert one.replica.leader_epoch == 2


def test_should_neither_lead_nor_serve_while_its_log_is_being_cut() -> None:
    one = cutting()
    assert [type(effect) for effect in one.led_by(ME, 4)] == [Unfollow]
    replica = one.replica
    assert not replica.leads
    assert (replica.leader_epoch, replica.state) == (4, state(ME, 4, 2)), "it is known all the same"
    with pytest.raises(NotReadyError, match=r"0 is about to lead t/0: its log is being cut first"):
        replica.check_leader("t/0", Fence())
    with pytest.raises(NotReadyError, match=r"is about to lead"):
        replica.check_writable("t/0", Fence(), Acks.ALL, IN_TOUCH)

    led = one.cut(7)
    assert isinstance(led[0], Lead)
    assert replica.check_writable("t/0", Fence(), Acks.ALL, IN_TOUCH) == 4
    one(FollowerReported(OTHER, LeaderEpoch(4), Ends(Offset(7), Offset(7))))
    replica.check_latest("t/0", IN_TOUCH)
    assert replica.wanted_isr([OTHER], 0) == (ME, OTHER)


def test_should_forget_that_it_was_to_lead_when_another_is_named_before_the_cut_is_done() -> None:
    one = cutting()
    one.led_by(ME, 4)
    assert one.led_by(OTHER, 5) == [Follow(OTHER, LeaderEpoch(5))]
    assert one.cut(7) == []
    with pytest.raises(NotLeaderError):
        one.replica.check_leader("t/0", Fence())


def test_should_lead_with_its_log_as_it_is_when_it_cannot_be_cut() -> None:
    one = cutting()
    one.led_by(ME, 4)
    assert isinstance(one(CutRefused("a broken batch"))[0], Lead)
    assert not one.replica.is_cutting


def test_should_hear_of_a_sync_in_the_role_that_is_on() -> None:
    one = OneReplica(log_of(end=0), Durability.FSYNC)
    one.led_by(ME, 1, isr=(ME,))
    assert one.append(3, number=7) == [Sync(Offset(3), "append")]
    assert one(Synced(Offset(3)))[0] == Acknowledge((7,), "durable to 3")

    follower = OneReplica(log_of(end=0), Durability.FSYNC).following(2)
    follower.received(4, 2, high_watermark=0)
    assert follower(Synced(Offset(4))) == [Report(LeaderEpoch(2), Ends(Offset(4), Offset(4)))]


def test_should_pass_on_what_only_leaders_hear_of() -> None:
    one = OneReplica(log_of(end=0))
    one.led_by(ME, 1, isr=(ME,))
    assert one.append(3)[0] == Acknowledge((1,), "append")
    again = Waiter(2, Acks.ALL, 1_000)
    assert one(Repeated(Offset(3), again)) == [Acknowledge((2,), "it was written before")]
    assert one(ReplicaTicked()) == []
    assert one(IsrProposed(PendingIsr(frozenset({OTHER}), frozenset(), PartitionEpoch(9)))) == []
    assert one.replica.isr is not None
    assert one.replica.isr.maximal == {ME, OTHER}
    one(Configured(InSyncRules(Durability.FSYNC)))
    assert one.replica.rules.durability is Durability.FSYNC
    assert not one.replica.waits
    assert one.replica.regressed == ""
    one.replica.check_not_regressed("t/0")


@pytest.mark.parametrize("event", [SyncFailed("EIO"), WriteFailed("EIO")], ids=["a sync", "a write"])
def test_should_give_up_in_either_role_when_the_disk_fails(event: SyncFailed | WriteFailed) -> None:
    one = OneReplica(log_of(end=0), Durability.FSYNC)
    one.led_by(ME, 1)
    one.append(3, number=7)
    (gave_up,) = one(event)
    assert isinstance(gave_up, GiveUp)
    assert gave_up.waiters == (7,)
    assert "EIO" in gave_up.reason
    assert one.led_by(ME, 2) == []
    assert not one.replica.leads

    follower = OneReplica(log_of(end=0), Durability.FSYNC).following(2)
    follower.received(4, 2, high_watermark=0)
    gave_up, left = follower(event)
    assert isinstance(gave_up, GiveUp)
    assert left == Unfollow("EIO")
    assert follower.led_by(OTHER, 3) == [], "nobody is followed any more"


def test_should_stop_following_when_it_is_closed() -> None:
    one = OneReplica(log_of(end=0)).following(2)
    assert one(Closed("the topic is deleted"))[1:] == [Unfollow("the topic is deleted")]
    assert not one.replica.accepts(LeaderEpoch(2))


def test_should_raise_what_followers_vote_for() -> None:
    one = OneReplica(log_of(end=0))
    one.led_by(ME, 1)
    one.append(3)
    effects = one(FollowerReported(OTHER, LeaderEpoch(1), Ends(Offset(2), Offset(0))))
    assert effects == [RaiseHighWatermark(Offset(2), f"{OTHER} has {Ends(Offset(2), Offset(0))}")]


@pytest.mark.parametrize(("durability", "vouched"), [(Durability.FSYNC, 4), (Durability.REPLICATED, 6)])
def test_should_vouch_for_no_commit_that_its_disk_may_lose(durability: Durability, vouched: int) -> None:
    one = OneReplica(log_of((1, 0), end=4), durability, high_watermark=3).following(2)
    assert one.replica.vouched_high_watermark == 3
    one.received(2, 2, high_watermark=6)
    assert (one.replica.high_watermark, one.replica.vouched_high_watermark) == (6, vouched)


def test_should_say_how_well_it_is_kept() -> None:
    one = OneReplica(log_of((1, 0), end=4))
    one.led_by(ME, 2, isr=(ME,))
    redundancy = one.replica.redundancy()
    assert (redundancy.replicas, redundancy.in_sync, redundancy.needed) == (2, 1, 1)
    assert redundancy.is_under_replicated
    assert not redundancy.is_under_min_isr
    assert redundancy.lags == {1: 4}
    one(FollowerReported(OTHER, LeaderEpoch(2), Ends(Offset(3), Offset(0))))
    assert one.replica.redundancy().lags == {1: 1}
    one(Configured(InSyncRules(Durability.REPLICATED, min_insync_replicas=2)))
    assert one.replica.redundancy().is_under_min_isr

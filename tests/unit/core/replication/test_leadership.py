"""A partition's leader answers what is committed, once, and nothing after it was told to go."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import FencedEpochError, NotLeaderError, PartitionOfflineError, StaleTopicError
from headrace.core.log.epochs import Fence
from headrace.core.log.group_commit import REPLICATED_SYNC_BYTES, Sync
from headrace.core.replication.events import (
    Abandon,
    Acknowledge,
    Appended,
    Closed,
    Configured,
    Effect,
    Expire,
    GiveUp,
    Lead,
    RaiseHighWatermark,
    Repeated,
    ReplicaTicked,
    Resign,
    StateApplied,
    Synced,
    SyncFailed,
    Waiter,
)
from headrace.core.replication.isr import InSyncRules
from headrace.core.replication.leadership import Leadership
from headrace.core.resources.topic import Durability
from headrace.core.types import Acks, BrokerId, LeaderEpoch, Offset, PartitionEpoch, TopicUid
from tests.support.partition_sets import partition_state, seat

ME = seat(0, 2)
LED = partition_state(leader=ME)


def leader(durability: Durability = Durability.FSYNC) -> Leadership:
    leadership = Leadership(ME, InSyncRules(durability), log_end=Offset(0), durable_end=Offset(0))
    leadership.step(StateApplied(LED), 0)
    return leadership


def append(
    leadership: Leadership, log_end: int, acks: Acks | None = None, number: int = 1, nbytes: int = 100
) -> list[Effect]:
    waiter = Waiter(number, acks, expires_ms=1000) if acks is not None else None
    return leadership.step(Appended(Offset(log_end), nbytes, waiter), 0)


def test_should_serve_what_it_recovered_when_it_becomes_leader() -> None:
    leadership = Leadership(ME, InSyncRules(Durability.FSYNC), log_end=Offset(9), durable_end=Offset(9))
    assert leadership.leader_epoch == 0

    effects = leadership.step(StateApplied(LED), 0)

    assert effects == [
        Lead(LeaderEpoch(1), "partition epoch 1 names 0@2"),
        RaiseHighWatermark(Offset(9), "state applied"),
    ]
    assert leadership.leads
    assert leadership.leader_epoch == 1


def test_should_ignore_a_state_when_its_partition_epoch_is_not_above_the_applied_one() -> None:
    leadership = leader()
    assert leadership.step(StateApplied(partition_state(leader=seat(1), partition_epoch=PartitionEpoch(1))), 0) == []
    assert leadership.leads


def test_should_acknowledge_all_only_when_the_sync_came_back() -> None:
    leadership = leader()
    assert append(leadership, 3, Acks.ALL, 7) == [Sync(Offset(3), "append")]
    assert append(leadership, 5, Acks.ALL, 8) == []

    effects = leadership.step(Synced(Offset(3)), 0)

    assert effects == [
        Sync(Offset(5), "appended during the last sync"),
        Acknowledge((7,), "durable to 3"),
        RaiseHighWatermark(Offset(3), "durable to 3"),
    ]
    assert leadership.high_watermark == 3


def test_should_acknowledge_at_once_when_only_the_leader_is_asked_for() -> None:
    effects = append(leader(), 3, Acks.LEADER, 7)
    assert effects == [Sync(Offset(3), "append"), Acknowledge((7,), "written by the leader")]


def test_should_answer_a_repetition_when_its_original_is_what_it_asks_for() -> None:
    leadership = leader()
    append(leadership, 3, Acks.ALL, 1)
    append(leadership, 5, Acks.ALL, 2)
    assert leadership.step(Repeated(Offset(3), Waiter(3, Acks.ALL, 1000)), 0) == []
    at_once = [Acknowledge((4,), "it was written before")]
    assert leadership.step(Repeated(Offset(3), Waiter(4, Acks.LEADER, 1000)), 0) == at_once

    effects = leadership.step(Synced(Offset(3)), 0)

    assert Acknowledge((1, 3), "durable to 3") in effects
    assert leadership.step(Repeated(Offset(3), Waiter(4, Acks.ALL, 1000)), 0) == at_once
    assert leadership.waits


def test_should_sync_for_readers_when_nobody_waits() -> None:
    leadership = leader()
    assert append(leadership, 3) == [Sync(Offset(3), "append")]
    assert leadership.step(Synced(Offset(3)), 0) == [RaiseHighWatermark(Offset(3), "durable to 3")]


def test_should_commit_at_the_log_end_when_durability_is_replicated() -> None:
    leadership = leader(Durability.REPLICATED)
    assert append(leadership, 3, Acks.ALL, 7) == [
        Acknowledge((7,), "append"),
        RaiseHighWatermark(Offset(3), "append"),
    ]
    (sync, *_) = append(leadership, 4, nbytes=REPLICATED_SYNC_BYTES)
    assert sync == Sync(Offset(4), "append")
    assert leadership.step(Synced(Offset(4)), 0) == []


def test_should_commit_what_is_written_when_durability_becomes_replicated() -> None:
    leadership = leader()
    append(leadership, 3, Acks.ALL, 7)
    effects = leadership.step(Configured(InSyncRules(Durability.REPLICATED)), 0)
    assert effects[0] == Acknowledge((7,), "durability is Replicated")


def test_should_sync_what_was_acknowledged_from_memory_when_durability_becomes_fsync() -> None:
    leadership = leader(Durability.REPLICATED)
    append(leadership, 3, Acks.ALL, 7)
    assert leadership.step(Configured(InSyncRules(Durability.FSYNC)), 0) == [Sync(Offset(3), "durability is Fsync now")]
    assert leadership.high_watermark == 3


def test_should_hold_the_high_watermark_when_a_member_of_the_isr_has_not_voted() -> None:
    shared = partition_state(leader=ME, replicas=(BrokerId(0), BrokerId(1)), isr=(ME, seat(1)))
    leadership = Leadership(ME, InSyncRules(Durability.REPLICATED), log_end=Offset(0), durable_end=Offset(0))
    leadership.step(StateApplied(shared), 0)
    assert append(leadership, 3, Acks.ALL, 7) == []
    assert leadership.high_watermark == 0


def test_should_abandon_its_waiters_when_another_leads() -> None:
    leadership = leader()
    append(leadership, 3, Acks.ALL, 7)

    effects = leadership.step(StateApplied(partition_state(leader=seat(1), partition_epoch=PartitionEpoch(2))), 0)

    assert effects == [Resign("the leader is 1@1"), Abandon((7,), "the leader is 1@1")]
    assert leadership.step(Synced(Offset(3)), 0) == []
    nobody = partition_state(leader=None, partition_epoch=PartitionEpoch(3))
    assert leadership.step(StateApplied(nobody), 0) == []


def test_should_lead_anew_and_keep_its_waiters_when_its_own_epoch_rises() -> None:
    leadership = leader()
    append(leadership, 3, Acks.ALL, 7)
    risen = partition_state(leader=ME, leader_epoch=LeaderEpoch(2), partition_epoch=PartitionEpoch(2))
    touched = partition_state(leader=ME, leader_epoch=LeaderEpoch(2), partition_epoch=PartitionEpoch(3))

    assert leadership.step(StateApplied(risen), 0) == [Lead(LeaderEpoch(2), "partition epoch 2 names 0@2")]
    assert leadership.step(StateApplied(touched), 0) == []
    assert Acknowledge((7,), "durable to 3") in leadership.step(Synced(Offset(3)), 0)


def test_should_give_up_for_ever_when_a_sync_fails() -> None:
    leadership = leader()
    append(leadership, 3, Acks.ALL, 7)
    assert leadership.step(SyncFailed("EIO"), 0) == [GiveUp((7,), "fdatasync failed: EIO")]
    assert not leadership.leads
    assert leadership.step(StateApplied(partition_state(leader=ME, partition_epoch=PartitionEpoch(5))), 0) == []


def test_should_answer_everybody_when_it_is_closed() -> None:
    leadership = leader()
    append(leadership, 3, Acks.ALL, 7)
    assert leadership.step(Closed("stopping"), 0) == [Resign("stopping"), Abandon((7,), "stopping")]
    assert leadership.step(Closed("stopping"), 0) == [Resign("stopping")]


def test_should_expire_those_whose_time_is_over_and_no_others() -> None:
    leadership = leader()
    append(leadership, 3, Acks.ALL, 7)
    leadership.step(Appended(Offset(5), 100, Waiter(8, Acks.ALL, expires_ms=2000)), 0)

    assert leadership.step(ReplicaTicked(), 999) == []
    assert leadership.step(ReplicaTicked(), 1000) == [Expire((7,), "not committed in time: the high watermark is 0")]
    assert leadership.waits
    assert leadership.step(Synced(Offset(5)), 1001)[0] == Acknowledge((8,), "durable to 5")


def test_should_say_who_leads_when_it_does_not() -> None:
    leadership = Leadership(ME, InSyncRules(Durability.FSYNC), log_end=Offset(0), durable_end=Offset(0))
    with pytest.raises(PartitionOfflineError, match="flights/0 has no leader"):
        leadership.check_leader("flights/0", Fence())
    leadership.step(StateApplied(partition_state(leader=seat(1))), 0)
    with pytest.raises(NotLeaderError, match="0 does not lead flights/0; 1@1 does") as refused:
        leadership.check_leader("flights/0", Fence())
    assert refused.value.details == {"leader": 1}


def test_should_fence_requests_that_know_another_epoch_or_topic() -> None:
    leadership = leader()
    assert leadership.check_leader("flights/0", Fence(leader_epoch=LeaderEpoch(1))) == 1
    with pytest.raises(FencedEpochError, match="leaderEpoch 4 is not that of flights/0, which is 1") as fenced:
        leadership.check_leader("flights/0", Fence(leader_epoch=LeaderEpoch(4)))
    assert fenced.value.details == {"leaderEpoch": 1}

    Fence().check_topic("flights", TopicUid("u1"))
    Fence(TopicUid("u1")).check_topic("flights", TopicUid("u1"))
    with pytest.raises(StaleTopicError, match="topicUid u0 is not that of topic flights"):
        Fence(TopicUid("u0")).check_topic("flights", TopicUid("u1"))


class Disk:
    """Carries out effects, and checks what must hold after each."""

    def __init__(self, leadership: Leadership) -> None:
        self.leadership = leadership
        self.syncs: deque[Offset] = deque()
        self.answered: list[int] = []
        self.log_end = 0

    def step(self, effects: list[Effect]) -> None:
        high_watermark = self.leadership.high_watermark
        for effect in effects:
            match effect:
                case Sync(up_to):
                    self.syncs.append(up_to)
                case Acknowledge(waiters) | Abandon(waiters) | Expire(waiters) | GiveUp(waiters):
                    self.answered.extend(waiters)
                case RaiseHighWatermark(raised):
                    assert raised <= high_watermark
                case Lead() | Resign():
                    pass
        assert len(self.syncs) <= 1
        assert high_watermark <= self.log_end


@given(st.data(), st.sampled_from(list(Durability)))
def test_should_answer_every_waiter_exactly_once_in_any_interleaving(
    data: st.DataObject, durability: Durability
) -> None:
    disk = Disk(leader(durability))
    waiters, epoch, high_watermark = 0, 1, 0
    for now_ms in range(data.draw(st.integers(1, 25), label="steps")):
        move = data.draw(st.sampled_from(["append", "repeat", "sync", "depose", "elect", "tick", "fail"]), label="move")
        leadership = disk.leadership
        if move == "append" and leadership.leads:
            acks = data.draw(st.sampled_from([Acks.LEADER, Acks.ALL]))
            disk.log_end += data.draw(st.integers(1, 5))
            waiter = Waiter(waiters, acks, expires_ms=now_ms + data.draw(st.integers(1, 9)))
            waiters += 1
            disk.step(leadership.step(Appended(Offset(disk.log_end), 10, waiter), now_ms))
        elif move == "repeat" and leadership.leads and disk.log_end:
            repeated = Offset(data.draw(st.integers(1, disk.log_end)))
            disk.step(leadership.step(Repeated(repeated, Waiter(waiters, Acks.ALL, now_ms + 9)), now_ms))
            waiters += 1
        elif move == "sync" and disk.syncs:
            disk.step(leadership.step(Synced(disk.syncs.popleft()), now_ms))
        elif move == "fail" and disk.syncs:
            disk.syncs.clear()
            disk.step(leadership.step(SyncFailed("EIO"), now_ms))
        elif move in ("depose", "elect"):
            epoch += 1
            state = partition_state(
                leader=ME if move == "elect" else seat(1),
                leader_epoch=LeaderEpoch(epoch),
                partition_epoch=PartitionEpoch(epoch),
            )
            disk.step(leadership.step(StateApplied(state), now_ms))
        else:
            disk.step(leadership.step(ReplicaTicked(), now_ms))
        assert leadership.high_watermark >= high_watermark
        high_watermark = leadership.high_watermark
    disk.step(disk.leadership.step(Closed("the end"), 99))
    assert sorted(disk.answered) == list(range(waiters))


def test_should_not_lead_in_an_epoch_below_its_log_until_the_api_says_a_later_one() -> None:
    leadership = Leadership(
        ME, InSyncRules(Durability.FSYNC), log_end=Offset(9), durable_end=Offset(9), last_epoch=LeaderEpoch(5)
    )
    assert leadership.step(StateApplied(LED), 0) == []
    assert not leadership.leads
    for number, named in enumerate((ME, seat(0, 1), None), 2):  # Whoever is named, if it is an older life or nobody.
        state = partition_state(leader=named, partition_epoch=PartitionEpoch(number), replicas=(ME.broker,))
        leadership.step(StateApplied(state), 0)
        with pytest.raises(PartitionOfflineError, match=r"below 5 that this replica has seen.*cluster recover"):
            leadership.check_leader("flights/0", Fence())

    recovered = partition_state(leader=ME, leader_epoch=LeaderEpoch(6), partition_epoch=PartitionEpoch(9))
    assert isinstance(leadership.step(StateApplied(recovered), 0)[0], Lead)


def test_should_resign_when_the_epoch_that_it_led_in_is_taken_back() -> None:
    leadership = Leadership(ME, InSyncRules(Durability.FSYNC), log_end=Offset(0), durable_end=Offset(0))
    leadership.step(StateApplied(partition_state(leader=ME, leader_epoch=LeaderEpoch(5))), 0)

    placed_anew = partition_state(leader=ME, partition_epoch=PartitionEpoch(2))
    (effect,) = leadership.step(StateApplied(placed_anew), 0)

    assert isinstance(effect, Resign)
    assert "below 5" in effect.reason

"""Epochs that rise are remembered; epochs below those are known for data that went back."""

from headrace.core.log.epochs import NO_EPOCH
from headrace.core.replication.seats import may_act_on, regressed_topics, to_remember
from headrace.core.types import BrokerId, LeaderEpoch, PartitionId, PartitionKey, TopicUid
from tests.support.partition_sets import partition_set, partition_state, seat

ME = BrokerId(0)
HERE = partition_state(0, leader=seat(0), leader_epoch=LeaderEpoch(4))
ELSEWHERE = partition_state(1, leader=seat(1), leader_epoch=LeaderEpoch(4))
SET = partition_set(HERE, ELSEWHERE)
KEY = PartitionKey(TopicUid("uid-1"), PartitionId(0))
ANOTHER = PartitionKey(TopicUid("uid-1"), PartitionId(1))


def test_should_remember_what_rises_of_its_own_partitions() -> None:
    assert to_remember([SET], ME, {}) == {KEY: 4}
    assert to_remember([SET], ME, {KEY: LeaderEpoch(3)}) == {KEY: 4}
    assert to_remember([SET], ME, {KEY: LeaderEpoch(4)}) == {}
    assert to_remember([partition_set(HERE, deleting=True)], ME, {}) == {}


def test_should_act_on_what_it_remembers_only() -> None:
    assert [may_act_on(HERE, ME, LeaderEpoch(seen)) for seen in (3, 4, 5)] == [False, True, True]
    assert may_act_on(ELSEWHERE, ME, NO_EPOCH)


def test_should_name_topics_whose_epochs_are_below_those_that_it_has_seen() -> None:
    assert regressed_topics([SET], {KEY: LeaderEpoch(5)}) == {"uid-1"}
    assert regressed_topics([SET], {KEY: LeaderEpoch(4), ANOTHER: LeaderEpoch(9)}) == {"uid-1"}
    assert regressed_topics([SET], {KEY: LeaderEpoch(4), ANOTHER: LeaderEpoch(4)}) == frozenset()
    assert regressed_topics([SET], {}) == frozenset()

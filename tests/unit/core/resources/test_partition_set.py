"""A cluster in numbers: only leaders and replicas that live count as there.

PartitionSets are read as they were written, with the annotations that a topic and its sets have.
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.limits import TOPIC_PARTITIONS_MAX
from headrace.core.resources.metadata import InvalidResourceError, Metadata
from headrace.core.resources.partition_set import PartitionSet, PartitionState, census, set_name
from headrace.core.resources.topic import Places
from headrace.core.types import (
    BrokerId,
    Incarnation,
    LeaderEpoch,
    PartitionEpoch,
    PartitionId,
    PartitionKey,
    Seat,
    TopicUid,
)
from tests.support.control import topic
from tests.support.partition_sets import partition_set, partition_state, seat

broker_ids = st.integers(0, 99).map(BrokerId)
seats = st.builds(Seat, broker_ids, st.integers(1, 1 << 40).map(Incarnation))
brokers = st.lists(broker_ids, max_size=7).map(tuple)
states = st.builds(
    PartitionState,
    id=st.integers(0, 1023).map(PartitionId),
    leader=st.none() | seats,
    leader_epoch=st.integers(0, 1 << 30).map(LeaderEpoch),
    partition_epoch=st.integers(0, 1 << 30).map(PartitionEpoch),
    replicas=brokers,
    isr=st.lists(seats, max_size=7).map(tuple),
    adding=brokers,
    removing=brokers,
)
sets = st.builds(
    PartitionSet,
    metadata=st.just(Metadata("flights-0", "default", uid="uid-0", resource_version="7")),
    topic=st.just("flights"),
    topic_uid=st.just(TopicUid("uid-1")),
    partitions=st.lists(states, max_size=3).map(tuple),
    deleting=st.booleans(),
)


def test_should_write_out_replicas_that_come_and_go_and_a_set_that_is_deleted() -> None:
    moving = replace(partition_state(0, seat(0)), adding=(BrokerId(3),), removing=(BrokerId(0),))
    found = replace(partition_set(moving), deleting=True)
    assert PartitionSet.parse(found.to_object()) == found


@given(sets)
def test_should_come_back_when_any_set_is_written_out(found: PartitionSet) -> None:
    assert PartitionSet.parse(found.to_object()) == found


def test_should_spell_a_partition_as_the_contract_shows() -> None:
    assert partition_state(0, seat(0, 3), isr=(seat(0, 3), seat(1))).to_object() == {
        "id": 0,
        "leader": {"broker": 0, "incarnation": 3},
        "leaderEpoch": 1,
        "partitionEpoch": 1,
        "replicas": [0],
        "isr": [{"broker": 0, "incarnation": 3}, {"broker": 1, "incarnation": 1}],
    }


def test_should_leave_the_leader_out_when_the_partition_is_offline() -> None:
    assert "leader" not in partition_state().to_object()


@pytest.mark.parametrize(
    "change",
    [{"spec": None}, {"spec": {"topic": "flights"}}, {"spec": {"topic": "t", "topicUid": "u", "partitions": ["x"]}}],
)
def test_should_refuse_what_is_no_partition_set(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidResourceError, match="not a PartitionSet"):
        PartitionSet.parse({**partition_set().to_object(), **change})


def test_should_replace_only_the_partitions_of_the_same_id() -> None:
    first, second = partition_state(0, seat(0)), partition_state(1, seat(1))
    moved = partition_state(1, seat(2), leader_epoch=LeaderEpoch(2))
    assert partition_set(first, second).with_partitions(moved).partitions == (first, moved)


def test_should_know_its_topic_and_its_partitions_keys() -> None:
    found = partition_set()
    assert str(found.topic_name) == "default/flights"
    assert str(found.key(PartitionId(4))) == "uid-1/4"


@pytest.mark.parametrize(("partition", "name"), [(0, "t-0"), (99, "t-0"), (100, "t-1"), (1023, "t-10")])
def test_should_hold_a_hundred_partitions_in_each_set(partition: int, name: str) -> None:
    assert set_name("t", PartitionId(partition)) == name


def test_should_write_a_seat_as_broker_at_incarnation() -> None:
    assert str(seat(2, 5)) == "2@5"


ZERO, ONE, TWO = (Seat(BrokerId(broker), Incarnation(2)) for broker in range(3))
ONE_BEFORE = Seat(BrokerId(1), Incarnation(1))


def state(leader: Seat | None, *isr: Seat, replicas: tuple[int, ...] = (0, 1, 2)) -> PartitionState:
    brokers = tuple(BrokerId(broker) for broker in replicas)
    return PartitionState(PartitionId(0), leader, LeaderEpoch(1), PartitionEpoch(1), brokers, isr)


def test_should_count_what_is_whole_by_broker() -> None:
    found = census([state(ZERO, ZERO, ONE, TWO), state(ONE, ONE, replicas=(1,))], {ZERO, ONE, TWO})
    assert (found.partitions, found.offline, found.under_replicated) == (2, 0, 0)
    assert (found.leaders, found.replicas) == ({0: 1, 1: 1}, {0: 1, 1: 2, 2: 1})


def test_should_take_a_leader_of_an_earlier_life_for_none_and_its_seat_for_out_of_sync() -> None:
    found = census([state(ONE_BEFORE, ONE_BEFORE, ZERO, TWO)], {ZERO, ONE, TWO})
    assert (found.offline, found.under_replicated, found.leaders) == (1, 1, {})


def test_should_count_a_partition_that_nobody_leads_as_offline() -> None:
    found = census([state(None, ZERO)], {ZERO})
    assert (found.offline, found.under_replicated) == (1, 1)


OLD = TopicUid("0f6c0000-1111-2222-3333-444455556666")
ALL = Places(TOPIC_PARTITIONS_MAX, TOPIC_PARTITIONS_MAX)


def test_should_read_how_many_partitions_had_places() -> None:
    noted = topic().noted(Places(3, 9))
    assert topic(metadata={"annotations": noted}).places == Places(3, 9)
    assert topic("other", metadata={"annotations": noted}).places == Places(), "it was copied with the manifest"


@pytest.mark.parametrize(
    "note", ["uid-flights/", "uid-flights/6", "uid-flights/6/x", "uid-flights/-1/6", "uid-flights"]
)
def test_should_take_a_note_that_cannot_be_read_for_all_of_them(note: str) -> None:
    assert topic(metadata={"annotations": {"headrace.io/placed": note}}).places == ALL


def test_should_name_what_its_partitions_were_before() -> None:
    bare = partition_set(*(partition_state(number, leader=seat(0)) for number in range(3)))
    assert (bare.adopted_uid, bare.adopted) == (None, {})
    some = bare.adopting(OLD, [PartitionId(2)]).adopting(OLD, [PartitionId(0)])
    read = PartitionSet.parse(some.to_object())
    assert read.adopted_uid == OLD
    assert read.adopted == {number: PartitionKey(OLD, PartitionId(number)) for number in (0, 2)}

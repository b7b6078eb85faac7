"""A broker that stops waits for whoever can take over, and for nobody else.

A damaged log is cut only where others have all of it.
"""

from dataclasses import replace
from typing import Any

import pytest

from headrace.core.replication.draining import (
    Placed,
    ToGiveAway,
    kept_in_sync,
    others_have_it,
    placed,
    to_give_away,
    to_hand_over,
)
from headrace.core.resources.kubernetes_objects import BrokerSet
from headrace.core.resources.partition_set import PartitionState
from headrace.core.types import BrokerId, Seat
from tests.support.control import topic
from tests.support.partition_sets import partition_set, partition_state, seat

ME, OTHER, THIRD = seat(0), seat(1), seat(2)
BOTH = (BrokerId(0), BrokerId(1))
ALL = (*BOTH, BrokerId(2))
SHARED = partition_state(0, leader=ME, replicas=BOTH, isr=(ME, OTHER))
BEHIND = partition_state(1, leader=ME, replicas=BOTH, isr=(ME,))
ALONE = partition_state(2, leader=ME)
THEIRS = partition_state(3, leader=OTHER, replicas=BOTH, isr=(ME, OTHER))


def test_should_wait_only_for_what_a_ready_member_of_the_isr_could_lead() -> None:
    partitions = [*map(Placed, (SHARED, BEHIND, ALONE, THEIRS))]
    assert to_hand_over(partitions, ME, {ME, OTHER}) == 1
    assert to_hand_over(partitions, ME, {ME}) == 0, "the other one drains too, or is away"
    assert to_hand_over(partitions, ME, {seat(1, 2)}) == 0, "its seat is void"


def test_should_not_wait_for_leaders_whom_nobody_will_elect() -> None:
    assert to_hand_over([Placed(SHARED, is_tended=False)], ME, {ME, OTHER}) == 0


FLIGHTS = topic(minInsyncReplicas=1)


@pytest.mark.parametrize(
    ("change", "is_tended"),
    [({}, True), ({"annotations": {"headrace.io/paused": "true"}}, False), ({"deletion_timestamp": "2026"}, False)],
)
def test_should_know_whom_the_operator_leaves_alone(change: dict[str, Any], is_tended: bool) -> None:
    changed = replace(FLIGHTS, metadata=replace(FLIGHTS.metadata, **change))
    shared = partition_set(SHARED, uid=FLIGHTS.uid)
    name = str(shared.topic_name)
    assert [*placed([shared], [changed], ())] == [Placed(SHARED, 1, is_tended, topic=name)]
    assert [*placed([shared], [changed], {FLIGHTS.uid})] == [Placed(SHARED, 1, is_tended=False, topic=name)]
    assert [*placed([shared], [], ())] == [Placed(SHARED, 1, is_tended=False, topic=name)]
    deleting = replace(shared, deleting=True)
    assert [*placed([deleting], [changed], ())] == [Placed(SHARED, 1, is_tended=False, is_deleting=True, topic=name)]
    assert str(Placed(SHARED, topic=name)) == f"{name}/0"


def keeps(state: PartitionState, least: int, *ready: Seat, is_tended: bool = True) -> bool:
    """Whether broker 0, which stops, is to stay in sync for others."""
    return bool(kept_in_sync([Placed(state, least, is_tended)], ME, ready))


def of_three(*isr: Seat, **changes: Any) -> PartitionState:
    return partition_state(leader=OTHER, replicas=ALL, isr=isr, **changes)


def test_should_stay_in_sync_while_too_few_are_without_it_and_another_comes() -> None:
    assert keeps(of_three(ME, OTHER), 2, OTHER, THIRD), "the third one catches up"
    assert not keeps(of_three(ME, OTHER, THIRD), 2, OTHER, THIRD), "it has"
    assert not keeps(of_three(ME, OTHER), 1, OTHER, THIRD), "one is enough"
    assert keeps(of_three(ME), 1, OTHER, THIRD), "it is the last one that has everything"
    assert keeps(of_three(ME, OTHER, seat(2, 1)), 2, OTHER, seat(2, 2)), "the seat of the third one is void"
    assert not keeps(of_three(OTHER), 2, OTHER, THIRD), "it is not in sync itself"


def test_should_stay_for_nobody_who_is_not_on_the_way() -> None:
    assert not keeps(of_three(ME, OTHER), 2, OTHER), "the third one is away, or drains too"
    assert not keeps(of_three(ME, OTHER), 2), "as when all stop at once"
    assert not keeps(of_three(ME, OTHER), 2, OTHER, seat(3)), "it holds no replica"
    assert not keeps(of_three(ME, OTHER), 2, ME, OTHER), "its own Lease does not say yet that it drains"
    assert not keeps(of_three(ME, OTHER), 2, OTHER, THIRD, is_tended=False), "the topic is paused, or goes"


def test_should_stay_for_no_more_than_there_can_be_without_it() -> None:
    assert not keeps(ALONE, 1, OTHER), "one replica"
    moving = partition_state(leader=ME, replicas=BOTH, isr=(ME,), adding=(OTHER.broker,))
    assert not keeps(moving, 1, OTHER), "one replica, on its way elsewhere: it may be large"
    assert not keeps(of_three(ME, OTHER, THIRD), 3, OTHER, THIRD), "all are needed, and all are there"
    assert keeps(of_three(ME, OTHER), 3, OTHER, THIRD), "all are needed: a second one had better not be missing"
    instead = (*ALL, BrokerId(3))
    replaced = replace(of_three(ME, OTHER), replicas=instead, adding=(BrokerId(3),), removing=(BrokerId(2),))
    assert keeps(replaced, 2, OTHER, seat(3)), "it comes in place of one that was lost"


def given(*partitions: Placed, to_stay: int = 2, ready: tuple[Seat, ...] = (ME, OTHER, THIRD)) -> ToGiveAway:
    """By broker 2, where so many brokers are to stay."""
    return to_give_away(partitions, BrokerId(2), BrokerSet(0, to_stay), ready)


def everywhere(*isr: Seat, **changes: Any) -> PartitionState:
    return partition_state(leader=ME, replicas=ALL, isr=isr or (ME, OTHER, THIRD), **changes)


def test_should_wait_for_what_others_take() -> None:
    on_two = partition_state(leader=ME, replicas=(BrokerId(0), BrokerId(2)), isr=(ME, THIRD))
    assert given(Placed(on_two), ready=()) == (1, 0, 0), "broker 1 is to stay, whether it is there or not"
    assert given(Placed(everywhere(removing=(BrokerId(2),)))) == (1, 0, 0)
    assert given(Placed(everywhere()), to_stay=1, ready=()) == (0, 1, 0)
    assert given(Placed(SHARED)) == (0, 0, 0), "it holds nothing of it"
    assert given(Placed(on_two)).awaited == 1


def test_should_go_with_what_nobody_can_take_where_writes_go_on_without() -> None:
    assert given(Placed(everywhere(), 2)) == (0, 0, 1)
    assert given(Placed(everywhere(), 2)).awaited == 0


def test_should_wait_where_writes_would_stop() -> None:
    assert given(Placed(everywhere(), 3)) == (0, 1, 0)
    assert given(Placed(everywhere(ME, THIRD), 2)) == (0, 1, 0), "one is not in sync"
    assert given(Placed(everywhere(), 2), ready=(ME, THIRD)) == (0, 1, 0), "one is away"
    assert given(Placed(everywhere(), 2), to_stay=1) == (0, 1, 0), "one is to go, too"


def test_should_wait_for_its_data_to_be_deleted_and_not_for_what_nobody_moves() -> None:
    assert given(Placed(everywhere(), 2, is_tended=False, is_deleting=True)) == (1, 0, 0)
    assert given(Placed(everywhere(), 2, is_tended=False), to_stay=9) == (0, 0, 1)


def test_should_wait_for_nobody_where_nobody_is_to_stay() -> None:
    assert given(Placed(everywhere(), 3), to_stay=0) == (0, 0, 0)


A, B, C = seat(0), seat(1), seat(2)


@pytest.mark.parametrize(
    ("isr", "ready", "least", "may"),
    [
        ((A, B, C), {A, B, C}, 2, True),
        ((A, B, C), {A, B}, 2, False),
        ((A, B), {A, B}, 2, False),
        ((A, B), {A, B}, 1, True),
        ((B, C), {B, C}, 2, True),
        ((A,), {A, B, C}, 1, False),
        ((), {A, B, C}, 1, False),
        ((A, B, C), {A, B, C}, 3, True),
        ((A, B), {A, B, C}, 3, False),
    ],
)
def test_should_do_without_it_when_as_many_others_have_it_as_must_be_in_sync(
    isr: tuple[Seat, ...], ready: set[Seat], least: int, may: bool
) -> None:
    state = partition_state(leader=A, isr=isr, replicas=(A.broker, B.broker, C.broker))
    assert others_have_it(state, A, ready, least) is may


def test_should_never_cut_what_only_it_has() -> None:
    assert not others_have_it(partition_state(leader=A, isr=(A,), replicas=(A.broker,)), A, {A}, 1)


def test_should_not_count_an_earlier_life_as_another() -> None:
    state = partition_state(leader=B, isr=(A, B), replicas=(A.broker, B.broker))
    later = Seat(A.broker, type(A.incarnation)(A.incarnation + 1))
    assert not others_have_it(state, later, {A}, 1)
    assert others_have_it(state, later, {B}, 1)

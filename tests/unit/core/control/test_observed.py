from dataclasses import replace

import pytest

from headrace.core.control.liveness import Liveness
from headrace.core.control.observed import (
    Broker,
    BrokerState,
    DeletionTimers,
    Observed,
    SteadyTimers,
    leaving_of,
    regressed_of,
)
from headrace.core.resources.kubernetes_objects import BrokerSet
from headrace.core.resources.lease import BrokerLease
from headrace.core.resources.metadata import Metadata
from headrace.core.types import BrokerId, Incarnation, Seat, TopicUid
from tests.support.control import broker
from tests.support.partition_sets import partition_state, seat

UID = TopicUid("uid-1")


def lease(renewed: str = "1", *, incarnation: int = 4, draining: bool = False, clean: bool = False) -> BrokerLease:
    return BrokerLease(
        Metadata("headrace-broker-2"),
        BrokerId(2),
        Incarnation(incarnation),
        "http://broker-2",
        zone="a",
        draining=draining,
        clean=clean,
        renew_time=renewed,
    )


def state_of(found: BrokerLease, *, first: BrokerLease | None = None, now_ms: int = 5) -> BrokerState:
    """What `found` makes of a broker whose Lease was `first` at 0, the beginning."""
    liveness = Liveness(duration_ms=10)
    liveness.observe_all([first or found], 0)
    liveness.observe(found, 1)
    return Broker.of(found, liveness, now_ms).state


def test_should_read_id_incarnation_and_zone_from_the_lease() -> None:
    found = Broker.of(lease(), Liveness(), 0)
    assert (found.seat, found.zone) == (Seat(BrokerId(2), Incarnation(4)), "a")


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (lease("2"), BrokerState.READY),
        (lease("2", draining=True), BrokerState.DRAINING),
        (lease("2", clean=True), BrokerState.LOST),
        (lease("2", incarnation=0), BrokerState.LOST),
        (lease("1"), BrokerState.UNPROVEN),
        (lease("1", draining=True), BrokerState.UNPROVEN),
    ],
)
def test_should_tell_the_state_from_lease_and_liveness(found: BrokerLease, state: BrokerState) -> None:
    assert state_of(found, first=lease("1", draining=found.draining)) is state


def test_should_be_lost_when_the_lease_ran_out() -> None:
    assert state_of(lease("2"), first=lease("1"), now_ms=11) is BrokerState.LOST


def observed(*known: Broker) -> Observed:
    return Observed("headrace", (), {b.id: b for b in known})


def test_should_hold_a_seat_only_in_the_present_life_of_a_live_broker() -> None:
    world = observed(broker(0, incarnation=2), broker(1, state=BrokerState.LOST))
    assert world.holds(seat(0, 2))
    assert not world.holds(seat(0, 1)), "an older incarnation"
    assert not world.holds(seat(1)), "lost"
    assert not world.holds(seat(9)), "unknown"
    assert not world.holds(None), "nobody"


def test_should_hold_a_seat_when_its_broker_drains() -> None:
    assert observed(broker(0, state=BrokerState.DRAINING)).holds(seat(0))


def test_should_not_know_the_holders_when_one_of_them_is_unproven() -> None:
    world = observed(broker(0), broker(1, state=BrokerState.UNPROVEN))
    assert world.knows_holders_of(partition_state(leader=seat(0)))
    assert not world.knows_holders_of(partition_state(leader=seat(1)))
    assert world.knows_holders_of(partition_state(leader=seat(9))), "a broker without a Lease is known to be away"


def test_should_name_brokers_in_a_state_in_order() -> None:
    world = observed(broker(2), broker(0), broker(1, state=BrokerState.LOST))
    assert [b.id for b in world.in_state(BrokerState.READY)] == [0, 2]


def test_should_be_overdue_when_the_wait_since_first_seen_is_over() -> None:
    timers = DeletionTimers(wait_ms=30)
    assert timers.observe([UID], 100) == frozenset()
    assert timers.next_due_ms(100) == 130
    assert timers.observe([UID], 129) == frozenset()
    assert timers.observe([UID], 130) == {UID}
    assert timers.next_due_ms(130) is None


def test_should_forget_a_deletion_when_the_topic_is_gone() -> None:
    timers = DeletionTimers(wait_ms=30)
    timers.observe([UID], 0)
    timers.observe([], 10)
    assert timers.observe([UID], 20) == frozenset()
    assert timers.next_due_ms(20) == 50


def test_should_be_steady_when_it_was_ready_for_long_enough_in_one_life() -> None:
    timers = SteadyTimers(delay_ms=30)
    assert timers.observe([broker(0), broker(1)], 100) == frozenset()
    assert timers.next_due_ms(100) == 130
    assert timers.observe([broker(0), broker(1, incarnation=2)], 130) == {0}
    assert timers.next_due_ms(130) == 160


@pytest.mark.parametrize("state", [BrokerState.LOST, BrokerState.DRAINING, BrokerState.UNPROVEN])
def test_should_begin_anew_when_it_was_not_ready_in_between(state: BrokerState) -> None:
    timers = SteadyTimers(delay_ms=30)
    timers.observe([broker(0)], 0)
    assert timers.observe([broker(0, state=state)], 40) == frozenset()
    assert timers.next_due_ms(40) is None
    assert timers.observe([broker(0)], 50) == frozenset()
    assert timers.observe([broker(0)], 80) == {0}


def test_should_serve_only_where_the_broker_has_proved_to_live() -> None:
    world = observed(broker(0), broker(1, state=BrokerState.UNPROVEN), broker(2, state=BrokerState.DRAINING))
    assert [world.serves(each) for each in (seat(0), seat(1), seat(2), seat(0, 2), None)] == [
        True,
        False,
        True,
        False,
        False,
    ]


def test_should_take_a_broker_without_a_lease_for_lost() -> None:
    assert observed().state_of(BrokerId(7)) is BrokerState.LOST


def test_should_give_replicas_only_to_brokers_that_are_ready_and_stay() -> None:
    world = Observed(
        "headrace",
        (),
        {b.id: b for b in (broker(0), broker(1), broker(2, state=BrokerState.DRAINING))},
        leaving=frozenset({BrokerId(1)}),
    )
    assert [world.is_open_to(BrokerId(number)) for number in range(4)] == [True, False, False, False]


def test_should_call_those_leaving_whom_the_stateful_set_does_not_ask_for() -> None:
    known = [BrokerId(number) for number in range(4)]
    assert leaving_of(known, BrokerSet(first=0, replicas=2)) == {2, 3}
    assert leaving_of(known, None) == frozenset(), "brokers that nothing but themselves runs"


def test_should_believe_brokers_that_live_when_they_say_that_epochs_went_back() -> None:
    known = [replace(broker(number), regressed=frozenset({TopicUid(f"uid-{number}")})) for number in range(3)]
    known[1] = replace(known[1], state=BrokerState.LOST)
    known[2] = replace(known[2], state=BrokerState.UNPROVEN)
    assert regressed_of(known) == {"uid-0", "uid-2"}


def test_should_know_whose_disk_is_full() -> None:
    world = observed(broker(0), replace(broker(1), full=True))
    assert [world.is_full(BrokerId(number)) for number in range(3)] == [False, True, False]

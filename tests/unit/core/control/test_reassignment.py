"""Replicas are added, catch up, and only then do the old ones go."""

from dataclasses import replace
from typing import Any

import pytest

from headrace.core.control.actions import ChangeBudget
from headrace.core.control.observed import Broker, BrokerState, Observed
from headrace.core.control.placement import Load
from headrace.core.control.reassignment import Reassignment, Unfinished, reassign
from headrace.core.resources.partition_set import PartitionState
from headrace.core.types import BrokerId, PartitionId, Seat
from tests.support.control import broker, brokers, topic
from tests.support.partition_sets import partition_state, seat

LOST = BrokerState.LOST


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


def at(*numbers: int, isr: tuple[Seat, ...] | None = None, id: int = 0, **more: Any) -> PartitionState:  # noqa: A002
    """Stands on these brokers, all of them in sync unless `isr` says who is; the first of the ISR leads."""
    in_sync = isr or tuple(map(seat, numbers))
    return replace(partition_state(id, leader=in_sync[0], replicas=ids(*numbers), isr=in_sync), **more)


def world(
    *known: Broker, count: int = 4, leaving: tuple[int, ...] = (), steady: tuple[int, ...] | None = None
) -> Observed:
    """So many ready brokers, steady ones, but for those that are given."""
    by_id = {each.id: each for each in (*brokers(count), *known)}
    even = frozenset(by_id) if steady is None else frozenset(ids(*steady))
    return Observed("headrace", (), by_id, leaving=frozenset(ids(*leaving)), steady=even)


def step(
    *states: PartitionState,
    replicas: int,
    observed: Observed,
    budget: ChangeBudget | None = None,
    preferred: dict[int, int] | None = None,
    **spec: Any,
) -> Reassignment:
    leaders = {PartitionId(id_): BrokerId(broker) for id_, broker in (preferred or {}).items()}
    wanted = topic(partitions=len(states), replicas=replicas, **spec).spec
    return reassign(wanted, states, observed, budget or ChangeBudget.of(states, observed), Load(), leaders)


def only(found: PartitionState, replicas: int, observed: Observed, **spec: Any) -> PartitionState | None:
    """What becomes of a single partition; None where nothing does."""
    changes = step(found, replicas=replicas, observed=observed, **spec).changes
    if found.id not in changes:
        return None
    change = changes[found.id]
    assert change.reason
    assert change.state.partition_epoch == found.partition_epoch + 1
    assert change.state.leader == found.leader
    assert change.state.leader_epoch == found.leader_epoch
    return change.state


def moving(found: PartitionState | None) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    assert found is not None
    return found.replicas, found.adding, found.removing


def test_should_leave_alone_what_stands_as_it_should() -> None:
    assert step(at(0, 1), at(1, 0, id=1), replicas=2, observed=world(count=2)) == Reassignment()


def test_should_add_replicas_and_count_them_in_when_they_have_caught_up() -> None:
    added = only(at(0), 3, world(count=3))
    assert moving(added) == ((0, 1, 2), (1, 2), ())
    assert added is not None
    assert only(added, 3, world(count=3)) is None, "they have yet to catch up"
    one_in_sync = replace(added, isr=(seat(0), seat(1)))
    assert moving(only(one_in_sync, 3, world(count=3))) == ((0, 1, 2), (2,), ())
    both_in_sync = replace(added, isr=(seat(0), seat(2), seat(1)))
    assert moving(only(both_in_sync, 3, world(count=3))) == ((0, 1, 2), (), ())


def test_should_not_count_a_seat_of_an_older_life_as_caught_up() -> None:
    added = at(0, 1, adding=ids(1))
    assert only(added, 2, world(broker(1, incarnation=2), count=2)) is None


def test_should_say_that_there_are_too_few_brokers_and_add_none() -> None:
    found = step(at(0), replicas=3, observed=world(count=2))
    assert found == Reassignment(unfinished=Unfinished(too_few=True))


def test_should_not_miss_brokers_while_a_replica_is_merely_away() -> None:
    observed = world(broker(1, state=LOST), count=2)
    assert step(at(0, 1, isr=(seat(0),)), replicas=2, observed=observed) == Reassignment()


def test_should_replace_a_broker_that_there_never_was() -> None:
    named = at(0, 9, isr=(seat(0),))
    assert moving(only(named, 2, world(count=2))) == ((0, 1, 9), (1,), (9,))
    assert step(named, replicas=2, observed=world(count=1)) == Reassignment(), "nobody can take over"
    for known in (replace(world(count=2), unreadable=ids(9)), replace(world(count=2), expected=ids(9))):
        assert only(named, 2, known) is None, "it is there, or about to come"


def test_should_announce_who_is_to_go_before_they_go() -> None:
    going = only(at(0, 1, 2), 1, world(count=3))
    assert moving(going) == ((0, 1, 2), (), (1, 2)), "their brokers delete only what they saw in `removing`"
    assert going is not None
    assert going.isr == at(0, 1, 2).isr
    after = only(going, 1, world(count=3))
    assert moving(after) == ((0,), (), ())
    assert after is not None
    assert after.isr == (seat(0),)


def test_should_keep_the_replica_that_is_in_sync_and_wait_until_the_leader_has_moved() -> None:
    after = only(at(0, 1, isr=(seat(1),)), 1, world(count=2))
    assert moving(after) == ((1, 0), (), (0,))
    led_by_1 = at(0, 1, isr=(seat(1), seat(0)))
    waits = only(led_by_1, 1, world(count=2))
    assert moving(waits) == ((0, 1), (), (1,))
    assert waits is not None
    assert only(waits, 1, world(count=2)) is None
    assert moving(only(replace(waits, leader=seat(0)), 1, world(count=2))) == ((0,), (), ())


def test_should_give_up_the_replica_whose_broker_is_away() -> None:
    observed = world(broker(0, state=LOST), count=3)
    going = only(at(0, 1, 2, isr=(seat(1), seat(2))), 2, observed)
    assert moving(going) == ((1, 2, 0), (), (0,))
    assert going is not None
    assert moving(only(going, 2, observed)) == ((1, 2), (), ())


def test_should_never_take_the_isr_below_the_minimum() -> None:
    found = at(0, 1, 2, isr=(seat(0), seat(1), seat(2)), removing=ids(2))
    lost = world(broker(1, state=LOST), count=3)
    assert only(found, 2, lost, minInsyncReplicas=2) is None
    assert moving(only(found, 2, lost, minInsyncReplicas=1)) == ((0, 1), (), ())


def test_should_wait_for_every_live_replica_of_the_target() -> None:
    found = at(0, 1, 2, isr=(seat(0), seat(2)), removing=ids(2))
    assert only(found, 2, world(count=3)) is None


# A broker leaves


def test_should_bring_another_in_before_a_broker_leaves() -> None:
    leaving = world(count=3, leaving=(1,))
    added = only(at(0, 1), 2, leaving)
    assert moving(added) == ((0, 2, 1), (2,), (1,))
    assert added is not None
    caught_up = replace(added, isr=(seat(0), seat(1), seat(2)))
    gone = only(caught_up, 2, leaving)
    assert moving(gone) == ((0, 2), (), ())
    assert gone is not None
    assert gone.isr == (seat(0), seat(2))


def test_should_move_a_single_replica_too() -> None:
    leaving = world(count=2, leaving=(0,))
    added = only(at(0), 1, leaving)
    assert moving(added) == ((1, 0), (1,), (0,))
    assert added is not None
    caught_up = only(replace(added, isr=(seat(0), seat(1))), 1, leaving)
    assert moving(caught_up) == ((1, 0), (), (0,)), "0 leads"
    assert caught_up is not None
    assert moving(only(replace(caught_up, leader=seat(1)), 1, leaving)) == ((1,), (), ())


def test_should_say_which_brokers_cannot_leave() -> None:
    found = step(at(0, 1), replicas=2, observed=world(count=2, leaving=(0, 1)))
    assert found == Reassignment(unfinished=Unfinished(stuck=ids(0, 1)))


# The topic or the cluster changes again


def test_should_turn_back_when_the_replicas_are_not_wanted_any_more() -> None:
    half = at(0, 1, 2, isr=(seat(0), seat(1)), adding=ids(1, 2))
    for observed in (world(count=3), world(broker(0, state=BrokerState.DRAINING), count=3)):
        going = only(half, 1, observed)
        assert moving(going) == ((0, 1, 2), (), (1, 2)), "2 has a part of a copy, to be deleted too"
        assert going is not None
        assert moving(only(going, 1, observed)) == ((0,), (), ())


def test_should_keep_whoever_is_in_sync_until_others_can_do_without() -> None:
    half = at(0, 1, 2, isr=(seat(0), seat(1)), adding=ids(1, 2), leader=seat(1))
    going = only(half, 1, world(count=3))
    assert moving(going) == ((0, 1, 2), (), (1, 2))
    assert going is not None
    assert only(going, 1, world(count=3)) is None, "1 leads"


def test_should_call_back_who_was_to_go() -> None:
    going = at(0, 1, 2, removing=ids(2), isr=(seat(0), seat(2)))
    assert moving(only(going, 3, world())) == ((0, 1, 2), (), ())


def test_should_call_back_who_was_to_leave_when_its_successor_is_to_leave_itself() -> None:
    half = at(0, 2, 1, isr=(seat(0), seat(1)), adding=ids(2), removing=ids(1))
    going = only(half, 2, world(leaving=(2,)))
    assert moving(going) == ((0, 1, 2), (), (2,))
    assert going is not None
    assert moving(only(going, 2, world(leaving=(2,)))) == ((0, 1), (), ())


# Turns


def test_should_let_no_more_partitions_copy_at_a_time_than_it_may() -> None:
    states = [at(0, id=number) for number in range(5)]
    budget = ChangeBudget(moves=2)
    found = step(*states, replicas=2, observed=world(count=2), budget=budget)
    assert sorted(found.changes) == [0, 1]
    assert found.unfinished == Unfinished(waiting=3)
    assert budget.moves == 0


def test_should_count_those_that_copy_already_unless_their_broker_is_away() -> None:
    copying = at(0, 1, adding=ids(1), isr=(seat(0),))
    away = world(broker(1, state=LOST))
    assert ChangeBudget.of([copying], world()).moves == ChangeBudget().moves - 1
    assert ChangeBudget.of([copying], away).moves == ChangeBudget().moves


def test_should_take_replicas_away_without_waiting_for_a_turn() -> None:
    states = [at(0, 1, id=number) for number in range(5)]
    found = step(*states, replicas=1, observed=world(count=2), budget=ChangeBudget(moves=0))
    assert len(found.changes) == 5


# When nothing may move


@pytest.mark.parametrize("what", ["offline", "unproven"])
def test_should_move_nothing_when_nobody_leads_or_it_is_not_known_who_lives(what: str) -> None:
    found, observed = at(0), world(count=3)
    if what == "offline":
        found = replace(found, leader=None)
    else:
        observed = world(broker(2, state=BrokerState.UNPROVEN), count=3)
    assert step(found, replicas=3, observed=observed).changes == {}


# Brokers that were added


def test_should_move_a_share_to_a_broker_that_was_added_once_it_is_steady() -> None:
    states = [at(0, 1, id=0), at(1, 0, id=1), at(0, 1, id=2)]
    assert step(*states, replicas=2, observed=world(count=3, steady=(0, 1))) == Reassignment()
    found = step(*states, replicas=2, observed=world(count=3))
    assert sum(2 in change.state.adding for change in found.changes.values()) == 2
    assert not found.unfinished.waiting


def test_should_not_level_while_anything_else_moves_or_lacks() -> None:
    uneven = [at(0, 1, id=number) for number in range(4)]
    busy = at(0, 1, id=9, adding=ids(1), isr=(seat(0),))
    assert step(*uneven, busy, replicas=2, observed=world(count=4)).changes == {}
    lagging = [replace(state, isr=(seat(0),)) for state in uneven]
    assert step(*lagging, replicas=2, observed=world(count=4)).changes == {}


def test_should_put_the_preferred_leader_first_and_copy_nothing() -> None:
    moved = step(at(0, 1, 2), at(1, 2, 0, id=1), replicas=3, observed=world(count=3), preferred={0: 2, 1: 1})
    (change,) = moved.changes.values()
    assert moving(change.state) == ((2, 0, 1), (), ())
    assert (change.state.id, change.state.leader) == (0, seat(0)), "an election moves it, once it may"


def test_should_leave_the_order_alone_that_somebody_wants() -> None:
    uneven = [at(0, 1, id=number) for number in range(4)]
    assert step(*uneven, replicas=2, observed=world(count=2)).changes, "balance would change it"
    pinned = dict.fromkeys(range(4), 0)
    assert step(*uneven, replicas=2, observed=world(count=2), preferred=pinned) == Reassignment()


def test_should_prefer_nobody_who_is_no_replica_or_while_replicas_move() -> None:
    assert step(at(0, 1), at(1, 0, id=1), replicas=2, observed=world(count=2), preferred={0: 2}) == Reassignment()
    (change,) = step(at(0), replicas=2, observed=world(count=2), preferred={0: 1}).changes.values()
    assert moving(change.state) == ((0, 1), (1,), ())
    assert step(change.state, replicas=2, observed=world(count=2), preferred={0: 1}).changes == {}


def test_should_move_a_replica_before_it_prefers_one() -> None:
    observed = world(count=3, leaving=(0,))
    (change,) = step(at(0, 1), replicas=2, observed=observed, preferred={0: 1}).changes.values()
    assert {*change.state.target} == {1, 2}

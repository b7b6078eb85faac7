"""Elections and shrinking, one partition at a time; `test_plan_state_machine` tries them together with all the rest.

Whom a Topic's annotation wants to lead: what can be done is done, what cannot is told with the remedy.
"""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from headrace.core.control.actions import Change, ChangeBudget
from headrace.core.control.conditions import Condition, by_type, notices
from headrace.core.control.elections import Elections, Preference, preference_of, preferred_condition
from headrace.core.control.observed import Broker, BrokerState, Observed
from headrace.core.resources.metadata import ConditionType
from headrace.core.resources.partition_set import PartitionState
from headrace.core.resources.topic import PREFERRED_ANNOTATION, Topic
from headrace.core.types import BrokerId, PartitionId, Seat
from tests.support.control import broker, brokers, topic
from tests.support.partition_sets import partition_state, seat

LOST, DRAINING, UNPROVEN = BrokerState.LOST, BrokerState.DRAINING, BrokerState.UNPROVEN


def state(*isr: Seat, leader: Seat | None = None, replicas: tuple[int, ...] = (0, 1, 2), **more: Any) -> PartitionState:
    """Of three replicas, led by the first of the ISR."""
    held = tuple(BrokerId(number) for number in replicas)
    return partition_state(leader=leader or isr[0], replicas=held, isr=isr, **more)


ALL_IN_SYNC = state(seat(0), seat(1), seat(2))


def world(*known: Broker, steady: tuple[int, ...] = (0, 1, 2), leaving: tuple[int, ...] = ()) -> Observed:
    """Three ready brokers in their first life, but for those that are given."""
    by_id = {each.id: each for each in (*brokers(3), *known)}
    return Observed(
        "headrace",
        (),
        by_id,
        steady=frozenset(map(BrokerId, steady)),
        leaving=frozenset(map(BrokerId, leaving)),
    )


def lost(*numbers: int) -> tuple[Broker, ...]:
    return tuple(broker(number, state=LOST) for number in numbers)


def elections(observed: Observed, budget: ChangeBudget | None = None, **spec: Any) -> Elections:
    return Elections(topic(replicas=3, **spec).spec, observed, budget or ChangeBudget(), Counter())


def looked_at(found: PartitionState, observed: Observed, **spec: Any) -> Change | None:
    return elections(observed, **spec).change_for(found)


def changed(found: PartitionState, observed: Observed, **spec: Any) -> PartitionState:
    change = looked_at(found, observed, **spec)
    assert change is not None
    assert change.reason
    assert change.state.partition_epoch == found.partition_epoch + 1
    return change.state


def test_should_do_nothing_when_all_is_well() -> None:
    assert looked_at(ALL_IN_SYNC, world()) is None


@pytest.mark.parametrize("gone", [broker(0, state=LOST), broker(0, incarnation=2)])
def test_should_elect_another_member_when_the_leader_is_gone(gone: Broker) -> None:
    after = changed(ALL_IN_SYNC, world(gone))
    assert (after.leader, after.leader_epoch) == (seat(1), 2)


def test_should_elect_when_nobody_leads() -> None:
    after = changed(replace(ALL_IN_SYNC, leader=None), world())
    assert (after.leader, after.leader_epoch, after.isr) == (seat(0), 2, ALL_IN_SYNC.isr)


def test_should_elect_when_the_leader_is_not_in_sync_or_no_replica() -> None:
    assert changed(state(seat(1), seat(2), leader=seat(0)), world()).leader == seat(1)
    assert changed(state(seat(0), seat(1), seat(2), replicas=(1, 2)), world()).leader == seat(1)


def test_should_prefer_the_preferred_leader_and_then_whoever_leads_least() -> None:
    assert changed(replace(ALL_IN_SYNC, leader=None), world()).leader == seat(0)
    several = elections(world(*lost(0)))
    leaders = [several.change_for(replace(ALL_IN_SYNC, id=number)) for number in range(4)]  # type: ignore[arg-type]
    assert [change.state.leader for change in leaders if change] == [seat(1), seat(2), seat(1), seat(2)]


def test_should_spare_whoever_leads_most_of_other_topics_when_they_lead_equally_many_of_this_one() -> None:
    budget = ChangeBudget(leads=Counter({BrokerId(1): 5}))
    change = elections(world(*lost(0)), budget).change_for(ALL_IN_SYNC)
    assert change is not None
    assert change.state.leader == seat(2)
    assert budget.leads == {1: 5, 2: 1}


def test_should_count_the_leader_that_it_moves() -> None:
    budget = ChangeBudget(leads=Counter({BrokerId(0): 1}))
    moved = elections(world(broker(0, state=DRAINING)), budget)
    moved.change_for(ALL_IN_SYNC)
    assert budget.leads == {0: 0, 1: 1}


def test_should_spare_a_broker_whose_disk_is_full() -> None:
    full = world(*lost(0), replace(broker(1), full=True))
    assert changed(ALL_IN_SYNC, full).leader == seat(2)
    away = replace(ALL_IN_SYNC, leader=seat(1))
    assert looked_at(away, world(replace(broker(0), full=True))) is None, "leaderships do not return to it"
    assert changed(away, world()).leader == seat(0)


# The ISR


def test_should_take_lost_brokers_out_of_the_isr_while_enough_are_in_sync() -> None:
    assert changed(ALL_IN_SYNC, world(*lost(2))).isr == (seat(0), seat(1))
    assert changed(ALL_IN_SYNC, world(*lost(0))).isr == (seat(1), seat(2))
    assert changed(ALL_IN_SYNC, world(*lost(1, 2)), minInsyncReplicas=1).isr == (seat(0),)


def test_should_shrink_without_an_election() -> None:
    after = changed(ALL_IN_SYNC, world(*lost(2)))
    assert (after.leader, after.leader_epoch) == (seat(0), 1)


def test_should_not_go_below_the_minimum_when_brokers_are_lost() -> None:
    assert looked_at(ALL_IN_SYNC, world(*lost(1, 2))) is None
    after = changed(ALL_IN_SYNC, world(*lost(0, 1)))
    assert (after.leader, after.isr) == (seat(2), ALL_IN_SYNC.isr)


def test_should_ask_for_no_more_in_sync_than_leaders_do() -> None:
    growing = state(seat(0), seat(1), adding=(BrokerId(1), BrokerId(2)))
    assert changed(growing, world(*lost(1))).isr == (seat(0),), "one replica is all that there was"
    assert looked_at(replace(growing, adding=(BrokerId(2),)), world(*lost(1))) is None


def test_should_not_count_a_seat_of_an_older_life_and_leave_it_where_it_is() -> None:
    returned = broker(1, incarnation=2)
    assert looked_at(ALL_IN_SYNC, world(returned)) is None, "it may renew its seat"
    assert looked_at(ALL_IN_SYNC, world(returned, *lost(2))) is None, "only the leader is in sync"
    after = changed(ALL_IN_SYNC, world(returned, *lost(2)), minInsyncReplicas=1)
    assert after.isr == (seat(0), seat(1))


def test_should_not_count_whoever_has_not_proved_to_live() -> None:
    assert looked_at(ALL_IN_SYNC, world(broker(1, state=UNPROVEN), *lost(2))) is None


def test_should_leave_the_seats_of_a_draining_broker_until_it_stops() -> None:
    assert looked_at(ALL_IN_SYNC, world(broker(2, state=DRAINING))) is None
    assert changed(ALL_IN_SYNC, world(broker(2, state=LOST))).isr == (seat(0), seat(1))


# Nobody can be elected


def test_should_go_offline_and_keep_the_isr_when_no_member_can_be_elected() -> None:
    after = changed(ALL_IN_SYNC, world(*lost(0, 1, 2)))
    assert (after.leader, after.leader_epoch, after.isr) == (None, 1, ALL_IN_SYNC.isr)
    assert looked_at(after, world(*lost(0, 1, 2))) is None


def test_should_wait_for_members_in_a_new_life_to_renew_their_seats() -> None:
    returned = [broker(number, incarnation=2) for number in range(3)]
    after = changed(ALL_IN_SYNC, world(*returned))
    assert (after.leader, after.isr) == (None, ALL_IN_SYNC.isr)
    renewed = replace(after, isr=(seat(0), seat(1, 2), seat(2)))
    assert changed(renewed, world(*returned)).leader == seat(1, 2)


def test_should_not_elect_who_drains_nor_shrink_while_nobody_leads() -> None:
    draining = broker(1, state=DRAINING)
    led_by_0 = state(seat(0), seat(1))
    after = changed(led_by_0, world(draining, *lost(0)), minInsyncReplicas=1)
    assert (after.leader, after.isr) == (None, led_by_0.isr)


def test_should_decide_nothing_on_a_mere_lease() -> None:
    assert looked_at(ALL_IN_SYNC, world(broker(0, state=UNPROVEN))) is None
    led_by_0 = state(seat(0), seat(1))
    assert looked_at(led_by_0, world(broker(1, state=UNPROVEN), *lost(0)), uncleanLeaderElection=True) is None


def test_should_elect_while_others_have_not_proved_to_live() -> None:
    assert changed(ALL_IN_SYNC, world(broker(1, state=UNPROVEN), *lost(0))).leader == seat(2)


def test_should_leave_a_single_replica_to_its_broker() -> None:
    assert looked_at(partition_state(leader=seat(0)), world(*lost(0))) is None
    assert looked_at(partition_state(leader=None), world()) is None


# Unclean


def test_should_elect_a_live_replica_and_say_what_is_lost_only_where_the_topic_allows_it() -> None:
    only_0 = state(seat(0))
    assert changed(only_0, world(*lost(0))).leader is None
    change = looked_at(only_0, world(*lost(0)), uncleanLeaderElection=True)
    assert change is not None
    assert (change.state.leader, change.state.isr, change.state.leader_epoch) == (seat(1), (seat(1),), 2)
    assert change.loss == (
        "1@1 was elected although it was not in sync, as spec.uncleanLeaderElection allows: acknowledged"
        " records that only those in sync had (brokers: 0) are lost"
    )


def test_should_not_elect_uncleanly_while_a_member_lives() -> None:
    only_0 = state(seat(0))
    after = changed(only_0, world(broker(0, incarnation=2)), uncleanLeaderElection=True)
    assert after.leader is None
    draining = world(broker(0, incarnation=2, state=DRAINING))
    assert looked_at(after, draining, uncleanLeaderElection=True) is None


def test_should_prefer_a_replica_that_had_caught_up_once_when_it_elects_uncleanly() -> None:
    adding = state(seat(0), adding=(BrokerId(1),))
    assert changed(adding, world(*lost(0)), uncleanLeaderElection=True).leader == seat(2)


def test_should_stay_offline_when_no_replica_lives() -> None:
    offline = replace(state(seat(0)), leader=None)
    assert looked_at(offline, world(*lost(0, 1, 2)), uncleanLeaderElection=True) is None
    draining = [broker(number, state=DRAINING) for number in (1, 2)]
    assert looked_at(offline, world(*lost(0), *draining), uncleanLeaderElection=True) is None


def test_should_say_so_when_nobody_was_in_sync() -> None:
    nobody = replace(ALL_IN_SYNC, leader=None, isr=())
    change = looked_at(nobody, world(), uncleanLeaderElection=True)
    assert change is not None
    assert "(brokers: nobody)" in change.loss


# Leaders that move


def test_should_move_leaders_off_a_draining_broker_and_let_it_go_on_where_nobody_else_can() -> None:
    draining = broker(0, state=DRAINING)
    after = changed(ALL_IN_SYNC, world(draining))
    assert (after.leader, after.isr) == (seat(1), ALL_IN_SYNC.isr)
    assert looked_at(state(seat(0)), world(draining)) is None


def test_should_move_leaders_off_a_broker_that_is_to_leave_or_to_give_its_replica_away() -> None:
    assert changed(ALL_IN_SYNC, world(leaving=(0, 1))).leader == seat(2)
    assert looked_at(ALL_IN_SYNC, world(leaving=(0, 1, 2))) is None
    removing = state(seat(0), seat(1), replicas=(1, 2, 0), removing=(BrokerId(0),))
    assert changed(removing, world(steady=())).leader == seat(1)
    assert looked_at(replace(removing, adding=(BrokerId(2),)), world(steady=())) is None, "there is no hurry"


def test_should_let_one_that_is_to_leave_lead_when_there_is_nobody_else() -> None:
    assert changed(state(seat(0), seat(1)), world(*lost(0), leaving=(1,))).leader == seat(1)
    drained = changed(state(seat(0), seat(1)), world(broker(0, state=DRAINING), leaving=(1,)))
    assert drained.leader == seat(1)


def test_should_return_to_the_preferred_leader_once_it_is_in_sync_and_steady() -> None:
    led_by_1 = state(seat(0), seat(1), leader=seat(1))
    after = changed(led_by_1, world())
    assert (after.leader, after.leader_epoch, after.isr) == (seat(0), 2, led_by_1.isr)
    assert looked_at(led_by_1, world(steady=(1, 2))) is None
    assert looked_at(led_by_1, world(leaving=(0,))) is None
    assert looked_at(state(seat(1), seat(2)), world()) is None, "it is not in sync"
    assert looked_at(state(seat(1), seat(0)), world(broker(0, incarnation=2))) is None, "it has not renewed its seat"


def test_should_return_no_more_leaders_than_it_may_in_one_pass() -> None:
    led_by_1 = state(seat(0), seat(1), leader=seat(1))
    some = elections(world(), ChangeBudget(returns=2))
    assert [some.change_for(led_by_1) is not None for _ in range(3)] == [True, True, False]


def test_should_stay_where_it_is_when_every_replica_is_to_be_removed() -> None:
    removing = state(seat(0), seat(1), replicas=(0, 1), removing=(BrokerId(0), BrokerId(1)))
    assert looked_at(removing, world()) is None


def at(number: int, *replicas: int) -> PartitionState:
    return partition_state(number, replicas=tuple(map(BrokerId, replicas)))


STATES = [at(0, 0, 1), at(1, 1, 2)]


def annotated(text: str | None) -> Topic:
    annotations = {} if text is None else {PREFERRED_ANNOTATION: text}
    return topic(partitions=2, replicas=2, metadata={"annotations": annotations})


def told(text: str | None, *before: dict[str, Any]) -> Condition | None:
    conditions = preferred_condition(replace(annotated(text), status={"conditions": [*before]}), STATES)
    return conditions[0] if conditions else None


def test_should_want_nothing_without_the_annotation() -> None:
    assert preference_of(annotated(None), STATES) == Preference()
    assert told(None) is None
    before = {"type": "PreferredLeaders", "status": "True"}
    assert told(None, {"type": "Ready"}, before) == Condition.off(ConditionType.PREFERRED_LEADERS, "NotSet")


def test_should_want_what_is_written() -> None:
    text = '{"0": 1, "1": 1}'
    assert preference_of(annotated(text), STATES).wanted == {PartitionId(0): BrokerId(1), PartitionId(1): BrokerId(1)}
    assert told(text) == Condition.on(ConditionType.PREFERRED_LEADERS, "Accepted")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0: 1", "'0: 1' is no JSON object"),
        ("[1]", "'[1]' is no JSON object"),
        ('{"2": 1}', "there is no partition '2': the topic has 2, from 0"),
        ('{"0": "1"}', "partition 0: '1' is no broker's id"),
        ('{"0": true}', "partition 0: 'True' is no broker's id"),
        ('{"0": 2}', "partition 0: broker 2 has no replica of it: name one of 0, 1"),
        ('{"5": 1, "6": 1, "7": 1, "8": 1}', "; and 1 more"),
    ],
)
def test_should_say_what_cannot_be_done(text: str, message: str) -> None:
    condition = told(text)
    assert condition is not None
    assert (condition.true, condition.reason) == (False, "Refused")
    assert message in condition.message
    assert PREFERRED_ANNOTATION in condition.message


def test_should_do_what_can_be_done_beside_what_cannot() -> None:
    found = preference_of(annotated('{"0": 7, "1": 2}'), STATES)
    assert found.wanted == {PartitionId(1): BrokerId(2)}
    assert len(found.problems) == 1


def test_should_wait_for_partitions_that_have_no_place_yet() -> None:
    begun = preference_of(annotated('{"0": 1, "1": 1}'), STATES[:1])
    assert begun == Preference({PartitionId(0): BrokerId(1)})
    assert preference_of(annotated('{"0": 1}'), []) == Preference()
    assert preference_of(annotated('{"2": 1}'), []).problems


def test_should_tell_people_once() -> None:
    condition = told('{"0": 7}')
    assert condition is not None
    (notice,) = notices([condition], {})
    assert (notice.reason, notice.warning) == ("PreferredLeadersRefused", True)
    before = by_type([{"type": "PreferredLeaders", "status": "False", "message": condition.message}])
    assert notices([condition], before) == ()

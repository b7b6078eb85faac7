"""Nothing is placed empty while a broker holds data of it, whoever died, vanished or claims it.

A topic that claims the data of another one gets it, whole and alone, or says why not.
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.control.actions import CreateSet, PatchStatus, ReplaceSet, SetFinalizers
from headrace.core.control.broker_reports import BrokerReport, Epochs
from headrace.core.control.observed import BrokerState, Observed
from headrace.core.control.plan import plan
from headrace.core.control.reclaiming import asks_again, inquiries
from headrace.core.resources.partition_set import PARTITIONS_PER_SET_MAX
from headrace.core.resources.topic import Topic
from headrace.core.types import BrokerId, LeaderEpoch, PartitionEpoch, PartitionId, PartitionKey, TopicName, TopicUid
from tests.support.control import ModelApi, broker, brokers, topic
from tests.support.examples import examples
from tests.support.partition_sets import partition_set, partition_state, seat
from tests.support.reclaiming import CLAIM, OLD, UID, claiming, hold, log, placed_before, ready, states

# Who is asked


def test_should_ask_nobody_about_a_topic_that_is_new() -> None:
    api = ModelApi.of([topic()], [broker(0), broker(1, state=BrokerState.LOST)])
    assert inquiries([*api.topics.values()], api.observed) == ()
    api.settle()
    assert len(states(api)) == 6, "it waits for no broker that is away"


def test_should_ask_nobody_about_the_partitions_by_which_a_topic_grows() -> None:
    api = ModelApi.of([topic()], brokers(2))
    api.settle()
    api.brokers[BrokerId(1)] = broker(1, state=BrokerState.LOST)
    api.change(UID, spec={"partitions": 9})
    assert inquiries([*api.topics.values()], api.observed) == ()
    api.settle()
    assert len(states(api)) == 9


def test_should_ask_about_a_topic_that_had_places_and_about_what_one_claims() -> None:
    api = placed_before()
    assert inquiries([*api.topics.values()], api.observed) == (UID,)
    api.change(UID, annotations={**api.topics[UID].metadata.annotations, **CLAIM})
    assert inquiries([*api.topics.values()], api.observed) == (OLD, UID)
    api.change(UID, annotations={"headrace.io/adopt-uid": "x,y"}, finalizers=())
    assert inquiries([*api.topics.values()], api.observed) == (UID,), "that is no uid"


@pytest.mark.parametrize(
    "changes",
    [
        {"annotations": {"headrace.io/paused": "true"}},
        {"deletion_timestamp": "2026-11-21T09:00:00Z"},
    ],
)
def test_should_not_ask_about_a_topic_that_it_leaves_alone(changes: dict[str, Any]) -> None:
    api = placed_before()
    api.change(UID, **changes)
    assert inquiries([*api.topics.values()], api.observed) == ()


def test_should_not_ask_before_it_knows_who_lives_nor_of_what_went_back() -> None:
    api = placed_before()
    api.regressed = frozenset({UID})
    assert inquiries([*api.topics.values()], api.observed) == ()
    api.regressed = frozenset()
    api.brokers[BrokerId(0)] = broker(0, state=BrokerState.UNPROVEN)
    assert inquiries([*api.topics.values()], api.observed) == ()
    api.brokers[BrokerId(0)] = broker(0)
    other = {uid: replace(t, spec=replace(t.spec, cluster="other")) for uid, t in api.topics.items()}
    assert inquiries([*other.values()], api.observed) == ()


def test_should_ask_again_soon_only_while_the_answer_may_change_by_itself() -> None:
    api = placed_before()
    hold(api, 0, 0, log(1, 5))
    assert not asks_again([UID], api.observed)
    assert not asks_again([], replace(api.observed, reports={}))
    assert asks_again([UID], replace(api.observed, reports={}))
    hold(api, 0, 0, log(1, 5, set_aside=False))
    assert asks_again([UID], api.observed)
    assert not asks_again([OLD], api.observed)
    api.brokers[BrokerId(1)] = broker(1, state=BrokerState.LOST)
    assert not asks_again([OLD], api.observed), "who is lost answers no sooner"


def test_should_take_a_note_that_is_lost_or_damaged_for_doubt_and_a_copied_one_for_none() -> None:
    api = placed_before()
    for annotations in ({}, {"headrace.io/placed": f"{UID}/x"}):
        api.change(UID, annotations=annotations)
        assert inquiries([*api.topics.values()], api.observed) == (UID,)
    api.change(UID, annotations={"headrace.io/placed": "another/6/6"}, finalizers=())
    api.topics[UID] = replace(api.topics[UID], status={})
    assert inquiries([*api.topics.values()], api.observed) == ()


# Sets that are gone


def test_should_have_the_greatest_log_lead_above_all_that_anybody_knows() -> None:
    api = placed_before(partitions=2)
    hold(api, 0, 0, log(3, 50))
    hold(api, 1, 0, log(4, 40))
    hold(api, 2, 0, log(4, 30, seen_epoch=LeaderEpoch(6)))
    hold(api, 2, 1, log(1, 9))
    api.known[PartitionKey(UID, PartitionId(1))] = Epochs(LeaderEpoch(8), PartitionEpoch(12))
    (created,) = [action for action in api.plan() if isinstance(action, CreateSet)]
    first, second = created.set.partitions
    assert (first.leader, first.isr, first.replicas) == (seat(1), (seat(1),), (1, 2, 0))
    assert (first.leader_epoch, first.partition_epoch) == (7, 1)
    assert (second.leader, second.replicas) == (seat(2), (2,)), "others are added as to any partition"
    assert (second.leader_epoch, second.partition_epoch) == (9, 13)
    (notice,) = created.notices
    assert notice.reason == "DataFound"
    assert notice.message.startswith("partitions 0, 1: no PartitionSet placed it")
    assert notice.message.endswith("led by brokers 1, 2 now")


def test_should_share_the_leaders_among_equal_logs() -> None:
    api = placed_before(partitions=6)
    for number in range(3):
        for partition in range(6):
            hold(api, number, partition, log(1, 5))
    api.settle()
    assert sorted(state.replicas[0] for state in states(api)) == [0, 0, 1, 1, 2, 2]


def test_should_take_no_more_replicas_than_the_topic_asks_for_and_rather_those_that_stay() -> None:
    api = placed_before(replicas=2)
    for number, end in enumerate((5, 9, 7)):
        hold(api, number, 0, log(1, end))
    api.leaving = frozenset({BrokerId(2)})
    (created,) = [action for action in api.plan() if isinstance(action, CreateSet)]
    assert created.set.partitions[0].replicas == (1, 0)


def test_should_place_anew_what_nobody_holds() -> None:
    api = placed_before(partitions=3, replicas=1)
    hold(api, 1, 0, log(2, 5))
    hold(api, 1, 1, log(2, 5))
    api.settle()
    assert [state.leader_epoch for state in states(api)] == [3, 3, 1]
    assert states(api)[2].replicas != (1,)


def test_should_bring_back_a_lost_set_beside_one_that_is_there() -> None:
    count = PARTITIONS_PER_SET_MAX + 2
    api = ModelApi.of([topic(partitions=count)], brokers(2))
    api.settle()
    del api.sets["flights-1"]
    hold(api, 0, 0, log(1, 70, set_aside=False))
    hold(api, 1, PARTITIONS_PER_SET_MAX, log(1, 7))
    hold(api, 1, PARTITIONS_PER_SET_MAX + 1, log(1, 7, set_aside=False))
    api.settle()
    assert "flights-1" not in api.sets
    reason, message = ready(api)
    assert reason == "WaitingForReports"
    assert f"broker 1 have yet to set partition {PARTITIONS_PER_SET_MAX + 1} aside" in message
    hold(api, 1, PARTITIONS_PER_SET_MAX + 1, log(1, 7))
    api.settle()
    assert [state.leader for state in api.sets["flights-1"].partitions] == [seat(1), seat(1)]


def test_should_bring_partitions_back_into_a_set_that_is_there() -> None:
    api = ModelApi.of([topic(partitions=2)], brokers(2))
    api.settle()
    api.sets["flights-0"] = replace(api.sets["flights-0"], partitions=api.sets["flights-0"].partitions[:1])
    hold(api, 1, 1, log(4, 7))
    (written,) = [action for action in api.plan() if isinstance(action, ReplaceSet)]
    assert [notice.reason for notice in written.notices] == ["DataFound"]
    assert written.set.partitions[1].leader_epoch == 5


def test_should_wait_for_every_broker_and_name_who_is_away() -> None:
    api = placed_before()
    hold(api, 0, 0, log(1, 5))
    api.brokers[BrokerId(2)] = broker(2, state=BrokerState.LOST)
    api.settle()
    assert not api.sets
    reason, message = ready(api)
    assert reason == "WaitingForReports"
    assert "broker 2 did not answer" in message
    assert "delete its Lease (headrace-broker-2)" in message
    del api.brokers[BrokerId(2)]
    api.settle()
    assert len(states(api)) == 1


def test_should_wait_for_a_broker_whose_lease_nobody_holds_any_more() -> None:
    api = placed_before()
    api.brokers[BrokerId(2)] = broker(2, state=BrokerState.LOST, incarnation=0)
    api.settle()
    assert not api.sets
    assert "broker 2 did not answer" in ready(api)[1]


def test_should_wait_while_the_lease_of_a_broker_cannot_be_read() -> None:
    api = placed_before()
    hold(api, 0, 0, log(1, 5))
    del api.brokers[BrokerId(2)]
    api.unreadable = frozenset({BrokerId(2)})
    api.topics[TopicUid("uid-new")] = topic("new")
    api.settle()
    assert [found.topic_name.name for found in api.sets.values()] == ["new"], "of that nobody can hold anything"
    reason, message = ready(api)
    assert reason == "WaitingForReports"
    assert "the Lease of broker 2 cannot be read (headrace-broker-2)" in message
    api.unreadable = frozenset()
    api.settle()
    assert "flights-0" in api.sets


def test_should_wait_for_those_that_the_stateful_set_asks_for() -> None:
    api = placed_before()
    del api.brokers[BrokerId(2)]
    api.expected = frozenset(map(BrokerId, range(3)))
    api.topics[TopicUid("uid-new")] = topic("new")
    api.settle()
    assert [found.topic_name.name for found in api.sets.values()] == ["new"]
    assert "broker 2, for which the StatefulSet asks, never had a Lease or has none any more" in ready(api)[1]
    api.brokers[BrokerId(1)] = broker(1, state=BrokerState.LOST)
    api.settle()
    assert "broker 1 did not answer" in ready(api)[1]
    api.brokers[BrokerId(1)], api.brokers[BrokerId(2)] = broker(1), broker(2)
    api.settle()
    assert "flights-0" in api.sets


def test_should_place_nothing_before_all_that_is_to_be_known_was_asked() -> None:
    api = placed_before()
    assert plan_on(api, replace(api.observed, asked=())) == [], "brokers may hold what they were not asked about"
    api = claiming()
    hold(api, 1, 0, log(4, 100), OLD)
    assert plan_on(api, replace(api.observed, asked={UID})) == []


@pytest.mark.parametrize("dead", [False, True])
def test_should_not_begin_empty_where_only_the_status_tells_that_there_was_something(dead: bool) -> None:
    api = ModelApi.of([topic(partitions=2, deletionPolicy="Retain")], brokers(2))
    api.settle()
    if dead:
        api.brokers = {number: broker(number, state=BrokerState.LOST) for number in api.brokers}
        api.settle()
        api.brokers = {number: broker(number) for number in api.brokers}
    api.change(UID, annotations={})
    api.sets.clear()
    hold(api, 0, 0, log(3, 50, set_aside=False))
    api.settle()
    assert not api.sets
    assert "have yet to set partition 0 aside" in ready(api)[1]
    assert api.topics[UID].places == (2, 2), "the status tells of it no more"
    hold(api, 0, 0, log(3, 50))
    api.settle()
    assert [state.leader_epoch for state in states(api)] == [4, 1]


def test_should_take_a_topic_for_new_that_never_had_enough_brokers() -> None:
    api = ModelApi.of([topic(replicas=3)], brokers(2))
    api.settle()
    assert api.topics[UID].status["leaders"] == "0/6"
    assert api.topics[UID].places == (0, 0)
    assert inquiries([*api.topics.values()], api.observed) == ()


def test_should_not_count_what_a_broker_said_in_an_earlier_life() -> None:
    api = placed_before()
    reports = {BrokerId(2): BrokerReport(seat(2, 1), {}, {})}
    api.brokers[BrokerId(2)] = broker(2, incarnation=2)
    observed = replace(api.observed, reports={**api.observed.reports, **reports})
    assert not [action for action in plan_on(api, observed) if isinstance(action, CreateSet)]


def plan_on(api: ModelApi, observed: Observed) -> list[Any]:
    return [action for each in plan(tuple(api.topics.values()), observed, 0) for action in each.actions]


def test_should_wait_for_a_log_that_cannot_be_read() -> None:
    api = placed_before()
    hold(api, 0, 0, log(1, 5))
    hold(api, 1, 0, log(-1, 0, trouble="Input/output error"))
    api.settle()
    assert not api.sets
    assert "broker 1 holds partition 0 and cannot read it (Input/output error)" in ready(api)[1]


def test_should_not_wait_for_the_lost_where_an_operator_died_before_it_placed_anything() -> None:
    api = ModelApi.of([topic(partitions=1)], [*brokers(2), broker(2, state=BrokerState.LOST)])
    marked, created = api.plan()
    assert isinstance(marked, SetFinalizers)
    assert isinstance(created, CreateSet)
    api.carry_out(marked)
    hold(api, 0, 0, log(1, 5))
    api.settle()
    assert not api.sets, "it was placed after all: then the lost may hold more"
    assert "broker 2 did not answer" in ready(api)[1]
    api.held.clear()
    api.settle()
    assert len(states(api)) == 1


def test_should_wait_for_a_broker_that_lives_where_an_operator_died_before_it_placed_anything() -> None:
    api = ModelApi.of([topic(partitions=1)], brokers(2))
    api.carry_out(api.plan()[0])
    assert [type(action) for action in plan_on(api, replace(api.observed, reports={}))] == [PatchStatus]


@examples(0.5)
@given(st.data(), st.lists(st.integers(0, 3), max_size=4))
def test_should_reach_the_same_end_when_it_dies_after_any_prefix(data: st.DataObject, prefixes: list[int]) -> None:
    """Whatever brokers hold of either uid: nothing that somebody holds begins empty."""
    count = 3
    api = claiming(partitions=count) if data.draw(st.booleans()) else placed_before(partitions=count)
    uid = OLD if api.topics[UID].adopts else UID
    for number in range(3):
        for partition in data.draw(st.sets(st.integers(0, count - 1))):
            hold(api, number, partition, log(data.draw(st.integers(1, 3)), data.draw(st.integers(0, 3))), uid)
    undisturbed = api.copy()
    undisturbed.settle()
    for length in prefixes:
        for action in api.plan()[:length]:
            api.carry_out(action)
    api.settle()
    assert {name: (s.partitions, s.adopted) for name, s in api.sets.items()} == {
        name: (s.partitions, s.adopted) for name, s in undisturbed.sets.items()
    }
    held = {key.partition: logs for logs in api.held.values() for key in logs}
    for state in states(api):
        if state.id in held:
            logs = {b: each[PartitionKey(uid, state.id)] for b, each in api.held.items() if (uid, state.id) in each}
            assert state.leader_epoch > max(each.last_epoch for each in logs.values())
            assert logs[state.replicas[0]].rank == max(each.rank for each in logs.values())


def refusal(api: ModelApi) -> str:
    """Why nothing was placed."""
    api.settle()
    assert not api.sets
    reason, message = ready(api)
    assert reason == "AdoptionRefused"
    assert "the data stays where it is" in message
    return message


# Data of another topic


def test_should_go_on_with_the_data_that_a_topic_claims() -> None:
    api = claiming(partitions=2)
    hold(api, 1, 0, log(4, 100), OLD)
    hold(api, 2, 0, log(4, 90), OLD)
    (created,) = [action for action in api.plan() if isinstance(action, CreateSet)]
    adopted, new = created.set.partitions
    assert (adopted.leader, adopted.replicas, adopted.leader_epoch) == (seat(1), (1, 2), 5)
    assert (new.leader_epoch, len(new.replicas)) == (1, 3)
    assert created.set.topic_uid == UID
    assert created.set.adopted == {PartitionId(0): PartitionKey(OLD, PartitionId(0))}
    (notice,) = created.notices
    assert notice.reason == "DataAdopted"
    assert notice.message == f"partition 0: the data of topic uid {OLD} goes on here; led by broker 1 now"
    api.settle()
    assert ready(api) == ("AllPartitionsOnline", "")


def test_should_change_nothing_when_the_claim_goes_or_comes_once_there_are_places() -> None:
    api = claiming()
    hold(api, 1, 0, log(4, 100), OLD)
    api.settle()
    before, annotations = dict(api.sets), api.topics[UID].metadata.annotations
    api.change(UID, annotations={name: note for name, note in annotations.items() if name not in CLAIM})
    assert api.plan() == []
    api.change(UID, annotations={**annotations, "headrace.io/adopt-uid": OLD.replace("0f6c", "1234")})
    assert api.plan() == []
    assert api.sets == before


def test_should_grow_although_the_claim_is_still_there_and_a_broker_is_away() -> None:
    api = claiming(4)
    hold(api, 1, 0, log(4, 100), OLD)
    api.settle()
    api.held.clear()
    api.brokers[BrokerId(3)] = broker(3, state=BrokerState.LOST)
    api.change(UID, spec={"partitions": 2})
    api.settle()
    assert len(states(api)) == 2
    assert api.sets["flights-0"].adopted_uid == OLD


def test_should_go_on_where_it_died_between_two_sets() -> None:
    count = PARTITIONS_PER_SET_MAX + 2
    api = claiming(partitions=count, replicas=1)
    for partition in range(count - 1):
        hold(api, 1, partition, log(4, 100), OLD)
    marked, first, second = api.plan()
    assert isinstance(second, CreateSet)
    api.carry_out(marked)
    api.carry_out(first)
    hold(api, 1, 0, log(4, 100))  # the broker has renamed what it found in the first
    del api.held[BrokerId(1)][PartitionKey(OLD, PartitionId(0))]
    (again,) = [action for action in api.plan() if isinstance(action, CreateSet)]
    assert again.set.metadata.name == "flights-1"
    assert list(again.set.adopted) == [PARTITIONS_PER_SET_MAX]
    assert [state.leader_epoch for state in again.set.partitions] == [5, 1]


def test_should_wait_until_the_old_topic_is_set_aside_everywhere() -> None:
    api = claiming()
    hold(api, 1, 0, log(4, 100, set_aside=False), OLD)
    api.settle()
    assert not api.sets
    assert ready(api)[0] == "WaitingForReports"


def test_should_refuse_what_is_no_uid() -> None:
    api = claiming()
    api.change(UID, annotations={"headrace.io/adopt-uid": "../etc"})
    assert "'../etc' is no uid of a topic" in refusal(api)


def test_should_refuse_what_nobody_holds() -> None:
    assert f"no broker holds data of a topic with uid {OLD}" in refusal(claiming())


def test_should_refuse_the_data_of_a_topic_that_lives() -> None:
    api = claiming()
    api.topics[OLD] = topic("other", metadata={"uid": OLD}, cluster="other")
    assert f"topic default/other lives under uid {OLD}" in refusal(api)
    assert inquiries([*api.topics.values()], api.observed) == (UID,), "whatever brokers say, it is not to be had"


def test_should_wait_for_the_topic_whose_data_it_claims_to_be_gone() -> None:
    api = claiming()
    hold(api, 1, 0, log(4, 100), OLD)
    metadata = {"uid": OLD, "deletion_timestamp": "2026-11-21T09:00:00Z", "finalizers": ("someone/else",)}
    api.topics[OLD] = topic("other", metadata=metadata, cluster="other")
    api.settle()
    reason, message = ready(api)
    assert (reason, api.sets) == ("WaitingForReports", {})
    assert f"topic default/other, which has the data of {OLD}, is still being deleted" in message
    del api.topics[OLD]
    api.settle()
    assert [state.leader_epoch for state in states(api)] == [5]


def test_should_refuse_data_of_another_namespace() -> None:
    api = claiming()
    hold(api, 0, 0, log(1, 5, namespace="theirs"), OLD)
    hold(api, 1, 0, log(1, 5, namespace=""), OLD)
    assert f"the data of {OLD} is of namespace theirs" in refusal(api)


def test_should_refuse_data_with_more_partitions_than_the_topic_asks_for() -> None:
    api = claiming(partitions=2)
    hold(api, 0, 2, log(1, 5), OLD)
    assert f"the data of {OLD} has 3 partitions, and spec.partitions is 2" in refusal(api)
    api.change(UID, spec={"partitions": 3})
    api.settle()
    assert len(states(api)) == 3


def test_should_refuse_two_histories_of_one_partition() -> None:
    api = placed_before()
    api.change(UID, annotations={**api.topics[UID].metadata.annotations, **CLAIM})
    hold(api, 0, 0, log(1, 5))
    hold(api, 1, 0, log(1, 9), OLD)
    assert f"partition 0 has data of this topic and of {OLD}, on broker 0" in refusal(api)
    api.change(UID, annotations={**api.topics[UID].metadata.annotations, "headrace.io/adopt-uid": ""})
    api.settle()
    assert [state.replicas[0] for state in states(api)] == [0]


def test_should_give_data_to_one_topic_only_and_to_the_oldest_that_claims_it() -> None:
    def claimant(name: str, created: str, **metadata: Any) -> Topic:
        fields = {"annotations": CLAIM, "creation_timestamp": created, **metadata}
        return topic(name, metadata=fields, partitions=1)

    older, younger = claimant("b", "2026-11-21T09:00:00Z"), claimant("a", "2026-11-21T10:00:00Z")
    going = claimant("c", "2026-11-20T09:00:00Z", deletion_timestamp="2026-11-21T09:00:00Z")
    api = ModelApi.of([younger, older, going], brokers(1))
    hold(api, 0, 0, log(1, 5), OLD)
    api.settle()
    assert list(api.sets) == ["b-0"]
    api.change("uid-b", annotations={})  # as if it had never been claimed by it
    api.settle()
    assert f"topic default/b has the data of {OLD}" in ready(api, "uid-a")[1]
    assert f"topic {TopicName('default', 'b')}" in ready(api, "uid-a")[1]


def test_should_give_data_away_again_when_the_topic_that_had_it_is_gone() -> None:
    api = claiming(replicas=1)
    hold(api, 0, 0, log(1, 5), OLD)
    left = partition_set(partition_state(leader=seat(1)), topic="gone", uid="uid-gone")
    api.sets["gone-0"] = left.adopting(OLD, [PartitionId(0)])
    api.settle()
    assert "flights-0" in api.sets


def test_should_claim_its_own_uid_in_vain() -> None:
    api = ModelApi.of([topic(metadata={"annotations": {"headrace.io/adopt-uid": UID}})], brokers(1))
    api.settle()
    assert len(states(api)) == 6

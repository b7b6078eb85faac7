"""Few Events, however many partitions a broker takes with it."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.control.actions import (
    ChangeKind,
    CreateSet,
    DeleteOrphanSet,
    DeleteSet,
    Notice,
    PatchStatus,
    ReplaceSet,
    SetFinalizers,
)
from headrace.core.control.deletion import FINALIZER
from headrace.core.control.observed import Broker, BrokerState
from headrace.core.resources.partition_set import PARTITIONS_PER_SET_MAX, PartitionState
from headrace.core.resources.topic import DeletionPolicy, Topic
from headrace.core.types import BrokerId, TopicUid
from tests.support.control import NOW_MS, ModelApi, broker, brokers, topic
from tests.support.partition_sets import seat
from tests.support.replicated import ReplicatedCluster

UID = "uid-flights"


def settled(*topics: Topic, among: list[Broker] | None = None) -> ModelApi:
    api = ModelApi.of(list(topics), brokers(3) if among is None else among)
    api.settle()
    return api


def partitions(api: ModelApi) -> list[PartitionState]:
    return [state for found in api.sets.values() for state in found.partitions]


def kinds(actions: list[Any]) -> list[type]:
    return [type(action) for action in actions]


def test_should_set_the_finalizer_before_seats_and_the_status_after_them_when_a_topic_is_new() -> None:
    api = ModelApi.of([topic()], brokers(3))
    first = api.plan()
    assert kinds(first) == [SetFinalizers, CreateSet]
    for action in first:
        api.carry_out(action)
    second = api.plan()
    assert kinds(second) == [PatchStatus]
    api.carry_out(second[0])
    (confirmed,) = api.plan()
    assert isinstance(confirmed, SetFinalizers)
    assert confirmed.annotations == {"headrace.io/placed": "uid-flights/6/6"}, "seen, and begun"
    api.carry_out(confirmed)
    assert api.plan() == []


def test_should_seat_partitions_in_the_present_life_of_live_brokers() -> None:
    api = settled(topic(), among=[broker(0, incarnation=7), broker(1, state=BrokerState.LOST), broker(2)])
    assert [state.leader for state in partitions(api)] == [seat(0, 7), seat(2)] * 3
    for state in partitions(api):
        assert (state.leader_epoch, state.partition_epoch) == (1, 1)
        assert state.isr == (state.leader,)
        assert state.leader is not None
        assert state.replicas == (state.leader.broker,)


def test_should_make_the_topic_own_its_sets() -> None:
    (found,) = settled(topic()).sets.values()
    assert found.metadata.name == "flights-0"
    assert found.metadata.labels == {"headrace.io/cluster": "headrace"}
    (owner,) = found.metadata.owners
    assert (owner.kind, owner.name, owner.uid) == ("Topic", "flights", UID)


@pytest.mark.parametrize("state", [BrokerState.DRAINING, BrokerState.LOST])
def test_should_place_nothing_on_a_broker_that_is_going_or_gone(state: BrokerState) -> None:
    api = settled(topic(), among=[broker(0, state=state), broker(1)])
    assert {s.leader for s in partitions(api)} == {seat(1)}


def test_should_split_sets_when_there_are_more_partitions_than_one_may_hold() -> None:
    api = settled(topic(partitions=250))
    assert {name: len(found.partitions) for name, found in api.sets.items()} == {
        "flights-0": PARTITIONS_PER_SET_MAX,
        "flights-1": PARTITIONS_PER_SET_MAX,
        "flights-2": 50,
    }
    assert [state.id for state in partitions(api)] == list(range(250))


def test_should_append_to_the_last_set_and_open_new_ones_when_a_topic_grows() -> None:
    api = settled(topic(partitions=90))
    before = partitions(api)
    api.change(UID, spec={"partitions": 230})
    assert kinds(api.plan()) == [SetFinalizers, ReplaceSet, CreateSet, CreateSet]
    api.settle()
    after = partitions(api)
    assert after[:90] == before
    assert [state.id for state in after] == list(range(230))
    counts = Counter(state.leader for state in after)
    assert max(counts.values()) - min(counts.values()) <= 1


def test_should_share_brokers_among_topics_of_one_partition() -> None:
    api = settled(*(topic(name, partitions=1) for name in ("a", "b", "c")))
    assert {state.leader for state in partitions(api)} == {seat(0), seat(1), seat(2)}


def test_should_leave_topics_of_another_cluster_alone() -> None:
    api = ModelApi.of([topic(cluster="other")], brokers(3))
    assert api.plan() == []


def test_should_not_count_another_cluster_as_load() -> None:
    api = settled(topic("a", partitions=1), among=brokers(2))
    api.topics[TopicUid("uid-a")] = topic("a", partitions=1, cluster="other")
    api.topics[TopicUid(UID)] = topic(partitions=1)
    api.settle()
    assert api.sets["flights-0"].partitions[0].leader == seat(0)


def test_should_not_count_what_is_being_deleted_as_load() -> None:
    api = settled(topic("a", partitions=1), among=brokers(2))
    api.delete_topic("uid-a")
    api.topics[TopicUid(UID)] = topic(partitions=1)
    for action in api.plan():
        api.carry_out(action)
    assert api.sets["flights-0"].partitions[0].leader == seat(0)


def test_should_wait_until_every_broker_has_proved_itself_or_is_lost() -> None:
    api = ModelApi.of([topic()], [broker(0), broker(1, state=BrokerState.UNPROVEN)])
    assert api.plan() == [], "broker 0 must not get everything because it was the first to be heard"
    api.brokers[broker(1).id] = broker(1, state=BrokerState.LOST)
    api.settle()
    assert len(partitions(api)) == 6


def test_should_say_nothing_new_while_it_is_not_known_who_lives() -> None:
    api = settled(topic())
    api.brokers = {number: replace(b, state=BrokerState.UNPROVEN) for number, b in api.brokers.items()}
    api.topics[TopicUid(UID)] = replace(api.topics[TopicUid(UID)], status={})
    assert api.plan() == []


def test_should_grow_a_topic_that_claims_data_after_it_was_placed() -> None:
    api = settled(topic())
    api.change(UID, spec={"partitions": 9}, annotations={"headrace.io/adopt-uid": "of-another-life"})
    api.settle()
    assert sum(len(s.partitions) for s in api.sets.values()) == 9
    assert api.condition(UID, "Ready")["status"] == "True"


# Deletion


def test_should_mark_wait_delete_and_let_go_in_this_order_when_a_topic_is_deleted() -> None:
    api = settled(topic())
    api.delete_topic(UID)
    (mark,) = api.plan()
    assert isinstance(mark, ReplaceSet)
    assert mark.set.deleting
    api.carry_out(mark)
    assert api.plan() == [], "brokers have not said that the data is gone"
    api.brokers_delete_data()
    assert kinds(api.plan()) == [DeleteSet, SetFinalizers]
    api.settle()
    assert not api.topics
    assert not api.sets


def test_should_not_wait_for_ever_when_brokers_are_silent() -> None:
    api = settled(topic())
    api.delete_topic(UID)
    api.carry_out(api.plan()[0])
    api.overdue = frozenset({TopicUid(UID)})
    *_, let_go = api.plan()
    assert isinstance(let_go, SetFinalizers)
    (notice,) = let_go.notices
    assert notice.reason == "DataNotDeleted"
    assert notice.warning
    assert "0, 1, 2" in notice.message
    api.settle()
    assert not api.topics
    assert not api.sets


def test_should_let_go_at_once_when_a_deleted_topic_was_never_placed() -> None:
    api = ModelApi.of([topic(metadata={"finalizers": (FINALIZER,)})], [])
    api.delete_topic(UID)
    assert kinds(api.plan()) == [SetFinalizers]


def test_should_keep_the_finalizers_of_others_when_it_lets_go() -> None:
    api = ModelApi.of([topic(metadata={"finalizers": ("a.example/x", FINALIZER)})], [])
    api.delete_topic(UID)
    api.settle()
    assert api.topics[TopicUid(UID)].metadata.finalizers == ("a.example/x",)
    assert api.plan() == []


def test_should_say_that_a_topic_is_not_paused_when_its_annotation_cannot_be_understood() -> None:
    api = settled(topic())
    before = dict(api.topics[TopicUid(UID)].metadata.annotations)
    api.change(UID, annotations={**before, "headrace.io/paused": "yes"})
    (patch,) = api.plan()
    assert isinstance(patch, PatchStatus)
    paused = next(each for each in patch.status["conditions"] if each["type"] == "Paused")
    assert (paused["status"], paused["reason"]) == ("False", "InvalidAnnotation")
    assert paused["message"] == (
        "annotation headrace.io/paused is 'yes', and the topic is not paused: write true, or false, or remove it"
    )
    assert [(each.reason, each.warning) for each in patch.notices] == [("InvalidAnnotation", True)]
    api.settle()
    assert api.plan() == []
    api.change(UID, annotations={**before, "headrace.io/paused": "True"})
    (patch,) = api.plan()
    assert isinstance(patch, PatchStatus)
    assert [each.reason for each in patch.notices] == ["Paused"]
    api.settle()
    api.change(UID, annotations=before)
    (patch,) = api.plan()
    assert isinstance(patch, PatchStatus)
    assert [each.reason for each in patch.notices] == ["Resumed"]


def test_should_delete_a_paused_topic_all_the_same() -> None:
    api = settled(topic(metadata={"annotations": {"headrace.io/paused": "true"}, "finalizers": (FINALIZER,)}))
    api.delete_topic(UID)
    api.settle()
    assert not api.topics


def test_should_not_mark_sets_when_the_data_is_retained() -> None:
    api = settled(topic(deletionPolicy="Retain", metadata={"finalizers": ("a.example/x",)}))
    api.delete_topic(UID)
    assert kinds(api.plan()) == [DeleteSet]
    api.settle()
    assert not api.sets


def test_should_take_its_finalizer_back_when_the_policy_becomes_retain() -> None:
    api = settled(topic())
    assert api.topics[TopicUid(UID)].metadata.finalizers == (FINALIZER,)
    api.change(UID, spec={"deletion_policy": DeletionPolicy.RETAIN})
    api.settle()
    assert api.topics[TopicUid(UID)].metadata.finalizers == ()
    api.delete_topic(UID)
    assert not api.topics
    assert kinds(api.plan()) == [DeleteOrphanSet]


def test_should_clear_old_sets_first_when_a_topic_was_created_again() -> None:
    api = settled(topic())
    old = api.sets["flights-0"]
    del api.topics[TopicUid(UID)]
    again = topic(metadata={"uid": "uid-new"})
    api.topics[again.uid] = again
    assert kinds(api.plan()) == [DeleteOrphanSet, SetFinalizers, CreateSet]
    api.settle()
    assert api.sets["flights-0"].topic_uid == "uid-new"
    assert api.sets["flights-0"].metadata.uid != old.metadata.uid


def test_should_not_touch_orphans_that_are_not_of_this_cluster() -> None:
    api = settled(topic())
    (found,) = api.sets.values()
    api.topics.clear()
    api.sets = {"flights-0": replace(found, metadata=replace(found.metadata, labels={"headrace.io/cluster": "other"}))}
    assert api.plan() == []


# Any prefix of any plan may be all that is ever carried out.

topics = st.builds(
    lambda name, partitions, replicas, policy, cluster, paused: topic(
        name,
        partitions=partitions,
        replicas=replicas,
        deletionPolicy=policy,
        cluster=cluster,
        metadata={"annotations": {"headrace.io/paused": "true"}} if paused else {},
    ),
    st.sampled_from("abcd"),
    st.integers(1, 220),
    st.sampled_from([1, 1, 1, 3]),
    st.sampled_from(["Delete", "Retain"]),
    st.sampled_from(["headrace", "headrace", "headrace", "other"]),
    st.sampled_from([False, False, False, True]),
)
some_brokers = st.lists(
    st.builds(
        lambda number, state, incarnation, zone: broker(number, state=state, incarnation=incarnation, zone=zone),
        st.integers(0, 5),
        st.sampled_from([BrokerState.READY, BrokerState.READY, BrokerState.DRAINING, BrokerState.LOST]),
        st.integers(1, 3),
        st.sampled_from("xyz"),
    ),
    max_size=6,
    unique_by=lambda b: b.id,
)


@st.composite
def changed_worlds(draw: st.DrawFn) -> ModelApi:
    """A settled cluster, then users and brokers that change it behind the operator's back."""
    api = ModelApi.of(draw(st.lists(topics, max_size=4, unique_by=lambda t: t.uid)), draw(some_brokers))
    api.settle()
    for uid in list(api.topics):
        match draw(st.sampled_from(["leave", "grow", "delete", "recreate", "retain"])):
            case "grow":
                api.change(uid, spec={"partitions": api.topics[uid].spec.partitions + draw(st.integers(1, 120))})
            case "delete":
                api.delete_topic(uid)
            case "recreate":
                old = api.topics.pop(uid)
                new = replace(old, metadata=replace(old.metadata, uid=f"{uid}-new", finalizers=()), status={})
                api.topics[new.uid] = new
            case "retain":
                api.change(uid, spec={"deletion_policy": DeletionPolicy.RETAIN})
            case _:
                pass
    api.brokers = {b.id: b for b in draw(some_brokers)}
    api.overdue = frozenset(uid for uid in api.topics if draw(st.booleans()))
    if draw(st.booleans()):
        api.brokers_delete_data()
    return api


def essence(api: ModelApi) -> tuple[Any, ...]:
    """What must not depend on how often the operator died on the way."""
    sets = {name: (s.topic_uid, s.partitions, s.deleting) for name, s in api.sets.items()}
    return sets, {uid: (t.metadata.finalizers, t.status) for uid, t in api.topics.items()}


@given(changed_worlds(), st.lists(st.integers(0, 6), max_size=6))
def test_should_reach_the_same_end_when_it_dies_after_any_prefix_of_its_actions(
    api: ModelApi, prefixes: list[int]
) -> None:
    undisturbed = api.copy()
    undisturbed.settle()
    for length in prefixes:
        for action in api.plan()[:length]:
            api.carry_out(action)
    api.settle()
    assert essence(api) == essence(undisturbed)


@given(changed_worlds())
def test_should_have_nothing_to_do_when_it_is_settled(api: ModelApi) -> None:
    api.settle()
    assert api.plan(now_ms=NOW_MS + 3_600_000) == []


@given(changed_worlds())
def test_should_never_move_what_is_placed_for_what_is_not(api: ModelApi) -> None:
    api.steady = frozenset()  # nor for the sake of brokers that were added
    before = {(s.topic_uid, p.id): p for s in api.sets.values() for p in s.partitions}
    api.settle()
    for found in api.sets.values():
        for state in found.partitions:
            was = before.get((found.topic_uid, state.id), state)
            moved = {*was.replicas} - {*state.replicas} | {*state.removing}
            # Only brokers without a Lease are replaced, and a move that had begun goes on.
            assert moved <= {*was.replicas} - {*api.brokers} | {*was.removing}
            assert moved or state.replicas == was.replicas


def cluster_of(partitions: int = 3, **spec: Any) -> ReplicatedCluster:
    cluster = ReplicatedCluster.of([topic(partitions=partitions, replicas=3, **spec)], brokers(3))
    cluster.settle()
    return cluster


def only_write(cluster: ReplicatedCluster) -> ReplaceSet:
    (write,) = cluster.api.plan()
    assert isinstance(write, ReplaceSet)
    return write


def heard(cluster: ReplicatedCluster) -> list[Notice]:
    """In the next passes, while the brokers do nothing."""
    notices: list[Notice] = []
    for _ in range(3):
        for action in cluster.plan():
            assert isinstance(action, ReplaceSet | PatchStatus)
            notices += action.notices
    return notices


def test_should_tell_of_all_elections_with_one_cause_at_once() -> None:
    cluster = cluster_of(partitions=90)
    cluster.lose(BrokerId(1))
    write = only_write(cluster)
    listed = "1, 4, 7, 10, 13, 16, 19, 22, 25, 28 and 20 more"
    message = f"partitions {listed}: leader 1@1 is gone; led by brokers 0, 2 now"
    assert write.notices == (Notice("LeaderElected", message),)
    assert [write.kinds.count(kind) for kind in (ChangeKind.ELECTED, ChangeKind.SHRUNK)] == [30, 90]


def test_should_tell_why_leaders_move() -> None:
    cluster = cluster_of()
    cluster.drain(BrokerId(1))
    assert heard(cluster) == [Notice("LeaderMoved", "partition 1: broker 1 drains; led by broker 0 now")]
    cluster.api.brokers[BrokerId(1)] = broker(1)
    returned = "partition 1: the preferred leader is in sync; led by broker 1 now"
    assert heard(cluster) == [Notice("LeaderReturned", returned)]


def test_should_warn_once_of_what_unclean_elections_lose() -> None:
    cluster = cluster_of(minInsyncReplicas=1, uncleanLeaderElection=True)
    for number in (1, 2):
        cluster.lose(BrokerId(number))
        cluster.settle()
    cluster.lose(BrokerId(0))
    cluster.start(BrokerId(1))
    (notice,) = only_write(cluster).notices
    assert (notice.reason, notice.warning) == ("UncleanLeaderElection", True)
    assert notice.message.startswith("partitions 0, 1, 2: 1@2 was elected although it was not in sync")


def test_should_leave_it_to_the_conditions_to_say_what_is_offline() -> None:
    cluster = cluster_of()
    for number in range(3):
        cluster.lose(BrokerId(number))
    assert {*only_write(cluster).kinds} == {ChangeKind.OFFLINE}
    assert [notice.reason for notice in heard(cluster)] == ["PartitionsOffline"]


def test_should_tell_when_replicas_begin_to_lag_and_when_they_have_caught_up() -> None:
    cluster = cluster_of()
    cluster.lose(BrokerId(2))
    lagging = Notice(
        "ReplicasNotInSync", "partitions 0, 1, 2: a replica is not in sync, that of broker 2", warning=True
    )
    elected = Notice("LeaderElected", "partition 2: leader 2@1 is gone; led by broker 0 now")
    assert heard(cluster) == [elected, lagging]
    cluster.start(BrokerId(2))
    cluster.catch_up()
    returned = Notice("LeaderReturned", "partition 2: the preferred leader is in sync; led by broker 2 now")
    assert heard(cluster) == [returned, Notice("AllReplicasInSync", "every replica is in sync")]


def test_should_tell_when_replicas_begin_to_move_and_when_all_have() -> None:
    cluster = cluster_of(partitions=1)
    cluster.api.brokers[BrokerId(3)] = broker(3)
    cluster.leave(BrokerId(2))
    moving = [notice.reason for notice in heard(cluster)]
    cluster.catch_up()
    settled = [notice.reason for notice in heard(cluster)]
    assert (moving, settled) == (["ReplicasNotInSync", "Reassigning"], ["AllReplicasInSync", "Reassigned"])

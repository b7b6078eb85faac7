"""What a broker knows of its cluster: never older than what it knew, and whole after each list."""

from dataclasses import replace

import pytest

from headrace.core.errors import UnknownPartitionError, UnknownTopicError
from headrace.core.limits import LEASE_DURATION_MS
from headrace.core.resources.lease import BrokerLease, Doubts, Whereabouts
from headrace.core.resources.metadata import Metadata
from headrace.core.resources.partition_set import PartitionSet
from headrace.core.resources.topic import Topic, TopicSpec
from headrace.core.types import (
    BrokerId,
    Incarnation,
    PartitionEpoch,
    PartitionId,
    PartitionKey,
    TopicName,
    TopicUid,
)
from headrace_broker.cluster.view import ClusterView
from tests.support.partition_sets import partition_set, partition_state, seat

FLIGHTS = TopicName("default", "flights")
KEY = PartitionKey(TopicUid("uid-1"), PartitionId(0))


def topic(name: str = "flights", uid: str = "uid-1", cluster: str = "headrace") -> Topic:
    spec = TopicSpec.parse({"partitions": 2, "replicas": 1, "cluster": cluster})
    return Topic(Metadata(name=name, namespace="default", uid=uid), spec)


def lease(broker: int, renewal: str = "1", *, draining: bool = False, clean: bool = False) -> BrokerLease:
    metadata = Metadata(name=f"headrace-broker-{broker}")
    url = f"http://{broker}"
    life = Incarnation(1)
    return BrokerLease(metadata, BrokerId(broker), life, url, draining=draining, clean=clean, renew_time=renewal)


def test_should_be_complete_only_when_everything_was_listed() -> None:
    view = ClusterView("headrace")
    assert not view.is_complete
    view.list_topics([])
    view.list_sets([])
    assert not view.is_complete
    view.list_leases([], 0)
    assert view.is_complete


def test_should_name_what_is_unknown() -> None:
    view = ClusterView("headrace")
    view.list_topics([topic(), topic("foreign", "uid-2", cluster="other")])
    with pytest.raises(UnknownTopicError, match="topic 'nope' does not exist in namespace 'default'"):
        view.topic(TopicName("default", "nope"))
    with pytest.raises(UnknownTopicError):
        view.topic(TopicName("default", "foreign"))
    with pytest.raises(UnknownPartitionError, match="it has 2, from 0 to 1"):
        view.state(view.topic(FLIGHTS), PartitionId(2))
    assert view.state(view.topic(FLIGHTS), PartitionId(1)) is None


def test_should_not_go_back_when_an_older_version_arrives_late() -> None:
    view = ClusterView("headrace")
    older = partition_set(partition_state(leader=seat(0, 1)))
    newer = partition_set(partition_state(leader=seat(0, 2), partition_epoch=PartitionEpoch(2)))
    view.put_set(newer)
    view.put_set(older)
    assert view.states[KEY].leader == seat(0, 2)
    view.list_sets([older])
    assert view.states[KEY].leader == seat(0, 2)


@pytest.mark.parametrize(
    "newer",
    [
        partition_set(partition_state(), deleting=True),
        partition_set(partition_state(), partition_state(1)),
    ],
    ids=["deleting", "grown"],
)
def test_should_not_go_back_when_its_own_write_is_answered_after_a_later_one_was_seen(newer: PartitionSet) -> None:
    view = ClusterView("headrace")
    view.list_topics([topic()])
    view.put_set(newer)
    view.put_set(partition_set(partition_state()))
    assert view.sets() == [newer]
    assert set(view.states) == {newer.key(state.id) for state in newer.partitions}


def made(uid: str, epoch: int) -> PartitionSet:
    made = partition_set(partition_state(partition_epoch=PartitionEpoch(epoch)))
    return replace(made, metadata=replace(made.metadata, uid=uid))


def test_should_not_bring_back_a_set_that_is_gone_when_a_call_about_it_is_answered_late() -> None:
    view = ClusterView("headrace")
    view.list_topics([topic()])
    view.put_set(made("first", 5))
    view.put_answer(made("first", 6))
    assert view.sets() == [made("first", 6)]
    view.remove_set(made("first", 6))
    view.put_answer(made("first", 7))
    assert view.sets() == []
    view.put_set(made("second", 1))
    view.put_answer(made("first", 7))
    assert view.sets() == [made("second", 1)]


def test_should_forget_what_is_gone() -> None:
    view = ClusterView("headrace")
    view.list_topics([topic()])
    view.put_set(partition_set(partition_state(), partition_state(1)))
    assert set(view.states) == {KEY, PartitionKey(KEY.uid, PartitionId(1))}
    view.list_sets([])
    assert view.states == {}
    view.put_set(partition_set(partition_state()))
    view.remove_set(partition_set(partition_state()))
    assert view.states == {}
    view.remove_topic(topic())
    assert view.topics() == []


def test_should_show_the_sets_of_its_topics_and_of_what_it_holds() -> None:
    view = ClusterView("headrace")
    mine, foreign = partition_set(partition_state()), partition_set(partition_state(), topic="x", uid="uid-2")
    view.put_set(mine)
    view.put_set(foreign)
    assert view.sets() == []
    view.put_topic(topic())
    assert view.sets() == [mine]
    assert view.sets([TopicUid("uid-2")]) == [mine, foreign]
    assert set(view.specs()) == {KEY.uid}


def test_should_call_a_broker_lost_when_its_lease_stands_still_while_others_change() -> None:
    view = ClusterView("headrace")
    view.list_leases([lease(0), lease(1), lease(2, draining=True)], 0)
    later = LEASE_DURATION_MS + 1
    assert [state for _, state in view.brokers()] == ["Ready", "Ready", "Draining"]
    view.put_lease(lease(0, "2"), later)
    view.put_lease(lease(2, "2", draining=True), later)
    view.put_lease(lease(1, "1"), later)  # seen again, unchanged
    assert [state for _, state in view.brokers()] == ["Ready", "Lost", "Draining"]
    view.put_lease(lease(2, "3", draining=True, clean=True), later)
    assert [state for _, state in view.brokers()] == ["Ready", "Lost", "Stopped"]
    view.remove_lease(lease(1))
    assert [broker.broker for broker, _ in view.brokers()] == [0, 2]
    assert view.lease(BrokerId(1)) is None


def test_should_go_nowhere_where_no_broker_of_the_cluster_is(caplog: pytest.LogCaptureFixture) -> None:
    view = ClusterView("headrace")
    view.doubts = Doubts(Whereabouts.THIS_MACHINE)
    forged = replace(lease(1), url="http://169.254.169.254:80", peer_key="guess")
    view.list_leases([replace(lease(0), url="http://127.0.0.1:9701", peer_key="key"), forged], 0)
    view.put_lease(forged, 1)
    found = [each.url for each, _ in view.brokers()]
    assert found == ["http://127.0.0.1:9701", ""]
    assert (view.has_peer_key("key"), view.has_peer_key("guess"), view.has_peer_key("")) == (True, False, False)
    assert caplog.text.count("broker 1 is at 'http://169.254.169.254:80'") == 1


def test_should_say_that_something_changed_when_topics_or_states_did() -> None:
    view = ClusterView("headrace")
    view.put_topic(topic())
    assert view.changed.is_set()
    view.changed.clear()
    view.put_lease(lease(0), 0)
    assert not view.changed.is_set()

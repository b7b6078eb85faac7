"""Topics with several replicas through the whole plan: what is written in which order, and what people are told."""

from collections import Counter
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.control.actions import (
    LEADER_RETURNS_MAX,
    REASSIGNMENTS_MAX,
    CreateSet,
    Notice,
    PatchStatus,
    ReplaceSet,
    SetFinalizers,
)
from headrace.core.control.observed import Broker, BrokerState
from headrace.core.control.status import in_sync
from headrace.core.resources.partition_set import PartitionState
from headrace.core.types import BrokerId, PartitionEpoch, TopicUid
from tests.support.control import broker, brokers, topic
from tests.support.examples import examples
from tests.support.partition_sets import seat
from tests.support.replicated import ReplicatedCluster

UID = "uid-flights"


def cluster_of(among: list[Broker] | None = None, **spec: Any) -> ReplicatedCluster:
    cluster = ReplicatedCluster.of([topic(**{"replicas": 3, **spec})], brokers(3) if among is None else among)
    cluster.settle()
    return cluster


def partitions(cluster: ReplicatedCluster) -> list[PartitionState]:
    return [state for _, state in cluster.states]


def condition(cluster: ReplicatedCluster, kind: str) -> tuple[str, str, str]:
    found = cluster.api.condition(UID, kind)
    return found["status"], found["reason"], found["message"]


def lose(cluster: ReplicatedCluster, *numbers: int) -> None:
    for number in numbers:
        cluster.kill(BrokerId(number))
    cluster.notice()


def leaders(cluster: ReplicatedCluster) -> Counter[int]:
    return Counter(state.leader.broker for state in partitions(cluster) if state.leader is not None)


def test_should_spread_replicas_and_call_the_topic_ready() -> None:
    cluster = cluster_of([broker(number, zone="abc"[number % 3]) for number in range(6)])
    assert Counter(number for state in partitions(cluster) for number in state.replicas) == dict.fromkeys(range(6), 3)
    assert leaders(cluster) == dict.fromkeys(range(6), 1)
    for state in partitions(cluster):
        assert state.isr == tuple(map(seat, state.replicas))
        assert {number % 3 for number in state.replicas} == {0, 1, 2}
    status = cluster.api.topics[TopicUid(UID)].status
    assert (status["leaders"], status["inSync"], status["minInsyncReplicas"]) == ("6/6", "18/18", 2)
    assert condition(cluster, "Ready")[:2] == ("True", "AllPartitionsOnline")


def test_should_say_how_many_brokers_it_takes() -> None:
    cluster = cluster_of(brokers(2))
    assert not cluster.api.sets
    status, reason, message = condition(cluster, "Ready")
    assert (status, reason) == ("False", "InsufficientBrokers")
    assert "spec.replicas is 3" in message
    assert "there are 2 of 2" in message


def test_should_say_so_too_when_replicas_are_raised_beyond_the_brokers() -> None:
    cluster = cluster_of(replicas=1)
    cluster.api.change(UID, spec={"replicas": 5, "min_insync_replicas": 1})
    cluster.settle()
    assert {len(state.replicas) for state in partitions(cluster)} == {1}
    assert condition(cluster, "Ready")[1] == "InsufficientBrokers"
    assert condition(cluster, "UnderReplicated")[:2] == ("True", "ReplicasNotInSync")


def test_should_move_all_leaders_of_a_set_in_one_write_when_a_broker_is_lost() -> None:
    cluster = cluster_of(partitions=90)
    lose(cluster, 0)
    (write,) = cluster.plan()
    assert isinstance(write, ReplaceSet)
    assert leaders(cluster) == {1: 45, 2: 45}
    assert write.reason.count("partition ") == 3
    assert write.reason.endswith("; and 87 more partitions")
    assert {state.leader_epoch for state in partitions(cluster)} == {1, 2}
    assert {len(state.isr) for state in partitions(cluster)} == {2}
    cluster.settle()
    assert condition(cluster, "Ready")[0] == "True"
    assert condition(cluster, "UnderReplicated")[1] == "ReplicasNotInSync"


def test_should_give_leaders_back_a_few_at_a_time() -> None:
    cluster = cluster_of(partitions=3 * LEADER_RETURNS_MAX)
    lose(cluster, 0)
    cluster.settle()
    cluster.start(BrokerId(0))
    cluster.catch_up()
    for share in (0, 1):
        assert leaders(cluster)[0] == share * LEADER_RETURNS_MAX
        cluster.plan()
    assert leaders(cluster) == dict.fromkeys(range(3), LEADER_RETURNS_MAX)


@examples(0.1)
@given(st.integers(0, 4), st.lists(st.integers(0, 3), max_size=4))
def test_should_elect_the_same_when_it_dies_after_any_prefix_of_its_actions(number: int, prefixes: list[int]) -> None:
    topics = [topic(name, partitions=104, replicas=3) for name in ("a", "b")]
    ends = []
    for lengths in (prefixes, []):
        cluster = ReplicatedCluster.of(topics, brokers(5))
        cluster.settle()
        lose(cluster, number)
        for length in lengths:
            cluster.plan(length)
        cluster.settle(work=False)
        ends.append((partitions(cluster), [topic.status for topic in cluster.api.topics.values()]))
    assert ends[0] == ends[1]


def test_should_elect_and_grow_in_one_write() -> None:
    cluster = cluster_of([broker(number) for number in range(4)], partitions=99)
    cluster.api.change(UID, spec={"partitions": 201})
    lose(cluster, 0)
    actions = cluster.api.plan()
    assert [type(action) for action in actions] == [SetFinalizers, ReplaceSet, CreateSet, CreateSet]
    assert "is gone" in actions[1].reason
    assert actions[1].reason.endswith("; place 1 partitions")
    cluster.settle(work=False)
    assert len(partitions(cluster)) == 201
    assert leaders(cluster)[0] == 0


def test_should_elect_although_it_cannot_grow() -> None:
    cluster = cluster_of()
    cluster.api.change(UID, spec={"partitions": 9})
    lose(cluster, 0)
    cluster.settle()
    assert set(leaders(cluster)) == {1, 2}
    assert condition(cluster, "Ready")[1] == "InsufficientBrokers"


def test_should_elect_although_it_is_too_early_to_place_anything() -> None:
    cluster = cluster_of([broker(number) for number in range(4)], replicas=2, partitions=4)
    cluster.api.change(UID, spec={"partitions": 9})
    lose(cluster, 0)
    spare = next(n for n in range(1, 4) if all(n not in s.replicas for s in partitions(cluster) if 0 in s.replicas))
    cluster.api.brokers[BrokerId(spare)] = broker(spare, state=BrokerState.UNPROVEN)
    cluster.plan()
    assert leaders(cluster)[0] == 0
    assert len(partitions(cluster)) == 4
    assert cluster.api.plan() == []


def test_should_call_a_topic_offline_and_name_those_that_were_in_sync() -> None:
    cluster = cluster_of(partitions=1)
    lose(cluster, 0)
    cluster.settle()
    lose(cluster, 1, 2)
    cluster.settle()
    assert condition(cluster, "Ready")[1] == "PartitionsOffline"
    message = "partition 0: no live leader; these brokers were in sync, start them: 1, 2"
    assert condition(cluster, "Offline") == ("True", "NoLiveLeader", message)


def test_should_say_when_acks_all_is_refused() -> None:
    cluster = cluster_of(partitions=1)
    lose(cluster, 1, 2)
    cluster.settle()
    message = "partition 0: fewer replicas in sync than minInsyncReplicas, 2: acks=all is refused"
    assert condition(cluster, "UnderReplicated") == ("True", "BelowMinInsyncReplicas", message)
    assert condition(cluster, "Ready")[0] == "True"


def test_should_tell_what_an_unclean_election_loses() -> None:
    cluster = cluster_of(partitions=1, minInsyncReplicas=1, uncleanLeaderElection=True)
    lose(cluster, 1, 2)
    cluster.settle()
    lose(cluster, 0)
    cluster.start(BrokerId(2))
    (write,) = cluster.plan()
    assert isinstance(write, ReplaceSet)
    (notice,) = write.notices
    assert (notice.reason, notice.warning) == ("UncleanLeaderElection", True)
    assert "partition 0: 2@2 was elected" in notice.message
    assert cluster.unclean == 1


def test_should_decide_nothing_about_a_topic_whose_metadata_went_back() -> None:
    cluster = cluster_of()
    cluster.api.regressed = frozenset({TopicUid(UID)})
    cluster.api.change(UID, spec={"partitions": 9, "replicas": 1})
    lose(cluster, 0)
    (patch,) = cluster.plan()
    assert isinstance(patch, PatchStatus)
    status, reason, message = condition(cluster, "Ready")
    assert (status, reason) == ("False", "MetadataRegressed")
    assert "headrace cluster recover" in message
    assert cluster.plan() == []


# Reassignments


def test_should_raise_and_lower_the_replicas_and_say_so_on_the_way() -> None:
    cluster = cluster_of(replicas=1, partitions=REASSIGNMENTS_MAX + 2)
    cluster.api.change(UID, spec={"replicas": 3, "min_insync_replicas": 2})
    cluster.settle(work=False)
    message = (
        f"partitions {', '.join(map(str, range(10)))}: replicas are moving; partitions that wait for their turn: 2"
    )
    assert condition(cluster, "Reassigning") == ("True", "ReplicasMoving", message)
    assert condition(cluster, "UnderReplicated")[:2] == ("True", "ReplicasNotInSync"), "acks=all goes on meanwhile"
    cluster.settle()
    assert {len(state.isr) for state in partitions(cluster)} == {3}
    for kind, wanted in {"Ready": "True", "Reassigning": "False", "UnderReplicated": "False"}.items():
        assert condition(cluster, kind)[0] == wanted
    cluster.api.change(UID, spec={"replicas": 1, "min_insync_replicas": 1})
    cluster.settle()
    assert all(len(state.replicas) == len(state.isr) == 1 for state in partitions(cluster))
    assert leaders(cluster) == {0: 4, 1: 4, 2: 4}


def test_should_say_that_others_copy_first() -> None:
    copying = topic("a", partitions=REASSIGNMENTS_MAX)
    cluster = ReplicatedCluster.of([copying, topic(partitions=1)], brokers(2))
    cluster.settle()
    for uid in ("uid-a", UID):
        cluster.api.change(uid, spec={"replicas": 2})
    cluster.settle(work=False)
    assert condition(cluster, "Reassigning") == ("True", "WaitingForTurn", "partitions that wait for their turn: 1")


def test_should_empty_a_broker_that_is_to_leave() -> None:
    cluster = cluster_of([broker(number) for number in range(4)])
    cluster.leave(BrokerId(3))
    cluster.settle()
    assert all(3 not in state.replicas and 3 not in leaders(cluster) for state in partitions(cluster))
    assert {len(state.isr) for state in partitions(cluster)} == {3}


def test_should_say_when_a_broker_cannot_leave() -> None:
    cluster = cluster_of()
    cluster.leave(BrokerId(2))
    cluster.settle()
    status, reason, message = condition(cluster, "Reassigning")
    assert (status, reason) == ("True", "WaitingForBrokers")
    assert "brokers that are to leave (2)" in message
    assert 2 not in leaders(cluster)


def test_should_not_count_what_is_to_go_as_in_sync() -> None:
    cluster = cluster_of(partitions=1)
    (state,) = partitions(cluster)
    assert in_sync(state, cluster.api.observed) == 3
    assert in_sync(replace(state, removing=(BrokerId(2),)), cluster.api.observed) == 2


def test_should_keep_the_finalizer_before_everything_else() -> None:
    cluster = cluster_of()
    cluster.api.change(UID, finalizers=())
    lose(cluster, 0)
    assert [type(action) for action in cluster.api.plan()] == [SetFinalizers, ReplaceSet]


def test_should_announce_as_before_when_it_goes_offline() -> None:
    cluster = cluster_of(partitions=1)
    lose(cluster, 0, 1, 2)
    cluster.plan()
    (patch,) = cluster.plan()
    assert isinstance(patch, PatchStatus)
    assert [notice.reason for notice in patch.notices] == ["PartitionsOffline"]
    assert isinstance(patch.notices[0], Notice)


def test_should_name_a_broker_that_there_is_not() -> None:
    cluster = cluster_of(brokers(2), partitions=1, replicas=2)
    ((name, found),) = cluster.api.sets.items()
    (state,) = found.partitions
    assert state.leader is not None
    kept = state.leader
    edited = replace(
        state,
        replicas=(kept.broker, BrokerId(9)),
        isr=(kept,),
        partition_epoch=PartitionEpoch(state.partition_epoch + 1),
    )
    cluster.api.sets[name] = found.with_partitions(edited)
    cluster.api.brokers = {kept.broker: cluster.api.brokers[kept.broker]}
    written = [action for action in cluster.api.plan() if isinstance(action, PatchStatus)]
    told = next(each for each in written[0].status["conditions"] if each["type"] == "UnderReplicated")
    assert (told["reason"], told["message"]) == (
        "ReplicasNotInSync",
        "partition 0: a replica is not in sync, that of broker 9; there is no broker 9 (without a Lease): others take"
        " over as soon as there are enough",
    )

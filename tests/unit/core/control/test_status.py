from dataclasses import replace
from typing import Any

from headrace.core.control.actions import Notice, PatchStatus
from headrace.core.control.observed import Broker, BrokerState
from headrace.core.control.status import BrokerStanding, Health, standings
from headrace.core.resources.partition_set import PartitionState
from headrace.core.types import BrokerId, TopicUid
from tests.support.control import NOW_MS, ModelApi, broker, brokers, topic
from tests.support.replicated import ReplicatedCluster

UID = "uid-flights"
LATER_MS = NOW_MS + 60_000
NOW, LATER = "2026-11-21T09:00:00Z", "2026-11-21T09:01:00Z"
PAUSED = {"headrace.io/paused": "true"}


def settled(partitions: int = 6, among: list[Broker] | None = None, **spec: Any) -> ModelApi:
    api = ModelApi.of([topic(partitions=partitions, **spec)], brokers(3) if among is None else among)
    api.settle()
    return api


def status(api: ModelApi) -> dict[str, Any]:
    return api.topics[TopicUid(UID)].status


def only_patch(api: ModelApi, now_ms: int = NOW_MS) -> PatchStatus:
    (patch,) = api.plan(now_ms)
    assert isinstance(patch, PatchStatus)
    api.carry_out(patch)
    return patch


def lose(api: ModelApi, number: int) -> None:
    api.brokers[BrokerId(number)] = broker(number, state=BrokerState.LOST)


def change_partition(api: ModelApi, number: int, **changes: Any) -> PartitionState:
    found = api.sets["flights-0"]
    changed = replace(found.partitions[number], **changes)
    api.sets["flights-0"] = found.with_partitions(changed)
    return changed


def test_should_summarize_a_healthy_topic_as_the_contract_shows() -> None:
    assert status(settled()) == {
        "observedGeneration": 1,
        "minInsyncReplicas": 1,
        "leaders": "6/6",
        "inSync": "6/6",
        "leadersByBroker": "0:2 1:2 2:2",
        "conditions": [
            condition("Ready", "True", "AllPartitionsOnline"),
            condition("UnderReplicated", "False", "AllReplicasInSync"),
            condition("Offline", "False", "AllPartitionsOnline"),
            condition("Reassigning", "False", "NothingMoving"),
            condition("Paused", "False", "NotPaused"),
        ],
    }


def condition(kind: str, value: str, reason: str) -> dict[str, Any]:
    return {
        "type": kind,
        "status": value,
        "reason": reason,
        "message": "",
        "observedGeneration": 1,
        "lastTransitionTime": NOW,
    }


def test_should_announce_that_a_topic_became_ready() -> None:
    api = ModelApi.of([topic()], brokers(1))
    for action in api.plan():
        api.carry_out(action)
    assert only_patch(api).notices == (Notice("AllPartitionsOnline", "every partition has a live leader"),)


def test_should_say_how_many_brokers_are_missing_when_none_is_live() -> None:
    api = settled(among=[broker(0, state=BrokerState.LOST)])
    ready = api.condition(UID, "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "InsufficientBrokers")
    assert "there are 0 of 1: start more brokers" in ready["message"]
    for kind in ("Offline", "UnderReplicated"):
        unplaced = api.condition(UID, kind)
        assert (unplaced["status"], unplaced["reason"]) == ("True", "NotPlaced")
        assert unplaced["message"].startswith("6 of 6 partitions stand on no broker yet")
    assert status(api)["leaders"] == "0/6"
    assert not api.sets


def test_should_go_offline_with_a_warning_when_a_leader_is_lost() -> None:
    api = settled()
    lose(api, 1)
    (notice,) = only_patch(api, LATER_MS).notices
    assert notice.warning
    assert notice.message == ("partitions 1, 4: no live leader; the replicas are on these brokers, start them: 1")
    assert status(api)["leaders"] == "4/6"
    assert status(api)["inSync"] == "4/6"
    assert status(api)["leadersByBroker"] == "0:2 2:2"
    for kind, value in {"Ready": "False", "Offline": "True", "UnderReplicated": "True", "Paused": "False"}.items():
        assert api.condition(UID, kind)["status"] == value
    assert api.plan(LATER_MS) == []


def test_should_go_offline_when_the_leader_has_started_again_and_not_yet_taken_its_seat() -> None:
    api = settled()
    api.brokers[BrokerId(1)] = broker(1, incarnation=2)
    only_patch(api)
    assert status(api)["leaders"] == "4/6"


def test_should_be_offline_when_a_partition_has_no_leader() -> None:
    api = settled()
    change_partition(api, 3, leader=None)
    only_patch(api)
    assert status(api)["leaders"] == "5/6"
    assert api.condition(UID, "Offline")["message"].startswith("partition 3: no live leader")


def test_should_name_no_broker_when_no_replica_is_left() -> None:
    api = settled()
    change_partition(api, 3, leader=None, isr=(), replicas=())
    only_patch(api)
    assert api.condition(UID, "Offline")["message"].endswith("start them: none")


def test_should_count_what_it_does_not_name_when_very_many_are_offline() -> None:
    api = settled(partitions=40, among=brokers(1))
    lose(api, 0)
    only_patch(api)
    assert "partitions 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 30 more:" in api.condition(UID, "Offline")["message"]


def test_should_move_the_transition_time_only_when_the_status_moves() -> None:
    api = settled()
    lose(api, 1)
    only_patch(api, LATER_MS)
    assert api.condition(UID, "Ready")["lastTransitionTime"] == LATER
    assert api.condition(UID, "Paused")["lastTransitionTime"] == NOW
    lose(api, 2)
    only_patch(api, LATER_MS + 60_000)
    assert api.condition(UID, "Ready")["lastTransitionTime"] == LATER


def test_should_be_silent_when_only_the_message_changes() -> None:
    api = settled()
    lose(api, 1)
    only_patch(api)
    lose(api, 2)
    assert only_patch(api).notices == ()


def test_should_report_moving_replicas() -> None:
    api = settled()
    for number in (0, 2):
        come, go = BrokerId(1), BrokerId(number)
        change_partition(api, number, replicas=(come, go), adding=(come,), removing=(go,))
    only_patch(api)
    assert api.condition(UID, "Reassigning")["status"] == "True"
    assert api.condition(UID, "Reassigning")["message"] == "partitions 0, 2: replicas are moving"


def test_should_follow_the_generation_when_the_spec_changes() -> None:
    api = settled()
    api.change(UID, spec={"retention_ms": 1})
    only_patch(api, LATER_MS)
    assert status(api)["observedGeneration"] == 2
    assert api.condition(UID, "Ready")["observedGeneration"] == 2
    assert api.condition(UID, "Ready")["lastTransitionTime"] == NOW


def test_should_change_nothing_but_one_condition_when_it_is_paused() -> None:
    api = settled()
    before = status(api)
    api.change(UID, annotations=PAUSED, spec={"partitions": 9})
    lose(api, 1)
    (notice,) = only_patch(api, LATER_MS).notices
    assert (notice.reason, notice.warning) == ("Paused", False)
    assert "headrace.io/paused" in notice.message
    assert api.condition(UID, "Paused")["status"] == "True"
    assert {**status(api), "conditions": None} == {**before, "conditions": None}
    assert status(api)["conditions"][:4] == before["conditions"][:4]
    assert api.plan(LATER_MS) == []
    assert len(api.sets["flights-0"].partitions) == 6


def test_should_go_on_when_the_pause_is_over() -> None:
    api = settled()
    before = api.topics[TopicUid(UID)].metadata.annotations
    api.change(UID, annotations={**before, **PAUSED})
    api.settle()
    api.change(UID, annotations=before)
    assert only_patch(api).notices == (Notice("Resumed", "the operator looks after this topic again"),)


def test_should_pause_a_topic_that_has_no_status_at_all() -> None:
    api = ModelApi.of([replace(topic(metadata={"annotations": PAUSED}), status={})], brokers(1))
    api.settle()
    (paused,) = status(api)["conditions"]
    assert (paused["type"], paused["status"]) == ("Paused", "True")


def test_should_keep_conditions_that_are_not_its_own() -> None:
    foreign = {"type": "Audited", "status": "True", "reason": "X", "message": "", "lastTransitionTime": NOW}
    api = ModelApi.of([replace(topic(), status={"conditions": [foreign]})], brokers(1))
    api.settle()
    assert api.condition(UID, "Audited") == foreign
    assert api.condition(UID, "Ready")["status"] == "True"


def health(cluster: ReplicatedCluster) -> Health:
    return Health.of(cluster.api.topics.values(), cluster.api.observed)


def cluster_of() -> ReplicatedCluster:
    topics = [topic("a", partitions=3, replicas=3), topic("b", partitions=2, replicas=1)]
    cluster = ReplicatedCluster.of(topics, brokers(3))
    cluster.settle()
    return cluster


def test_should_find_nothing_where_all_is_well_and_not_look_at_other_clusters() -> None:
    cluster = cluster_of()
    other = topic("c", cluster="other")
    cluster.api.topics[other.uid] = other
    assert health(cluster) == Health(topics=2, partitions=5)


def test_should_count_what_is_not_as_it_should_be() -> None:
    cluster = cluster_of()
    cluster.lose(BrokerId(2))
    cluster.settle(work=False)
    assert health(cluster) == Health(topics=2, partitions=5, under_replicated=3, not_preferred=1)
    cluster.lose(BrokerId(1))
    cluster.settle(work=False)
    assert health(cluster) == Health(
        topics=2, partitions=5, offline=1, under_replicated=4, under_min_isr=4, not_preferred=2
    )


def test_should_count_partitions_that_move() -> None:
    cluster = cluster_of()
    cluster.api.brokers[BrokerId(3)] = replace(cluster.api.brokers[BrokerId(0)], id=BrokerId(3))
    cluster.leave(BrokerId(1))
    cluster.settle(work=False)
    assert health(cluster).reassigning == 4


def test_should_miss_a_broker_that_stopped_only_where_it_is_to_come_back() -> None:
    cluster = cluster_of()
    api = cluster.api
    api.expected = frozenset({BrokerId(0), BrokerId(1)})
    for number in (1, 2):
        cluster.lose(BrokerId(number))
        api.brokers[BrokerId(number)] = replace(api.brokers[BrokerId(number)], clean=True)
    assert standings(api.observed) == {BrokerStanding.READY: 1, BrokerStanding.STOPPED: 1, BrokerStanding.GONE: 1}


def test_should_miss_a_broker_that_was_killed_and_is_to_go_for_as_long_as_it_has_replicas() -> None:
    cluster = cluster_of()
    api = cluster.api
    cluster.lose(BrokerId(2))
    cluster.leave(BrokerId(2))
    assert standings(api.observed) == {BrokerStanding.READY: 2, BrokerStanding.LOST: 1}
    api.brokers[BrokerId(3)] = replace(api.brokers[BrokerId(0)], id=BrokerId(3), state=BrokerState.LOST)
    assert standings(api.observed) == {BrokerStanding.READY: 2, BrokerStanding.LOST: 2}
    cluster.leave(BrokerId(3))
    assert standings(api.observed) == {BrokerStanding.READY: 2, BrokerStanding.LOST: 1, BrokerStanding.GONE: 1}

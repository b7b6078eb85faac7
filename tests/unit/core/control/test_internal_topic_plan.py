from dataclasses import replace
from typing import Any

import pytest

from headrace.core.control.actions import CreateTopic, PatchStatus, PatchTopic
from headrace.core.control.conditions import by_type
from headrace.core.control.observed import BrokerState
from headrace.core.resources.consumer_group import ConsumerGroup
from headrace.core.resources.internal_topics import commits_manifest, staging_manifest
from headrace.core.resources.topic import CleanupPolicy, DeletionPolicy, Topic
from tests.support.control import ModelApi, broker, brokers, topic
from tests.support.group_control import HOME, ModelGroups, group

TOPIC = "headrace-offsets"


def settled(*groups: ConsumerGroup, count: int = 3) -> ModelGroups:
    model = ModelGroups.of(ModelApi.of([], brokers(count)), *(groups or (group(),)))
    model.settle()
    return model


def offsets_topic(model: ModelGroups) -> Topic:
    assert model.topic is not None
    return model.topic


def edit(model: ModelGroups, **spec: Any) -> None:
    model.api.change(offsets_topic(model).uid, spec=spec)


def in_use(model: ModelGroups) -> dict[str, Any]:
    return dict(by_type(offsets_topic(model).status["conditions"])["InUse"])


def test_should_make_the_topic_when_there_is_a_group() -> None:
    model = settled()
    found = offsets_topic(model)
    spec = found.spec
    assert (spec.partitions, spec.replicas, spec.max_message_bytes) == (16, 3, 8 << 20)
    assert (spec.cleanup_policy, spec.deletion_policy) == (CleanupPolicy.COMPACT, DeletionPolicy.RETAIN)
    assert found.metadata.labels == {"headrace.io/internal": "true", "headrace.io/cluster": "headrace"}
    assert in_use(model)["reason"] == "HoldsOffsets"
    assert by_type(found.status["conditions"])["Ready"]["status"] == "True"
    assert [state for each in model.api.sets.values() for state in each.partitions if len(state.isr) < 3] == []


def test_should_cost_a_cluster_without_groups_nothing() -> None:
    assert settled(group(cluster="other")).topic is None


def test_should_not_make_the_topic_for_a_group_that_is_going() -> None:
    model = ModelGroups.of(ModelApi.of([], brokers(3)), group(metadata={"finalizers": ("a", "headrace.io/group")}))
    model.delete()
    model.settle()
    assert model.topic is None
    assert model.found().metadata.finalizers == ("a",), "there is nothing to be deleted"


@pytest.mark.parametrize("state", [BrokerState.UNPROVEN, BrokerState.LOST])
def test_should_wait_until_it_is_known_who_can_hold_it(state: BrokerState) -> None:
    api = ModelApi.of([], [broker(0, state=state)])
    model = ModelGroups.of(api, group())
    model.settle()
    assert model.topic is None
    assert model.condition("Ready")[:2] == ("False", "Pending")
    assert "start one" in model.condition("Ready")[2]
    api.brokers[broker(0).id] = broker(0)
    (planned, *_) = model.actions()
    assert isinstance(planned, CreateTopic)
    model.carry_out(planned)
    assert offsets_topic(model).spec.replicas == 1


def test_should_raise_the_replicas_with_the_cluster_and_never_lower_them() -> None:
    model = settled(count=1)
    assert offsets_topic(model).spec.replicas == 1
    model.api.brokers |= {each.id: each for each in brokers(3)}
    model.settle()
    assert offsets_topic(model).spec.replicas == 3
    assert "ReplicasRaised" in model.told
    del model.api.brokers[broker(2).id]
    model.told.clear()
    model.settle()
    assert (offsets_topic(model).spec.replicas, model.told) == (3, [])


def test_should_not_count_brokers_that_are_to_leave() -> None:
    model = settled(count=1)
    model.api.brokers |= {each.id: each for each in brokers(3)}
    model.api.leaving = frozenset({broker(2).id})
    model.settle()
    assert offsets_topic(model).spec.replicas == 2


def test_should_let_people_ask_for_more_replicas() -> None:
    model = settled(count=5)
    edit(model, replicas=5)
    model.settle()
    assert offsets_topic(model).spec.replicas == 5


def test_should_put_back_what_is_edited_and_say_so() -> None:
    model = settled()
    edit(
        model,
        cleanup_policy=CleanupPolicy.DELETE,
        max_message_bytes=1,
        deletion_policy=DeletionPolicy.DELETE,
        replicas=1,
    )
    (planned,) = model.actions()
    assert isinstance(planned, PatchTopic)
    assert planned.patch == {
        "spec": {"cleanupPolicy": "Compact", "maxMessageBytes": "8Mi", "deletionPolicy": "Retain", "replicas": 3}
    }
    restored, raised = planned.notices
    assert (restored.reason, restored.warning, raised.reason) == ("Restored", True, "ReplicasRaised")
    assert "cleanupPolicy is Compact again, not Delete" in restored.message
    model.settle()
    assert offsets_topic(model).spec.cleanup_policy is CleanupPolicy.COMPACT


def test_should_take_over_a_topic_that_somebody_made_before_and_tell_of_its_partitions() -> None:
    made = topic(TOPIC, partitions=4, replicas=3, cleanupPolicy="Compact", deletionPolicy="Retain")
    model = ModelGroups.of(ModelApi.of([made], brokers(3)), group())
    model.settle()
    found = offsets_topic(model)
    assert (found.uid, found.spec.partitions) == (made.uid, 16), "before any group has offsets in it"
    assert (found.metadata.labels["headrace.io/internal"], found.metadata.finalizers) == (
        "true",
        ("headrace.io/in-use",),
    )
    assert in_use(model)["reason"] == "HoldsOffsets"
    assert model.told.count("PartitionsRaised") == 1
    assert model.condition("Ready")[1] == "Pending"
    assert "told" in model.condition("Ready")[2], "its coordinator is there"


@pytest.mark.parametrize(("partitions", "used"), [(4, 4), (17, 16)])
def test_should_say_that_partitions_stay_as_they_are_once_groups_may_be_in_it(partitions: int, used: int) -> None:
    labels = {"labels": {"headrace.io/internal": "true"}}
    made = topic(TOPIC, partitions=partitions, replicas=3, metadata=labels)
    model = ModelGroups.of(ModelApi.of([made], brokers(3)), group())
    model.settle()
    assert offsets_topic(model).spec.partitions == partitions
    assert in_use(model)["reason"] == "OtherPartitions"
    assert f"the first {used} are used" in in_use(model)["message"]
    assert model.told.count("OtherPartitions") == 1


def test_should_mark_its_topic_again_and_change_nothing_else() -> None:
    model = settled()
    model.api.change(offsets_topic(model).uid, labels={})
    (planned,) = model.actions()
    assert isinstance(planned, PatchTopic)
    assert planned.patch == {"metadata": {"labels": {"headrace.io/internal": "true"}}}
    assert planned.notices == ()


def test_should_put_back_what_would_lose_offsets_or_time() -> None:
    model = settled()
    edit(model, unclean_leader_election=True, min_insync_replicas=1, segment_bytes=256 << 20)
    (planned,) = model.actions()
    assert isinstance(planned, PatchTopic)
    assert planned.patch == {
        "spec": {"segment": {"bytes": "16Mi"}, "uncleanLeaderElection": False, "minInsyncReplicas": None}
    }
    (restored,) = planned.notices
    assert "uncleanLeaderElection is false again" in restored.message
    model.settle()
    spec = offsets_topic(model).spec
    assert (spec.min_insync_replicas, spec.segment_bytes, spec.unclean_leader_election) == (2, 16 << 20, False)
    model.told.clear()
    edit(model, min_insync_replicas=3, segment_bytes=1 << 20)
    model.settle()
    assert (offsets_topic(model).spec.min_insync_replicas, model.told) == (3, []), "that is stricter"


def test_should_not_touch_what_is_another_clusters_and_say_what_to_do() -> None:
    made = topic(TOPIC, cluster="other")
    model = ModelGroups.of(ModelApi.of([made], brokers(3)), group())
    model.settle()
    assert offsets_topic(model) == made
    assert "belongs to cluster other" in model.condition("Ready")[2]


def test_should_leave_a_paused_topic_alone() -> None:
    model = settled()
    model.api.change(offsets_topic(model).uid, annotations={"headrace.io/paused": "true"})
    edit(model, cleanup_policy=CleanupPolicy.DELETE)
    model.settle()
    assert offsets_topic(model).spec.cleanup_policy is CleanupPolicy.DELETE


def test_should_serve_a_topic_that_somebody_deletes_until_the_last_group_is_gone() -> None:
    model = settled()
    before = dict(model.api.sets)
    model.api.delete_topic(offsets_topic(model).uid)
    model.told.clear()
    model.settle()
    assert in_use(model)["reason"] == "DeletionWaits"
    assert "delete the ConsumerGroups first" in in_use(model)["message"]
    assert model.told == ["DeletionWaits"]
    assert model.api.sets == before
    model.api.brokers[broker(0).id] = broker(0, state=BrokerState.LOST)
    model.settle()
    led = {state.leader.broker for each in model.api.sets.values() for state in each.partitions if state.leader}
    assert led == {1, 2}, "leaders are elected as ever"
    model.groups.clear()
    model.settle()
    assert (model.topic, model.api.sets) == (None, {})


def test_should_keep_the_topic_when_the_last_group_goes_and_nobody_deletes_it() -> None:
    model = settled()
    model.groups.clear()
    model.settle()
    assert offsets_topic(model).metadata.finalizers == ("headrace.io/in-use",)


def test_should_make_it_anew_when_somebody_takes_the_finalizer_away() -> None:
    model = settled()
    uid = offsets_topic(model).uid
    model.api.change(uid, finalizers=())
    model.api.delete_topic(uid)
    model.settle()
    assert offsets_topic(model).uid != uid


def test_should_not_put_anything_back_on_what_is_going() -> None:
    model = settled()
    uid = offsets_topic(model).uid
    model.api.change(uid, finalizers=("somebody/else",), deletion_timestamp="2026-11-21T09:00:00Z")
    edit(model, cleanup_policy=CleanupPolicy.DELETE)
    assert model.plan().topic is None
    assert offsets_topic(model).is_going


def test_should_not_write_the_status_while_the_other_loop_does() -> None:
    model = settled()
    found = offsets_topic(model)
    kept = [each for each in found.status["conditions"] if each["type"] != "InUse"]
    model.api.topics[found.uid] = replace(found, status={**found.status, "conditions": kept})
    model.settled = False
    assert model.plan().topic is None
    model.settled = True
    planned = model.plan().topic
    assert isinstance(planned, PatchStatus)
    assert len(planned.status["conditions"]) == len(kept) + 1


COMMITS, STAGING = "headrace-commits", "headrace-staging"


def made(name: str, replicas: int = 1, cluster: str = "headrace", **metadata: Any) -> Topic:
    """As a broker makes it."""
    parsed = Topic.parse({COMMITS: commits_manifest, STAGING: staging_manifest}[name](HOME, cluster, replicas))
    fields = {"uid": f"uid-{name}", "resource_version": "1", "generation": 1, **metadata}
    return replace(topic(name), spec=parsed.spec, metadata=replace(parsed.metadata, **fields))


def model_of(*topics: Topic, count: int = 3) -> ModelGroups:
    return ModelGroups.of(ModelApi.of([*topics], brokers(count)))


def found(model: ModelGroups, name: str) -> Topic:
    return next(each for each in model.api.topics.values() if each.metadata.name == name)


@pytest.mark.parametrize("name", [COMMITS, STAGING])
def test_should_raise_the_replicas_with_the_cluster_and_change_nothing_else(name: str) -> None:
    model = model_of(made(name))
    (planned,) = model.actions()
    assert isinstance(planned, PatchTopic)
    assert planned.patch == {"spec": {"replicas": 3}}
    model.settle()
    assert found(model, name).spec.replicas == 3
    assert model.told == ["ReplicasRaised"]


def test_should_keep_both_one_after_the_other() -> None:
    model = model_of(made(COMMITS), made(STAGING))
    model.settle()
    assert {each.metadata.name: each.spec.replicas for each in model.api.topics.values()} == {COMMITS: 3, STAGING: 3}


def test_should_put_back_what_would_lose_stages() -> None:
    model = model_of(made(STAGING, replicas=3))
    edits = {"cleanup_policy": CleanupPolicy.COMPACT, "retention_ms": 1_000, "max_message_bytes": 1 << 20}
    model.api.change(found(model, STAGING).uid, spec={**edits, "unclean_leader_election": True})
    (planned,) = model.actions()
    assert isinstance(planned, PatchTopic)
    assert planned.patch == {
        "spec": {
            "cleanupPolicy": "Delete",
            "maxMessageBytes": "64Mi",
            "retention": {"time": "unlimited", "bytes": "unlimited"},
            "uncleanLeaderElection": False,
        }
    }
    (notice,) = planned.notices
    assert (notice.reason, notice.warning) == ("Restored", True)
    assert "retention is unlimited again: coordinators delete what nobody needs" in notice.message
    model.settle()
    assert found(model, STAGING).spec.retention_ms is None


def test_should_put_back_what_would_lose_decisions() -> None:
    model = model_of(made(COMMITS, replicas=3))
    model.api.change(found(model, COMMITS).uid, spec={"cleanup_policy": CleanupPolicy.DELETE}, labels={})
    (planned,) = model.actions()
    assert isinstance(planned, PatchTopic)
    assert planned.patch == {
        "metadata": {"labels": {"headrace.io/internal": "true"}},
        "spec": {"cleanupPolicy": "Compact"},
    }


@pytest.mark.parametrize(
    "left_alone",
    [
        made(COMMITS, cluster="other"),
        made(COMMITS, annotations={"headrace.io/paused": "true"}),
        made(COMMITS, namespace="elsewhere"),
        made(COMMITS, deletion_timestamp="2026-11-23T00:00:00Z", finalizers=("example.com/held",)),
    ],
)
def test_should_leave_alone_what_is_not_its_own_or_is_going(left_alone: Topic) -> None:
    assert model_of(left_alone).actions() == []

from dataclasses import replace
from typing import Any

import pytest

from headrace.core.control.actions import PatchTopic
from headrace.core.resources.internal_topics import commits_manifest, staging_manifest
from headrace.core.resources.topic import CleanupPolicy, Topic
from tests.support.control import ModelApi, brokers, topic
from tests.support.group_control import HOME, ModelGroups

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

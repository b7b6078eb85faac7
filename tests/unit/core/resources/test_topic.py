"""A topic's spec survives being written down beside its data."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.resources.metadata import InvalidResourceError
from headrace.core.resources.topic import (
    CleanupPolicy,
    DeletionPolicy,
    Durability,
    TimestampType,
    Topic,
    TopicSpec,
    topic_manifest,
)
from headrace.core.types import TopicName

amounts = st.integers(1, 10**12)
specs = st.builds(
    TopicSpec,
    partitions=st.integers(1, 1024),
    cluster=st.sampled_from(["headrace", "other"]),
    replicas=st.integers(1, 7),
    min_insync_replicas=st.integers(1, 7),
    durability=st.sampled_from(Durability),
    cleanup_policy=st.sampled_from(CleanupPolicy),
    retention_ms=st.none() | amounts,
    retention_bytes=st.none() | amounts,
    segment_bytes=amounts,
    segment_ms=amounts,
    min_compaction_lag_ms=st.just(0) | amounts,
    delete_retention_ms=amounts,
    max_message_bytes=amounts,
    timestamp_type=st.sampled_from(TimestampType),
    timestamps_before_max_ms=st.none() | amounts,
    timestamps_after_max_ms=st.none() | amounts,
    unclean_leader_election=st.booleans(),
    deletion_policy=st.sampled_from(DeletionPolicy),
)


@given(specs)
def test_should_come_back_when_any_spec_is_written_out(spec: TopicSpec) -> None:
    assert TopicSpec.parse(spec.to_object()) == spec


def test_should_fill_in_the_defaults_of_the_resource() -> None:
    spec = TopicSpec.parse({"partitions": 6})
    assert (spec.cluster, spec.replicas, spec.min_insync_replicas) == ("headrace", 3, 2)
    assert (spec.durability, spec.cleanup_policy) == (Durability.FSYNC, CleanupPolicy.DELETE)
    assert (spec.retention_ms, spec.retention_bytes) == (7 * 86_400_000, None)
    assert (spec.segment_bytes, spec.segment_ms) == (256 << 20, 86_400_000)
    assert (spec.min_compaction_lag_ms, spec.delete_retention_ms) == (0, 86_400_000)
    assert spec.max_message_bytes == 8 << 20
    assert spec.timestamp_type is TimestampType.CREATE_TIME
    assert (spec.timestamps_before_max_ms, spec.timestamps_after_max_ms) == (None, None)
    assert (spec.unclean_leader_election, spec.deletion_policy) == (False, DeletionPolicy.DELETE)


@pytest.mark.parametrize(("replicas", "effective"), [(1, 1), (2, 1), (3, 2), (7, 6)])
def test_should_ask_for_all_but_one_in_sync_when_the_resource_does_not_say(replicas: int, effective: int) -> None:
    assert TopicSpec.parse({"partitions": 1, "replicas": replicas}).min_insync_replicas == effective


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, "spec.partitions: None is not a whole number"),
        ({"partitions": "6"}, "spec.partitions: '6' is not a whole number"),
        ({"partitions": True}, "spec.partitions: True is not a whole number"),
        ({"partitions": 1, "retention": {"time": "1w"}}, "spec.retention.time: '1w' is not a duration"),
        ({"partitions": 1, "segment": {"bytes": "1KB"}}, "spec.segment.bytes: '1KB' is not a quantity"),
        ({"partitions": 1, "durability": "Hope"}, "spec.durability: 'Hope' is none of "),
    ],
)
def test_should_name_field_and_value_when_a_spec_is_wrong(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidResourceError) as error:
        TopicSpec.parse(spec)
    assert message in str(error.value)


def test_should_read_a_whole_topic() -> None:
    obj = topic_manifest("flights", "data", {"partitions": 2})
    obj["metadata"] |= {"uid": "uid-1", "annotations": {"headrace.io/paused": "true"}}
    obj["status"] = {"leaders": "2/2"}
    topic = Topic.parse(obj)
    assert topic.full_name == TopicName("data", "flights")
    assert str(topic.full_name) == "data/flights"
    assert topic.uid == "uid-1"
    assert topic.paused
    assert topic.status == {"leaders": "2/2"}


@pytest.mark.parametrize(
    ("said", "paused", "invalid"),
    [
        ("true", True, None),
        ("True", True, None),
        ("TRUE ", True, None),
        ("false", False, None),
        ("False", False, None),
        ("yes", False, "yes"),
        ("1", False, "1"),
        ("", False, ""),
    ],
)
def test_should_be_paused_when_the_annotation_says_true_in_any_case(
    said: str, paused: bool, invalid: str | None
) -> None:
    obj = topic_manifest("flights", "data", {"partitions": 2})
    obj["metadata"]["annotations"] = {"headrace.io/paused": said}
    topic = Topic.parse(obj)
    assert (topic.paused, topic.invalid_pause) == (paused, invalid)


def test_should_not_be_paused_when_there_is_no_annotation() -> None:
    topic = Topic.parse(topic_manifest("flights", "data", {"partitions": 2}))
    assert (topic.paused, topic.invalid_pause) == (False, None)


@pytest.mark.parametrize("spec", [None, "text", []])
def test_should_refuse_a_topic_without_a_spec(spec: object) -> None:
    with pytest.raises(InvalidResourceError, match="spec is missing"):
        Topic.parse({"metadata": {"name": "flights"}, "spec": spec})


@pytest.mark.parametrize(
    "spec",
    [
        {"partitions": 6},
        {"partitions": 1, "replicas": 1, "retention": {"time": "unlimited", "bytes": "10Gi"}},
        {"partitions": 2, "durability": "Replicated", "deletionPolicy": "Retain", "segment": {"bytes": "1Mi"}},
    ],
)
def test_should_parse_to_the_same_when_it_is_written_out(spec: dict[str, object]) -> None:
    parsed = TopicSpec.parse(spec)
    assert TopicSpec.parse(parsed.to_object()) == parsed

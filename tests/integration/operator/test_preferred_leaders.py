"""An annotation says who is to lead, and the operator moves leadership there; what it cannot do it says."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.cluster import Cluster, http, running_cluster
from tests.support.waiting import wait_for

_TOPIC = "/apis/headrace.io/v1alpha1/namespaces/default/topics/flights"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("preferred"), brokers=3, options=("--zone", "a")) as cluster:
        cluster.create_topic(partitions=3, replicas=3)
        yield cluster


def annotate(cluster: Cluster, value: str | None) -> None:
    cluster.kube("PATCH", _TOPIC, {"metadata": {"annotations": {"headrace.io/preferred-leaders": value}}})


def leaders(cluster: Cluster) -> list[int | None]:
    answer = http("GET", f"{cluster.url()}/v1/namespaces/default/topics/flights").json
    return [each["leader"] and each["leader"]["id"] for each in answer["partitions"]]


def condition(cluster: Cluster) -> dict[str, Any] | None:
    conditions = cluster.kube("GET", _TOPIC)["status"].get("conditions", [])
    return next((each for each in conditions if each["type"] == "PreferredLeaders"), None)


def is_condition(cluster: Cluster, status: str, reason: str) -> bool:
    found = condition(cluster)
    return found is not None and (found["status"], found["reason"]) == (status, reason)


@pytest.mark.timeout(240)
def test_should_move_leadership_to_whom_the_annotation_names(cluster: Cluster) -> None:
    assert condition(cluster) is None
    for broker in (2, 0):
        annotate(cluster, json.dumps(dict.fromkeys("012", broker)))
        wait_for(lambda broker=broker: leaders(cluster) == [broker] * 3, f"broker {broker} leads all", timeout_s=90)  # type: ignore[misc]
    wait_for(lambda: is_condition(cluster, "True", "Accepted"), "it is told")
    annotate(cluster, '{"0": 9, "7": 1}')
    wait_for(lambda: is_condition(cluster, "False", "Refused"), "the mistakes are told")
    message = (condition(cluster) or {})["message"]
    assert "broker 9 has no replica of it: name one of 0, 1, 2" in message
    assert "there is no partition '7'" in message
    annotate(cluster, None)
    wait_for(lambda: is_condition(cluster, "False", "NotSet"), "nobody asks for anything")


def test_should_tell_prometheus_where_the_brokers_are(cluster: Cluster) -> None:
    targets = targets_of(cluster)
    assert [each["labels"]["__meta_headrace_broker"] for each in targets] == ["0", "1", "2"]
    assert {each["labels"]["__meta_headrace_zone"] for each in targets} == {"a"}
    assert [each["labels"]["instance"] for each in targets] == ["headrace-0", "headrace-1", "headrace-2"]
    for each in targets:
        url = f"{each['labels']['__scheme__']}://{each['targets'][0]}"
        assert b"headrace_broker_" in http("GET", f"{url}/metrics").body
    cluster.broker(2).stop()
    wait_for(lambda: targets_of(cluster) == targets[:2], "who has stopped is left out")


def targets_of(cluster: Cluster) -> list[dict[str, Any]]:
    """By broker 0."""
    answer = http("GET", f"{cluster.url()}/v1/prometheus/targets")
    assert answer.headers["content-type"] == "application/json"
    targets: list[dict[str, Any]] = answer.json
    return targets

"""What a user has after `helm install`."""

import json

import pytest

from e2e.lab.errors import LabError
from e2e.release import Release
from e2e.waiting import wait_for


def test_should_run_brokers_and_operators_when_installed(release: Release) -> None:
    assert release.get("statefulset", release.name)["status"]["readyReplicas"] == 3
    assert release.get("deployment", f"{release.name}-operator")["status"]["readyReplicas"] == 2
    assert "Phase:          Succeeded" in release.helm("test", release.name)


def test_should_keep_the_restricted_pod_security_standard(release: Release) -> None:
    label = "pod-security.kubernetes.io/enforce=restricted"
    namespace = f"namespace/{release.namespace}"
    # The API server warns of pods that are there and would not be let in.
    release.kubectl("label", "--dry-run=server", "--warnings-as-errors", namespace, label)


def test_should_give_the_operator_the_rights_that_it_needs(release: Release) -> None:
    release.create_topic("rights", partitions=1, replicas=1)
    said = release.kubectl("logs", "--selector=app.kubernetes.io/component=operator", "--tail=-1")
    assert "this operator acts" in said
    assert "kopf stopped" not in said
    assert "orbidden" not in said
    release.users("delete", "topic/rights", "--timeout=60s")


def test_should_carry_records_when_a_topic_is_applied(release: Release) -> None:
    release.create_topic("orders", partitions=3, replicas=3)
    release.headrace("produce", "orders", stdin="".join(f"order {number}\n" for number in range(100)))
    said = release.headrace("consume", "orders", "--group", "billing", broker=1)
    assert sorted(json.loads(line)["value"] for line in said.splitlines()) == sorted(f"order {n}" for n in range(100))

    def caught_up() -> bool:
        status = release.seen("consumergroup", "billing").get("status", {})
        return (status.get("lag"), status.get("state")) == ("0", "Empty")

    wait_for(caught_up, "the ConsumerGroup shows that all is read")
    shown = release.users("get", "consumergroups").splitlines()
    assert shown[0].split() == ["NAME", "STATE", "MEMBERS", "LAG", "TOPICS", "AGE"]
    assert "orders" in shown[1]


def test_should_refuse_a_topic_that_shrinks(release: Release) -> None:
    with pytest.raises(LabError, match="partitions can grow, never shrink"):
        release.users("patch", "topic/orders", "--type=merge", "--patch", '{"spec": {"partitions": 2}}')

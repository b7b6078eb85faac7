from typing import Any

import pytest

from headrace.core.resources.kubernetes_objects import BrokerPod, BrokerSet, Secret, bootstrap_service
from headrace.core.resources.metadata import DEFAULT_CLUSTER, InvalidResourceError
from headrace.core.types import BrokerId

RUNNING = {"state": {"running": {"startedAt": "2026-11-21T09:00:00Z"}}}


def pod(status: dict[str, Any] | None = None, name: str = "headrace-2") -> BrokerPod:
    return BrokerPod.parse({"metadata": {"name": name, "uid": "uid-1"}, "status": status})


def container(**said: Any) -> dict[str, Any]:
    return {"phase": "Running", "containerStatuses": [{"name": "sidecar"}, {"name": "broker", **said}]}


def test_should_tell_the_broker_by_the_ordinal_and_its_life_by_uid_and_restarts() -> None:
    found = pod(container(restartCount=3, **RUNNING), name="blue-cluster-12")
    assert found == BrokerPod("blue-cluster", BrokerId(12), "uid-1", restarts=3, running=True)


@pytest.mark.parametrize(
    ("status", "running"),
    [
        (None, True),
        ({"phase": "Pending"}, True),
        (container(**RUNNING), True),
        (container(), True),
        (container(state={"terminated": {"exitCode": 137}}), False),
        (container(state={"waiting": {"reason": "CrashLoopBackOff"}}), False),
        ({"phase": "Failed", "reason": "Evicted"}, False),
        (container(**RUNNING) | {"phase": "Succeeded"}, False),
    ],
)
def test_should_tell_whether_its_container_runs(status: dict[str, Any] | None, running: bool) -> None:
    assert pod(status).running is running


@pytest.mark.parametrize("name", ["headrace", "headrace-x", "-1"])
def test_should_refuse_a_pod_of_something_else(name: str) -> None:
    with pytest.raises(InvalidResourceError, match="is not one of a StatefulSet"):
        pod(name=name)


@pytest.mark.parametrize(
    ("spec", "asked"), [({"replicas": 2}, [0, 1]), ({}, [0]), ({"replicas": 2, "ordinals": {"start": 1}}, [1, 2])]
)
def test_should_know_which_brokers_are_asked_for(spec: dict[str, Any], asked: list[int]) -> None:
    found = BrokerSet.parse({"spec": spec})
    assert [number for number in range(4) if found.asks_for(BrokerId(number))] == asked


def test_should_hold_the_bytes_and_not_show_them() -> None:
    secret = Secret.parse({"metadata": {"name": "tls", "namespace": "a"}, "data": {"tls.key": "c2VjcmV0"}})
    assert (secret.metadata.name, dict(secret.data)) == ("tls", {"tls.key": b"secret"})
    assert "secret'" not in repr(secret)


def test_should_be_empty_when_there_is_no_data() -> None:
    assert Secret.parse({"metadata": {"name": "tls"}}).data == {}


def test_should_refuse_what_is_no_base64_without_showing_it() -> None:
    with pytest.raises(InvalidResourceError, match=r"^Secret tls: data must be base64$"):
        Secret.parse({"metadata": {"name": "tls"}, "data": {"tls.key": "not base64"}})


def test_should_name_the_bootstrap_service_after_the_cluster() -> None:
    assert bootstrap_service(DEFAULT_CLUSTER) == "headrace-bootstrap"

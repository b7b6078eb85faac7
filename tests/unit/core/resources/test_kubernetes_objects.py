from typing import Any

import pytest

from headrace.core.resources.kubernetes_objects import BrokerPod, BrokerSet
from headrace.core.resources.metadata import InvalidResourceError
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

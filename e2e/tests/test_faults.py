"""Brokers, networks and the API server fail while clients write and read: nothing that was acknowledged is lost."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from e2e.lab.cluster import Lab
from e2e.lab.errors import LabError
from e2e.load.harness import Load, under_load
from e2e.release import Release, security
from e2e.waiting import wait_for

PARTITIONS = 3
API_AWAY_RECORDS = 9_000
"""Of each partition, while nobody answers for the API server: at about 70 a second two minutes."""


def leader(release: Release, topic: str) -> str:
    """The pod that leads most partitions."""
    shares = release.seen("topic", topic)["status"]["leadersByBroker"].split()
    most = max(shares, key=lambda share: int(share.split(":")[1]))
    return release.pod(int(most.split(":")[0]))


def uid(release: Release, pod: str) -> str:
    return str(release.get("pod", pod)["metadata"]["uid"])


def wait_replaced(release: Release, pod: str, before: str) -> None:
    """Until there is another pod of this name, and it is Ready."""
    wait_for(lambda: uid(release, pod) != before, f"{pod} is another pod")
    release.kubectl("wait", "--for=condition=Ready", f"pod/{pod}", "--timeout=120s")


def check(load: Load, figures: dict[str, Any], name: str) -> None:
    """End the load: nothing is wrong. What clients waited for is noted."""
    load.wait_progress()
    load.release.wait_in_sync(load.topic)
    verdict = load.end()
    assert verdict["wrong"] == []
    assert verdict["lost"] == verdict["duplicated"] == 0
    assert verdict["acknowledged"] > 0
    figures[name] = {
        "acknowledged": verdict["acknowledged"],
        "longest_without_acknowledgement_s": _rounded(verdict["unavailability_s"]),
        "longest_without_an_answer_to_readers_s": _rounded(verdict["silence_s"]),
    }


def _rounded(by_partition: dict[str, float]) -> dict[str, float]:
    return {partition: round(seconds, 1) for partition, seconds in sorted(by_partition.items())}


def test_should_lose_nothing_when_leaders_pods_are_killed(release: Release, figures: dict[str, Any]) -> None:
    with under_load(release, "killed", PARTITIONS) as load:
        for _ in range(3):
            victim = leader(release, load.topic)
            before = uid(release, victim)
            release.kubectl("delete", "pod", victim, "--force", "--grace-period=0")
            wait_replaced(release, victim, before)
            load.wait_progress()
            release.wait_in_sync(load.topic)
        check(load, figures, "pod deleted by force, three times")


def test_should_lose_nothing_when_a_process_is_killed(lab: Lab, release: Release, figures: dict[str, Any]) -> None:
    with under_load(release, "crashed", PARTITIONS) as load:
        victim = leader(release, load.topic)
        os.kill(lab.pid_of_container(victim, release.namespace), signal.SIGKILL)

        def restarted() -> bool:
            (status,) = release.get("pod", victim)["status"]["containerStatuses"]
            return bool(status["restartCount"] and status["ready"])

        wait_for(restarted, f"{victim} is back")
        check(load, figures, "kill -9 of a leader's process")


def test_should_lose_nothing_when_a_leader_is_cut_off(lab: Lab, release: Release, figures: dict[str, Any]) -> None:
    with under_load(release, "cut", PARTITIONS) as load:
        victim = leader(release, load.topic)
        lab.cut(victim, release.namespace)
        try:
            load.wait_progress()
        finally:
            lab.heal(victim, release.namespace)
        check(load, figures, "leader cut off from everybody")


def test_should_go_on_when_the_api_server_is_away(lab: Lab, release: Release, figures: dict[str, Any]) -> None:
    with under_load(release, "alone", PARTITIONS) as load:
        # As this machine sees it: whoever runs a command in a pod asks the API server.
        told = Path(f"/proc/{lab.pid_of_container(load.pod, release.namespace)}/root/tmp/load/acknowledged")
        wanted = [count + API_AWAY_RECORDS for count in load.acknowledged()]
        lab.stop_api()
        try:
            wait_for(
                lambda: all(count >= least for count, least in zip(json.loads(told.read_text()), wanted, strict=True)),
                f"{API_AWAY_RECORDS} records of each partition are acknowledged without an API server",
                450,
            )
        finally:
            lab.resume_api()
        check(load, figures, "API server stopped")


def test_should_let_one_broker_go_at_a_time_when_nodes_are_drained(release: Release, figures: dict[str, Any]) -> None:
    with under_load(release, "drained", PARTITIONS) as load:
        for broker in range(3):
            before = uid(release, release.pod(broker))
            evict(release, broker)
            with pytest.raises(LabError, match="Cannot evict pod as it would violate the pod's disruption budget"):
                evict(release, (broker + 1) % 3)
            wait_replaced(release, release.pod(broker), before)
            release.wait_in_sync(load.topic)
        check(load, figures, "three brokers evicted, one after the other")


def evict(release: Release, broker: int) -> None:
    """As `kubectl drain` does for each pod of a node."""
    pod = release.pod(broker)
    metadata = {"name": pod, "namespace": release.namespace}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    path = f"/api/v1/namespaces/{release.namespace}/pods/{pod}/eviction"
    release.kubectl("create", "--raw", path, "--filename=-", stdin=json.dumps(eviction))


def test_should_lose_nothing_when_brokers_are_restarted_in_turn(release: Release, figures: dict[str, Any]) -> None:
    with under_load(release, "rolled", PARTITIONS) as load:
        release.kubectl("rollout", "restart", f"statefulset/{release.name}", f"deployment/{release.name}-operator")
        release.kubectl("rollout", "status", f"statefulset/{release.name}", "--timeout=300s")
        release.kubectl("rollout", "status", f"deployment/{release.name}-operator", "--timeout=120s")
        check(load, figures, "rolling restart of brokers and operators")


def test_should_lose_nothing_when_the_node_has_no_cpu_left(release: Release, figures: dict[str, Any]) -> None:
    with under_load(release, "pressed", PARTITIONS) as load:
        busy = "import os, time; os.fork(); os.fork(); end = time.monotonic() + 20\nwhile time.monotonic() < end: pass"
        container = {
            "name": "busy",
            "image": release.image("broker"),
            "imagePullPolicy": release.pull_policy,
            "command": ["python", "-c", busy],
            "securityContext": security(),
        }
        spec = {"restartPolicy": "Never", "containers": [container]}
        release.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "busy"}, "spec": spec})
        release.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/busy", "--timeout=120s")
        release.kubectl("delete", "pod/busy", "--grace-period=0")
        check(load, figures, "four busy processes on the node")

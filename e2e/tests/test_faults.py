"""Brokers, networks and the API server fail while clients write and read: nothing that was acknowledged is lost."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from e2e.lab.cluster import Lab
from e2e.lab.errors import LabError
from e2e.lab.node import NODE_NAME
from e2e.load.harness import under_load
from e2e.load.judging import check
from e2e.release import Release, security
from e2e.waiting import wait_for

PARTITIONS = 3
API_AWAY_S = 120
API_AWAY_RECORDS = 1_000
"""Of each partition, while nobody answers for the API server."""
PRESSURE_S = 20


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
        before = restarts(release, victim)
        os.kill(lab.pid_of_container(victim, release.namespace), signal.SIGKILL)
        wait_for(lambda: restarts(release, victim) > before, f"{victim} is started again")
        release.kubectl("wait", "--for=condition=Ready", f"pod/{victim}", "--timeout=120s")
        check(load, figures, "kill -9 of a leader's process")


def restarts(release: Release, pod: str) -> int:
    (status,) = release.get("pod", pod)["status"]["containerStatuses"]
    return int(status["restartCount"])


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
        before = load.acknowledged()
        lab.stop_api()
        until_s = time.monotonic() + API_AWAY_S
        try:
            # Minutes of it are what is tested, so there is no condition to wait for.
            wait_for(lambda: time.monotonic() > until_s, "the time is over", API_AWAY_S + 1)
            after: list[int] = json.loads(told.read_text())
        finally:
            lab.resume_api()
        assert min(now - then for now, then in zip(after, before, strict=True)) > API_AWAY_RECORDS
        check(load, figures, f"API server stopped for {API_AWAY_S} s")


def test_should_let_one_broker_go_at_a_time_when_nodes_are_drained(
    lab: Lab, release: Release, figures: dict[str, Any]
) -> None:
    """All brokers are on the lab's one node."""
    with under_load(release, "drained", PARTITIONS) as load:
        for broker in range(3):
            pod = release.pod(broker)
            before = uid(release, pod)
            try:
                drain(lab, pod, "120s")
                # One is away, and there is no place for it as long as the node is closed.
                with pytest.raises(LabError, match="Cannot evict pod as it would violate the pod's disruption budget"):
                    drain(lab, release.pod((broker + 1) % 3), "1s")
            finally:
                lab.kubectl("uncordon", NODE_NAME)
            wait_replaced(release, pod, before)
            release.wait_in_sync(load.topic)
        check(load, figures, "three nodes drained, one after the other")


def drain(lab: Lab, pod: str, timeout: str) -> None:
    """As if this broker were the only pod of the node."""
    chosen = f"--pod-selector=statefulset.kubernetes.io/pod-name={pod}"
    lab.kubectl("drain", NODE_NAME, chosen, "--delete-emptydir-data", f"--timeout={timeout}")


def test_should_lose_nothing_when_brokers_are_restarted_in_turn(release: Release, figures: dict[str, Any]) -> None:
    with under_load(release, "rolled", PARTITIONS) as load:
        release.kubectl("rollout", "restart", f"statefulset/{release.name}", f"deployment/{release.name}-operator")
        release.kubectl("rollout", "status", f"statefulset/{release.name}", "--timeout=300s")
        release.kubectl("rollout", "status", f"deployment/{release.name}-operator", "--timeout=120s")
        check(load, figures, "rolling restart of brokers and operators")


def test_should_lose_nothing_when_the_node_has_no_cpu_left(release: Release, figures: dict[str, Any]) -> None:
    with under_load(release, "pressed", PARTITIONS) as load:
        release.kubectl("delete", "pod/busy", "--grace-period=0", "--force", "--ignore-not-found")
        busy = f"""
import os, time
end = time.monotonic() + {PRESSURE_S}
os.fork(), os.fork(), os.fork()
while time.monotonic() < end: pass
"""
        container = {
            "name": "busy",
            "image": release.image("broker"),
            "imagePullPolicy": release.pull_policy,
            "command": ["python", "-c", busy],
            # Ten times as much of the processors as a broker asks for: brokers get what is left.
            "resources": {"requests": {"cpu": "1"}},
            "securityContext": security(),
        }
        spec = {"restartPolicy": "Never", "containers": [container]}
        release.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "busy"}, "spec": spec})
        try:
            release.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/busy", "--timeout=120s")
        finally:
            release.kubectl("delete", "pod/busy", "--grace-period=0", "--force")
        check(load, figures, "eight busy processes on the node, which come before brokers")

"""The processes of one run: an API server, operators and brokers, each on a node of its own, and what befalls them.

`kill` is kill -9, `pause` is SIGSTOP. The harness also plays the kubelet: a broker that runs has a Pod, and one that is
killed loses it at once, unless the death is to be silent, as that of a node that loses its power: then only its Lease
tells. Whatever still runs in the end is killed. Logs of all lives of a process are in `<home>/<name>.log`.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import yaml

from headrace.core.resources.metadata import API_VERSION
from headrace.dev.supervisor.parent_death import dying_with_parent
from tests.faults import pods
from tests.faults.network import Network
from tests.faults.shim import FaultyDisk
from tests.support.cluster import Program, http
from tests.support.waiting import wait_for

API: Final = "api"
OPERATOR: Final = "operator"
_API_PORT: Final = 9700
_PORT: Final = 9701
_TOPICS: Final = "/apis/headrace.io/v1alpha1/namespaces/default/topics"
_SETS: Final = "/apis/headrace.io/v1alpha1/namespaces/default/partitionsets"
_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
_STATEFUL_SETS: Final = "/apis/apps/v1/namespaces/default/statefulsets"
_PODS: Final = "/api/v1/namespaces/default/pods"
_UP_S: Final = 60
_LOG_TAIL: Final = 3000


def broker_name(broker: int) -> str:
    return f"broker-{broker}"


@dataclass(slots=True)
class Fleet:
    home: Path
    network: Network = field(default_factory=Network)
    programs: dict[str, Program] = field(default_factory=dict)
    prefixes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """What a process is started by, beyond its node: a small disk, for example."""
    environments: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """What a process finds in its environment, as a shim to be loaded."""
    disks: dict[int, FaultyDisk] = field(default_factory=dict)
    """Of those brokers that have one."""
    broker_options: Sequence[str] = ()
    api_port: int = 0
    """Where processes find what stands before the API server, at this process; 0: nothing does."""
    _log_starts: dict[str, int] = field(default_factory=dict)
    _nodes: dict[str, Any] = field(default_factory=dict)

    # -- processes ---------------------------------------------------------------------------------------------------

    @property
    def api_url(self) -> str:
        return f"http://{self._node(API).address}:{_API_PORT}"

    @property
    def brokers(self) -> list[int]:
        return [int(name.removeprefix("broker-")) for name in self.programs if name.startswith("broker-")]

    @property
    def servers(self) -> str:
        """Of all brokers, for clients."""
        return ",".join(self.url(broker) for broker in self.brokers)

    def url(self, broker: int) -> str:
        return f"http://{self._node(broker_name(broker)).address}:{_PORT}"

    def start_api(self) -> None:
        host, data = self._node(API).address, self.home / "api"
        options = ["--data", str(data), "--host", host, "--port", str(_API_PORT)]
        program = self._start(API, "headrace.dev.api", *options)
        self._wait(program, lambda: self.said(API, "http://"))

    def start_operator(self, name: str = OPERATOR) -> None:
        self._start(name, "headrace_operator.main", "--kubeconfig", str(self.kubeconfig(name)))

    def start_broker(self, broker: int, *, wait: bool = True) -> None:
        name = broker_name(broker)
        options = ["--id", str(broker), "--data", str(self.data(broker)), "--kubeconfig", str(self.kubeconfig(name))]
        options += ["--host", self._node(name).address, "--port", str(_PORT), *self.broker_options]
        self._start(name, "headrace_broker.main", *options)
        self._put_pod(broker)
        if wait:
            self.wait_ready(broker)

    def keep_starting_broker(self, broker: int) -> None:
        """As a kubelet does: one that ends before it is ready, where the API server refuses it, is started again."""
        name = broker_name(broker)

        def is_up() -> bool:
            if self.has_ended(name):
                self.start_broker(broker, wait=False)
            return self.said(name, " is ready")

        wait_for(is_up, f"{name} is up", 2 * _UP_S)

    def start(self, brokers: int, *, operators: Sequence[str] = (OPERATOR,)) -> None:
        """Everything, ready."""
        self.start_api()
        self.kube("POST", _STATEFUL_SETS, pods.stateful_set(brokers))
        for operator in operators:
            self.start_operator(operator)
        for broker in range(brokers):
            self.start_broker(broker, wait=False)
        for broker in range(brokers):
            self.wait_ready(broker)

    def wait_ready(self, broker: int) -> None:
        name = broker_name(broker)
        self._wait(self.programs[name], lambda: self.said(name, " is ready"))

    def start_program(self, name: str, module: str, *options: str) -> None:
        """One that is none of Headrace's own, on a node of its own."""
        self._start(name, module, *options)

    def address(self, name: str) -> str:
        """Of the node of a process, as others see it."""
        address: str = self._node(name).address
        return address

    def kill(self, name: str, *, silently: bool = False) -> None:
        """kill -9. Not `silently`: its Pod, if it had one, is gone as soon."""
        self.programs[name].kill()
        if not silently and name.startswith("broker-"):
            self._delete_pod(int(name.removeprefix("broker-")))

    def give_faulty_disk(self, broker: int) -> None:
        """From its next start on."""
        disk = self.disks[broker] = FaultyDisk(self.data(broker))
        self.environments[broker_name(broker)] = disk.environment()

    def power_fail(self, broker: int, seed: int | None = None) -> None:
        """The machine is off: nobody tells of it. What was not synced is gone; with a seed, a part of it."""
        self.kill(broker_name(broker), silently=True)
        self.disks[broker].lose_power(seed)

    def pause(self, name: str) -> None:
        self.programs[name].process.send_signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        self.programs[name].process.send_signal(signal.SIGCONT)

    def stop(self, name: str, timeout_s: float = 60) -> int:
        """SIGTERM, and wait for the end -> exit code."""
        code = self.programs[name].stop(timeout_s)
        if name.startswith("broker-"):
            self._delete_pod(int(name.removeprefix("broker-")))
        return code

    def is_running(self, name: str) -> bool:
        return self.programs[name].is_running

    def has_ended(self, name: str) -> bool:
        return not self.is_running(name)

    def data(self, broker: int) -> Path:
        return self.home / broker_name(broker)

    def log(self, name: str) -> str:
        return (self.home / f"{name}.log").read_text(errors="replace")

    def close(self) -> None:
        for program in self.programs.values():
            if program.is_running:
                program.kill()
        self.network.close()

    # -- the API server ----------------------------------------------------------------------------------------------

    def kube(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """One request to the API server; fails on any error. PATCH merges."""
        content = _json(body)
        media_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
        answer = http(method, self.api_url + path, content, {"Content-Type": media_type})
        assert answer.status < 300, f"{method} {path}: HTTP {answer.status} {answer.body.decode()}"
        parsed: dict[str, Any] = answer.json
        return parsed

    def create_topic(self, name: str, **spec: Any) -> str:
        manifest = {
            "apiVersion": API_VERSION,
            "kind": "Topic",
            "metadata": {"name": name},
            "spec": {"retention": {"time": "unlimited"}, **spec},
        }
        uid: str = self.kube("POST", _TOPICS, manifest)["metadata"]["uid"]
        return uid

    def patch_topic(self, name: str, patch: Any) -> None:
        self.kube("PATCH", f"{_TOPICS}/{name}", patch)

    def delete_topic(self, name: str) -> None:
        self.kube("DELETE", f"{_TOPICS}/{name}")

    def topics(self) -> list[str]:
        return [topic["metadata"]["name"] for topic in self.kube("GET", _TOPICS)["items"]]

    def scale(self, brokers: int) -> None:
        """The StatefulSet asks for so many; processes are the caller's."""
        self.kube("PATCH", f"{_STATEFUL_SETS}/{pods.NAME}", {"spec": {"replicas": brokers}})

    def lease(self, broker: int) -> dict[str, Any]:
        return self.kube("GET", f"{_LEASES}/headrace-broker-{broker}")

    def sets(self, topic: str) -> list[dict[str, Any]]:
        return [found for found in self.kube("GET", _SETS)["items"] if found["spec"]["topic"] == topic]

    def put_set(self, partition_set: dict[str, Any]) -> None:
        self.kube("PUT", f"{_SETS}/{partition_set['metadata']['name']}", partition_set)

    def partitions(self, topic: str) -> dict[int, dict[str, Any]]:
        return {found["id"]: found for a_set in self.sets(topic) for found in a_set["spec"]["partitions"]}

    def leader(self, topic: str, partition: int = 0) -> int | None:
        leader = self.partitions(topic)[partition].get("leader")
        return None if leader is None else int(leader["broker"])

    def isr(self, topic: str, partition: int = 0) -> set[int]:
        return {int(seat["broker"]) for seat in self.partitions(topic)[partition]["isr"]}

    def wait_led(self, topic: str, partitions: int, timeout_s: float = _UP_S) -> None:
        def led() -> bool:
            found = self.partitions(topic)
            return len(found) == partitions and all(
                each.get("leader") and self._serves(each["leader"]["broker"], topic, number)
                for number, each in found.items()
            )

        wait_for(_quietly(led), f"every partition of {topic} is led", timeout_s)

    def wait_in_sync(self, topic: str, timeout_s: float = _UP_S) -> None:
        """Every replica of every partition is in the ISR in its broker's present life."""
        wait_for(_quietly(lambda: self._in_sync(topic)), f"every replica of {topic} is in sync", timeout_s)

    def _in_sync(self, topic: str) -> bool:
        lives: dict[int, int] = {}
        for broker in self.brokers:
            lives[broker] = int(self.lease(broker)["spec"]["holderIdentity"])
        return all(
            each.get("leader") is not None
            and {(seat["broker"], seat["incarnation"]) for seat in each["isr"]}
            == {(broker, lives[broker]) for broker in each["replicas"]}
            for each in self.partitions(topic).values()
        )

    def _serves(self, broker: int, topic: str, partition: int) -> bool:
        path = f"/v1/namespaces/default/topics/{topic}/partitions/{partition}/offsets"
        return http("GET", self.url(broker) + path).status == 200

    # -- what a kubelet does -----------------------------------------------------------------------------------------

    def _put_pod(self, broker: int) -> None:
        with suppress(OSError, AssertionError):  # the API server may be away: then nobody sees Pods either
            self._delete_pod(broker)
            self.kube("POST", _PODS, pods.pod(broker))
            status = pods.running(self._node(broker_name(broker)).address, f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")
            self.kube("PATCH", f"{_PODS}/{pods.pod_name(broker)}/status", {"status": status})

    def _delete_pod(self, broker: int) -> None:
        with suppress(OSError):
            http("DELETE", f"{self.api_url}{_PODS}/{pods.pod_name(broker)}?gracePeriodSeconds=0")

    # -- starting ----------------------------------------------------------------------------------------------------

    def _node(self, name: str) -> Any:
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = self.network.add(name)
        return node

    def _start(self, name: str, module: str, *options: str) -> Program:
        running = self.programs.get(name)
        assert running is None or not running.is_running, f"{name} runs already"
        log_file = self.home / f"{name}.log"
        self._log_starts[name] = log_file.stat().st_size if log_file.exists() else 0
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", **self.environments.get(name, {})}
        command = [*self._node(name).prefix, *self.prefixes.get(name, ()), sys.executable, "-m", module, *options]
        with log_file.open("ab") as log:
            process = subprocess.Popen(
                dying_with_parent(command), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
            )
        program = self.programs[name] = Program(name, process, log_file)
        return program

    def said(self, name: str, words: str) -> bool:
        """In the life that is under way."""
        with (self.home / f"{name}.log").open("rb") as log:
            log.seek(self._log_starts[name])
            return words.encode() in log.read()

    def _wait(self, program: Program, condition: Callable[[], bool]) -> None:
        def check() -> bool:
            assert program.is_running, f"{program.name} ended by itself:\n{program.log[-_LOG_TAIL:]}"
            return condition()

        wait_for(check, f"{program.name} is up", _UP_S)

    def _api_for(self, name: str) -> str:
        return f"http://{self._node(name).gateway}:{self.api_port}" if self.api_port else self.api_url

    def kubeconfig(self, name: str) -> Path:
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": "default"}}],
            "clusters": [{"name": "test", "cluster": {"server": self._api_for(name)}}],
            "users": [{"name": "test", "user": {}}],
        }
        path = self.home / f"{name}.kubeconfig"
        path.write_text(yaml.safe_dump(document))
        return path

    # -- the data of the API server ----------------------------------------------------------------------------------

    def copy_api_data(self, name: str) -> Path:
        """A backup, as of etcd; the API server must not be running."""
        target = self.home / name
        shutil.copytree(self.home / "api", target)
        return target

    def restore_api_data(self, backup: Path | None) -> None:
        """Another past: that of a backup, or none at all. The API server must not be running."""
        shutil.rmtree(self.home / "api")
        if backup is not None:
            shutil.copytree(backup, self.home / "api")


def _json(body: Any) -> bytes:
    return json.dumps(body).encode() if body is not None else b""


def _quietly(condition: Callable[[], bool]) -> Callable[[], bool]:
    """What cannot be asked does not hold."""

    def asked() -> bool:
        try:
            return condition()
        except (OSError, AssertionError, KeyError):
            return False

    return asked

"""A whole Headrace to measure: `headrace dev` in a folder and on ports of its own, gone at the end.

Its supervisor writes Pods as a kubelet does, so that a killed broker is seen here as it is on a cluster.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import yaml

from headrace.dev.supervisor.layout import lock_file, state_file
from headrace.dev.supervisor.state import lock_holder

_TIMEOUT_S = 120.0
_POLL_S = 0.02
_REQUEST_TIMEOUT_S = 10.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BenchTopic:
    name: str
    durability: str = "Fsync"
    partitions: int = 1
    replicas: int = 1

    def manifest(self) -> dict[str, Any]:
        spec = {"partitions": self.partitions, "replicas": self.replicas, "durability": self.durability}
        return {"apiVersion": "headrace.io/v1alpha1", "kind": "Topic", "metadata": {"name": self.name}, "spec": spec}


@dataclass(frozen=True, slots=True)
class Placed:
    """A partition as a broker tells of it."""

    leader: int | None
    replicas: int
    in_sync: int


class DevCluster:
    def __init__(self, home: Path) -> None:
        self.home = home

    def start(self, *arguments: str) -> None:
        self._headrace("dev", "--detach", "--port", "0", *arguments)

    def stop(self) -> None:
        self._headrace("dev", "stop")

    def status(self) -> Any:
        """Read from the file that `headrace dev status` prints: a process for each look would disturb what runs."""
        return json.loads(state_file(self.home).read_text())

    def url(self, broker: int = 0) -> str:
        found: str = next(each["url"] for each in self.status()["brokers"] if each["id"] == broker)
        return found

    def pids(self) -> dict[str, int]:
        """Every process that serves, by its name; one that is being started again is not there."""
        state = self.status()
        brokers = {f"broker {each['id']}": each["pid"] for each in state["brokers"]}
        found = {"operator": state["operator"]["pid"], "Kubernetes API": state["api"]["pid"], **brokers}
        return {name: pid for name, pid in {**found, "supervisor": lock_holder(lock_file(self.home))}.items() if pid}

    def signal(self, broker: int, number: signal.Signals) -> None:
        os.kill(self.pids()[f"broker {broker}"], number)

    def placed(self, topic: str) -> dict[int, Placed] | None:
        """Its partitions, as the first broker that answers knows them; None where nobody does."""
        for broker in self.status()["brokers"]:
            url = f"{broker['url']}/v1/namespaces/default/topics/{topic}"
            try:
                with urllib.request.urlopen(url, timeout=_REQUEST_TIMEOUT_S) as response:
                    partitions = json.loads(response.read())["partitions"]
            except (urllib.error.HTTPError, OSError):
                continue
            return {each["partition"]: _placed(each) for each in partitions}
        return None

    def kube(self, method: str, path: str, body: Any = None) -> Any:
        """One request to the Kubernetes API."""
        content = None if body is None else json.dumps(body).encode()
        url = self.status()["api"]["url"] + path
        return _answer(urllib.request.Request(url, content, {"content-type": "application/json"}, method=method))

    def get(self, path: str) -> Any:
        """What a broker answers."""
        return _answer(urllib.request.Request(self.url() + path))

    def wait_whole(self, topics: Sequence[BenchTopic]) -> None:
        """Until every partition has a leader and all its replicas are in sync."""
        for topic in topics:
            wait(partial(self._is_whole, topic), f"topic {topic.name} is whole")

    def _is_whole(self, topic: BenchTopic) -> bool:
        placed = self.placed(topic.name) or {}
        return len(placed) == topic.partitions and all(
            each.leader is not None and each.in_sync == topic.replicas for each in placed.values()
        )

    def _headrace(self, *arguments: str) -> str:
        command = [str(Path(sys.executable).with_name("headrace")), *arguments]
        environment = {**os.environ, "HEADRACE_HOME": str(self.home)}
        return subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout


@contextmanager
def dev_cluster(topics: Sequence[BenchTopic], brokers: int) -> Iterator[DevCluster]:
    """With these topics, each of them whole."""
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        cluster = DevCluster(Path(name))
        manifest = cluster.home / "topics.yaml"
        manifest.write_text(yaml.safe_dump_all(topic.manifest() for topic in topics))
        try:
            cluster.start("--brokers", str(brokers), "-f", str(manifest))
            cluster.wait_whole(topics)
            yield cluster
        finally:
            cluster.stop()


def wait(look: Callable[[], T | None], what: str) -> T:
    """The first answer that is not None or False."""
    deadline = time.monotonic() + _TIMEOUT_S
    while (answer := look()) is None or answer is False:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what}: not within {_TIMEOUT_S:g} s")
        time.sleep(_POLL_S)
    return answer


def _answer(request: urllib.request.Request) -> Any:
    with urllib.request.urlopen(request, timeout=_REQUEST_TIMEOUT_S) as response:
        return json.loads(response.read())


def _placed(partition: dict[str, Any]) -> Placed:
    leader = partition.get("leader")
    return Placed(leader["id"] if leader else None, len(partition["replicas"]), len(partition["isr"]))

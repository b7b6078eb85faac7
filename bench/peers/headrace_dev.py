"""Headrace as a person has it on one machine: `headrace dev`. What is measured is the brokers' processes.

The API and the operator run beside it, as etcd and a Kubernetes control plane do on a cluster; no record passes them.
"""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.dev_cluster import BenchTopic, dev_cluster
from bench.peers.errors import PeersError
from bench.peers.kafka import Start
from bench.peers.processes import Server
from bench.workload import batch
from headrace.dev.supervisor.layout import state_file

_TIMEOUT_S = 60.0
_POLL_S = 0.005
_BATCH_TYPE = "application/vnd.headrace.batch"


class Headrace:
    def __init__(self, url: str, home: Path) -> None:
        self.address = url
        self._home = home

    @property
    def servers(self) -> list[Server]:
        """The brokers' processes; others after `restart`."""
        return [Server(broker["pid"]) for broker in self._status()["brokers"]]

    def operator(self) -> Server:
        return Server(self._status()["operator"]["pid"])

    def restart(self, topic: str) -> Start:
        """A clean stop of the only broker; `headrace dev` starts the next one, and its process id tells when."""
        (before,) = self.servers
        os.kill(before.pid, 15)
        deadline, ready_at = time.monotonic() + _TIMEOUT_S, 0.0
        record = b"".join(batch(1).buffers)
        while time.monotonic() < deadline:
            pid = self._pid()
            if pid is not None and pid != before.pid:
                if not ready_at and self._answers("/readyz"):
                    ready_at = _now()
                if ready_at and self._answers(f"/v1/namespaces/default/topics/{topic}/partitions/0/records", record):
                    started = Server(pid).started_s()
                    return Start(ready_at - started, _now() - started)
            time.sleep(_POLL_S)
        raise PeersError(f"the broker took no record within {_TIMEOUT_S:g} s of its start")

    def delete_topics(self, topics: list[str]) -> None:
        self._headrace("topic", "delete", *topics)

    def _answers(self, path: str, body: bytes | None = None) -> bool:
        request = urllib.request.Request(self.address + path, data=body, headers={"Content-Type": _BATCH_TYPE})
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
                return bool(response.status == 200)
        except (urllib.error.HTTPError, OSError):
            return False

    def _pid(self) -> int | None:
        pid: int | None = self._status()["brokers"][0]["pid"]
        return pid

    def _status(self) -> Any:
        """Read from the file that `headrace dev status` prints: a process for each look would disturb the start."""
        return json.loads(state_file(self._home).read_text())

    def _headrace(self, *arguments: str) -> None:
        command = [str(Path(sys.executable).with_name("headrace")), *arguments]
        environment = {**os.environ, "HEADRACE_HOME": str(self._home)}
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise PeersError(f"headrace {arguments[0]} failed: {result.stderr.strip()}")


@contextmanager
def running_headrace(topics: Mapping[str, str], brokers: int = 1) -> Iterator[Headrace]:
    """Topics by name, each with its durability, a partition for each broker, and as many replicas of each."""
    wanted = [BenchTopic(name, durability, brokers, brokers) for name, durability in topics.items()]
    with dev_cluster(wanted, brokers) as cluster:
        yield Headrace(cluster.url(), cluster.home)


def _now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)

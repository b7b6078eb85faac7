"""How long what a member of a group reads is read by nobody when it ends: by kill -9, and by leaving.

Two members, each a process of its own, share the partitions of a topic; one of them ends, and a new one comes.
"""

import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass

from bench.dev_cluster import BenchTopic, DevCluster, wait

SESSION_S = 6
_GROUP = "bench-moving"
_MANIFESTS = "/apis/headrace.io/v1alpha1/namespaces/default/consumergroups"
_TIMEOUT_S = 60.0
_PROGRAM = """
import signal, sys
from headrace import Consumer
def told(what):
    return lambda places: print(what, *(place.partition for place in places), flush=True)
where = {"group": sys.argv[2], "server": sys.argv[3]}
with Consumer(sys.argv[1], **where, on_assigned=told("assigned"), on_revoked=told("revoked")) as consumer:
    signal.signal(signal.SIGTERM, lambda *_: consumer.wakeup())
    for _ in consumer:
        pass
"""


@dataclass(frozen=True, slots=True)
class Moves:
    """Seconds until the other member has all partitions, one figure for each end."""

    killed: list[float]
    left: list[float]
    """From SIGTERM."""


def measure(cluster: DevCluster, server: str, topic: BenchTopic, times: int) -> Moves:
    manifest = {"apiVersion": "headrace.io/v1alpha1", "kind": "ConsumerGroup", "metadata": {"name": _GROUP}}
    cluster.kube("POST", _MANIFESTS, {**manifest, "spec": {"sessionTimeout": f"{SESSION_S}s"}})
    survivor = _Member(server, topic)
    try:
        killed = [_time_move(server, topic, survivor, signal.SIGKILL) for _ in range(times)]
        return Moves(killed, [_time_move(server, topic, survivor, signal.SIGTERM) for _ in range(times)])
    finally:
        survivor.end(signal.SIGTERM)


class _Member:
    """A process that reads until it is told to end."""

    def __init__(self, server: str, topic: BenchTopic) -> None:
        command = [sys.executable, "-c", _PROGRAM, topic.name, _GROUP, server]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.owned: set[int] = set()
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()

    def end(self, how: signal.Signals) -> None:
        self.signal(how)
        try:
            self._process.wait(_TIMEOUT_S)
        finally:
            self._process.kill()
            self._listening.join(_TIMEOUT_S)

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            what, *partitions = line.split()
            change = self.owned.update if what == "assigned" else self.owned.difference_update
            change(map(int, partitions))


def _time_move(server: str, topic: BenchTopic, survivor: _Member, how: signal.Signals) -> float:
    other = _Member(server, topic)
    half = topic.partitions // 2
    try:
        wait(lambda: len(other.owned) == len(survivor.owned) == half, "each has its half")
        struck = time.perf_counter()
        other.signal(how)
        wait(lambda: len(survivor.owned) == topic.partitions, "the other has everything")
        return time.perf_counter() - struck
    finally:
        other.end(signal.SIGKILL)

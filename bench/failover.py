"""How long producers wait when the leader of their partition dies: kill -9, and a process that only falls silent.

A stall is the longest time between two acknowledgements of a producer that sends a record every few milliseconds.
Killed is seen by the operator in the broker's Pod; silent (SIGSTOP) only in the Lease that is not renewed any more.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

from bench.dev_cluster import BenchTopic, DevCluster, dev_cluster, wait
from headrace import Producer

BROKERS = 3
_TOPIC = BenchTopic("bench-failover", partitions=1, replicas=BROKERS)
_PACE_S = 0.005
_BEFORE_S = 1.0
_RECORDS_AFTER = 50
_DELIVERY_TIMEOUT_MS = 60_000


@dataclass(frozen=True, slots=True)
class Failovers:
    """Seconds without an acknowledgement, one figure for each fault."""

    killed: list[float]
    silent: list[float]


def measure(kills: int, silences: int) -> Failovers:
    with dev_cluster([_TOPIC], BROKERS) as cluster:
        _strike(cluster, signal.SIGKILL)  # loads what is loaded at the first failover; not counted
        return Failovers(
            [_strike(cluster, signal.SIGKILL) for _ in range(kills)],
            [_strike(cluster, signal.SIGSTOP) for _ in range(silences)],
        )


def _strike(cluster: DevCluster, number: signal.Signals) -> float:
    """The stall; returns when the cluster is whole again."""
    cluster.wait_whole([_TOPIC])
    leader = (cluster.placed(_TOPIC.name) or {})[0].leader
    assert leader is not None, "the topic is whole"
    victim = cluster.pids()[f"broker {leader}"]
    with _steady_load(cluster.url((leader + 1) % BROKERS)) as load:
        time.sleep(_BEFORE_S)
        struck, sent = time.perf_counter(), len(load.sent_at)
        os.kill(victim, number)
        wait(lambda: load.acknowledged_of(sent) >= _RECORDS_AFTER, "service by another leader")
    if number is signal.SIGSTOP:
        os.kill(victim, signal.SIGCONT)
    return max(later - earlier for earlier, later in pairwise(sorted(load.answered_at)) if later >= struck)


@dataclass(slots=True)
class _Load:
    sent_at: list[float] = field(default_factory=list)
    answered_at: list[float] = field(default_factory=list)
    answered: list[int] = field(default_factory=list)
    failed: list[BaseException] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)

    def acknowledged_of(self, first: int) -> int:
        """How many of the records that were sent from this one on."""
        if self.failed:
            raise self.failed[0]
        return sum(1 for number in self.answered if number >= first)

    def run(self, server: str) -> None:
        with Producer(server, linger_ms=0, delivery_timeout_ms=_DELIVERY_TIMEOUT_MS) as producer:
            while not self.stopped.wait(_PACE_S):
                number = len(self.sent_at)
                self.sent_at.append(time.perf_counter())
                producer.send(_TOPIC.name, b"%d" % number).add_done_callback(partial(self._arrived, number))

    def _arrived(self, number: int, sending: Any) -> None:
        if (error := sending.exception()) is not None:
            self.failed.append(error)
            return
        self.answered_at.append(time.perf_counter())
        self.answered.append(number)


@contextmanager
def _steady_load(server: str) -> Iterator[_Load]:
    load = _Load()
    thread = threading.Thread(target=load.run, args=(server,), daemon=True)
    thread.start()
    try:
        yield load
    finally:
        load.stopped.set()
        thread.join(_DELIVERY_TIMEOUT_MS / 1000)

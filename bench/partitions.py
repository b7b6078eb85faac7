"""A thousand partitions on three brokers: their start, what they cost at rest, and the death of a third of leaders."""

import signal
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from bench.dev_cluster import BenchTopic, DevCluster, dev_cluster, wait
from bench.peers.processes import Server
from headrace import Producer

BROKERS = 3
_TOPIC_PARTITIONS = 100
_SETTLE_S = 20.0
"""What a start leaves behind is over by then: leaders return, logs are read through."""
_EVEN = 0.8
"""Of its even share a broker leads at least so much before it is killed."""
_DELIVERY_TIMEOUT_MS = 60_000


@dataclass(frozen=True, slots=True)
class Partitions:
    partitions: int
    replicas: int
    start_s: float
    """From `headrace dev` to all replicas in sync, after a clean stop."""
    idle: dict[str, float]
    """Share of one core, by process."""
    led: int
    """Partitions that the killed broker led."""
    elected_s: float
    """From the kill until brokers name another leader for each of them."""
    served_s: float
    """From the kill until a record is acknowledged in each of them."""


def measure(partitions: int, replicas: int, rest_s: float) -> Partitions:
    """`partitions` is a multiple of 100."""
    topics = [
        BenchTopic(f"bench-{number}", partitions=_TOPIC_PARTITIONS, replicas=replicas)
        for number in range(partitions // _TOPIC_PARTITIONS)
    ]
    with dev_cluster(topics, BROKERS) as cluster:
        cluster.stop()
        started = time.perf_counter()
        cluster.start()
        cluster.wait_whole(topics)
        start_s = time.perf_counter() - started
        victim = wait(lambda: _loaded(cluster, topics), "leaders on every broker")
        time.sleep(_SETTLE_S)
        idle = _idle(cluster, rest_s)
        led, elected_s, served_s = _fail_over(cluster, topics, victim)
        return Partitions(partitions, replicas, start_s, idle, led, elected_s, served_s)


def _led_by(cluster: DevCluster, topics: Sequence[BenchTopic]) -> dict[tuple[str, int], int | None]:
    return {
        (topic.name, number): placed.leader
        for topic in topics
        for number, placed in (cluster.placed(topic.name) or {}).items()
    }


def _loaded(cluster: DevCluster, topics: Sequence[BenchTopic]) -> int | None:
    """The broker that leads most, once each leads its share: leaders return to their preferred brokers by and by."""
    counts = Counter(_led_by(cluster, topics).values())
    share = sum(topic.partitions for topic in topics) / BROKERS
    if any(counts[broker] < _EVEN * share for broker in range(BROKERS)):
        return None
    return max(range(BROKERS), key=lambda broker: counts[broker])


def _idle(cluster: DevCluster, rest_s: float) -> dict[str, float]:
    processes = {name: Server(pid) for name, pid in cluster.pids().items()}
    before = {name: process.cpu_s() for name, process in processes.items()}
    time.sleep(rest_s)
    return {name: (process.cpu_s() - before[name]) / rest_s for name, process in processes.items()}


def _fail_over(cluster: DevCluster, topics: Sequence[BenchTopic], victim: int) -> tuple[int, float, float]:
    """(partitions, seconds until they have other leaders, seconds until all of them take a record)."""
    lost = [place for place, leader in _led_by(cluster, topics).items() if leader == victim]
    with Producer(cluster.url((victim + 1) % BROKERS), delivery_timeout_ms=_DELIVERY_TIMEOUT_MS) as producer:
        for topic, partition in lost:  # knows the topics and has its connections, as one that has been at work
            producer.send(topic, b"before", partition=partition)
        producer.flush()
        cluster.signal(victim, signal.SIGKILL)
        killed = time.perf_counter()
        sent = [producer.send(topic, b"after", partition=partition) for topic, partition in lost]
        moved = [topic for topic in topics if any(topic.name == name for name, _ in lost)]
        wait(lambda: _have_moved(cluster, moved, lost, victim), "other leaders")
        elected_s = time.perf_counter() - killed
        for each in sent:
            each.result()
        return len(lost), elected_s, time.perf_counter() - killed


def _have_moved(
    cluster: DevCluster, topics: Sequence[BenchTopic], lost: Sequence[tuple[str, int]], victim: int
) -> bool:
    leaders = _led_by(cluster, topics)
    return all(leaders.get(place) not in (None, victim) for place in lost)

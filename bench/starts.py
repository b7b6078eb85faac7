"""How long a broker takes from the start of its process to ready, and what it holds in memory then.

Empty, and with so many partitions after a clean stop.
"""

from dataclasses import dataclass
from pathlib import Path

from bench.processes import Cluster, cluster

_PARTITIONS_PER_TOPIC = 100


@dataclass(frozen=True, slots=True)
class Starts:
    """One figure for each start."""

    partitions: int
    empty_s: list[float]
    empty_rss_bytes: list[int]
    full_s: list[float]
    full_rss_bytes: list[int]


def measure(folder: Path, partitions: int, starts: int) -> Starts:
    """`partitions` is a multiple of 100."""
    with cluster(folder) as processes:
        empty = _start_often(processes, starts)
        broker = processes.start_broker()
        topics = [f"bench-{number}" for number in range(partitions // _PARTITIONS_PER_TOPIC)]
        for topic in topics:
            processes.create_topic(topic, _PARTITIONS_PER_TOPIC)
        for topic in topics:
            processes.wait_led(topic)
        broker.stop()
        full = _start_often(processes, starts)
    return Starts(partitions, [s for s, _ in empty], [r for _, r in empty], [s for s, _ in full], [r for _, r in full])


def _start_often(processes: Cluster, starts: int) -> list[tuple[float, int]]:
    """(seconds to ready, resident bytes then) of each start."""
    figures = []
    for _ in range(starts):
        broker = processes.start_broker()
        figures.append((broker.ready_s, broker.rss_bytes))
        broker.stop()
    return figures

"""A broker to measure: `headrace dev` with one of them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.dev_cluster import BenchTopic, dev_cluster


@contextmanager
def dev_broker(topics: Sequence[tuple[str, str]]) -> Iterator[tuple[str, Path]]:
    """(URL, folder) of one broker that leads the given topics of one partition; each is (name, durability)."""
    with dev_cluster([BenchTopic(name, durability) for name, durability in topics], brokers=1) as cluster:
        yield cluster.url(), cluster.home

"""How metrics of this process are made: in one registry, under their whole names, so that each can be searched for."""

from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class Registration:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry

    def counter(self, name: str, text: str, *labels: str, values: Iterable[str] = ()) -> Counter:
        """`values` of its one label are shown as 0 from the start: what has not happened yet can be told from none."""
        counter = Counter(name, text, labels, registry=self.registry)
        for value in values:
            counter.labels(value)
        return counter

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)

    def histogram(self, name: str, text: str, *labels: str, buckets: Sequence[float]) -> Histogram:
        return Histogram(name, text, labels, buckets=buckets, registry=self.registry)

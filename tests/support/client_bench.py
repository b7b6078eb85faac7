"""A topic of real brokers, and the SDK pointed at them: what client tests begin with."""

from dataclasses import dataclass
from typing import Any

from headrace import Consumer, Producer, Record
from tests.support.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Bench:
    cluster: Cluster
    topic: str

    def create(self, partitions: int = 1, **spec: Any) -> str:
        """The topic; its uid."""
        return self.cluster.create_topic(self.topic, partitions=partitions, **spec)

    @property
    def server(self) -> str:
        return self.cluster.url(0)

    def producer(self, **options: Any) -> Producer:
        return Producer(self.server, **options)

    def consumer(self, *topics: str, **options: Any) -> Consumer:
        return Consumer(*(topics or (self.topic,)), server=self.server, **options)

    def read_all(self, **options: Any) -> list[Record]:
        """Everything that is there now."""
        with self.consumer(**options) as consumer:
            return list(consumer.records(follow=False))

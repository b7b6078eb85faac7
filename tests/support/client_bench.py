"""A topic of real brokers, and the SDK pointed at them: what client tests begin with."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from headrace import AsyncConsumer, AsyncProducer, Consumer, Producer, Record
from tests.support.cluster import Cluster


def number(record: Record) -> int:
    """The value of a record that `Bench.fill` has written."""
    return int(record.value or b"")


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

    def async_producer(self, **options: Any) -> AsyncProducer:
        return AsyncProducer(self.server, **options)

    def async_consumer(self, *topics: str, **options: Any) -> AsyncConsumer:
        return AsyncConsumer(*(topics or (self.topic,)), server=self.server, **options)

    def member(self, **options: Any) -> Consumer:
        """A member of the group that has the topic's name."""
        return self.consumer(group=self.topic, **options)

    def async_member(self, **options: Any) -> AsyncConsumer:
        return self.async_consumer(group=self.topic, **options)

    def fill(self, records: int, partitions: int = 1, *, begin: int = 0, apart_ms: int | None = None) -> None:
        """Write the numbers from `begin` on, into the partitions by turns; from 0 on the topic is created first.

        With `apart_ms` the time of each record is its number times that.
        """
        if not begin:
            self.create(partitions=partitions)
        with self.producer() as producer:
            for number in range(begin, begin + records):
                time_ms = None if apart_ms is None else number * apart_ms
                producer.send(self.topic, str(number), partition=number % partitions, timestamp_ms=time_ms)

    def add_partitions(self, partitions: int) -> None:
        """So that there are so many; waits until all are led."""
        path = f"/apis/headrace.io/v1alpha1/namespaces/default/topics/{self.topic}"
        self.cluster.kube("PATCH", path, {"spec": {"partitions": partitions}})
        self.cluster.wait_led(self.topic, partitions)

    @contextmanager
    def frozen_brokers(self) -> Iterator[None]:
        """Nobody answers, and connections stay as they are."""
        brokers = [program for name, program in self.cluster.programs.items() if name.startswith("broker-")]
        for broker in brokers:
            broker.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for broker in brokers:
                broker.process.send_signal(signal.SIGCONT)

    def read_all(self, **options: Any) -> list[Record]:
        """Everything that is there now."""
        with self.consumer(**options) as consumer:
            return list(consumer.records(follow=False))

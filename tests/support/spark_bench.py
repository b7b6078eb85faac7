"""A topic of real brokers, and a Spark session that reads it: what Spark tests begin with."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from headrace import Producer
from tests.support.cluster import Cluster, http
from tests.support.waiting import wait_for

SHORT_LIVED = "-Xss16m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A JVM that starts fast rather than runs fast: queries here are short."""

Place = tuple[int, int]
"""Partition and offset."""


@dataclass(slots=True)
class Batches:
    """What each micro-batch of a query brought, by the batch's number."""

    places: dict[int, list[Place]] = field(default_factory=dict)

    def take(self, frame: DataFrame, number: int) -> None:
        """For `foreachBatch`."""
        rows = frame.select("partition", "offset").collect()
        self.places[number] = sorted((row.partition, row.offset) for row in rows)

    @property
    def all(self) -> list[Place]:
        return sorted(place for some in self.places.values() for place in some)

    @property
    def sizes(self) -> list[int]:
        return [len(some) for some in self.places.values()]


@dataclass(frozen=True, slots=True)
class SparkBench:
    cluster: Cluster
    topic: str
    spark: SparkSession
    folder: Path

    @property
    def server(self) -> str:
        return self.cluster.url(0)

    # -- the topic ---------------------------------------------------------------------------------------------------

    def create(self, *counts: int, topic: str | None = None, **spec: Any) -> str:
        """The topic with so many records in each of its partitions; its uid."""
        name = topic or self.topic
        uid = self.cluster.create_topic(name, partitions=len(counts), **spec)
        self.write(*counts, topic=name)
        return uid

    def write(self, *counts: int, topic: str | None = None, time_ms: int | None = None) -> None:
        """So many more records in each partition, of this time."""
        with Producer(self.server) as producer:
            for partition, count in enumerate(counts):
                for number in range(count):
                    producer.send(topic or self.topic, b"%d" % number, partition=partition, timestamp_ms=time_ms)

    def write_values(self, *values: bytes | None) -> None:
        """To partition 0."""
        with Producer(self.server) as producer:
            for value in values:
                producer.send(self.topic, value, partition=0)

    def add_partitions(self, partitions: int) -> None:
        """So that there are so many; waits until all are led."""
        path = f"/apis/headrace.io/v1alpha1/namespaces/default/topics/{self.topic}"
        self.cluster.kube("PATCH", path, {"spec": {"partitions": partitions}})
        self.cluster.wait_led(self.topic, partitions)

    def delete_records(self, below: int, partition: int = 0) -> None:
        url = self.cluster.records_url(self.topic, partition)
        assert http("DELETE", f"{url}?beforeOffset={below}").status == 200

    def delete(self) -> None:
        """Returns when no broker knows it any more."""
        self.cluster.delete_topic(self.topic)
        url = f"{self.server}/v1/namespaces/default/topics/{self.topic}"
        wait_for(lambda: http("GET", url).status == 404, f"{self.topic} is gone")

    # -- batch queries -----------------------------------------------------------------------------------------------

    def frame(self, **options: object) -> DataFrame:
        """Of the topic, unless the options name others."""
        return self.spark.read.format("headrace").options(**self._options(options)).load()

    def rows(self, **options: object) -> list[Row]:
        """By partition and offset."""
        return self.frame(**options).orderBy("topic", "partition", "offset").collect()

    def places(self, **options: object) -> list[Place]:
        return [(row.partition, row.offset) for row in self.rows(**options)]

    # -- streams -----------------------------------------------------------------------------------------------------

    def stream(self, **options: object) -> DataFrame:
        return self.spark.readStream.format("headrace").options(**self._options(options)).load()

    def writer(self, batches: Batches, **options: object) -> DataStreamWriter:
        """From the earliest on unless the options say otherwise; one checkpoint for all queries of a test."""
        frame = self.stream(**{"startingOffsets": "earliest", **options})
        return frame.writeStream.foreachBatch(batches.take).option(
            "checkpointLocation", str(self.folder / "checkpoint")
        )

    def read_available(self, batches: Batches | None = None, **options: object) -> Batches:
        """What is there now, in one run of the query; what each batch brought."""
        batches = batches or Batches()
        query = self.writer(batches, **options).trigger(availableNow=True).start()
        assert query.awaitTermination(120), "the query goes on"
        return batches

    @contextmanager
    def running(self, batches: Batches, **options: object) -> Iterator[StreamingQuery]:
        query = self.writer(batches, **options).start()
        try:
            yield query
        finally:
            query.stop()

    def _options(self, options: dict[str, Any]) -> dict[str, Any]:
        given = {"server": self.server, **{name: value for name, value in options.items() if value is not None}}
        if not {"subscribe", "subscribePattern", "assign"} & {*given}:
            given["subscribe"] = self.topic
        return given


def whole(*counts: int, start: int = 0) -> list[Place]:
    """Every offset from `start` to these, by partition."""
    return [(partition, offset) for partition, count in enumerate(counts) for offset in range(start, count)]


def waits_for(query: StreamingQuery, batches: Batches, expected: Sequence[Place]) -> None:
    """Until the query has brought all of that; fails with its error where it ends before."""

    def has_all() -> bool:
        error = query.exception()
        if error is not None:
            raise error
        return len(batches.all) >= len(expected)

    wait_for(has_all, f"{len(expected)} records come")
    assert batches.all == sorted(expected)

"""Which client does which work, with which settings, on which topic: the tables of the comparison.

"default" is a client as it comes, "bulk" with the settings that move much data fastest on this kind of machine; the
settings here are all that differ from a client's defaults. Everybody acknowledges with acks=all but the round trip.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from bench.peers.job import Work

SMALL_BYTES = 100
LARGE_BYTES = 1024


class Client(StrEnum):
    JAVA = "Kafka, Java"
    CONFLUENT = "Kafka, confluent-kafka"
    SDK = "Headrace SDK"

    @property
    def is_of_kafka(self) -> bool:
        return self is not Client.SDK


@dataclass(frozen=True, slots=True)
class Case:
    work: Work
    value_bytes: int
    client: Client
    how: str
    topic: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Different for every case."""
        return f"{self.work} {self.value_bytes} B, {self.client}, {self.how}"


@dataclass(frozen=True, slots=True)
class Size:
    """How much one round of each kind of work moves."""

    bulk_records: Mapping[int, int]
    """By the size of their values."""
    single_records: int
    many_records: int

    def records(self, case: Case) -> int:
        if case.work is Work.ROUND_TRIP:
            return self.single_records
        return self.many_records if case.work is Work.MANY_PRODUCERS else self.bulk_records[case.value_bytes]


FULL = Size({SMALL_BYTES: 4_000_000, LARGE_BYTES: 600_000}, single_records=5_000, many_records=25_600)
SHORT = Size({SMALL_BYTES: 400_000, LARGE_BYTES: 60_000}, single_records=500, many_records=2_560)

_JAVA_BULK_PRODUCER = {"batch.size": 1_000_000, "linger.ms": 5, "buffer.memory": 134_217_728}
_JAVA_BULK_CONSUMER = {"max.partition.fetch.bytes": 8_388_608, "max.poll.records": 10_000}
CONFLUENT_BULK_PRODUCER = {"linger.ms": 20, "queue.buffering.max.messages": 1_000_000, "batch.num.messages": 100_000}
_CONFLUENT_BULK_CONSUMER = {
    "fetch.message.max.bytes": 8_388_608,
    "queued.min.messages": 1_000_000,
    "queued.max.messages.kbytes": 1_048_576,
}
_SDK_BULK_CONSUMER = {"columns": True, "keep_large_buffers": True}
"""The second is glibc's allocator told to keep large buffers: a process that reads bulk data asks for it itself."""
_AT_ONCE = {"linger.ms": 0, "acks": 1}
_AT_ONCE_ALL = {"linger.ms": 0, "acks": "all"}

KAFKA_TOPICS: Mapping[str, Mapping[str, str]] = {
    **{
        f"{client}-{size}": {}
        for client in ("java", "java-bulk", "confluent", "confluent-bulk")
        for size in (100, 1024)
    },
    "waiting": {},
    "flushed": {"flush.messages": "1"},
}
HEADRACE_TOPICS: Mapping[str, str] = {
    **{f"{how}-{size}": "Replicated" for how in ("columns", "records") for size in (100, 1024)},
    "waiting": "Replicated",
    "synced": "Fsync",
}


KAFKA_REPLICATED_TOPICS: Mapping[str, Mapping[str, str]] = {
    f"{client}-{size}": {"min.insync.replicas": "2"} for client in ("java", "confluent") for size in (100, 1024)
}
HEADRACE_REPLICATED_TOPICS: Mapping[str, str] = {
    f"{durability.lower()}-{size}": durability for durability in ("Replicated", "Fsync") for size in (100, 1024)
}
REPLICAS = 3
"""And partitions, and brokers, of these."""

Groups = tuple[tuple[Case, ...], ...]


def cases() -> Groups:
    """Groups of the same work, in the order in which it has to be done: what is read was written before."""
    return (*single_cases(), *replicated_cases())


def single_cases() -> Groups:
    """Of one broker."""
    bulk = [group for size in (SMALL_BYTES, LARGE_BYTES) for group in (_produce(size), _consume(size))]
    return (*bulk, _round_trip(), _many_producers())


def replicated_cases() -> Groups:
    """Of three."""
    return tuple(_produce_replicated(size) for size in (SMALL_BYTES, LARGE_BYTES))


def _produce(size: int) -> tuple[Case, ...]:
    return (
        Case(Work.PRODUCE, size, Client.JAVA, "default", f"java-{size}"),
        Case(Work.PRODUCE, size, Client.JAVA, "bulk", f"java-bulk-{size}", _JAVA_BULK_PRODUCER),
        Case(Work.PRODUCE, size, Client.CONFLUENT, "default", f"confluent-{size}"),
        Case(Work.PRODUCE, size, Client.CONFLUENT, "bulk", f"confluent-bulk-{size}", CONFLUENT_BULK_PRODUCER),
        Case(Work.PRODUCE, size, Client.SDK, "send_batch", f"columns-{size}", {"columns": True}),
        Case(Work.PRODUCE, size, Client.SDK, "send", f"records-{size}", {"columns": False}),
    )


def _produce_replicated(size: int) -> tuple[Case, ...]:
    """Kafka acknowledges from the page caches of three; so does `Replicated`. `Fsync` waits for three disks."""
    work, columns = Work.PRODUCE_REPLICATED, {"columns": True}
    return (
        Case(work, size, Client.JAVA, "bulk", f"java-{size}", _JAVA_BULK_PRODUCER),
        Case(work, size, Client.CONFLUENT, "bulk", f"confluent-{size}", CONFLUENT_BULK_PRODUCER),
        Case(work, size, Client.SDK, "send_batch", f"replicated-{size}", columns),
        Case(work, size, Client.SDK, "send_batch, fsync", f"fsync-{size}", columns),
    )


def _consume(size: int) -> tuple[Case, ...]:
    """Each reads what the fastest producer of its own system wrote."""
    return (
        Case(Work.CONSUME, size, Client.JAVA, "default", f"java-bulk-{size}"),
        Case(Work.CONSUME, size, Client.JAVA, "bulk", f"java-bulk-{size}", _JAVA_BULK_CONSUMER),
        Case(Work.CONSUME, size, Client.CONFLUENT, "default", f"confluent-bulk-{size}"),
        Case(Work.CONSUME, size, Client.CONFLUENT, "bulk", f"confluent-bulk-{size}", _CONFLUENT_BULK_CONSUMER),
        Case(Work.CONSUME, size, Client.SDK, "batches", f"columns-{size}", _SDK_BULK_CONSUMER),
        Case(Work.CONSUME, size, Client.SDK, "records", f"columns-{size}", {"columns": False}),
    )


def _round_trip() -> tuple[Case, ...]:
    return (
        Case(Work.ROUND_TRIP, SMALL_BYTES, Client.JAVA, "send().get()", "waiting", _AT_ONCE),
        Case(Work.ROUND_TRIP, SMALL_BYTES, Client.CONFLUENT, "produce, flush", "waiting", _AT_ONCE),
        Case(Work.ROUND_TRIP, SMALL_BYTES, Client.SDK, "send().result()", "waiting", {"linger_ms": 0, "acks": 1}),
    )


def _many_producers() -> tuple[Case, ...]:
    work, size = Work.MANY_PRODUCERS, LARGE_BYTES
    return (
        Case(work, size, Client.JAVA, "flush.messages=1", "flushed", _AT_ONCE_ALL),
        Case(work, size, Client.JAVA, "page cache (default)", "waiting", _AT_ONCE_ALL),
        Case(work, size, Client.SDK, "fsync (default)", "synced", {"linger_ms": 0}),
        Case(work, size, Client.SDK, "replicated", "waiting", {"linger_ms": 0}),
    )

"""What three copies cost: the same work on topics with one replica and with three, on the same three brokers.

The two halves of a round follow each other at once, so that whatever else the machine does meets both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from bench.dev_cluster import BenchTopic, DevCluster, dev_cluster
from bench.fan_out import fan_out
from bench.raw import RawClient
from bench.sdk import send_batch, send_times
from bench.workload import Batch, values
from headrace.http2.blocking_transport import BlockingTransport

REPLICAS = (1, 3)
YARDSTICK = "sockets and files alone"
"""What this machine does where nothing of Headrace is in the way."""
_BROKERS = 3
_PARTITIONS = 3
"""A leader on each broker."""
_DURABILITIES = ("Fsync", "Replicated")
_COLUMN_RECORDS = 200_000


@dataclass(frozen=True, slots=True)
class Amounts:
    sdk_records: int
    raw_batches: int
    latency_records: int


@dataclass(frozen=True, slots=True)
class ReplicationRound:
    """By label; each with a figure for each number of replicas."""

    rates: Mapping[str, Mapping[int, float]]
    """Records per second."""
    times: Mapping[str, Mapping[int, Sequence[float]]]
    """Seconds of each record."""


def measure(rounds: int, amounts: Amounts, batch: Batch) -> list[ReplicationRound]:
    """After one round that is not counted."""
    topics = [topic for number in range(rounds + 1) for topic in _topics(number).values()]
    with dev_cluster(topics, _BROKERS) as cluster, BlockingTransport() as transport:
        bench = _Bench(cluster, transport, amounts, batch)
        return [bench.round(number) for number in range(rounds + 1)][1:]


def _topics(number: int) -> dict[tuple[str, int], BenchTopic]:
    return {
        (durability, replicas): BenchTopic(
            f"bench-{durability.lower()}-{replicas}-{number}", durability, _PARTITIONS, replicas
        )
        for durability in _DURABILITIES
        for replicas in REPLICAS
    }


class _Bench:
    def __init__(self, cluster: DevCluster, transport: BlockingTransport, amounts: Amounts, batch: Batch) -> None:
        self._cluster = cluster
        self._transport = transport
        self._amounts = amounts
        self._batch = batch
        self._column = values(min(_COLUMN_RECORDS, amounts.sdk_records))
        self._value: bytes = values(1).to_pylist()[0]

    def round(self, number: int) -> ReplicationRound:
        """Whoever goes first in one round goes last in the next."""
        topics, order = _topics(number), REPLICAS if number % 2 else REPLICAS[::-1]
        rates: dict[str, dict[int, float]] = {YARDSTICK: {replicas: self._fan_out(replicas) for replicas in order}}
        times: dict[str, dict[int, Sequence[float]]] = {}
        for durability in _DURABILITIES:
            sdk, raw, single = (f"{what}, {durability.lower()}" for what in ("SDK send_batch", "raw transport", "SDK"))
            for replicas in order:
                topic = topics[durability, replicas].name
                rates.setdefault(sdk, {})[replicas] = self._send(topic)
                rates.setdefault(raw, {})[replicas] = self._send_raw(topic)
                times.setdefault(single, {})[replicas] = send_times(
                    self._cluster.url(), topic, self._amounts.latency_records, self._value
                )
        return ReplicationRound(rates, times)

    def _send(self, topic: str) -> float:
        """To all partitions, as a user does."""
        pieces = -(-self._amounts.sdk_records // len(self._column))
        return send_batch(self._cluster.url(), topic, pa.chunked_array([self._column] * pieces).combine_chunks())

    def _fan_out(self, replicas: int) -> float:
        batch_bytes = sum(memoryview(each).nbytes for each in self._batch.buffers)
        return self._batch.records * fan_out(self._cluster.home, replicas, batch_bytes, self._amounts.raw_batches)

    def _send_raw(self, topic: str) -> float:
        """To one partition, at its leader."""
        leader = (self._cluster.placed(topic) or {})[0].leader
        if leader is None:
            raise RuntimeError(f"topic {topic} has lost its leader: nothing was killed")
        client = RawClient(self._transport, self._cluster.url(leader), topic)
        return client.produce(self._batch, self._amounts.raw_batches)

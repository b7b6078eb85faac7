"""Real broker processes that replicate, on the embedded API and without the operator: the test elects.

Topics and PartitionSets are written by the test; ISRs and renewals by the brokers, as ever. Every write of the test is
made again on what is there where a broker was faster.
"""

import json
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.core.resources.lease import BrokerLease
from headrace.core.resources.metadata import API_VERSION, Metadata
from headrace.core.resources.partition_set import PartitionSet, PartitionState
from headrace.core.types import (
    Acks,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    PartitionId,
    Seat,
    TopicUid,
)
from tests.support.batches import batch_of
from tests.support.cluster import Answer, Cluster, http
from tests.support.waiting import wait_for
from tests.support.world import BATCH_BODY, JSON_BODY, LEASES, PARTITION_SETS, TOPICS

_CONFLICT = 409


@dataclass(slots=True)
class ReplicatedBrokers:
    cluster: Cluster
    brokers: tuple[BrokerId, ...]
    topic: str = "flights"

    def create(self, leader: int = 0, partitions: int = 1, **spec: object) -> None:
        """The topic, in sync everywhere and led by one broker; waits until that serves it."""
        manifest = {
            "apiVersion": API_VERSION,
            "kind": "Topic",
            "metadata": {"name": self.topic},
            "spec": {"partitions": partitions, "replicas": 3, "retention": {"time": "unlimited"}, **spec},
        }
        uid = self.cluster.kube("POST", TOPICS, manifest)["metadata"]["uid"]
        seats = tuple(map(self.seat, self.brokers))
        states = tuple(
            PartitionState(PartitionId(number), seats[leader], LeaderEpoch(1), PartitionEpoch(1), self.brokers, seats)
            for number in range(partitions)
        )
        metadata = Metadata(name=f"{self.topic}-0", namespace="default")
        self.cluster.kube("POST", PARTITION_SETS, PartitionSet(metadata, self.topic, TopicUid(uid), states).to_object())
        self.wait_led(leader, partitions)

    def elect(self, leader: int, *, isr: Sequence[int] | None = None, partition: int = 0) -> None:
        """In the next epoch; `isr`: those of them that stay in it."""

        def elected(state: PartitionState) -> PartitionState:
            stay = self.brokers if isr is None else isr
            return replace(
                state,
                leader=self.seat(leader),
                leader_epoch=LeaderEpoch(state.leader_epoch + 1),
                partition_epoch=PartitionEpoch(state.partition_epoch + 1),
                isr=tuple(seat for seat in state.isr if seat.broker in stay),
            )

        self.change(elected, partition)
        self.wait_led(leader, partition + 1, first=partition)

    def change(self, change: Callable[[PartitionState], PartitionState], partition: int = 0) -> None:
        def written() -> bool:
            found = self.sets()
            after = found.with_partitions(change(found.partitions[partition]))
            body = {**self.cluster.partition_set(found.metadata.name), "spec": after.to_object()["spec"]}
            body["metadata"]["resourceVersion"] = found.metadata.resource_version
            url = f"{self.cluster.api_url}{PARTITION_SETS}/{found.metadata.name}"
            return self._put(url, body).status != _CONFLICT

        wait_for(written, "the set is written")

    def sets(self) -> PartitionSet:
        return PartitionSet.parse(self.cluster.partition_set(f"{self.topic}-0"))

    def state(self, partition: int = 0) -> PartitionState:
        return self.sets().partitions[partition]

    def in_sync(self, partition: int = 0) -> set[int]:
        """Brokers in the ISR with their present lives."""
        return {seat.broker for seat in self.state(partition).isr if seat == self.seat(seat.broker)}

    def seat(self, broker: int) -> Seat:
        lease = BrokerLease.parse(self.cluster.kube("GET", f"{LEASES}/headrace-broker-{broker}"))
        return Seat(lease.broker, lease.incarnation)

    def wait_led(self, leader: int, partitions: int = 1, first: int = 0) -> None:
        wait_for(
            lambda: all(
                self.cluster.serves(self.cluster.url(leader), self.topic, number) for number in range(first, partitions)
            ),
            f"broker {leader} leads",
        )

    def wait_in_sync(self, *brokers: int, partition: int = 0, timeout_s: float = 60) -> None:
        wait_for(lambda: self.in_sync(partition) == set(brokers), f"{brokers} are in sync", timeout_s)

    def produce(self, leader: int, *values: bytes, partition: int = 0, acks: Acks = Acks.ALL) -> Answer:
        url = f"{self.records_url(leader, partition)}?acks={acks.value}&timeoutMs=120000"
        headers = BATCH_BODY
        return http("POST", url, batch_of(*values), headers, tls=self.cluster.tls)

    def records_url(self, broker: int, partition: int = 0) -> str:
        path = f"/v1/namespaces/default/topics/{self.topic}/partitions/{partition}/records"
        return self.cluster.url(broker) + path

    def metric(self, broker: int, name: str) -> float:
        """The sum of its samples, whatever their labels."""
        text = http("GET", f"{self.cluster.url(broker)}/metrics", tls=self.cluster.tls).body.decode()
        lines = [line for line in text.splitlines() if line.startswith((f"{name} ", f"{name}{{"))]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    def log_bytes(self, broker: int, partition: int = 0) -> bytes:
        """Of all segments, in order, as they lie on the broker's disk."""
        directory = self.cluster.home / f"broker-{broker}" / "partitions" / f"{self.sets().topic_uid}-{partition}"
        return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))

    def wait_equal_logs(self, partition: int = 0, timeout_s: float = 60) -> None:
        def are_equal() -> bool:
            try:
                return len({self.log_bytes(broker, partition) for broker in self.brokers}) == 1
            except FileNotFoundError:  # A log is being cut.
                return False

        wait_for(are_equal, "equal logs", timeout_s)

    def _put(self, url: str, body: object) -> Answer:
        return http("PUT", url, json.dumps(body).encode(), JSON_BODY)


@contextmanager
def replicated_brokers(
    home: Path, *options: str, brokers: int = 3, tls: ssl.SSLContext | None = None
) -> Iterator[ReplicatedBrokers]:
    """Ready, without any topic."""
    home.mkdir(parents=True, exist_ok=True)
    cluster = Cluster(home, tls=tls)
    try:
        cluster.start_api()
        for program in [cluster.start_broker(broker, *options, ready=False) for broker in range(brokers)]:
            cluster.wait_ready(program)
        yield ReplicatedBrokers(cluster, tuple(map(BrokerId, range(brokers))))
    finally:
        cluster.close()

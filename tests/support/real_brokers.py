"""Real broker processes beside a real operator and some API server, and a producer that never stops asking.

The harness is the kubelet: it tells of a broker's Pod what becomes of its process, unless the death is to be silent.
"""

import asyncio
import signal
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from headrace.client.consumer.async_consumer import AsyncConsumer
from headrace.client.producer.async_producer import AsyncProducer
from headrace.core.resources.lease import BrokerLease, lease_name
from headrace.core.resources.partition_set import PartitionState
from headrace.core.types import BrokerId
from headrace.kube.errors import NotFoundError
from headrace.kube.resource import LEASES
from tests.support.operator import Cluster
from tests.support.patience import patient
from tests.support.started import AsyncProcess, module, start_beside
from tests.support.waiting import observed

_UP_S = 120.0


@dataclass(slots=True)
class RealBroker:
    cluster: Cluster
    number: int
    folder: Path
    process: AsyncProcess | None = None
    lives: int = 0

    async def start(self) -> None:
        """Returns when it has taken its Lease and serves."""
        before = await self.lease()
        port = before.url.rpartition(":")[2] if before is not None else "0"
        data, log = self.folder / f"broker-{self.number}", (self.folder / f"broker-{self.number}.log").open("ab")
        with log:
            options = ["--id", str(self.number), "--data", str(data)]
            options += ["--kubeconfig", str(self.folder / "kubeconfig"), "--port", port]
            options += ["--cluster", self.cluster.name, "--namespace", self.cluster.name]
            self.process = await start_beside(module("headrace_broker.main", *options), log.fileno())
        await self.tell({"running": {}}, restarts=self.lives)
        self.lives += 1

        def lives_anew(lease: BrokerLease | None) -> bool:
            return lease is not None and lease.incarnation > (before.incarnation if before else 0)

        await observed(self.lease, lives_anew, f"broker {self.number} lives", _UP_S)

    async def lease(self) -> BrokerLease | None:
        with suppress(NotFoundError):
            return await self.cluster.client.get(LEASES, lease_name(BrokerId(self.number)), self.cluster.name)
        return None

    async def kill(self, *, silently: bool = False) -> None:
        """kill -9, as its kubelet tells, or as a node that loses its power does not."""
        assert self.process is not None
        self.process.kill()
        await self.process.wait()
        if not silently:
            await self.tell({"terminated": {"exitCode": 137}}, restarts=self.lives - 1)

    async def stop(self) -> int:
        """SIGTERM: it hands over what it leads -> its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(patient(_UP_S)):
            code = await self.process.wait()
        await self.tell({"terminated": {"exitCode": code}}, restarts=self.lives - 1)
        return code

    async def tell(self, state: dict[str, object], restarts: int) -> None:
        with suppress(NotFoundError):
            await self.cluster.tell_of_pod(self.number, state, restarts)

    async def end(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()


@dataclass(slots=True)
class RealCluster:
    control: Cluster
    folder: Path
    brokers: dict[int, RealBroker] = field(default_factory=dict)

    async def start(self, count: int = 3) -> None:
        await self.control.run_as_pods(count)
        await self.control.operator.start()
        await self.add(*range(count))

    async def add(self, *numbers: int) -> None:
        added = [RealBroker(self.control, number, self.folder) for number in numbers]
        self.brokers.update({broker.number: broker for broker in added})
        await asyncio.gather(*(broker.start() for broker in added))

    async def servers(self) -> str:
        leases = [await broker.lease() for broker in self.brokers.values()]
        return ",".join(lease.url for lease in leases if lease is not None)

    async def states(self) -> list[PartitionState]:
        return [state for found in await self.control.sets() for state in found.partitions]

    async def leader(self, partition: int = 0) -> RealBroker:
        def led(states: list[PartitionState]) -> bool:
            return any(state.id == partition and state.leader is not None for state in states)

        (state,) = [s for s in await observed(self.states, led, "somebody leads") if s.id == partition]
        assert state.leader is not None
        return self.brokers[state.leader.broker]

    async def wait_whole(self, replicas: int, *among: int) -> None:
        """Every partition stands on so many of these brokers, all are in sync, nothing moves."""

        def whole(states: list[PartitionState]) -> bool:
            return all(
                len(s.replicas) == len(s.isr) == replicas and {*s.replicas} <= {*among} and s.leader and not s.adding
                for s in states
            )

        await observed(self.states, whole, f"{replicas} replicas among {among} are in sync", 90)


@dataclass(slots=True)
class Load:
    """Writes one record after the other to each partition, and remembers what was acknowledged."""

    producer: AsyncProducer
    servers: str
    namespace: str
    acknowledged: dict[int, list[tuple[int, bytes]]] = field(default_factory=lambda: defaultdict(list))

    async def run(self, partition: int) -> None:
        number = 0
        while True:
            value = b"%d-%d" % (partition, number)
            written = await (await self.producer.send("flights", value, partition=partition))
            self.acknowledged[partition].append((written.offset, value))
            number += 1

    async def goes_on(self, partitions: int, timeout_s: float = 60.0) -> None:
        """Each partition takes more records from now on."""
        before = {number: len(self.acknowledged[number]) for number in range(partitions)}

        async def more() -> list[int]:
            return [number for number, count in before.items() if len(self.acknowledged[number]) <= count + 1]

        await observed(more, lambda stuck: not stuck, "records are acknowledged on all partitions", timeout_s)

    async def check(self) -> None:
        """Everything that was acknowledged is there, at its offset, once."""
        for partition, expected in self.acknowledged.items():
            found: dict[int, bytes | None] = {}
            consumer = AsyncConsumer("flights", server=self.servers, namespace=self.namespace, partitions=[partition])
            async with consumer, asyncio.timeout(patient(60)):
                async for record in consumer:
                    found[record.offset] = record.value
                    if record.offset >= expected[-1][0]:
                        break
            assert [(offset, found.get(offset)) for offset, _ in expected] == expected, f"partition {partition}"
            assert len({*found.values()}) == len(found), f"partition {partition} has a record twice"


@asynccontextmanager
async def producing(cluster: RealCluster, partitions: int = 3) -> AsyncIterator[Load]:
    """Under load until the block ends; what was acknowledged is checked then."""
    servers = await cluster.servers()
    async with AsyncProducer(servers, namespace=cluster.control.name, linger_ms=0) as producer:
        load = Load(producer, servers, cluster.control.name)
        tasks = [asyncio.create_task(load.run(number)) for number in range(partitions)]
        try:
            await load.goes_on(partitions)
            yield load
            for task in tasks:
                assert not task.done(), task.exception()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    await load.check()

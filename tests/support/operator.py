"""The real operator process beside some API server, and brokers that are nothing but Leases, and hold nothing."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aiohttp import web

from headrace.core.control.broker_reports import BrokerReport
from headrace.core.resources.lease import CLUSTER_LABEL, BrokerLease, lease_name
from headrace.core.resources.metadata import Metadata, Object
from headrace.core.resources.partition_set import PartitionSet, PartitionState
from headrace.core.resources.topic import Topic, topic_manifest
from headrace.core.types import BrokerId, Incarnation, LeaderEpoch, PartitionEpoch, Seat
from headrace.http2.server import Server, serve
from headrace.kube.client import KubeClient
from headrace.kube.errors import ApiError, ConflictError, NotFoundError
from headrace.kube.resource import EVENTS, LEASES, PARTITION_SETS, TOPICS
from tests.support.broker_pods import RAW_PODS, RAW_STATEFUL_SETS, pod, stateful_set
from tests.support.kube_api import namespace
from tests.support.patience import patient
from tests.support.started import AsyncProcess, module, start_beside
from tests.support.waiting import observed

_RENEW_S = 0.5
_STOP_S = patient(60)


@dataclass(slots=True)
class FakeBroker:
    """A Lease that is renewed until `stop`: to the operator, a live broker, which answers that it holds nothing."""

    client: KubeClient
    lease: BrokerLease
    task: "asyncio.Task[None] | None" = None
    server: Server | None = None

    async def start(self) -> None:
        with suppress(NotFoundError):
            present = await self.client.get(LEASES, self.lease.metadata.name, self.lease.metadata.namespace)
            self.lease = replace(present, incarnation=Incarnation(present.incarnation + 1))
        app = web.Application()
        app.router.add_get("/v1/brokers/{broker}/held", self._held)
        self.server = await serve(app, host="127.0.0.1", port=0)
        self.lease = replace(self.lease, url=f"http://127.0.0.1:{self.server.port}")
        self.task = asyncio.create_task(self._renew())

    async def _held(self, request: web.Request) -> web.Response:
        return web.json_response(BrokerReport(self.seat, {}, {}).to_object())

    async def _renew(self) -> None:
        while True:
            renewed = self.lease.renewed(datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"))
            write = self.client.replace if renewed.metadata.resource_version else self.client.create
            with suppress(ApiError):
                self.lease = await write(LEASES, renewed.to_object())
            await asyncio.sleep(_RENEW_S)

    @property
    def seat(self) -> Seat:
        return Seat(self.lease.broker, self.lease.incarnation)

    async def stop(self) -> None:
        """As kill -9 does: the Lease is simply not renewed any more."""
        if self.task is not None:
            self.task.cancel()
            with suppress(asyncio.CancelledError):
                await self.task
        if self.server is not None:
            await self.server.close(0)


@dataclass(slots=True)
class Operator:
    """The process; `start` it, `kill` it, `stop` it."""

    arguments: tuple[str, ...]
    log: Path
    process: AsyncProcess | None = None

    async def start(self, *more: str) -> None:
        with self.log.open("ab") as log:
            self.process = await start_beside(module("headrace_operator.main", *self.arguments, *more), log.fileno())

    async def end(self, number: signal.Signals) -> int:
        """Send the signal, wait for the end -> exit code."""
        assert self.process is not None
        if self.process.returncode is None:
            self.process.send_signal(number)
        async with asyncio.timeout(_STOP_S):
            return await self.process.wait()

    async def stands_by(self) -> bool:
        """Whether it has ever said so."""
        return "this operator stands by" in self.log.read_text()

    async def freeze(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    async def thaw(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    async def kill(self) -> None:
        await self.end(signal.SIGKILL)


@dataclass(slots=True)
class Cluster:
    """What a test sees: an API, a namespace, brokers, an operator."""

    client: KubeClient
    name: str
    operator: Operator
    brokers: dict[int, FakeBroker] = field(default_factory=dict)

    async def start_brokers(self, *numbers: int) -> None:
        for number in numbers:
            labels = {CLUSTER_LABEL: self.name}
            lease = BrokerLease(
                Metadata(lease_name(BrokerId(number)), self.name, labels=labels),
                BrokerId(number),
                Incarnation(1),
                f"http://broker-{number}",
            )
            self.brokers[number] = FakeBroker(self.client, lease)
            await self.brokers[number].start()

    async def run_as_pods(self, replicas: int) -> None:
        """A StatefulSet that asks for so many brokers, and a Pod for each of them, whose container runs."""
        await self.client.create(RAW_STATEFUL_SETS, stateful_set(self.name, replicas))
        for number in range(replicas):
            await self.client.create(RAW_PODS, pod(self.name, number))
            await self.tell_of_pod(number, {"running": {}})

    async def tell_of_pod(self, number: int, state: Object, restarts: int = 0) -> None:
        """What a kubelet says of the container."""
        container = {"name": "broker", "ready": "running" in state, "restartCount": restarts, "state": state}
        status = {"phase": "Running", "containerStatuses": [{**container, "image": "headrace", "imageID": ""}]}
        await self.client.patch(RAW_PODS, f"{self.name}-{number}", self.name, {"status": status}, subresource="status")

    async def delete_pod(self, number: int) -> None:
        """For good, as a kubelet does."""
        await self.client.delete(RAW_PODS, f"{self.name}-{number}", self.name, grace_period_s=0)

    async def scale(self, replicas: int) -> None:
        await self.client.patch(RAW_STATEFUL_SETS, self.name, self.name, {"spec": {"replicas": replicas}})

    async def create_topic(self, name: str = "flights", **spec: Any) -> Topic:
        manifest = topic_manifest(name, self.name, {"cluster": self.name, "partitions": 6, "replicas": 1, **spec})
        return await self.client.create(TOPICS, manifest)

    async def patch_topic(self, patch: Object, name: str = "flights") -> Topic:
        return await self.client.patch(TOPICS, name, self.name, patch)

    async def delete_topic(self, name: str = "flights") -> None:
        await self.client.delete(TOPICS, name, self.name)

    async def topic(self, name: str = "flights") -> Topic | None:
        try:
            return await self.client.get(TOPICS, name, self.name)
        except NotFoundError:
            return None

    async def sets(self) -> list[PartitionSet]:
        return list((await self.client.list(PARTITION_SETS, namespace=self.name)).items)

    async def wait_event(self, reason: str) -> Object:
        """The one Event with this reason, once it is there: it follows the write that it tells of."""
        (event,) = await self._wait_events(reason)
        return event

    async def wait_event_about(self, reason: str, says: str = "") -> Object:
        """The first Event with this reason that says so; there may be more, also of the same reason."""
        return (await self._wait_events(reason, says))[0]

    async def _wait_events(self, reason: str, says: str = "") -> list[Object]:
        async def found() -> list[Object]:
            events: tuple[Object, ...] = (await self.client.list(EVENTS, namespace=self.name)).items
            return [event for event in events if event["reason"] == reason and says in event["message"]]

        return await observed(found, bool, f"there is an event {reason}")

    async def wait_condition(
        self, kind: str, status: str, reason: str, name: str = "flights", timeout_s: float = 60.0
    ) -> Topic:
        """The topic, once the condition of its present generation is so."""

        def holds(topic: Topic | None) -> bool:
            return topic is not None and any(
                (c["type"], c["status"], c["reason"], c.get("observedGeneration"))
                == (kind, status, reason, topic.metadata.generation)
                for c in topic.status.get("conditions", ())
            )

        topic = await observed(lambda: self.topic(name), holds, f"{kind} is {status}/{reason}", timeout_s)
        assert topic is not None
        return topic

    async def wait_ready(self, name: str = "flights") -> Topic:
        return await self.wait_condition("Ready", "True", "AllPartitionsOnline", name)

    async def wait_sets(self, holds: Callable[[list[PartitionSet]], bool], what: str) -> list[PartitionSet]:
        return await observed(self.sets, holds, what)

    async def wait_gone(self, name: str = "flights") -> None:
        await observed(lambda: self.topic(name), lambda topic: topic is None, f"{name} is gone")

    async def delete_data(self) -> None:
        """What brokers do with sets that are marked: delete the data, then take themselves out, by compare-and-set."""
        for found in await self.wait_sets(lambda sets: all(s.deleting for s in sets), "sets are marked"):
            await self._change(found, lambda p: replace(p, leader=None, isr=(), replicas=()))

    async def take_seats(self, number: int) -> None:
        """What a broker does that has come back: elect itself where it is the only replica."""
        seat = self.brokers[number].seat

        def won(p: PartitionState) -> PartitionState:
            leader_epoch, partition_epoch = LeaderEpoch(p.leader_epoch + 1), PartitionEpoch(p.partition_epoch + 1)
            led = replace(p, leader=seat, isr=(seat,), leader_epoch=leader_epoch, partition_epoch=partition_epoch)
            return led if p.replicas == (seat.broker,) else p

        for found in await self.sets():
            await self._change(found, won)

    async def _change(self, found: PartitionSet, change: Callable[[PartitionState], PartitionState]) -> None:
        """Upon the newest version: the operator may have been faster. A set that is gone stays as it is."""

        async def is_written() -> bool:
            try:
                newest = await self.client.get(PARTITION_SETS, found.metadata.name, self.name)
                partitions = tuple(change(state) for state in newest.partitions)
                await self.client.replace(PARTITION_SETS, replace(newest, partitions=partitions).to_object())
            except NotFoundError:
                return True
            except ConflictError:
                return False
            return True

        await observed(is_written, bool, f"{found.metadata.name} is written")

    async def release(self) -> None:
        """No operator is left to drop finalizers; a namespace would hang on them."""
        for topic in (await self.client.list(TOPICS, namespace=self.name)).items:
            with suppress(ApiError):
                await self.patch_topic({"metadata": {"finalizers": None}}, topic.metadata.name)
                await self.delete_topic(topic.metadata.name)


@asynccontextmanager
async def some_cluster(kubeconfig: Path, log: Path) -> AsyncIterator[Cluster]:
    """Nothing runs yet; at the end nothing does. The operator's log goes to stderr, for tests that fail."""
    async with await KubeClient.connect(kubeconfig=str(kubeconfig)) as client, namespace(client, "op") as name:
        options = ("--cluster", name, "--namespace", name, "--kubeconfig", str(kubeconfig))
        cluster = Cluster(client, name, Operator((*options, "--identity", "first"), log))
        try:
            yield cluster
        finally:
            if cluster.operator.process is not None:
                await cluster.operator.kill()
            for broker in cluster.brokers.values():
                await broker.stop()
            await cluster.release()
            _show(log)


def _show(log: Path) -> None:
    if log.exists():
        os.write(sys.stderr.fileno(), log.read_bytes())

"""The controller that carries out the plan of `workload`: the supervisor as an ordinary client of its own API.

One task runs `maintain` for as long as the supervisor lives. Anything that changes (a Pod, the StatefulSet, a broker
process) only wakes it; each round reads the API afresh, plans, and acts. While the API is away it waits and tries
again: nothing is lost, since the plan starts from what is there.
"""

import asyncio
import logging
import random
import socket
from typing import Protocol, assert_never

from headrace.core.resources.kubernetes_objects import bootstrap_service
from headrace.core.resources.metadata import DEFAULT_CLUSTER, Metadata, Object
from headrace.dev.supervisor import workload
from headrace.dev.supervisor.workload import (
    NAME,
    NAMESPACE,
    SELECTOR,
    BrokerView,
    Step,
    pod_object,
    service_object,
    stateful_set_object,
    stateful_set_status,
)
from headrace.kube.client import Backoff, KubeClient
from headrace.kube.errors import ApiError, NotFoundError
from headrace.kube.events import EventRecorder, EventType, Regarding
from headrace.kube.resource import Resource, raw_resource
from headrace.kube.watch import watch

PODS = raw_resource("", "v1", "pods", "Pod")
SERVICES = raw_resource("", "v1", "services", "Service")
STATEFUL_SETS = raw_resource("apps", "v1", "statefulsets", "StatefulSet")
_log = logging.getLogger("headrace.dev")


class BrokerProcesses(Protocol):
    """The broker processes, as the controller needs them."""

    def views(self) -> tuple[BrokerView, ...]: ...

    def add(self, broker: int) -> None: ...

    def remove(self, broker: int) -> None: ...

    def restart(self, broker: int) -> None: ...

    def kill(self, broker: int) -> None: ...

    def set_pod(self, broker: int, uid: str | None) -> None: ...


class Controller:
    def __init__(self, client: KubeClient, brokers: BrokerProcesses) -> None:
        self._client = client
        self._events = EventRecorder(client, "headrace-dev")
        self._brokers = brokers
        self._dirty = asyncio.Event()
        self.settled = asyncio.Event()
        """An event that is set once a round has found nothing left to do."""
        self._node = socket.gethostname()

    def wake(self) -> None:
        """Start a round, as something changed."""
        self._dirty.set()

    async def maintain(self) -> None:
        """Run rounds until cancelled."""
        backoff = Backoff(random.Random())
        async with asyncio.TaskGroup() as tasks:
            for resource in (PODS, SERVICES, STATEFUL_SETS):
                tasks.create_task(self._wake_on_changes(resource))
            self.wake()
            while True:
                await self._dirty.wait()
                self._dirty.clear()
                try:
                    await self._reconcile()
                    backoff.reset()
                except ApiError as error:
                    _log.debug("Pods and StatefulSet not up to date yet: %s", error)
                    self.wake()
                    await asyncio.sleep(backoff.next_ms() / 1000)

    async def _reconcile(self) -> None:
        """Run one round. Raises ApiError while the API is away or another client wrote at the same time."""
        steps = await self._plan()
        for step in steps:
            await self._carry_out(step)
        if steps:
            self.wake()
        else:
            self.settled.set()

    async def _plan(self) -> list[Step]:
        sets = await self._client.list(STATEFUL_SETS, namespace=NAMESPACE)
        pods = await self._client.list(PODS, namespace=NAMESPACE, label_selector=SELECTOR)
        services = await self._client.list(SERVICES, namespace=NAMESPACE)
        has_service = any(s["metadata"]["name"] == bootstrap_service(DEFAULT_CLUSTER) for s in services.items)
        ours = next((workload.parse_stateful_set(s) for s in sets.items if s["metadata"]["name"] == NAME), None)
        views = tuple(workload.parse_pod(pod) for pod in pods.items)
        return workload.plan(ours, views, self._brokers.views(), has_service=has_service)

    async def _carry_out(self, step: Step) -> None:
        match step:
            case workload.CreateService():
                await self._client.create(SERVICES, service_object())
            case workload.CreateStatefulSet() | workload.WriteSetStatus() | workload.WarnOfSet():
                await self._change_set(step)
            case workload.CreatePod(broker):
                pod = await self._client.create(PODS, pod_object(step, self._node))
                self._brokers.set_pod(broker, pod["metadata"]["uid"])
            case workload.DeletePod() | workload.EndPod() | workload.WritePodStatus():
                await self._change_pod(step)
            case workload.Pause(duration_ms):
                await asyncio.sleep(duration_ms / 1000)
            case _:
                self._change_broker(step)

    async def _change_set(
        self, step: workload.CreateStatefulSet | workload.WriteSetStatus | workload.WarnOfSet
    ) -> None:
        match step:
            case workload.CreateStatefulSet(replicas):
                await self._client.create(STATEFUL_SETS, stateful_set_object(replicas))
            case workload.WriteSetStatus(status):
                patch = {"status": stateful_set_status(status)}
                await self._client.patch(STATEFUL_SETS, NAME, NAMESPACE, patch, subresource="status")
            case workload.WarnOfSet(uid, reason, message):
                regarding = Regarding(STATEFUL_SETS, Metadata(NAME, NAMESPACE, uid=uid))
                await self._events.record(regarding, EventType.WARNING, reason, message)

    def _change_broker(
        self,
        step: workload.AddBroker
        | workload.RemoveBroker
        | workload.KillBroker
        | workload.RestartBroker
        | workload.AdoptPod,
    ) -> None:
        match step:
            case workload.AddBroker(broker, reason):
                _log.info("starting broker %d: %s", broker, reason)
                self._brokers.add(broker)
            case workload.RemoveBroker(broker, reason):
                _log.info("stopping broker %d: %s", broker, reason)
                self._brokers.remove(broker)
            case workload.KillBroker(broker, reason):
                _log.info("killing broker %d: %s", broker, reason)
                self._brokers.set_pod(broker, None)
                self._brokers.kill(broker)
            case workload.RestartBroker(broker, reason):
                _log.info("restarting broker %d: %s", broker, reason)
                self._brokers.set_pod(broker, None)
                self._brokers.restart(broker)
            case workload.AdoptPod(broker, uid):
                self._brokers.set_pod(broker, uid)
            case _:
                assert_never(step)

    async def _change_pod(self, step: workload.DeletePod | workload.EndPod | workload.WritePodStatus) -> None:
        try:
            match step:
                case workload.DeletePod(name, uid):
                    await self._client.delete(PODS, name, NAMESPACE, uid=uid, grace_period_s=0)
                case workload.EndPod(name, uid):
                    await self._client.delete(PODS, name, NAMESPACE, uid=uid)
                case workload.WritePodStatus(name, status):
                    patch = {"status": status.to_object()}
                    await self._client.patch(PODS, name, NAMESPACE, patch, subresource="status")
        except NotFoundError:
            pass  # Another client deleted it meanwhile: the next round sees that.

    async def _wake_on_changes(self, resource: Resource[Object]) -> None:
        async for _ in watch(self._client, resource, namespace=NAMESPACE):
            self.wake()

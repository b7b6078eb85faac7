"""The StatefulSet `headrace`, its Pods and its bootstrap Service, kept in step with the broker processes.

Pure: views in, steps out. On a cluster a controller turns a StatefulSet into Pods, and a kubelet turns Pods into
processes. Here both are this plan, level-triggered: it looks at what is there now and may be run again after any prefix
of its own steps.

    no StatefulSet             ──> CreateStatefulSet
    no bootstrap Service       ──> CreateService
    replicas above the brokers ──> AddBroker;  below ──> RemoveBroker (highest ordinals first)
    a Pod being deleted        ──> KillBroker, DeletePod: this time for good, as a kubelet does
    a broker without its Pod   ──> CreatePod, and KillBroker first where it had one
    a Pod without its broker   ──> DeletePod, and so with one of an earlier run that names another port
    a Pod or the StatefulSet that tells yesterday's truth ──> WritePodStatus, WriteSetStatus

Called by `controller`, which reads the API afresh each time: a stale cache would make a Pod that was just created look
deleted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from headrace.core.limits import DEV_BROKERS_MAX
from headrace.core.resources.metadata import Metadata, Object
from headrace.core.resources.service import BOOTSTRAP_PORT_NAME

NAME = "headrace"
NAMESPACE = "default"
_PREFIX = f"{NAME}-"


@dataclass(frozen=True, slots=True)
class BrokerView:
    """A broker process as the supervisor knows it."""

    id: int
    ready: bool
    restarts: int
    started_at: str
    """RFC 3339, empty before its first life."""
    port: int
    pod_uid: str | None
    """The Pod that stands for it; None while it has none yet."""


@dataclass(frozen=True, slots=True)
class PodView:
    name: str
    uid: str
    broker: int | None
    """None for a Pod of ours whose name carries no ordinal."""
    port: int | None
    """That it says its broker listens on; None where it says nothing."""
    deleting: bool
    status: "PodStatus | None"


@dataclass(frozen=True, slots=True)
class PodStatus:
    ready: bool
    restarts: int
    started_at: str


@dataclass(frozen=True, slots=True)
class SetStatus:
    replicas: int
    ready: int
    generation: int


@dataclass(frozen=True, slots=True)
class StatefulSetView:
    uid: str
    replicas: int
    generation: int
    status: SetStatus | None


@dataclass(frozen=True, slots=True)
class CreateStatefulSet:
    replicas: int
    reason: str


@dataclass(frozen=True, slots=True)
class CreateService:
    reason: str


@dataclass(frozen=True, slots=True)
class AddBroker:
    broker: int
    reason: str


@dataclass(frozen=True, slots=True)
class RemoveBroker:
    broker: int
    reason: str


@dataclass(frozen=True, slots=True)
class KillBroker:
    """Its Pod is gone: kill -9, and forget the Pod."""

    broker: int
    reason: str


@dataclass(frozen=True, slots=True)
class AdoptPod:
    """A Pod of an earlier run of the supervisor stands for this broker."""

    broker: int
    uid: str
    reason: str


@dataclass(frozen=True, slots=True)
class CreatePod:
    broker: int
    port: int
    owner_uid: str
    reason: str


@dataclass(frozen=True, slots=True)
class DeletePod:
    name: str
    uid: str
    reason: str


@dataclass(frozen=True, slots=True)
class WritePodStatus:
    name: str
    status: PodStatus
    reason: str


@dataclass(frozen=True, slots=True)
class WriteSetStatus:
    status: SetStatus
    reason: str


Step: TypeAlias = (
    CreateStatefulSet
    | CreateService
    | AddBroker
    | RemoveBroker
    | KillBroker
    | AdoptPod
    | CreatePod
    | DeletePod
    | WritePodStatus
    | WriteSetStatus
)


def plan(
    stateful_set: StatefulSetView | None,
    pods: tuple[PodView, ...],
    brokers: tuple[BrokerView, ...],
    *,
    has_service: bool = True,
) -> list[Step]:
    """The steps from what is there to what the StatefulSet asks for."""
    if stateful_set is None:
        return [CreateStatefulSet(len(brokers), "there is no StatefulSet")]
    steps: list[Step] = [] if has_service else [CreateService("there is no bootstrap Service")]
    steps += _scale(stateful_set, brokers)
    by_broker = {pod.broker: pod for pod in pods}
    kept = [broker for broker in brokers if broker.id < _wanted(stateful_set)]
    for broker in kept:
        steps += _pod_of(broker, by_broker.get(broker.id), stateful_set.uid)
    ids = {broker.id for broker in kept}
    steps += [DeletePod(p.name, p.uid, "it has no broker") for p in pods if p.broker not in ids]
    status = SetStatus(len(kept), sum(broker.ready for broker in kept), stateful_set.generation)
    if status != stateful_set.status:
        steps.append(WriteSetStatus(status, "its numbers changed"))
    return steps


def _wanted(stateful_set: StatefulSetView) -> int:
    return min(stateful_set.replicas, DEV_BROKERS_MAX)


def _scale(stateful_set: StatefulSetView, brokers: tuple[BrokerView, ...]) -> list[Step]:
    wanted, there = _wanted(stateful_set), {broker.id for broker in brokers}
    reason = f"StatefulSet {NAME} asks for {stateful_set.replicas} replicas"
    if stateful_set.replicas > DEV_BROKERS_MAX:
        reason += f"; headrace dev runs {DEV_BROKERS_MAX} at most"
    added: list[Step] = [AddBroker(broker, reason) for broker in range(wanted) if broker not in there]
    removed: list[Step] = [RemoveBroker(broker, reason) for broker in sorted(there, reverse=True) if broker >= wanted]
    return added + removed


def _pod_of(broker: BrokerView, pod: PodView | None, owner_uid: str) -> list[Step]:
    if pod is None:
        created: list[Step] = [CreatePod(broker.id, broker.port, owner_uid, "the broker has no Pod")]
        if broker.pod_uid is None:
            return created
        return [KillBroker(broker.id, f"Pod {pod_name(broker.id)} was deleted"), *created]
    steps: list[Step] = []
    if pod.deleting:  # it stays until somebody says that its process is gone
        if broker.pod_uid is not None:
            steps.append(KillBroker(broker.id, f"Pod {pod.name} was deleted"))
        return [*steps, DeletePod(pod.name, pod.uid, "its process is gone")]
    if broker.pod_uid is None and pod.port != broker.port:
        return [DeletePod(pod.name, pod.uid, f"its broker listens on port {broker.port} now")]
    if broker.pod_uid is None:
        steps.append(AdoptPod(broker.id, pod.uid, "the Pod is there already"))
    elif broker.pod_uid != pod.uid:
        steps.append(KillBroker(broker.id, f"Pod {pod.name} was replaced by another of its name"))
        steps.append(AdoptPod(broker.id, pod.uid, "the Pod is there already"))
    status = PodStatus(broker.ready, broker.restarts, broker.started_at)
    if status != pod.status:
        steps.append(WritePodStatus(pod.name, status, "the process changed"))
    return steps


def pod_name(broker: int) -> str:
    return f"{_PREFIX}{broker}"


def parse_pod(obj: Object) -> PodView:
    """What the plan reads of a Pod."""
    metadata = Metadata.parse(obj)
    ordinal = metadata.name.removeprefix(_PREFIX)
    return PodView(
        name=metadata.name,
        uid=metadata.uid,
        broker=int(ordinal) if ordinal.isdecimal() else None,
        port=_parse_port(obj),
        deleting=metadata.deletion_timestamp is not None,
        status=_parse_pod_status(obj.get("status") or {}),
    )


def _parse_port(pod: Object) -> int | None:
    ports = pod["spec"]["containers"][0].get("ports") or ()
    return next((port["containerPort"] for port in ports if port.get("name") == BOOTSTRAP_PORT_NAME), None)


def _parse_pod_status(status: Mapping[str, Any]) -> PodStatus | None:
    containers = status.get("containerStatuses") or ()
    if not containers:
        return None
    return PodStatus(containers[0]["ready"], containers[0]["restartCount"], status.get("startTime", ""))


def parse_stateful_set(obj: Object) -> StatefulSetView:
    """What the plan reads of the StatefulSet; `replicas` is 1 where the spec leaves it out, as in Kubernetes."""
    metadata = Metadata.parse(obj)
    status = obj.get("status") or {}
    known = SetStatus(status.get("replicas", 0), status.get("readyReplicas", 0), status.get("observedGeneration", 0))
    replicas = obj["spec"].get("replicas", 1)
    return StatefulSetView(metadata.uid, replicas, metadata.generation, known if status else None)

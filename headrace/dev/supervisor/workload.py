"""The StatefulSet `headrace`, its Pods and its bootstrap Service, kept in step with the broker processes.

Pure: views in, steps out. On a cluster a controller turns a StatefulSet into Pods, and a kubelet turns Pods into
processes. Here both are this plan, level-triggered: it starts from what is there now and may be run again after any
prefix of its own steps.

    no StatefulSet             ──> CreateStatefulSet
    no bootstrap Service       ──> CreateService
    replicas above the brokers ──> AddBroker;  below ──> EndPod, RemoveBroker (highest ordinals first)
    a broker that is stopping  ──> nothing until its process is gone: it hands over what it has, and its Pod stays
    ... and its Pod is taken away (kubectl delete --force) ──> KillBroker
    a Pod being deleted        ──> KillBroker, DeletePod: this time for good, as a kubelet does
    a broker without its Pod   ──> CreatePod, and KillBroker first where it had one
    a Pod without its broker   ──> DeletePod, and likewise for one of an earlier run that names another port
    all of that in step, and a Pod of an earlier template ──> RestartBroker: the highest ordinal, and only while every
                               higher one is ready; once its process is gone a Pod of this template follows
    a new spec that asks for more than there can be ──> WarnOfSet
    a Pod or the StatefulSet with an old status ──> WritePodStatus, WriteSetStatus

The objects are sent to the API so that `kubectl get`, `describe` and `rollout status` see what they see on a cluster.
`controller` calls it, and reads the API afresh each time: a stale cache would make a Pod that was just created look
deleted.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from headrace.core.limits import (
    CATCH_UP_TIMEOUT_MS,
    DECOMMISSION_TIMEOUT_MS,
    DEV_BROKERS_MAX,
    DRAIN_TIMEOUT_MS,
    HANDOVER_TIMEOUT_MS,
    STEP_DOWN_TIMEOUT_MS,
)
from headrace.core.resources.kubernetes_objects import BOOTSTRAP_PORT, BOOTSTRAP_PORT_NAME, bootstrap_service
from headrace.core.resources.metadata import DEFAULT_CLUSTER, Metadata, Object
from headrace.dev.supervisor.pod_status import IMAGE, PodStatus, parse_pod_status

DEV_POD_GRACE_MS = 1_000
"""The time for which a Pod that was deleted stays Terminating; its process is killed at once."""


NAME = "headrace"
NAMESPACE = "default"
REVISION_LABEL = "controller-revision-hash"
_PREFIX = f"{NAME}-"
_REVISION_DIGITS = 10
STOP_GRACE_S = (HANDOVER_TIMEOUT_MS + STEP_DOWN_TIMEOUT_MS + DRAIN_TIMEOUT_MS) // 1000 + 5
"""The grace of a stop, a little more than the longest that a broker takes where all stop: then none stays for another
..."""
LEAVING_GRACE_S = STOP_GRACE_S + max(DECOMMISSION_TIMEOUT_MS, CATCH_UP_TIMEOUT_MS) // 1000
"""... and the grace where it stops alone: it hands its replicas over first, or stays in sync for those that catch up.
Copies take as long as there are bytes."""
LABELS = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/component": "broker"}


@dataclass(frozen=True, slots=True)
class BrokerView:
    """A broker process as the supervisor knows it."""

    id: int
    status: PodStatus
    """The status that its Pod is to have."""
    port: int
    pod_uid: str | None
    """The Pod that stands for it; None while it has none yet."""
    stopping: bool = False
    """True where it was asked to stop, and is not gone yet."""


@dataclass(frozen=True, slots=True)
class PodView:
    name: str
    uid: str
    broker: int | None
    """The broker; None for a Pod of ours whose name carries no ordinal."""
    port: int | None
    """The port in the Pod that its broker listens on; None where there is none."""
    deleting: bool
    revision: str
    """The template that it was made of."""
    status: PodStatus | None


@dataclass(frozen=True, slots=True)
class SetStatus:
    replicas: int
    ready: int
    generation: int
    current: int
    updated: int
    current_revision: str
    """The revision that all Pods were made of when they last agreed; equal to the other once a rolling restart is
    done."""
    update_revision: str


_NEVER = SetStatus(0, 0, 0, 0, 0, "", "")
"""The status before the first one was written."""


@dataclass(frozen=True, slots=True)
class StatefulSetView:
    uid: str
    replicas: int
    generation: int
    revision: str
    """The revision of its template as it is now."""
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
    """The step: SIGTERM, with the time that handing over its replicas takes. It does not come again."""

    broker: int
    reason: str


@dataclass(frozen=True, slots=True)
class KillBroker:
    """The step where its Pod is gone: kill -9, and forget the Pod."""

    broker: int
    reason: str


@dataclass(frozen=True, slots=True)
class RestartBroker:
    """The step: SIGTERM, and forget the Pod, which goes with the process. The next process comes by itself."""

    broker: int
    reason: str


@dataclass(frozen=True, slots=True)
class AdoptPod:
    """The step where a Pod of an earlier run of the supervisor stands for this broker."""

    broker: int
    uid: str
    reason: str


@dataclass(frozen=True, slots=True)
class CreatePod:
    broker: int
    port: int
    owner_uid: str
    revision: str
    reason: str


@dataclass(frozen=True, slots=True)
class DeletePod:
    name: str
    uid: str
    reason: str


@dataclass(frozen=True, slots=True)
class EndPod:
    """The step: the Pod is Terminating from now on, and stays until its process is gone."""

    name: str
    uid: str
    reason: str


@dataclass(frozen=True, slots=True)
class Pause:
    """The step: nothing is done for a moment."""

    duration_ms: int
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


@dataclass(frozen=True, slots=True)
class WarnOfSet:
    """The step: an Event on the StatefulSet."""

    uid: str
    reason: str
    message: str


Step: TypeAlias = (
    CreateStatefulSet
    | CreateService
    | AddBroker
    | RemoveBroker
    | KillBroker
    | RestartBroker
    | AdoptPod
    | CreatePod
    | DeletePod
    | EndPod
    | Pause
    | WritePodStatus
    | WriteSetStatus
    | WarnOfSet
)


def plan(
    stateful_set: StatefulSetView | None,
    pods: tuple[PodView, ...],
    brokers: tuple[BrokerView, ...],
    *,
    has_service: bool = True,
) -> list[Step]:
    """Return the steps from what is there to what the StatefulSet asks for."""
    if stateful_set is None:
        return [CreateStatefulSet(len(brokers), "there is no StatefulSet")]
    steps: list[Step] = [] if has_service else [CreateService("there is no bootstrap Service")]
    steps += _scale(stateful_set, pods, brokers)
    by_broker = {pod.broker: pod for pod in pods}
    kept = [broker for broker in brokers if broker.id < _wanted(stateful_set)]
    for broker in (broker for broker in kept if not broker.stopping):
        steps += _pod_of(broker, by_broker.get(broker.id), stateful_set)
    steps += [
        KillBroker(broker.id, f"Pod {pod_name(broker.id)} was deleted")
        for broker in brokers
        if broker.stopping and broker.pod_uid is not None and broker.id not in by_broker
    ]
    ids = {broker.id for broker in brokers}
    steps += [DeletePod(p.name, p.uid, "it has no broker") for p in pods if p.broker not in ids]
    if not steps:
        steps += _roll(stateful_set, by_broker, kept)
    status = _set_status(stateful_set, by_broker, kept)
    if stateful_set.replicas > DEV_BROKERS_MAX and (stateful_set.status or _NEVER).generation < status.generation:
        steps.append(_too_many(stateful_set))
    if status != stateful_set.status:
        steps.append(WriteSetStatus(status, "its numbers changed"))
    return steps


def _wanted(stateful_set: StatefulSetView) -> int:
    return min(stateful_set.replicas, DEV_BROKERS_MAX)


def _too_many(stateful_set: StatefulSetView) -> Step:
    message = (
        f"spec.replicas is {stateful_set.replicas}, and headrace dev runs {DEV_BROKERS_MAX} brokers at most: the others"
        f" will not come; kubectl scale sts {NAME} --replicas {DEV_BROKERS_MAX}"
    )
    return WarnOfSet(stateful_set.uid, "TooManyReplicas", message)


def _roll(stateful_set: StatefulSetView, pods: Mapping[int | None, PodView], brokers: list[BrokerView]) -> list[Step]:
    """Return the next step of a rolling restart, where one is under way; every broker has its Pod."""
    for broker in sorted(brokers, key=lambda broker: broker.id, reverse=True):
        if broker.stopping:
            return []
        if pods[broker.id].revision != stateful_set.revision:
            return [RestartBroker(broker.id, f"the template of StatefulSet {NAME} has changed")]
        if not broker.status.ready:
            return []
    return []


def _set_status(
    stateful_set: StatefulSetView, pods: Mapping[int | None, PodView], brokers: list[BrokerView]
) -> SetStatus:
    """Return the status as Kubernetes counts: the current revision follows once every Pod is of the new one and
    ready."""
    revisions = [pods[b.id].revision for b in brokers if b.id in pods and pods[b.id].uid == b.pod_uid]
    ready, update = sum(broker.status.ready for broker in brokers), stateful_set.revision
    updated = revisions.count(update)
    known = stateful_set.status or _NEVER
    current = update if updated == ready == len(brokers) else known.current_revision or update
    return SetStatus(len(brokers), ready, stateful_set.generation, revisions.count(current), updated, current, update)


def _scale(stateful_set: StatefulSetView, pods: tuple[PodView, ...], brokers: tuple[BrokerView, ...]) -> list[Step]:
    wanted, there = _wanted(stateful_set), {broker.id for broker in brokers}
    reason = f"StatefulSet {NAME} asks for {stateful_set.replicas} replicas"
    if stateful_set.replicas > DEV_BROKERS_MAX:
        reason += f"; headrace dev runs {DEV_BROKERS_MAX} at most"
    added: list[Step] = [AddBroker(broker, reason) for broker in range(wanted) if broker not in there]
    leaving = sorted((b.id for b in brokers if b.id >= wanted and not b.stopping), reverse=True)
    ended: list[Step] = [EndPod(p.name, p.uid, reason) for p in pods if p.broker in leaving and not p.deleting]
    return [*added, *ended, *(RemoveBroker(broker, reason) for broker in leaving)]


def _pod_of(broker: BrokerView, pod: PodView | None, owner: StatefulSetView) -> list[Step]:
    if pod is None:
        reason = "the broker has no Pod"
        created: list[Step] = [CreatePod(broker.id, broker.port, owner.uid, owner.revision, reason)]
        if broker.pod_uid is None:
            return created
        return [KillBroker(broker.id, f"Pod {pod_name(broker.id)} was deleted"), *created]
    steps: list[Step] = []
    if pod.deleting:  # The Pod stays until it is known that its process is gone.
        if broker.pod_uid is not None:
            steps.append(KillBroker(broker.id, f"Pod {pod.name} was deleted"))
        # kubectl asks twice before it waits for the Pod's end, and takes a new Pod for the old one where that goes
        # between the two: it would wait without end.
        grace = Pause(DEV_POD_GRACE_MS, f"whoever deleted {pod.name} is about to wait for its end")
        return [*steps, grace, DeletePod(pod.name, pod.uid, "its process is gone")]
    if broker.pod_uid is None and pod.port != broker.port:
        return [DeletePod(pod.name, pod.uid, f"its broker listens on port {broker.port} now")]
    if broker.pod_uid is None and pod.revision != owner.revision:
        return [DeletePod(pod.name, pod.uid, "its broker runs by a newer template")]
    if broker.pod_uid is None:
        steps.append(AdoptPod(broker.id, pod.uid, "the Pod is there already"))
    elif broker.pod_uid != pod.uid:
        steps.append(KillBroker(broker.id, f"Pod {pod.name} was replaced by another of its name"))
        steps.append(AdoptPod(broker.id, pod.uid, "the Pod is there already"))
    if broker.status != pod.status:
        steps.append(WritePodStatus(pod.name, broker.status, "the process changed"))
    return steps


def pod_name(broker: int) -> str:
    return f"{_PREFIX}{broker}"


def parse_pod(obj: Object) -> PodView:
    """Return the parts of a Pod that the plan uses."""
    metadata = Metadata.parse(obj)
    ordinal = metadata.name.removeprefix(_PREFIX)
    return PodView(
        name=metadata.name,
        uid=metadata.uid,
        broker=int(ordinal) if ordinal.isdecimal() else None,
        port=_parse_port(obj),
        deleting=metadata.deletion_timestamp is not None,
        revision=metadata.labels.get(REVISION_LABEL, ""),
        status=parse_pod_status(obj.get("status") or {}),
    )


def _parse_port(pod: Object) -> int | None:
    ports = pod["spec"]["containers"][0].get("ports") or ()
    return next((port["containerPort"] for port in ports if port.get("name") == BOOTSTRAP_PORT_NAME), None)


def parse_stateful_set(obj: Object) -> StatefulSetView:
    """Return the parts of the StatefulSet that the plan uses; `replicas` is 1 where the spec leaves it out, as in
    Kubernetes."""
    metadata = Metadata.parse(obj)
    status = obj.get("status") or {}
    known = SetStatus(
        replicas=status.get("replicas", 0),
        ready=status.get("readyReplicas", 0),
        generation=status.get("observedGeneration", 0),
        current=status.get("currentReplicas", 0),
        updated=status.get("updatedReplicas", 0),
        current_revision=status.get("currentRevision", ""),
        update_revision=status.get("updateRevision", ""),
    )
    replicas, revision = obj["spec"].get("replicas", 1), revision_of(obj["spec"]["template"])
    return StatefulSetView(metadata.uid, replicas, metadata.generation, revision, known if status else None)


def revision_of(template: Object) -> str:
    """Return a text that is the same for equal templates."""
    return _PREFIX + hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:_REVISION_DIGITS]


SELECTOR = ",".join(f"{key}={value}" for key, value in LABELS.items())


def stateful_set_object(replicas: int) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": LABELS},
        "spec": {
            "replicas": replicas,
            "serviceName": NAME,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": {"containers": [_container(BOOTSTRAP_PORT)]}},
        },
    }


def service_object() -> dict[str, Any]:
    """Return the Service; its port by name is another number in every Pod: all brokers share one machine's ports."""
    port = {"name": BOOTSTRAP_PORT_NAME, "port": BOOTSTRAP_PORT, "targetPort": BOOTSTRAP_PORT_NAME}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": bootstrap_service(DEFAULT_CLUSTER), "namespace": NAMESPACE, "labels": LABELS},
        "spec": {"clusterIP": "None", "selector": LABELS, "ports": [port]},
    }


def stateful_set_status(status: SetStatus) -> dict[str, Any]:
    return {
        "observedGeneration": status.generation,
        "replicas": status.replicas,
        "readyReplicas": status.ready,
        "availableReplicas": status.ready,
        "currentReplicas": status.current,
        "updatedReplicas": status.updated,
        "currentRevision": status.current_revision,
        "updateRevision": status.update_revision,
    }


def pod_object(pod: CreatePod, node: str) -> dict[str, Any]:
    """Return a Pod; `node` is the machine's name: all brokers are processes of this one."""
    name, owner_uid = pod_name(pod.broker), pod.owner_uid
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": NAME, "uid": owner_uid, "controller": True}
    labels = {
        **LABELS,
        "statefulset.kubernetes.io/pod-name": name,
        "apps.kubernetes.io/pod-index": str(pod.broker),
        REVISION_LABEL: pod.revision,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": labels,
            "ownerReferences": [owner],
        },
        "spec": {
            "containers": [_container(pod.port)],
            "nodeName": node,
            "hostname": name,
            "subdomain": NAME,
            "terminationGracePeriodSeconds": LEAVING_GRACE_S,
        },
    }


def _container(port: int) -> dict[str, Any]:
    return {"name": "broker", "image": IMAGE, "ports": [{"name": BOOTSTRAP_PORT_NAME, "containerPort": port}]}

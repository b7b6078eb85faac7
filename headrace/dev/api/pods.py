"""Pods and StatefulSets: their defaults, their columns, and how a Pod ends. Pure.

A Pod that names a node is deleted in two steps, as on a cluster: the first DELETE sets `deletionTimestamp`, and the
program that runs the Pod removes it with `gracePeriodSeconds=0` once its process has gone.
"""

from datetime import datetime
from typing import Any

from headrace.dev.api.kinds import TableColumn
from headrace.dev.api.objects import GroupResource, Object
from headrace.dev.api.status import (
    Cause,
    StatusError,
    UndecodableError,
    bad_request,
    forbidden_value,
    invalid,
    invalid_value,
    required,
)
from headrace.dev.api.tables import age_column, find_by_path, name_column
from headrace.dev.api.typed_members import check_type

_DEFAULT_GRACE_S = 30
_FIXED = ("podManagementPolicy", "selector", "serviceName", "volumeClaimTemplates")
"""The fields of a StatefulSet that never change."""
ATTACHING = frozenset({"exec", "attach", "portforward"})
"""Subresources that lead into a container, where there are containers."""


def complete_pod(obj: Object, old: Object | None, now: datetime) -> None:
    spec = obj.setdefault("spec", {})
    if not spec.get("containers"):
        raise invalid(GroupResource("", "Pod"), obj["metadata"]["name"], [required("spec.containers")])
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", _DEFAULT_GRACE_S)
    obj.setdefault("status", {}).setdefault("phase", "Pending")


def complete_stateful_set(obj: Object, old: Object | None, now: datetime) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    spec.setdefault("podManagementPolicy", "OrderedReady")
    if causes := [*_stateful_set_errors(spec), *_stateful_set_update_errors(spec, old)]:
        raise invalid(GroupResource("apps", "StatefulSet"), obj["metadata"]["name"], causes)
    spec.setdefault("updateStrategy", {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}})
    spec.setdefault("revisionHistoryLimit", 10)
    status = obj.setdefault("status", {})
    status.setdefault("replicas", 0)
    status.setdefault("availableReplicas", 0)


def grace_period_s(pod: Object, asked_s: int | None) -> int:
    """Return how long the Pod may take to stop; 0 where nothing runs it, or no longer."""
    if "nodeName" not in pod["spec"] or pod["status"].get("phase") in ("Failed", "Succeeded"):
        return 0
    grace = pod["spec"]["terminationGracePeriodSeconds"] if asked_s is None else asked_s
    return max(int(grace), 0)


def refuse_to_attach(pod: Object, subresource: str) -> StatusError:
    """Return the error 400 for a Pod that runs nowhere, in a kube-apiserver's words, or for one that is a process of
    this machine."""
    name = pod["metadata"]["name"]
    if "nodeName" not in pod["spec"]:
        return bad_request(f"pod {name} does not have a host assigned")
    return bad_request(
        f"{subresource} is not supported by the API of headrace dev: pod {name} is a process of this machine, see "
        "`headrace dev status`"
    )


def scale_of(stateful_set: Object) -> Object:
    """Return the `autoscaling/v1` Scale view of a StatefulSet."""
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    labels = stateful_set["spec"].get("selector", {}).get("matchLabels", {})
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: stateful_set["metadata"][name] for name in kept},
        "spec": {"replicas": stateful_set["spec"]["replicas"]},
        "status": {
            "replicas": stateful_set.get("status", {}).get("replicas", 0),
            "selector": ",".join(f"{name}={value}" for name, value in sorted(labels.items())),
        },
    }


def read_scale(body: Any) -> Object:
    """Read a Scale. Raises StatusError 400 where it is none."""
    try:
        check_type(body, "v1.Scale", "Scale")
        scale: Object = body or {}
        check_type(scale.get("metadata"), "v1.ObjectMeta", "Scale.metadata")
        check_type(scale.get("spec"), "v1.ScaleSpec", "Scale.spec")
    except UndecodableError as error:
        raise bad_request(f'Scale in version "v1" cannot be handled as a Scale: {error}') from error
    return scale


def with_scale(stateful_set: Object, scale: Object) -> Object:
    """Return the StatefulSet with the replicas that `scale` asks for. Raises StatusError 422."""
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 0:
        cause = invalid_value("spec.replicas", replicas, "must be greater than or equal to 0")
        raise invalid(GroupResource("autoscaling", "Scale"), stateful_set["metadata"]["name"], [cause])
    return stateful_set | {"spec": stateful_set["spec"] | {"replicas": replicas}}


def _stateful_set_errors(spec: Object) -> list[Cause]:
    causes = []
    replicas = spec["replicas"]
    if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 0:
        causes.append(invalid_value("spec.replicas", replicas, "must be greater than or equal to 0"))
    if not spec.get("selector"):
        causes.append(required("spec.selector"))
    wanted = find_by_path(spec, ".selector.matchLabels") or {}
    labels = find_by_path(spec, ".template.metadata.labels")
    if not wanted or not wanted.items() <= (labels or {}).items():
        rule = "`selector` does not match template `labels`"
        causes.append(invalid_value("spec.template.metadata.labels", labels, rule))
    if not find_by_path(spec, ".template.spec.containers"):
        causes.append(required("spec.template.spec.containers"))
    return causes


def _stateful_set_update_errors(spec: Object, old: Object | None) -> list[Cause]:
    if old is None or all(spec.get(name) == old["spec"].get(name) for name in _FIXED):
        return []
    rule = (
        "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "
        "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
    )
    return [forbidden_value("spec", rule)]


def _container_statuses(pod: Object) -> list[Object]:
    statuses: list[Object] = pod.get("status", {}).get("containerStatuses") or []
    return statuses


def _ready(pod: Object, now: datetime) -> str:
    ready = sum(bool(status.get("ready")) for status in _container_statuses(pod))
    return f"{ready}/{len(pod['spec'].get('containers', []))}"


def _phase(pod: Object, now: datetime) -> str:
    if "deletionTimestamp" in pod["metadata"]:
        return "Terminating"
    for status in _container_statuses(pod):
        state = status.get("state") or {}
        reason = (state.get("waiting") or state.get("terminated") or {}).get("reason")
        if reason:
            return str(reason)
    status = pod.get("status", {})
    return str(status.get("reason") or status.get("phase", ""))


def _restarts(pod: Object, now: datetime) -> str:
    return str(sum(status.get("restartCount", 0) for status in _container_statuses(pod)))


def _or_none(path: str) -> Any:
    return lambda obj, now: find_by_path(obj, path) or "<none>"


def _ready_replicas(stateful_set: Object, now: datetime) -> str:
    return f"{stateful_set.get('status', {}).get('readyReplicas', 0)}/{stateful_set['spec']['replicas']}"


def _containers(member: str) -> Any:
    def cell(stateful_set: Object, now: datetime) -> str:
        containers = find_by_path(stateful_set, ".spec.template.spec.containers") or []
        return ",".join(container.get(member, "") for container in containers)

    return cell


POD_COLUMNS = (
    name_column(),
    TableColumn("Ready", "string", "Containers that are ready, of all.", _ready),
    TableColumn("Status", "string", "What the Pod does.", _phase),
    TableColumn("Restarts", "string", "How often its containers were started again.", _restarts),
    age_column(),
    TableColumn("IP", "string", "The Pod's address.", _or_none(".status.podIP"), 1),
    TableColumn("Node", "string", "Where it runs.", _or_none(".spec.nodeName"), 1),
    TableColumn("Nominated Node", "string", "Where it may run.", _or_none(".status.nominatedNodeName"), 1),
    TableColumn("Readiness Gates", "string", "Conditions of readiness.", _or_none(".spec.readinessGates"), 1),
)
STATEFUL_SET_COLUMNS = (
    name_column(),
    TableColumn("Ready", "string", "Pods that are ready, of those wanted.", _ready_replicas),
    age_column(),
    TableColumn("Containers", "string", "Names of the template's containers.", _containers("name"), 1),
    TableColumn("Images", "string", "Images of the template's containers.", _containers("image"), 1),
)

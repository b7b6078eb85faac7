"""The kinds that Kubernetes itself defines, as far as Headrace, kopf and kubectl use them.

Objects are stored as they are written, with the defaults that clients read back; nothing runs here. The supervisor
gives the StatefulSet and its Pods their meaning, through the API.

Events have two forms: core/v1, in which they are stored, and events.k8s.io/v1, a view of the same objects. The two
forms hold the same under other names; `_EVENT_NAMES` is the whole difference.
"""

from datetime import datetime
from typing import Any

from headrace.dev.api.definitions import complete_definition, read_definition
from headrace.dev.api.kinds import ResourceKind, TableColumn
from headrace.dev.api.objects import GroupResource, Object
from headrace.dev.api.pods import POD_COLUMNS, STATEFUL_SET_COLUMNS, complete_pod, complete_stateful_set
from headrace.dev.api.secrets import SECRET
from headrace.dev.api.services import SERVICE
from headrace.dev.api.status import invalid, invalid_value
from headrace.dev.api.tables import age_at, age_column, find_by_path, name_column, path_column
from headrace.dev.api.typed_members import check_micro_times, check_times

_EVENT_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
"""The name of each member in core/v1, and in events.k8s.io/v1."""

EVENT_FIELDS = frozenset(
    {"reason", "type", "source", "reportingComponent"}
    | {
        f"involvedObject.{member}"
        for member in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
    }
)
NAMESPACES = GroupResource("", "namespaces")
PODS = GroupResource("", "pods")
SERVICES = GroupResource("", "services")
EVENTS = GroupResource("", "events")
DEFINITIONS = GroupResource("apiextensions.k8s.io", "customresourcedefinitions")
SYSTEM_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_POD = ResourceKind(
    group="",
    version="v1",
    kind="Pod",
    plural="pods",
    singular="pod",
    columns=POD_COLUMNS,
    short_names=("po",),
    categories=("all",),
    subresources=frozenset({"status"}),
    description="Pod is a collection of containers that can run on a host.",
    unconditional_update=True,
    fields=frozenset({"spec.nodeName", "status.phase"}),
    complete=complete_pod,
)
_STATEFUL_SET = ResourceKind(
    group="apps",
    version="v1",
    kind="StatefulSet",
    plural="statefulsets",
    singular="statefulset",
    columns=STATEFUL_SET_COLUMNS,
    short_names=("sts",),
    categories=("all",),
    subresources=frozenset({"status", "scale"}),
    description="StatefulSet represents a set of pods with consistent identities.",
    unconditional_update=True,
    complete=complete_stateful_set,
)
_DEFINITION = ResourceKind(
    group="apiextensions.k8s.io",
    version="v1",
    kind="CustomResourceDefinition",
    plural="customresourcedefinitions",
    singular="customresourcedefinition",
    columns=(
        name_column(),
        path_column("Created At", "string", ".metadata.creationTimestamp"),
    ),
    namespaced=False,
    short_names=("crd", "crds"),
    categories=("api-extensions",),
    subresources=frozenset({"status"}),
    description="CustomResourceDefinition represents a resource that should be exposed on the API server.",
    read=read_definition,
    complete=complete_definition,
)


def to_core_event(view: Object) -> Object:
    return _renamed(view, {new: old for old, new in _EVENT_NAMES.items()}) | {"apiVersion": "v1"}


def from_core_event(event: Object) -> Object:
    return _renamed(event, _EVENT_NAMES) | {"apiVersion": "events.k8s.io/v1"}


def complete_event(obj: Object, old: Object | None, now: datetime) -> None:
    """Complete the members that clients expect to be there. Raises StatusError where the event is about another
    namespace."""
    check_micro_times("Event", obj, ("eventTime",))
    check_times("Event", obj, ("firstTimestamp", "lastTimestamp"))
    about = obj.setdefault("involvedObject", {})
    namespace = obj["metadata"].get("namespace", "")
    # Events of cluster-wide objects carry no namespace and live in `default`.
    if about.get("namespace", "") != namespace and not (namespace == "default" and not about.get("namespace")):
        cause = invalid_value("involvedObject.namespace", about.get("namespace", ""), "does not match event.namespace")
        raise invalid(GroupResource("", "Event"), obj["metadata"]["name"], [cause])
    obj.setdefault("source", {})
    for member in ("firstTimestamp", "lastTimestamp", "eventTime"):
        obj.setdefault(member, None)
    for member in ("reportingComponent", "reportingInstance"):
        obj.setdefault(member, "")


def _renamed(obj: Object, names: dict[str, str]) -> Object:
    return {names.get(name, name): value for name, value in obj.items()}


def _in_core_form(obj: Object) -> Object:
    return obj if "involvedObject" in obj else to_core_event(obj)


def _text(path: str) -> Any:
    return lambda obj, now: find_by_path(_in_core_form(obj), path) or ""


def _about(obj: Object, now: datetime) -> str:
    about = _in_core_form(obj)["involvedObject"]
    return f"{about.get('kind', '').lower()}/{about.get('name', '')}"


def _source(obj: Object, now: datetime) -> str:
    event = _in_core_form(obj)
    source = event.get("source") or {}
    component = source.get("component") or event.get("reportingComponent") or ""
    return f"{component}, {source['host']}" if source.get("host") else str(component)


def _seen(member: str) -> Any:
    def cell(obj: Object, now: datetime) -> str:
        event = _in_core_form(obj)
        return age_at(event, f".{member}" if event.get(member) else ".eventTime", now)

    return cell


def _count(obj: Object, now: datetime) -> int:
    event = _in_core_form(obj)
    series = event.get("series") or {}
    return int(series.get("count") or event.get("count") or 1)


EVENT_COLUMNS = (
    TableColumn("Last Seen", "string", "When the event was last seen.", _seen("lastTimestamp")),
    TableColumn("Type", "string", "Normal or Warning.", _text(".type")),
    TableColumn("Reason", "string", "Why the event was recorded, in one word.", _text(".reason")),
    TableColumn("Object", "string", "The object that the event is about.", _about),
    TableColumn("Subobject", "string", "The part of the object.", _text(".involvedObject.fieldPath"), 1),
    TableColumn("Source", "string", "Who recorded the event.", _source, 1),
    TableColumn("Message", "string", "What happened.", lambda obj, now: _text(".message")(obj, now).strip()),
    TableColumn("First Seen", "string", "When the event was first seen.", _seen("firstTimestamp"), 1),
    TableColumn("Count", "string", "How often the event was seen.", _count, 1),
    TableColumn("Name", "string", "The event's own name.", name_column().cell, 1, "name"),
)


def _complete_namespace(obj: Object, old: Object | None, now: datetime) -> None:
    obj.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])
    obj.setdefault("status", {}).setdefault("phase", "Active")
    obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = obj["metadata"]["name"]


def _complete_lease(obj: Object, old: Object | None, now: datetime) -> None:
    spec: dict[str, Any] = obj.setdefault("spec", {})
    check_micro_times("Lease", spec, ("acquireTime", "renewTime"))
    duration = spec.get("leaseDurationSeconds")
    if isinstance(duration, int) and duration <= 0:
        cause = invalid_value("spec.leaseDurationSeconds", duration, "must be greater than 0")
        raise invalid(GroupResource("coordination.k8s.io", "Lease"), obj["metadata"]["name"], [cause])


_LEASE = ResourceKind(
    group="coordination.k8s.io",
    version="v1",
    kind="Lease",
    plural="leases",
    singular="lease",
    columns=(name_column(), path_column("Holder", "string", ".spec.holderIdentity"), age_column()),
    description="Lease defines a lease concept.",
    counts_generations=False,
    create_on_update=True,
    complete=_complete_lease,
)
_NAMESPACE = ResourceKind(
    group="",
    version="v1",
    kind="Namespace",
    plural="namespaces",
    singular="namespace",
    columns=(name_column(), path_column("Status", "string", ".status.phase"), age_column()),
    namespaced=False,
    short_names=("ns",),
    subresources=frozenset({"status"}),
    description="Namespace provides a scope for Names. Use of multiple namespaces is optional.",
    counts_generations=False,
    unconditional_update=True,
    name_is_label=True,
    complete=_complete_namespace,
)
_EVENT = ResourceKind(
    group="",
    version="v1",
    kind="Event",
    plural="events",
    singular="event",
    columns=EVENT_COLUMNS,
    short_names=("ev",),
    description="Event is a report of an event somewhere in the cluster.",
    counts_generations=False,
    unconditional_update=True,
    create_on_update=True,
    fields=EVENT_FIELDS,
    complete=complete_event,
)
_EVENT_VIEW = ResourceKind(
    group="events.k8s.io",
    version="v1",
    kind="Event",
    plural="events",
    singular="event",
    columns=EVENT_COLUMNS,
    short_names=("ev",),
    description="Event is a report of an event somewhere in the cluster.",
    counts_generations=False,
    unconditional_update=True,
    create_on_update=True,
    fields=EVENT_FIELDS,
    complete=complete_event,
    stored_as=EVENTS,
    to_stored=to_core_event,
    from_stored=from_core_event,
)

BUILTIN_KINDS = (_EVENT, _NAMESPACE, _POD, SECRET, SERVICE, _DEFINITION, _STATEFUL_SET, _LEASE, _EVENT_VIEW)

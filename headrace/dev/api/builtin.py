"""The kinds that Kubernetes itself defines, as far as Headrace, kopf and kubectl use them.

Stored as they are written, with the defaults that clients read back; nothing runs here. The supervisor is what gives
the StatefulSet and its Pods their meaning, through the API.
"""

from datetime import datetime
from typing import Any

from headrace.dev.api.definitions import complete_definition, read_definition
from headrace.dev.api.event_views import (
    EVENT_COLUMNS,
    EVENT_FIELDS,
    complete_event,
    from_core_event,
    to_core_event,
)
from headrace.dev.api.kinds import Kind
from headrace.dev.api.moments import check_micro_times
from headrace.dev.api.objects import GroupResource, Object
from headrace.dev.api.pods import POD_COLUMNS, STATEFUL_SET_COLUMNS, complete_pod, complete_stateful_set
from headrace.dev.api.secrets import SECRET
from headrace.dev.api.services import SERVICE
from headrace.dev.api.status import invalid, invalid_value
from headrace.dev.api.tables import age_column, name_column, path_column

NAMESPACES = GroupResource("", "namespaces")
PODS = GroupResource("", "pods")
SERVICES = GroupResource("", "services")
EVENTS = GroupResource("", "events")
DEFINITIONS = GroupResource("apiextensions.k8s.io", "customresourcedefinitions")
SYSTEM_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


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


_LEASE = Kind(
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
_NAMESPACE = Kind(
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
_POD = Kind(
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
_STATEFUL_SET = Kind(
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
_DEFINITION = Kind(
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
_EVENT = Kind(
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
_EVENT_VIEW = Kind(
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

"""The controllers that a bare API server leaves to others: garbage, and the end of namespaces and CRDs.

    an object whose owners are all gone                          is deleted
    `propagationPolicy: Foreground`                              dependents first, then the owner
    `propagationPolicy: Orphan`                                  dependents lose the owner, then the owner goes
    a namespace or definition that is being deleted              its objects first, then itself
    an Event older than its time to live                         is deleted

`sweep` reads the whole state (a development API holds hundreds of objects, not millions), so it needs no memory of its
own and is right after any restart. The shell calls it after each change.

A namespace that is being deleted says in five conditions why it is still there. Their types, reasons and messages are
those of `pkg/controller/namespace/deletion` in Kubernetes: three of what may fail there and cannot here, one that
counts what is left, one that counts whose finalizers it waits for.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta

from headrace.dev.api.builtin import DEFINITIONS, EVENTS, NAMESPACES
from headrace.dev.api.definitions import CLEANUP_FINALIZER, resource_of
from headrace.dev.api.objects import GroupResource, Key, Object, copy_of, rfc3339
from headrace.dev.api.operations import Operations, RequestTarget
from headrace.dev.api.strategy import FOREGROUND_FINALIZER, ORPHAN_FINALIZER, DeleteOptions

DEV_EVENT_TTL_S = 3_600
"""The time to live of Events, which expire as on a cluster."""


_NEVER_FAILS = (
    ("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
    ("NamespaceDeletionGroupVersionParsingFailure", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
    (
        "NamespaceDeletionContentFailure",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
)
_NO_FINALIZERS = ("ContentHasNoFinalizers", "All content-preserving finalizers finished")


def with_deletion_conditions(namespace: Object, inside: Mapping[Key, Object], now: datetime) -> Object | None:
    """Return a copy whose conditions describe what is still `inside`, one object at least; None where they do so
    already."""
    conditions = [_condition(kind, "False", reason, message) for kind, reason, message in _NEVER_FAILS]
    conditions += [_remaining(inside), _held(inside.values())]
    before = {each["type"]: each for each in namespace["status"].get("conditions", ())}
    for condition in conditions:
        known = before.get(condition["type"], {})
        moved = known.get("status") != condition["status"]
        condition["lastTransitionTime"] = rfc3339(now) if moved else known["lastTransitionTime"]
    if namespace["status"].get("conditions") == conditions:
        return None
    marked = copy_of(namespace)
    marked["status"]["conditions"] = conditions
    return marked


def _remaining(inside: Mapping[Key, Object]) -> Object:
    counts = Counter(key.resource for key in inside)
    left = ", ".join(
        sorted(f"{_dotted(resource)} has {count} resource instances" for resource, count in counts.items())
    )
    message = f"Some resources are remaining: {left}"
    return _condition("NamespaceContentRemaining", "True", "SomeResourcesRemain", message)


def _held(objects: Iterable[Object]) -> Object:
    counts = Counter(name for obj in objects for name in obj["metadata"].get("finalizers", ()))
    if not counts:
        return _condition("NamespaceFinalizersRemaining", "False", *_NO_FINALIZERS)
    held = ", ".join(sorted(f"{name} in {count} resource instances" for name, count in counts.items()))
    message = f"Some content in the namespace has finalizers remaining: {held}"
    return _condition("NamespaceFinalizersRemaining", "True", "SomeFinalizersRemain", message)


def _dotted(resource: GroupResource) -> str:
    """Return the name with the dot where the group is empty, too, as Kubernetes has it."""
    return f"{resource.plural}.{resource.group}"


def _condition(kind: str, status: str, reason: str, message: str) -> Object:
    return {"type": kind, "status": status, "reason": reason, "message": message}


class Collector:
    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self._store = operations.store

    def sweep(self) -> None:
        """Do all that can be done now. The rest is done next time: each change wakes the caller."""
        for key, obj in self._objects():
            if self._store.get(key) is not obj:
                continue
            if "deletionTimestamp" in obj["metadata"]:
                self._finish(key, obj)
            elif self._is_garbage(key, obj):
                self._delete(key)

    def _objects(self) -> list[tuple[Key, Object]]:
        found = ((key, self._store.get(key)) for key in list(self._store.all_keys()))
        return [(key, obj) for key, obj in found if obj is not None]

    def _finish(self, key: Key, obj: Object) -> None:
        finalizers = obj["metadata"].get("finalizers", [])
        if key.resource == NAMESPACES:
            self._finish_namespace(key, obj)
        elif key.resource == DEFINITIONS and CLEANUP_FINALIZER in finalizers:
            self._delete_first(key, obj, CLEANUP_FINALIZER, list(self._instances(obj)))
        elif FOREGROUND_FINALIZER in finalizers:
            self._delete_first(key, obj, FOREGROUND_FINALIZER, list(self._dependents(obj)))
        elif ORPHAN_FINALIZER in finalizers:
            self._orphan_dependents(obj)
            self._drop_finalizer(key, obj, ORPHAN_FINALIZER)

    def _finish_namespace(self, key: Key, namespace: Object) -> None:
        inside = [k for k in self._store.all_keys() if k.namespace == key.name]
        for each in inside:
            self._delete(each)
        left = {each: obj for each in inside if (obj := self._store.get(each)) is not None}
        if not left:
            emptied = copy_of(namespace)
            emptied["spec"]["finalizers"] = []
            self._operations.settle(key, emptied)
        elif (told := with_deletion_conditions(namespace, left, self._operations.now())) is not None:
            self._operations.settle(key, told)

    def _delete_first(self, key: Key, obj: Object, finalizer: str, before: list[Key]) -> None:
        for each in before:
            self._delete(each)
        if not any(self._store.get(each) for each in before):
            self._drop_finalizer(key, obj, finalizer)

    def _drop_finalizer(self, key: Key, obj: Object, finalizer: str) -> None:
        freed = copy_of(obj)
        left = [name for name in freed["metadata"]["finalizers"] if name != finalizer]
        freed["metadata"].pop("finalizers")
        if left:
            freed["metadata"]["finalizers"] = left
        self._operations.settle(key, freed)

    def _orphan_dependents(self, owner: Object) -> None:
        for key in list(self._dependents(owner)):
            orphan = copy_of(self._store.get(key) or {})
            kept = [o for o in orphan["metadata"]["ownerReferences"] if o["uid"] != owner["metadata"]["uid"]]
            orphan["metadata"].pop("ownerReferences")
            if kept:
                orphan["metadata"]["ownerReferences"] = kept
            self._operations.settle(key, orphan)

    def _delete(self, key: Key) -> None:
        """Delete as a client would; an object that is being deleted already waits for its finalizers."""
        kind = self._operations.catalog.of_resource(key.resource)
        obj = self._store.get(key)
        if kind is not None and obj is not None and "deletionTimestamp" not in obj["metadata"]:
            self._operations.delete(RequestTarget(kind, key.namespace, key.name), DeleteOptions())

    def _is_garbage(self, key: Key, obj: Object) -> bool:
        if key.resource == EVENTS:
            return self._is_stale(obj)
        owners = obj["metadata"].get("ownerReferences")
        return bool(owners) and all(self._is_absent(owner, key.namespace) for owner in owners)

    def _is_absent(self, owner: Object, namespace: str) -> bool:
        # Nothing can be known of kinds that are not served here: such an owner is taken to exist.
        if self._operations.catalog.of_kind(owner["apiVersion"], owner["kind"]) is None:
            return False
        found = self._store.key_of_uid(owner["uid"])
        return found is None or found.namespace not in ("", namespace)

    def _is_stale(self, event: Object) -> bool:
        stamps = (event["metadata"]["creationTimestamp"], event.get("lastTimestamp"))
        newest = max(datetime.fromisoformat(stamp) for stamp in stamps if stamp)
        return self._operations.now() - newest > timedelta(seconds=DEV_EVENT_TTL_S)

    def _dependents(self, owner: Object) -> Iterator[Key]:
        for key, obj in self._objects():
            if any(o["uid"] == owner["metadata"]["uid"] for o in obj["metadata"].get("ownerReferences", ())):
                yield key

    def _instances(self, definition: Object) -> Iterator[Key]:
        resource = resource_of(definition)
        return (key for key in self._store.all_keys() if key.resource == resource)

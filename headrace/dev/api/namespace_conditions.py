"""Why a namespace that is being deleted is still there, as the namespace controller of Kubernetes says it. Pure.

Five conditions, whose types, reasons and messages are those of `pkg/controller/namespace/deletion` in Kubernetes: three
of what may fail there and cannot here, one that counts what is left, one that counts whose finalizers it waits for.
Called by `collector` whenever something in such a namespace has changed.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime

from headrace.dev.api.objects import GroupResource, Key, Object, copy_of, rfc3339

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


def with_conditions(namespace: Object, inside: Mapping[Key, Object], now: datetime) -> Object | None:
    """A copy that says so of what is still `inside`, one object at least; None where it says so already."""
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
    """With the dot where the group is empty, too, as Kubernetes has it."""
    return f"{resource.plural}.{resource.group}"


def _condition(kind: str, status: str, reason: str, message: str) -> Object:
    return {"type": kind, "status": status, "reason": reason, "message": message}

"""How objects end: preconditions, finalizers, grace, and what a DELETE leaves behind. Pure.

DELETE ──> nothing holds it ──> gone
      └──> deletionTimestamp set ──> finalizers removed, Pod confirmed, namespace emptied ──> gone
"""

from datetime import datetime, timedelta
from enum import StrEnum

from headrace.core.slotted import dataclass
from headrace.dev.api.builtin import NAMESPACES, PODS
from headrace.dev.api.kinds import Kind
from headrace.dev.api.objects import Object, copy_of, rfc3339
from headrace.dev.api.pods import grace_period_s
from headrace.dev.api.status import conflict, forbidden

FOREGROUND_FINALIZER = "foregroundDeletion"
ORPHAN_FINALIZER = "orphan"
_UNDELETABLE = frozenset({"default", "kube-system", "kube-public"})


class Propagation(StrEnum):
    """What happens to an object's dependents."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    grace_s: int | None = None
    propagation: Propagation = Propagation.BACKGROUND
    uid: str | None = None
    """Delete only this incarnation of the name."""
    resource_version: str | None = None
    dry_run: bool = False


def check_deletable(kind: Kind, obj: Object, options: DeleteOptions) -> None:
    """Raises StatusError 409 where a precondition fails, 403 for a namespace that must stay."""
    meta = obj["metadata"]
    qualified = kind.qualified
    if options.uid is not None and options.uid != meta["uid"]:
        why = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({meta['uid']}). "
            "The object might have been deleted and then recreated"
        )
        raise conflict(qualified, meta["name"], why)
    if options.resource_version not in (None, meta["resourceVersion"]):
        why = (
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match the ResourceVersion "
            f"in record ({meta['resourceVersion']}). The object might have been modified"
        )
        raise conflict(qualified, meta["name"], why)
    if kind.resource == NAMESPACES and meta["name"] in _UNDELETABLE:
        raise forbidden(NAMESPACES, meta["name"], "this namespace may not be deleted")


def doomed(kind: Kind, obj: Object, options: DeleteOptions, now: datetime) -> Object:
    """A copy of `obj` after a DELETE; `may_go` says whether anything still holds it."""
    marked = copy_of(obj)
    grace_s = grace_period_s(obj, options.grace_s) if kind.resource == PODS else 0
    if "deletionTimestamp" not in obj["metadata"]:
        _add_propagation_finalizer(marked, options.propagation)
        _mark(kind, marked, grace_s, now)
    elif grace_s < obj["metadata"].get("deletionGracePeriodSeconds", 0):
        marked["metadata"] |= _deadline(grace_s, now)
    return marked


def may_go(obj: Object) -> bool:
    """Somebody wants this object deleted, and nothing holds it any more."""
    meta = obj["metadata"]
    held = meta.get("finalizers") or meta.get("deletionGracePeriodSeconds", 0) > 0
    return "deletionTimestamp" in meta and not held and not _namespace_finalizers(obj)


def _mark(kind: Kind, marked: Object, grace_s: int, now: datetime) -> None:
    meta = marked["metadata"]
    if kind.resource == NAMESPACES:
        meta["deletionTimestamp"] = rfc3339(now)
        marked["status"] = {"phase": "Terminating"}
        return
    meta |= _deadline(grace_s, now)
    if "generation" in meta:
        meta["generation"] += 1


def _deadline(grace_s: int, now: datetime) -> Object:
    return {
        "deletionTimestamp": rfc3339(now + timedelta(seconds=grace_s)),
        "deletionGracePeriodSeconds": grace_s,
    }


def _add_propagation_finalizer(marked: Object, propagation: Propagation) -> None:
    finalizer = {Propagation.FOREGROUND: FOREGROUND_FINALIZER, Propagation.ORPHAN: ORPHAN_FINALIZER}.get(propagation)
    if finalizer is not None:
        held = marked["metadata"].setdefault("finalizers", [])
        if finalizer not in held:
            held.append(finalizer)


def _namespace_finalizers(obj: Object) -> bool:
    is_namespace = obj["kind"] == "Namespace" and obj["apiVersion"] == "v1"
    return is_namespace and bool(obj["spec"].get("finalizers"))

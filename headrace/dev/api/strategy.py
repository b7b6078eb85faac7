"""The strategies of writes: how what a writer sends is read, becomes a stored object, and ends. Pure.

    create          status dropped where it is a subresource; uid, creation time, generation 1
    update          status kept from the old object; server-owned metadata too; generation + 1 if the content changed
    status update   everything but the status kept from the old object
    delete          nothing holds it ──> gone
                    else ──> deletionTimestamp set ──> finalizers removed, Pod confirmed, namespace emptied ──> gone

`read_object` checks that the body is an object of its kind and removes the fields that the kind does not know; the
writer's `fieldValidation` decides whether they are an error, a warning, or nothing. Called by `operations`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from headrace.dev.api.builtin import NAMESPACES, PODS
from headrace.dev.api.documents import Document
from headrace.dev.api.kinds import ResourceKind
from headrace.dev.api.object_meta import keep_server_owned, normalize, validate_meta, validate_meta_update
from headrace.dev.api.objects import GroupResource, Object, copy_of, rfc3339, to_json
from headrace.dev.api.pods import grace_period_s
from headrace.dev.api.schemas import drop_nulls, fill_defaults, prune_root
from headrace.dev.api.status import (
    Cause,
    StatusError,
    UndecodableError,
    bad_request,
    conflict,
    forbidden,
    invalid,
    invalid_value,
)
from headrace.dev.api.validation import validate_object, validate_status

FOREGROUND_FINALIZER = "foregroundDeletion"
ORPHAN_FINALIZER = "orphan"
_UNDELETABLE = frozenset({"default", "kube-system", "kube-public"})


class FieldValidation(StrEnum):
    """The treatment of unknown and duplicate fields."""

    IGNORE = "Ignore"
    WARN = "Warn"
    STRICT = "Strict"


@dataclass(frozen=True, slots=True)
class ApiWriteOptions:
    validation: FieldValidation = FieldValidation.WARN
    dry_run: bool = False
    manager: str = "unknown"
    """The writer's name in managedFields."""
    force: bool = False
    """True where an apply takes fields from other managers that have other values in them."""


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The answer to a write: the object as it is now, in the form of its kind."""

    object: Object
    warnings: tuple[str, ...] = ()
    created: bool = False


def read_object(kind: ResourceKind, document: Document, validation: FieldValidation) -> tuple[Object, tuple[str, ...]]:
    """Return the object in `document`, which it may share, and the warnings to send with the answer.

    Raises UndecodableError where it cannot be an object of `kind` or is refused for its fields, StatusError where it is
    no object, or names another kind.
    """
    obj = document.value
    if not isinstance(obj, dict):
        raise _no_object(kind, document)
    if kind.schema is None:
        # Typed clients leave them out; for Kubernetes' own kinds the URL is enough.
        obj["kind"] = obj.get("kind") or kind.kind
        obj["apiVersion"] = obj.get("apiVersion") or kind.api_version
    _check_kind(kind, obj, document.summary)
    meta = obj.setdefault("metadata", {})
    if not isinstance(meta, dict):
        raise UndecodableError("json: cannot unmarshal metadata into Go value of type v1.ObjectMeta")
    unknown = normalize(meta)
    if kind.schema is None:
        unknown += kind.read(obj)
    else:
        unknown += prune_root(obj, kind.schema)
        drop_nulls(obj, kind.schema)
    said = [f'duplicate field "{path}"' for path in document.duplicates]
    said += [f'unknown field "{path}"' for path in unknown]
    if said and validation is FieldValidation.STRICT:
        raise UndecodableError(f"strict decoding error: {', '.join(said)}")
    return obj, tuple(said) if validation is FieldValidation.WARN else ()


def unreadable(kind: ResourceKind, error: UndecodableError) -> StatusError:
    """Return 400: the body of a create or replace cannot be read."""
    return bad_request(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {error}')


def _no_object(kind: ResourceKind, document: Document) -> StatusError:
    found = {list: "array", str: "string", bool: "bool"}.get(type(document.value), "number")
    wanted = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
    return bad_request(
        f"the object provided is unrecognized (must be of type {kind.kind}): couldn't get version/kind; "
        f"json parse error: json: cannot unmarshal {found} into Go value of type {wanted} ({document.summary})"
    )


def _check_kind(kind: ResourceKind, obj: Object, summary: str) -> None:
    said_version, said_kind = obj.get("apiVersion"), obj.get("kind")
    if not said_kind:
        raise bad_request(
            f"the object provided is unrecognized (must be of type {kind.kind}): "
            f"Object 'Kind' is missing in '{to_json(obj)}' ({summary})"
        )
    if said_version != kind.api_version:
        raise bad_request(
            f"the API version in the data ({said_version}) does not match the expected API version ({kind.api_version})"
        )
    if said_kind != kind.kind:
        name = str((obj.get("metadata") or {}).get("name", ""))
        cause = invalid_value("kind", said_kind, f"must be {kind.kind}")
        raise invalid(GroupResource(kind.group, str(said_kind)), name, [cause])


def prepare_create(kind: ResourceKind, obj: Object, uid: str, now: datetime) -> Object:
    """Make `obj` (the writer's copy, with its name and namespace) ready to store. Raises StatusError 422."""
    meta = obj["metadata"]
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "generation", "managedFields"):
        meta.pop(name, None)
    if "status" in kind.subresources:
        obj.pop("status", None)
    meta |= {"uid": uid, "creationTimestamp": rfc3339(now)}
    if kind.counts_generations:
        meta["generation"] = 1
    _complete(kind, obj, None, now)
    return obj


def prepare_update(kind: ResourceKind, obj: Object, old: Object, now: datetime) -> Object:
    """Return the object to store when a writer replaces `old` by `obj`. Raises StatusError 422."""
    causes = list(validate_meta_update(obj["metadata"], old["metadata"]))
    keep_server_owned(obj["metadata"], old["metadata"])
    if "status" in kind.subresources:
        obj.pop("status", None)
        if "status" in old:
            obj["status"] = copy_of(old["status"])
    _complete(kind, obj, old, now, causes)
    if kind.counts_generations and _content(kind, obj) != _content(kind, old):
        obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
    return obj


def prepare_status_update(kind: ResourceKind, obj: Object, old: Object, now: datetime) -> Object:
    """Return the old object with the status of `obj`. Raises StatusError 422."""
    updated = copy_of({name: value for name, value in old.items() if name != "status"})
    if obj.get("status") is not None:
        updated["status"] = obj["status"]
    if kind.schema is not None:
        fill_defaults(updated, kind.schema)
        if causes := validate_status(updated, kind.schema, old):
            raise invalid(kind.qualified, old["metadata"]["name"], causes)
    kind.complete(updated, old, now)
    return updated


def _complete(
    kind: ResourceKind, obj: Object, old: Object | None, now: datetime, earlier: Sequence[Cause] = ()
) -> None:
    causes = [*earlier, *validate_meta(obj["metadata"], name_is_label=kind.name_is_label)]
    if kind.schema is not None:
        fill_defaults(obj, kind.schema)
        causes = validate_object(obj, kind.schema, old, causes)
    if causes:
        raise invalid(kind.qualified, obj["metadata"].get("name", ""), causes)
    kind.complete(obj, old, now)


def _content(kind: ResourceKind, obj: Object) -> Object:
    outside = {"metadata", "status"} if "status" in kind.subresources else {"metadata"}
    return {name: value for name, value in obj.items() if name not in outside}


class Propagation(StrEnum):
    """The treatment of an object's dependents."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    grace_s: int | None = None
    propagation: Propagation = Propagation.BACKGROUND
    uid: str | None = None
    """The uid of the only incarnation of the name that may be deleted."""
    resource_version: str | None = None
    dry_run: bool = False


def check_deletable(kind: ResourceKind, obj: Object, options: DeleteOptions) -> None:
    """Raise StatusError 409 where a precondition fails, 403 for a namespace that must stay."""
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


def doomed(kind: ResourceKind, obj: Object, options: DeleteOptions, now: datetime) -> Object:
    """Return a copy of `obj` after a DELETE; `may_go` checks whether anything still holds it."""
    marked = copy_of(obj)
    grace_s = grace_period_s(obj, options.grace_s) if kind.resource == PODS else 0
    if "deletionTimestamp" not in obj["metadata"]:
        _add_propagation_finalizer(marked, options.propagation)
        _mark(kind, marked, grace_s, now)
    elif grace_s < obj["metadata"].get("deletionGracePeriodSeconds", 0):
        marked["metadata"] |= _deadline(grace_s, now)
    return marked


def may_go(obj: Object) -> bool:
    """Return whether the object is to be deleted and nothing holds it any more."""
    meta = obj["metadata"]
    held = meta.get("finalizers") or meta.get("deletionGracePeriodSeconds", 0) > 0
    return "deletionTimestamp" in meta and not held and not _namespace_finalizers(obj)


def _mark(kind: ResourceKind, marked: Object, grace_s: int, now: datetime) -> None:
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

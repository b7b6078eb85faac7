"""How a written object becomes a stored one: what the server sets, keeps, and leaves alone. Pure.

create          status dropped where it is a subresource; uid, creation time, generation 1 update          status kept
from the old object; server-owned metadata too; generation + 1 if the content changed status update
everything but the status kept from the old object
"""

from collections.abc import Sequence
from datetime import datetime

from headrace.dev.api.kinds import Kind
from headrace.dev.api.object_meta import keep_server_owned, validate_meta, validate_meta_update
from headrace.dev.api.objects import Object, copy_of, rfc3339
from headrace.dev.api.status import Cause, invalid
from headrace.dev.api.structural import fill_defaults
from headrace.dev.api.validation import validate_object, validate_status


def prepare_create(kind: Kind, obj: Object, uid: str, now: datetime) -> Object:
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


def prepare_update(kind: Kind, obj: Object, old: Object, now: datetime) -> Object:
    """The object to store when a writer replaces `old` by `obj`. Raises StatusError 422."""
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


def prepare_status_update(kind: Kind, obj: Object, old: Object, now: datetime) -> Object:
    """The old object with the status of `obj`. Raises StatusError 422."""
    updated = copy_of({name: value for name, value in old.items() if name != "status"})
    if obj.get("status") is not None:
        updated["status"] = obj["status"]
    if kind.schema is not None:
        fill_defaults(updated, kind.schema)
        if causes := validate_status(updated, kind.schema, old):
            raise invalid(kind.qualified, old["metadata"]["name"], causes)
    kind.complete(updated, old, now)
    return updated


def _complete(kind: Kind, obj: Object, old: Object | None, now: datetime, earlier: Sequence[Cause] = ()) -> None:
    causes = [*earlier, *validate_meta(obj["metadata"], name_is_label=kind.name_is_label)]
    if kind.schema is not None:
        fill_defaults(obj, kind.schema)
        causes = validate_object(obj, kind.schema, old, causes)
    if causes:
        raise invalid(kind.qualified, obj["metadata"].get("name", ""), causes)
    kind.complete(obj, old, now)


def _content(kind: Kind, obj: Object) -> Object:
    outside = {"metadata", "status"} if "status" in kind.subresources else {"metadata"}
    return {name: value for name, value in obj.items() if name not in outside}

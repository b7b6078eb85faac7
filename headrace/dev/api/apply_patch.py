"""Server-side apply: an object in part, merged into the one that is there, by who owns which field. Pure.

    applied, owned by nobody else, or the same         set, and owned
    applied, owned by another and different            a conflict (409); with `force` set, and taken from the other
    no longer applied, owned by nobody else            removed
    no longer applied, owned by others                 left to them

`kubectl` may change what it wrote by client-side apply, which keeps what it wrote in an annotation, without a conflict.
Called by `operations`.
"""

import json
from dataclasses import replace
from typing import Any, Final

from headrace.core.slotted import dataclass
from headrace.dev.api.field_sets import FieldSet, Path, in_order, shown
from headrace.dev.api.field_walks import compare, fields_of, with_structs
from headrace.dev.api.managed_fields import (
    APPLY,
    Author,
    Managed,
    Manager,
    bare,
    before_first_apply,
    read_managed,
    without_fields,
    write_managed,
)
from headrace.dev.api.merges import merge, without
from headrace.dev.api.objects import Object, copy_of
from headrace.dev.api.shapes import Shape
from headrace.dev.api.status import StatusError

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_KUBECTL: Final = "kubectl"
_ESCAPED: Final = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
"""What Go escapes in JSON for the sake of browsers."""


@dataclass(frozen=True, slots=True)
class Applied:
    """The object as it is to be, and its managedFields."""

    object: Object
    managed: list[Object]


def apply(author: Author, live: Object | None, patch: Object, *, force: bool) -> Applied:
    """`patch` applied to `live` (None: there is none yet), neither of which is changed. Raises StatusError 409."""
    managed = _managed_of(author, live)
    before = bare(live) if live is not None else {}
    me, last = author.manager(APPLY), managed.get(author.manager(APPLY))
    applied = author.within_reach(fields_of(patch, author.shape))
    managed = managed | {me: author.entry(applied)}
    merged = merge(before, patch, author.shape)
    if last is not None:
        owned = applied.union(*(entry.fields for entry in managed.values()))
        merged = _pruned(merged, owned, author.within_reach(last.fields), author.shape)
    difference = author.compare(before, merged)
    conflicts = _conflicts(managed, me, difference.written)
    if conflicts and not force:
        _check_conflicts(author, before, conflicts)
    own = managed[me] if merged != before else replace(managed[me], time=last.time if last is not None else "")
    managed = without_fields(managed, set().union(*conflicts.values()) | difference.removed)
    if own.fields:
        managed[me] = own
    return Applied(_with_last_applied(author, copy_of(merged), patch), write_managed(managed))


def _managed_of(author: Author, live: Object | None) -> Managed:
    if live is None:
        return {}
    try:
        found = read_managed(live["metadata"].get("managedFields"))
    except ValueError:
        found = {}
    return found or before_first_apply(author, live)


def _pruned(merged: Object, owned: FieldSet, last: FieldSet, shape: Shape) -> Object:
    """`merged` without what the applier owned, if nobody owns it now, neither the applier."""
    all_there, dropped = with_structs(fields_of(merged, shape), shape), with_structs(last, shape)
    # `metadata` itself is nobody's and always stays, whatever was in it.
    kept = _there(without(merged, dropped, shape), shape) | with_structs(owned, shape) | {("f:metadata",)}
    # Elements go as a whole: what others own in one brings it back, and then only what was the applier's may go.
    kept = _there(without(merged, all_there - kept, shape), shape)
    pruned: Object = without(merged, (all_there - kept) & dropped, shape) or {}
    return pruned


def _there(obj: Object | None, shape: Shape) -> FieldSet:
    return with_structs(fields_of(obj or {}, shape), shape)


def _conflicts(managed: Managed, me: Manager, written: set[Path]) -> dict[Manager, FieldSet]:
    """What others own of the fields that the applier is about to change."""
    found = {manager: entry.fields & written for manager, entry in managed.items() if manager != me}
    return {manager: fields for manager, fields in sorted(found.items()) if fields}


def _check_conflicts(author: Author, live: Object, conflicts: dict[Manager, FieldSet]) -> None:
    """Raises StatusError 409, but for what kubectl's client-side apply wrote and nobody has changed since."""
    own = _applied_by_client(live, author.shape) if author.name == _KUBECTL else frozenset()
    left = {manager: fields - own for manager, fields in conflicts.items() if fields - own}
    if left:
        raise _conflict(left)


def _applied_by_client(live: Object, shape: Shape) -> FieldSet:
    try:
        last = json.loads(live["metadata"]["annotations"][LAST_APPLIED])
    except (KeyError, ValueError):
        return frozenset()
    if not isinstance(last, dict):
        return frozenset()
    difference = compare(last, live, shape)
    return fields_of(last, shape) - difference.written - difference.removed


def _conflict(conflicts: dict[Manager, FieldSet]) -> StatusError:
    listed = [(manager, shown(path)) for manager, fields in conflicts.items() for path in in_order(fields)]
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {manager}", "field": field}
        for manager, field in listed
    ]
    if len(listed) == 1:
        said = f"Apply failed with 1 conflict: conflict with {listed[0][0]}: {listed[0][1]}"
    else:
        said = f"Apply failed with {len(listed)} conflicts: {_grouped(conflicts)}"
    return StatusError(409, "Conflict", said, {"causes": causes})


def _grouped(conflicts: dict[Manager, FieldSet]) -> str:
    lines: list[str] = []
    for manager, fields in conflicts.items():
        lines += [f"conflicts with {manager}:", *(f"- {shown(path)}" for path in in_order(fields))]
    return "\n".join(lines)


def _with_last_applied(author: Author, obj: Object, patch: Object) -> Object:
    """kubectl may go back to client-side apply: its annotation, where there is one, says what was applied."""
    annotations = obj.get("metadata", {}).get("annotations") or {}
    if author.name == _KUBECTL and annotations.get(LAST_APPLIED):
        annotations[LAST_APPLIED] = _last_applied(patch)
    return obj


def _last_applied(patch: Object) -> str:
    said = copy_of(patch)
    _drop_annotation(said.get("metadata") or {})
    text = json.dumps(said, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    return "".join(_ESCAPED.get(character, character) for character in text) + "\n"


def _drop_annotation(meta: Any) -> None:
    annotations = meta.get("annotations")
    if isinstance(annotations, dict):
        annotations.pop(LAST_APPLIED, None)

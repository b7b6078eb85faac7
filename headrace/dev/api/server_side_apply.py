"""Server-side apply: an object in part, merged into the one that is there, by who owns which field. Pure.

    applied, owned by no other, or the same            set, and owned
    applied, owned by another and different            a conflict (409); with `force` set, and taken from the other
    no longer applied, owned by no other               removed
    no longer applied, owned by others                 left to them

Unlike other writes, an apply is refused for fields that the schema does not know, whatever its `fieldValidation`, and
before anything is merged. The messages are those of Kubernetes' merging library, Go's way to print values included.
Objects are merged member by member, lists with keys and sets element by element, anything else is replaced; merging
returns new containers, but shares the parts that it leaves alone.

`kubectl` may change what it wrote by client-side apply, which keeps what it wrote in an annotation, without a conflict.
Called by `operations`.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from headrace.dev.api.documents import Document
from headrace.dev.api.field_sets import (
    FieldSet,
    Path,
    compare,
    fields_of,
    in_order,
    member,
    parts,
    shown,
    step_of,
    with_structs,
)
from headrace.dev.api.kinds import ResourceKind
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
from headrace.dev.api.object_meta import normalize
from headrace.dev.api.objects import Object, copy_of, to_json
from headrace.dev.api.schemas import ANY, Shape, shape_of
from headrace.dev.api.status import StatusError, UndecodableError, bad_request
from headrace.dev.api.strategy import FieldValidation

_UNDECLARED: Final = "field not declared in schema"
_GO_TYPES: Final = {str: "string", bool: "bool", int: "int64", float: "float64", list: "[]interface {}"}
_PYTHON_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int, float),
    "number": (int, float),
}
_SCALE = ("autoscaling/v1", "Scale")
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_KUBECTL: Final = "kubectl"
_ESCAPED: Final = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
"""The characters that Go escapes in JSON for the sake of browsers."""


def merge(live: Any, applied: Any, shape: Shape) -> Any:
    """Return `live` with the values of `applied`. A null in place of parts changes nothing."""
    if applied is None and shape.has_parts(live):
        return live
    if not shape.has_parts(applied) or type(live) is not type(applied):
        return applied
    if isinstance(applied, dict):
        of_names = {name: shape.of(name) or ANY for name in applied}
        return live | {
            name: merge(live[name], value, of_names[name]) if name in live else value for name, value in applied.items()
        }
    return _merge_lists(live, applied, shape)


def without(value: Any, fields: FieldSet, shape: Shape) -> Any:
    """Return `value` less `fields`; None where nothing is left of it."""
    holders = frozenset(path[:depth] for path in fields for depth in range(len(path)))
    return _without(value, fields, holders, shape, ())


def _merge_lists(live: list[Any], applied: list[Any], shape: Shape) -> list[Any]:
    """Merge in the order of `applied`; an element that only `live` has stays before the one that it stood before."""
    old = {step_of(element, shape): element for element in live}
    new = {step_of(element, shape): element for element in applied}
    merged = {step: merge(old[step], part, shape.items or ANY) if step in old else part for step, part in new.items()}
    left, shared = list(new), [step for step in new if step in old]
    result = []
    for step, element in old.items():
        if step not in new:
            result.append(element)
        elif step == shared[0]:
            upto = left.index(step) + 1
            result += [merged[ready] for ready in left[:upto]]
            left, shared = left[upto:], shared[1:] or [""]
    return result + [merged[rest] for rest in left]


def _without(value: Any, fields: FieldSet, holders: FieldSet, shape: Shape, path: Path) -> Any:
    if not shape.has_parts(value):
        return None
    kept = {}
    for step, part, part_shape in parts(value, shape):
        place = (*path, step)
        if place not in fields:
            kept[step] = _without(part, fields, holders, part_shape, place) if place in holders else part
    if isinstance(value, dict):
        return {name: kept[member(name)] for name in value if member(name) in kept} or None
    return list(kept.values()) or None


def identity_of(patch: Object) -> str:
    """Return an applied object's name as messages have it."""
    meta = patch.get("metadata")
    named = meta if isinstance(meta, dict) else {}
    version = patch["apiVersion"] if "/" in patch["apiVersion"] else f"/{patch['apiVersion']}"
    return f"{named.get('namespace', '')}/{named.get('name', '')}; {version}, Kind={patch['kind']}"


def check_applied(patch: Object, shape: Shape, undeclared: list[str]) -> None:
    """Raise StatusError 500; `undeclared` are fields whose absence from the schema is known already."""
    found = {f"{shown(path)}: {rule}" for path, rule in _errors(patch, shape, ())}
    errors = sorted(found | {f".{path}: {_UNDECLARED}" for path in undeclared})
    if errors:
        why = errors[0] if len(errors) == 1 else "\n  ".join(["errors:", *errors])
        # Kubernetes gives this no reason.
        raise StatusError(500, "", f"failed to create typed patch object ({identity_of(patch)}): {why}")


def _errors(value: Any, shape: Shape, path: Path) -> Iterator[tuple[Path, str]]:
    wanted = _PYTHON_TYPES.get(shape.type)
    if value is not None and wanted is not None and not _is_one(value, wanted):
        yield path, _wrong_type(shape.type, value)
    elif shape.has_parts(value):
        errors_of = _errors_of_object if isinstance(value, dict) else _errors_of_list
        yield from errors_of(value, shape, path)
    elif isinstance(value, list) and shape.items is not None:
        for index, element in enumerate(value):
            yield from _errors(element, shape.items, (*path, f"i:{index}"))


def _is_one(value: Any, wanted: tuple[type, ...]) -> bool:
    """Check the type: in Python True is an int, in JSON it is none."""
    return isinstance(value, wanted) and (not isinstance(value, bool) or bool in wanted)


def _errors_of_object(value: Object, shape: Shape, path: Path) -> Iterator[tuple[Path, str]]:
    for step, child, child_shape in parts(value, shape):
        place = (*path, step)
        if shape.of(step[2:]) is None:
            yield place, _UNDECLARED
        else:
            yield from _errors(child, child_shape, place)


def _errors_of_list(value: list[Any], shape: Shape, path: Path) -> Iterator[tuple[Path, str]]:
    seen = set()
    for index, (step, element, element_shape) in enumerate(parts(value, shape)):
        if step == step_of({}, shape) and shape.keys:
            yield path, _no_keys(index, shape.keys)
            continue
        if step in seen:
            yield path, f"duplicate entries for key {shown((step,))}"
        seen.add(step)
        yield from _errors(element, element_shape, (*path, step))


def _no_keys(index: int, keys: tuple[str, ...]) -> str:
    listed = " ".join(to_json(key) for key in keys)
    return (
        f"element {index}: associative list with keys has an element that omits all key fields [{listed}] "
        "(and doesn't have default values for any key fields)"
    )


def _wrong_type(wanted: str, value: Any) -> str:
    match wanted:
        case "object" | "array":
            return f"expected {'map' if wanted == 'object' else 'list'}, got &{{{_printed(value)}}}"
        case "integer" | "number":
            return f"expected numeric (int or float), got {_GO_TYPES.get(type(value), 'map[string]interface {}')}"
        case _:
            return f"expected {wanted}, got &value.valueUnstructured{{Value:{_spelled(value)}}}"


def _printed(value: Any) -> str:
    """Return the value as Go's %v prints it."""
    match value:
        case bool():
            return str(value).lower()
        case list():
            return f"[{' '.join(map(_printed, value))}]"
        case dict():
            return f"map[{' '.join(f'{name}:{_printed(value[name])}' for name in sorted(value))}]"
        case None:
            return "<nil>"
        case _:
            return str(value)


def _spelled(value: Any) -> str:
    """Return the value as Go's %#v prints it, which of objects and lists would print more."""
    return to_json(value) if isinstance(value, str | bool) else _printed(value)


def read_applied(kind: ResourceKind, document: Document) -> Object:
    """Read an applied object. Raises StatusError 400 where the body is of another kind, 500 where it does not fit the
    schema."""
    patch: Object = document.value
    _check_type(patch, kind.api_version, kind.kind)
    if "managedFields" in (patch.get("metadata") or {}):
        raise bad_request("metadata.managedFields must be nil")
    shape = shape_of(kind.kind, kind.shape)
    check_applied(patch, shape, [])
    if kind.schema is None:
        check_applied(patch, shape, _undeclared(kind, patch))
    return patch


def read_merged(kind: ResourceKind, obj: Object) -> Object:
    """Return the result of an apply in the form that is stored. Raises UndecodableError."""
    normalize(obj["metadata"])
    if kind.schema is None:
        kind.read(obj)
    return obj


def read_applied_scale(kind: ResourceKind, document: Document) -> Document:
    """Return an applied Scale as part of the object that it scales. Raises StatusError 400 where it is none."""
    scale: Object = document.value
    _check_type(scale, *_SCALE)
    whole = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": scale.get("metadata") or {}}
    return Document(whole | {"spec": scale.get("spec") or {}}, document.duplicates)


def duplicate_warnings(document: Document, validation: FieldValidation) -> tuple[str, ...]:
    """Return warnings about duplicates. Raises StatusError 400 where the writer wants none."""
    if document.duplicates and validation is FieldValidation.STRICT:
        listed = "\n  ".join(document.duplicates)
        why = f"error converting YAML to JSON: yaml: unmarshal errors:\n  {listed}"
        raise bad_request(f"error strict decoding YAML: {why}")
    return document.duplicates if validation is FieldValidation.WARN else ()


def check_new(kind: ResourceKind, name: str, patch: Object) -> None:
    """Check an apply that creates: it may, unless it names an object that once was. Raises StatusError."""
    meta = patch.get("metadata") or {}
    if not meta.get("name"):
        raise bad_request(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")
    if meta.get("uid"):
        why = f"uid mismatch: the provided object specified uid {meta['uid']}, and no existing object was found"
        message = f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}'
        details = {"name": name, "group": kind.group, "kind": kind.plural}
        raise StatusError(409, "Conflict", message, {key: value for key, value in details.items() if value})


def _check_type(patch: Object, version: str, kind: str) -> None:
    said_version, said_kind = patch.get("apiVersion") or "", patch.get("kind") or ""
    if (said_version, said_kind) != (version, kind):
        slashed = said_version if "/" in said_version else f"/{said_version}"
        raise bad_request(f"invalid object type: {slashed}, Kind={said_kind}")


def _undeclared(kind: ResourceKind, patch: Object) -> list[str]:
    """Return the paths of the fields that the kind does not have, as far as it is known here."""
    try:
        return kind.read(copy_of(patch))
    except UndecodableError as error:
        shown, wanted = identity_of(patch), f"{kind.group}/{kind.version}, Kind={kind.kind}"
        why = f"unable to convert unstructured object to {wanted}: error decoding from json: {error}"
        raise StatusError(500, "", f"failed to convert new object ({shown}) to proper version: {why}") from error


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of an apply: the object and its managedFields."""

    object: Object
    managed: list[Object]


def apply(author: Author, live: Object | None, patch: Object, *, force: bool) -> Applied:
    """Apply `patch` to `live` (None: there is none yet), neither of which is changed. Raises StatusError 409."""
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
    """Return `merged` without what the applier owned, where no manager owns it now, not even the applier."""
    all_there, dropped = with_structs(fields_of(merged, shape), shape), with_structs(last, shape)
    # `metadata` itself has no owner and always stays, whatever was in it.
    kept = _there(without(merged, dropped, shape), shape) | with_structs(owned, shape) | {("f:metadata",)}
    # Elements go as a whole: a field in one that others own brings it back, and then only the applier's fields may go.
    kept = _there(without(merged, all_there - kept, shape), shape)
    pruned: Object = without(merged, (all_there - kept) & dropped, shape) or {}
    return pruned


def _there(obj: Object | None, shape: Shape) -> FieldSet:
    return with_structs(fields_of(obj or {}, shape), shape)


def _conflicts(managed: Managed, me: Manager, written: set[Path]) -> dict[Manager, FieldSet]:
    """Return the fields of other owners that the applier is about to change."""
    found = {manager: entry.fields & written for manager, entry in managed.items() if manager != me}
    return {manager: fields for manager, fields in sorted(found.items()) if fields}


def _check_conflicts(author: Author, live: Object, conflicts: dict[Manager, FieldSet]) -> None:
    """Raise StatusError 409, but not for what kubectl's client-side apply wrote and no writer has changed since."""
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
    """Keep the annotation of kubectl, which may go back to client-side apply: where there is one, it holds what was
    applied."""
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

"""Three ways to change an object in part: merge patch (RFC 7396), JSON patch (RFC 6902), strategic merge. Pure.

Strategic merge, which Kubernetes takes for its own kinds only, merges the lists named here by their keys and replaces
all others; `$patch: delete` and `$patch: replace` are understood, as kubectl sends them.
"""

from collections.abc import Mapping
from typing import Any, Final

import jsonpatch
import jsonpointer

from headrace.dev.api.objects import Object, copy_of, to_json
from headrace.dev.api.status import StatusError, bad_request, unapplicable_patch

MERGE: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"

_MERGE_KEYS = {
    "conditions": "type",
    "containers": "name",
    "initContainers": "name",
    "containerStatuses": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
    "ownerReferences": "uid",
    "tolerations": "key",
}
_UNION_LISTS = frozenset({"finalizers"})
"""Lists of plain values that a strategic merge adds to."""
_DIRECTIVE = "$patch"


def apply_patch(media_type: str, obj: Object, patch: Any) -> Object:
    """Return the patched copy of `obj`. Raises StatusError where the patch has the wrong form or does not fit."""
    if media_type == JSON_PATCH:
        return _json_patch(obj, patch)
    if patch is None:
        raise bad_request("Invalid JSON Patch")
    if not isinstance(patch, dict):
        raise _wrong_type(patch, "map[string]interface {}")
    if media_type == STRATEGIC:
        return _strategic_object(copy_of(obj), patch)
    return _merge_object(copy_of(obj), patch)


def _json_patch(obj: Object, patch: Any) -> Object:
    if not isinstance(patch, list):
        raise _wrong_type(patch, "[]handlers.jsonPatchOp")
    for operation in patch:
        if not isinstance(operation, dict):
            raise _wrong_type(operation, "handlers.jsonPatchOp")
    try:
        patched: Object = jsonpatch.apply_patch(copy_of(obj), patch)
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException) as error:
        raise unapplicable_patch() from error
    if not isinstance(patched, dict):
        raise unapplicable_patch()
    return patched


def _wrong_type(found: Any, wanted: str) -> StatusError:
    spelled = {dict: "object", list: "array", str: "string", bool: "bool", type(None): "null"}.get(
        type(found), "number"
    )
    return bad_request(f"error decoding patch: json: cannot unmarshal {spelled} into Go value of type {wanted}")


def _merge(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    return _merge_object(target if isinstance(target, dict) else {}, patch)


def _merge_object(merged: Object, patch: Object) -> Object:
    for name, change in patch.items():
        if change is None:
            merged.pop(name, None)
        else:
            merged[name] = _merge(merged.get(name), change)
    return merged


def _strategic(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    if patch.get(_DIRECTIVE) == "replace":
        return {name: value for name, value in patch.items() if name != _DIRECTIVE}
    return _strategic_object(target if isinstance(target, dict) else {}, patch)


def _strategic_object(merged: Object, patch: Object) -> Object:
    for name, change in patch.items():
        if name.startswith("$"):
            _apply_directive(merged, name, change)
        elif change is None:
            merged.pop(name, None)
        elif isinstance(change, list) and name in _MERGE_KEYS and all(isinstance(c, dict) for c in change):
            order = patch.get(f"$setElementOrder/{name}", change)
            merged[name] = _merge_list(merged.get(name) or [], change, _MERGE_KEYS[name], order)
        elif isinstance(change, list) and name in _UNION_LISTS and all(isinstance(c, str) for c in change):
            merged[name] = list(dict.fromkeys([*merged.get(name, []), *change]))
        else:
            merged[name] = _strategic(merged.get(name), change)
    return merged


def _apply_directive(merged: Object, name: str, change: Any) -> None:
    """Apply `$deleteFromPrimitiveList/<field>` and `$retainKeys`; `$setElementOrder` is read with its list."""
    directive, _, field = name.partition("/")
    if directive in ("$deleteFromPrimitiveList", "$retainKeys") and not isinstance(change, list):
        raise bad_request(f"unable to apply the patch: {name} is {to_json(change)}, must be a list")
    if directive == "$deleteFromPrimitiveList":
        merged[field] = [value for value in merged.get(field, []) if value not in change]
    elif directive == "$retainKeys":
        for unwanted in merged.keys() - set(change):
            del merged[unwanted]


def _merge_list(target: list[Any], changes: list[Object], key: str, order: list[Object]) -> list[Any]:
    """Merge elements by their `key`; those in `order` come in its order, the others where they stood before."""
    if any(change.get(_DIRECTIVE) == "replace" for change in changes):
        return [change for change in changes if _DIRECTIVE not in change]
    if key == "containerPort" and not any(key in change for change in changes):
        key = "port"  # This is the list of a Service.
    merged = {element.get(key): element for element in target}
    for change in changes:
        name = change.get(key)
        if change.get(_DIRECTIVE) == "delete":
            merged.pop(name, None)
        else:
            merged[name] = _strategic(merged.get(name), change)
    ordered = [name for name in dict.fromkeys(element.get(key) for element in order) if name in merged]
    others = [name for name in merged if name not in ordered]
    before = {element.get(key): index for index, element in enumerate(target)}
    return [merged[name] for name in _interleaved(others, ordered, before)]


def _interleaved(others: list[Any], ordered: list[Any], before: Mapping[Any, int]) -> list[Any]:
    """Put each of `others` before the first of `ordered` that it stood before; neither changes its own order."""
    result: list[Any] = []
    left = list(ordered)
    for name in others:
        while left and not before[name] < before.get(left[0], -1):
            result.append(left.pop(0))
        result.append(name)
    return result + left

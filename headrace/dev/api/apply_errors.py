"""What is wrong with an applied object, before it is merged: fields that there are not, values of another type. Pure.

The messages are those of Kubernetes' merging library, Go's way to print values included.
"""

from collections.abc import Iterator
from typing import Any, Final

from headrace.dev.api.field_sets import Path, shown
from headrace.dev.api.field_walks import parts, step_of
from headrace.dev.api.objects import Object, to_json
from headrace.dev.api.shapes import Shape
from headrace.dev.api.status import StatusError

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


def identity_of(patch: Object) -> str:
    """As messages name an object that is applied."""
    meta = patch.get("metadata")
    named = meta if isinstance(meta, dict) else {}
    version = patch["apiVersion"] if "/" in patch["apiVersion"] else f"/{patch['apiVersion']}"
    return f"{named.get('namespace', '')}/{named.get('name', '')}; {version}, Kind={patch['kind']}"


def check_applied(patch: Object, shape: Shape, undeclared: list[str]) -> None:
    """Raises StatusError 500; `undeclared` are fields whose absence from the schema is known already."""
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
    """In Python True is an int, in JSON it is none."""
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
    """As Go's %v prints it."""
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
    """As Go's %#v prints it, which of objects and lists would say more."""
    return to_json(value) if isinstance(value, str | bool) else _printed(value)

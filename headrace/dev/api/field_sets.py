"""Sets of fields: which parts of an object a manager owns, as `metadata.managedFields` writes them (FieldsV1). Pure.

A path is a tuple of steps, each spelled as in FieldsV1: `f:spec` a member, `k:{"type":"Ready"}` the element of a list
with these keys, `v:"x"` the element of a set that is this value. A set holds the path of an object or list beside those
of its parts only where the thing itself is owned.

`fields_of` returns what a manager owns that applies an object; `compare` returns what a manager takes that changes one.
Both walk the object by its `Shape`. What is null counts as a value; what is not there, as none.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.dev.api.objects import Object, to_json
from headrace.dev.api.schemas import ANY, Shape

Path = tuple[str, ...]
FieldSet = frozenset[Path]

_SELF = "."
_KINDS_OF_STEPS = frozenset({"f", "k", "v", "i"})
_NOTHING: Final = object()


def member(name: str) -> str:
    return f"f:{name}"


def element_with(keys: Object) -> str:
    return f"k:{json.dumps(keys, separators=(',', ':'), sort_keys=True, ensure_ascii=False)}"


def element_that_is(value: Any) -> str:
    return f"v:{to_json(value)}"


def encode(fields: FieldSet) -> Object:
    """Encode as FieldsV1: an object within an object for each step."""
    tree: Object = {}
    for path in sorted(fields):
        node = tree
        for step in path:
            node = node.setdefault(step, {})
        node[_SELF] = {}
    return _without_lone_marks(tree)


def decode(tree: Any) -> FieldSet:
    """Decode FieldsV1. Raises ValueError where it is none."""
    return frozenset(_paths(tree, ()))


def shown(path: Path) -> str:
    """Return a path as messages name it: `.status.conditions[type="Ready"].status`."""
    return "".join(_shown_step(step) for step in path)


def in_order(fields: Iterable[Path]) -> list[Path]:
    """Return paths as messages list them: of each object first the members that are owned as a whole."""
    return sorted(fields, key=lambda path: [*((1, step) for step in path[:-1]), (0, path[-1])])


def _without_lone_marks(tree: Object) -> Object:
    if tree.keys() == {_SELF}:
        return {}
    return {step: _without_lone_marks(node) for step, node in tree.items()}


def _paths(tree: Any, path: Path) -> Iterable[Path]:
    if not isinstance(tree, dict):
        raise ValueError(f"not an object: {tree!r}")
    if path and (not tree or _SELF in tree):
        yield path
    for step, node in tree.items():
        if step == _SELF:
            continue
        if step[:1] not in _KINDS_OF_STEPS or step[1:2] != ":":
            raise ValueError(f"not a step of a path: {step!r}")
        if step[0] != "f":
            json.loads(step[2:])
        yield from _paths(node, (*path, step))


def _shown_step(step: str) -> str:
    kind, text = step[0], step[2:]
    match kind:
        case "f":
            return f".{text}"
        case "k":
            keys = json.loads(text)
            return f"[{','.join(f'{name}={to_json(keys[name])}' for name in sorted(keys))}]"
        case "v":
            return f"[={text}]"
        case _:
            return f"[{text}]"


@dataclass(slots=True)
class Comparison:
    """The fields of a new object that an old one lacked or had with other values, and those that it has no more."""

    written: set[Path] = field(default_factory=set)
    removed: set[Path] = field(default_factory=set)


def step_of(element: Any, shape: Shape) -> str:
    """Return how a list of this shape distinguishes `element` from the others."""
    if shape.is_set or not isinstance(element, dict):
        return element_that_is(element)
    items = shape.items or ANY
    keys: Object = {}
    for name in shape.keys:
        of_key = items.of(name)
        value = element.get(name, of_key.default if of_key is not None else None)
        if value is not None:
            keys[name] = value
    return element_with(keys)


def parts(value: Any, shape: Shape) -> Iterator[tuple[str, Any, Shape]]:
    """Yield each part of `value`, which must have parts: its step, itself, its shape."""
    if isinstance(value, dict):
        for name, child in value.items():
            yield member(name), child, shape.of(name) or ANY
    else:
        for element in value:
            yield step_of(element, shape), element, shape.items or ANY


def fields_of(value: Any, shape: Shape) -> FieldSet:
    """Return the fields of an object that is applied. A struct is none itself; its members suffice."""
    return frozenset(_fields_of(value, shape, ()))


def compare(old: Any, new: Any, shape: Shape) -> Comparison:
    found = Comparison()
    _compare(old, new, shape, (), found)
    return found


def with_structs(fields: Iterable[Path], shape: Shape) -> FieldSet:
    """Return the set, and the structs that its fields are in: they stay as long as one of their members does."""
    found: set[Path] = set()
    for path in fields:
        found.add(path)
        at: Shape | None = shape
        for depth, step in enumerate(path[:-1], 1):
            if at is None:
                break
            if step.startswith("f:"):
                if at.has_field(step[2:]):
                    found.add(path[:depth])
                at = at.of(step[2:])
            else:
                at = at.items
    return frozenset(found)


def _fields_of(value: Any, shape: Shape, path: Path) -> Iterator[Path]:
    if not shape.has_parts(value):
        yield path
        return
    of_object = isinstance(value, dict)
    for step, child, child_shape in parts(value, shape):
        place = (*path, step)
        if not of_object or child == {} or not shape.has_field(step[2:]):
            yield place
        yield from _fields_of(child, child_shape, place)


def _compare(old: Any, new: Any, shape: Shape, path: Path, found: Comparison) -> None:
    if old == new:
        return
    if _has_comparable_parts(old, new, shape):
        _compare_parts(old, new, shape, path, found)
    elif old is not _NOTHING and new is not _NOTHING:
        found.written.add(path)
        # One of them may have parts where the other is plain: in fields without a schema any type may become any other.
        before, after = (value if shape.has_parts(value) else _NOTHING for value in (old, new))
        _compare_parts(before, after, shape, path, found)
    if path and old is _NOTHING:
        found.written.add(path)
    elif path and new is _NOTHING:
        found.removed.add(path)


def _has_comparable_parts(old: Any, new: Any, shape: Shape) -> bool:
    """Return whether two of one type, or the one that is there, have parts to compare. Empty ones are compared as a
    whole."""
    values = [value for value in (old, new) if value is not _NOTHING and value is not None]
    same = all(type(value) is type(values[0]) for value in values)
    return same and any(values) and all(shape.has_parts(value) for value in values)


def _compare_parts(old: Any, new: Any, shape: Shape, path: Path, found: Comparison) -> None:
    before, after = _by_step(old, shape), _by_step(new, shape)
    for step in before | after:
        old_part, part_shape = before.get(step, (_NOTHING, ANY))
        new_part, part_shape = after.get(step, (_NOTHING, part_shape))
        _compare(old_part, new_part, part_shape, (*path, step), found)


def _by_step(value: Any, shape: Shape) -> dict[str, tuple[Any, Shape]]:
    if value is _NOTHING or value is None:
        return {}
    return {step: (part, part_shape) for step, part, part_shape in parts(value, shape)}

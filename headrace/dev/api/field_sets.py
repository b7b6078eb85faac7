"""Sets of fields: which parts of an object somebody owns, as `metadata.managedFields` writes them (FieldsV1). Pure.

A path is a tuple of steps, each spelled as in FieldsV1: `f:spec` a member, `k:{"type":"Ready"}` the element of a list
with these keys, `v:"x"` the element of a set that is this value. A set holds the path of an object or list beside those
of its parts only where the thing itself is owned.
"""

import json
from collections.abc import Iterable
from typing import Any

from headrace.dev.api.objects import Object, to_json

Path = tuple[str, ...]
FieldSet = frozenset[Path]

_SELF = "."
_KINDS_OF_STEPS = frozenset({"f", "k", "v", "i"})


def member(name: str) -> str:
    return f"f:{name}"


def element_with(keys: Object) -> str:
    return f"k:{json.dumps(keys, separators=(',', ':'), sort_keys=True, ensure_ascii=False)}"


def element_that_is(value: Any) -> str:
    return f"v:{to_json(value)}"


def encode(fields: FieldSet) -> Object:
    """As FieldsV1: an object within an object for each step."""
    tree: Object = {}
    for path in sorted(fields):
        node = tree
        for step in path:
            node = node.setdefault(step, {})
        node[_SELF] = {}
    return _without_lone_marks(tree)


def decode(tree: Any) -> FieldSet:
    """Raises ValueError where it is no FieldsV1."""
    return frozenset(_paths(tree, ()))


def shown(path: Path) -> str:
    """As messages name it: `.status.conditions[type="Ready"].status`."""
    return "".join(_shown_step(step) for step in path)


def in_order(fields: Iterable[Path]) -> list[Path]:
    """As messages list them: of each object first the members that are owned as a whole."""
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

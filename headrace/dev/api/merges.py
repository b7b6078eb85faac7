"""An applied object merged into the one that is there, and fields taken out of it again. Pure.

Objects are merged member by member, lists with keys and sets element by element, all else is replaced. Both functions
return new containers, but share the parts that they leave alone.
"""

from typing import Any

from headrace.dev.api.field_sets import FieldSet, Path, member
from headrace.dev.api.field_walks import parts, step_of
from headrace.dev.api.shapes import ANY, Shape


def merge(live: Any, applied: Any, shape: Shape) -> Any:
    """`live` with all that `applied` says. Null in place of parts says nothing."""
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
    """`value` less `fields`; None where nothing is left of it."""
    holders = frozenset(path[:depth] for path in fields for depth in range(len(path)))
    return _without(value, fields, holders, shape, ())


def _merge_lists(live: list[Any], applied: list[Any], shape: Shape) -> list[Any]:
    """In the order of `applied`; what only `live` has stays before what it stood before."""
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

"""CEL rules of CRDs (`x-kubernetes-validations`), with Kubernetes' meaning of `self` and `oldSelf`.

A rule that mentions `oldSelf` is a transition rule: it is checked only where the same field had a value before. List
elements correspond to their old selves only in lists of type `map`, by their keys; in other lists they are new each
time. Rules run only on objects that pass the schema otherwise, so `self` has the declared type. Pure.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from headrace.dev.api.cel_library import cel
from headrace.dev.api.objects import to_json
from headrace.dev.api.status import Cause
from headrace.dev.api.structural import Rule, Schema

_EVALUATION_ERRORS = (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError)
"""What the library raises for a rule that meets a value it was not written for."""
_ABSENT = object()
"""There is no old value, or none that corresponds."""


def check_rules(value: Any, schema: Schema, path: str = "", old: Any = _ABSENT) -> Iterator[Cause]:
    """Every rule at and below `schema` that `value` breaks. An unchanged value is not judged again."""
    if old is not _ABSENT and value == old:
        return
    for rule in schema.rules:
        yield from _check(rule, value, old, path)
    match value:
        case dict():
            for name, child in value.items():
                if (node := schema.of_field(name)) is not None:
                    old_child = old.get(name, _ABSENT) if isinstance(old, dict) else _ABSENT
                    yield from check_rules(child, node, f"{path}.{name}" if path else name, old_child)
        case list() if schema.items is not None:
            for index, child in enumerate(value):
                old_child = _corresponding(child, schema, old)
                yield from check_rules(child, schema.items, f"{path}[{index}]", old_child)
        case _:
            pass


def check_object(obj: Any, schema: Schema, old: Any | None) -> Iterator[Cause]:
    """The rules of a whole object; `old` is None when it is created."""
    return check_rules(obj, schema, "", _ABSENT if old is None else old)


def _check(rule: Rule, value: Any, old: Any, path: str) -> Iterator[Cause]:
    program, is_transition = _compiled(rule.expression)
    if is_transition and old is _ABSENT:
        return
    variables = {"self": value, "oldSelf": old} if is_transition else {"self": value}
    try:
        holds = program.execute(variables)
    except _EVALUATION_ERRORS as error:
        yield Cause("FieldValueInvalid", f"Invalid value: rule evaluation error: {error}", path)
        return
    if holds is not True:
        shown = f"{to_json(value)}: " if not isinstance(value, dict | list) else ""
        yield Cause(rule.reason, f"Invalid value: {shown}{rule.message}", f"{path}{rule.field_path}")


def _corresponding(element: Any, schema: Schema, old: Any) -> Any:
    if schema.list_type != "map" or not isinstance(old, list):
        return _ABSENT
    wanted = [element.get(key) for key in schema.list_keys]
    return next((o for o in old if [o.get(key) for key in schema.list_keys] == wanted), _ABSENT)


@lru_cache(maxsize=256)
def _compiled(expression: str) -> tuple[cel.Program, bool]:
    program = cel.compile(expression)
    return program, "oldSelf" in program.variables()

"""Values against their structural schema, with the messages of Kubernetes' validator, and then against CEL rules. Pure.

The functions yield causes in the order of the schema. An unchanged value is not judged again on update ("ratcheting"),
so that an object stored under an older schema can still be edited elsewhere.

CEL rules (`x-kubernetes-validations`) have Kubernetes' meaning of `self` and `oldSelf`. They run only on objects that
pass the schema otherwise, so `self` has the declared type. A rule that mentions `oldSelf` is a transition rule: it is
checked only where the same field had a value before. List elements correspond to their old selves only in lists of type
`map`, by their keys; in other lists they are new each time.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from headrace.dev.api.cel_library import cel
from headrace.dev.api.objects import Object, to_json
from headrace.dev.api.schemas import ROOT_FIELDS, Rule, Schema, has_rules
from headrace.dev.api.status import Cause, invalid_value, required, unsupported_value
from headrace.dev.api.typed_members import is_date_time

_EVALUATION_ERRORS = (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError)
"""The errors that the library raises for a rule that meets a value it was not written for."""
_ABSENT = object()
"""The mark of no old value, or of none that corresponds."""
_BLOCKING = frozenset(
    {
        "FieldValueNotSupported",
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    }
)
"""Errors after which a rule might meet a value of another type than it was written for."""
_UNCHECKED = Cause(
    "FieldValueInvalid",
    "Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
    "<nil>",
)
_INTEGER_BITS = {"int32": 32, "int64": 64}
_NEW = object()


def check_rules(value: Any, schema: Schema, path: str = "", old: Any = _ABSENT) -> Iterator[Cause]:
    """Yield every rule at and below `schema` that `value` breaks. An unchanged value is not judged again."""
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
    """Yield the broken rules of a whole object; `old` is None when it is created."""
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


def validate_object(obj: Object, schema: Schema, old: Object | None, earlier: list[Cause]) -> list[Cause]:
    """Return all that is wrong with `obj`: `earlier` (of its metadata), its schema's errors, then its rules'."""
    causes = earlier + list(validate(obj, schema, "", _NEW if old is None else old))
    if not has_rules(schema):
        return causes
    if any(cause.reason in _BLOCKING for cause in causes):
        return [*causes, _UNCHECKED]
    return causes + list(check_object(obj, schema, old))


def validate_status(obj: Object, schema: Schema, old: Object) -> list[Cause]:
    """Return what is wrong with the status alone. Kubernetes' messages then count from the status, its fields do
    not."""
    node, status = schema.of_field("status"), obj.get("status")
    if node is None or status is None:
        return []
    causes = [_below_status(cause) for cause in validate(status, node, "", old.get("status", _NEW))]
    if any(cause.reason in _BLOCKING for cause in causes) and has_rules(schema):
        return [*causes, _UNCHECKED]
    return causes + list(check_object(obj, schema, old))


def _below_status(cause: Cause) -> Cause:
    below = "" if cause.field in ("", "<nil>") else f".{cause.field}"
    return Cause(cause.reason, cause.message, f"status{below}")


def validate(value: Any, schema: Schema, path: str, old: Any = _NEW) -> Iterator[Cause]:
    """Yield what is wrong with `value` at `path`; the empty path is the whole object."""
    if old is not _NEW and value == old:
        return
    if value is None and schema.nullable:
        return
    if not _has_type(value, schema):
        yield from _type_errors(value, schema, path)
        yield from _enum_errors(value, schema, path)
        if schema.type in ("integer", "number") and _type_name(value) == "float64":
            yield from _bound_errors(float(value), schema, path)
        return
    yield from _enum_errors(value, schema, path)
    match value:
        case str():
            yield from _string_errors(value, schema, path)
        case bool():
            pass
        case int() | float():
            yield from _number_errors(value, schema, path)
        case list():
            yield from _list_errors(value, schema, path, old)
        case dict():
            yield from _map_errors(value, schema, path, old)
        case _:
            pass


def _has_type(value: Any, schema: Schema) -> bool:
    if schema.int_or_string:
        return isinstance(value, int | str) and not isinstance(value, bool)
    match schema.type:
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool) and _fits(value, "int64")
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case _:
            return True


def _type_errors(value: Any, schema: Schema, path: str) -> Iterator[Cause]:
    """Yield type errors. In a field with a format Kubernetes names the format, not the type, for some values; a
    fraction even twice."""
    found, value_format = _type_name(value), schema.raw.get("format")
    if value_format is not None and found in ("boolean", "object"):
        yield _wrong_type(path, value_format, "")
    elif value_format in _INTEGER_BITS and found == "float64":
        yield _wrong_type(path, value_format, found)
        yield _wrong_format(path, str(value_format))
    else:
        yield _wrong_type(path, schema.type, found)


def _type_name(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer" if _fits(value, "int64") else "float64"
        case float():
            return "float64"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _fits(value: int, number_format: str) -> bool:
    bits = _INTEGER_BITS[number_format] - 1
    return -(1 << bits) <= value < 1 << bits


def _wrong_type(path: str, wanted: object, found: str) -> Cause:
    message = f"Invalid value: {to_json(found)}: {path} in body must be of type {wanted}: {to_json(found)}"
    return Cause("FieldValueTypeInvalid", message, path)


def _wrong_format(path: str, number_format: str) -> Cause:
    return invalid_value("<nil>", "", f"Checked value must be of type integer with format {number_format} in {path}")


def _enum_errors(value: Any, schema: Schema, path: str) -> Iterator[Cause]:
    choices = schema.raw.get("enum")
    if choices is not None and value not in choices:
        yield unsupported_value(path, value, choices)


def _string_errors(value: str, schema: Schema, path: str) -> Iterator[Cause]:
    raw = schema.raw
    if "maxLength" in raw and len(value) > raw["maxLength"]:
        yield Cause("FieldValueTooLong", f"Too long: may not be more than {raw['maxLength']} bytes", path)
    if "minLength" in raw and len(value) < raw["minLength"]:
        yield invalid_value(path, value, f"{path} in body should be at least {raw['minLength']} chars long")
    if "pattern" in raw and not _pattern(raw["pattern"]).search(value):
        yield invalid_value(path, value, f"{path} in body should match '{raw['pattern']}'")
    if raw.get("format") == "date-time" and not is_date_time(value):
        message = f"Invalid value: {to_json(value)}: {path} in body must be of type date-time: {to_json(value)}"
        yield Cause("FieldValueTypeInvalid", message, path)


def _number_errors(value: float, schema: Schema, path: str) -> Iterator[Cause]:
    raw = schema.raw
    number_format = raw.get("format")
    if isinstance(value, int) and number_format in _INTEGER_BITS and not _fits(value, str(number_format)):
        yield _wrong_format(path, str(number_format))
    yield from _bound_errors(value, schema, path)


def _bound_errors(value: float, schema: Schema, path: str) -> Iterator[Cause]:
    raw = schema.raw
    if "minimum" in raw:
        exclusive = bool(raw.get("exclusiveMinimum"))
        if value < raw["minimum"] or (exclusive and value == raw["minimum"]):
            rule = "greater than" if exclusive else "greater than or equal to"
            yield invalid_value(path, value, f"{path} in body should be {rule} {raw['minimum']}")
    if "maximum" in raw:
        exclusive = bool(raw.get("exclusiveMaximum"))
        if value > raw["maximum"] or (exclusive and value == raw["maximum"]):
            rule = "less than" if exclusive else "less than or equal to"
            yield invalid_value(path, value, f"{path} in body should be {rule} {raw['maximum']}")


def _list_errors(value: list[Any], schema: Schema, path: str, old: Any) -> Iterator[Cause]:
    raw = schema.raw
    if "maxItems" in raw and len(value) > raw["maxItems"]:
        message = f"Too many: {len(value)}: must have at most {raw['maxItems']} items"
        yield Cause("FieldValueTooMany", message, path)
    if "minItems" in raw and len(value) < raw["minItems"]:
        yield invalid_value(path, len(value), f"{path} in body should have at least {raw['minItems']} items")
    if schema.items is not None:
        for index, child in enumerate(value):
            old_child = old[index] if isinstance(old, list) and index < len(old) else _NEW
            yield from validate(child, schema.items, f"{path}[{index}]", old_child)
    yield from _duplicates(value, schema, path)


def _duplicates(value: list[Any], schema: Schema, path: str) -> Iterator[Cause]:
    if schema.list_type == "atomic":
        return
    seen: set[str] = set()
    for index, child in enumerate(value):
        identity = child
        if schema.list_type == "map":
            if not isinstance(child, dict):
                continue
            identity = {key: child[key] for key in schema.list_keys if key in child}
        text = to_json(identity)
        if text in seen:
            yield Cause("FieldValueDuplicate", f"Duplicate value: {text}", f"{path}[{index}]")
        seen.add(text)


def _map_errors(value: Object, schema: Schema, path: str, old: Any) -> Iterator[Cause]:
    for name in schema.raw.get("required", ()):
        if name not in value:
            yield required(_join(path, name))
    for name, child in value.items():
        node = schema.of_field(name)
        if node is None or (not path and name in ROOT_FIELDS - {"metadata"}):
            continue
        old_child = old.get(name, _NEW) if isinstance(old, dict) else _NEW
        yield from validate(child, node, _join(path, name), old_child)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


@lru_cache(maxsize=256)
def _pattern(pattern: str) -> re.Pattern[str]:
    # Kubernetes' regular expressions (RE2) know no trailing-newline exception for `$`.
    return re.compile(re.sub(r"\$$", r"\\Z", pattern))

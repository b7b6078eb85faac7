"""Structural schemas: what a CRD says about its objects, and the three things done with it before validation.

`prune`, `drop_nulls` and `fill_defaults` change the object that they are given (the writer's own copy), as Kubernetes
does: unknown fields go, then nulls that may not be, then fields that are absent or null get their defaults.
`metadata`, `apiVersion` and `kind` belong to Kubernetes and are left alone here. Pure; called by `operations` through
the kind's schema.
"""

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

from headrace.core.slotted import dataclass
from headrace.dev.api.objects import Object

ROOT_FIELDS = frozenset({"apiVersion", "kind", "metadata"})


@dataclass(frozen=True, slots=True)
class Rule:
    """One entry of `x-kubernetes-validations`."""

    expression: str
    message: str
    field_path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Schema:
    """One node of an `openAPIV3Schema`."""

    type: str
    raw: Mapping[str, Any]
    """The node as the CRD spells it: bounds, pattern, enum and format are read from it by `validation`."""
    properties: Mapping[str, "Schema"] = field(default_factory=dict)
    items: "Schema | None" = None
    values: "Schema | None" = None
    """Schema of the values of a map (`additionalProperties`)."""
    keeps_unknown: bool = False
    nullable: bool = False
    int_or_string: bool = False
    list_type: str = "atomic"
    list_keys: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()

    @property
    def has_default(self) -> bool:
        return self.raw.get("default") is not None

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> "Schema":
        additional = raw.get("additionalProperties")
        return cls(
            type=raw.get("type", ""),
            raw=raw,
            properties={name: cls.parse(node) for name, node in raw.get("properties", {}).items()},
            items=cls.parse(raw["items"]) if "items" in raw else None,
            values=cls.parse(additional) if isinstance(additional, Mapping) else None,
            keeps_unknown=bool(raw.get("x-kubernetes-preserve-unknown-fields")) or additional is True,
            nullable=bool(raw.get("nullable")),
            int_or_string=bool(raw.get("x-kubernetes-int-or-string")),
            list_type=raw.get("x-kubernetes-list-type", "atomic"),
            list_keys=tuple(raw.get("x-kubernetes-list-map-keys", ())),
            rules=tuple(_parse_rule(rule) for rule in raw.get("x-kubernetes-validations", ())),
        )

    def of_field(self, name: str) -> "Schema | None":
        """The schema of one property or map value; None where the schema does not know it."""
        return self.properties.get(name, self.values)


def has_rules(schema: Schema) -> bool:
    return bool(schema.rules) or any(map(has_rules, _children(schema)))


def fill_defaults(value: Any, schema: Schema) -> None:
    """Set what is absent, or null and not nullable, to its default."""
    if isinstance(value, dict):
        for name, node in schema.properties.items():
            if node.has_default and _is_missing(value, name, node):
                value[name] = _fresh(node.raw["default"])
        for name, child in value.items():
            if (known := schema.of_field(name)) is not None:
                fill_defaults(child, known)
    elif isinstance(value, list) and schema.items is not None:
        for child in value:
            fill_defaults(child, schema.items)


def drop_nulls(value: Any, schema: Schema) -> None:
    """Drop the fields that are null, may not be, and have no default. To what is applied this is not done."""
    if isinstance(value, dict):
        for name, node in schema.properties.items():
            if name in value and not node.has_default and _is_missing(value, name, node):
                del value[name]
        for name, child in value.items():
            if (known := schema.of_field(name)) is not None:
                drop_nulls(child, known)
    elif isinstance(value, list) and schema.items is not None:
        for child in value:
            drop_nulls(child, schema.items)


def prune(value: Any, schema: Schema, path: str = "") -> list[str]:
    """Remove the fields that the schema does not know. Returns their paths, sorted within each object."""
    removed: list[str] = []
    if isinstance(value, dict):
        for name in sorted(value):
            known = schema.of_field(name)
            if known is not None:
                removed += prune(value[name], known, f"{path}.{name}" if path else name)
            elif not schema.keeps_unknown:
                del value[name]
                removed.append(f"{path}.{name}" if path else name)
    elif isinstance(value, list) and schema.items is not None:
        for index, child in enumerate(value):
            removed += prune(child, schema.items, f"{path}[{index}]")
    return removed


def prune_root(obj: Object, schema: Schema) -> list[str]:
    """`prune` for a whole object: what belongs to Kubernetes stays."""
    kept = {name: obj.pop(name) for name in ROOT_FIELDS if name in obj}
    removed = prune(obj, schema)
    obj.update(kept)
    return removed


def _children(schema: Schema) -> Iterator[Schema]:
    yield from schema.properties.values()
    yield from (node for node in (schema.items, schema.values) if node is not None)


def _is_missing(value: Object, name: str, node: Schema) -> bool:
    return value.get(name) is None and not (node.nullable and name in value)


def _fresh(default: Any) -> Any:
    """A copy: a default is shared by every object that lacks the field."""
    match default:
        case dict():
            return {name: _fresh(child) for name, child in default.items()}
        case list():
            return [_fresh(child) for child in default]
        case _:
            return default


def _parse_rule(raw: Mapping[str, Any]) -> Rule:
    return Rule(
        expression=raw["rule"],
        message=raw.get("message") or f"failed rule: {raw['rule']}",
        field_path=raw.get("fieldPath", ""),
        reason=raw.get("reason", "FieldValueInvalid"),
    )

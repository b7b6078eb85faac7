"""Structural schemas: a CRD's description of its objects, and how their parts are merged. Pure.

`prune`, `drop_nulls` and `fill_defaults` change the object that they are given (the writer's own copy), as Kubernetes
does before validation: unknown fields go, then nulls that may not be, then fields that are absent or null get their
defaults. `metadata`, `apiVersion` and `kind` belong to Kubernetes and are left alone here.

A `Shape` says which lists have keys and which values are replaced as a whole. It is made from the schema of a custom
resource (`x-kubernetes-list-type` and its kin). Kubernetes' own kinds have none here; the names of their lists and maps
say enough (`_OUTLINES`), and every other name is a field of a struct.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

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
    """The node as the CRD spells it: `validation` reads bounds, pattern, enum and format from it."""
    properties: Mapping[str, "Schema"] = field(default_factory=dict)
    items: "Schema | None" = None
    values: "Schema | None" = None
    """The schema of the values of a map (`additionalProperties`)."""
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
        """Return the schema of one property or map value; None where the schema does not know it."""
        return self.properties.get(name, self.values)


def has_rules(schema: Schema) -> bool:
    return bool(schema.rules) or any(map(has_rules, _children(schema)))


def fill_defaults(value: Any, schema: Schema) -> None:
    """Set each field that is absent, or null and not nullable, to its default."""
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
    """Drop the fields that are null, may not be, and have no default. Applied objects keep them."""
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
    """Remove the fields that the schema does not know, and return their paths, sorted within each object."""
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
    """Prune a whole object; what belongs to Kubernetes stays."""
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
    """Return a copy: a default is shared by every object that lacks the field."""
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


@dataclass(frozen=True, slots=True)
class Shape:
    """The way in which one value is merged, and its parts."""

    type: str = ""
    """The type as JSON schema names it; empty where any will do."""
    atomic: bool = False
    """True for an object that is replaced as a whole. A list is one unless it has `keys` or `is_set`."""
    is_set: bool = False
    keys: tuple[str, ...] = ()
    """The members that distinguish the elements of a list."""
    fields: Mapping[str, "Shape"] = field(default_factory=dict)
    others: "Shape | None" = None
    """The shape of names that are not in `fields`: the values of a map."""
    is_free: bool = False
    """True where names that are not in `fields` have any shape."""
    is_outline: bool = False
    """True where names that are not in `fields` are fields, too; `_OUTLINES` knows some of them."""
    items: "Shape | None" = None
    default: Any = None

    def of(self, name: str) -> "Shape | None":
        """Return the shape of the member `name`; None where there can be none of that name."""
        if name in self.fields:
            return self.fields[name]
        if self.is_outline:
            return _OUTLINES.get(name, _STRUCT)
        return ANY if self.is_free else self.others

    def has_field(self, name: str) -> bool:
        """Return whether `name` is a field of a struct, not a key of a map."""
        return name in self.fields or self.is_outline

    def has_parts(self, value: object) -> bool:
        """Return whether the parts of `value` have owners of their own."""
        if isinstance(value, dict):
            return not self.atomic
        return isinstance(value, list) and (bool(self.keys) or self.is_set)


ANY: Final = Shape(is_free=True)
_STRUCT: Final = Shape(is_outline=True)
_ATOMIC: Final = Shape(atomic=True)
_TEXT: Final = Shape("string")
_TEXTS: Final = Shape("object", others=_TEXT)
_NUMBER: Final = Shape("integer")


def _keyed(*keys: str, items: Shape = _STRUCT) -> Shape:
    return Shape("array", keys=keys, items=items)


META: Final = Shape(
    "object",
    fields={
        **dict.fromkeys(("name", "generateName", "namespace", "selfLink", "uid", "resourceVersion"), _TEXT),
        **dict.fromkeys(("creationTimestamp", "deletionTimestamp"), _TEXT),
        **dict.fromkeys(("generation", "deletionGracePeriodSeconds"), _NUMBER),
        **dict.fromkeys(("labels", "annotations"), _TEXTS),
        "finalizers": Shape("array", is_set=True, items=_TEXT),
        "ownerReferences": _keyed("uid", items=_ATOMIC),
        "managedFields": Shape("array"),
    },
)
_ROOT: Final = {"apiVersion": _TEXT, "kind": _TEXT, "metadata": META}
_MAP: Final = Shape(others=Shape())
_PROTOCOL: Final = Shape(is_outline=True, fields={"protocol": Shape("string", default="TCP")})
_OUTLINES: Final[Mapping[str, Shape]] = {
    **dict.fromkeys(("labels", "annotations", "data", "stringData", "limits", "requests", "overhead"), _MAP),
    **dict.fromkeys(("selector", "labelSelector", "nodeSelector", "involvedObject", "related"), _ATOMIC),
    **dict.fromkeys(("configMapKeyRef", "fieldRef", "resourceFieldRef", "secretKeyRef", "secretRef"), _ATOMIC),
    **dict.fromkeys(("requiredDuringSchedulingIgnoredDuringExecution", "dataSource"), _ATOMIC),
    **dict.fromkeys(("containers", "initContainers", "ephemeralContainers", "env", "volumes"), _keyed("name")),
    **dict.fromkeys(("claims", "resourceClaims", "schedulingGates"), _keyed("name")),
    "conditions": _keyed("type"),
    "finalizers": META.fields["finalizers"],
    "hostAliases": _keyed("ip"),
    "imagePullSecrets": _keyed("name", items=_ATOMIC),
    "ownerReferences": META.fields["ownerReferences"],
    "podIPs": _keyed("ip"),
    "ports": _keyed("containerPort", "protocol", items=_PROTOCOL),
    "topologySpreadConstraints": _keyed("topologyKey", "whenUnsatisfiable"),
    "volumeDevices": _keyed("devicePath"),
    "volumeMounts": _keyed("mountPath"),
}
"""The meaning of names in Kubernetes' own kinds, wherever they stand."""
_SERVICE_PORTS: Final = _keyed("port", "protocol", items=_PROTOCOL)
_SECRET: Final = Shape(
    fields={**_ROOT, "data": _TEXTS, "stringData": _TEXTS, "type": _TEXT, "immutable": Shape("boolean")},
)
_OF_KINDS: Final[Mapping[str, Shape]] = {
    "Namespace": Shape(
        is_outline=True, fields={**_ROOT, "spec": Shape(is_outline=True, fields={"finalizers": _ATOMIC})}
    ),
    "Secret": _SECRET,
    "Service": Shape(
        is_outline=True, fields={**_ROOT, "spec": Shape(is_outline=True, fields={"ports": _SERVICE_PORTS})}
    ),
}
_OWN: Final = Shape(is_outline=True, fields=_ROOT)


def shape_of(kind: str, custom: Shape | None) -> Shape:
    """Return the shape of a kind's objects; `custom` where it has a schema."""
    return custom if custom is not None else _OF_KINDS.get(kind, _OWN)


def custom_shape(schema: Schema) -> Shape:
    """Return the shape of the custom resources that `schema` describes."""
    root = _shape(schema)
    return replace(root, fields={**root.fields, **_ROOT})


def _shape(schema: Schema) -> Shape:
    any_names = schema.type in ("object", "") and not schema.properties and schema.values is None
    return Shape(
        type="" if schema.int_or_string else schema.type,
        atomic=schema.raw.get("x-kubernetes-map-type") == "atomic",
        is_set=schema.list_type == "set",
        keys=schema.list_keys if schema.list_type == "map" else (),
        fields={name: _shape(node) for name, node in schema.properties.items()},
        others=_shape(schema.values) if schema.values is not None else None,
        is_free=schema.keeps_unknown or any_names,
        items=_shape(schema.items) if schema.items is not None else None,
        default=schema.raw.get("default"),
    )

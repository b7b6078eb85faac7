"""How the parts of an object are merged: which lists have keys, which values are replaced as a whole. Pure.

A `Shape` is made from the schema of a custom resource (`x-kubernetes-list-type` and its kin). Kubernetes' own kinds
have none here; of theirs the names of lists and maps say enough (`_OUTLINES`), and every other name is a field of a
struct. Called by `field_walks`, `merges` and `apply_errors`.
"""

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, Final

from headrace.core.slotted import dataclass
from headrace.dev.api.structural import Schema


@dataclass(frozen=True, slots=True)
class Shape:
    """How one value is merged, and its parts."""

    type: str = ""
    """As JSON schema names it; empty where any will do."""
    atomic: bool = False
    """An object that is replaced as a whole. A list is one unless it has `keys` or `is_set`."""
    is_set: bool = False
    keys: tuple[str, ...] = ()
    """Members by which the elements of a list are told apart."""
    fields: Mapping[str, "Shape"] = field(default_factory=dict)
    others: "Shape | None" = None
    """Of names that are not in `fields`: the values of a map."""
    is_free: bool = False
    """Names that are not in `fields` have any shape."""
    is_outline: bool = False
    """Names that are not in `fields` are fields, too; `_OUTLINES` knows some of them."""
    items: "Shape | None" = None
    default: Any = None

    def of(self, name: str) -> "Shape | None":
        """Of the member `name`; None where there can be none of that name."""
        if name in self.fields:
            return self.fields[name]
        if self.is_outline:
            return _OUTLINES.get(name, _STRUCT)
        return ANY if self.is_free else self.others

    def has_field(self, name: str) -> bool:
        """Whether `name` is a field of a struct, not a key of a map."""
        return name in self.fields or self.is_outline

    def has_parts(self, value: object) -> bool:
        """Whether the parts of `value` have owners of their own."""
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
"""What Kubernetes' own kinds mean by a name, wherever it stands in them."""
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
    """Of the objects of a kind; `custom` where it has a schema."""
    return custom if custom is not None else _OF_KINDS.get(kind, _OWN)


def custom_shape(schema: Schema) -> Shape:
    """Of the custom resources that `schema` describes."""
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

"""Members of Kubernetes' own kinds, read as Go reads them: of the wrong type, or unknown. Pure.

`Secret` and `Service` are checked in full because people write them by hand, of the others only the outline. The
messages are those of Go's JSON decoder.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from headrace.dev.api.objects import Object
from headrace.dev.api.status import UndecodableError

ROOT: Final = frozenset({"apiVersion", "kind", "metadata"})
_GO_NAMES = {bool: "bool", int: "number", float: "number", str: "string", list: "array", dict: "object"}
_PARTS: Final = {
    "spec": "v1.{}Spec",
    "status": "v1.{}Status",
    "involvedObject": "v1.ObjectReference",
    "regarding": "v1.ObjectReference",
}
_PYTHON_TYPES: Mapping[str, type] = {"string": str, "v1.SecretType": str, "bool": bool, "int32": int}


def drop_unknown(holder: Object, known: Iterable[str], path: str = "") -> list[str]:
    """Remove what no field is called; returns the paths, in the order of the document."""
    unknown = [name for name in holder if name not in set(known)]
    for name in unknown:
        del holder[name]
    return [f"{path}{name}" for name in unknown]


def check_type(value: Any, wanted: str, place: str) -> None:
    """`wanted` as Go spells the type, `[]T` and `map[string]T` for any T. Raises UndecodableError; null always fits."""
    if value is None:
        return
    if wanted.startswith("map[string]"):
        expected: type = dict
    elif wanted.startswith("[]") and wanted != "[]uint8":
        expected = list
    else:
        expected = _PYTHON_TYPES.get(wanted, str if wanted == "[]uint8" else dict)
    # In Python True is an int, in JSON it is none.
    if not isinstance(value, expected) or (expected is int and isinstance(value, bool)):
        found = _GO_NAMES[type(value)]
        raise UndecodableError(f"json: cannot unmarshal {found} into Go struct field {place} of type {wanted}")


def read_outline(obj: Object) -> list[str]:
    """What must hold for kinds whose members are stored as they are written: these are objects. Null is left out."""
    for member, wanted in _PARTS.items():
        if obj.get(member, ()) is None:
            del obj[member]
        check_type(obj.get(member), wanted.format(obj["kind"]), f"{obj['kind']}.{member}")
    return []


def read_map(holder: Object, name: str, element: str, place: str) -> dict[str, Any]:
    """The map `holder[name]`, empty where there is none; each of its values must be an `element`, or null."""
    check_type(holder.get(name), f"map[string]{element}", place)
    found: dict[str, Any] = holder.get(name) or {}
    for value in found.values():
        check_type(value, element, place)
    return found

"""The members of Kubernetes' own kinds, read as Go reads them: unknown ones, those of the wrong type, and times. Pure.

`Secret` and `Service` are checked in full because people write them by hand, of the others only the outline. The
messages are those of Go's JSON decoder. Kubernetes has two types of times, and reads each of them in exactly one form;
so do we.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from headrace.dev.api.objects import Object, micro_time
from headrace.dev.api.status import StatusError, UndecodableError, bad_request

ROOT: Final = frozenset({"apiVersion", "kind", "metadata"})
_GO_NAMES = {bool: "bool", int: "number", float: "number", str: "string", list: "array", dict: "object"}
_PARTS: Final = {
    "spec": "v1.{}Spec",
    "status": "v1.{}Status",
    "involvedObject": "v1.ObjectReference",
    "regarding": "v1.ObjectReference",
}
_PYTHON_TYPES: Mapping[str, type] = {"string": str, "v1.SecretType": str, "bool": bool, "int32": int}
_Layout = tuple[tuple[str, str], ...]
"""The parts of a moment: as Go's layouts spell them, and as they are recognised."""
_SECONDS: _Layout = (
    ("2006", r"\d{4}"),
    ("-", "-"),
    ("01", r"\d\d"),
    ("-", "-"),
    ("02", r"\d\d"),
    ("T", "T"),
    ("15", r"\d\d"),
    (":", ":"),
    ("04", r"\d\d"),
    (":", ":"),
    ("05", r"\d\d"),
)
_ZONE = ("Z07:00", r"Z|[+-]\d\d:\d\d")
_TIME: _Layout = (*_SECONDS, _ZONE)
_MICRO_TIME: _Layout = (*_SECONDS, (".000000", r"\.\d{6}(?!\d)"), _ZONE)
_FORM = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)")


def drop_unknown(holder: Object, known: Iterable[str], path: str = "") -> list[str]:
    """Remove the members that are no known fields, and return their paths, in the order of the document."""
    unknown = [name for name in holder if name not in set(known)]
    for name in unknown:
        del holder[name]
    return [f"{path}{name}" for name in unknown]


def check_type(value: Any, wanted: str, place: str) -> None:
    """Check a type; `wanted` is spelled as in Go, `[]T` and `map[string]T` for any T. Raises UndecodableError; null
    always fits."""
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
    """Check what must hold for kinds whose members are stored as they are written: these are objects. Null is left
    out."""
    for member, wanted in _PARTS.items():
        if obj.get(member, ()) is None:
            del obj[member]
        check_type(obj.get(member), wanted.format(obj["kind"]), f"{obj['kind']}.{member}")
    return []


def read_map(holder: Object, name: str, element: str, place: str) -> dict[str, Any]:
    """Return the map `holder[name]`, empty where there is none; each of its values must be an `element`, or null."""
    check_type(holder.get(name), f"map[string]{element}", place)
    found: dict[str, Any] = holder.get(name) or {}
    for value in found.values():
        check_type(value, element, place)
    return found


def check_micro_times(kind: str, holder: Object, names: Iterable[str]) -> None:
    """Bring the MicroTimes of `holder` to UTC. Raises StatusError 400 where one has no six digits of a second."""
    for name in names:
        if holder.get(name) is not None:
            holder[name] = _normalized(kind, holder[name])


def check_times(kind: str, holder: Object, names: Iterable[str]) -> None:
    """Raise StatusError 400 where a Time of `holder` is none."""
    for name in names:
        if holder.get(name) is not None and not is_date_time(holder[name]):
            raise _unreadable(kind, holder[name], _TIME)


def is_date_time(text: object) -> bool:
    """Return whether the text is RFC 3339: a date, a time, and a zone."""
    try:
        return isinstance(text, str) and datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _normalized(kind: str, text: object) -> str:
    if not isinstance(text, str) or not _FORM.fullmatch(text):
        raise _unreadable(kind, text, _MICRO_TIME)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise _unreadable(kind, text, _MICRO_TIME) from error
    return micro_time(moment.astimezone(UTC))


def _unreadable(kind: str, text: object, layout: _Layout) -> StatusError:
    """Return 400 in the words of Go's `time.Parse`, which names the first part that does not fit its layout."""
    return bad_request(f'{kind} in version "v1" cannot be handled as a {kind}: parsing time {_complaint(text, layout)}')


def _complaint(text: object, layout: _Layout) -> str:
    rest = str(text)
    spelled = "".join(part for part, _ in layout)
    for part, pattern in layout:
        found = re.match(pattern, rest)
        if found is None:
            return f'"{text}" as "{spelled}": cannot parse "{rest}" as "{part}"'
        rest = rest[found.end() :]
    return f'"{text}": extra text: "{rest}"' if rest else f'"{text}": {_out_of_range(str(text))} out of range'


def _out_of_range(text: str) -> str:
    bounds = {"month": (5, 12), "hour": (11, 23), "minute": (14, 59), "second": (17, 59)}
    return next((unit for unit, (at, last) in bounds.items() if int(text[at : at + 2]) > last), "day")

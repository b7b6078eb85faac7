"""`metadata.managedFields`: which manager owns which fields, by which operation. Pure.

    Apply      the fields of the applied object are its manager's, and of others only where they say the same
    Update     the fields that a write changes are its manager's, and no other's any more
    removed    a field that is removed has no owner

An object without managedFields (kept from before they were recorded, or reset by `[{}]`) stays without them until it is
applied; then what it had is owned by `before-first-apply`. At most `DEV_UPDATE_MANAGERS_MAX` updaters are kept apart,
the oldest of more become one. Called by `operations` and `server_side_apply`.
"""

import json
from dataclasses import dataclass, replace
from typing import Any, Final

from headrace.dev.api.field_sets import Comparison, FieldSet, Path, compare, decode, encode
from headrace.dev.api.objects import Object
from headrace.dev.api.schemas import Shape

DEV_UPDATE_MANAGERS_MAX = 10
"""The number of writers of an object that are kept apart in its managedFields, beside those that apply it."""


APPLY: Final = "Apply"
UPDATE: Final = "Update"
_FIELDS_TYPE: Final = "FieldsV1"
_BEFORE_FIRST_APPLY: Final = "before-first-apply"
_OLD_UPDATES: Final = "ancient-changes"
_IN_META: Final = ("name", "namespace", "creationTimestamp", "selfLink", "uid", "generation", "managedFields")
_OWNERLESS: Final[FieldSet] = frozenset(
    {("f:apiVersion",), ("f:kind",), ("f:metadata",)}
    | {("f:metadata", f"f:{name}") for name in (*_IN_META, "resourceVersion")}
)
"""The fields that the API server itself writes in an object."""
_STATUS: Final = "f:status"
_BLANK_POD: Final[Object] = {"containers": None}
_BLANK_SET: Final[Object] = {"template": {"metadata": {}, "spec": _BLANK_POD}, "updateStrategy": {}}
_NO_TIMES: Final = dict.fromkeys(("firstTimestamp", "lastTimestamp", "eventTime"))
_BLANKS: Final[dict[str, Object]] = {
    "Pod": {"spec": _BLANK_POD, "status": {}},
    "StatefulSet": {"spec": _BLANK_SET, "status": {}},
    "CustomResourceDefinition": {"spec": {"names": {}}, "status": {}},
    "Event": {"source": {}, "reportingComponent": "", "reportingInstance": "", **_NO_TIMES},
}


@dataclass(frozen=True, slots=True, order=True)
class Manager:
    """An owner of fields. One name may be several managers, by different operations and subresources."""

    name: str
    operation: str
    api_version: str
    """The version; empty for appliers: one that applies another version is the same."""
    subresource: str

    def __str__(self) -> str:
        """Return the name as conflicts have it."""
        by = f' with subresource "{self.subresource}"' if self.subresource else ""
        using = f" using {self.api_version}" if self.operation == UPDATE else ""
        return f'"{self.name}"{by}{using}'


@dataclass(frozen=True, slots=True)
class Entry:
    """The fields that one manager owns."""

    fields: FieldSet
    api_version: str
    time: str


Managed = dict[Manager, Entry]


@dataclass(frozen=True, slots=True)
class Author:
    """The author of a change: the manager, the subresource, the time, and the shape of the object."""

    name: str
    api_version: str
    subresource: str
    shape: Shape
    is_custom: bool
    keeps_status_apart: bool
    """True where the kind has a `status` subresource: the object and its status are then written by separate
    requests."""
    time: str

    def manager(self, operation: str) -> Manager:
        return Manager(self.name, operation, self.api_version if operation == UPDATE else "", self.subresource)

    def entry(self, fields: FieldSet) -> Entry:
        return Entry(fields - _OWNERLESS, self.api_version, self.time)

    def reaches(self, path: Path) -> bool:
        """Return whether a write of this author can change the field."""
        return not self.keeps_status_apart or (path[0] == _STATUS) == (self.subresource == "status")

    def within_reach(self, fields: FieldSet) -> FieldSet:
        return frozenset(filter(self.reaches, fields))

    def compare(self, old: Object, new: Object) -> Comparison:
        """Return the difference, in the part that this author can write."""
        found = compare(bare(old), bare(new), self.shape)
        return Comparison(set(filter(self.reaches, found.written)), set(filter(self.reaches, found.removed)))


def bare(obj: Object) -> Object:
    """Return the object without its managedFields."""
    meta = obj.get("metadata", {})
    return obj | {"metadata": {name: value for name, value in meta.items() if name != "managedFields"}}


def read_managed(entries: Any) -> Managed:
    """Read managedFields. Raises ValueError where one of them is none."""
    return dict(_read_entry(entry) for entry in entries or ())


def write_managed(managed: Managed) -> list[Object]:
    """Return the entries, appliers first, then by time and name."""

    def rank(manager: Manager) -> tuple[str, ...]:
        entry = managed[manager]
        return manager.operation, entry.time, manager.name, entry.api_version, manager.subresource

    return [_written_entry(manager, managed[manager]) for manager in sorted(managed, key=rank)]


def updated(author: Author, old: Object | None, new: Object, said: Any) -> list[Object]:
    """Return the managedFields of `new`, which `author` wrote over `old` (None: created), with `said` as the
    managedFields in it."""
    if old is None:
        return write_managed(_taken(author, {}, _created(author, new)))
    found = _starting_point(author, old, said)
    return write_managed(_taken(author, found, author.compare(old, new)) if found else found)


def before_first_apply(author: Author, live: Object) -> Managed:
    """Return the owners in an object without managedFields that is applied for the first time."""
    first = replace(author, name=_BEFORE_FIRST_APPLY)
    return _taken(first, {}, _created(first, live))


def without_fields(managed: Managed, lost: set[Path]) -> Managed:
    """Remove these fields from all owners; an owner without fields is not listed."""
    left = {manager: replace(entry, fields=entry.fields - lost) for manager, entry in managed.items()}
    return {manager: entry for manager, entry in left.items() if entry.fields}


def stamped(obj: Object, old: Object, entries: list[Object]) -> Object:
    """Return `obj` with its managedFields; `old` itself where nothing but their times has changed: such a write is
    none."""
    before, now = (_by_writer(found) for found in (old["metadata"].get("managedFields", []), entries))
    if before == now and bare(obj) == bare(old):
        return old
    obj["metadata"].pop("managedFields", None)
    if entries:
        obj["metadata"]["managedFields"] = entries
    return obj


def _by_writer(entries: list[Object]) -> list[Object]:
    """Return the entries without times and without their order."""
    timeless = [{name: value for name, value in entry.items() if name != "time"} for entry in entries]
    return sorted(timeless, key=lambda entry: json.dumps(entry, sort_keys=True))


def _starting_point(author: Author, old: Object, said: Any) -> Managed:
    """Return the managedFields to start from, which a writer may rewrite: `kubectl apply --server-side` does, for
    objects that it applied otherwise before."""
    if not author.subresource:
        if said == [{}]:
            return {}
        try:
            if found := read_managed(said):
                return found
        except ValueError:
            pass
    try:
        return read_managed(old["metadata"].get("managedFields"))
    except ValueError:
        return {}


def _created(author: Author, new: Object) -> Comparison:
    found = author.compare(_blank(author, new), new)
    allotted = () if author.is_custom else _ALLOTTED.get(new["kind"], ())
    return Comparison({path for path in found.written if not any(path[: len(a)] == a for a in allotted)})


def _taken(author: Author, managed: Managed, difference: Comparison) -> Managed:
    """Return the owners after an update: its author owns what it wrote."""
    left = without_fields(managed, difference.written | difference.removed)
    own = author.entry(frozenset(difference.written))
    if own.fields:
        me = author.manager(UPDATE)
        before = left[me].fields if me in left else frozenset()
        left[me] = replace(own, fields=own.fields | before)
    return _capped(left)


def _capped(managed: Managed) -> Managed:
    updaters = sorted((m for m in managed if m.operation == UPDATE), key=lambda m: (managed[m].time, m))
    surplus = len(updaters) - DEV_UPDATE_MANAGERS_MAX
    if surplus <= 0:
        return managed
    merged = updaters[: surplus + 1]
    newest = managed[merged[-1]]
    fields = frozenset[Path]().union(*(managed[manager].fields for manager in merged))
    left = {manager: entry for manager, entry in managed.items() if manager not in merged}
    return left | {Manager(_OLD_UPDATES, UPDATE, newest.api_version, ""): replace(newest, fields=fields)}


def _blank(author: Author, obj: Object) -> Object:
    """Return what a new object was before: Kubernetes' own kinds have some parts even when no writer gave them."""
    if author.is_custom:
        return {}
    return {"metadata": {"creationTimestamp": None}, **_BLANKS.get(obj["kind"], {"spec": {}, "status": {}})}


_ALLOTTED: Final[dict[str, tuple[Path, ...]]] = {
    "Namespace": (("f:spec", "f:finalizers"),),
    "CustomResourceDefinition": (("f:metadata", "f:finalizers"),),
    "Service": tuple(("f:spec", f"f:{name}") for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")),
}
"""The fields that the server gives a new object, and that have no owner."""


def _read_entry(entry: Any) -> tuple[Manager, Entry]:
    operation, version = entry.get("operation"), entry.get("apiVersion", "")
    if operation not in (APPLY, UPDATE) or entry.get("fieldsType", _FIELDS_TYPE) != _FIELDS_TYPE:
        raise ValueError(f"no entry of managedFields: {entry!r}")
    name, subresource = entry.get("manager", ""), entry.get("subresource", "")
    manager = Manager(name, operation, version if operation == UPDATE else "", subresource)
    return manager, Entry(decode(entry.get("fieldsV1", {})), version, entry.get("time", ""))


def _written_entry(manager: Manager, entry: Entry) -> Object:
    written: Object = {"manager": manager.name, "operation": manager.operation, "apiVersion": entry.api_version}
    if entry.time:
        written["time"] = entry.time
    written |= {"fieldsType": _FIELDS_TYPE, "fieldsV1": encode(entry.fields)}
    if manager.subresource:
        written["subresource"] = manager.subresource
    return written

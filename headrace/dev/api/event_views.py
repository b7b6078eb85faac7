"""Events in their two forms: core/v1, in which they are stored, and events.k8s.io/v1, a view of the same objects.

Pure. The two forms hold the same under other names; `_NAMES` is the whole difference.
"""

from datetime import datetime
from typing import Any

from headrace.dev.api.json_path import find
from headrace.dev.api.kinds import Column
from headrace.dev.api.moments import check_micro_times, check_times
from headrace.dev.api.objects import GroupResource, Object
from headrace.dev.api.status import invalid, invalid_value
from headrace.dev.api.tables import age_at, name_column

_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
"""core/v1 name -> events.k8s.io/v1 name."""

EVENT_FIELDS = frozenset(
    {"reason", "type", "source", "reportingComponent"}
    | {
        f"involvedObject.{member}"
        for member in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
    }
)


def to_core_event(view: Object) -> Object:
    return _renamed(view, {new: old for old, new in _NAMES.items()}) | {"apiVersion": "v1"}


def from_core_event(event: Object) -> Object:
    return _renamed(event, _NAMES) | {"apiVersion": "events.k8s.io/v1"}


def complete_event(obj: Object, old: Object | None, now: datetime) -> None:
    """The members that clients expect to be there. Raises StatusError where the event is about another namespace."""
    check_micro_times("Event", obj, ("eventTime",))
    check_times("Event", obj, ("firstTimestamp", "lastTimestamp"))
    about = obj.setdefault("involvedObject", {})
    namespace = obj["metadata"].get("namespace", "")
    # Events of cluster-wide objects carry no namespace and live in `default`.
    if about.get("namespace", "") != namespace and not (namespace == "default" and not about.get("namespace")):
        cause = invalid_value("involvedObject.namespace", about.get("namespace", ""), "does not match event.namespace")
        raise invalid(GroupResource("", "Event"), obj["metadata"]["name"], [cause])
    obj.setdefault("source", {})
    for member in ("firstTimestamp", "lastTimestamp", "eventTime"):
        obj.setdefault(member, None)
    for member in ("reportingComponent", "reportingInstance"):
        obj.setdefault(member, "")


def _renamed(obj: Object, names: dict[str, str]) -> Object:
    return {names.get(name, name): value for name, value in obj.items()}


def _in_core_form(obj: Object) -> Object:
    return obj if "involvedObject" in obj else to_core_event(obj)


def _text(path: str) -> Any:
    return lambda obj, now: find(_in_core_form(obj), path) or ""


def _about(obj: Object, now: datetime) -> str:
    about = _in_core_form(obj)["involvedObject"]
    return f"{about.get('kind', '').lower()}/{about.get('name', '')}"


def _source(obj: Object, now: datetime) -> str:
    event = _in_core_form(obj)
    source = event.get("source") or {}
    component = source.get("component") or event.get("reportingComponent") or ""
    return f"{component}, {source['host']}" if source.get("host") else str(component)


def _seen(member: str) -> Any:
    def cell(obj: Object, now: datetime) -> str:
        event = _in_core_form(obj)
        return age_at(event, f".{member}" if event.get(member) else ".eventTime", now)

    return cell


def _count(obj: Object, now: datetime) -> int:
    event = _in_core_form(obj)
    series = event.get("series") or {}
    return int(series.get("count") or event.get("count") or 1)


EVENT_COLUMNS = (
    Column("Last Seen", "string", "When the event was last seen.", _seen("lastTimestamp")),
    Column("Type", "string", "Normal or Warning.", _text(".type")),
    Column("Reason", "string", "Why the event was recorded, in one word.", _text(".reason")),
    Column("Object", "string", "The object that the event is about.", _about),
    Column("Subobject", "string", "The part of the object.", _text(".involvedObject.fieldPath"), 1),
    Column("Source", "string", "Who recorded the event.", _source, 1),
    Column("Message", "string", "What happened.", lambda obj, now: _text(".message")(obj, now).strip()),
    Column("First Seen", "string", "When the event was first seen.", _seen("firstTimestamp"), 1),
    Column("Count", "string", "How often the event was seen.", _count, 1),
    Column("Name", "string", "The event's own name.", name_column().cell, 1, "name"),
)

"""Tables, which `kubectl get` prints. The server computes the cells, the client only aligns them. Pure.

A printer column names its value by a JSONPath: `.spec.partitions`, `.status.conditions[?(@.type=="Ready")].status`. A
path is parsed once into steps; `find_by_path` gives the first value that it leads to, or None.
"""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any

from headrace.dev.api.kinds import ResourceKind, TableColumn
from headrace.dev.api.objects import Object

_STEP = re.compile(
    r"""\.(?P<name>[\w/-]+(?:\\\.[\w/-]+)*)
      | \[(?P<index>\d+)\]
      | \[['"](?P<quoted>[^'"]+)['"]\]
      | \[\?\(@\.(?P<field>[\w.]+)\s*==\s*(?P<mark>["'])(?P<wanted>.*?)(?P=mark)\)\]
      | (?P<all>\[\*\]|\.\*)
    """,
    re.VERBOSE,
)
_Step = Callable[[list[Any]], list[Any]]
_NAME_DESCRIPTION = (
    "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a "
    "client to request the generation of an appropriate name automatically."
)
_AGE_DESCRIPTION = "How long ago the object was created."


def find_by_path(obj: Any, path: str) -> Any:
    """Return the first value at `path`; None where there is none. Raises ValueError for a path of another form."""
    found = [obj]
    for step in _steps(path):
        found = step(found)
    return found[0] if found else None


@lru_cache(maxsize=256)
def _steps(path: str) -> tuple[_Step, ...]:
    steps: list[_Step] = []
    at = 0
    while at < len(path):
        part = _STEP.match(path, at)
        if part is None:
            raise ValueError(f"{path!r} is not a JSONPath that printer columns use, from {path[at:]!r} on")
        steps.append(_step(part))
        at = part.end()
    return tuple(steps)


def _step(part: re.Match[str]) -> _Step:
    if part["index"]:
        index = int(part["index"])
        return lambda found: [v[index] for v in found if isinstance(v, list) and index < len(v)]
    if part["field"]:
        names, wanted = part["field"].split("."), part["wanted"]
        return lambda found: [c for v in found if isinstance(v, list) for c in v if _at(c, names) == wanted]
    if part["all"]:
        return lambda found: [child for v in found for child in (v.values() if isinstance(v, dict) else v)]
    name = part["quoted"] or part["name"].replace("\\.", ".")
    return lambda found: [v[name] for v in found if isinstance(v, dict) and name in v]


def _at(value: Any, names: list[str]) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


class IncludeObject(StrEnum):
    """The part of its object that a row carries (query parameter `includeObject`)."""

    NONE = "None"
    METADATA = "Metadata"
    OBJECT = "Object"


def table(kind: ResourceKind, objects: Sequence[Object], meta: Object, include: IncludeObject, now: datetime) -> Object:
    """Return a Table of `objects`, which are in the form of `kind`."""
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": meta,
        "columnDefinitions": [_definition(column) for column in kind.columns],
        "rows": [_row(kind, obj, include, now) for obj in objects],
    }


def partial_metadata(obj: Object) -> Object:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def name_column() -> TableColumn:
    return TableColumn(
        "Name", "string", _NAME_DESCRIPTION, lambda obj, now: obj["metadata"].get("name", ""), format="name"
    )


def age_column() -> TableColumn:
    return TableColumn(
        "Age", "string", _AGE_DESCRIPTION, lambda obj, now: age_at(obj, ".metadata.creationTimestamp", now)
    )


def path_column(name: str, type_: str, path: str, priority: int = 0, description: str = "") -> TableColumn:
    """Return a column that shows the value at a JSONPath: null where there is none, an age where the type is `date`."""

    def cell(obj: Object, now: datetime) -> Any:
        return age_at(obj, path, now) if type_ == "date" else _shown(find_by_path(obj, path), type_)

    return TableColumn(name, type_, description, cell, priority)


def age_at(obj: Object, path: str, now: datetime) -> str:
    """Return how long before `now` the moment at `path` lies, as Kubernetes abbreviates it."""
    stamp = find_by_path(obj, path)
    if stamp is None:
        return "<unknown>"
    try:
        moment = datetime.fromisoformat(stamp)
    except (TypeError, ValueError):
        return "<invalid>"
    return human_duration(now - (moment if moment.tzinfo else moment.replace(tzinfo=UTC)))


def human_duration(elapsed: timedelta) -> str:
    """Return a duration, two units where they are small, one where they are large: 95s, 3m20s, 14m, 2h5m, 30h, 3d4h,
    12d, 2y100d."""
    seconds = int(elapsed.total_seconds())
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86_400
    if seconds < -1:
        return "<invalid>"
    if seconds < 120:
        return f"{max(seconds, 0)}s"
    if minutes < 10:
        return _pair(minutes, "m", seconds % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _pair(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if hours < 192:
        return _pair(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    years = days // 365
    return _pair(years, "y", days % 365, "d") if years < 8 else f"{years}y"


def _pair(great: int, great_unit: str, small: int, small_unit: str) -> str:
    return f"{great}{great_unit}{small}{small_unit}" if small else f"{great}{great_unit}"


def _definition(column: TableColumn) -> Object:
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    }


def _row(kind: ResourceKind, obj: Object, include: IncludeObject, now: datetime) -> Object:
    shown: dict[IncludeObject, Object | None] = {
        IncludeObject.NONE: None,
        IncludeObject.METADATA: partial_metadata(obj),
        IncludeObject.OBJECT: obj,
    }
    return {"cells": [column.cell(obj, now) for column in kind.columns], "object": shown[include]}


def _shown(value: Any, type_: str) -> Any:
    """Return the value where it has the column's type, else null, as for custom columns on a cluster."""
    match type_:
        case "integer":
            return value if isinstance(value, int) and not isinstance(value, bool) else None
        case "number":
            return value if isinstance(value, int | float) and not isinstance(value, bool) else None
        case "boolean":
            return value if isinstance(value, bool) else None
        case _:
            return value if value is None or isinstance(value, str) else str(value)

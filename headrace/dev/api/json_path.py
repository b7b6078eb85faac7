"""The JSONPath of printer columns: `.spec.partitions`, `.status.conditions[?(@.type=="Ready")].status`. Pure.

A path is parsed once into steps; `find` gives the first value that it leads to, or None.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

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


def find(obj: Any, path: str) -> Any:
    """The first value at `path`; None where there is none. Raises ValueError for a path of another form."""
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

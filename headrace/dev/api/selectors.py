"""Label and field selectors, parsed once and asked for each object. Pure.

Labels are read by `label_selectors`. Fields: `path=value`, `path==value` and `path!=value` over the paths that a kind
offers, joined by commas; a backslash takes the meaning from a comma, an equals sign or a backslash in a value.
"""

import re
from typing import Any

from headrace.core.slotted import dataclass
from headrace.dev.api.label_selectors import Test
from headrace.dev.api.objects import Object
from headrace.dev.api.status import StatusError, bad_request

_TERM = re.compile(r"((?:[^,\\]|\\.)*)(?:,|$)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Selection:
    """What a list or watch wants to see; empty selectors match everything."""

    labels: tuple[Test, ...] = ()
    fields: tuple[tuple[str, bool, str], ...] = ()
    """(path, whether it must be equal, value)."""

    def matches(self, obj: Object) -> bool:
        found = obj["metadata"].get("labels", {})
        return all(test(found) for test in self.labels) and all(
            (field_of(obj, path) == value) is wanted for path, wanted, value in self.fields
        )


def parse_fields(text: str, offered: frozenset[str]) -> tuple[tuple[str, bool, str], ...]:
    """Raises StatusError 400 where `text` is not a field selector, or names a path that is not `offered`."""
    terms = []
    for term in filter(None, (found[1] for found in _TERM.finditer(text))):
        found = re.fullmatch(r"([^=!]*)(!=|==|=)(.*)", term, re.DOTALL)
        if found is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        path, operator, value = found.groups()
        if path not in offered:
            raise bad_request(f"field label not supported: {path}")
        terms.append((path, operator != "!=", _unescaped(value)))
    return tuple(terms)


def _unescaped(value: str) -> str:
    bare = re.sub(r"\\[\\,=]", "", value)
    if found := re.search(r"[\\,=]", bare):
        raise _unescaped_character(found[0])
    return re.sub(r"\\([\\,=])", r"\1", value)


def _unescaped_character(character: str) -> StatusError:
    return bad_request(f"invalid field selector: unescaped character in value: {ord(character)}")


def field_of(obj: Object, path: str) -> str:
    """The value at a dotted path as field selectors compare it; empty where there is none."""
    found: Any = obj
    for part in path.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    match found:
        case None:
            return ""
        case bool():
            return str(found).lower()
        case _:
            return str(found)

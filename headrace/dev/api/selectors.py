"""Label and field selectors, parsed once and asked for each object. Pure.

Labels: `a=b`, `a==b`, `a!=b`, `a in (b,c)`, `a notin (b,c)`, `a`, `!a`, `a>1`, `a<1`, joined by commas. Fields:
`path=value` and `path!=value` over the paths that a kind offers.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.dev.api.objects import Object
from headrace.dev.api.status import bad_request

_REQUIREMENT = re.compile(
    r"""\s*(?:
        (?P<absent>!)\s*(?P<absent_key>[\w./-]+)
      | (?P<set_key>[\w./-]+)\s+(?P<set>in|notin)\s*\((?P<members>[^()]*)\)
      | (?P<key>[\w./-]+)\s*(?:(?P<operator>==|=|!=|>|<)\s*(?P<value>[\w.-]*))?
    )\s*(?:,|$)""",
    re.VERBOSE,
)

_Test = Callable[[Mapping[str, str]], bool]


@dataclass(frozen=True, slots=True)
class Selection:
    """What a list or watch wants to see; empty selectors match everything."""

    labels: tuple[_Test, ...] = ()
    fields: tuple[tuple[str, bool, str], ...] = ()
    """(path, whether it must be equal, value)."""

    def matches(self, obj: Object) -> bool:
        found = obj["metadata"].get("labels", {})
        return all(test(found) for test in self.labels) and all(
            (field_of(obj, path) == value) is wanted for path, wanted, value in self.fields
        )


def parse_labels(text: str) -> tuple[_Test, ...]:
    """Raises StatusError 400 where `text` is not a label selector."""
    tests: list[_Test] = []
    at = 0
    while at < len(text):
        found = _REQUIREMENT.match(text, at)
        if found is None or found.end() == at:
            raise bad_request(f"unable to parse requirement: found '{text[at:]}', expected: a label requirement")
        tests.append(_label_test(found))
        at = found.end()
    return tuple(tests)


def parse_fields(text: str, offered: frozenset[str]) -> tuple[tuple[str, bool, str], ...]:
    """Raises StatusError 400 where `text` is not a field selector, or names a path that is not `offered`."""
    terms = []
    for term in filter(None, text.split(",")):
        found = re.fullmatch(r"\s*([^=!]+?)\s*(!=|==|=)(.*)", term)
        if found is None:
            raise bad_request(f"invalid selector: '{term}'; can't understand '{term}'")
        path, operator, value = found.groups()
        if path not in offered:
            raise bad_request(f"field label not supported: {path}")
        terms.append((path, operator != "!=", value.replace("\\,", ",")))
    return tuple(terms)


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


def _label_test(found: re.Match[str]) -> _Test:
    if found["absent"]:
        return lambda labels: found["absent_key"] not in labels
    if found["set"]:
        members = frozenset(member.strip() for member in found["members"].split(","))
        wanted = found["set"] == "in"
        # An absent label is in no set: `notin` holds for it.
        return lambda labels: (labels.get(found["set_key"]) in members) is wanted
    return _comparison(found["key"], found["operator"], found["value"] or "")


def _comparison(key: str, operator: str | None, value: str) -> _Test:
    match operator:
        case None:
            return lambda labels: key in labels
        case "=" | "==":
            return lambda labels: labels.get(key) == value
        case "!=":
            return lambda labels: labels.get(key) != value
        case _:
            if not value.isdecimal():
                raise bad_request(
                    f"unable to parse requirement: values[0][{key}]: Invalid value: for '>', '<' operators, the value "
                    "must be an integer"
                )
            above = operator == ">"
            return lambda labels: _is_beyond(labels.get(key, ""), int(value), above=above)


def _is_beyond(label: str, bound: int, *, above: bool) -> bool:
    return label.isdecimal() and (int(label) > bound if above else int(label) < bound)

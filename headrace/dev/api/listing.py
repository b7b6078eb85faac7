"""Lists of objects: which objects a list or a watch selects, and in which pages a list comes. Pure.

Label selectors are parsed in Kubernetes' own steps (apimachinery's `labels.Parse`), because its complaints name the
token that stands where another was expected, and people read them: `a=b`, `a==b`, `a!=b`, `a in (b,c)`, `a notin
(b,c)`, `a`, `!a`, `a>1`, `a<1`, joined by commas. Field selectors are `path=value`, `path==value` and `path!=value`
over the paths that a kind offers, joined by commas; a backslash takes the meaning from a comma, an equals sign or a
backslash in a value.

A token names the last object of a page; each page reads the state of its own moment.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.dev.api.object_meta import label_value_errors, qualified_name_errors
from headrace.dev.api.objects import Object, to_json
from headrace.dev.api.status import StatusError, bad_request

Test = Callable[[Mapping[str, str]], bool]

_TOKEN = re.compile(r"\s*(==|!=|[=!(),<>]|[^\s=!(),<>]+)")
_SYMBOLS = frozenset({"==", "!=", "=", "!", "(", ")", ",", "<", ">"})
_OPERATORS = ("in", "notin", "=", "==", "!=", ">", "<")
_SPELLED = "in, notin, =, ==, !=, gt, lt"
_END = ""
_TERM = re.compile(r"((?:[^,\\]|\\.)*)(?:,|$)", re.DOTALL)
_Place = tuple[str, str]
"""The namespace and the name."""


def parse_labels(text: str) -> tuple[Test, ...]:
    """Parse label selectors. Raises StatusError 400 where `text` is not a label selector."""
    return tuple(_Parser(_TOKEN.findall(text)).requirements())


@dataclass(slots=True)
class _Parser:
    tokens: list[str]
    at: int = 0

    def requirements(self) -> list[Test]:
        tests: list[Test] = []
        while (token := self._ahead()) != _END:
            if token != "!" and token in _SYMBOLS:
                raise _expected(token, "!, identifier, or 'end of string'")
            tests.append(self._requirement())
            if (token := self._take()) == _END:
                break
            if token != ",":
                raise _expected(token, "',' or 'end of string'")
            if (token := self._ahead()) == _END or (token != "!" and token in _SYMBOLS):
                raise _expected(token, "identifier after ','")
        return tests

    def _requirement(self) -> Test:
        absent = self._ahead() == "!"
        if absent:
            self._take()
        key = self._take()
        if key == _END or key in _SYMBOLS:
            raise _unparsed(f"found '{key}', expected: identifier")
        if complaints := list(qualified_name_errors(key)):
            raise _unparsed(f"<nil>: Invalid value: {to_json(key)}: {'; '.join(complaints)}")
        if absent:
            return lambda labels: key not in labels
        if self._ahead() in (_END, ","):
            return lambda labels: key in labels
        operator = self._take()
        if operator not in _OPERATORS:
            raise _unparsed(f"found '{operator}', expected: {_SPELLED}")
        values = self._members() if operator in ("in", "notin") else [self._value()]
        return _test(key, operator, values)

    def _value(self) -> str:
        if self._ahead() in (_END, ","):
            return ""
        token = self._take()
        if token in _SYMBOLS:
            raise _unparsed(f"found '{token}', expected: identifier")
        return token

    def _members(self) -> list[str]:
        """Return the members of `(a,b)`; a missing value between commas is the empty value."""
        if (token := self._take()) != "(":
            raise _unparsed(f"found '{token}' expected: '('")
        members: list[str] = []
        while True:
            members.append(self._member())
            match self._take():
                case ")":
                    return members
                case ",":
                    continue
                case token:
                    raise _unparsed(f"found '{token}', expected: ',' or ')'")

    def _member(self) -> str:
        if self._ahead() in (",", ")"):
            return ""
        token = self._take()
        if token == _END or token in _SYMBOLS:
            raise _unparsed(f"found '{token}', expected: ',', ')' or identifier")
        return token

    def _ahead(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else _END

    def _take(self) -> str:
        token = self._ahead()
        self.at += 1
        return token


def _test(key: str, operator: str, values: list[str]) -> Test:
    for index, value in enumerate(values):
        if complaints := list(label_value_errors(value)):
            raise _unparsed(f"values[{index}][{key}]: Invalid value: {to_json(value)}: {'; '.join(complaints)}")
    first = values[0]
    match operator:
        case "in":
            return lambda labels: labels.get(key) in values
        case "notin":
            # An absent label is in no set: `notin` holds for it.
            return lambda labels: labels.get(key) not in values
        case "=" | "==":
            return lambda labels: labels.get(key) == first
        case "!=":
            return lambda labels: labels.get(key) != first
        case _:
            return _comparison(key, operator, first)


def _comparison(key: str, operator: str, value: str) -> Test:
    if not value.isdecimal():
        rule = "for 'Gt', 'Lt' operators, the value must be an integer"
        raise _unparsed(f"values[0]: Invalid value: {to_json(value)}: {rule}")
    bound, above = int(value), operator == ">"

    def is_beyond(labels: Mapping[str, str]) -> bool:
        label = labels.get(key, "")
        return label.isdecimal() and (int(label) > bound if above else int(label) < bound)

    return is_beyond


def _expected(found: str, wanted: str) -> StatusError:
    return bad_request(f"found '{found}', expected: {wanted}")


def _unparsed(why: str) -> StatusError:
    return bad_request(f"unable to parse requirement: {why}")


@dataclass(frozen=True, slots=True)
class Selection:
    """The objects that a list or watch selects; empty selectors match everything."""

    labels: tuple[Test, ...] = ()
    fields: tuple[tuple[str, bool, str], ...] = ()
    """The field tests as (path, whether it must be equal, value)."""

    def matches(self, obj: Object) -> bool:
        found = obj["metadata"].get("labels", {})
        return all(test(found) for test in self.labels) and all(
            (field_of(obj, path) == value) is wanted for path, wanted, value in self.fields
        )


def parse_fields(text: str, offered: frozenset[str]) -> tuple[tuple[str, bool, str], ...]:
    """Parse field selectors. Raises StatusError 400 where `text` is none, or names a path that is not `offered`."""
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
    """Return the value at a dotted path as field selectors compare it; empty where there is none."""
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


@dataclass(frozen=True, slots=True)
class ListOptions:
    selection: Selection = field(default_factory=Selection)
    limit: int = 0
    """The size of a page; 0: all."""
    after: str = ""
    """The `continue` token of the page before."""
    not_older_than: int = 0


@dataclass(frozen=True, slots=True)
class ListPage:
    objects: list[Object]
    revision: int
    rest: str = ""
    """The `continue` token of the next page; empty on the last."""
    remaining: int = 0


def page_of(objects: list[Object], revision: int, options: ListOptions) -> ListPage:
    """Return the page of `objects`, sorted by place, that `options` ask for. Raises StatusError 400 for a bad token."""
    found = [obj for obj in objects if options.selection.matches(obj)]
    if options.after:
        start = _read_token(options.after)
        found = [obj for obj in found if _place(obj) > start]
    page = found[: options.limit] if options.limit else found
    rest = _write_token(_place(page[-1])) if len(page) < len(found) else ""
    return ListPage(page, revision, rest, len(found) - len(page))


def _place(obj: Object) -> _Place:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _write_token(place: _Place) -> str:
    return base64.urlsafe_b64encode(to_json(place).encode()).decode()


def _read_token(token: str) -> _Place:
    try:
        namespace, name = json.loads(base64.urlsafe_b64decode(token))
    except (binascii.Error, ValueError, TypeError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from error
    return str(namespace), str(name)

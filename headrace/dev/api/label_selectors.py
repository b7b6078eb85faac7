"""Label selectors as text: `a=b`, `a==b`, `a!=b`, `a in (b,c)`, `a notin (b,c)`, `a`, `!a`, `a>1`, `a<1`, by commas.

A parser in Kubernetes' own steps (apimachinery's `labels.Parse`), because its complaints name what stands where
something else was expected, and people read them. Pure; called by `selectors`.
"""

import re
from collections.abc import Callable, Mapping

from headrace.core.slotted import dataclass
from headrace.dev.api.object_meta import label_value_errors, qualified_name_errors
from headrace.dev.api.objects import to_json
from headrace.dev.api.status import StatusError, bad_request

Test = Callable[[Mapping[str, str]], bool]

_TOKEN = re.compile(r"\s*(==|!=|[=!(),<>]|[^\s=!(),<>]+)")
_SYMBOLS = frozenset({"==", "!=", "=", "!", "(", ")", ",", "<", ">"})
_OPERATORS = ("in", "notin", "=", "==", "!=", ">", "<")
_SPELLED = "in, notin, =, ==, !=, gt, lt"
_END = ""


def parse_labels(text: str) -> tuple[Test, ...]:
    """Raises StatusError 400 where `text` is not a label selector."""
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
        """`(a,b)`; what a comma leaves out is the empty value."""
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

"""CEL rules: where they apply, what they see, how they fail."""

from typing import Any

from headrace.dev.api.schemas import Schema
from headrace.dev.api.validation import check_object


def _ruled(rule: str, type_: str = "integer", **more: Any) -> dict[str, Any]:
    return {"type": type_, "x-kubernetes-validations": [{"rule": rule, **more}]}


def _check(value: Any, raw: dict[str, Any], old: Any = None) -> list[str]:
    return [str(cause) for cause in check_object(value, Schema.parse(raw), old)]


def test_should_show_the_rule_where_it_has_no_message() -> None:
    raw = {"type": "object", "properties": {"a": _ruled("self > 3")}}
    assert _check({"a": 2}, raw) == ["a: Invalid value: 2: failed rule: self > 3"]


def test_should_put_the_error_at_the_field_that_the_rule_names() -> None:
    raw = _ruled("self.a < self.b", "object", message="a must be below b", fieldPath=".a")
    raw["properties"] = {"a": {"type": "integer"}, "b": {"type": "integer"}}
    assert _check({"a": 2, "b": 1}, raw) == [".a: Invalid value: a must be below b"]


def test_should_compare_list_elements_by_their_keys() -> None:
    element = {"type": "object", "properties": {"k": {"type": "string"}, "v": _ruled("self >= oldSelf")}}
    keyed = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": element}
    raw = {"type": "object", "properties": {"l": keyed}}
    old = {"l": [{"k": "a", "v": 5}, {"k": "b", "v": 1}]}

    assert _check({"l": [{"k": "b", "v": 2}, {"k": "a", "v": 4}, {"k": "c", "v": 0}]}, raw, old) == [
        "l[1].v: Invalid value: 4: failed rule: self >= oldSelf"
    ]


def test_should_know_no_old_elements_in_other_lists() -> None:
    raw = {"type": "object", "properties": {"l": {"type": "array", "items": _ruled("self >= oldSelf")}}}
    assert _check({"l": [1]}, raw, {"l": [5]}) == []


def test_should_not_judge_what_has_not_changed() -> None:
    raw = {"type": "object", "properties": {"a": _ruled("self > 3"), "b": {"type": "integer"}}}
    assert _check({"a": 2, "b": 2}, raw, {"a": 2, "b": 1}) == []


def test_should_report_a_rule_that_cannot_be_evaluated() -> None:
    raw = {"type": "object", "properties": {"a": {"type": "object", **_ruled("self.missing > 3", "object")}}}
    (said,) = _check({"a": {}}, raw)
    assert said.startswith("a: Invalid value: rule evaluation error: ")

"""Server-side apply: what its manager owns stays as applied, and nothing of anybody else's is lost."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.dev.api.field_sets import fields_of, with_structs
from headrace.dev.api.managed_fields import Author, bare, stamped, updated
from headrace.dev.api.objects import Object, copy_of
from headrace.dev.api.schemas import Schema, custom_shape
from headrace.dev.api.server_side_apply import apply, without
from headrace.dev.api.status import StatusError

_TEXT = {"type": "string"}
_PORT = {
    "type": "object",
    "properties": {"port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}, "name": _TEXT},
}
_SPEC = {
    "type": "object",
    "properties": {
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": _TEXT},
        "ports": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["port", "protocol"],
            "items": _PORT,
        },
        "whole": {"type": "array", "items": {"type": "integer"}},
        "atom": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": _TEXT},
        "names": {"type": "object", "additionalProperties": _TEXT},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
_SHAPE = custom_shape(Schema.parse({"type": "object", "properties": {"spec": _SPEC}}))
_WORDS = st.sampled_from("abc")
_MAPS = st.dictionaries(_WORDS, _WORDS, min_size=1, max_size=3)
_PORTS = st.lists(
    st.fixed_dictionaries({"port": st.integers(1, 3)}, optional={"name": _WORDS}),
    unique_by=lambda p: p["port"],
    min_size=1,
    max_size=3,
)
_MEMBERS: dict[str, st.SearchStrategy[Any]] = {
    "tags": st.lists(_WORDS, unique=True, min_size=1, max_size=3),
    "ports": _PORTS,
    "whole": st.lists(st.integers(0, 2), max_size=2),
    "atom": _MAPS,
    "names": _MAPS,
    "free": st.dictionaries(_WORDS, _MAPS, min_size=1, max_size=2),
}
_SPECS = st.fixed_dictionaries({}, optional=_MEMBERS).filter(bool)


def _author(name: str = "me") -> Author:
    return Author(name, "example.org/v1", "", _SHAPE, is_custom=True, keeps_status_apart=False, time="now")


def _object(spec: Any) -> Object:
    whole = {"apiVersion": "example.org/v1", "kind": "Weir", "metadata": {"name": "w"}}
    return whole if spec is None else whole | {"spec": spec}


def _apply(live: Object | None, name: str, spec: Any) -> Object:
    done = apply(_author(name), copy_of(live) if live is not None else None, _object(spec), force=True)
    return stamped(done.object, live or {"metadata": {}}, done.managed)


def _owned(obj: Object) -> dict[str, Any]:
    return {entry["manager"]: entry["fieldsV1"] for entry in obj["metadata"].get("managedFields", [])}


@given(st.lists(st.tuples(_WORDS, _SPECS), min_size=1, max_size=4))
def test_should_hold_what_the_last_one_applied(applied: list[tuple[str, Any]]) -> None:
    live: Object | None = None
    for name, spec in applied:
        live = _apply(live, name, spec)
        assert fields_of(_object(spec), _SHAPE) <= fields_of(live, _SHAPE)
        # Applied once more it is the same: neither a field nor an owner changes.
        assert _apply(live, name, spec) == live


@given(_SPECS, _SPECS)
def test_should_leave_what_others_own_when_a_manager_applies_nothing(mine: Any, others: Any) -> None:
    both = _apply(_apply(None, "me", mine), "other", others)
    left = _apply(both, "me", None)
    assert set(_owned(left)) == {"other"}
    assert fields_of(bare(left), _SHAPE) == fields_of(_object(others), _SHAPE)


@given(_SPECS, _SPECS)
def test_should_give_an_updater_what_it_changes(first: Any, second: Any) -> None:
    live = _apply(None, "applier", first)
    changed = _object(second)
    entries = updated(_author("updater"), live, copy_of(changed), None)
    owners = {entry["manager"]: entry["fieldsV1"] for entry in entries}
    if first == second:
        assert "updater" not in owners
    else:
        written = stamped(changed, live, entries)
        assert written is not live


@given(_SPECS)
def test_should_take_out_what_it_says(spec: Any) -> None:
    obj = _object(spec)
    assert without(obj, with_structs(fields_of(obj, _SHAPE), _SHAPE), _SHAPE) is None
    assert without(obj, frozenset(), _SHAPE) == obj


def test_should_want_force_for_what_another_owns_otherwise() -> None:
    live = _apply(None, "other", {"names": {"a": "x"}, "tags": ["t"]})
    with pytest.raises(StatusError, match=r'conflict with "other": \.spec\.names\.a'):
        apply(_author(), live, _object({"names": {"a": "y"}, "tags": ["u"]}), force=False)
    shared = apply(_author(), live, _object({"names": {"a": "x", "b": "y"}, "tags": ["u"]}), force=False)
    assert shared.object["spec"] == {"names": {"a": "x", "b": "y"}, "tags": ["t", "u"]}


def test_should_own_what_becomes_of_another_type_and_its_parts() -> None:
    plain, deep = _object({"free": {"a": [1]}}), _object({"free": {"a": {"b": "x"}}})
    path = ("f:spec", "f:free", "f:a")
    there, back = _author().compare(plain, deep), _author().compare(deep, plain)
    assert (there.written, there.removed) == ({path, (*path, "f:b")}, set())
    assert (back.written, back.removed) == ({path}, {(*path, "f:b")})


def test_should_own_what_is_applied_even_where_nothing_of_it_is_left() -> None:
    live = _apply(None, "me", {"ports": [{"port": 1}], "tags": []})
    assert _owned(_apply(live, "me", {})) == {"me": {"f:spec": {}}}

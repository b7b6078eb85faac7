"""Sets of fields, and how they are written."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.dev.api.field_sets import FieldSet, decode, element_that_is, element_with, encode, in_order, member, shown

_STEPS = st.one_of(
    st.text(max_size=4).map(member),
    st.dictionaries(st.text(max_size=3), st.text(max_size=3) | st.integers(), min_size=1, max_size=2).map(element_with),
    (st.text(max_size=3) | st.integers()).map(element_that_is),
)
_SETS = st.frozensets(st.lists(_STEPS, min_size=1, max_size=4).map(tuple), max_size=8)


@given(_SETS)
def test_should_read_what_it_writes(fields: FieldSet) -> None:
    assert decode(encode(fields)) == fields


def test_should_mark_what_is_owned_beside_its_parts() -> None:
    fields = frozenset({("f:a",), ("f:a", "f:b"), ("f:c", "f:d")})
    assert encode(fields) == {"f:a": {".": {}, "f:b": {}}, "f:c": {"f:d": {}}}


@pytest.mark.parametrize("tree", [None, [], {"f:a": None}, {"spec": {}}, {"x:a": {}}, {"k:{": {}}, {"v:": {}}])
def test_should_refuse_what_is_no_set(tree: Any) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode(tree)


def test_should_show_paths_as_messages_name_them() -> None:
    keyed = element_with({"port": 80, "name": "x"})
    assert shown(("f:spec", "f:ports", keyed, "f:to")) == '.spec.ports[name="x",port=80].to'
    assert shown(("f:finalizers", 'v:"a"')) == '.finalizers[="a"]'
    assert shown(("f:list", "i:3")) == ".list[3]"


def test_should_list_members_before_what_lies_deeper() -> None:
    fields = [("f:spec", "f:a", "f:x"), ("f:spec", "f:z"), ("f:meta", "f:b")]
    assert in_order(fields) == [("f:meta", "f:b"), ("f:spec", "f:z"), ("f:spec", "f:a", "f:x")]

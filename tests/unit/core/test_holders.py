"""Nobody takes all of a good that many share."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.holders import Holders, holder_of


def taken_by(holders: Holders, names: list[str], limit: int) -> dict[str, int]:
    """Each takes as much as it may, one after the other, until nobody may take more."""
    left, before = limit, -1
    while left != before:
        before = left
        for name in names:
            if holders.room(name, left) >= 1:
                holders.add(name, 1)
                left -= 1
    return {name: holders.held(name) for name in names}


def test_should_give_one_a_half_and_two_a_third() -> None:
    assert taken_by(Holders(), ["a"], 100) == {"a": 50}
    assert taken_by(Holders(), ["a", "b"], 99) == {"a": 33, "b": 33}
    assert taken_by(Holders(), ["a"], 1) == {"a": 1}


def test_should_forget_those_who_hold_nothing() -> None:
    holders = Holders()
    holders.add("a", 2)
    holders.add("b", 3)
    holders.add("c", 3)
    assert (len(holders), holders.held("b"), holders.greatest()) == (3, 3, "b")
    holders.add("a", 0)
    for name in ("b", "c"):
        holders.add(name, -3)
    assert (len(holders), holders.held("b"), holders.greatest()) == (1, 0, "a")
    holders.add("a", -2)
    assert (len(holders), holders.greatest()) == (0, None)


def test_should_leave_the_clusters_own_work_the_whole_limit() -> None:
    holders = Holders()
    holders.add(None, 60)
    assert (holders.held(None), holders.room(None, 40), len(holders)) == (0, 40, 0)


@given(names=st.lists(st.text(max_size=3), min_size=1, max_size=9, unique=True), limit=st.integers(20, 200))
def test_should_always_leave_something_for_a_newcomer(names: list[str], limit: int) -> None:
    taken = taken_by(Holders(), names, limit)
    assert limit - sum(taken.values()) >= limit // (len(names) + 1)


@pytest.mark.parametrize(
    ("address", "holder"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("127.0.0.1", "127.0.0.1"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::1"),
        ("unknown", "unknown"),
    ],
)
def test_should_count_addresses_of_one_client_as_one(address: str, holder: str) -> None:
    assert holder_of(address) == holder

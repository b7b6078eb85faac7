"""The limit of a trigger, shared out."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.spark.offsets import shares, shares_by_bytes

_WAITING = st.dictionaries(st.integers(0, 50), st.integers(0, 10**9), max_size=20)


def test_should_share_by_what_waits_when_there_is_more_than_the_limit() -> None:
    assert shares({"a": 300, "b": 100, "c": 0}, 40) == {"a": 30, "b": 10}


def test_should_take_all_when_that_is_within_the_limit() -> None:
    assert shares({"a": 3, "b": 4}, 7) == {"a": 3, "b": 4}


def test_should_give_one_at_least_when_another_is_far_longer() -> None:
    assert shares({"short": 1, "long": 10**9}, 100) == {"short": 1, "long": 99}


def test_should_serve_the_longest_when_the_limit_is_below_their_number() -> None:
    assert shares({"a": 1, "b": 9, "c": 5}, 2) == {"b": 1, "c": 1}


@given(_WAITING, st.integers(1, 10**6))
def test_should_use_the_limit_up_and_no_more(waiting: dict[int, int], limit: int) -> None:
    taken = shares(waiting, limit)
    assert sum(taken.values()) == min(limit, sum(waiting.values()))
    assert all(0 < count <= waiting[each] for each, count in taken.items())


@given(st.integers(1, 10**6), st.lists(st.integers(1, 10**6), min_size=2, max_size=10))
def test_should_be_fair_when_all_wait_for_long(limit: int, sizes: list[int]) -> None:
    waiting = {number: size * 10**7 for number, size in enumerate(sizes)}
    total = sum(waiting.values())
    for number, count in shares(waiting, limit).items():
        assert abs(count - limit * waiting[number] / total) <= len(sizes) + 1


def test_should_take_as_many_as_fit_when_bytes_are_limited() -> None:
    taken = shares_by_bytes({"large": 100, "small": 100}, {"large": 1000.0, "small": 10.0}, 10_110)
    assert taken == {"large": 10, "small": 10}


def test_should_take_one_when_not_even_that_fits() -> None:
    assert shares_by_bytes({"a": 5, "b": 0}, {"a": 1e6}, 10) == {"a": 1}

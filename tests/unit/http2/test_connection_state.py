"""Allowances: what may come at once, what may come for ever, and what is too much."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.http2.connection_state import Allowance
from headrace.http2.events import ErrorCode, RemoteProtocolError


def spent(allowance: Allowance, now_ms: int, count: int) -> int:
    """How many went through."""
    for done in range(count):
        try:
            allowance.spend(now_ms)
        except RemoteProtocolError:
            return done
    return count


def test_should_let_so_many_through_at_once_and_so_many_a_second() -> None:
    allowance = Allowance("things", at_once=100, per_second=10)
    assert spent(allowance, 5_000, 200) == 100
    allowance = Allowance("things", at_once=100, per_second=10)
    assert spent(allowance, 5_000, 100) == 100
    assert spent(allowance, 7_000, 100) == 20
    allowance = Allowance("things", at_once=100, per_second=10)
    allowance.spend(5_000, 95)
    assert spent(allowance, 5_000, 100) == 5
    assert spent(Allowance("things", at_once=100, per_second=10), 10**9, 200) == 100, "time alone earns no more"


@given(st.lists(st.tuples(st.integers(0, 5_000), st.integers(1, 60)), max_size=40))
def test_should_never_let_more_through_than_it_says(bursts: list[tuple[int, int]]) -> None:
    allowance, now_ms, through = Allowance("things", at_once=100, per_second=10), 0, 0
    for wait_ms, count in bursts:
        now_ms += wait_ms
        done = spent(allowance, now_ms, count)
        through += done
        assert through <= 100 + now_ms // 100
        if done < count:
            return


def test_should_earn_by_work_up_to_the_bound() -> None:
    allowance = Allowance("things", at_once=100, per_second=10)
    assert spent(allowance, 0, 60) == 60
    allowance.earn(30)
    assert spent(allowance, 0, 200) == 70
    allowance = Allowance("things", at_once=100, per_second=10)
    allowance.earn(1_000)
    assert spent(allowance, 0, 200) == 100


def test_should_tell_later_of_what_was_owed() -> None:
    allowance = Allowance("things", at_once=2, per_second=10)
    for _ in range(3):
        allowance.owe()
    with pytest.raises(RemoteProtocolError, match="things faster than 10 a second, after 2 at once") as refused:
        allowance.check(10_000)
    assert refused.value.details["error_code"] == ErrorCode.ENHANCE_YOUR_CALM

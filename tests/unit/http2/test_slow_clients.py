"""Who is too slow: whoever had something to do all the time, and hardly did it."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.http2.slow_clients import Pace, Patience, Slowness

PATIENCE = Patience(stall_ms=1000, least_bytes=100, idle_ms=5000)


def test_should_judge_only_when_the_time_is_over() -> None:
    pace = Pace(PATIENCE, moved=0, now_ms=0)
    assert not pace.is_too_slow(0, 999)
    assert pace.is_too_slow(99, 1000)


def test_should_begin_anew_with_each_time() -> None:
    pace = Pace(PATIENCE, moved=0, now_ms=0)
    assert not pace.is_too_slow(100, 1000)
    assert pace.judged_ms == 2000
    assert not pace.is_too_slow(100, 1999)
    assert pace.is_too_slow(199, 2000)


def test_should_forget_who_waits_no_longer() -> None:
    slowness = Slowness[str](PATIENCE)
    assert slowness.of([("a", 0), ("b", 0)], 0) == []
    assert slowness.of([("b", 0)], 500) == []
    assert slowness.of([("a", 0), ("b", 0)], 1000) == ["b"]
    assert slowness.of([("a", 0)], 2000) == ["a"]


def test_should_look_often_enough_for_both_times() -> None:
    assert PATIENCE.check_interval_s == 0.1


@given(st.lists(st.integers(1, 400), min_size=1, max_size=50))
def test_should_never_cut_off_who_moves_twice_the_least(steps_ms: list[int]) -> None:
    slowness, now_ms = Slowness[int](PATIENCE), 0
    slowness.of([(1, 0)], 0)
    for step_ms in steps_ms:
        now_ms += step_ms
        assert slowness.of([(1, now_ms * 2 * PATIENCE.least_bytes // PATIENCE.stall_ms)], now_ms) == []

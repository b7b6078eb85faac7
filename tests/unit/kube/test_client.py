from random import Random

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.limits import API_BACKOFF_MIN_MS
from headrace.kube.client import API_BACKOFF_MAX_MS, Backoff


@given(st.integers(), st.integers(1, 40))
def test_should_stay_within_its_bounds_whatever_the_dice(seed: int, failures: int) -> None:
    backoff = Backoff(Random(seed))
    waits = [backoff.next_ms() for _ in range(failures)]
    assert all(API_BACKOFF_MIN_MS <= wait <= API_BACKOFF_MAX_MS for wait in waits)
    assert waits[0] <= 2 * API_BACKOFF_MIN_MS


def test_should_reach_long_waits_when_it_goes_on_failing() -> None:
    backoff = Backoff(Random(1))
    assert max(backoff.next_ms() for _ in range(40)) > API_BACKOFF_MAX_MS / 2


def test_should_begin_small_again_when_it_worked() -> None:
    backoff = Backoff(Random(1))
    for _ in range(10):
        backoff.next_ms()
    backoff.reset()
    assert backoff.next_ms() <= 2 * API_BACKOFF_MIN_MS


def test_should_not_march_in_step() -> None:
    assert Backoff(Random(1)).next_ms() != Backoff(Random(2)).next_ms()

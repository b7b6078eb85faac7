"""A child that was of use comes back at once; one that never gets ready waits longer each time."""

from headrace.dev.supervisor.forking import (
    RESTART_DELAY_KILLED_MAX_MS,
    RESTART_DELAY_MAX_MS,
    RESTART_DELAY_MIN_MS,
    RestartDelay,
)


def test_should_start_again_at_once_when_the_process_had_been_ready() -> None:
    assert RestartDelay(5_000).after_death(was_ready=True, was_killed=True).delay_ms == RESTART_DELAY_MIN_MS


def test_should_double_the_delay_up_to_a_bound_when_it_never_gets_ready() -> None:
    backoff, delays = RestartDelay(), []
    for _ in range(9):
        backoff = backoff.after_death(was_ready=False, was_killed=False)
        delays.append(backoff.delay_ms)
    assert delays[:4] == [100, 200, 400, 800]
    assert delays[-2:] == [RESTART_DELAY_MAX_MS, RESTART_DELAY_MAX_MS]


def test_should_not_wait_long_for_one_that_is_killed_again_and_again() -> None:
    backoff = RestartDelay()
    for _ in range(9):
        backoff = backoff.after_death(was_ready=False, was_killed=True)
    assert backoff.delay_ms == RESTART_DELAY_KILLED_MAX_MS

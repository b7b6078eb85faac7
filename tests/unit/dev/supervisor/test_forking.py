"""The programs that a fork server forks; it is never started here.

A child that was of use comes back at once; one that never gets ready waits longer each time.
"""

import os
import sys

import pytest

from headrace.dev.supervisor.fork_server import Order
from headrace.dev.supervisor.forking import (
    PROGRAMS,
    RESTART_DELAY_KILLED_MAX_MS,
    RESTART_DELAY_MAX_MS,
    RESTART_DELAY_MIN_MS,
    ForkServer,
    RestartDelay,
)

COMMAND = (sys.executable, "-m", "headrace_broker.main", "--id", "0")


def test_should_fork_each_of_its_programs() -> None:
    for module in PROGRAMS:
        assert ForkServer().can_fork((sys.executable, "-m", module), os.environ)


@pytest.mark.parametrize(
    "command",
    [
        (sys.executable, "-m", "http.server"),
        (sys.executable, "-c", "headrace_broker.main"),
        ("nsenter", *COMMAND),
        ("/usr/bin/python4", *COMMAND[1:]),
        (sys.executable,),
    ],
)
def test_should_not_fork_what_it_is_not_or_what_another_program_runs(command: tuple[str, ...]) -> None:
    assert not ForkServer().can_fork(command, os.environ)


@pytest.mark.parametrize("name", ["LD_PRELOAD", "PYTHONMALLOC", "MALLOC_PERTURB_", "LC_ALL", "GLIBC_TUNABLES"])
def test_should_not_fork_what_wants_another_interpreter(name: str) -> None:
    assert not ForkServer().can_fork(COMMAND, {**os.environ, name: "other"})


def test_should_fork_what_wants_other_variables_of_its_own() -> None:
    assert ForkServer().can_fork(COMMAND, {**os.environ, "HEADRACE_SERVER": "http://127.0.0.1:1"})


def test_should_read_an_order_as_it_was_written() -> None:
    order = Order(("a.main", "b"), COMMAND, ("--id", "0"), {"NAME": "not UTF-8: \udcff"})
    assert Order.parse(order.to_bytes()) == order


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

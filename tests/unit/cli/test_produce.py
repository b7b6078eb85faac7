"""No record that was sent goes uncounted."""

from concurrent.futures import Future
from typing import Any

import pytest

from headrace.cli.produce import Deliveries
from headrace.core.errors import DiskFullError


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def future(error: Exception | None = None, *, done: bool = True) -> Future[Any]:
    made: Future[Any] = Future()
    if error is not None:
        made.set_exception(error)
    elif done:
        made.set_result(None)
    return made


def add_many(deliveries: Deliveries) -> None:
    for _ in range(2_000):
        deliveries.add(future(), 1)


def test_should_count_what_is_written_what_failed_and_what_nobody_knows() -> None:
    deliveries = Deliveries(Clock())
    deliveries.add(future(), 3)
    deliveries.add(future(done=False), 5)
    deliveries.add(future(DiskFullError("full")), 7)
    deliveries.count_done()
    assert (deliveries.sent, deliveries.written, deliveries.failed, deliveries.waiting) == (15, 3, 7, 5)
    assert deliveries.failures == 1
    assert deliveries.first_error.message == "full"


def test_should_raise_the_first_failure_soon_and_not_at_the_end_of_a_long_input() -> None:
    clock = Clock()
    deliveries = Deliveries(clock)
    deliveries.add(future(), 1)
    deliveries.add(future(DiskFullError("full")), 1)
    with pytest.raises(DiskFullError, match="full"):
        add_many(deliveries)
    slow = Deliveries(clock)
    slow.add(future(), 1)
    slow.add(future(DiskFullError("full")), 1)
    clock.now_s += 1
    with pytest.raises(DiskFullError, match="full"):
        slow.add(future(), 1)


def test_should_keep_no_future_that_is_done() -> None:
    deliveries = Deliveries(Clock())
    deliveries.add(future(done=False), 1)
    for _ in range(5):
        add_many(deliveries)
    assert deliveries.waiting < 2_100
    assert deliveries.sent == 10_001


def test_should_wait_no_longer_than_it_is_told() -> None:
    deliveries = Deliveries()
    late = future(done=False)
    deliveries.add(late, 4)
    deliveries.wait(0.0)
    assert (deliveries.written, deliveries.waiting) == (0, 4)
    late.set_result(None)
    deliveries.wait(30.0)
    assert (deliveries.written, deliveries.waiting) == (4, 0)

"""One thread at a time is inside; who was interrupted on his way out keeps nobody out."""

import sys
import threading

import pytest

from headrace.client.consumer.thread_guard import Closing, Inside, ThreadGuard
from headrace.core.errors import LocalError
from tests.support.patience import patient


def test_should_refuse_a_second_thread_while_the_first_is_inside() -> None:
    guard, entered, leaves = ThreadGuard(), threading.Event(), threading.Event()

    def stay() -> None:
        with Inside(guard, lambda: None):
            entered.set()
            leaves.wait(patient(20))

    first = threading.Thread(target=stay)
    first.start()
    assert entered.wait(patient(20))
    with pytest.raises(LocalError, match=r"another thread uses this consumer just now: .* make one for each thread"):
        Inside(guard, lambda: None).__enter__()
    with pytest.raises(LocalError, match="another thread uses this consumer"):
        guard.check()
    leaves.set()
    first.join()
    with Inside(guard, lambda: None), Inside(guard, lambda: None):
        guard.check()


def test_should_close_when_whoever_was_inside_was_interrupted_before_he_could_leave() -> None:
    guard = ThreadGuard()

    def be_interrupted() -> None:
        Inside(guard, lambda: None).__enter__()

    be_interrupted()
    assert guard.ask(sys._getframe()) is Closing.NOW


def test_should_leave_the_closing_to_whoever_is_inside() -> None:
    guard, closed = ThreadGuard(), list[bool]()
    with Inside(guard, lambda: closed.append(True)):
        assert guard.ask(sys._getframe()) is Closing.LATER
        with Inside(guard, lambda: closed.append(False)):
            pass
        assert closed == []
    assert closed == [True]

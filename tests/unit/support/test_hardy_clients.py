"""Clients that outlive faults: what is ordinary is counted and tried again, all else is said, and ends them."""

import threading
from collections.abc import Callable

from headrace.core.errors import NotReadyError
from tests.support.hardy_clients import HardyClient, Troubles, join_all
from tests.support.patience import patient


class Scripted(HardyClient):
    """Does one thing after the other, then nothing until it is stopped."""

    def __init__(self, *acts: Callable[[], None]) -> None:
        super().__init__("scripted", Troubles())
        self.acts = list(acts)
        self.idle = threading.Event()

    def _work(self) -> None:
        if self.acts:
            self.acts.pop(0)()
        else:
            self.idle.set()
            self._stopped.wait()


def raising(error: Exception) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


def test_should_count_what_is_ordinary_and_go_on() -> None:
    client = Scripted(raising(NotReadyError("wait")), raising(ConnectionResetError()), raising(NotReadyError("wait")))
    client.start()
    assert client.idle.wait(patient(30))
    assert join_all([client], 30) == []
    assert (dict(client.troubles.failures), client.troubles.wrong) == ({"NotReady": 2, "ConnectionResetError": 1}, [])


def test_should_say_whatever_else_is_raised() -> None:
    client = Scripted(raising(ValueError("no number")))
    client.start()
    client.join(patient(30))
    assert client.troubles.wrong == ["scripted: ValueError('no number')"]


def test_should_name_those_that_do_not_end() -> None:
    released = threading.Event()

    def hang() -> None:
        released.wait()

    client = Scripted(hang)
    client.start()
    assert join_all([client], 0.2) == ["scripted"]
    released.set()
    assert join_all([client], 30) == []

"""Those who use a cluster while it is being hurt: threads that outlive every fault, and keep what troubled them.

Errors that brokers answer, or that connections end with, are ordinary and counted; whatever else a client raises is
wrong, and the verdict of the run must say so. `tests/faults` and `tests/soak` have their clients from here.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from headrace.core.errors import HeadraceError

KNOCK_S: Final = 0.05
"""Whoever was refused tries again so soon."""


@dataclass(slots=True, kw_only=True)
class Troubles:
    """Of one client, or of all that share it. Lists and counters that only grow, under one lock."""

    wrong: list[str] = field(default_factory=list)
    """What clients saw that must never be, as sentences."""
    failures: Counter[str] = field(default_factory=Counter)
    """Of requests, by the code of their error."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def failed(self, code: str) -> None:
        with self._lock:
            self.failures[code] += 1


class HardyClient(ABC, threading.Thread):
    """Works until `stop`; what fails is done again after a moment."""

    def __init__(self, name: str, troubles: Troubles) -> None:
        super().__init__(name=name, daemon=True)
        self.troubles = troubles
        self._stopped = threading.Event()

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._work()
            except (HeadraceError, OSError) as error:
                self._refused(getattr(error, "code", type(error).__name__))
            except Exception as error:  # whatever it is, the verdict must say it
                self.troubles.wrong.append(f"{self.name}: {error!r}")
                return

    @abstractmethod
    def _work(self) -> None:
        """Until it is stopped or something fails that is ordinary."""

    def _refused(self, code: str) -> None:
        """Count it, and wait a moment."""
        self.troubles.failed(code)
        self._stopped.wait(KNOCK_S)


def join_all(clients: Sequence[HardyClient], timeout_s: float) -> list[str]:
    """Stop all of them -> names of those that did not end in time."""
    for client in clients:
        client.stop()
    deadline_s = time.monotonic() + timeout_s
    for client in clients:
        with suppress(RuntimeError):  # one that was never started
            client.join(max(0.0, deadline_s - time.monotonic()))
    return [client.name for client in clients if client.is_alive()]

"""Where the clients of a run write down what they asked and what they were told; lists that only grow, one lock."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.faults.history import Fault, Look, Outcome, Poll, Write
from tests.support.hardy_clients import Troubles


def now_s() -> float:
    return time.monotonic()


@dataclass(slots=True)
class Journal(Troubles):
    """Of one topic."""

    topic: str
    partitions: int
    writes: list[Write] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    idempotent: set[str] = field(default_factory=set)
    acknowledged: Counter[int] = field(default_factory=Counter)
    """How many, by partition."""

    def wrote(self, write: Write) -> None:
        with self._lock:
            self.writes.append(write)
            if write.outcome is Outcome.ACKNOWLEDGED:
                self.acknowledged[write.partition] += 1
            else:
                self.failures[write.why] += 1

    def polled(self, poll: Poll) -> None:
        with self._lock:
            self.polls.append(poll)

    def looked(self, look: Look) -> None:
        with self._lock:
            self.looks.append(look)

    @contextmanager
    def fault(self, name: str) -> Iterator[None]:
        """What is acknowledged meanwhile is counted as progress during this fault."""
        began_s = now_s()
        try:
            yield
        finally:
            self.faults.append(Fault(name, began_s, now_s()))

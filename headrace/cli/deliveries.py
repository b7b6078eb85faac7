"""What became of the records that `headrace produce` sent: how many are written, how many are not, and why.

Futures that are done are taken out now and then, so that memory is bounded by what is on its way, at the cost of an
append for each. The first failure ends a long input soon, not at its end.
"""

import time
from collections.abc import Callable
from dataclasses import field
from typing import Any, NamedTuple

from headrace.core.slotted import dataclass

_LOOK_AT_LEAST = 1_000
_LOOK_EVERY_S = 0.5


class _Sent(NamedTuple):
    future: Any
    records: int


@dataclass(slots=True)
class Deliveries:
    clock: Callable[[], float] = time.monotonic
    sent: int = 0
    written: int = 0
    failed: int = 0
    """Records of calls that failed: of a call for many, some may be written."""
    failures: int = 0
    """Calls that failed."""
    first_error: Any = None
    """HeadraceError of the first record that was found failed, by the order of sending."""
    _waiting: list[_Sent] = field(default_factory=list)
    _look_at: int = _LOOK_AT_LEAST
    _look_s: float = 0.0

    @property
    def waiting(self) -> int:
        """Sent, and neither written nor failed as far as we have looked."""
        return sum(sent.records for sent in self._waiting)

    def add(self, future: Any, records: int) -> None:
        """Raises the first failure of what was added so far."""
        self._waiting.append(_Sent(future, records))
        self.sent += records
        if len(self._waiting) >= self._look_at or self.clock() >= self._look_s:
            self.look()
            if self.first_error is not None:
                raise self.first_error

    def look(self) -> None:
        """Count those that are done."""
        waiting = []
        for sent in self._waiting:
            if not sent.future.done():
                waiting.append(sent)
            elif (error := sent.future.exception()) is None:
                self.written += sent.records
            else:
                self.failed += sent.records
                self.failures += 1
                self.first_error = self.first_error or error
        self._waiting = waiting
        # Twice as many must have come before all are looked at again, or a slow broker would make this quadratic.
        self._look_at = max(_LOOK_AT_LEAST, 2 * len(waiting))
        self._look_s = self.clock() + _LOOK_EVERY_S

    def wait(self, limit_s: float) -> None:
        """Until nothing waits any more or the time is over."""
        deadline = self.clock() + limit_s
        for sent in self._waiting:
            try:
                sent.future.exception(timeout=max(0.0, deadline - self.clock()))
            except TimeoutError:
                break
        self.look()

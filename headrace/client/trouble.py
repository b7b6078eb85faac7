"""Says what keeps failing, while it is still tried again: nobody should wait in the dark. Logger `headrace.client`.

One sentence as soon as something has failed for `TROUBLE_SILENT_MS`, or a request has had no answer for
`TROUBLE_UNANSWERED_MS`, and then every `TROUBLE_INTERVAL_MS`, for each thing that fails; what fails for the very reason
that was just told waits its turn too, or a dead broker would be told once a partition. One per producer or consumer;
used by its threads, where the worst is to say a thing twice.
"""

import logging
from dataclasses import field

from headrace.core.errors import HeadraceError
from headrace.core.limits import TROUBLE_INTERVAL_MS, TROUBLE_SILENT_MS, TROUBLE_UNANSWERED_MS
from headrace.core.slotted import dataclass

_log = logging.getLogger("headrace.client")


@dataclass(slots=True)
class Trouble:
    _told_at_ms: dict[str, int] = field(default_factory=dict)
    """By what fails, and by why."""

    def tell(self, what: str, error: HeadraceError, failing_since_ms: int, now_ms: int) -> None:
        sentence = self.notice(what, error.message, failing_since_ms, now_ms)
        if sentence is not None:
            _log.warning("%s", sentence)

    def tell_unanswered(self, what: str, since_ms: int, now_ms: int) -> None:
        """Of a request that is on its way since `since_ms`."""
        silent_ms = now_ms - since_ms
        if silent_ms >= TROUBLE_UNANSWERED_MS:
            sentence = self._due(what, f"no answer for {silent_ms / 1000:.0f} s", "still waiting", now_ms)
            if sentence is not None:
                _log.warning("%s", sentence)

    def notice(self, what: str, why: str, failing_since_ms: int, now_ms: int) -> str | None:
        """The sentence that is due; None while nothing is."""
        if now_ms - failing_since_ms < TROUBLE_SILENT_MS:
            return None
        return self._due(what, why.removesuffix("; try again"), "trying again", now_ms)

    def _due(self, what: str, why: str, then: str, now_ms: int) -> str | None:
        told = {name: at_ms for name, at_ms in self._told_at_ms.items() if now_ms - at_ms < TROUBLE_INTERVAL_MS}
        self._told_at_ms = told
        if what in told or why in told:
            return None
        told[what] = told[why] = now_ms
        return f"{what}: {why}; {then}"

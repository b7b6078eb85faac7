"""Is a consumer's user still there? He is, while what he has in hand changes, or while he waits for the SDK. Pure."""

from headrace.client.cursor import Handed
from headrace.client.record import Record
from headrace.core.slotted import dataclass


@dataclass(slots=True)
class Presence:
    handed: Handed
    _batches: int = 0
    _last: Record | None = None
    """What he had in hand when he was last seen to go on."""
    _seen_ms: int = 0

    def seen(self, now_ms: int) -> None:
        self._batches, self._last, self._seen_ms = self.handed.batches, self.handed.last, now_ms

    def away_ms(self, now_ms: int) -> int:
        """For how long nothing has moved, by what is looked at now."""
        handed = self.handed
        if handed.is_waited_for or handed.batches != self._batches or handed.last is not self._last:
            self.seen(now_ms)
        return now_ms - self._seen_ms

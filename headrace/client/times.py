"""Warns of records whose times their topic takes, and does something unexpected with. Logger `headrace.client`.

The broker that leads a partition tells so in its answers and on the Topic; who writes on sessions gets no such answer,
and should know at once all the same. So the producer looks at each batch as it encodes it: one sentence for each topic
and reason as soon as there is one, and one more with their number in all when it is flushed or closed, where more have
come. One per producer, called by its threads, where the worst is to count too few.
"""

import logging
from collections import Counter
from dataclasses import dataclass, field

from headrace.client.layout import TopicLayout
from headrace.core.records.time_rules import Reason, Strange
from headrace.core.records.times import RecordTimes

_log = logging.getLogger("headrace.client")


@dataclass(frozen=True, slots=True)
class _Seen:
    """Records for one topic that are strange for one reason."""

    topic: str
    reason: Reason


@dataclass(slots=True)
class TimeWarnings:
    _counted: Counter[_Seen] = field(default_factory=Counter)
    _told: dict[_Seen, int] = field(default_factory=dict)
    """How many had been counted when it was last told."""
    _retention_ms: dict[str, int | None] = field(default_factory=dict)
    """By topic, as it was when its records were looked at."""

    def look(self, layout: TopicLayout | None, times: RecordTimes, now_ms: int) -> None:
        """These are about to be written to that topic, for the first time; `now_ms` is since 1970."""
        if layout is None or layout.time_rules is None:
            return
        for reason, records in layout.time_rules.strange([times], now_ms):
            seen = _Seen(layout.topic, reason)
            self._retention_ms[layout.topic] = layout.time_rules.retention_ms
            self._counted[seen] += records
            if seen not in self._told:
                self._tell(seen)

    def sum_up(self) -> None:
        """Tell of those that came after the first sentence."""
        for seen, count in [*self._counted.items()]:
            if count > self._told.get(seen, 0):
                self._tell(seen, " in all")

    def _tell(self, seen: _Seen, so_far: str = "") -> None:
        count = self._told[seen] = self._counted[seen]
        told = Strange(seen.reason, count).told(self._retention_ms[seen.topic])
        _log.warning("records for %s%s: %s", seen.topic, so_far, told)

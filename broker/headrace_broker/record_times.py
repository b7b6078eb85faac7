"""The times of the records that one partition is given: refused, or taken and told.

What is refused and what is told `core.records.time_rules` decides; this module remembers what the topic says, counts,
and tells the Topic by an Event, once an hour for each reason, however many records there are. Owned by a `Partition`;
called on the event loop, between its checks and its append.
"""

import logging
from collections.abc import Callable, Container, Sequence

from headrace.core.limits import STRANGE_TIMES_TOLD_MS
from headrace.core.records.raw import RawBatch
from headrace.core.records.time_rules import Reason, Strange, TimeRules
from headrace.core.resources.topic import TopicSpec
from headrace_broker.clock import monotonic_ms
from headrace_broker.metrics import PartitionCounters
from headrace_broker.requests import Place

_log = logging.getLogger(__name__)


class TimeWatch:
    def __init__(self, place: Place, counters: PartitionCounters) -> None:
        self._place = place
        self._rules: TimeRules | None = None
        """None where the leader's clock gives the times."""
        self._counted = {Reason.OVERDUE: counters.records_overdue, Reason.AHEAD: counters.records_ahead}
        self._told_ms: dict[Reason, int] = {}
        self.warn: Callable[[str, str], None] = self._log
        """Tells the Topic's owner a reason and a message; whoever can do more than log sets it."""

    def configure(self, spec: TopicSpec) -> None:
        """The Topic says so."""
        self._rules = TimeRules.of_topic(spec)

    def check(self, batches: Sequence[RawBatch], now_ms: int, written: Container[int]) -> None:
        """Raises InvalidTimestampError. The batches at the indexes `written` are there already."""
        if self._rules is not None:
            self._rules.check(batches, now_ms, str(self._place), written)

    def strange(self, batches: Sequence[RawBatch], now_ms: int) -> list[tuple[Strange, str]]:
        """What the writer of these should know, with a sentence for each."""
        rules = self._rules
        if rules is None:
            return []
        found = rules.strange((batch.times for batch in batches if batch.times is not None), now_ms)
        return [(each, each.told(rules.retention_ms)) for each in found]

    def note(self, batches: Sequence[RawBatch], now_ms: int) -> None:
        """Of what is about to be appended: count, and tell the Topic where that was not done just now."""
        for (reason, records), _ in self.strange(batches, now_ms):
            self._counted[reason].inc(records)
            told_ms, at_ms = self._told_ms.get(reason), monotonic_ms()
            if told_ms is None or at_ms - told_ms >= STRANGE_TIMES_TOLD_MS:
                self._told_ms[reason] = at_ms
                self._tell(reason)

    def _tell(self, reason: Reason) -> None:
        # Without the partition and the number: so that the Events of many partitions are one Event.
        assert self._rules is not None, "something was found"
        what = Strange.what_happens(reason, self._rules.retention_ms)
        self.warn(reason.value, f"records were written that are {what}")

    def _log(self, reason: str, message: str) -> None:
        _log.warning("%s: %s: %s", self._place, reason, message)

"""The rules for times of records: which times a topic takes, and for which its writers are warned. Decisions, no I/O.

Records of `timestampType: CreateTime` bring their own times, and retention counts by them. So a record may be too old
for its topic as it is written, and a time in the future shows no age.

- Refused, and nothing of the request is written: a time outside of `timestamps.beforeMax` and `timestamps.afterMax`
  (Kafka's `message.timestamp.before.max.ms` and `message.timestamp.after.max.ms`, KIP-937), or outside of the years
  1970 to 9999, as microseconds or nanoseconds do where milliseconds are meant.
- Taken, with a warning: a time that is older than `retention.time`, or more than an hour ahead.

`now_ms` is the clock of the caller: the leader's, or for warnings of its own a client's. It is called by
`headrace_broker.partition.partition`, the routes, the coordinators of writers, and by producers, who know no more of
the topic than `retention_ms`.
"""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Self

from headrace.core.errors import InvalidTimestampError
from headrace.core.records.arrow_message import RecordTimes
from headrace.core.records.raw import RawBatch
from headrace.core.units import format_duration_ms

if TYPE_CHECKING:
    from headrace.core.resources.topic import TopicSpec

TIMESTAMP_MS_MAX = 253_402_300_799_999
"""The greatest time of a record that is taken: the end of the year 9999. Micro- and nanoseconds of today are above."""
TIMESTAMP_AHEAD_MS = 3_600_000
"""The distance into the future from which a writer is warned: no clock is that wrong."""


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NO_LIMIT_MS = 1 << 63
_BEFORE_MAX, _AFTER_MAX = "spec.timestamps.beforeMax", "spec.timestamps.afterMax"


class Reason(StrEnum):
    """The reason why the writers of a topic are warned."""

    OVERDUE = "OlderThanRetention"
    AHEAD = "FarAhead"


class Strange(NamedTuple):
    """Records that were written, with times that their writer should know of."""

    reason: Reason
    records: int

    def warning(self, retention_ms: int | None) -> str:
        """Return a sentence for the writer; `retention_ms` is the topic's."""
        what = "1 record is" if self.records == 1 else f"{self.records:,} records are"
        return f"{what} {self.what_happens(self.reason, retention_ms)}"

    @staticmethod
    def what_happens(reason: Reason, retention_ms: int | None) -> str:
        """Return the end of a sentence: what such records are, what becomes of them, and what to do."""
        if reason is Reason.OVERDUE:
            limit = format_duration_ms(retention_ms or 0)
            return (
                f"older than the topic's retention.time, which is {limit}: acknowledged, and deleted as soon as"
                " retention looks at the segment; raise spec.retention.time before they are written again, or leave"
                " their timestamps out"
            )
        return (
            f"more than {format_duration_ms(TIMESTAMP_AHEAD_MS)} ahead of the clock: retention does not count by such"
            " times, and whoever reads from a time on finds them too early; look at the writer's clock, and at the"
            " unit, which is milliseconds"
        )


@dataclass(frozen=True, slots=True)
class TimeRules:
    """The rules of a topic for the times of its records; durations in milliseconds, None for without an end."""

    retention_ms: int | None = None
    before_max_ms: int | None = None
    after_max_ms: int | None = None

    @classmethod
    def of_topic(cls, spec: "TopicSpec") -> Self | None:
        """Return the rules; None where the leader's clock gives the times, whatever a producer sends."""
        if spec.timestamp_type == "LogAppendTime":
            return None
        retention_ms = None if spec.cleanup_policy == "Compact" else spec.retention_ms
        return cls(retention_ms, spec.timestamps_before_max_ms, spec.timestamps_after_max_ms)

    @property
    def has_bounds(self) -> bool:
        return self.before_max_ms is not None or self.after_max_ms is not None

    def check(self, batches: Sequence[RawBatch], now_ms: int, label: str, written: Container[int] = ()) -> None:
        """Raise InvalidTimestampError for the first record that is not taken. `label` is the place, for people.

        `written`: indexes of batches that are there already, and are not checked again.
        """
        first = 0
        for number, batch in enumerate(batches):
            if batch.times is not None and number not in written:
                self.check_times(batch.times, now_ms, label, batch=number, first=first)
            first += batch.header.record_count

    def check_times(self, times: RecordTimes, now_ms: int, label: str, *, batch: int = 0, first: int = 0) -> None:
        """Check records that are no batch yet; `first` is the number of the first of them in their request."""
        index = times.first_outside(*self._bounds(now_ms))
        if index is not None:
            raise self._refused(times.each[index], now_ms, label, batch=batch, record=first + index)

    def strange(self, batches: Iterable[RecordTimes], now_ms: int) -> list[Strange]:
        """Return what is written with a warning; empty for nearly all requests."""
        low_ms = -_NO_LIMIT_MS if self.retention_ms is None else now_ms - self.retention_ms
        high_ms = now_ms + TIMESTAMP_AHEAD_MS
        overdue = ahead = 0
        for times in batches:
            if times.oldest_ms < low_ms:
                overdue += times.count_outside(low_ms, _NO_LIMIT_MS - 1)
            if times.newest_ms > high_ms:
                ahead += times.count_outside(-_NO_LIMIT_MS, high_ms)
        found = Strange(Reason.OVERDUE, overdue), Strange(Reason.AHEAD, ahead)
        return [each for each in found if each.records]

    def _bounds(self, now_ms: int) -> tuple[int, int]:
        low_ms = 0 if self.before_max_ms is None else now_ms - self.before_max_ms
        high_ms = TIMESTAMP_MS_MAX if self.after_max_ms is None else now_ms + self.after_max_ms
        return max(0, low_ms), min(TIMESTAMP_MS_MAX, high_ms)

    def _refused(self, time_ms: int, now_ms: int, label: str, *, batch: int, record: int) -> InvalidTimestampError:
        low_ms, high_ms = self._bounds(now_ms)
        which = f"record {record} for {label}: timestamp {time_ms}"
        numbers = {"batch": batch, "record": record, "timestamp": time_ms}
        if not 0 <= time_ms <= TIMESTAMP_MS_MAX:
            limit = 0 if time_ms < 0 else TIMESTAMP_MS_MAX
            return InvalidTimestampError(
                f"{which} must be from 0 to {TIMESTAMP_MS_MAX}, the end of the year 9999: give milliseconds since"
                " 1970-01-01 UTC, or leave it out",
                **numbers,
                limit=limit,
            )
        if time_ms < low_ms:
            bound, side, field, limit = self.before_max_ms, "before", _BEFORE_MAX, low_ms
        else:
            bound, side, field, limit = self.after_max_ms, "after", _AFTER_MAX, high_ms
        return InvalidTimestampError(
            f"{which} ({_shown(time_ms)}) is {side} {_shown(limit)}, and the topic takes none such:"
            f" {field.removeprefix('spec.')} is {format_duration_ms(bound or 0)}; correct the time, or raise {field}",
            **numbers,
            limit=limit,
            field=field,
        )


def _shown(time_ms: int) -> str:
    return (_EPOCH + timedelta(milliseconds=time_ms)).isoformat(timespec="milliseconds")

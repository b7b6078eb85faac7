"""Retention: which segments it deletes by time and by size, and the reason it gives.

From where a log is kept, and which of its segments go.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import OffsetOutOfRangeError
from headrace.core.log.retention import (
    ClosedSegment,
    ExpiryReason,
    Log,
    Retention,
    SegmentTimes,
    expired_segments,
    is_over,
    log_start_after,
    recovered_log_start,
    segments_below,
)
from headrace.core.resources.topic import TopicSpec
from headrace.core.types import Offset

NOW_MS = 1_000_000
UNLIMITED = Retention(None, None)


def closed(*sizes: int) -> list[ClosedSegment]:
    """Of ten offsets each."""
    return [ClosedSegment(Offset(10 * i), Offset(10 * i + 10), size) for i, size in enumerate(sizes)]


def log(segments: list[ClosedSegment], *, active_bytes: int = 0, high_watermark: int = 1 << 40) -> Log:
    return Log(segments, sum(each.size_bytes for each in segments) + active_bytes, Offset(high_watermark))


def ages(*ages_ms: int) -> dict[Offset, SegmentTimes]:
    return {Offset(10 * i): SegmentTimes(NOW_MS - age, NOW_MS) for i, age in enumerate(ages_ms)}


def reasons(log: Log, retention: Retention, times: dict[Offset, SegmentTimes]) -> list[ExpiryReason]:
    return [
        each.reason for each in expired_segments(log, retention, NOW_MS, lambda segment: times[segment.base_offset])
    ]


def never(segment: ClosedSegment) -> SegmentTimes:
    raise AssertionError(f"the age of {segment} decides nothing")


def test_should_take_what_a_topic_promises_but_under_compaction_alone() -> None:
    limits = {"partitions": 1, "retention": {"time": "1s", "bytes": "1k"}}
    for policy in ("Delete", "CompactDelete"):
        assert Retention.of_topic(TopicSpec.parse({**limits, "cleanupPolicy": policy})) == Retention(1000, 1000)
    assert Retention.of_topic(TopicSpec.parse({**limits, "cleanupPolicy": "Compact"})) == UNLIMITED


def test_should_delete_nothing_and_look_at_nothing_when_everything_is_kept() -> None:
    assert expired_segments(log(closed(5, 5)), UNLIMITED, NOW_MS, never) == []


def test_should_delete_the_oldest_as_long_as_enough_stays_without_it() -> None:
    segments = closed(10, 20, 30)
    for active_bytes, count in ((49, 0), (50, 1), (69, 1), (70, 2), (100, 3)):
        found = expired_segments(log(segments, active_bytes=active_bytes), Retention(None, 100), NOW_MS, never)
        assert [each.segment for each in found] == segments[:count]


def test_should_delete_what_is_older_than_promised_up_to_the_first_that_is_not() -> None:
    assert reasons(log(closed(1, 1, 1)), Retention(500, None), ages(501, 500, 900)) == [ExpiryReason.TIME]
    assert reasons(log(closed(1, 1, 1)), Retention(500, None), ages(501, 501, 900)) == [ExpiryReason.TIME] * 3


def test_should_apply_both_limits_and_say_which_it_was() -> None:
    found = reasons(log(closed(40, 40, 40, 40)), Retention(500, 100), ages(900, 900, 600, 100))
    assert found == [ExpiryReason.SIZE, ExpiryReason.TIME, ExpiryReason.TIME]


@pytest.mark.parametrize(("high_watermark", "count"), [(9, 0), (10, 1), (19, 1), (20, 2)])
def test_should_delete_only_what_is_committed(high_watermark: int, count: int) -> None:
    committed = log(closed(5, 5), high_watermark=high_watermark)
    assert len(expired_segments(committed, Retention(0, 0), NOW_MS, never)) == count


def test_should_go_by_the_last_write_when_a_time_lies_in_the_future() -> None:
    assert is_over(SegmentTimes(NOW_MS + 1, NOW_MS - 501), 500, NOW_MS)
    assert not is_over(SegmentTimes(NOW_MS + 1, NOW_MS - 500), 500, NOW_MS)
    assert not is_over(SegmentTimes(NOW_MS, NOW_MS - 501), 500, NOW_MS), "now is no future"


def test_should_keep_a_segment_without_records_until_the_next_one_goes() -> None:
    empty = SegmentTimes(-1, NOW_MS)
    young = {Offset(0): empty, Offset(10): empty, Offset(20): SegmentTimes(NOW_MS - 500, NOW_MS)}
    old = {**young, Offset(20): SegmentTimes(NOW_MS - 501, NOW_MS)}
    assert reasons(log(closed(1, 1)), Retention(500, None), young) == []
    assert reasons(log(closed(1, 1, 1)), Retention(500, None), young) == []
    assert reasons(log(closed(1, 1, 1)), Retention(500, None), old) == [ExpiryReason.TIME] * 3
    by_size = reasons(log(closed(1, 1, 9)), Retention(500, 10), young)
    assert by_size == [ExpiryReason.SIZE], "what is too much goes, whatever is in it"


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 1000)), max_size=8),
    st.integers(0, 50),
    st.none() | st.integers(0, 1000),
    st.none() | st.integers(0, 300),
)
def test_should_keep_as_much_as_promised_and_no_segment_that_nothing_protects(
    drawn: list[tuple[int, int]], active_bytes: int, time_ms: int | None, size_bytes: int | None
) -> None:
    segments, times = closed(*(size for size, _ in drawn)), ages(*(age for _, age in drawn))
    whole = log(segments, active_bytes=active_bytes)

    found = expired_segments(whole, Retention(time_ms, size_bytes), NOW_MS, lambda segment: times[segment.base_offset])

    assert [each.segment for each in found] == segments[: len(found)]
    left = whole.size_bytes - sum(each.segment.size_bytes for each in found)
    for each, (_, age) in zip(found, drawn, strict=False):
        assert each.reason is ExpiryReason.SIZE or (time_ms is not None and age > time_ms)
    if any(each.reason is ExpiryReason.SIZE for each in found):
        assert size_bytes is not None
    if size_bytes is not None and found and found[-1].reason is ExpiryReason.SIZE:
        assert left >= size_bytes
    if len(found) < len(segments):
        oldest, (size, age) = segments[len(found)], drawn[len(found)]
        assert oldest.size_bytes == size
        assert size_bytes is None or left - size < size_bytes
        assert time_ms is None or age <= time_ms


@pytest.mark.parametrize(("before", "start"), [(0, 3), (3, 3), (4, 4), (9, 9)])
def test_should_move_the_start_forward_only(before: int, start: int) -> None:
    assert log_start_after(Offset(before), log_start=Offset(3), high_watermark=Offset(9), label="x") == start


def test_should_refuse_to_delete_what_is_not_committed() -> None:
    with pytest.raises(
        OffsetOutOfRangeError, match=r"beforeOffset 10 is above .* default/x/0, which holds 3 to 9"
    ) as e:
        log_start_after(Offset(10), log_start=Offset(3), high_watermark=Offset(9), label="default/x/0")
    assert e.value.details == {"logStartOffset": 3, "highWatermark": 9}


@pytest.mark.parametrize(
    ("checkpoint", "start"),
    [(None, 5), (2, 5), (7, 7), (20, 20), (21, 20)],
)
def test_should_start_where_the_checkpoint_says_as_far_as_the_log_reaches(checkpoint: int | None, start: int) -> None:
    known = None if checkpoint is None else Offset(checkpoint)
    assert recovered_log_start(known, first_segment=Offset(5), log_end=Offset(20)) == start


@pytest.mark.parametrize(("start", "dropped"), [(0, 0), (9, 0), (10, 1), (19, 1), (20, 2), (99, 2)])
def test_should_drop_a_segment_when_the_log_begins_after_it(start: int, dropped: int) -> None:
    assert segments_below(Offset(start), [Offset(0), Offset(10), Offset(20)]) == dropped


def test_should_drop_nothing_when_there_is_no_segment() -> None:
    assert segments_below(Offset(5), []) == 0


@given(st.lists(st.integers(0, 50), min_size=1, unique=True).map(sorted), st.integers(0, 60))
def test_should_drop_all_segments_that_nobody_needs_but_the_active_one(bases: list[int], start: int) -> None:
    offsets = [Offset(base) for base in bases]
    kept = offsets[segments_below(Offset(start), offsets) :]
    assert kept
    assert kept[0] <= max(start, bases[0]) or len(kept) == 1
    assert len(kept) == 1 or kept[1] > start
    assert segments_below(Offset(start), kept) == 0

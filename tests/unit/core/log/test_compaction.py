"""When a log is compacted, and which part of it; what is remembered of it."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import InvalidRequestError
from headrace.core.limits import COMPACTION_KEYS_MAX, SEGMENT_BYTES_MAX, SEGMENT_OFFSETS_MAX
from headrace.core.log.checkpoints import DamagedFileError, seal
from headrace.core.log.compaction import (
    CLEAN_POINTS_MAX,
    COMPACTION_KEY_BYTES,
    COMPACTION_KEYS_MIN,
    COMPACTION_LAG_MS_MAX,
    COMPACTION_RETRY_MS,
    COMPACTION_RETRY_MS_MAX,
    COMPACTOR_BYTES,
    CleanPoint,
    CleanPoints,
    CompactableLog,
    CompactionRules,
    Later,
    Pass,
    check_keys,
    compactor_bytes,
    groups,
    keys_max,
    plan_pass,
    retry_ms,
)
from headrace.core.log.retention import ClosedSegment, SegmentTimes
from headrace.core.records.columns import encode_batch, record_columns
from headrace.core.records.raw import RawBatch, split_batches
from headrace.core.resources.topic import TopicSpec
from headrace.core.types import Offset

RULES = CompactionRules(min_lag_ms=0, delete_retention_ms=100, segment_bytes=1000)
SEGMENTS = tuple(ClosedSegment(Offset(i * 10), Offset(i * 10 + 10), 100) for i in range(4))
NOW_MS = 1 << 40
YOUNG = SegmentTimes(newest_ms=NOW_MS, written_ms=NOW_MS)


def points(*rows: tuple[int, int, int]) -> CleanPoints:
    return CleanPoints([CleanPoint(Offset(end), clean_ms, tombstones) for end, clean_ms, tombstones in rows])


def plan(
    clean: CleanPoints, rules: CompactionRules = RULES, limit: int = 40, times: SegmentTimes = YOUNG
) -> Pass | Later:
    return plan_pass(CompactableLog(SEGMENTS, Offset(limit), clean), rules, NOW_MS, lambda segment: times)


def test_should_compact_a_log_that_never_was() -> None:
    reason = "400 of 400 bytes have come since the last time"
    assert plan(points()) == Pass(SEGMENTS, Offset(0), Offset(0), reason)


def test_should_leave_alone_what_is_not_committed() -> None:
    found = plan(points(), limit=39)
    assert isinstance(found, Pass)
    assert found.segments == SEGMENTS[:3]
    assert plan(points(), limit=9) == Later(None)


def test_should_wait_until_enough_is_dirty_or_it_has_been_for_too_long() -> None:
    assert isinstance(plan(points((20, 5, 0))), Pass)
    assert plan(points((30, 5, 0))) == Later(NOW_MS + COMPACTION_LAG_MS_MAX)
    late = plan(points((30, 5, 0)), times=SegmentTimes(NOW_MS, NOW_MS - COMPACTION_LAG_MS_MAX))
    assert late == Pass(SEGMENTS, Offset(30), Offset(30), "segment 30 was closed 24 hours ago")


def test_should_compact_nothing_that_is_clean() -> None:
    assert plan(points((40, 5, 0))) == Later(None)


def test_should_remove_tombstones_when_they_were_kept_for_long_enough() -> None:
    assert plan(points((20, NOW_MS - 60, 3), (40, NOW_MS - 50, 0))) == Later(NOW_MS + 40)
    found = plan(points((20, NOW_MS - 100, 3), (40, NOW_MS - 50, 1)))
    assert found == Pass(SEGMENTS, Offset(40), Offset(20), "tombstones have been kept for long enough")
    assert plan(points((20, NOW_MS - 100, 3), (40, NOW_MS - 50, 1)), limit=5) == Later(NOW_MS)


def test_should_wait_for_records_to_be_as_old_as_the_lag() -> None:
    rules = replace(RULES, min_lag_ms=30)
    assert plan(points(), rules) == Later(NOW_MS + 30)
    found = plan(points((20, 5, 0)), rules, times=SegmentTimes(NOW_MS - 30, NOW_MS))
    assert isinstance(found, Pass)
    assert found.segments == SEGMENTS
    found = plan(points(), rules, times=SegmentTimes(NOW_MS + 1_000_000, NOW_MS - 30))
    assert isinstance(found, Pass), "a record of the future says nothing about its age"


@pytest.mark.parametrize(("policy", "compacted"), [("Delete", False), ("Compact", True), ("CompactDelete", True)])
def test_should_follow_the_topics_policy(policy: str, compacted: bool) -> None:
    spec = TopicSpec.parse(
        {"partitions": 1, "cleanupPolicy": policy, "compaction": {"minLag": "5s", "deleteRetention": "2h"}}
    )
    rules = CompactionRules(5_000, 7_200_000, 256 << 20)
    assert CompactionRules.of_topic(spec) == (rules if compacted else None)


def test_should_refuse_records_without_a_key() -> None:
    def batch(*keys: bytes | None) -> RawBatch:
        columns = record_columns([b"v"] * len(keys), keys, timestamps_ms=0)
        return split_batches(encode_batch(columns), batch_bytes_max=1 << 20)[0]

    check_keys([batch(b"a", b""), batch(b"b")], "flights/0")
    with pytest.raises(InvalidRequestError, match="key is null in 3 of 5 records: flights/0 is compacted") as refused:
        check_keys([batch(b"a", None, b"b"), batch(None, None)], "flights/0")
    assert refused.value.details == {"field": "key"}


@pytest.mark.parametrize(
    ("memory_bytes", "keys"), [(1 << 20, COMPACTION_KEYS_MIN), (1 << 30, 1 << 18), (1 << 40, COMPACTION_KEYS_MAX)]
)
def test_should_hold_fewer_keys_where_memory_is_scarce(memory_bytes: int, keys: int) -> None:
    assert keys_max(memory_bytes) == keys
    assert keys_max(memory_bytes, 2) == max(COMPACTION_KEYS_MIN, keys // 4)
    assert keys_max(memory_bytes, 99) == COMPACTION_KEYS_MIN
    assert compactor_bytes(memory_bytes) == COMPACTOR_BYTES + keys * COMPACTION_KEY_BYTES


def test_should_leave_a_log_alone_for_twice_as_long_after_each_failure_and_not_for_ever() -> None:
    found = [retry_ms(failures) for failures in (1, 2, 3, 9, 1_000)]
    first = COMPACTION_RETRY_MS
    assert found == [first, 2 * first, 4 * first, COMPACTION_RETRY_MS_MAX, COMPACTION_RETRY_MS_MAX]


def test_should_write_small_neighbours_as_one_segment() -> None:
    sizes = [100, 100, 900, 100, 2000, 100, 100]
    segments = [ClosedSegment(Offset(i), Offset(i + 1), size) for i, size in enumerate(sizes)]
    found = [[segment.base_offset for segment in group] for group in groups(segments, 1000)]
    assert found == [[0, 1], [2, 3], [4], [5, 6]]
    far = [ClosedSegment(Offset(0), Offset(9), 1), ClosedSegment(Offset(9), Offset(SEGMENT_OFFSETS_MAX + 1), 1)]
    assert [len(group) for group in groups(far, 1000)] == [1, 1]
    wide = [ClosedSegment(Offset(i), Offset(i + 1), SEGMENT_BYTES_MAX // 2 + 1) for i in range(2)]
    assert [len(group) for group in groups(wide, 1 << 40)] == [1, 1]
    assert groups([], 1000) == []


def test_should_remember_since_when_each_tombstone_is_in_the_compacted_part() -> None:
    first = points().after_pass(Offset(10), 1_000, [3, 9])
    assert first.points == (CleanPoint(Offset(10), 1_000, 2),)
    second = first.after_pass(Offset(20), 1_050, [9, 15])
    assert second.points == (CleanPoint(Offset(10), 1_000, 1), CleanPoint(Offset(20), 1_050, 1))
    assert second.end == 20
    assert second.next_removal_ms(100) == 1_100
    assert [second.tombstones_from(now_ms, 100) for now_ms in (1_099, 1_100, 1_150)] == [0, 10, 20]
    third = second.after_pass(Offset(20), 1_200, [15])
    assert third.points == (CleanPoint(Offset(20), 1_050, 1),), "nothing new was compacted"


def test_should_not_let_a_clock_that_goes_back_shorten_anything() -> None:
    assert points((10, 1_000, 1)).after_pass(Offset(20), 5, [3, 12]).points[-1].clean_ms == 1_000


def test_should_remember_a_bounded_number_of_times_and_let_tombstones_go_nevertheless() -> None:
    clean, tombstones = points(), []
    for i in range(1, 3 * CLEAN_POINTS_MAX):
        tombstones.append(i * 10 - 1)
        clean = clean.after_pass(Offset(i * 10), i * 100, tombstones)
    assert len(clean.points) == CLEAN_POINTS_MAX
    assert sum(point.tombstones for point in clean.points) == len(tombstones)
    assert clean.points[0] == CleanPoint(Offset(10), 100, 1)
    times = [point.clean_ms for point in clean.points]
    assert max(b - a for a, b in pairwise(times)) <= 800


def test_should_remember_what_its_file_says() -> None:
    clean = points((10, 1_000, 2), (20, 1_000, 0))
    assert CleanPoints.parse(clean.format()).points == clean.points
    assert CleanPoints.parse(points().format()).points == ()


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 50), st.integers(0, 5)), max_size=10))
def test_should_come_back_from_its_file(steps: list[tuple[int, int, int]]) -> None:
    end, clean_ms, rows = 0, 0, []
    for offsets, ms, tombstones in steps:
        end, clean_ms = end + offsets, clean_ms + ms
        rows.append((end, clean_ms, tombstones))
    clean = points(*rows)
    assert CleanPoints.parse(clean.format()).points == clean.points


@pytest.mark.parametrize("lines", [["1 2"], ["1 2 x"], ["5 1 1", "5 2 1"], ["5 2 1", "6 1 1"]])
def test_should_refuse_a_file_that_says_something_else(lines: list[str]) -> None:
    with pytest.raises(DamagedFileError):
        CleanPoints.parse(seal("compaction-checkpoint", lines))

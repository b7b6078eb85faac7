"""Names of segments, and when a log goes on in a new one."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.limits import SEGMENT_BYTES_MAX, SEGMENT_OFFSETS_MAX, UNSYNCED_SEGMENTS_MAX
from headrace.core.log.segments import SEGMENT_BYTES_MIN, Growth, LogConfig, parse_log_name, roll_reason, segment_name
from headrace.core.resources.topic import Durability, TopicSpec
from headrace.core.types import Offset

CONFIG = LogConfig(segment_bytes=1000, segment_ms=500, durability=Durability.FSYNC)
GROWTH = Growth(
    segment_bytes=900,
    segment_offsets=9,
    created_ms=100,
    append_bytes=100,
    append_offsets=1,
    now_ms=599,
    unsynced_segments=UNSYNCED_SEGMENTS_MAX - 1,
)


def test_should_name_a_segment_after_its_first_offset() -> None:
    assert segment_name(Offset(170)) == "00000000000000000170"
    assert parse_log_name("00000000000000000170.log") == 170


@given(st.integers(0, (1 << 63) - 1))
def test_should_find_the_base_offset_again_when_a_log_file_has_its_name(offset: int) -> None:
    name = segment_name(Offset(offset)) + ".log"
    assert parse_log_name(name) == offset
    assert len(name) == 24


@pytest.mark.parametrize("name", ["1.log", "0" * 20 + ".index", "0" * 20, "x" * 20 + ".log", "٠" * 20 + ".log", ""])
def test_should_leave_a_file_alone_when_its_name_is_not_a_log_s(name: str) -> None:
    assert parse_log_name(name) is None


def test_should_take_the_log_s_part_of_a_topic_s_spec() -> None:
    spec = TopicSpec.parse({"partitions": 1, "segment": {"bytes": "1Mi", "time": "1h"}, "durability": "Replicated"})
    assert LogConfig.of_topic(spec) == LogConfig(1 << 20, 3_600_000, Durability.REPLICATED)


@pytest.mark.parametrize(
    ("asked", "taken"), [(1, SEGMENT_BYTES_MIN), (SEGMENT_BYTES_MIN, SEGMENT_BYTES_MIN), (1 << 20, 1 << 20)]
)
def test_should_take_the_least_size_for_a_segment_of_which_each_request_would_be_one(asked: int, taken: int) -> None:
    spec = TopicSpec.parse({"partitions": 1, "segment": {"bytes": str(asked)}})
    assert LogConfig.of_topic(spec).segment_bytes == taken


def test_should_stay_in_the_segment_when_the_append_just_fits() -> None:
    assert roll_reason(GROWTH, CONFIG) == ""


@pytest.mark.parametrize(
    ("growth", "reason"),
    [
        (GROWTH._replace(append_bytes=101), "1001 bytes would pass segment.bytes 1000"),
        (GROWTH._replace(now_ms=600), "it is 500 ms old, segment.time is 500 ms"),
        (GROWTH._replace(segment_offsets=SEGMENT_OFFSETS_MAX), f"cannot name more than {SEGMENT_OFFSETS_MAX} offsets"),
    ],
)
def test_should_roll_when_a_limit_is_passed(growth: Growth, reason: str) -> None:
    assert reason in roll_reason(growth, CONFIG)


def test_should_roll_at_the_index_s_own_limit_when_the_topic_allows_more() -> None:
    config = replace(CONFIG, segment_bytes=SEGMENT_BYTES_MAX * 2)
    assert "positions beyond" in roll_reason(GROWTH._replace(segment_bytes=SEGMENT_BYTES_MAX), config)


def test_should_roll_only_where_it_must_when_many_closed_segments_wait_for_their_sync() -> None:
    behind = GROWTH._replace(append_bytes=101, now_ms=600, unsynced_segments=UNSYNCED_SEGMENTS_MAX)
    assert roll_reason(behind, CONFIG) == ""
    assert roll_reason(behind._replace(segment_bytes=SEGMENT_BYTES_MAX), CONFIG) != ""
    assert roll_reason(behind._replace(segment_offsets=SEGMENT_OFFSETS_MAX), CONFIG) != ""


def test_should_never_roll_an_empty_segment() -> None:
    assert roll_reason(GROWTH._replace(segment_bytes=0, append_bytes=5000, now_ms=10**9), CONFIG) == ""

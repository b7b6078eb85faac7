"""A partition's segments: how their files are called, and when the log goes on in a new one.

A segment is a run of batches in one `.log` file, named after the offset of its first record, with two sparse indexes
beside it. Only the last segment is written to; the others are closed and never change. Called by
`headrace_broker.storage`, and by whoever reads a partition's directory.
"""

from typing import Final, NamedTuple, Self

from headrace.core.limits import SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN, SEGMENT_OFFSETS_MAX, UNSYNCED_SEGMENTS_MAX
from headrace.core.resources.topic import Durability, TopicSpec
from headrace.core.slotted import dataclass
from headrace.core.types import Offset

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"

_DIGITS = 20


def segment_name(base_offset: Offset) -> str:
    """The name that the three files of a segment share; sorts as the offsets do."""
    return f"{base_offset:0{_DIGITS}d}"


def parse_log_name(file_name: str) -> Offset | None:
    """The base offset of a `.log` file; None for every other name."""
    name = file_name.removesuffix(LOG_SUFFIX)
    if name == file_name or len(name) != _DIGITS or not (name.isascii() and name.isdecimal()):
        return None
    return Offset(int(name))


@dataclass(frozen=True, slots=True)
class LogConfig:
    """What a log takes from its topic's spec; may be replaced while the log is open."""

    segment_bytes: int
    """At least SEGMENT_BYTES_MIN where it comes from a topic."""
    segment_ms: int
    durability: Durability

    @classmethod
    def of_topic(cls, spec: TopicSpec) -> Self:
        return cls(max(spec.segment_bytes, SEGMENT_BYTES_MIN), spec.segment_ms, spec.durability)


class Growth(NamedTuple):
    """What the active segment holds, and what is about to be appended to it. Made for each append, so a tuple."""

    segment_bytes: int
    segment_offsets: int
    """Offsets from its base to the end of the log."""
    created_ms: int
    append_bytes: int
    append_offsets: int
    now_ms: int
    unsynced_segments: int
    """Closed, but not on disk yet."""


def roll_reason(growth: Growth, config: LogConfig) -> str:
    """Why the append must go to a new segment; empty where it goes to the active one.

    One append is never split, so a segment is larger than `segment_bytes` where a single append is; and so it is where
    many closed segments wait for their sync already. An empty segment is never rolled: two segments cannot have one
    base offset.
    """
    if growth.segment_bytes == 0:
        return ""
    grown_bytes = growth.segment_bytes + growth.append_bytes
    if grown_bytes > SEGMENT_BYTES_MAX:
        return f"its index cannot name positions beyond {SEGMENT_BYTES_MAX}"
    if growth.segment_offsets + growth.append_offsets > SEGMENT_OFFSETS_MAX:
        return f"its index cannot name more than {SEGMENT_OFFSETS_MAX} offsets"
    if growth.unsynced_segments >= UNSYNCED_SEGMENTS_MAX:
        return ""
    if grown_bytes > config.segment_bytes:
        return f"{grown_bytes} bytes would pass segment.bytes {config.segment_bytes}"
    if growth.now_ms - growth.created_ms >= config.segment_ms:
        return f"it is {growth.now_ms - growth.created_ms} ms old, segment.time is {config.segment_ms} ms"
    return ""

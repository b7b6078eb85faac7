"""What a partition's directory remembers beside its segments, as values and as files (`sealed` text).

- `recovery-point`: everything below was verified and is on disk, indexes included; recovery scans from here.
- `high-watermark-checkpoint`: a lower bound of the high watermark; written now and then.
- `log-start-checkpoint`: there once records were deleted from the front; what lies below is shown to nobody.
- `cut-at`: there only after a failed `fdatasync`, or where a closed segment is damaged that others have whole. What
  lies above may not be on disk, though it reads fine now, or is not what was written: the next start cuts there.
- `void-before`: a seat of this replica in an older incarnation than this is never renewed (design section 6).

Called by `headrace_broker.storage`.
"""

from typing import Final, NamedTuple

from headrace.core.log.sealed import seal, unseal_integers
from headrace.core.types import Incarnation, Offset

RECOVERY_POINT_FILE: Final = "recovery-point"
HIGH_WATERMARK_FILE: Final = "high-watermark-checkpoint"
LOG_START_FILE: Final = "log-start-checkpoint"
CUT_AT_FILE: Final = "cut-at"
VOID_BEFORE_FILE: Final = "void-before"


class LogPoint(NamedTuple):
    """A place between two batches of a log."""

    offset: Offset
    """Of the batch that starts here, or would."""
    segment: Offset
    """Base offset of the segment that holds it."""
    position: int
    """Bytes from the start of that segment."""
    segment_created_ms: int
    """When the segment was begun: a segment's age survives a restart."""


def format_log_point(kind: str, point: LogPoint) -> bytes:
    """Content of `recovery-point` and of `cut-at`."""
    return seal(kind, [" ".join(map(str, point))])


def parse_log_point(kind: str, content: bytes) -> LogPoint:
    """Raises DamagedFileError."""
    offset, segment, position, created_ms = unseal_integers(kind, content, 4)
    return LogPoint(Offset(offset), Offset(segment), position, created_ms)


def format_high_watermark(offset: Offset) -> bytes:
    return seal(HIGH_WATERMARK_FILE, [str(offset)])


def parse_high_watermark(content: bytes) -> Offset:
    """Raises DamagedFileError."""
    return Offset(unseal_integers(HIGH_WATERMARK_FILE, content, 1)[0])


def format_log_start(offset: Offset) -> bytes:
    return seal(LOG_START_FILE, [str(offset)])


def parse_log_start(content: bytes) -> Offset:
    """Raises DamagedFileError."""
    return Offset(unseal_integers(LOG_START_FILE, content, 1)[0])


def format_void_before(incarnation: Incarnation) -> bytes:
    return seal(VOID_BEFORE_FILE, [str(incarnation)])


def parse_void_before(content: bytes) -> Incarnation:
    """Raises DamagedFileError."""
    return Incarnation(unseal_integers(VOID_BEFORE_FILE, content, 1)[0])

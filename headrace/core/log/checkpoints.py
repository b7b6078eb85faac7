"""The small files that a broker keeps beside its segments: their values, and a text with a checksum.

    headrace recovery-point 1 5f0c1a2b           one line with a checksum (CRC-32C of everything after it), then
    812 512 65536 1767225600000                  lines that a person can read

- `recovery-point`: everything below was verified and is on disk, indexes included; recovery scans from here.
- `high-watermark-checkpoint`: a lower bound of the high watermark; written now and then.
- `log-start-checkpoint`: there once records were deleted from the front; records below it are never shown.
- `cut-at`: there only after a failed `fdatasync`, or for a damaged segment that others have whole. Records above it
  may not be on disk, or are not what was written: the next start cuts there.
- `void-before`: a seat of this replica in an older incarnation than this is never renewed.
- `epochs-seen`: the greatest leader epoch that the broker has seen of each partition, a promise that outlives the
  process. One file for all partitions, so that any number of promises is one sync.

These files decide what is kept and who may be elected, so a flipped bit must be noticed. They are used by
`headrace_broker.storage`, and by the other codecs of sealed text.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from headrace.core.types import Incarnation, LeaderEpoch, Offset, PartitionId, PartitionKey, TopicUid

_VERSION = "1"
RECOVERY_POINT_FILE: Final = "recovery-point"
HIGH_WATERMARK_FILE: Final = "high-watermark-checkpoint"
LOG_START_FILE: Final = "log-start-checkpoint"
CUT_AT_FILE: Final = "cut-at"
VOID_BEFORE_FILE: Final = "void-before"
EPOCHS_SEEN_FILE: Final = "epochs-seen"


class DamagedFileError(Exception):
    """The file is not what was written: cut short, changed, or of another kind. The message has the reason."""


def seal(kind: str, lines: Sequence[str]) -> bytes:
    """Return the file's content; `lines` hold no line breaks."""
    body = "".join(f"{line}\n" for line in lines).encode()
    return f"headrace {kind} {_VERSION} {crc32c(body):08x}\n".encode() + body


def unseal(kind: str, content: bytes) -> list[str]:
    """Return the lines that were sealed. Raises DamagedFileError."""
    head, _, body = content.partition(b"\n")
    expected = f"headrace {kind} {_VERSION} {crc32c(body):08x}".encode()
    if head != expected:
        raise DamagedFileError(f"its first line is {head[:80]!r}, the rest of it asks for {expected!r}")
    return body.decode().splitlines()


def unseal_integers(kind: str, content: bytes, count: int) -> list[int]:
    """Return the integers of a file that is one line of them. Raises DamagedFileError."""
    lines = unseal(kind, content)
    try:
        numbers = [int(word) for line in lines for word in line.split(" ")]
    except ValueError as error:
        raise DamagedFileError(f"{lines} are not numbers") from error
    if len(numbers) != count:
        raise DamagedFileError(f"it holds {len(numbers)} numbers, not {count}")
    return numbers


class LogPoint(NamedTuple):
    """A place between two batches of a log."""

    offset: Offset
    """The offset of the batch that starts here, or would."""
    segment: Offset
    """The base offset of the segment that holds it."""
    position: int
    """The number of bytes from the start of that segment."""
    segment_created_ms: int
    """The time when the segment was begun: a segment's age survives a restart."""


def format_log_point(kind: str, point: LogPoint) -> bytes:
    """Return the content of `recovery-point` and of `cut-at`."""
    return seal(kind, [" ".join(map(str, point))])


def parse_log_point(kind: str, content: bytes) -> LogPoint:
    """Parse one. Raises DamagedFileError."""
    offset, segment, position, created_ms = unseal_integers(kind, content, 4)
    return LogPoint(Offset(offset), Offset(segment), position, created_ms)


def format_high_watermark(offset: Offset) -> bytes:
    return seal(HIGH_WATERMARK_FILE, [str(offset)])


def parse_high_watermark(content: bytes) -> Offset:
    """Parse the file. Raises DamagedFileError."""
    return Offset(unseal_integers(HIGH_WATERMARK_FILE, content, 1)[0])


def format_log_start(offset: Offset) -> bytes:
    return seal(LOG_START_FILE, [str(offset)])


def parse_log_start(content: bytes) -> Offset:
    """Parse the file. Raises DamagedFileError."""
    return Offset(unseal_integers(LOG_START_FILE, content, 1)[0])


def format_void_before(incarnation: Incarnation) -> bytes:
    return seal(VOID_BEFORE_FILE, [str(incarnation)])


def parse_void_before(content: bytes) -> Incarnation:
    """Parse the file. Raises DamagedFileError."""
    return Incarnation(unseal_integers(VOID_BEFORE_FILE, content, 1)[0])


def raised(
    known: Mapping[PartitionKey, LeaderEpoch], seen: Mapping[PartitionKey, LeaderEpoch]
) -> dict[PartitionKey, LeaderEpoch]:
    """Return both together: no epoch ever falls."""
    return {**known, **{key: epoch for key, epoch in seen.items() if epoch > known.get(key, -1)}}


def format_epochs_seen(epochs: Mapping[PartitionKey, LeaderEpoch]) -> bytes:
    """Return a line for each partition: uid, partition, epoch."""
    return seal(EPOCHS_SEEN_FILE, [f"{key.uid} {key.partition} {epoch}" for key, epoch in epochs.items()])


def parse_epochs_seen(content: bytes) -> dict[PartitionKey, LeaderEpoch]:
    """Parse the file. Raises DamagedFileError."""
    lines = unseal(EPOCHS_SEEN_FILE, content)
    try:
        rows = [line.split(" ") for line in lines]
        return {PartitionKey(TopicUid(uid), PartitionId(int(n))): LeaderEpoch(int(epoch)) for uid, n, epoch in rows}
    except ValueError as error:
        raise DamagedFileError(f"{lines[:3]} are not rows of a uid, a partition and an epoch") from error

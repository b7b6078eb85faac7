"""What a broker and the process that compacts for it tell each other, as values and as lines of JSON.

    broker ──Job──> compactor ──Cleaned──> broker swaps it in ──> "go on" ──> ... ──> Done | Failed

Light on purpose: a broker imports this, and never what a compactor needs to look into records.
"""

import json
from enum import StrEnum
from typing import Any, Final, NamedTuple, Self

from headrace.core.limits import COMPACTION_KEYS_MAX
from headrace.core.log.compaction import CleanPoint
from headrace.core.log.retention import ClosedSegment
from headrace.core.types import Offset

GO_ON: Final = b"go on\n"


class Job(NamedTuple):
    """One pass over one log."""

    directory: str
    segments: tuple[ClosedSegment, ...]
    dirty_from: Offset
    tombstones_from: Offset
    log_start: Offset
    segment_bytes: int
    points: tuple[CleanPoint, ...]
    now_ms: int
    reason: str
    producers: tuple[int, ...]
    """Those idempotent ones whose last batches must stay."""
    keys_max: int = COMPACTION_KEYS_MAX

    @classmethod
    def parse(cls, line: bytes) -> Self:
        fields: dict[str, Any] = json.loads(line)
        fields["segments"] = tuple(ClosedSegment(*each) for each in fields["segments"])
        return cls(**_with_points(fields))


class Cleaned(NamedTuple):
    """One segment is written and on disk, and waits to be swapped in."""

    base_offset: Offset
    next_offset: Offset
    size_bytes: int
    bytes_before: int


class Unreadable(NamedTuple):
    """Batches that nobody can decode, which stay as they are."""

    batches: int
    first_offset: Offset


class Done(NamedTuple):
    """The pass is over; `points` holds when all that was cleaned is swapped in."""

    points: tuple[CleanPoint, ...]
    records_before: int
    records_after: int
    without_key: int
    unreadable: Unreadable | None = None


class Why(StrEnum):
    """Why a pass has failed."""

    CHANGED = "changed"
    """Segments were deleted meanwhile: plan it again."""
    DISK = "disk"
    DAMAGED = "damaged"
    """A batch is not what was written: the log cannot be compacted."""
    MEMORY = "memory"
    ENDED = "ended"
    """The process that compacts was killed, or made a mistake; mostly memory is why."""


class Failed(NamedTuple):
    why: Why
    message: str


Told = Cleaned | Done | Failed
_KINDS: Final = {kind.__name__: kind for kind in (Cleaned, Done, Failed)}


def format_job(job: Job) -> bytes:
    return json.dumps(job._asdict()).encode() + b"\n"


def format_told(told: Told) -> bytes:
    return json.dumps({"kind": type(told).__name__, **told._asdict()}).encode() + b"\n"


def parse_told(line: bytes) -> Told:
    fields = json.loads(line)
    kind = fields.pop("kind")
    if kind == Done.__name__:
        unreadable = fields["unreadable"]
        fields = _with_points(fields) | {"unreadable": Unreadable(*unreadable) if unreadable is not None else None}
    if kind == Failed.__name__:
        fields["why"] = Why(fields["why"])
    told: Told = _KINDS[kind](**fields)
    return told


def _with_points(fields: dict[str, Any]) -> dict[str, Any]:
    return fields | {"points": tuple(CleanPoint(*each) for each in fields["points"])}

"""The events and effects that all coordinators share: each lives by one partition of an internal topic.

    idle ── elected ──> loading ── the log was read to its end ──> active ── deposed ──> idle

The shell appends the decisions of a coordinator in order, a batch for each decision. It reports `Committed` when the
high watermark has passed a batch, and `Deposed` as soon as something cannot be appended or the broker leads no more.
Everything that was decided since is thrown away then, and the next leader knows what was committed. Called by
`groups.coordinator` and `staging.coordinator`, and by the one shell of both.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from headrace.core.errors import HeadraceError

EntryT = TypeVar("EntryT")


class UnreadableRecordError(Exception):
    """A record of an internal topic that this version of Headrace cannot read, or that is damaged."""


class CoordinatorState(StrEnum):
    IDLE = "idle"
    LOADING = "loading"
    ACTIVE = "active"


@dataclass(frozen=True, slots=True)
class Elected:
    """This broker leads the partition: its log is about to be read, up to where it ended then."""


@dataclass(frozen=True, slots=True)
class Read(Generic[EntryT]):
    """Records of the log, in order; only what is committed."""

    entries: tuple[EntryT, ...]


@dataclass(frozen=True, slots=True)
class ReadToEnd:
    wall_ms: int


@dataclass(frozen=True, slots=True)
class Deposed:
    reason: str


@dataclass(frozen=True, slots=True)
class Committed:
    """Everything up to this `Append`."""

    number: int


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time went by."""

    wall_ms: int
    """Milliseconds since 1970: for what outlives this coordinator."""


@dataclass(frozen=True, slots=True)
class Append(Generic[EntryT]):
    """As one batch, after those of lower numbers."""

    number: int
    entries: tuple[EntryT, ...]
    reason: str
    size_bytes: int
    """Of its records, at most."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Each request gets one answer, or this."""

    request: int
    error: HeadraceError
    reason: str

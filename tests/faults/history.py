"""What is known of a run with faults: what clients asked and were told, and what is there in the end. Pure.

Clients write down facts, no opinions: a `Write` for each record that somebody tried to write, once its outcome is known
or given up; a `Poll` for each answer with records; a `Look` for each answer about the end of a partition. The run adds
the whole log as it can be read when all is over, and what lies on the disks of the replicas. `judge` says what is
wrong, `figures` how long clients had to wait.

Values are told apart by their bytes: every attempt of a writer that does not number its batches has a new one.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Outcome(StrEnum):
    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"
    """With an error that promises that nothing was written."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Write:
    """One record of one writer."""

    writer: str
    number: int
    """Rises with each write of this writer to this partition."""
    partition: int
    value: bytes
    began_s: float
    ended_s: float
    outcome: Outcome
    offset: int = -1
    """Where it stands, as acknowledged."""
    why: str = ""
    """The code of the error."""


@dataclass(frozen=True, slots=True)
class Row:
    offset: int
    value: bytes
    leader_epoch: int = -1
    """-1: the reader does not see it."""


@dataclass(frozen=True, slots=True)
class Poll:
    """An answer to a fetch."""

    reader: str
    partition: int
    at_s: float
    rows: tuple[Row, ...]
    high_watermark: int = -1
    """-1: the reader does not see it."""


@dataclass(frozen=True, slots=True)
class Look:
    """An answer to the question where a partition ends."""

    reader: str
    partition: int
    at_s: float
    end: int


@dataclass(frozen=True, slots=True)
class Fault:
    """A time in which something was broken."""

    name: str
    began_s: float
    ended_s: float


@dataclass(slots=True)
class History:
    """Of one topic, whole."""

    writes: Sequence[Write] = ()
    polls: Sequence[Poll] = ()
    looks: Sequence[Look] = ()
    final: Mapping[int, Sequence[Row]] = field(default_factory=dict)
    """All that can be read in the end, by partition, as it was read."""
    replicas: Mapping[int, Mapping[str, Mapping[int, bytes]]] = field(default_factory=dict)
    """Partition -> replica in sync -> base offset of each batch below the high watermark -> its bytes."""
    faults: Sequence[Fault] = ()
    idempotent: frozenset[str] = frozenset()
    """Writers that number their batches."""
    starts: Mapping[int, int] = field(default_factory=dict)
    """Where logs begin in the end, where records were deleted on purpose; 0 else."""
    ends_reached: Mapping[str, Collection[int]] = field(default_factory=dict)
    """Reader -> the partitions that it says to have read from the first record to the last."""

    @property
    def partitions(self) -> list[int]:
        """All that somebody wrote to or read."""
        return sorted({write.partition for write in self.writes} | {*self.final})

    @property
    def polls_by_reader(self) -> dict[tuple[str, int], list[Poll]]:
        """Of each reader and partition, in its order."""
        found: dict[tuple[str, int], list[Poll]] = {}
        for poll in self.polls:
            found.setdefault((poll.reader, poll.partition), []).append(poll)
        return found

"""What the SDK's users hold: records as they were read, and where sent ones were written.

`Record` and `RecordMetadata` are named tuples because a client makes millions of them: the interpreter builds a tuple
from columns in C, a frozen dataclass field by field in Python.
"""

from typing import NamedTuple, TypeAlias

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


class TopicPartition(NamedTuple):
    """A partition by its topic's name; the namespace is the client's."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


Place: TypeAlias = int | TopicPartition
"""A partition as users name it: a number where it is clear of which topic, or both."""


class Record(NamedTuple):
    """One record as a consumer read it. A null `value` is a tombstone."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    """Milliseconds since 1970 UTC: the producer's, or the broker's where the topic says `LogAppendTime`."""
    key: bytes | None
    value: bytes | None
    headers: Headers


class RecordMetadata(NamedTuple):
    """Where a record was written."""

    topic: str
    partition: int
    offset: int
    """-1 with `acks=0`: nobody said where."""


class BatchMetadata(NamedTuple):
    """Where a run of `send_batch`'s records was written: at consecutive offsets of one partition, in their order."""

    topic: str
    partition: int
    base_offset: int
    """-1 with `acks=0`: nobody said where."""
    record_count: int


class GroupOffset(NamedTuple):
    """How far a group is in a partition."""

    offset: int
    """Of the next record to read."""
    metadata: str
    """What the member that committed it wrote beside it."""
    committed_ms: int
    """Milliseconds since 1970 UTC, by the coordinator's clock."""

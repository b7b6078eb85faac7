"""One record as people and programs that work record by record hold it; whole batches stay in columns."""

from headrace.core.slotted import dataclass

RecordHeaders = tuple[tuple[str, bytes | None], ...]
"""Names and values in the order they were written; a name may come twice."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record without its place: topic, partition and offset belong to where it was read from."""

    key: bytes | None
    value: bytes | None
    """None is a tombstone: compaction forgets the key."""
    timestamp_ms: int
    """Milliseconds since 1970-01-01 UTC."""
    headers: RecordHeaders = ()

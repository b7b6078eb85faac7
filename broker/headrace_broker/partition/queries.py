"""The requests of clients to a partition, as values: parsed by the routes, carried out by the partition."""

from dataclasses import dataclass
from enum import StrEnum

from headrace.core.log.epochs import Fence
from headrace.core.types import Acks, Offset, PartitionId, TopicName


class Edge(StrEnum):
    """The ends of what can be read."""

    EARLIEST = "earliest"
    LATEST = "latest"


class ValueFormat(StrEnum):
    """How JSON shows keys and values: as strings, or as the JSON that they hold."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Place:
    """The partition that a path names."""

    topic: TopicName
    partition: PartitionId

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


@dataclass(frozen=True, slots=True)
class ProduceQuery:
    acks: Acks
    timeout_ms: int
    fence: Fence
    is_committed: bool = False
    """A coordinator of writers has decided that the records are written, and has looked at their times before."""


@dataclass(frozen=True, slots=True)
class FetchQuery:
    offset: Offset | Edge
    max_bytes: int
    max_records: int
    min_bytes: int
    max_wait_ms: int
    fence: Fence
    value_format: ValueFormat


@dataclass(frozen=True, slots=True)
class WatchQuery:
    offset: Offset | Edge
    max_bytes: int
    """The bytes of batches that are read at a time."""
    max_records: int | None
    """The stream ends after so many; None: never."""
    fence: Fence
    value_format: ValueFormat


@dataclass(frozen=True, slots=True)
class DeleteQuery:
    before: Offset | Edge
    """First offset that stays; `LATEST` for the high watermark, never `EARLIEST`."""
    fence: Fence


@dataclass(frozen=True, slots=True)
class OffsetsQuery:
    timestamp: int | Edge
    """Milliseconds since 1970, or an end."""
    fence: Fence

"""The options of a producer, checked once: one sentence for each that breaks a rule."""

from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias

from headrace.client.batches import BATCH_OVERHEAD_BYTES
from headrace.client.partitioning import Partitioner
from headrace.core.errors import LocalError
from headrace.core.records.header import Compression
from headrace.core.slotted import dataclass

Acks: TypeAlias = Literal["all", "1", "0"] | int
CompressionName: TypeAlias = Literal["none", "lz4", "zstd"]
_COMPRESSIONS: Final[Mapping[str, Compression]] = {c.name.lower(): c for c in Compression}
_ACKS: Final = ("all", "1", "0")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    acks: str
    linger_ms: int
    batch_bytes: int
    buffer_bytes: int
    compression: Compression
    partitioner: Partitioner | None
    delivery_timeout_ms: int
    request_timeout_ms: int
    is_idempotent: bool = False

    def __post_init__(self) -> None:
        _choice("acks", self.acks, _ACKS)
        if self.is_idempotent and self.acks != "all":
            raise ValueError(
                f"enable_idempotence=True needs acks='all', acks is {self.acks!r}: who does not wait until a record is"
                " safe cannot know whether to repeat it; leave one of the two out"
            )
        _at_least("linger_ms", self.linger_ms, 0)
        _at_least("batch_bytes", self.batch_bytes, 2 * BATCH_OVERHEAD_BYTES)
        _at_least("buffer_bytes", self.buffer_bytes, self.batch_bytes)
        _at_least("request_timeout_ms", self.request_timeout_ms, 1)
        _at_least("delivery_timeout_ms", self.delivery_timeout_ms, 1)


def as_compression(name: str) -> Compression:
    _choice("compression", name, _COMPRESSIONS)
    return _COMPRESSIONS[name]


def _choice(name: str, value: str, choices: Iterable[str]) -> None:
    if value not in choices:
        raise LocalError(f"{name} is {value!r}: it must be one of {', '.join(choices)}")


def _at_least(name: str, value: object, least: int) -> None:
    if not isinstance(value, int):
        raise TypeError(f"{name} is {type(value).__name__}, not int: it must be at least {least}")
    if value < least:
        raise LocalError(f"{name} is {value}: it must be at least {least}")

"""What a soak run was promised: batches that were acknowledged, and the last word on each key.

Batches are told apart, not records: every batch of a topic has ROWS records, which all carry the batch's name, so that
minutes at full load fit into memory. A batch stands at `base offset / ROWS`, and the history checker judges batches as
it judges records: places rise by one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from headrace.core.records.columns import encode_batch, record_columns
from tests.support.history import Entry

ROWS: Final = 100
_VALUE_BYTES: Final = 100
STEADY: Final = 0
"""The broker that is never killed: over its life memory and open files are judged."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Of one broker process."""

    at_s: float
    broker: int
    pid: int
    rss_bytes: int
    open_files: int


class DamagedBatchError(Exception):
    """What was read is nothing that anybody wrote."""


def values_of(name: bytes) -> list[bytes]:
    """ROWS records of a hundred bytes, all called `name`."""
    return [name.ljust(_VALUE_BYTES, b".")] * ROWS


def batch_of(name: bytes, now_ms: int) -> bytes:
    return b"".join(encode_batch(record_columns(values_of(name), timestamps_ms=now_ms)))


def entries_of(partition: int, base_offset: int, values: Sequence[bytes]) -> list[Entry]:
    """The batches that these records are, which follow each other; a client may have joined some into a larger one.

    Raises DamagedBatchError.
    """
    found: list[Entry] = []
    for at in range(0, len(values), ROWS):
        names, offset = set(values[at : at + ROWS]), base_offset + at
        if offset % ROWS or len(values) % ROWS or len(names) != 1:
            raise DamagedBatchError(f"partition {partition}, {len(values)} records from {base_offset}: {names}")
        found.append(Entry(partition, offset // ROWS, names.pop().rstrip(b".")))
    return found


@dataclass(slots=True)
class KeyedWord:
    """What may be the last record of a key."""

    acknowledged: bytes | None = None
    """Its value; None for a tombstone, and where there was never one."""
    is_acknowledged: bool = False
    unsure: list[bytes | None] = field(default_factory=list)
    """Written since, and never answered: each of them may be there or not."""

    def written(self, value: bytes | None, *, acknowledged: bool) -> None:
        if acknowledged:
            self.acknowledged, self.is_acknowledged, self.unsure = value, True, []
        else:
            self.unsure.append(value)

    def allows(self, found: bytes | None) -> bool:
        """`found` is the last value in the log; None for a tombstone, and where there is no record."""
        known = [self.acknowledged] if self.is_acknowledged else [None]
        return found in [*known, *self.unsure]


def wrong_keys(words: dict[bytes, KeyedWord], found: dict[bytes, bytes | None]) -> list[str]:
    """A sentence for each key whose last record is not what it may be."""
    wrong = [
        f"key {key!r}: the last value is {found.get(key)!r}, acknowledged was {word.acknowledged!r}, after it"
        f" {word.unsure!r} without an answer"
        for key, word in sorted(words.items())
        if not word.allows(found.get(key))
    ]
    return wrong + [f"key {key!r} was never written" for key in sorted(found.keys() - words.keys())]


def outside(entries: Iterable[Entry], skipped: dict[int, list[range]]) -> list[Entry]:
    """Without those at places that a reader skipped, because retention was faster."""
    return [entry for entry in entries if not any(entry.offset in gap for gap in skipped.get(entry.partition, []))]


def since(entries: Iterable[Entry], starts: dict[int, int]) -> list[Entry]:
    """Those that lie at or after the start of their partition."""
    return [entry for entry in entries if entry.offset >= starts[entry.partition]]


def growth(samples: Sequence[tuple[float, float]]) -> float:
    """How much a straight line through (time, value) rises from the first time to the last."""
    count = len(samples)
    if count < 2:
        return 0.0
    mean_time = sum(time for time, _ in samples) / count
    mean = sum(value for _, value in samples) / count
    spread = sum((time - mean_time) ** 2 for time, _ in samples)
    slope = sum((time - mean_time) * (value - mean) for time, value in samples) / spread if spread else 0.0
    return slope * (samples[-1][0] - samples[0][0])

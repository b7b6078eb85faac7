"""Which record of each key is the last one, of a run of batches: what compaction goes by. Pure.

One `LatestRecords` serves one pass over one log and is bounded: it takes whole batches for as long as there is room,
and says up to which offset it knows (`end`). Invariants: an offset below `end` and from the first batch on is in it
where its key has no later record below `end`; keys are compared as they are, those that are very long by a digest of 64
bytes, which no short key can be mistaken for.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.records.columns import DecodedBatch
from headrace.core.types import Offset

_KEY_BYTES_MAX = 64
_NEVER = -1


class LatestRecords:
    def __init__(self, end: Offset, keys_max: int) -> None:
        """Of no batch yet; the first one will start at `end`."""
        self.end = end
        self._keys_max = keys_max
        self._offsets: dict[bytes, int] = {}

    def add(self, batch: DecodedBatch) -> bool:
        """Take the next batch; False, and nothing of it is taken, where it might not fit. The first one always does."""
        if self._offsets and len(self._offsets) + len(batch.offsets) > self._keys_max:
            return False
        keys = batch.records.column(0)
        self._offsets.update(zip(_bounded(keys), batch.offsets.tolist(), strict=True))
        self._offsets.pop(_NO_KEY, None)
        self.end = batch.header.next_offset
        return True

    def skip(self, end: Offset) -> None:
        """What comes before `end` holds no records."""
        self.end = end

    def are_last(self, batch: DecodedBatch) -> npt.NDArray[np.bool_]:
        """Of each record of a batch below `end`, whether its key has no later one; false for those without a key."""
        keys = batch.records.column(0)
        found = map(self._offsets.get, _bounded(keys), [_NEVER] * len(keys))
        later = np.fromiter(found, np.int64, len(keys)) > batch.offsets
        if keys.null_count:
            later |= keys.is_null().to_numpy(zero_copy_only=False)
        return np.asarray(~later, np.bool_)


_NO_KEY: Any = None


def _bounded(keys: pa.Array) -> Iterable[Any]:
    """The keys, and None where there is none."""
    entries: list[Any] = keys.to_pylist()
    if all(key is None or len(key) <= _KEY_BYTES_MAX for key in entries):
        return entries
    return [_digest(key) if key is not None and len(key) > _KEY_BYTES_MAX else key for key in entries]


def _digest(key: bytes) -> bytes:
    return blake2b(key).digest() + b"\0"  # One byte longer than any key that is not digested.

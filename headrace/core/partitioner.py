"""The choice of a record's partition: Kafka's answers, so that keys land where a Kafka user expects them.

A record with a key goes to `(murmur2(key) & 0x7fffffff) % partitions` (Kafka's default partitioner), the same in every
client and in the broker. Records without a key stay with one partition until enough bytes went there, then with the
next (KIP-480, KIP-794): few large batches instead of many small ones. Columns of keys are hashed with NumPy, a step of
four bytes for all keys at once, without Python per row.
"""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.murmur2 import MASK, POSITIVE, SEED, M, R, murmur2
from headrace.core.types import PartitionId

NO_KEY: Final = -1
"""The number in the place of a partition for a null key."""

_BLOCK_ROWS: Final = 1 << 14
"""The number of keys hashed at once: what they need stays in the processor's cache."""
_SCALAR_ROWS: Final = 4
"""The number of keys below which they are hashed one by one."""

_WORD_BYTES: Final = 4
_COPIED_WORDS_MAX: Final = 1 << 20
_TAIL_MASKS: Final = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)

_Hashes = npt.NDArray[np.uint32]


def partitions_for_keys(keys: pa.Array, partition_count: int) -> npt.NDArray[np.int64]:
    """Return what `partition_for_key` returns, for a column of binary or text, sliced or not; NO_KEY for nulls."""
    if isinstance(keys, pa.ChunkedArray):
        keys = keys.combine_chunks()
    partitions = np.full(len(keys), NO_KEY, np.int64)
    if keys.null_count == len(keys):
        return partitions
    data, bounds = _data_and_bounds(keys)
    for start in range(0, len(keys), _BLOCK_ROWS):
        hashes = _murmur2_of(data, bounds[start : start + _BLOCK_ROWS + 1])
        partitions[start : start + _BLOCK_ROWS] = (hashes & np.uint32(POSITIVE)) % np.uint32(partition_count)
    if keys.null_count:
        partitions[keys.is_null().to_numpy(zero_copy_only=False)] = NO_KEY
    return partitions


class StickyRoundRobin:
    """The partitions for records without a key: it stays with one for `sticky_bytes`, then goes to the next.

    With `sticky_bytes=0` it is plain round robin. One producer owns it; `start` spreads producers over the partitions.
    """

    def __init__(self, partition_count: int, *, sticky_bytes: int, start: int = 0) -> None:
        self._partition_count = partition_count
        self._sticky_bytes = sticky_bytes
        self._partition = start % partition_count
        self._sent_bytes = 0

    def partition_for(self, record_bytes: int) -> PartitionId:
        """Return the partition of the next record, which has `record_bytes`."""
        partition = self._partition
        self._sent_bytes += record_bytes
        if self._sent_bytes >= self._sticky_bytes:
            self._sent_bytes = 0
            self._partition = (partition + 1) % self._partition_count
        return PartitionId(partition)


def _data_and_bounds(keys: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the bytes of all keys with a word of zeros after them, and where each key starts and ends within."""
    large = pa.types.is_large_binary(keys.type) or pa.types.is_large_string(keys.type)
    if not large and not pa.types.is_binary(keys.type) and not pa.types.is_string(keys.type):
        raise TypeError(f"keys is an Arrow column of {keys.type}: give binary or string, small or large")
    _, offsets, data = keys.buffers()
    width = np.int64 if large else np.int32
    bounds = np.frombuffer(offsets, width)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    used = np.frombuffer(data or b"", np.uint8)[bounds[0] : bounds[-1]]
    return np.concatenate((used, np.zeros(_WORD_BYTES, np.uint8))), bounds - bounds[0]


def _murmur2_of(data: npt.NDArray[np.uint8], bounds: npt.NDArray[np.int64]) -> _Hashes:
    """Return murmur2 of each key. All keys take the steps they have in common, then the longer ones go on, narrowing
    down.

    The last few very long keys are left to `murmur2`: a step for one key gains nothing.
    """
    data = data[bounds[0] : bounds[-1] + _WORD_BYTES]
    starts, sizes = bounds[:-1] - bounds[0], np.diff(bounds)
    steps = sizes // _WORD_BYTES
    common_steps = int(steps.min()) if len(sizes) > _SCALAR_ROWS else 0
    words = _words(data)
    hashed = sizes.astype(np.uint32) ^ np.uint32(SEED)
    for step in range(common_steps):
        hashed = hashed * np.uint32(M) ^ _mixed(words.take(starts + step * _WORD_BYTES))
    rows, step = np.flatnonzero(steps > common_steps), common_steps
    while len(rows) > _SCALAR_ROWS:
        hashed[rows] = hashed[rows] * np.uint32(M) ^ _mixed(words.take(starts[rows] + step * _WORD_BYTES))
        step += 1
        rows = rows[steps[rows] > step]
    hashed = _finished(hashed, words.take(starts + steps * _WORD_BYTES), sizes % _WORD_BYTES)
    for row in rows.tolist():
        hashed[row] = murmur2(data[starts[row] : starts[row] + sizes[row]].tobytes()) & MASK
    return hashed


def _words(data: npt.NDArray[np.uint8]) -> _Hashes:
    """Return the little-endian word at every byte; copied out where that is small, because takes from it are faster
    then."""
    words: _Hashes = np.ndarray((len(data) - _WORD_BYTES + 1,), np.dtype("<u4"), data, strides=(1,))
    return np.ascontiguousarray(words) if len(words) <= _COPIED_WORDS_MAX else words


def _mixed(k: _Hashes) -> _Hashes:
    k = k * np.uint32(M)
    return (k ^ (k >> np.uint32(R))) * np.uint32(M)


def _finished(hashed: _Hashes, tail_words: _Hashes, tail_sizes: npt.NDArray[np.int64]) -> _Hashes:
    """Hash the last 0 to 3 bytes of each key, and do the final shuffle."""
    masks = _TAIL_MASKS.take(tail_sizes)
    hashed = np.where(tail_sizes > 0, (hashed ^ (tail_words & masks)) * np.uint32(M), hashed)
    hashed = (hashed ^ (hashed >> np.uint32(13))) * np.uint32(M)
    return hashed ^ (hashed >> np.uint32(15))

"""Kafka's hash of a key, and the partition that it stands for, one key at a time.

It stands apart from `partitioner`, which does columns of keys and needs NumPy and Arrow: a broker finds a group's
coordinator without either.
"""

from typing import Final

from headrace.core.types import PartitionId

SEED: Final = 0x9747B28C
M: Final = 0x5BD1E995
R: Final = 24
MASK: Final = 0xFFFFFFFF
POSITIVE: Final = 0x7FFFFFFF


def murmur2(data: bytes) -> int:
    """Return Kafka's 32-bit murmur2 (`Utils.murmur2`), as the signed int that Java has."""
    size = len(data)
    tail = size & ~3
    hashed = (SEED ^ size) & MASK
    for at in range(0, tail, 4):
        k = (int.from_bytes(data[at : at + 4], "little") * M) & MASK
        k = ((k ^ (k >> R)) * M) & MASK
        hashed = ((hashed * M) & MASK) ^ k
    if tail < size:
        hashed = ((hashed ^ int.from_bytes(data[tail:], "little")) * M) & MASK
    hashed = ((hashed ^ (hashed >> 13)) * M) & MASK
    hashed ^= hashed >> 15
    return hashed - (1 << 32) if hashed >> 31 else hashed


def partition_for_key(key: bytes, partition_count: int) -> PartitionId:
    """Return the partition of `key`, from 0 to `partition_count - 1`."""
    return PartitionId((murmur2(key) & POSITIVE) % partition_count)

"""Which partition does a record go to? The user's function, the key's hash, or for records without a key the next one.

The hash is Kafka's murmur2, so keys land where a Kafka user expects them. Records without a key stay with one partition
for `STICKY_BYTES`, then go to the next. A `partition=` that the caller gives comes before all of this; it is checked
here too. Pure; one `Partitioning` per layout of a topic, owned by the producer and used by its callers' threads: what
they share is only which partition is the sticky one, where any answer will do.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from operator import index
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.client.columns import by_partition, cut, row_sizes
from headrace.core.errors import LocalError, UnknownPartitionError
from headrace.core.limits import PARTITION_CACHE_KEYS_MAX, STICKY_BYTES
from headrace.core.murmur2 import partition_for_key
from headrace.core.partitioner import NO_KEY, StickyRoundRobin, partitions_for_keys

Partitioner: TypeAlias = Callable[[str, bytes | None, bytes | None, int], int]
"""`partitioner(topic, key, value, partition_count)` gives the partition's number."""

_partition_for_key = lru_cache(maxsize=PARTITION_CACHE_KEYS_MAX)(partition_for_key)


class Partitioning:
    def __init__(self, topic: str, partition_count: int, partitioner: Partitioner | None, *, start: int) -> None:
        """`start` spreads producers over the partitions: any number."""
        self.topic, self.partition_count = topic, partition_count
        self._partitioner = partitioner
        self._sticky = StickyRoundRobin(partition_count, sticky_bytes=STICKY_BYTES, start=start)

    def choose(self, key: bytes | None, value: bytes | None, record_bytes: int) -> int:
        if self._partitioner is not None:
            return self._chosen_by_user(key, value)
        if key is not None:
            return _partition_for_key(key, self.partition_count)
        return self._sticky.partition_for(record_bytes)

    def check(self, partition: int) -> int:
        """Raises UnknownPartitionError for a number that the topic does not have, TypeError for what is no number."""
        if not hasattr(partition, "__index__"):
            raise TypeError(f"partition is {type(partition).__name__}, not int: give its number, or leave it out")
        if not 0 <= partition < self.partition_count:
            raise UnknownPartitionError(
                f"partition {partition} of {self.topic} does not exist: it has {self.partition_count}, numbered from 0",
                partitions=self.partition_count,
            )
        return partition

    def divide(self, records: Any, partition: int | None, batch_bytes: int) -> Iterator[tuple[int, Any, int]]:
        """Columns (RECORD_SCHEMA) as (partition, slice, upper bound of its bytes), each slice one batch."""
        if partition is not None:
            groups: Iterator[tuple[int, Any]] = iter([(self.check(partition), records)])
        elif self._partitioner is None and records.column("key").null_count == records.num_rows:
            groups = iter([(NO_KEY, records)])
        else:
            groups = by_partition(records, self._partitions_of(records))
        for group, rows in groups:
            for batch, size_bytes in cut(rows, batch_bytes):
                yield (self._sticky.partition_for(size_bytes) if group == NO_KEY else group), batch, size_bytes

    def _partitions_of(self, records: Any) -> npt.NDArray[np.int64]:
        if self._partitioner is None:
            partitions = partitions_for_keys(records.column("key"), self.partition_count)
            return self._without_gaps(partitions, records)
        # A function of the user's own cannot see columns: this one path runs Python for each row.
        pairs = zip(records.column("key").to_pylist(), records.column("value").to_pylist(), strict=True)
        return np.fromiter((self._chosen_by_user(key, value) for key, value in pairs), np.int64, records.num_rows)

    def _without_gaps(self, partitions: npt.NDArray[np.int64], records: Any) -> npt.NDArray[np.int64]:
        """Records without a key among others go where `choose` would send them: they keep their place between those."""
        keyless = np.flatnonzero(partitions == NO_KEY)
        if len(keyless):
            sizes = row_sizes(records.column("value"), records.column("key"))[keyless]
            shares = (np.cumsum(sizes) - sizes) // STICKY_BYTES
            starts = np.flatnonzero(np.diff(shares, prepend=-1))
            chosen = [self._sticky.partition_for(int(size)) for size in np.add.reduceat(sizes, starts)]
            partitions[keyless] = np.repeat(chosen, np.diff(starts, append=len(keyless)))
        return partitions

    def _chosen_by_user(self, key: bytes | None, value: bytes | None) -> int:
        assert self._partitioner is not None, "only asked where the user gave a function"
        answer = self._partitioner(self.topic, key, value, self.partition_count)
        try:
            partition = index(answer)
        except TypeError:
            partition = -1
        if not 0 <= partition < self.partition_count:
            raise LocalError(
                f"the partitioner gave {answer!r} for {self.topic}: it must give a whole number"
                f" from 0 to {self.partition_count - 1}"
            )
        return partition

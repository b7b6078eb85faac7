"""The writers of staged commits: their names, the partition that decides for each, and where each stages.

A writer commits numbered batches, one after the other, for as long as it lives: a streaming query with its id, or a
batch job with a name of its own. Its coordinator leads one partition of `headrace-commits`; its stages lie in
`STAGING_PARTITIONS_EACH` partitions of `headrace-staging`, which only the writers of that coordinator use: so one
coordinator knows what in them is still needed. `producer_of` is the writer's identity to brokers.
"""

import re
from hashlib import blake2b
from typing import Final, NamedTuple

from headrace.core.limits import COMMITS_PARTITIONS, STAGING_PARTITIONS_EACH
from headrace.core.murmur2 import partition_for_key
from headrace.core.types import PartitionId

WRITER_NAME_LENGTH_MAX = 200


COMMITS_TOPIC: Final = "headrace-commits"
"""The compacted topic with the last decision of each writer. Its number of partitions never changes."""
STAGING_TOPIC: Final = "headrace-staging"
"""The topic of the stages. Nothing in it expires by itself: coordinators delete what nobody can need any more."""
_NAME = re.compile(f"[A-Za-z0-9][-._A-Za-z0-9]{{0,{WRITER_NAME_LENGTH_MAX - 1}}}")
_EPOCH_BITS: Final = 15
"""The bits of a producer's epoch, which is a 16-bit number that must not be negative."""


class WriterName(NamedTuple):
    """A writer's full name: its topics are in its namespace. Written `namespace/name`."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def writer_name_problem(field: str, name: str) -> str | None:
    """Return what is wrong with a writer's name, which came in `field`; None where nothing is."""
    if _NAME.fullmatch(name):
        return None
    return (
        f"{field} {name[:WRITER_NAME_LENGTH_MAX]!r}: must have 1 to {WRITER_NAME_LENGTH_MAX} letters, digits, '-', '_'"
        " and '.', the first of them no mark; take the id of your query"
    )


class ProducerIdentity(NamedTuple):
    """The producer that one batch of a writer is written as (`core.replication.producers`)."""

    producer_id: int
    producer_epoch: int


def commits_partition(writer: WriterName) -> PartitionId:
    """The partition of the commits topic whose leader decides for `writer`."""
    return partition_for_key(str(writer).encode(), COMMITS_PARTITIONS)


def staging_partitions(commits: PartitionId) -> range:
    """Return the partitions where the writers of a coordinator stage."""
    return range(commits * STAGING_PARTITIONS_EACH, (commits + 1) * STAGING_PARTITIONS_EACH)


def producer_of(writer: WriterName, batch: int, since_ms: int) -> ProducerIdentity:
    """Return the producer of the whole batch: its number is the epoch, so that what comes late of an older one is
    fenced; sequences begin at 0. After 2^15 batches another id goes on. `since_ms` tells a writer from one of its name
    that was forgotten: a number alone does not show that a batch of both is the same."""
    life = f"{since_ms}/" if since_ms else ""
    name = f"{writer}/{life}{batch >> _EPOCH_BITS}".encode()
    number = int.from_bytes(blake2b(name, digest_size=8).digest(), "big") >> 1
    return ProducerIdentity(number, batch & ((1 << _EPOCH_BITS) - 1))

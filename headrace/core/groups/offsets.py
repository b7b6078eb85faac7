"""How far a group is: which commits are taken, and which offsets are old enough to be forgotten. Pure.

A commit of a member counts for partitions that it has had without interruption since the epoch in which it made the
commit; one that comes after the partition went elsewhere is refused, whole. Without a member, only a group that has
none takes commits: tools, and readers that share nothing out. Offsets belong to a topic's uid: a topic that is created
again begins anew.

While a group has members its offsets never age. Once it is empty, each is forgotten `offsetsRetention` after that or
after it was committed, whichever is later: as the log has it, not the ConsumerGroup, which may be out of sight. A topic
that is merely out of sight keeps its offsets (a restored etcd must cost nobody its place); those of a topic that was
deleted go at once. Called by `Group`.
"""

from collections.abc import Mapping
from itertools import islice

from headrace.core.errors import (
    BatchTooLargeError,
    FencedMemberError,
    GroupFullError,
    GroupNotEmptyError,
    InvalidRequestError,
)
from headrace.core.groups.entries import OffsetValue
from headrace.core.groups.events import CommitReceived
from headrace.core.groups.image import Image
from headrace.core.groups.member import may_commit
from headrace.core.groups.members import unknown_member
from headrace.core.groups.record_sizes import offset_bytes
from headrace.core.limits import (
    GROUP_OFFSETS_MAX,
    OFFSET_METADATA_BYTES_MAX,
    OFFSETS_BYTES_PER_COMMIT_MAX,
    OFFSETS_PER_COMMIT_MAX,
)
from headrace.core.types import PartitionKey, TopicUid


def check_commit(image: Image, event: CommitReceived) -> None:
    """Raises InvalidRequestError, BatchTooLargeError, GroupFullError, GroupNotEmptyError, UnknownMemberError and
    FencedMemberError."""
    if len(event.offsets) > OFFSETS_PER_COMMIT_MAX:
        raise InvalidRequestError(
            f"the commit has {len(event.offsets)} offsets: at most {OFFSETS_PER_COMMIT_MAX} in one request, and any"
            " number of requests"
        )
    check_offsets(image, event.offsets)
    if event.member is None:
        check_empty(image, "to commit offsets from outside")
        return
    current = image.currents.get(event.member)
    if current is None:
        raise unknown_member(image.name, event.member)
    late = [partition for partition in event.offsets if not may_commit(current, partition, event.epoch)]
    if late:
        raise FencedMemberError(
            f"nothing is committed: in epoch {event.epoch} member {event.member} did not have {min(late)}, or has not"
            f" had it ever since; it is in {current.epoch} now",
            memberEpoch=current.epoch,
        )


def check_offsets(image: Image, offsets: Mapping[PartitionKey, OffsetValue]) -> None:
    """Raises InvalidRequestError, BatchTooLargeError and GroupFullError."""
    for partition, value in offsets.items():
        if value.offset < 0:
            raise InvalidRequestError(f"offset {value.offset} of {partition}: offsets begin at 0")
        if len(value.metadata.encode(errors="surrogatepass")) > OFFSET_METADATA_BYTES_MAX:
            raise InvalidRequestError(f"the metadata of {partition} has more than {OFFSET_METADATA_BYTES_MAX} bytes")
    if len(image.offsets) + sum(partition not in image.offsets for partition in offsets) > GROUP_OFFSETS_MAX:
        raise GroupFullError(
            f"{image.name} remembers the offsets of {GROUP_OFFSETS_MAX} partitions, and no more: use a second group",
            limit=GROUP_OFFSETS_MAX,
        )
    size_bytes = sum(offset_bytes(image.name, partition, value) for partition, value in offsets.items())
    if size_bytes > OFFSETS_BYTES_PER_COMMIT_MAX:
        raise BatchTooLargeError(
            f"{len(offsets)} offsets take {size_bytes} bytes with their metadata, and at most"
            f" {OFFSETS_BYTES_PER_COMMIT_MAX} are taken at once: send them in several requests, or with less metadata",
            limit=OFFSETS_BYTES_PER_COMMIT_MAX,
        )


def check_empty(image: Image, what_for: str) -> None:
    """Raises GroupNotEmptyError."""
    if image.members:
        raise GroupNotEmptyError(
            f"{image.name} has {len(image.members)} members; {what_for} it must have none: stop them, or wait for their"
            " sessions to expire",
            members=len(image.members),
        )


def expired(image: Image, wall_ms: int) -> list[PartitionKey]:
    """What to forget now: not everything at once where it is much."""
    before_ms = _forgotten_before_ms(image, wall_ms)
    if image.members or before_ms is None:
        return []
    since = image.group.empty_since_ms
    old = (partition for partition, value in image.offsets.items() if max(since, value.committed_ms) <= before_ms)
    return list(islice(old, OFFSETS_PER_COMMIT_MAX))


def is_forgotten(image: Image, wall_ms: int) -> bool:
    """Whether nothing of the group is left that anybody could ask for. One that was reset stays: the same reset must
    not be carried out again."""
    before_ms = _forgotten_before_ms(image, wall_ms)
    old = before_ms is not None and image.group.empty_since_ms <= before_ms
    return image.is_known and old and not (image.members or image.offsets or image.group.last_reset)


def _forgotten_before_ms(image: Image, wall_ms: int) -> int | None:
    """None: nothing is."""
    retention = image.group.retention
    return None if retention is None or retention.ms is None else wall_ms - retention.ms


def of_topic(image: Image, uid: TopicUid) -> list[PartitionKey]:
    return [partition for partition in image.offsets if partition.uid == uid]

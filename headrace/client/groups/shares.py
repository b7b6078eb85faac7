"""The partitions that a member reads for its group, how far its user is in each, what the group knows of that. Pure.

A share is made when a partition is taken up and thrown away with it: one that comes back gets another, so that nothing
of an earlier time is ever committed for it. The reader's thread makes and drops shares; others look at them, so that
the dictionary is replaced whole and never changed.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from headrace.client.cursor import Cursor, Handed
from headrace.client.record import TopicPartition
from headrace.client.values import as_utf8, check_offset
from headrace.core.errors import FencedMemberError, LocalError
from headrace.core.groups.entries import OffsetValue
from headrace.core.limits import OFFSET_METADATA_BYTES_MAX, OFFSETS_PER_COMMIT_MAX
from headrace.core.types import Offset, PartitionKey


@dataclass(slots=True, eq=False)
class Share:
    key: PartitionKey
    cursor: Cursor
    committed: int | None
    """The group's offset, as far as is known here; None: it has none."""

    @property
    def partition(self) -> TopicPartition:
        return self.cursor.partition


@dataclass(frozen=True, slots=True)
class Commit:
    """Offsets to be committed, of shares as they were when it was made."""

    offsets: tuple[tuple[Share, int], ...]
    metadata: str = ""
    is_named: bool = False
    """The user named the offsets: records below them that it was not handed are not wanted."""

    def values(self) -> dict[PartitionKey, OffsetValue]:
        return {share.key: OffsetValue(Offset(offset), metadata=self.metadata) for share, offset in self.offsets}

    def parts(self) -> list["Commit"]:
        """As many requests as it takes."""
        starts = range(0, len(self.offsets), OFFSETS_PER_COMMIT_MAX)
        return [replace(self, offsets=self.offsets[start : start + OFFSETS_PER_COMMIT_MAX]) for start in starts]

    def written(self) -> None:
        for share, offset in self.offsets:
            share.committed = offset
            if self.is_named:
                share.cursor.passed = max(share.cursor.passed, offset)


@dataclass(slots=True)
class Shares:
    held: Mapping[TopicPartition, Share] = field(default_factory=dict)
    first_undone: Callable[[TopicPartition], int | None] | None = None
    """Asked by whoever commits, where its user is not done with records when he comes back for more."""

    def take_up(self, shares: Iterable[Share]) -> None:
        self.held = {**self.held, **{share.partition: share for share in shares}}

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        gone = set(partitions)
        self.held = {partition: share for partition, share in self.held.items() if partition not in gone}

    def passed(self, handed: Handed, among: Iterable[TopicPartition] | None = None) -> Commit:
        """What its user is done with, as far as the group does not know it yet."""
        held = self.held
        chosen = held.values() if among is None else [held[each] for each in among if each in held]
        offsets = ((share, self._done(share, handed)) for share in chosen)
        return Commit(tuple((share, offset) for share, offset in offsets if offset != share.committed))

    def _done(self, share: Share, handed: Handed) -> int:
        passed = handed.passed(share.cursor)  # Asked first: of what comes back meanwhile its user may not be done.
        undone = None if self.first_undone is None else self.first_undone(share.partition)
        # What he was handed of an earlier share of this partition is committed, or is another member's.
        return passed if undone is None else max(undone, share.committed or 0)

    def handed_out(self, handed: Handed, metadata: str) -> Commit:
        """All that its user was given, what he has in hand included: he says that he is done with it."""
        offsets = tuple((share, handed.position(share.cursor)) for share in self.held.values())
        return _said_by_user(Commit(offsets, checked_metadata(metadata)), handed)

    def named(self, offsets: Mapping[TopicPartition, int], handed: Handed, metadata: str) -> Commit:
        """Raises TypeError, LocalError, and FencedMemberError for partitions that are not held."""
        if not isinstance(offsets, Mapping):
            raise TypeError(f"offsets is {type(offsets).__name__}: give a dict, {{TopicPartition('flights', 0): 42}}")
        chosen = tuple((self._share(place), _checked_offset(place, offset)) for place, offset in offsets.items())
        return _said_by_user(Commit(chosen, checked_metadata(metadata), is_named=True), handed)

    def check(self, commit: Commit) -> None:
        """Raises FencedMemberError where a partition went away since."""
        for share, _ in commit.offsets:
            if self.held.get(share.partition) is not share:
                raise not_held(share.partition)

    def _share(self, place: TopicPartition) -> Share:
        if not isinstance(place, TopicPartition):
            raise TypeError(f"offsets has {place!r}: its keys are TopicPartitions, as TopicPartition('flights', 0)")
        if place not in self.held:
            raise not_held(place)
        return self.held[place]


def _said_by_user(commit: Commit, handed: Handed) -> Commit:
    """The user is done with what he commits, of what he was handed, whether the commit lands or not.

    Where it was cancelled it may have landed: what is committed in time must not take the group back below it.
    """
    for share, offset in commit.offsets:
        share.cursor.passed = max(share.cursor.passed, min(offset, handed.position(share.cursor)))
    return commit


def not_held(partition: TopicPartition) -> FencedMemberError:
    return FencedMemberError(
        f"offsets of {partition} are not committed: this member does not have that partition, or does not have it any"
        " more; whoever has it reads from the group's last offset on"
    )


def checked_metadata(metadata: str) -> str:
    if not isinstance(metadata, str):
        raise TypeError(f"metadata is {type(metadata).__name__}: give text")
    size = len(as_utf8("metadata", metadata))
    if size > OFFSET_METADATA_BYTES_MAX:
        raise LocalError(f"metadata has {size} bytes: at most {OFFSET_METADATA_BYTES_MAX}")
    return metadata


def _checked_offset(place: TopicPartition, offset: int) -> int:
    return check_offset(f"the offset of {place}", offset)

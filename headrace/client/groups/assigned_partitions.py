"""The partitions of a group's member: its first offset in each, its user's progress, and its commits. Pure.

    wanted ──> asked ──> found ──> taken up (`MemberPartitions`)
                 └── failed ──> left alone for a while ──> wanted again

`Finding` looks up each new partition by itself, so that one that cannot be read keeps no other from being read. A
member begins behind what its group has committed, else at `start`. An answer for a partition that was taken away
meanwhile does nothing.

A `MemberPartition` is a partition that is read. It is made when the partition is taken up and thrown away with it:
a partition that comes back gets another one, so nothing of an earlier time is ever committed for it. The reader's
thread makes and drops them; others look at them, so the dictionary is replaced whole and never changed. `Presence` sees
whether the user still goes on: what is handed out changes, or the user waits for the SDK.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from headrace.client.consumer.cursor import Cursor, FetchPlan, Handed
from headrace.client.groups.requests import GroupOffsets
from headrace.client.record import GroupOffset, Record, TopicPartition, as_utf8, check_offset
from headrace.core.errors import (
    FencedMemberError,
    HeadraceError,
    LocalError,
    StaleTopicError,
    UnknownPartitionError,
    UnknownTopicError,
)
from headrace.core.groups.entries import OffsetValue
from headrace.core.limits import (
    CLIENT_BACKOFF_MIN_MS,
    GROUP_LOOK_MS_MAX,
    OFFSET_METADATA_BYTES_MAX,
    OFFSETS_PER_COMMIT_MAX,
)
from headrace.core.types import Offset, PartitionKey, TopicUid

TAKEN_AWAY = (UnknownTopicError, UnknownPartitionError, StaleTopicError)
"""The errors of a topic that was deleted, or created again: the group will take it away."""
Found = Mapping[TopicPartition, int | HeadraceError]
"""The offsets that were looked up, or the errors."""


@dataclass(slots=True)
class Presence:
    handed: Handed
    _batches: int = 0
    _last: Record | None = None
    """The record that the user had in hand when it was last seen to go on."""
    _seen_ms: int = 0

    def seen(self, now_ms: int) -> None:
        self._batches, self._last, self._seen_ms = self.handed.batches, self.handed.last, now_ms

    def away_ms(self, now_ms: int) -> int:
        """Return for how long nothing has moved, up to this look."""
        handed = self.handed
        if handed.is_waited_for or handed.batches != self._batches or handed.last is not self._last:
            self.seen(now_ms)
        return now_ms - self._seen_ms


@dataclass(slots=True, eq=False)
class MemberPartition:
    key: PartitionKey
    cursor: Cursor
    committed: int | None
    """The group's offset, as far as this client knows; None: the group has none."""

    @property
    def partition(self) -> TopicPartition:
        return self.cursor.partition


@dataclass(frozen=True, slots=True)
class Commit:
    """Offsets to be committed, of the partitions assigned at the time when it was made."""

    offsets: tuple[tuple[MemberPartition, int], ...]
    metadata: str = ""
    is_named: bool = False
    """Whether the user named the offsets: records below them that were not handed out are not wanted."""

    def values(self) -> dict[PartitionKey, OffsetValue]:
        return {assigned.key: OffsetValue(Offset(offset), metadata=self.metadata) for assigned, offset in self.offsets}

    def parts(self) -> list["Commit"]:
        """Return this commit in parts, one for each request."""
        starts = range(0, len(self.offsets), OFFSETS_PER_COMMIT_MAX)
        return [replace(self, offsets=self.offsets[start : start + OFFSETS_PER_COMMIT_MAX]) for start in starts]

    def written(self) -> None:
        for assigned, offset in self.offsets:
            assigned.committed = offset
            if self.is_named:
                assigned.cursor.passed = max(assigned.cursor.passed, offset)


@dataclass(slots=True)
class MemberPartitions:
    held: Mapping[TopicPartition, MemberPartition] = field(default_factory=dict)
    first_undone: Callable[[TopicPartition], int | None] | None = None
    """The user's function, which each commit asks for the first record that is not done; None: there is no function."""

    def take_up(self, taken: Iterable[MemberPartition]) -> None:
        self.held = {**self.held, **{assigned.partition: assigned for assigned in taken}}

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        gone = set(partitions)
        self.held = {partition: assigned for partition, assigned in self.held.items() if partition not in gone}

    def passed(self, handed: Handed, among: Iterable[TopicPartition] | None = None) -> Commit:
        """Return a commit of the records that the user is done with, where the group does not know it yet."""
        held = self.held
        chosen = held.values() if among is None else [held[each] for each in among if each in held]
        offsets = ((assigned, self._done(assigned, handed)) for assigned in chosen)
        return Commit(tuple((assigned, offset) for assigned, offset in offsets if offset != assigned.committed))

    def _done(self, assigned: MemberPartition, handed: Handed) -> int:
        # Asked before `first_undone`: the user may not be done with a record that comes back meanwhile.
        passed = handed.passed(assigned.cursor)
        undone = None if self.first_undone is None else self.first_undone(assigned.partition)
        # Records of an earlier time of this partition are committed, or are another member's.
        return passed if undone is None else max(undone, assigned.committed or 0)

    def handed_out(self, handed: Handed, metadata: str) -> Commit:
        """Return a commit of all records that were handed out, those in hand included: the user says they are done."""
        offsets = tuple((assigned, handed.position(assigned.cursor)) for assigned in self.held.values())
        return _said_by_user(Commit(offsets, checked_metadata(metadata)), handed)

    def named(self, offsets: Mapping[TopicPartition, int], handed: Handed, metadata: str) -> Commit:
        """Return a commit of these offsets. Raises TypeError, LocalError, FencedMemberError for others' partitions."""
        if not isinstance(offsets, Mapping):
            raise TypeError(f"offsets is {type(offsets).__name__}: give a dict, {{TopicPartition('flights', 0): 42}}")
        chosen = tuple((self._assigned(place), _checked_offset(place, offset)) for place, offset in offsets.items())
        return _said_by_user(Commit(chosen, checked_metadata(metadata), is_named=True), handed)

    def check(self, commit: Commit) -> None:
        """Raise FencedMemberError where a partition went away since."""
        for assigned, _ in commit.offsets:
            if self.held.get(assigned.partition) is not assigned:
                raise not_held(assigned.partition)

    def _assigned(self, place: TopicPartition) -> MemberPartition:
        if not isinstance(place, TopicPartition):
            raise TypeError(f"offsets has {place!r}: its keys are TopicPartitions, as TopicPartition('flights', 0)")
        if place not in self.held:
            raise not_held(place)
        return self.held[place]


def _said_by_user(commit: Commit, handed: Handed) -> Commit:
    """Return the commit, and count its records that were handed out as done, whether the commit is written or not.

    A commit that was cancelled may be written: a later automatic commit must not take the group back below it.
    """
    for assigned, offset in commit.offsets:
        assigned.cursor.passed = max(assigned.cursor.passed, min(offset, handed.position(assigned.cursor)))
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


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """Partitions to be looked up and then read."""

    places: Mapping[PartitionKey, TopicPartition]


class Beginning(NamedTuple):
    key: PartitionKey
    place: TopicPartition
    offset: int
    committed: int | None
    end: int | None


class GivenTopic(NamedTuple):
    """The partitions of one topic that were given."""

    uid: TopicUid
    topic: str
    places: Mapping[PartitionKey, TopicPartition]

    def not_committed(self, offsets: GroupOffsets) -> list[TopicPartition]:
        return [place for key, place in self.places.items() if key not in offsets]

    def beginnings(
        self, offsets: GroupOffsets, starts: Found, ends: Found
    ) -> dict[PartitionKey, Beginning | HeadraceError]:
        """Return where reading begins, from `starts` for partitions that are not committed; `ends` may be empty."""
        found: dict[PartitionKey, Beginning | HeadraceError] = {}
        for key, place in self.places.items():
            committed = offsets[key][1].offset if key in offsets else None
            offset, end = starts[place] if committed is None else committed, ends.get(place)
            if isinstance(offset, HeadraceError):
                found[key] = offset
            elif isinstance(end, HeadraceError):
                found[key] = end
            else:
                found[key] = Beginning(key, place, offset, committed, end)
        return found


def by_topic(given: Given) -> list[GivenTopic]:
    topics: dict[TopicUid, dict[PartitionKey, TopicPartition]] = {}
    for key, place in sorted(given.places.items(), key=lambda item: item[1]):
        topics.setdefault(key.uid, {})[key] = place
    return [GivenTopic(uid, next(iter(places.values())).topic, places) for uid, places in topics.items()]


def begin(plan: FetchPlan, beginnings: Iterable[Beginning]) -> list[MemberPartition]:
    """Read the partitions from their beginnings from now on; a cursor of an earlier time is dropped."""
    taken = []
    for key, place, offset, committed, end in beginnings:
        plan.remove(place)
        cursor = plan.add(place, offset)
        cursor.end = end
        taken.append(MemberPartition(key, cursor, committed))
    return taken


def newest(offsets: GroupOffsets) -> dict[TopicPartition, GroupOffset]:
    """Return the offsets by the topic's name; for a topic that was created again, those that were committed last."""
    found: dict[TopicPartition, GroupOffset] = {}
    for key, (topic, offset) in offsets.items():
        place = TopicPartition(topic, key.partition)
        if topic and (place not in found or offset.committed_ms > found[place].committed_ms):
            found[place] = offset
    return dict(sorted(found.items()))


class Failing(NamedTuple):
    since_ms: int
    attempts: int
    until_ms: int
    """The time until which the partition is left alone."""
    is_taken_away: bool
    """Whether brokers say that the partition is gone: the group is about to say so too."""


@dataclass(slots=True)
class Finding:
    timeout_ms: int
    found: dict[PartitionKey, Beginning] = field(default_factory=dict)
    _asked: dict[PartitionKey, Given] = field(default_factory=dict)
    _failing: dict[PartitionKey, Failing] = field(default_factory=dict)

    def ask(self, wanted: Mapping[PartitionKey, TopicPartition], now_ms: int) -> Given | None:
        """Return the partitions to look up now. None: there are none."""
        new = {key: place for key, place in wanted.items() if self._is_due(key, now_ms)}
        if not new:
            return None
        given = Given(new)
        self._asked.update(dict.fromkeys(new, given))
        return given

    def _is_due(self, key: PartitionKey, now_ms: int) -> bool:
        failing = self._failing.get(key)
        is_known = key in self._asked or key in self.found
        return not is_known and (failing is None or now_ms >= failing.until_ms)

    def answered(
        self, given: Given, outcomes: Mapping[PartitionKey, Beginning | HeadraceError], now_ms: int
    ) -> HeadraceError | None:
        """Return the error to raise: of a partition that will not be found, or was not for `timeout_ms`."""
        told = None
        for key, outcome in outcomes.items():
            if self._asked.get(key) is not given:
                continue
            del self._asked[key]
            if isinstance(outcome, HeadraceError):
                told = self._failed(key, given.places[key], outcome, now_ms) or told
            else:
                self._failing.pop(key, None)
                self.found[key] = outcome
        return told

    def _failed(
        self, key: PartitionKey, place: TopicPartition, error: HeadraceError, now_ms: int
    ) -> HeadraceError | None:
        before = self._failing.get(key)
        since_ms, attempts = (before.since_ms, before.attempts + 1) if before is not None else (now_ms, 1)
        pause_ms = min(GROUP_LOOK_MS_MAX, CLIENT_BACKOFF_MIN_MS << min(attempts, 16))
        is_taken_away = isinstance(error, TAKEN_AWAY)
        self._failing[key] = Failing(since_ms, attempts, now_ms + pause_ms, is_taken_away)
        if is_taken_away or (error.retriable and now_ms - since_ms <= self.timeout_ms):
            return None
        self._failing[key] = Failing(now_ms, attempts, now_ms + pause_ms, is_taken_away)
        message = f"cannot begin to read {place} for its group: {error.message}; the other partitions are read on"
        return type(error)(message, **error.details)

    def forget(self, keys: Iterable[PartitionKey]) -> None:
        """Forget partitions that are taken up, taken away, or to be looked up anew."""
        for key in keys:
            for known in (self._asked, self._failing, self.found):
                known.pop(key, None)

    def clear(self) -> None:
        self._asked, self._failing, self.found = {}, {}, {}

    def is_open(self, key: PartitionKey) -> bool:
        """Return whether the partition is still to be read, as far as this client knows."""
        failing = self._failing.get(key)
        return failing is None or not failing.is_taken_away

    def next_ms(self, now_ms: int) -> int | None:
        """Return when the next partition that is left alone is due; one that was due before is asked, or not wanted."""
        return min((each.until_ms for each in self._failing.values() if each.until_ms > now_ms), default=None)

"""Where a member begins in the partitions that it is given: behind what its group has committed, else at `start`. Pure.

Each begins by itself: where something was looked up in vain there is an error in its place.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.client.cursor import FetchPlan
from headrace.client.groups.requests import GroupOffsets
from headrace.client.groups.shares import Share
from headrace.client.record import GroupOffset, TopicPartition
from headrace.core.errors import HeadraceError, StaleTopicError, UnknownPartitionError, UnknownTopicError
from headrace.core.slotted import dataclass
from headrace.core.types import PartitionKey, TopicUid

TAKEN_AWAY = (UnknownTopicError, UnknownPartitionError, StaleTopicError)
"""Said of a topic that was deleted, or created again: the group will take it away."""


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """Partitions to be looked up, and read then."""

    places: Mapping[PartitionKey, TopicPartition]


class Beginning(NamedTuple):
    key: PartitionKey
    place: TopicPartition
    offset: int
    committed: int | None
    end: int | None


Found = Mapping[TopicPartition, int | HeadraceError]
"""Offsets that were looked up."""


class GivenTopic(NamedTuple):
    """What was given of one topic."""

    uid: TopicUid
    topic: str
    places: Mapping[PartitionKey, TopicPartition]

    def not_committed(self, offsets: GroupOffsets) -> list[TopicPartition]:
        return [place for key, place in self.places.items() if key not in offsets]

    def beginnings(
        self, offsets: GroupOffsets, starts: Found, ends: Found
    ) -> dict[PartitionKey, Beginning | HeadraceError]:
        """`starts` of those that are not committed; `ends` where reading has ends."""
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


def begin(plan: FetchPlan, beginnings: Iterable[Beginning]) -> list[Share]:
    """From now on they are read: from there, whatever is left of an earlier time."""
    shares = []
    for key, place, offset, committed, end in beginnings:
        plan.remove(place)
        cursor = plan.add(place, offset)
        cursor.end = end
        shares.append(Share(key, cursor, committed))
    return shares


def newest(offsets: GroupOffsets) -> dict[TopicPartition, GroupOffset]:
    """By name: of topics that were created again, what was committed last."""
    found: dict[TopicPartition, GroupOffset] = {}
    for key, (topic, offset) in offsets.items():
        place = TopicPartition(topic, key.partition)
        if topic and (place not in found or offset.committed_ms > found[place].committed_ms):
            found[place] = offset
    return dict(sorted(found.items()))

"""The subscriptions of members, and the assignors that share partitions out among them. Pure and deterministic.

A `Subscription` is topics by name, by pattern, or both. The coordinator resolves a pattern, not the member: all see
the same topics, and a topic that comes or goes changes the group once. A name without a topic is no error: it counts
from when the topic is there. The operator and the coordinator run the same assignors:

- `Uniform` shares out all partitions of all topics: members that subscribe to the same topics differ by one at most.
  With different subscriptions, nothing is left that hand-overs could make more even, directly or along a chain (a
  member takes a partition from one neighbour and gives another to the next; Harvey et al. 2003, optimal
  semi-matchings). It is sticky: a member keeps its partitions unless another has too few.
- `Range` gives each member consecutive partitions of each topic. Topics with equally many partitions and the same
  subscribers are cut at the same places, so that records with one key, of several topics, meet at one member. It is
  not sticky: a member that comes or goes shifts those behind, as in Kafka.

Invariants: each partition of a topic that a member subscribes to goes to exactly one of its subscribers; assigning
again what was just assigned changes nothing; the order in which members are given does not matter.

`TopicPartitions` is the form for bodies and people: partitions by topic, its name beside its uid. Inside, a partition
is its uid's alone. A topic that cannot be named any more has an empty name.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heapreplace
from typing import NamedTuple, TypeAlias, assert_never

from headrace.core.errors import InvalidRequestError
from headrace.core.groups.identity import Assignor, MemberId, TopicShape
from headrace.core.groups.topic_patterns import topic_pattern
from headrace.core.resources.internal_topics import INTERNAL_TOPICS
from headrace.core.types import PartitionId, PartitionKey, TopicUid, topic_name_problem

GROUP_TOPICS_MAX = 256
"""The number of topics that one member names, and that one group consumes; of more that patterns find, the first by
name."""
GROUP_PARTITIONS_MAX = 1 << 14
"""The number of partitions that one group consumes: a whole assignment fits into one batch of the offsets topic."""
Partitions: TypeAlias = frozenset[PartitionKey]
Assignment: TypeAlias = dict[MemberId, Partitions]
"""The partitions of every member; no partition twice."""
_NOTHING: Partitions = frozenset()
Topics: TypeAlias = Mapping[str, TopicShape]
Names: TypeAlias = Mapping[TopicUid, str]


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription as a value: two that are equal mean the same."""

    names: tuple[str, ...] = ()
    """The names, sorted, each once."""
    pattern: str = ""
    """The pattern; empty: none. It never finds the internal topic."""

    @classmethod
    def parse(cls, names: Iterable[str], pattern: str = "") -> "Subscription":
        """Parse a subscription. Raises InvalidRequestError: which name, or where in the pattern, and what would do."""
        found = tuple(sorted(set(names)))
        if not found and not pattern:
            raise InvalidRequestError("a member that subscribes to nothing: give topics, a pattern, or both")
        if len(found) > GROUP_TOPICS_MAX:
            raise InvalidRequestError(f"a subscription names {len(found)} topics: at most {GROUP_TOPICS_MAX}")
        problem = next(filter(None, map(topic_name_problem, found)), None)
        if problem is not None:
            raise InvalidRequestError(problem)
        if pattern:
            topic_pattern(pattern)
        return cls(found, pattern)

    def resolve(self, topics: Iterable[str]) -> frozenset[str]:
        """Return which of the topics that exist these are."""
        named = frozenset(self.names)
        if not self.pattern:
            return named.intersection(topics)
        pattern = topic_pattern(self.pattern)
        found = (name for name in topics if name not in INTERNAL_TOPICS and pattern.matches(name))
        return named.intersection(topics).union(found)


def bounded(topics: Mapping[str, TopicShape]) -> dict[str, TopicShape]:
    """Return the topics by name, as far as one group may consume so many."""
    kept: dict[str, TopicShape] = {}
    partitions = 0
    for name in sorted(topics):
        partitions += topics[name].partitions
        if len(kept) == GROUP_TOPICS_MAX or partitions > GROUP_PARTITIONS_MAX:
            break
        kept[name] = topics[name]
    return kept


class Subscriber(NamedTuple):
    """A member, as assignors see it."""

    topics: frozenset[str]
    """The topics that exist."""
    has: Partitions = _NOTHING
    """The partitions of the last target."""
    instance: str = ""
    """The instance id: `Range` goes by this name where there is one, so a static member that returns keeps its
    place."""


Subscribers: TypeAlias = Mapping[MemberId, Subscriber]


def assign(assignor: Assignor, subscribers: Subscribers, topics: Topics) -> Assignment:
    """Assign each partition of each topic of `topics` to one of its subscribers; `topics` has all that they name."""
    match assignor:
        case Assignor.UNIFORM:
            return _uniform(subscribers, topics)
        case Assignor.RANGE:
            return _range(subscribers, topics)
        case _:
            assert_never(assignor)


def partitions_of(shape: TopicShape) -> list[PartitionKey]:
    return [PartitionKey(shape.uid, PartitionId(number)) for number in range(shape.partitions)]


def _range(subscribers: Subscribers, topics: Topics) -> Assignment:
    in_order = sorted(subscribers, key=lambda member: (subscribers[member].instance or member, member))
    shares: dict[MemberId, set[PartitionKey]] = {member: set() for member in in_order}
    for name, shape in topics.items():
        members = [member for member in in_order if name in subscribers[member].topics]
        partitions = partitions_of(shape)
        for place, member in enumerate(members):
            # The first ones get one more where it does not come out even.
            size, more = divmod(len(partitions), len(members))
            start = place * size + min(place, more)
            shares[member].update(partitions[start : start + size + (place < more)])
    return {member: frozenset(shares[member]) for member in in_order}


def _uniform(subscribers: Subscribers, topics: Topics) -> Assignment:
    shares = _Shares({name: [] for name in topics})
    for member in sorted(subscribers):
        shares.join(member, subscribers[member].topics)
    free = shares.keep(subscribers, topics)
    if len({subscriber.topics for subscriber in subscribers.values()}) == 1:
        free = sorted([*free, *shares.trim(sum(shape.partitions for shape in topics.values()))])
    shares.share_out(free, {shape.uid: name for name, shape in topics.items()})
    shares.level()
    return {member: frozenset(had.all()) for member, had in shares.by_member.items()}


@dataclass(slots=True)
class _Share:
    """The share of one member, by topic."""

    topics: Collection[str]
    by_topic: dict[str, set[PartitionKey]] = field(default_factory=dict)
    size: int = 0

    def add(self, topic: str, partition: PartitionKey) -> None:
        self.by_topic.setdefault(topic, set()).add(partition)
        self.size += 1

    def give(self, topic: str) -> PartitionKey:
        """Return the partition to give away."""
        partition = max(self.by_topic[topic])
        self.by_topic[topic].remove(partition)
        self.size -= 1
        return partition

    def fullest(self) -> str:
        """Return the topic with the most partitions."""
        return max(self.by_topic, key=lambda topic: (len(self.by_topic[topic]), topic))

    def all(self) -> Iterable[PartitionKey]:
        return (partition for partitions in self.by_topic.values() for partition in partitions)


class _Hop(NamedTuple):
    """A hop in a chain of hand-overs: a partition of `topic` comes from `giver`."""

    giver: MemberId
    topic: str


@dataclass(slots=True)
class _Shares:
    """The shares of all members while they are made; members in order of their ids."""

    subscribers: dict[str, list[MemberId]]
    """The subscribers by topic."""
    by_member: dict[MemberId, _Share] = field(default_factory=dict)

    def join(self, member: MemberId, topics: frozenset[str]) -> None:
        self.by_member[member] = _Share(topics)
        for topic in topics:
            self.subscribers[topic].append(member)

    def keep(self, subscribers: Subscribers, topics: Topics) -> list[PartitionKey]:
        """Give every member what it has and may have, and return what is left, topic after topic."""
        left = {name: dict.fromkeys(partitions_of(shape)) for name, shape in topics.items() if self.subscribers[name]}
        names = {shape.uid: name for name, shape in topics.items()}
        for member, share in self.by_member.items():
            for partition in sorted(subscribers[member].has):
                name = names.get(partition.uid, "")
                if name in share.topics and partition in left[name]:
                    del left[name][partition]
                    share.add(name, partition)
        return sorted(partition for partitions in left.values() for partition in partitions)

    def trim(self, total: int) -> list[PartitionKey]:
        """Return what is above an equal share, where all subscribe to the same: the members with most may have one
        more."""
        size, more = divmod(total, len(self.by_member))
        taken = []
        for place, share in enumerate(sorted(self.by_member.values(), key=lambda share: -share.size)):
            while share.size > size + (place < more):
                taken.append(share.give(share.fullest()))
        return taken

    def share_out(self, partitions: Iterable[PartitionKey], names: Mapping[TopicUid, str]) -> None:
        """Give each partition to the member with least; topic after topic, so that each topic is spread as well."""
        heaps: dict[tuple[MemberId, ...], list[tuple[int, MemberId]]] = {}
        for members in self.subscribers.values():
            heaps.setdefault(tuple(members), sorted((self.by_member[member].size, member) for member in members))
        heap_of = {topic: heaps[tuple(members)] for topic, members in self.subscribers.items()}
        for partition in partitions:
            topic = names[partition.uid]
            heap = heap_of[topic]
            while heap[0][0] != self.by_member[heap[0][1]].size:
                heapreplace(heap, (self.by_member[heap[0][1]].size, heap[0][1]))
            least = heap[0][1]
            self.by_member[least].add(topic, partition)

    def _rank(self, member: MemberId, topic: str) -> tuple[int, int]:
        share = self.by_member[member]
        return share.size, len(share.by_topic.get(topic, ()))

    def level(self) -> None:
        """Hand over, along chains, from the member with most, until nothing helps any more. Each hand-over lowers the
        sum of the squares of what members have, so that this ends."""
        done: set[MemberId] = set()
        while waiting := [member for member in self.by_member if member not in done]:
            giver = max(waiting, key=lambda member: self.by_member[member].size)
            reached = self._relieve(giver)
            # No reachable member has less by two, so that none of them can be helped from there.
            done = done | reached if reached else set()

    def _relieve(self, giver: MemberId) -> set[MemberId]:
        """Move one partition from it to a member that then has no more than it, by the shortest chain.

        Where there is no such member, return the members that it can reach, itself included.
        """
        hops: dict[MemberId, _Hop] = {}
        seen_topics: set[str] = set()
        ahead = deque([giver])
        enough = self.by_member[giver].size - 2
        while ahead:
            at = ahead.popleft()
            topics = {topic for topic, has in self.by_member[at].by_topic.items() if has} - seen_topics
            seen_topics |= topics
            for topic in sorted(topics):
                found = [each for each in self.subscribers[topic] if each != giver and each not in hops]
                hops |= dict.fromkeys(found, _Hop(at, topic))
                least = min(found, key=lambda member: self._rank(member, topic), default=giver)
                if self.by_member[least].size <= enough:
                    self._hand_over(giver, least, hops)
                    return set()
                ahead.extend(found)
        return {giver, *hops}

    def _hand_over(self, giver: MemberId, taker: MemberId, hops: Mapping[MemberId, _Hop]) -> None:
        while taker != giver:
            hop = hops[taker]
            self.by_member[taker].add(hop.topic, self.by_member[hop.giver].give(hop.topic))
            taker = hop.giver


class TopicPartitions(NamedTuple):
    topic: str
    uid: TopicUid
    partitions: tuple[PartitionId, ...]
    """The partitions in order."""

    @property
    def keys(self) -> list[PartitionKey]:
        return [PartitionKey(self.uid, partition) for partition in self.partitions]


def names_in(topics: Topics) -> dict[TopicUid, str]:
    return {shape.uid: name for name, shape in topics.items()}


def names_of(listed: Iterable[TopicPartitions]) -> dict[TopicUid, str]:
    return {each.uid: each.topic for each in listed}


def by_topic(partitions: Iterable[PartitionKey], names: Names) -> tuple[TopicPartitions, ...]:
    """Return the partitions in the order of names."""
    found: dict[TopicUid, list[PartitionId]] = {}
    for uid, partition in sorted(partitions):
        found.setdefault(uid, []).append(partition)
    return tuple(sorted(TopicPartitions(names.get(uid, ""), uid, tuple(each)) for uid, each in found.items()))


def keys_of(listed: Iterable[TopicPartitions]) -> Partitions:
    return frozenset(key for each in listed for key in each.keys)

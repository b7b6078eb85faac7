"""The placement of partitions: which brokers hold a new one, and where a placed one should stand now.

Pure, deterministic, and moving as little as possible. `spread` places partitions one after the other, each where the
topic has least, so that an operator that dies half way goes on where it was:

- The leader is the broker that leads fewest partitions of this topic; the first replica is the preferred leader.
- Each further replica goes to the zone that has fewest replicas of the partition, then to the broker that has fewest
  of the topic: zones first, balance second.
- Ties go to the broker that is first in `ranked`: least loaded by other topics, zones taken in turns. The rank stays
  the same for the whole topic: a rank that followed its own load would break the balance of followers.

`refit` follows a changed replication factor, or a broker that is to leave: the others stay, in their order. `level`
follows brokers that were added: one replica moves if that puts a partition into more zones, or takes from a broker
that has at least two more than the one that gets it; else only the order of replicas changes, so that each broker is
preferred equally often. Every step of `level` lowers (replicas that share a zone, then the unevenness of replicas,
then that of preferred leaders) and raises none before it, so it ends, and has nothing to do after `spread`.

`seat_new` gives seats to partitions that have none: led by the first of the replicas, in that broker's present life,
from leader epoch 1. At most PARTITIONS_PER_SET_MAX partitions stand in one PartitionSet (`set_name`). Brokers may have
data of partitions that are not new: those are placed by `reclaiming`.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import NamedTuple, TypeAlias

from headrace.core.control.observed import Broker, BrokerState, Observed
from headrace.core.resources.lease import CLUSTER_LABEL
from headrace.core.resources.metadata import API_VERSION, Metadata, OwnerReference
from headrace.core.resources.partition_set import PartitionSet, PartitionState, set_name
from headrace.core.resources.topic import Topic
from headrace.core.types import BrokerId, LeaderEpoch, PartitionEpoch, PartitionId

Replicas: TypeAlias = tuple[BrokerId, ...]
"""The brokers of one partition; the first is the preferred leader."""
_UNEVEN = 2
"""The difference that moving one replica lowers; one of 1 would only change sides."""
_NO_GAIN = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A broker that may be given new partitions."""

    broker: BrokerId
    zone: str = ""


@dataclass(slots=True)
class Load:
    """The number of partitions that each broker leads (by preference) and holds."""

    leaders: Counter[BrokerId] = field(default_factory=Counter)
    replicas: Counter[BrokerId] = field(default_factory=Counter)

    @classmethod
    def of(cls, placed: Iterable[Replicas]) -> "Load":
        load = cls()
        load.add_all(placed)
        return load

    def add_all(self, placed: Iterable[Replicas]) -> None:
        for replicas in placed:
            self.leaders.update(replicas[:1])
            self.replicas.update(replicas)

    def moved(self, before: Replicas, after: Replicas) -> None:
        """Note that a partition that is counted in it stands elsewhere now."""
        self.leaders.subtract(before[:1])
        self.replicas.subtract(before)
        self.add_all([after])

    def with_all(self, placed: Iterable[Replicas]) -> "Load":
        whole = Load(self.leaders.copy(), self.replicas.copy())
        whole.add_all(placed)
        return whole

    def without(self, part: "Load") -> "Load":
        """Return what is left when `part`, which is counted in it, is taken out."""
        return Load(self.leaders - part.leaders, self.replicas - part.replicas)


def spread(
    count: int, replication: int, candidates: Sequence[Candidate], *, own: Iterable[Replicas], others: Load
) -> list[Replicas]:
    """Return replicas for `count` new partitions of a topic with `replication` copies of each.

    `own` is what the topic has already, `others` the load of all other topics. There must be at least `replication`
    candidates: the caller reports it when there are not.
    """
    assert len(candidates) >= replication >= 1, (len(candidates), replication)
    in_order = ranked(candidates, others)
    load = Load.of(own)
    placed = []
    for _ in range(count):
        replicas = _place_one(replication, in_order, load)
        load.add_all([replicas])
        placed.append(replicas)
    return placed


def _place_one(replication: int, in_order: Sequence[Candidate], load: Load) -> Replicas:
    # `min` keeps the first of equals: the rank is the last tie-break.
    chosen = [min(in_order, key=lambda c: (load.leaders[c.broker], load.replicas[c.broker]))]
    in_zone = Counter(c.zone for c in chosen)
    while len(chosen) < replication:
        free = (c for c in in_order if c not in chosen)
        follower = min(free, key=lambda c: (in_zone[c.zone], load.replicas[c.broker]))
        chosen.append(follower)
        in_zone[follower.zone] += 1
    return tuple(c.broker for c in chosen)


def ranked(candidates: Sequence[Candidate], others: Load) -> list[Candidate]:
    """Return the candidates, least loaded first, the zones taking turns: neighbours in the rank are in different
    zones."""
    by_load = sorted(candidates, key=lambda c: (others.leaders[c.broker], others.replicas[c.broker], c.broker))
    turn: Counter[str] = Counter()
    turns: dict[BrokerId, int] = {}
    zone_order: dict[str, int] = {}
    for candidate in by_load:
        turns[candidate.broker] = turn[candidate.zone]
        turn[candidate.zone] += 1
        zone_order.setdefault(candidate.zone, len(zone_order))
    return sorted(by_load, key=lambda c: (turns[c.broker], zone_order[c.zone]))


@dataclass(frozen=True, slots=True)
class Ground:
    """The brokers on which replicas may stand."""

    candidates: Sequence[Candidate]
    """The brokers that may be given replicas, best first."""
    zones: Mapping[BrokerId, str]
    """The zones of every broker that is known, those that may be given nothing included."""
    leaving: Collection[BrokerId] = ()
    """The brokers that must hold nothing in the end."""
    faults: Mapping[BrokerId, int] = field(default_factory=dict)
    """The worth of a replica on each broker: the one with the greatest fault goes first when there are too many."""
    at_hand: Collection[BrokerId] = ()
    """The brokers that still hold the partition although they were to give it away: nothing has to be copied there."""

    @classmethod
    def of(cls, candidates: Sequence[Candidate], zones: Mapping[BrokerId, str], others: Load) -> "Ground":
        return cls(ranked(candidates, others), zones)

    def of_partition(self, faults: Mapping[BrokerId, int], at_hand: Collection[BrokerId]) -> "Ground":
        """Return the same for one partition."""
        return replace(self, faults=faults, at_hand=at_hand)

    def crowd(self, replicas: Sequence[BrokerId]) -> int:
        """Return the pairs of replicas that share a zone."""
        counts = Counter(self.zones.get(broker, "") for broker in replicas)
        return sum(count * (count - 1) // 2 for count in counts.values())


class _Relief(NamedTuple):
    replicas: Replicas
    gain: tuple[int, int, int]
    """The pairs that no longer share a zone, then how much more the giver held, then how much more it was preferred."""


def refit(current: Replicas, replication: int, ground: Ground, load: Load) -> Replicas:
    """Return `current` with `replication` brokers, none of which is to leave, as far as there are brokers for it.

    `load` is that of the topic, `current` included; it is not changed.
    """
    kept = _without_leaving(_shrunk(current, replication, ground, load), ground, load)
    if len(kept) < replication and len(_free(kept, ground)) >= replication - len(kept):
        while len(kept) < replication:
            kept = (*kept, _best(kept, ground, load.replicas))
    return kept


def level(
    own: Sequence[Replicas], ground: Ground, moves_max: int, may_move: Callable[[int], bool]
) -> dict[int, Replicas]:
    """Return the changes for a topic that stands as `own`, by place in it: at most `moves_max` of them move data."""
    load = Load.of(own)
    changed: dict[int, Replicas] = {}
    moves = 0
    for index in _most_helpful_first(own, ground, load, may_move):
        replicas = own[index]
        moved = _relieved(replicas, ground, load).replicas if moves < moves_max else replicas
        moves += moved != replicas
        ordered = moved if moved != replicas else _reordered(replicas, load)
        if ordered != replicas:
            load.moved(replicas, ordered)
            changed[index] = ordered
    return changed


def _most_helpful_first(
    own: Sequence[Replicas], ground: Ground, load: Load, may_move: Callable[[int], bool]
) -> list[int]:
    """Return the ones of `own` that may move. Zones come first: a replica moved for balance might have to go on for its
    zone."""
    gains = {index: _relieved(each, ground, load).gain for index, each in enumerate(own) if may_move(index)}
    return sorted(gains, key=gains.__getitem__, reverse=True)


def _shrunk(current: Replicas, replication: int, ground: Ground, load: Load) -> Replicas:
    kept = current
    while len(kept) > replication:
        gone = max(range(len(kept)), key=lambda index: _unwanted(kept, index, ground, load))
        kept = (*kept[:gone], *kept[gone + 1 :])
    return kept


def _unwanted(kept: Replicas, index: int, ground: Ground, load: Load) -> tuple[int, ...]:
    """Return the rank of which the greatest goes. The preferred leader stays where its log is as good as the
    others'."""
    broker, rest = kept[index], (*kept[:index], *kept[index + 1 :])
    return (
        broker in ground.leaving,
        ground.faults.get(broker, 0),
        index > 0,
        -ground.crowd(rest),
        load.replicas[broker],
        index,
    )


def _without_leaving(kept: Replicas, ground: Ground, load: Load) -> Replicas:
    for index, broker in enumerate(kept):
        if broker in ground.leaving and _free(kept, ground):
            rest = (*kept[:index], *kept[index + 1 :])
            counts = load.replicas if index > 0 else load.leaders
            kept = (*kept[:index], _best(kept, ground, counts, rest), *kept[index + 1 :])
    return kept


def _free(kept: Replicas, ground: Ground) -> list[Candidate]:
    return [candidate for candidate in ground.candidates if candidate.broker not in kept]


def _best(
    kept: Replicas, ground: Ground, counts: Counter[BrokerId], beside: Sequence[BrokerId] | None = None
) -> BrokerId:
    """Return the broker to join `beside`, which is `kept` where it is not given; `min` keeps the first of equals."""
    rest = kept if beside is None else beside
    best = min(
        _free(kept, ground),
        key=lambda c: (ground.crowd((*rest, c.broker)), c.broker not in ground.at_hand, counts[c.broker]),
    )
    return best.broker


def _relieved(replicas: Replicas, ground: Ground, load: Load) -> _Relief:
    """Return the replicas with one of them elsewhere where that helps most; the same where nothing does."""
    zones = [ground.zones.get(broker, "") for broker in replicas]
    best = _Relief(replicas, _NO_GAIN)
    for candidate in _free(replicas, ground):
        for index, giver in enumerate(replicas):
            more, more_leaders = _gain(load, giver, candidate.broker, first=index == 0)
            gain = (_closer(zones, zones[index], candidate.zone), more, more_leaders)
            allowed = (gain[0] > 0 or more >= _UNEVEN) and (index > 0 or more_leaders >= _UNEVEN)
            if allowed and gain > best.gain:
                best = _Relief((*replicas[:index], candidate.broker, *replicas[index + 1 :]), gain)
    return best


def _gain(load: Load, giver: BrokerId, taker: BrokerId, *, first: bool) -> tuple[int, int]:
    """Return how much more `giver` holds and is preferred than `taker`; the latter matters to the first replica
    alone."""
    return load.replicas[giver] - load.replicas[taker], load.leaders[giver] - load.leaders[taker] if first else 0


def _closer(zones: Sequence[str], before: str, after: str) -> int:
    """Return how many pairs of replicas fewer share a zone when one of them goes from `before` to `after`."""
    return 0 if before == after else zones.count(before) - 1 - zones.count(after)


def _reordered(replicas: Replicas, load: Load) -> Replicas:
    """Return the replicas with the broker first that is preferred least, where that makes the topic more even."""
    first = replicas[0]
    least = min(replicas, key=lambda broker: load.leaders[broker])
    if load.leaders[first] - load.leaders[least] < _UNEVEN:
        return replicas
    swapped = {first: least, least: first}
    return tuple(swapped.get(broker, broker) for broker in replicas)


@dataclass(frozen=True, slots=True)
class TooFewBrokers:
    """The result where the partitions that are missing cannot be placed now."""

    needed: int
    ready: int
    """The number of brokers that could be given partitions."""
    known: int

    @classmethod
    def of(cls, topic: Topic, observed: Observed) -> "TooFewBrokers":
        return cls(topic.spec.replicas, sum(map(observed.is_open_to, observed.brokers)), len(observed.brokers))


def missing_partitions(topic: Topic, sets: Iterable[PartitionSet]) -> list[PartitionId]:
    """Return the partitions that the topic asks for and that no set holds, in order."""
    placed = {state.id for partition_set in sets for state in partition_set.partitions}
    return [PartitionId(p) for p in range(topic.spec.partitions) if p not in placed]


def seat_new(
    topic: Topic, own: Iterable[Replicas], new: Sequence[PartitionId], observed: Observed, others: Load
) -> list[PartitionState] | TooFewBrokers:
    """Return seats for each of `new`; `own` is where the topic's other partitions stand, `others` the rest of the
    load."""
    ready = [broker for broker in observed.in_state(BrokerState.READY) if observed.is_open_to(broker.id)]
    needed = topic.spec.replicas
    if not new:
        return []
    if len(ready) < needed:
        return TooFewBrokers.of(topic, observed)
    candidates = [Candidate(broker.id, broker.zone) for broker in ready]
    placed = spread(len(new), needed, candidates, own=own, others=others)
    seats = {broker.id: broker for broker in ready}
    return [_seated(partition, replicas, seats) for partition, replicas in zip(new, placed, strict=True)]


def placed_in(topic: Topic, sets: Iterable[PartitionSet], states: Sequence[PartitionState]) -> list[PartitionSet]:
    """Return the topic's sets with `states`, none of which they hold, in those that they belong to; without the
    others."""
    existing = {partition_set.metadata.name: partition_set for partition_set in sets}
    changed = []
    by_id = sorted(states, key=lambda state: state.id)
    for name, group in groupby(by_id, key=lambda state: set_name(topic.metadata.name, state.id)):
        found = existing.get(name) or _new_set(topic, name)
        whole = sorted((*found.partitions, *group), key=lambda state: state.id)
        changed.append(replace(found, partitions=tuple(whole)))
    return changed


def _seated(partition: PartitionId, replicas: Replicas, brokers: Mapping[BrokerId, Broker]) -> PartitionState:
    isr = tuple(brokers[broker].seat for broker in replicas)
    return PartitionState(
        id=partition,
        leader=isr[0],
        leader_epoch=LeaderEpoch(1),
        partition_epoch=PartitionEpoch(1),
        replicas=replicas,
        isr=isr,
    )


def _new_set(topic: Topic, name: str) -> PartitionSet:
    owner = OwnerReference(API_VERSION, "Topic", topic.metadata.name, topic.uid)
    metadata = Metadata(name, topic.metadata.namespace, labels={CLUSTER_LABEL: topic.spec.cluster}, owners=(owner,))
    return PartitionSet(metadata, topic.metadata.name, topic.uid, ())

"""Which brokers hold a new partition: pure, deterministic, and never moving what is already placed (see `moving`).

Partitions are placed one after the other, each where the topic has least, so that placing ten at once and placing six,
stopping, and placing four more give the same answer: an operator that dies half way goes on where it was.

- The leader is the broker that leads fewest partitions of this topic; the first replica is the preferred leader.
- Each further replica goes to the zone that holds fewest replicas of the partition, then to the broker that holds
  fewest of the topic: zones first, balance second.
- Ties go to the broker that is first in `ranked`: least loaded by other topics, zones taken in turns. The rank must
  stay the same for the whole topic: a rank that followed the topic's own load would break the balance of followers.

Leaders per broker differ by at most one, whatever the zones are. Replicas differ by at most one where zones hold
equally many brokers. Called by `headrace.core.control`.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import TypeAlias

from headrace.core.slotted import dataclass
from headrace.core.types import BrokerId

Replicas: TypeAlias = tuple[BrokerId, ...]
"""The brokers of one partition; the first is the preferred leader."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A broker that may be given new partitions."""

    broker: BrokerId
    zone: str = ""


@dataclass(slots=True)
class Load:
    """How many partitions each broker leads (by preference) and holds."""

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
        """A partition that is counted in it stands elsewhere now."""
        self.leaders.subtract(before[:1])
        self.replicas.subtract(before)
        self.add_all([after])

    def with_all(self, placed: Iterable[Replicas]) -> "Load":
        whole = Load(self.leaders.copy(), self.replicas.copy())
        whole.add_all(placed)
        return whole

    def without(self, part: "Load") -> "Load":
        """What is left when `part`, which is counted in it, is taken out."""
        return Load(self.leaders - part.leaders, self.replicas - part.replicas)


def spread(
    count: int, replication: int, candidates: Sequence[Candidate], *, own: Iterable[Replicas], others: Load
) -> list[Replicas]:
    """Replicas for `count` new partitions of a topic with `replication` copies of each.

    `own` is what the topic has already, `others` the load of all other topics. There must be at least `replication`
    candidates: the caller says what is wrong when there are not.
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
    """Least loaded first, the zones taking turns: neighbours in the rank are in different zones."""
    by_load = sorted(candidates, key=lambda c: (others.leaders[c.broker], others.replicas[c.broker], c.broker))
    turn: Counter[str] = Counter()
    turns: dict[BrokerId, int] = {}
    zone_order: dict[str, int] = {}
    for candidate in by_load:
        turns[candidate.broker] = turn[candidate.zone]
        turn[candidate.zone] += 1
        zone_order.setdefault(candidate.zone, len(zone_order))
    return sorted(by_load, key=lambda c: (turns[c.broker], zone_order[c.zone]))

"""Where a partition that is placed already should stand now: pure, deterministic, and moving as little as possible.

- `refit`: its replication factor changed, or a broker that holds it is to leave. Whoever may stay stays, in its place
  in the order; who comes takes the place of who goes, or the end. What cannot be done yet is left as it is.
- `level`: brokers were added, so the topic stands unevenly. One replica moves where that puts a partition into more
  zones, or takes from a broker that holds at least two more than the one that gets it; where no data has to move, the
  order of a partition's replicas changes so that each broker is preferred equally often.

Every step of `level` lowers (replicas that share a zone, then the unevenness of replicas, then that of preferred
leaders) and raises none before it, so that it ends, and has nothing to do where `spread` has just placed a topic.
Called by `headrace.core.control.reassigning`.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from typing import NamedTuple

from headrace.core.placement.spread import Candidate, Load, Replicas, ranked
from headrace.core.slotted import dataclass
from headrace.core.types import BrokerId

_UNEVEN = 2
"""A difference that moving one replica lowers; one of 1 would only change sides."""


@dataclass(frozen=True, slots=True)
class Ground:
    """Where replicas may stand."""

    candidates: Sequence[Candidate]
    """Brokers that may be given replicas, best first."""
    zones: Mapping[BrokerId, str]
    """Of every broker that is known, those that may be given nothing included."""
    leaving: Collection[BrokerId] = ()
    """Brokers that must hold nothing in the end."""
    faults: Mapping[BrokerId, int] = field(default_factory=dict)
    """How little a replica there is worth: whoever has most goes first when there are too many."""
    at_hand: Collection[BrokerId] = ()
    """Brokers that still hold the partition although they were to give it away: nothing has to be copied there."""

    @classmethod
    def of(cls, candidates: Sequence[Candidate], zones: Mapping[BrokerId, str], others: Load) -> "Ground":
        return cls(ranked(candidates, others), zones)

    def of_partition(self, faults: Mapping[BrokerId, int], at_hand: Collection[BrokerId]) -> "Ground":
        """The same, for one partition."""
        return replace(self, faults=faults, at_hand=at_hand)

    def crowd(self, replicas: Sequence[BrokerId]) -> int:
        """Pairs of replicas that share a zone."""
        counts = Counter(self.zones.get(broker, "") for broker in replicas)
        return sum(count * (count - 1) // 2 for count in counts.values())


class _Relief(NamedTuple):
    replicas: Replicas
    gain: tuple[int, int, int]
    """Pairs that no longer share a zone, then how much more the giver held, then how much more it was preferred."""


_NO_GAIN = (0, 0, 0)


def refit(current: Replicas, replication: int, ground: Ground, load: Load) -> Replicas:
    """`current` with `replication` brokers, none of which is to leave, as far as there are brokers for it.

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
    """What to change for a topic that stands as `own`, by place in it: at most `moves_max` of them move data."""
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
    """Those of `own` that may move. Zones come first: a replica moved for balance might have to go on for its zone."""
    gains = {index: _relieved(each, ground, load).gain for index, each in enumerate(own) if may_move(index)}
    return sorted(gains, key=gains.__getitem__, reverse=True)


def _shrunk(current: Replicas, replication: int, ground: Ground, load: Load) -> Replicas:
    kept = current
    while len(kept) > replication:
        gone = max(range(len(kept)), key=lambda index: _unwanted(kept, index, ground, load))
        kept = (*kept[:gone], *kept[gone + 1 :])
    return kept


def _unwanted(kept: Replicas, index: int, ground: Ground, load: Load) -> tuple[int, ...]:
    """The greatest goes. The preferred leader stays where its log is as good as the others'."""
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
    """The broker to join `beside`, which is `kept` where it is not given; `min` keeps the first of equals."""
    rest = kept if beside is None else beside
    best = min(
        _free(kept, ground),
        key=lambda c: (ground.crowd((*rest, c.broker)), c.broker not in ground.at_hand, counts[c.broker]),
    )
    return best.broker


def _relieved(replicas: Replicas, ground: Ground, load: Load) -> _Relief:
    """With one replica elsewhere where that helps most; the same where nothing does."""
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
    """How much more `giver` holds and is preferred than `taker`; the latter matters to the first replica alone."""
    return load.replicas[giver] - load.replicas[taker], load.leaders[giver] - load.leaders[taker] if first else 0


def _closer(zones: Sequence[str], before: str, after: str) -> int:
    """How many pairs of replicas fewer share a zone when one of them goes from `before` to `after`."""
    return 0 if before == after else zones.count(before) - 1 - zones.count(after)


def _reordered(replicas: Replicas, load: Load) -> Replicas:
    """With the broker first that is preferred least, where that makes the topic more even."""
    first = replicas[0]
    least = min(replicas, key=lambda broker: load.leaders[broker])
    if load.leaders[first] - load.leaders[least] < _UNEVEN:
        return replicas
    swapped = {first: least, least: first}
    return tuple(swapped.get(broker, broker) for broker in replicas)

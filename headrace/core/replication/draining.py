"""The end of a broker's life without loss: what a stopping broker waits for, and when a damaged log may be cut.

    asked to stop ──> draining ── enough others are in sync without it, or no broker is there that might catch up
                               ── it leads nothing that another replica could lead ──> steps down ──> stops
    its ordinal is above the StatefulSet's replicas ──> draining ──> for each replica:
        another broker can take it          ──> waits until no PartitionSet names this one any more
        none can, and writes go on without  ──> goes with it: the topic has one copy less until somebody helps
        none can, and acks=all would stop   ──> waits, for people: for another broker, or fewer replicas
    damage found in a log ──> others have it all ──> this life ends as every stop does
                            │    ──> others still have it all ──> the next life cuts the log there and fetches again
                            └──> nobody else has it ──> nothing is cut: the rest can still be read

A rolling update stops the next broker while the last one may still catch up. So a broker stays while too few others
are in sync and a ready broker has a replica that is not. Its waits are bounded, and it does not wait where nobody
can do anything: every other member of the ISR is away or drains (a whole cluster stops), no broker is to stay, or the
operator leaves the topic alone. A broker that is waited for in vain is needed: without it the partition would be below
`minInsyncReplicas`.

The votes of a life count on what it had, so nothing that it voted for is cut in it: the next incarnation cuts, when
the old seat is void. The records that it cuts are in as many other logs as must be in sync, on live brokers; the only
replica cuts nothing. Pure; asked again with every change, by the broker's coordination and its verification.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from headrace.core.replication.isr import floor, settled
from headrace.core.resources.kubernetes_objects import BrokerSet
from headrace.core.resources.partition_set import PartitionSet, PartitionState
from headrace.core.resources.topic import Topic
from headrace.core.types import BrokerId, Seat, TopicUid


@dataclass(frozen=True, slots=True)
class Placed:
    state: PartitionState
    min_insync_replicas: int = 1
    is_tended: bool = True
    """The operator moves the leaders and replicas of the topic."""
    is_deleting: bool = False
    """Brokers delete the topic's data, and surrender their seats by themselves."""
    topic: str = ""
    """The topic's name, as `namespace/name`."""

    def __str__(self) -> str:
        return f"{self.topic}/{self.state.id}"


class ToGiveAway(NamedTuple):
    """The numbers of a broker's replicas, by what becomes of them."""

    moving: int
    """The replicas that others take, or whose data is being deleted."""
    needed: int
    """The replicas that nobody can take, and that their partitions cannot do without."""
    left: int
    """The replicas that nobody can take, and that go with the broker."""

    @property
    def awaited(self) -> int:
        return self.moving + self.needed


def placed(sets: Iterable[PartitionSet], topics: Iterable[Topic], regressed: Collection[TopicUid]) -> Iterator[Placed]:
    """Return the partitions of `sets`. Nobody moves those of a topic that is gone, paused, or being deleted."""
    known = {topic.uid: topic for topic in topics}
    for each in sets:
        topic = known.get(each.topic_uid)
        least = topic.spec.min_insync_replicas if topic is not None else 1
        is_left_alone = topic is None or topic.paused or topic.is_going
        is_tended = not (is_left_alone or each.deleting or each.topic_uid in regressed)
        name = str(each.topic_name)
        yield from (Placed(state, least, is_tended, each.deleting, name) for state in each.partitions)


def to_hand_over(partitions: Iterable[Placed], me: Seat, ready: Collection[Seat]) -> int:
    """Return how many partitions `me` leads that another will lead; `ready` seats serve and do not drain."""
    led = (each.state for each in partitions if each.is_tended and each.state.leader == me)
    return sum(any(seat != me and seat in ready for seat in state.isr) for state in led)


def kept_in_sync(partitions: Iterable[Placed], me: Seat, ready: Collection[Seat]) -> list[Placed]:
    """Return the partitions in which `me` had better stay until another replica, on a ready broker, has caught up."""
    return [each for each in partitions if each.is_tended and me in each.state.isr and _is_kept(each, me, ready)]


def _is_kept(placed_here: Placed, me: Seat, ready: Collection[Seat]) -> bool:
    state = placed_here.state
    others = sum(seat != me and seat in ready for seat in state.isr)
    # Where all of them are needed, each stop leaves too few: nobody waits for what cannot be.
    enough = min(floor(state, placed_here.min_insync_replicas), len(settled(state)) - 1)
    may_come = (seat.broker != me.broker and seat.broker in state.replicas and seat not in state.isr for seat in ready)
    return others < enough and any(may_come)


def to_give_away(partitions: Iterable[Placed], me: BrokerId, staying: BrokerSet, ready: Collection[Seat]) -> ToGiveAway:
    """Count the replicas of `me` by what becomes of them; `staying` are the brokers that there are to be."""
    moving = needed = left = 0
    for each in partitions if staying.ordinals else ():
        if me not in each.state.replicas:
            continue
        if each.is_deleting or _can_be_taken(each, me, staying):
            moving += 1
        elif _can_do_without(each, me, staying, ready):
            left += 1
        else:
            needed += 1
    return ToGiveAway(moving, needed, left)


def _can_be_taken(placed_here: Placed, me: BrokerId, staying: BrokerSet) -> bool:
    """Return whether a broker that is to stay can take it, even one that is away just now."""
    state = placed_here.state
    is_on_its_way = me in state.removing or any(broker not in state.replicas for broker in staying.ordinals)
    return placed_here.is_tended and is_on_its_way


def _can_do_without(placed_here: Placed, me: BrokerId, staying: BrokerSet, ready: Collection[Seat]) -> bool:
    state = placed_here.state
    others = [seat for seat in state.isr if seat.broker != me and seat in ready and staying.asks_for(seat.broker)]
    return len(others) >= floor(state, placed_here.min_insync_replicas)


def others_have_it(state: PartitionState, me: Seat, ready: Collection[Seat], min_insync_replicas: int) -> bool:
    """Return whether enough others are in sync; `ready` seats have brokers that live, do not drain and have room."""
    others = sum(seat.broker != me.broker and seat in ready for seat in state.isr)
    return others >= max(1, min(floor(state, min_insync_replicas), len(settled(state)) - 1))

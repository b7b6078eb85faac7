"""Who leads where nobody in the ISR can: an offline partition whose seats cannot be renewed (design section 6).

    offline, nobody in the ISR can be elected ── a replica's broker is away, drains or is not proved ──> wait for it
        ── all are there ──> ask them (`promises`)
             ── a member of the ISR says that its log is intact ──> it renews its seat in a moment: wait
             ── one has not promised ──────────────────────────────> ask again
             ── all have, and no member of the ISR is intact ──────> the greatest (epoch, end) leads, in sync alone

The end is that of the durable log under `Fsync`. What only those in the ISR had is lost where their logs are: that is
said in an Event, loudly. It takes no permission, unlike an unclean election, because nothing better is to be had: all
that anybody holds has been looked at.

Invariants: a leader is chosen only among all replicas, each of which has promised in its present life, and by a write
that fails where anything has changed since; its epoch is above what was promised.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from headrace.core.control.changing import Change, ChangeKind, revised
from headrace.core.control.held import Epochs
from headrace.core.control.observed import BrokerState, Observed
from headrace.core.control.promises import PromisedLog
from headrace.core.resources.partition_set import PartitionSet, PartitionState
from headrace.core.resources.topic import Topic, TopicSpec
from headrace.core.types import BrokerId, LeaderEpoch, PartitionKey


def questions(topics: Iterable[Topic], observed: Observed) -> Mapping[BrokerId, Mapping[PartitionKey, Epochs]]:
    """Whom to ask of what before the next plan."""
    asked: dict[BrokerId, dict[PartitionKey, Epochs]] = defaultdict(dict)
    tended = {topic.uid for topic in topics if _is_tended(topic, observed)}
    for found in observed.sets:
        for state in found.partitions if found.topic_uid in tended and not found.deleting else ():
            if _is_stuck(state, observed):
                for broker in state.replicas:
                    asked[broker][found.key(state.id)] = Epochs(state.leader_epoch, state.partition_epoch)
    return asked


def resort(spec: TopicSpec, partition_set: PartitionSet, state: PartitionState, observed: Observed) -> Change | None:
    """What to write for this partition, if anything."""
    if not _is_stuck(state, observed):
        return None
    logs = _promised(partition_set.key(state.id), state.replicas, observed)
    members = {seat.broker for seat in state.isr}
    if logs is None or any(not log.damage for broker, log in logs.items() if broker in members):
        return None
    best = max(state.replicas, key=lambda broker: (logs[broker].rank(spec.durability), broker in members, -broker))
    leader = observed.brokers[best].seat
    elected = revised(state, leader=leader, leader_epoch=LeaderEpoch(state.leader_epoch + 1), isr=(leader,))
    cause = "no member of the ISR has an intact log"
    reason = f"{cause}: {leader} has the greatest log of all replicas"
    return Change(elected, reason, (ChangeKind.RESORTED,), cause, _loss(spec, state, best, logs))


def _is_tended(topic: Topic, observed: Observed) -> bool:
    ours = topic.spec.cluster == observed.cluster and topic.uid not in observed.regressed
    return ours and not topic.paused and topic.metadata.deletion_timestamp is None


def _is_stuck(state: PartitionState, observed: Observed) -> bool:
    """Offline for want of anybody to elect, and everybody who may hold a log of it is there."""
    if state.leader is not None or len(state.replicas) <= 1 or any(map(observed.serves, state.isr)):
        return False
    return all(observed.state_of(broker) is BrokerState.READY for broker in state.replicas)


def _promised(
    key: PartitionKey, replicas: Sequence[BrokerId], observed: Observed
) -> Mapping[BrokerId, PromisedLog] | None:
    """What each of them has promised in its present life; None where one has not."""
    logs = {}
    for broker in replicas:
        promises = observed.promises.get(broker)
        if promises is None or promises.seat != observed.brokers[broker].seat or key not in promises.logs:
            return None
        logs[broker] = promises.logs[key]
    return logs


def _loss(spec: TopicSpec, state: PartitionState, best: BrokerId, logs: Mapping[BrokerId, PromisedLog]) -> str:
    epoch, end = logs[best].rank(spec.durability)
    holds = f"which holds records up to offset {end} (exclusive) and leader epoch {epoch}" if end else "which is empty"
    members = [seat.broker for seat in state.isr if seat.broker in logs]
    damages = "; ".join(f"broker {broker}: {logs[broker].damage}" for broker in members)
    return (
        f"no log of those in sync is intact ({damages}): broker {best} leads with the greatest log of all replicas,"
        f" {holds}; acknowledged records beyond that are lost"
    )

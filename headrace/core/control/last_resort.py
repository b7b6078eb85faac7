"""The last resort for an offline partition whose seats cannot be renewed: brokers promise, then one is elected.

    offline, no member of the ISR can be elected ── a replica's broker is away, drains or is not proved ──> wait for it
        ── all are there ──> ask them (`broker_reports`)
             ── a member of the ISR reports an intact log ──> it renews its seat in a moment: wait
             ── one has not promised ──────────────────────────────> ask again
             ── all have, and no member of the ISR is intact ──────> the greatest (epoch, end) leads, in sync alone
    the topic allows unclean elections, a member of the ISR runs ── a replica's broker is lost ──> it is not waited for
             (where all of the ISR are lost, `elections` has elected already)

The end is that of the durable log under `Fsync`. Records that only lost logs had are lost: an Event reports that. It
takes no permission, unlike an unclean election, because all that any replica has was considered. A broker that never
comes back is waited for without end: `awaited` and the Topic's conditions name it, and how people may go on
(docs/replication.md). Invariants: a leader is chosen only among all replicas, each of which has promised in its present
life, but for those that are lost where the topic allows that; and by a write that fails where anything has changed
since. Its epoch is above what was promised.

A request takes PROMISES_ASKED_MAX partitions. `PromiseRequests` (one per operator) gives each its turn, in the order
of their keys; a partition is asked about at all its replicas in the same pass.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

from headrace.core.control.actions import Change, ChangeKind, revised
from headrace.core.control.broker_reports import Epochs, PromisedLog, Promises
from headrace.core.control.observed import BrokerState, Observed
from headrace.core.limits import PROMISES_ASKED_MAX
from headrace.core.resources.partition_set import PartitionSet, PartitionState
from headrace.core.resources.topic import Topic, TopicSpec
from headrace.core.types import BrokerId, LeaderEpoch, PartitionKey

Questions: TypeAlias = Mapping[BrokerId, Mapping[PartitionKey, Epochs]]


def questions(topics: Iterable[Topic], observed: Observed) -> Mapping[BrokerId, Mapping[PartitionKey, Epochs]]:
    """Return the questions to each broker before the next plan."""
    asked: dict[BrokerId, dict[PartitionKey, Epochs]] = defaultdict(dict)
    tended = {topic.uid: topic.spec for topic in topics if observed.tends(topic)}
    for found in observed.sets:
        for state in found.partitions if found.topic_uid in tended and not found.deleting else ():
            for broker in _asked(tended[found.topic_uid], state, observed):
                asked[broker][found.key(state.id)] = Epochs(state.leader_epoch, state.partition_epoch)
    return asked


def awaited(spec: TopicSpec, key: PartitionKey, state: PartitionState, observed: Observed) -> Sequence[BrokerId]:
    """Return the brokers that must come back, or report what they hold, before any can lead.

    Empty where a member of the ISR may do so alone, as soon as it is started.
    """
    if not _is_stuck(state, observed) or not _one_in_sync_runs(state, observed):
        return ()
    return _away(spec, state, observed) or [*observed.silent.get(key, ())]


def resort(spec: TopicSpec, partition_set: PartitionSet, state: PartitionState, observed: Observed) -> Change | None:
    """Return what to write for this partition, if anything."""
    asked = _asked(spec, state, observed)
    if not asked:
        return None
    logs = _promised(partition_set.key(state.id), asked, observed)
    members = {seat.broker for seat in state.isr}
    if logs is None or any(not log.damage for broker, log in logs.items() if broker in members):
        return None
    best = max(asked, key=lambda broker: (logs[broker].rank(spec.durability), broker in members, -broker))
    leader = observed.brokers[best].seat
    elected = revised(state, leader=leader, leader_epoch=LeaderEpoch(state.leader_epoch + 1), isr=(leader,))
    cause, loss = "no member of the ISR has an intact log", _loss(spec, state, best, logs)
    gone = ", ".join(str(broker) for broker in state.replicas if broker not in asked)
    if not gone:
        reason = f"{cause}: {leader} has the greatest log of all replicas"
        return Change(elected, reason, (ChangeKind.RESORTED,), cause, loss)
    loss += f", and so are those that only brokers {gone} had: spec.uncleanLeaderElection waits for nobody who is lost"
    reason = f"{cause}, brokers {gone} are lost: {leader} is elected uncleanly"
    return Change(elected, reason, (ChangeKind.ELECTED_UNCLEANLY,), cause, loss)


def _is_stuck(state: PartitionState, observed: Observed) -> bool:
    """Return whether it is offline for want of a replica to elect."""
    return state.leader is None and len(state.replicas) > 1 and not any(map(observed.serves, state.isr))


def _one_in_sync_runs(state: PartitionState, observed: Observed) -> bool:
    """Return whether a member runs in a life in which its seat is void."""
    return any(seat.broker in state.replicas and _is_ready(seat.broker, observed) for seat in state.isr)


def _is_ready(broker: BrokerId, observed: Observed) -> bool:
    return observed.state_of(broker) is BrokerState.READY


def _away(spec: TopicSpec, state: PartitionState, observed: Observed) -> Sequence[BrokerId]:
    """Return the brokers whose logs must be waited for."""
    away = [broker for broker in state.replicas if not _is_ready(broker, observed)]
    if spec.unclean_leader_election and _one_in_sync_runs(state, observed):
        return [broker for broker in away if observed.state_of(broker) is not BrokerState.LOST]
    return away


def _asked(spec: TopicSpec, state: PartitionState, observed: Observed) -> Sequence[BrokerId]:
    """Return the brokers that decide together; empty where it is not time for that."""
    if not _is_stuck(state, observed) or _away(spec, state, observed):
        return ()
    return [broker for broker in state.replicas if _is_ready(broker, observed)]


def _promised(
    key: PartitionKey, replicas: Sequence[BrokerId], observed: Observed
) -> Mapping[BrokerId, PromisedLog] | None:
    """Return what each of them has promised in its present life; None where one has not."""
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
    whom = "all replicas" if len(logs) == len(state.replicas) else "those that are left"
    damages = "; ".join(f"broker {broker}: {logs[broker].damage}" for broker in members)
    return (
        f"no log of those in sync is intact ({damages}): broker {best} leads with the greatest log of {whom},"
        f" {holds}; acknowledged records beyond that are lost"
    )


class PromiseRequests:
    def __init__(self, most: int = PROMISES_ASKED_MAX) -> None:
        self._most = most
        self._last: PartitionKey | None = None
        """The end of the last turn."""
        self._silent: dict[PartitionKey, Collection[BrokerId]] = {}
        """The brokers that did not answer when they were last asked, for the partitions that are wanted."""

    def turn(self, wanted: Questions) -> Questions:
        """Return the questions to ask now."""
        holders = _holders(wanted)
        self._silent = {key: brokers for key, brokers in self._silent.items() if key in holders}
        asked: dict[BrokerId, dict[PartitionKey, Epochs]] = defaultdict(dict)
        for key in self._in_turn(sorted(holders)):
            if any(len(asked[broker]) == self._most for broker in holders[key]):
                break
            for broker in holders[key]:
                asked[broker][key] = wanted[broker][key]
            self._last = key
        return {broker: keys for broker, keys in asked.items() if keys}

    def answered(
        self, asked: Questions, answers: Mapping[BrokerId, Promises]
    ) -> Mapping[PartitionKey, Collection[BrokerId]]:
        """Note `answers`, all that came of a turn, and return the brokers that have not answered, of everything that is
        wanted."""
        answered = {(broker, key) for broker, promises in answers.items() for key in promises.logs}
        for key, brokers in _holders(asked).items():
            self._silent[key] = [broker for broker in brokers if (broker, key) not in answered]
        return dict(self._silent)

    def _in_turn(self, keys: Sequence[PartitionKey]) -> Sequence[PartitionKey]:
        begin = bisect_right(keys, self._last) if self._last is not None else 0
        return [*keys[begin:], *keys[:begin]]


def _holders(asked: Questions) -> Mapping[PartitionKey, Sequence[BrokerId]]:
    holders: dict[PartitionKey, list[BrokerId]] = defaultdict(list)
    for broker, keys in asked.items():
        for key in keys:
            holders[key].append(broker)
    return holders

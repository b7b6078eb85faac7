"""`headrace cluster recover`: the partitions that stay offline by themselves, and the writes that bring them back.

    online ── the API's epochs are not below what brokers know, and its leader leads ──> left alone
    the API went back (restored etcd), or placed the partition anew on another broker (its set was deleted)
        ── every replica has reported ──> the greatest (epoch, end) leads, alone, in epochs above all that is known
        ── one has not ──────────────────> stuck: it may have more (any other such broker is a loss that is named)
    anything else that is offline ──> stuck, with the reason
    nothing of it stands anywhere: no set places it, and no broker of all knows it ──> never placed: nothing to recover

Pure: the command gathers reports first and lists the API after that, so that the API is never the older of the two by
chance. Invariants: epochs only rise; a partition that is well is not touched.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from headrace.core.control.broker_reports import BrokerReport, Epochs, HeldLog
from headrace.core.control.conditions import named_brokers
from headrace.core.resources.partition_set import PartitionSet, PartitionState
from headrace.core.resources.topic import Topic
from headrace.core.types import (
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    PartitionId,
    PartitionKey,
    TopicName,
    TopicUid,
)

_NOTHING = HeldLog(LeaderEpoch(-1), Offset(0))


@dataclass(frozen=True, slots=True)
class Cluster:
    """The state of the cluster: everything that is known."""

    topics: Sequence[Topic]
    """The topics to check."""
    sets: Sequence[PartitionSet]
    reports: Mapping[BrokerId, BrokerReport]
    silent: Mapping[BrokerId, str]
    """The brokers that have not reported, and the reason, as a clause."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """A recovered partition; `state` is the entry in its set afterwards."""

    topic: TopicName
    uid: TopicUid
    state: PartitionState
    reason: str
    losses: tuple[str, ...]
    """The losses that people must know of: records may be missing."""

    @property
    def place(self) -> str:
        return f"{self.topic}/{self.state.id}"


@dataclass(frozen=True, slots=True)
class Stuck:
    topic: TopicName
    partition: PartitionId
    reason: str

    @property
    def place(self) -> str:
        return f"{self.topic}/{self.partition}"


@dataclass(frozen=True, slots=True)
class NeverPlaced:
    """The partitions of a topic that never stood on a broker, so that there is nothing to bring back."""

    topic: TopicName
    count: int
    reason: str
    """The reason in the topic's condition Ready, as a clause."""


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """Records of a partition that is well, on a broker that is no replica of it: they are of another history."""

    topic: TopicName
    partition: PartitionId
    broker: BrokerId
    log: HeldLog

    @property
    def place(self) -> str:
        return f"{self.topic}/{self.partition}"


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    writes: tuple[PartitionSet, ...]
    """The writes, by compare-and-set on the versions that were observed."""
    recovered: tuple[Recovered, ...]
    stuck: tuple[Stuck, ...]
    online: int
    """The number of partitions that are well."""
    left_behind: tuple[LeftBehind, ...] = ()
    never_placed: tuple[NeverPlaced, ...] = ()
    """The partitions that are neither online nor offline: no failure of recovery."""

    @property
    def offline(self) -> tuple[Recovered | Stuck, ...]:
        """Return the partitions that are offline before the writes."""
        return (*self.recovered, *self.stuck)


def plan_recovery(cluster: Cluster) -> RecoveryPlan:
    """Plan the recovery. It is idempotent: once its writes have landed and the brokers have followed, nothing is left
    to do."""
    writes: list[PartitionSet] = []
    findings: list[Recovered | Stuck | None] = []
    left_behind: list[LeftBehind] = []
    never_placed: list[NeverPlaced] = []
    for topic in sorted(cluster.topics, key=lambda topic: topic.full_name):
        if topic.is_going:
            continue
        for partition_set in sorted((s for s in cluster.sets if s.topic_uid == topic.uid), key=_name):
            found = [_look_at(partition_set, state, cluster) for state in partition_set.partitions]
            changed = [finding.state for finding in found if isinstance(finding, Recovered)]
            if changed:
                writes.append(partition_set.with_partitions(*changed))
            findings += found
            well = [state for state, finding in zip(partition_set.partitions, found, strict=True) if finding is None]
            left_behind += [left for state in well for left in _left_behind(partition_set, state, cluster)]
        stuck, new = _unplaced(topic, cluster)
        findings += stuck
        never_placed += new
    return RecoveryPlan(
        tuple(writes),
        tuple(finding for finding in findings if isinstance(finding, Recovered)),
        tuple(finding for finding in findings if isinstance(finding, Stuck)),
        findings.count(None),
        tuple(left_behind),
        tuple(never_placed),
    )


def _name(partition_set: PartitionSet) -> str:
    return partition_set.metadata.name


def _unplaced(topic: Topic, cluster: Cluster) -> tuple[list[Stuck], list[NeverPlaced]]:
    """Return the partitions that no set places: those that a broker knows have lost their set, the others never had
    one."""
    placed = {state.id for s in cluster.sets if s.topic_uid == topic.uid for state in s.partitions}
    missing = [PartitionId(number) for number in range(topic.spec.partitions) if number not in placed]
    known = {key for report in cluster.reports.values() for key in (*report.known, *report.logs)}
    # A broker that has not reported may be the one that holds it.
    lost = [number for number in missing if cluster.silent or PartitionKey(topic.uid, number) in known]
    reason = _why_not_ready(topic)
    why = "".join(f"; broker {broker} has not reported ({said})" for broker, said in sorted(cluster.silent.items()))
    stuck = [Stuck(topic.full_name, number, f"no PartitionSet places it{why}; {reason}") for number in lost]
    new = len(missing) - len(lost)
    return stuck, [NeverPlaced(topic.full_name, new, reason)] if new else []


def _why_not_ready(topic: Topic) -> str:
    """Return the reason as a clause, in the operator's own words where it has written some."""
    ready = [each for each in topic.status.get("conditions") or () if each.get("type") == "Ready"]
    if not ready or ready[0].get("status") == "True":
        return "the operator has not looked at the topic since"
    said = ready[0].get("message")
    return f"the topic is not Ready: {ready[0].get('reason')}" + (f" ({said})" if said else "")


def _look_at(partition_set: PartitionSet, state: PartitionState, cluster: Cluster) -> Recovered | Stuck | None:
    """Return what to do about one partition; None where it is online."""
    key, topic = partition_set.key(state.id), partition_set.topic_name
    told = {broker: report.logs[key] for broker, report in cluster.reports.items() if key in report.logs}
    known = _highest(state, key, told.values(), cluster.reports.values())
    logs = {broker: _as_led(log, known) for broker, log in told.items()}
    why = _why_recover(state, known, logs)
    if not why and state.leader is not None and logs.get(state.leader.broker, _NOTHING).leads:
        return None
    blocked = _why_blocked(state, logs, cluster)
    if blocked or not why:
        return Stuck(topic, state.id, blocked or "a broker is about to lead it: look again in a moment")
    return Recovered(
        topic, key.uid, _elected(state, known, logs, cluster.reports), why, _losses(state, known, logs, cluster.silent)
    )


def _as_led(log: HeldLog, known: Epochs) -> HeldLog:
    """Return the log without the lead where that is in an epoch that is over, or was not acted upon yet, though its
    broker may know of it."""
    latest = log.applied_epoch == known.leader_epoch
    return replace(log, leads=log.leads and latest, leads_late=log.leads and not latest)


def _left_behind(partition_set: PartitionSet, state: PartitionState, cluster: Cluster) -> list[LeftBehind]:
    key = partition_set.key(state.id)
    logs = [(broker, report.logs[key]) for broker, report in sorted(cluster.reports.items()) if key in report.logs]
    return [
        LeftBehind(partition_set.topic_name, state.id, broker, log)
        for broker, log in logs
        if broker not in state.replicas and log.log_end > 0
    ]


def _highest(
    state: PartitionState, key: PartitionKey, logs: Iterable[HeldLog], reports: Iterable[BrokerReport]
) -> Epochs:
    """Return the epochs that the new ones must be above."""
    known = [report.known[key] for report in reports if key in report.known]
    promised = [max(log.last_epoch, log.seen_epoch) for log in logs]
    leader_epochs = [state.leader_epoch, *(each.leader_epoch for each in known), *promised]
    partition_epochs = [state.partition_epoch, *(each.partition_epoch for each in known)]
    return Epochs(max(leader_epochs), max(partition_epochs))


def _why_recover(state: PartitionState, known: Epochs, logs: Mapping[BrokerId, HeldLog]) -> str:
    """Return the reason for a recovery as a clause; empty where the API is not behind."""
    if state.leader_epoch < known.leader_epoch:
        return f"the API says leader epoch {state.leader_epoch}, but brokers have seen {known.leader_epoch}"
    if state.partition_epoch < known.partition_epoch:
        return f"the API says partition epoch {state.partition_epoch}, but brokers have seen {known.partition_epoch}"
    knowing = [broker for broker, log in sorted(logs.items()) if log.regressed]
    if knowing:
        return f"{named_brokers(knowing)} knew another state of it under the same epochs"
    best = _best(state, known, logs)
    if best is not None and best not in state.replicas:
        return f"its records are on broker {best}, and the API places it on {named_brokers(state.replicas)}"
    return ""


def _best(state: PartitionState, known: Epochs, logs: Mapping[BrokerId, HeldLog]) -> BrokerId | None:
    """Return the broker with the greatest (epoch, end); of equals, one that is a replica already. None where no broker
    holds a log.

    Where the API is behind, the leader in the latest epoch comes first: it commits while others are asked. So may one
    that leads in an epoch before, if no other has more. An empty log counts where it belongs: of a partition that was
    never written to.
    """
    replicas, is_behind = state.replicas, _is_behind(state, known, logs)
    holding = [broker for broker, log in logs.items() if not log.trouble and (log.log_end > 0 or broker in replicas)]
    return max(
        holding,
        key=lambda broker: (is_behind and logs[broker].leads, *_claim(logs[broker]), broker in replicas, -broker),
        default=None,
    )


def _claim(log: HeldLog) -> tuple[tuple[int, int], bool]:
    return log.rank, log.leads_late


def _is_behind(state: PartitionState, known: Epochs, logs: Mapping[BrokerId, HeldLog]) -> bool:
    is_older = (state.leader_epoch, state.partition_epoch) < known
    return is_older or any(log.regressed for log in logs.values())


def _why_blocked(state: PartitionState, logs: Mapping[BrokerId, HeldLog], cluster: Cluster) -> str:
    """Return the reason why nothing may be decided now, as a clause."""
    for broker in state.replicas:
        if broker not in cluster.reports:
            why = cluster.silent.get(broker, "it has no Lease")
            return f"broker {broker}, which is to hold it, has not reported ({why}): start that broker first"
    for broker, log in sorted(logs.items()):
        if log.trouble:
            return f"broker {broker} holds it and cannot open it ({log.trouble}): its log file says why"
    return ""


def _elected(
    state: PartitionState,
    known: Epochs,
    logs: Mapping[BrokerId, HeldLog],
    reports: Mapping[BrokerId, BrokerReport],
) -> PartitionState:
    """Return the state under which the best log leads; where no broker holds a log, any replica may."""
    best = _best(state, known, logs)
    leader = reports[best].seat if best is not None else None
    replicas = state.replicas
    if best is not None and best not in replicas:
        replicas = (best, *replicas[: len(replicas) - 1])
    return replace(
        state,
        leader=leader,
        leader_epoch=LeaderEpoch(known.leader_epoch + 1),
        partition_epoch=PartitionEpoch(known.partition_epoch + 1),
        replicas=replicas,
        isr=(leader,) if leader is not None else state.isr,
        adding=(),
        removing=(),
    )


def _losses(
    state: PartitionState, known: Epochs, logs: Mapping[BrokerId, HeldLog], silent: Mapping[BrokerId, str]
) -> tuple[str, ...]:
    best = _best(state, known, logs)
    # The state that went back may name the replicas of an older time: the latest log may be on any broker.
    losses = [
        f"broker {broker} has not reported ({why}) and may hold later records" for broker, why in sorted(silent.items())
    ]
    if best is None:
        return ("no broker that has reported holds a log of it: it begins empty", *losses)
    if logs[best].damage:
        losses.append(f"the log of broker {best} is not intact: {logs[best].damage}")
    if best not in state.replicas:
        losses += [
            f"what broker {broker} has taken since, offsets 0 to {log.log_end} (exclusive), is left behind on its disk"
            for broker, log in sorted(logs.items())
            if broker in state.replicas and log.log_end > 0
        ]
    return tuple(losses)

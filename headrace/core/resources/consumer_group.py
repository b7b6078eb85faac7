"""ConsumerGroup: the settings of a group, and the status that its coordinator and the operator write
(`crds/consumergroups`).

A group that needs nothing special needs no resource: the coordinator's broker creates it with the defaults when a
group of that name comes to life, and deletes what it created itself when the group is forgotten. The status has two
writers, each with fields of its own (`groups.status`); both PUT it with the `resourceVersion` that they read. It names
topics by name, with their uids in `topics`; conditions stay as they were. Points in time are RFC 3339 in the resource,
milliseconds since 1970 here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

from headrace.core.groups.identity import (
    NO_GROUP_EPOCH,
    Assignor,
    GroupEpoch,
    GroupName,
    GroupSettings,
    GroupState,
    GroupType,
    MemberId,
    OffsetRetention,
)
from headrace.core.resources.lease import CLUSTER_LABEL
from headrace.core.resources.metadata import API_VERSION, DEFAULT_CLUSTER, InvalidResourceError, Metadata, Object
from headrace.core.types import BrokerId, Offset, PartitionId, TopicUid
from headrace.core.units import UNLIMITED, parse_duration_ms, parse_limited_duration_ms

GROUP_SESSION_MS_MIN = 1_000
GROUP_SESSION_MS_MAX = 1_800_000
"""The session time above which larger values of `spec.sessionTimeout` count as this: no member heartbeats seldom or
without a pause."""
AUTO_CREATED_LABEL = "headrace.io/auto-created"
"""The label of a ConsumerGroup that no user asked for: it goes when its group does."""
GROUP_FINALIZER = "headrace.io/group"


def parse_moment_ms(text: str) -> int:
    """Parse a moment: `"2026-12-01T00:00:00Z"` -> 1796083200000. Raises ValueError with the accepted form."""
    try:
        moment = datetime.fromisoformat(text.upper())  # The API server takes "z" as well.
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError(f"{text!r} is no point in time: write one as RFC 3339 does, for example 2026-12-01T00:00:00Z")
    return round(moment.timestamp() * 1000)


def format_moment(time_ms: int) -> str:
    """Return the moment in whole seconds, as `metav1.Time`."""
    return datetime.fromtimestamp(time_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class TopicShare(NamedTuple):
    """The partitions of one topic, as a status lists them."""

    topic: str
    partitions: tuple[PartitionId, ...]


@dataclass(frozen=True, slots=True)
class MemberStatus:
    member: MemberId
    instance: str = ""
    client_address: str = ""
    epoch: GroupEpoch = NO_GROUP_EPOCH
    topics: tuple[str, ...] = ()
    """The topics that exist and that it subscribes to, patterns resolved."""
    assignment: tuple[TopicShare, ...] = ()
    """The partitions that it is to have, as of `assignmentEpoch`."""
    owned: tuple[TopicShare, ...] = ()
    """The partitions that it has, those that it is giving up included."""

    @classmethod
    def parse(cls, raw: Object) -> "MemberStatus":
        return cls(
            member=MemberId(raw["memberId"]),
            instance=raw.get("instanceId", ""),
            client_address=raw.get("clientAddress", ""),
            epoch=GroupEpoch(raw.get("memberEpoch", NO_GROUP_EPOCH)),
            topics=tuple(raw.get("topics") or ()),
            assignment=_shares(raw.get("assignment") or ()),
            owned=_shares(raw.get("owned") or ()),
        )

    def to_object(self) -> dict[str, Any]:
        return {
            "memberId": self.member,
            "instanceId": self.instance,
            "clientAddress": self.client_address,
            "memberEpoch": self.epoch,
            "topics": [*self.topics],
            "assignment": [{"topic": share.topic, "partitions": [*share.partitions]} for share in self.assignment],
            "owned": [{"topic": share.topic, "partitions": [*share.partitions]} for share in self.owned],
        }


class TopicStatus(NamedTuple):
    topic: str
    uid: TopicUid
    lag: int | None
    """The readable records that the group has not committed; None: not known."""

    def to_object(self) -> dict[str, Any]:
        raw: dict[str, Any] = {"topic": self.topic, "uid": self.uid, "lagKnown": self.lag is not None}
        return raw if self.lag is None else {**raw, "lag": self.lag}


class LastReset(NamedTuple):
    id: str
    time: str = ""
    result: str = ""


@dataclass(frozen=True, slots=True)
class ConsumerGroupStatus:
    observed_generation: int = 0
    state: GroupState | None = None
    """The state; None: `Unknown`, no coordinator has written any yet."""
    group_epoch: GroupEpoch = NO_GROUP_EPOCH
    assignment_epoch: GroupEpoch = NO_GROUP_EPOCH
    """The `group_epoch` that the members' `assignment` was made for."""
    coordinator: BrokerId | None = None
    members: tuple[MemberStatus, ...] = ()
    topics: tuple[TopicStatus, ...] = ()
    last_reset: LastReset | None = None
    conditions: tuple[Mapping[str, Any], ...] = ()
    """The conditions as they were read."""

    @property
    def lag(self) -> str:
        """Return the lag of all topics together."""
        lags = [topic.lag for topic in self.topics if topic.lag is not None]
        return str(sum(lags)) if len(lags) == len(self.topics) else "unknown"

    @classmethod
    def parse(cls, raw: Object) -> "ConsumerGroupStatus":
        state, reset = raw.get("state", "Unknown"), raw.get("lastReset")
        return cls(
            observed_generation=raw.get("observedGeneration", 0),
            state=None if state == "Unknown" else GroupState(state),
            group_epoch=GroupEpoch(raw.get("groupEpoch", NO_GROUP_EPOCH)),
            assignment_epoch=GroupEpoch(raw.get("assignmentEpoch", NO_GROUP_EPOCH)),
            coordinator=BrokerId(raw["coordinator"]) if "coordinator" in raw else None,
            members=tuple(map(MemberStatus.parse, raw.get("members") or ())),
            topics=tuple(
                TopicStatus(each["topic"], TopicUid(each.get("uid", "")), each.get("lag"))
                for each in raw.get("topics") or ()
            ),
            last_reset=None if not reset else LastReset(*(reset.get(name, "") for name in LastReset._fields)),
            conditions=tuple(raw.get("conditions") or ()),
        )

    def to_object(self) -> dict[str, Any]:
        raw: dict[str, Any] = {
            "observedGeneration": self.observed_generation,
            "state": "Unknown" if self.state is None else self.state.value,
            "groupEpoch": self.group_epoch,
            "assignmentEpoch": self.assignment_epoch,
            "memberCount": len(self.members),
            "lag": self.lag,
            "topicNames": ",".join(topic.topic for topic in self.topics),
            "members": [member.to_object() for member in self.members],
            "topics": [topic.to_object() for topic in self.topics],
            "conditions": [dict(condition) for condition in self.conditions],
        }
        if self.coordinator is not None:
            raw["coordinator"] = self.coordinator
        if self.last_reset is not None:
            raw["lastReset"] = {name: value for name, value in self.last_reset._asdict().items() if value}
        return raw


def _shares(raw: Iterable[Object]) -> tuple[TopicShare, ...]:
    return tuple(TopicShare(each["topic"], tuple(map(PartitionId, each["partitions"]))) for each in raw)


class Fault(NamedTuple):
    """A field of the manifest that cannot be read, and counts as absent."""

    field: str
    """The field, such as `spec.pausedUntil`."""
    message: str
    """The field, its value, and how it is written."""


class ResetTo(StrEnum):
    EARLIEST = "Earliest"
    LATEST = "Latest"
    TIMESTAMP = "Timestamp"
    OFFSETS = "Offsets"


class ResetOffset(NamedTuple):
    topic: str
    partition: PartitionId
    offset: Offset


@dataclass(frozen=True, slots=True)
class ResetOffsets:
    """A reset of offsets, carried out once for each id, when the group is empty."""

    id: str
    to: ResetTo
    timestamp_ms: int | None = None
    """The time since 1970; with `Timestamp`, and only then."""
    topics: tuple[str, ...] = ()
    """The topics; empty: all of the group."""
    offsets: tuple[ResetOffset, ...] = ()
    """The offsets; with `Offsets`, and only then."""

    @classmethod
    def parse(cls, raw: Object) -> "ResetOffsets":
        for required in ("id", "to"):
            if required not in raw:
                raise ValueError(f"{required} is missing: give it one")
        to = ResetTo(raw["to"])
        timestamp = raw.get("timestamp")
        if (to is ResetTo.TIMESTAMP) != (timestamp is not None):
            raise ValueError(f"timestamp belongs to `to: Timestamp`, and only to it; to is {to}, timestamp {timestamp}")
        if (to is ResetTo.OFFSETS) != bool(raw.get("offsets")):
            count = len(raw.get("offsets") or ())
            raise ValueError(f"offsets belong to `to: Offsets`, and only to it; to is {to}, with {count} offsets")
        return cls(
            id=str(raw["id"]),
            to=to,
            timestamp_ms=None if timestamp is None else parse_moment_ms(timestamp),
            topics=tuple(raw.get("topics") or ()),
            offsets=tuple(
                ResetOffset(each["topic"], PartitionId(each["partition"]), Offset(each["offset"]))
                for each in raw.get("offsets") or ()
            ),
        )

    def to_object(self) -> dict[str, Any]:
        raw: dict[str, Any] = {"id": self.id, "to": self.to.value}
        if self.timestamp_ms is not None:
            raw["timestamp"] = format_moment(self.timestamp_ms)
        if self.topics:
            raw["topics"] = [*self.topics]
        if self.offsets:
            raw["offsets"] = [each._asdict() for each in self.offsets]
        return raw


@dataclass(frozen=True, slots=True)
class ConsumerGroupSpec:
    """The settings of a group: durations in milliseconds, None for `unlimited`."""

    cluster: str = DEFAULT_CLUSTER
    type: GroupType = GroupType.CONSUMER
    assignor: Assignor = Assignor.UNIFORM
    session_timeout_ms: int = 45_000
    offsets_retention_ms: int | None = 7 * 24 * 3_600_000
    paused_until_ms: int | None = None
    """The time since 1970; None: not paused."""
    reset_offsets: ResetOffsets | None = None
    faults: tuple[Fault, ...] = ()
    """The parts of `pausedUntil` and `resetOffsets` that could not be read: a mistake in them takes no group out of
    service."""

    @classmethod
    def parse(cls, spec: Object) -> "ConsumerGroupSpec":
        """Read `spec`, with the CRD's defaults for absent fields. Raises InvalidResourceError naming the field."""
        faults = list[Fault]()
        return cls(
            cluster=str(spec.get("cluster", DEFAULT_CLUSTER)),
            type=_parsed(spec, "type", GroupType, GroupType.CONSUMER),
            assignor=_parsed(spec, "assignor", Assignor, Assignor.UNIFORM),
            session_timeout_ms=_parsed(spec, "sessionTimeout", parse_duration_ms, 45_000),
            offsets_retention_ms=_parsed(spec, "offsetsRetention", parse_limited_duration_ms, 7 * 24 * 3_600_000),
            paused_until_ms=_lenient(spec, "pausedUntil", parse_moment_ms, faults),
            reset_offsets=_lenient(spec, "resetOffsets", ResetOffsets.parse, faults),
            faults=tuple(faults),
        )

    def fault(self, name: str) -> str:
        """Return why the field of this name cannot be read; empty where it can."""
        return next((fault.message for fault in self.faults if fault.field == f"spec.{name}"), "")

    def to_object(self) -> dict[str, Any]:
        """Return the spec as a resource spells it, every default written out: `parse` gives the same back."""
        retention_ms = self.offsets_retention_ms
        raw: dict[str, Any] = {
            "cluster": self.cluster,
            "type": self.type.value,
            "assignor": self.assignor.value,
            "sessionTimeout": f"{self.session_timeout_ms}ms",
            "offsetsRetention": UNLIMITED if retention_ms is None else f"{retention_ms}ms",
        }
        if self.paused_until_ms is not None:
            raw["pausedUntil"] = format_moment(self.paused_until_ms)
        if self.reset_offsets is not None:
            raw["resetOffsets"] = self.reset_offsets.to_object()
        return raw


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    metadata: Metadata
    spec: ConsumerGroupSpec = field(default_factory=ConsumerGroupSpec)
    status: ConsumerGroupStatus = field(default_factory=ConsumerGroupStatus)

    @property
    def name(self) -> GroupName:
        return GroupName(self.metadata.namespace, self.metadata.name)

    @property
    def auto_created(self) -> bool:
        return self.metadata.labels.get(AUTO_CREATED_LABEL) == "true"

    @property
    def deleting(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    def settings(self, now_ms: int, wall_ms: int) -> GroupSettings:
        """Return the settings for the coordinator, by the clock of `now_ms`; `wall_ms` is the same moment since
        1970."""
        until_ms = self.spec.paused_until_ms
        return GroupSettings(
            assignor=self.spec.assignor,
            session_ms=min(max(self.spec.session_timeout_ms, GROUP_SESSION_MS_MIN), GROUP_SESSION_MS_MAX),
            offsets_retention_ms=self.spec.offsets_retention_ms,
            paused_until_ms=None if until_ms is None else now_ms + until_ms - wall_ms,
            type=self.spec.type,
        )

    def is_paused(self, wall_ms: int) -> bool:
        return self.spec.paused_until_ms is not None and wall_ms < self.spec.paused_until_ms

    @classmethod
    def parse(cls, obj: Object) -> "ConsumerGroup":
        """Parse an object. Raises InvalidResourceError where it is not a ConsumerGroup."""
        spec = ConsumerGroupSpec.parse(obj.get("spec") or {})
        try:
            status = ConsumerGroupStatus.parse(obj.get("status") or {})
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidResourceError(f"status: {error!r}") from error
        return cls(Metadata.parse(obj), spec, status)

    def to_object(self) -> dict[str, Any]:
        return {
            "apiVersion": API_VERSION,
            "kind": "ConsumerGroup",
            "metadata": self.metadata.to_object(),
            "spec": self.spec.to_object(),
            "status": self.status.to_object(),
        }


def auto_created(
    name: GroupName, cluster: str, retention: OffsetRetention | None = None, group_type: GroupType = GroupType.CONSUMER
) -> dict[str, Any]:
    """Return the manifest with which a broker creates a group that no user asked for: held from the first moment.

    `retention` is that of a group which lives on while its ConsumerGroup was lost: offsets are kept no shorter for it.
    """
    spec: dict[str, Any] = {"cluster": cluster}
    if group_type is not GroupType.CONSUMER:
        spec["type"] = group_type.value
    if retention is not None:
        spec["offsetsRetention"] = UNLIMITED if retention.ms is None else f"{retention.ms}ms"
    labels = {CLUSTER_LABEL: cluster, AUTO_CREATED_LABEL: "true"}
    metadata = {"name": name.name, "namespace": name.namespace, "labels": labels, "finalizers": [GROUP_FINALIZER]}
    return {"apiVersion": API_VERSION, "kind": "ConsumerGroup", "metadata": metadata, "spec": spec}


def _lenient(spec: Object, name: str, parse: Any, faults: list[Fault]) -> Any:
    """Parse a field; return None, and add to `faults`, where it cannot be read."""
    try:
        return _parsed(spec, name, parse, None)
    except InvalidResourceError as error:
        faults.append(Fault(f"spec.{name}", str(error)))
        return None


def _parsed(spec: Object, name: str, parse: Any, default: Any) -> Any:
    value = spec.get(name)
    if value is None:
        return default
    try:
        return parse(value)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidResourceError(f"spec.{name}: {error}") from error

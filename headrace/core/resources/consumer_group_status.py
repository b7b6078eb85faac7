"""`status` of a ConsumerGroup, whole: what `groups.status` writes of it for the coordinator and for the operator.

Values only, as the resource spells them; topics by name, with their uids in `topics`. Conditions stay as they were.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from headrace.core.groups.identity import NO_EPOCH, GroupEpoch, GroupState, MemberId
from headrace.core.resources.metadata import Object
from headrace.core.types import BrokerId, PartitionId, TopicUid


class TopicShare(NamedTuple):
    """Partitions of one topic, as a status lists them."""

    topic: str
    partitions: tuple[PartitionId, ...]


@dataclass(frozen=True, slots=True)
class MemberStatus:
    member: MemberId
    instance: str = ""
    client_address: str = ""
    epoch: GroupEpoch = NO_EPOCH
    topics: tuple[str, ...] = ()
    """That exist and that it subscribes to, patterns resolved."""
    assignment: tuple[TopicShare, ...] = ()
    """What it is to have, as of `assignmentEpoch`."""
    owned: tuple[TopicShare, ...] = ()
    """What it has, what it is giving up included."""

    @classmethod
    def parse(cls, raw: Object) -> "MemberStatus":
        return cls(
            member=MemberId(raw["memberId"]),
            instance=raw.get("instanceId", ""),
            client_address=raw.get("clientAddress", ""),
            epoch=GroupEpoch(raw.get("memberEpoch", NO_EPOCH)),
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
    """Readable records that the group has not committed; None: not known."""

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
    """None: `Unknown`, no coordinator has said anything yet."""
    group_epoch: GroupEpoch = NO_EPOCH
    assignment_epoch: GroupEpoch = NO_EPOCH
    """The `group_epoch` that the members' `assignment` was made for."""
    coordinator: BrokerId | None = None
    members: tuple[MemberStatus, ...] = ()
    topics: tuple[TopicStatus, ...] = ()
    last_reset: LastReset | None = None
    conditions: tuple[Mapping[str, Any], ...] = ()
    """As they were read."""

    @property
    def lag(self) -> str:
        """Of all topics together."""
        lags = [topic.lag for topic in self.topics if topic.lag is not None]
        return str(sum(lags)) if len(lags) == len(self.topics) else "unknown"

    @classmethod
    def parse(cls, raw: Object) -> "ConsumerGroupStatus":
        state, reset = raw.get("state", "Unknown"), raw.get("lastReset")
        return cls(
            observed_generation=raw.get("observedGeneration", 0),
            state=None if state == "Unknown" else GroupState(state),
            group_epoch=GroupEpoch(raw.get("groupEpoch", NO_EPOCH)),
            assignment_epoch=GroupEpoch(raw.get("assignmentEpoch", NO_EPOCH)),
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

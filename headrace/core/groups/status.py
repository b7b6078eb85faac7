"""The status of a group: in its ConsumerGroup, from its two writers, and as the JSON body of a description or a list.

    coordinator ── report_of, reported ──> state, epochs, members, topics and lag, last reset
                                     and the assignment, once it is committed
    operator    ── target_for, assigned ──> the assignment, while `groupEpoch` is above `assignmentEpoch`
    coordinator <── offered_of ── the published assignment

Each leaves the other's fields alone. An assignment is the operator's from when it is published until the coordinator
has committed one for that epoch, its own or the operator's: from then on the status shows what members move towards,
and the operator has nothing to publish. Assignment epochs above the group's are of an earlier life of the group. Pure;
the SDK and the command line read the bodies.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from headrace.core.fields import BodyFields
from headrace.core.groups.assignment import (
    Assignment,
    Names,
    Partitions,
    Subscriber,
    TopicPartitions,
    Topics,
    assign,
    by_topic,
    names_in,
)
from headrace.core.groups.entries import Image, MemberValue
from headrace.core.groups.events import TargetOffered
from headrace.core.groups.identity import (
    Assignor,
    GroupEpoch,
    GroupName,
    GroupState,
    GroupType,
    MemberId,
    OffsetRetention,
    TopicShape,
)
from headrace.core.groups.requests import ANSWER, listed_object, parse_listed
from headrace.core.groups.sessions import Silence
from headrace.core.resources.consumer_group import (
    ConsumerGroup,
    LastReset,
    MemberStatus,
    TopicShare,
    TopicStatus,
    format_moment,
)
from headrace.core.types import BrokerId, PartitionKey, TopicUid


@dataclass(frozen=True, slots=True)
class MemberReport:
    member: MemberId
    instance: str
    client_address: str
    epoch: GroupEpoch
    topics: tuple[str, ...]
    """The topics that exist and that it subscribes to."""
    pattern: str
    assignment: tuple[TopicPartitions, ...]
    """The target of the member."""
    owned: tuple[TopicPartitions, ...]
    """The partitions, those that it is giving up included."""
    silence: Silence | None = None
    """The silence; None: not reported."""


@dataclass(frozen=True, slots=True)
class GroupReport:
    """The coordinator's report of a group, for clients and for its ConsumerGroup."""

    group: GroupName
    state: GroupState
    group_epoch: GroupEpoch
    assignment_epoch: GroupEpoch
    assignor: Assignor
    paused: bool
    coordinator: BrokerId
    members: tuple[MemberReport, ...]
    """The members in the order of their ids."""
    last_reset: str
    topics: tuple[TopicStatus, ...] = ()
    retention: OffsetRetention | None = None
    """The retention; None: not known."""
    type: GroupType = GroupType.CONSUMER


def topics_of(image: Image, topics: Topics) -> dict[str, TopicShape]:
    """Return what the group reads, or has offsets of: the topics of which there is a lag. `topics` are all of its
    namespace."""
    names = names_in(topics)
    remembered = {names[uid] for uid in {partition.uid for partition in image.offsets} if uid in names}
    return dict(sorted({**image.group.inputs.topics, **{name: topics[name] for name in remembered}}.items()))


def report_of(
    image: Image,
    state: GroupState,
    coordinator: BrokerId,
    topics: Topics,
    lags: Mapping[TopicUid, int | None],
) -> GroupReport:
    """Return the report; `topics` as in `topics_of`; lags that are not among `lags` are not known."""
    inputs = image.group.inputs
    names = {**names_in(inputs.topics), **names_in(topics)}
    return GroupReport(
        group=image.name,
        state=state,
        group_epoch=image.group.epoch,
        assignment_epoch=image.group.assignment_epoch,
        assignor=inputs.assignor,
        paused=inputs.paused,
        coordinator=coordinator,
        members=tuple(_member_report(image, member, value, names) for member, value in sorted(image.members.items())),
        last_reset=image.group.last_reset,
        topics=tuple(
            TopicStatus(name, shape.uid, lags.get(shape.uid)) for name, shape in topics_of(image, topics).items()
        ),
        retention=image.group.retention,
        type=image.group.type,
    )


def _member_report(image: Image, member: MemberId, value: MemberValue, names: Names) -> MemberReport:
    current = image.currents[member]
    return MemberReport(
        member,
        value.instance,
        value.client_address,
        current.epoch,
        tuple(sorted(value.subscription.resolve(image.group.inputs.topics))),
        value.subscription.pattern,
        by_topic(image.target(member), names),
        by_topic([*current.assigned, *current.revoking], names),
    )


def with_silences(report: GroupReport, silences: Mapping[MemberId, Silence]) -> GroupReport:
    """Return the report for a client of the coordinator; a ConsumerGroup would be written with every heartbeat."""
    return replace(report, members=tuple(replace(each, silence=silences.get(each.member)) for each in report.members))


def reported(resource: ConsumerGroup, report: GroupReport, wall_ms: int) -> ConsumerGroup:
    """Return the ConsumerGroup as the coordinator writes it; equal to `resource` where there is nothing to write."""
    before = resource.status
    is_offered = report.assignment_epoch < before.assignment_epoch <= report.group_epoch
    offered = {member.member: member.assignment for member in before.members}
    members = (_member_status(member, offered if is_offered else None) for member in report.members)
    status = replace(
        before,
        state=GroupState.EMPTY if report.state is GroupState.DEAD else report.state,
        group_epoch=report.group_epoch,
        assignment_epoch=before.assignment_epoch if is_offered else report.assignment_epoch,
        coordinator=report.coordinator,
        members=tuple(members),
        topics=report.topics,
        last_reset=_last_reset(before.last_reset, report, wall_ms),
    )
    return replace(resource, status=status)


def _member_status(member: MemberReport, offered: Mapping[MemberId, tuple[TopicShare, ...]] | None) -> MemberStatus:
    return MemberStatus(
        member.member,
        member.instance,
        member.client_address,
        member.epoch,
        member.topics,
        _shares(member.assignment) if offered is None else offered.get(member.member, ()),
        _shares(member.owned),
    )


def _shares(listed: Iterable[TopicPartitions]) -> tuple[TopicShare, ...]:
    """Return the shares without topics that cannot be named any more."""
    return tuple(TopicShare(each.topic, each.partitions) for each in listed if each.topic)


def _last_reset(before: LastReset | None, report: GroupReport, wall_ms: int) -> LastReset | None:
    """Return the last reset as the log has it, whatever the status had before; a dead group's log has none."""
    id_ = report.last_reset
    if report.state is GroupState.DEAD or (before is not None and before.id == id_):
        return before
    return LastReset(id_, format_moment(wall_ms), "Applied") if id_ else None


def target_for(resource: ConsumerGroup, topics: Topics, wall_ms: int) -> Assignment | None:
    """Return the target that the operator is to publish; None: nothing. `topics` are all of the namespace."""
    status, spec = resource.status, resource.spec
    if spec.type is not GroupType.CONSUMER or not status.members or status.group_epoch <= status.assignment_epoch:
        return None
    if resource.is_paused(wall_ms):
        return {member.member: frozenset() for member in status.members}
    subscribers = {
        member.member: Subscriber(
            frozenset(member.topics).intersection(topics),
            _keys(member.assignment, {name: shape.uid for name, shape in topics.items()}),
            member.instance,
        )
        for member in status.members
    }
    consumed = {name for subscriber in subscribers.values() for name in subscriber.topics}
    return assign(spec.assignor, subscribers, {name: topics[name] for name in sorted(consumed)})


def assigned(resource: ConsumerGroup, target: Mapping[MemberId, Partitions], topics: Topics) -> ConsumerGroup:
    """Return the ConsumerGroup as the operator writes it, with a target that was made from it and from `topics`."""
    names = names_in(topics)
    members = tuple(
        replace(member, assignment=_shares(by_topic(target[member.member], names)))
        for member in resource.status.members
    )
    status = replace(resource.status, assignment_epoch=resource.status.group_epoch, members=members)
    return replace(resource, status=status)


def offered_of(resource: ConsumerGroup) -> TargetOffered | None:
    """Return the operator's published target, for the coordinator; None: nothing for the group's present epoch."""
    status = resource.status
    if not status.members or status.assignment_epoch != status.group_epoch:
        return None
    uids = {topic.topic: topic.uid for topic in status.topics}
    return TargetOffered(
        status.assignment_epoch, {member.member: _keys(member.assignment, uids) for member in status.members}
    )


def _keys(shares: Iterable[TopicShare], uids: Mapping[str, TopicUid]) -> Partitions:
    """Return the partitions of topics that are known."""
    return frozenset(
        PartitionKey(uids[share.topic], partition)
        for share in shares
        if share.topic in uids
        for partition in share.partitions
    )


class GroupSummary(NamedTuple):
    """The line of a group in a list."""

    group: str
    state: GroupState
    members: int
    coordinator: BrokerId
    type: GroupType = GroupType.CONSUMER


def group_object(report: GroupReport) -> dict[str, Any]:
    """Return the description of a group."""
    return {
        "group": report.group.name,
        "type": report.type.value,
        "state": report.state.value,
        "groupEpoch": report.group_epoch,
        "assignmentEpoch": report.assignment_epoch,
        "assignor": report.assignor.value,
        "paused": report.paused,
        "lastReset": report.last_reset,
        "coordinator": report.coordinator,
        "members": [
            {
                "memberId": member.member,
                "instanceId": member.instance,
                "clientAddress": member.client_address,
                "memberEpoch": member.epoch,
                "topics": [*member.topics],
                "topicPattern": member.pattern,
                "assignment": listed_object(member.assignment),
                "owned": listed_object(member.owned),
                **_silence_object(member.silence),
            }
            for member in report.members
        ],
    }


def parse_group(body: object, namespace: str) -> GroupReport:
    """Parse a description, which has no lags."""
    fields = BodyFields(body, ANSWER)
    return GroupReport(
        group=GroupName(namespace, fields.text("group")),
        state=fields.one_of("state", GroupState),
        group_epoch=GroupEpoch(fields.whole("groupEpoch")),
        assignment_epoch=GroupEpoch(fields.whole("assignmentEpoch")),
        assignor=fields.one_of("assignor", Assignor),
        paused=fields.truth("paused"),
        coordinator=BrokerId(fields.whole("coordinator")),
        members=tuple(map(_parse_member, fields.objects("members"))),
        last_reset=fields.text("lastReset", ""),
        type=fields.one_of("type", GroupType),
    )


def groups_object(summaries: Iterable[GroupSummary], unreachable: Iterable[BrokerId] = ()) -> dict[str, Any]:
    """Return the list; `unreachable`: brokers that may coordinate others, and did not answer."""
    return {
        "groups": [
            {**each._asdict(), "state": each.state.value, "type": each.type.value} for each in sorted(summaries)
        ],
        "unreachable": sorted(unreachable),
    }


def parse_groups(body: object) -> tuple[tuple[GroupSummary, ...], tuple[BrokerId, ...]]:
    """Return the groups of a namespace, and the brokers that did not answer."""
    fields = BodyFields(body, ANSWER)
    summaries = tuple(
        GroupSummary(
            each.text("group"),
            each.one_of("state", GroupState),
            each.whole("members"),
            BrokerId(each.whole("coordinator")),
            each.one_of("type", GroupType),
        )
        for each in fields.objects("groups")
    )
    return summaries, tuple(map(BrokerId, fields.wholes("unreachable", [])))


def _silence_object(silence: Silence | None) -> dict[str, int]:
    return {} if silence is None else {"silentMs": silence.silent_ms, "expiresInMs": silence.expires_in_ms}


def _parse_member(fields: BodyFields) -> MemberReport:
    return MemberReport(
        member=MemberId(fields.text("memberId")),
        instance=fields.text("instanceId", ""),
        client_address=fields.text("clientAddress", ""),
        epoch=GroupEpoch(fields.whole("memberEpoch")),
        topics=tuple(fields.texts("topics")),
        pattern=fields.text("topicPattern", ""),
        assignment=parse_listed(fields, "assignment"),
        owned=parse_listed(fields, "owned"),
        silence=Silence(fields.whole("silentMs"), fields.whole("expiresInMs")) if "silentMs" in fields else None,
    )

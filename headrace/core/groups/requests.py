"""The requests about consumer groups, and their answers, as JSON bodies over HTTP. `docs/protocol.md` shows them.

`events` has their meaning. A partition is listed under its topic, which has a name and a uid; a request may leave the
uid out, and then means the topic that has the name now. A uid of a topic that was deleted and created again is refused
as stale. A body that is wrong is an InvalidRequestError that names the field.

A broker passes heartbeats on to their coordinator. While too many wait there already, it asks without a wait
(`heartbeat_without_waiting`) and keeps an answer without news for as long as the member would have waited; else the
member would ask again at once. Pure; called by the broker's routes, the SDK, the operator and the simulator.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, assert_never
from urllib.parse import quote, urlencode

from headrace.core.errors import InvalidRequestError, StaleTopicError, UnknownPartitionError, UnknownTopicError
from headrace.core.fields import BodyFields
from headrace.core.groups.assignment import (
    Names,
    Subscription,
    TopicPartitions,
    Topics,
    by_topic,
    keys_of,
    names_in,
    names_of,
    partitions_of,
)
from headrace.core.groups.entries import OffsetValue
from headrace.core.groups.events import (
    AbsenceReceived,
    CommitReceived,
    DeletionReceived,
    Done,
    HeartbeatReceived,
    JoinReceived,
    LeaveReceived,
    Membership,
    Offsets,
    OffsetsAsked,
    Reply,
    Request,
    ResetResolved,
)
from headrace.core.groups.identity import NO_GROUP_EPOCH, GroupEpoch, GroupName, GroupType, MemberId
from headrace.core.limits import GROUP_HEARTBEAT_MS_MAX, REBALANCE_TIMEOUT_MS_DEFAULT, TOPIC_PARTITIONS_MAX
from headrace.core.log.epochs import NO_EPOCH as NO_LEADER
from headrace.core.types import LeaderEpoch, Offset, PartitionId, PartitionKey, TopicUid

OFFSETS_QUERY_LENGTH_MAX = 4_000
"""The length of the partitions that are asked for by number: heads of requests have 8 KiB."""
RESET_ID_LENGTH_MAX = 63
"""The length of `spec.resetOffsets.id`, which stands in the group's record and in its status."""
TOPIC_UID_LENGTH_MAX = 64
"""The longest uid; those of Kubernetes have 36 characters."""


_BODY = "the body"
ANSWER = "the coordinator's answer"
_UID = re.compile(f"[-._A-Za-z0-9]{{0,{TOPIC_UID_LENGTH_MAX}}}")
_NUMBERS = re.compile(r"[0-9]{1,4}(,[0-9]{1,4})*")


class GroupCall(NamedTuple):
    """A request in the form of HTTP."""

    method: str
    path: str
    """The path with its query."""
    body: dict[str, Any] | None


class TopicOffset(NamedTuple):
    topic: str
    partition: PartitionKey
    value: OffsetValue


def call_of(group: GroupName, request: Request, names: Names) -> GroupCall:
    """Return the request; `names` of the topics that it names, as far as they are known."""
    base = f"/v1/namespaces/{quote(group.namespace, safe='')}/groups/{quote(group.name, safe='')}"
    match request:
        case JoinReceived(_, member):
            return GroupCall("PUT", _member_path(base, member), _join_object(request))
        case HeartbeatReceived(_, member):
            return GroupCall("POST", f"{_member_path(base, member)}/heartbeat", _heartbeat_object(request, names))
        case LeaveReceived(_, member):
            return GroupCall("DELETE", _member_path(base, member), None)
        case AbsenceReceived(_, member):
            return GroupCall("DELETE", f"{_member_path(base, member)}?away=true", None)
        case CommitReceived(_, offsets, member, epoch, group_type):
            who = {} if member is None else {"memberId": member, "memberEpoch": epoch}
            path = f"{base}/offsets{type_query(group_type)}"
            return GroupCall("POST", path, {**who, "offsets": _offset_objects(offsets, names)})
        case OffsetsAsked(_, partitions):
            asked = [("topic", each) for each in _asked(partitions or (), names)]
            query = urlencode(asked, safe=":,")
            return GroupCall("GET", f"{base}/offsets{'?' if query else ''}{query}", None)
        case ResetResolved(_, reset, offsets):
            return GroupCall("POST", f"{base}/reset", {"id": reset, "offsets": _offset_objects(offsets, names)})
        case DeletionReceived():
            return GroupCall("DELETE", base, None)
        case _:
            assert_never(request)


def type_query(group_type: GroupType) -> str:
    """Return the query of requests that may be a group's first: its type. It is in the query, so that it is known
    before the body."""
    return "" if group_type is GroupType.CONSUMER else f"?type={group_type.value}"


def parse_join(body: object, request: int, member: MemberId, client_address: str) -> JoinReceived:
    """Parse a join. Raises InvalidRequestError, as all of these do."""
    fields = BodyFields(body, _BODY)
    return JoinReceived(
        request,
        member,
        _subscription(fields),
        instance=fields.text("instanceId", ""),
        client_address=client_address,
        rebalance_timeout_ms=fields.whole("rebalanceTimeoutMs", REBALANCE_TIMEOUT_MS_DEFAULT),
    )


def parse_heartbeat(body: object, request: int, member: MemberId, topics: Topics) -> HeartbeatReceived:
    """Parse a heartbeat. Raises UnknownTopicError for a topic without a uid as well."""
    fields = BodyFields(body, _BODY)
    says_anew = "topics" in fields or "topicPattern" in fields
    owned = frozenset(key for listed in fields.objects("owned") for key in _owned(listed, topics))
    return HeartbeatReceived(
        request,
        member,
        GroupEpoch(fields.whole("memberEpoch")),
        fields.whole("revision"),
        owned,
        subscription=_subscription(fields) if says_anew else None,
        instance=fields.text("instanceId", ""),
        wait_ms=fields.whole("waitMs", 0),
    )


def parse_commit(
    body: object, request: int, topics: Topics, group_type: GroupType = GroupType.CONSUMER
) -> CommitReceived:
    """Parse a commit. Raises UnknownTopicError, StaleTopicError and UnknownPartitionError as well."""
    fields = BodyFields(body, _BODY)
    member = MemberId(fields.text("memberId")) if "memberId" in fields else None
    if member is not None and group_type is not GroupType.CONSUMER:
        raise InvalidRequestError(
            f"memberId of the body is {member}, and a group of type {group_type.value} has no members: leave out"
            " memberId, or type in the query"
        )
    epoch = GroupEpoch(fields.whole("memberEpoch", NO_GROUP_EPOCH))
    return CommitReceived(request, _offsets(fields, topics), member, epoch, group_type)


def parse_reset(body: object, request: int, topics: Topics) -> ResetResolved:
    """Parse a reset. Raises what `parse_commit` raises."""
    fields = BodyFields(body, _BODY)
    reset = fields.text("id")
    if not reset:
        raise InvalidRequestError("id of the body is empty: name the reset, so that it is carried out once")
    if len(reset) > RESET_ID_LENGTH_MAX:
        raise InvalidRequestError(f"id of the body has {len(reset)} characters: give it {RESET_ID_LENGTH_MAX} at most")
    return ResetResolved(request, reset, _offsets(fields, topics))


def parse_offsets_asked(asked: Sequence[str], request: int, topics: Topics) -> OffsetsAsked:
    """Parse the query, `flights` or `flights:0,3`; without one, it is all there are. Raises UnknownTopicError."""
    if not asked:
        return OffsetsAsked(request)
    return OffsetsAsked(request, frozenset(key for each in asked for key in _keys_asked(each, topics)))


def reply_object(reply: Reply, names: Names) -> dict[str, Any]:
    match reply:
        case Membership(epoch, revision, assigned, heartbeat_ms, session_ms):
            return {
                "memberEpoch": epoch,
                "revision": revision,
                "assignment": None if assigned is None else listed_object(by_topic(assigned, names)),
                "heartbeatMs": heartbeat_ms,
                "sessionMs": session_ms,
            }
        case Offsets(offsets):
            return {"offsets": _offset_objects(offsets, names, with_time=True)}
        case Done():
            return {}
        case _:
            assert_never(reply)


def parse_membership(body: object) -> tuple[Membership, dict[TopicUid, str]]:
    """Parse a membership, with the names of the topics that are assigned."""
    fields = BodyFields(body, ANSWER)
    listed = parse_listed(fields, "assignment") if "assignment" in fields else None
    membership = Membership(
        GroupEpoch(fields.whole("memberEpoch")),
        fields.whole("revision"),
        None if listed is None else keys_of(listed),
        fields.whole("heartbeatMs"),
        fields.whole("sessionMs"),
    )
    return membership, names_of(listed or ())


def parse_offsets(body: object) -> tuple[TopicOffset, ...]:
    fields = BodyFields(body, ANSWER)
    return tuple(
        TopicOffset(
            each.text("topic", ""),
            PartitionKey(TopicUid(each.text("topicUid")), PartitionId(each.whole("partition"))),
            _offset_value(each),
        )
        for each in fields.objects("offsets")
    )


def listed_object(listed: Iterable[TopicPartitions]) -> list[dict[str, Any]]:
    return [{"topic": each.topic, "topicUid": each.uid, "partitions": [*each.partitions]} for each in listed]


def parse_listed(fields: BodyFields, name: str) -> tuple[TopicPartitions, ...]:
    """Parse partitions as the other side wrote them, with uids."""
    return tuple(
        TopicPartitions(
            each.text("topic", ""),
            TopicUid(each.text("topicUid")),
            tuple(map(PartitionId, each.wholes("partitions"))),
        )
        for each in fields.objects(name)
    )


def _member_path(base: str, member: MemberId) -> str:
    return f"{base}/members/{quote(member, safe='')}"


def _join_object(request: JoinReceived) -> dict[str, Any]:
    return {
        **_subscription_object(request.subscription),
        "instanceId": request.instance,
        "rebalanceTimeoutMs": request.rebalance_timeout_ms,
    }


def _heartbeat_object(request: HeartbeatReceived, names: Names) -> dict[str, Any]:
    said = {} if request.subscription is None else _subscription_object(request.subscription)
    return {
        "memberEpoch": request.epoch,
        "revision": request.revision,
        "owned": listed_object(by_topic(request.owned, names)),
        "instanceId": request.instance,
        "waitMs": request.wait_ms,
        **said,
    }


def _subscription_object(subscription: Subscription) -> dict[str, Any]:
    return {"topics": [*subscription.names], "topicPattern": subscription.pattern}


def _subscription(fields: BodyFields) -> Subscription:
    return Subscription.parse(fields.texts("topics", []), fields.text("topicPattern", ""))


def _asked(partitions: Iterable[PartitionKey], names: Names) -> list[str]:
    """Return topics with their partitions; without them where these are too many for a URL."""
    listed = by_topic((key for key in partitions if key.uid in names), names)
    narrow = [f"{each.topic}:{','.join(map(str, each.partitions))}" for each in listed]
    if sum(map(len, narrow)) <= OFFSETS_QUERY_LENGTH_MAX:
        return narrow
    return [each.topic for each in listed]


def _keys_asked(asked: str, topics: Topics) -> Iterable[PartitionKey]:
    name, colon, numbers = asked.partition(":")
    shape = topics[_known_topic(name, topics)]
    if not colon:
        return partitions_of(shape)
    if not _NUMBERS.fullmatch(numbers):
        raise InvalidRequestError(f"topic {asked[:100]!r}: name partitions by numbers, as in {name}:0,3", field="topic")
    return [PartitionKey(shape.uid, PartitionId(int(number))) for number in numbers.split(",")]


def _uid(fields: BodyFields) -> TopicUid:
    """Return the uid; empty where there is none."""
    uid = fields.text("topicUid", "")
    if not _UID.fullmatch(uid):
        raise InvalidRequestError(
            f"topicUid {uid[:TOPIC_UID_LENGTH_MAX]!r} is none: it is metadata.uid of the Topic, at most"
            f" {TOPIC_UID_LENGTH_MAX} letters, digits, '-', '_' and '.'"
        )
    return TopicUid(uid)


def _owned(listed: BodyFields, topics: Topics) -> list[PartitionKey]:
    """Parse what a member owns; its group judges that: topics that are gone, or came again, may be among it."""
    uid = _uid(listed) or topics[_named_topic(listed, topics)].uid
    return [PartitionKey(uid, PartitionId(partition)) for partition in listed.wholes("partitions")]


class _Known:
    """The topics of the namespace; by their uids only once that is asked for, as few requests do."""

    def __init__(self, topics: Topics) -> None:
        self.topics = topics
        self._names: Names | None = None

    def name_of(self, uid: TopicUid) -> str:
        """Return the name; empty where there is none."""
        if self._names is None:
            self._names = names_in(self.topics)
        return self._names.get(uid, "")


def _offsets(fields: BodyFields, topics: Topics) -> dict[PartitionKey, OffsetValue]:
    found: dict[PartitionKey, OffsetValue] = {}
    known = _Known(topics)
    for each in fields.objects("offsets"):
        key = _committed_key(each, known)
        if key in found:
            raise InvalidRequestError(
                f"offsets of the body name partition {key.partition} of {each.text('topic', key.uid)} twice: send one"
                " offset for each"
            )
        found[key] = _offset_value(each)
    return found


def _committed_key(each: BodyFields, known: _Known) -> PartitionKey:
    partition, uid = PartitionId(each.whole("partition")), _uid(each)
    name = each.text("topic", "") if uid else _named_topic(each, known.topics)
    if name not in known.topics:
        name = known.name_of(uid)
    shape = known.topics.get(name)
    if shape is not None and uid and uid != shape.uid:
        raise StaleTopicError(f"topic {name} is {shape.uid} now, no longer {uid}: begin anew", uid=shape.uid)
    # A topic out of sight is known to a caller that names its uid: the group decides whether it may be committed.
    partitions = TOPIC_PARTITIONS_MAX if shape is None else shape.partitions
    if partition >= partitions:
        raise UnknownPartitionError(
            f"topic {name or uid} has the partitions 0 to {partitions - 1}, and not {partition}", partitions=partitions
        )
    return PartitionKey(uid if shape is None else shape.uid, partition)


def _named_topic(fields: BodyFields, topics: Topics) -> str:
    return _known_topic(fields.text("topic"), topics)


def _known_topic(name: str, topics: Topics) -> str:
    if name not in topics:
        raise UnknownTopicError(f"there is no topic {name[:100]!r} in this namespace: create it, or correct its name")
    return name


def _offset_value(each: BodyFields) -> OffsetValue:
    return OffsetValue(
        Offset(each.whole("offset")),
        LeaderEpoch(each.whole("leaderEpoch", NO_LEADER)),
        each.text("metadata", ""),
        each.whole("committedMs", 0),
    )


def _offset_objects(
    offsets: Mapping[PartitionKey, OffsetValue], names: Names, *, with_time: bool = False
) -> list[dict[str, Any]]:
    return [
        {
            "topic": names.get(key.uid, ""),
            "topicUid": key.uid,
            "partition": key.partition,
            "offset": value.offset,
            "leaderEpoch": None if value.leader_epoch == NO_LEADER else value.leader_epoch,
            "metadata": value.metadata,
            **({"committedMs": value.committed_ms} if with_time else {}),
        }
        for key, value in sorted(offsets.items(), key=lambda item: (names.get(item[0].uid, ""), item[0]))
    ]


def heartbeat_without_waiting(body: object) -> tuple[object, int]:
    """Return the same heartbeat, to be answered at once, and how long its member would have waited, in milliseconds."""
    if not isinstance(body, dict):
        return body, 0
    return {**body, "waitMs": 0}, _milliseconds(body.get("waitMs"))


def answer_pause_ms(answer: object, wait_ms: int) -> int:
    """Return how long the answer is kept: not at all where there is news; no longer than its member may be silent."""
    if not isinstance(answer, dict) or answer.get("assignment") is not None:
        return 0
    return min(wait_ms, _milliseconds(answer.get("heartbeatMs")))


def _milliseconds(value: Any) -> int:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return min(max(value, 0), GROUP_HEARTBEAT_MS_MAX) if is_whole else 0

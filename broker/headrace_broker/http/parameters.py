"""The queries, read strictly: every refusal names the field, the value and the rule (HTTP 400).

The results are typed; nothing behind this module sees a raw parameter. Parameters that a route does not know are
refused, so that a typing error never changes silently what is asked for.
"""

import re
from collections.abc import Mapping
from enum import StrEnum

from multidict import MultiDict, MultiMapping

from headrace.core.errors import HeadraceError, InvalidRequestError
from headrace.core.fields import INT32_MAX, Fields
from headrace.core.frames.session_terms import read_fence
from headrace.core.groups.identity import GroupName, GroupType, MemberId
from headrace.core.limits import (
    FETCH_BYTES_DEFAULT,
    FETCH_BYTES_MAX,
    FETCH_RECORDS_MAX,
    HELD_TOPICS_MAX,
    MEMBER_ID_LENGTH_MAX,
    PRODUCE_TIMEOUT_MS_DEFAULT,
    PRODUCE_TIMEOUT_MS_MAX,
    TOPIC_PARTITIONS_MAX,
)
from headrace.core.log.epochs import Fence
from headrace.core.staging.writers import WriterName, writer_name_problem
from headrace.core.types import (
    Acks,
    BrokerId,
    Offset,
    PartitionId,
    TopicName,
    TopicUid,
    group_name_problem,
    namespace_problem,
)
from headrace_broker.partition.queries import (
    DeleteQuery,
    Edge,
    FetchQuery,
    OffsetsQuery,
    Place,
    ProduceQuery,
    ValueFormat,
    WatchQuery,
)

FETCH_WAIT_MS_MAX = 60_000
"""The longest time that a fetch may ask to wait for new records (`maxWaitMs`)."""

_MEMBER_ID = re.compile(f"[A-Za-z0-9][-._A-Za-z0-9]{{0,{MEMBER_ID_LENGTH_MAX - 1}}}")
_EDGES = tuple(Edge)


def parse_topic(path: Mapping[str, str]) -> TopicName:
    return TopicName(path["namespace"], path["topic"])


def parse_place(path: Mapping[str, str]) -> Place:
    partition = Parameters(path).whole("partition", most=TOPIC_PARTITIONS_MAX - 1)
    return Place(parse_topic(path), PartitionId(partition))


def parse_group(path: Mapping[str, str]) -> GroupName:
    """Return the group's name. Raises InvalidRequestError for what cannot be a ConsumerGroup."""
    group = GroupName(path["namespace"], path["group"])
    for field, problem in (
        ("namespace", namespace_problem(group.namespace)),
        ("group", group_name_problem(group.name)),
    ):
        if problem is not None:
            raise InvalidRequestError(problem, field=field)
    return group


def parse_writer(path: Mapping[str, str]) -> WriterName:
    writer = WriterName(path["namespace"], path["writer"])
    for field, problem in (
        ("namespace", namespace_problem(writer.namespace)),
        ("writer", writer_name_problem("writer", writer.name)),
    ):
        if problem is not None:
            raise InvalidRequestError(problem, field=field)
    return writer


def parse_member(path: Mapping[str, str]) -> MemberId:
    member = path["member"]
    if not _MEMBER_ID.fullmatch(member):
        raise InvalidRequestError(
            f"member {member[:MEMBER_ID_LENGTH_MAX]!r}: must have 1 to {MEMBER_ID_LENGTH_MAX} letters, digits, '-', '_'"
            " and '.', the first of them no mark; make up a random UUID",
            field="member",
        )
    return MemberId(member)


def parse_broker(path: Mapping[str, str]) -> BrokerId:
    return BrokerId(Parameters(path).whole("broker", most=INT32_MAX))


def parse_no_query(query: MultiMapping[str]) -> None:
    """Refuse all parameters, for a route that takes none."""
    if query:
        _query(query).finished(None)


def parse_held(query: MultiMapping[str]) -> frozenset[TopicUid] | None:
    """Return the topics that are asked about, several separated by commas; None means all."""
    read = _query(query)
    listed = read.finished(_topic_uid(read))
    if listed is None:
        return None
    uids = listed.split(",")
    if len(uids) > HELD_TOPICS_MAX or not all(uids):
        why = f"name 1 to {HELD_TOPICS_MAX} uids, separated by commas"
        raise InvalidRequestError(f"topicUid: {why}", field="topicUid")
    return frozenset(TopicUid(uid) for uid in uids)


class _Switch(StrEnum):
    FALSE = "false"
    TRUE = "true"


def parse_produce(query: MultiMapping[str]) -> ProduceQuery:
    read = _query(query)
    return read.finished(
        ProduceQuery(_acks(read), _timeout_ms(read), read_fence(read), is_committed=_is_on(read, "committed"))
    )


def parse_spread(query: MultiMapping[str]) -> ProduceQuery:
    """Parse as `parse_produce` does, where the broker chooses the partitions: a leader epoch would name none."""
    read = _query(query)
    return read.finished(ProduceQuery(_acks(read), _timeout_ms(read), Fence(_topic_uid(read))))


def parse_fetch(query: MultiMapping[str]) -> FetchQuery | WatchQuery:
    """Parse the query of one answer, or with `watch=true` of a stream of them."""
    read = _query(query)
    if _is_on(read, "watch"):
        return _parse_watch(read)
    max_bytes = read.whole("maxBytes", FETCH_BYTES_DEFAULT, least=1, most=FETCH_BYTES_MAX)
    return read.finished(
        FetchQuery(
            offset=_offset(read),
            max_bytes=max_bytes,
            max_records=read.whole("maxRecords", FETCH_RECORDS_MAX, least=1, most=FETCH_RECORDS_MAX),
            min_bytes=min(max_bytes, read.whole("minBytes", 1, most=FETCH_BYTES_MAX)),
            max_wait_ms=read.whole("maxWaitMs", 0, most=FETCH_WAIT_MS_MAX),
            fence=read_fence(read),
            value_format=read.one_of("valueFormat", ValueFormat, ValueFormat.TEXT),
        )
    )


def _parse_watch(read: "Parameters") -> WatchQuery:
    for name in ("minBytes", "maxWaitMs"):
        read.refuse(name, "not with watch=true, which waits for as long as the client does; leave it out")
    return read.finished(
        WatchQuery(
            offset=_offset(read),
            max_bytes=read.whole("maxBytes", FETCH_BYTES_DEFAULT, least=1, most=FETCH_BYTES_MAX),
            max_records=read.whole("maxRecords", 0, least=1, most=FETCH_RECORDS_MAX) or None,
            fence=read_fence(read),
            value_format=read.one_of("valueFormat", ValueFormat, ValueFormat.TEXT),
        )
    )


def parse_delete(query: MultiMapping[str]) -> DeleteQuery:
    read = _query(query)
    before = read.whole_or("beforeOffset", (Edge.LATEST,))
    return read.finished(DeleteQuery(before if isinstance(before, Edge) else Offset(before), read_fence(read)))


def parse_offsets(query: MultiMapping[str]) -> OffsetsQuery:
    read = _query(query)
    return read.finished(OffsetsQuery(read.whole_or("timestamp", _EDGES, Edge.EARLIEST), read_fence(read)))


def parse_leave(query: MultiMapping[str]) -> bool:
    """Return whether the member will be back."""
    read = _query(query)
    return read.finished(_is_on(read, "away"))


def parse_group_type(query: MultiMapping[str]) -> GroupType:
    """Return the type that the group is to have, where this is its first use."""
    read = _query(query)
    return read.finished(read.one_of("type", GroupType, GroupType.CONSUMER))


def parse_topics_asked(query: MultiMapping[str]) -> list[str]:
    """Return the names of topics, none or several."""
    names = query.getall("topic", [])
    others = MultiDict((name, value) for name, value in query.items() if name != "topic")
    return _query(others).finished(names)


class Parameters(Fields):
    """The parameters of a query, or of a path, which are texts."""

    quote = ""
    unknown = "this path takes no such query parameter"

    def refuse(self, name: str, why: str) -> None:
        if name in self:
            raise InvalidRequestError(f"{name}: {why}", field=name)

    def _whole(self, value: str | None) -> int | None:
        # isdecimal() alone would take other scripts' digits; 20 digits hold every int64.
        if value is not None and value.isascii() and value.isdecimal() and len(value) <= 20:
            return int(value)
        return None

    def _wrong(self, name: str, value: str | None, wanted: str) -> HeadraceError:
        if value is None:
            return InvalidRequestError(f"{name}: must be given", field=name)
        return super()._wrong(name, value, wanted)


def _query(query: MultiMapping[str]) -> Parameters:
    """Return the parameters. Raises InvalidRequestError for one that is given twice."""
    said = dict(query)
    if len(said) < len(query):
        name = next(name for name in query if len(query.getall(name)) > 1)
        raise InvalidRequestError(f"{name}: given {len(query.getall(name))} times; give it once", field=name)
    return Parameters(said)


def _offset(read: Parameters) -> Offset | Edge:
    value = read.whole_or("offset", _EDGES, Edge.EARLIEST)
    return value if isinstance(value, Edge) else Offset(value)


def _topic_uid(read: Parameters) -> TopicUid | None:
    uid = read.optional_text("topicUid")
    return None if uid is None else TopicUid(uid)


def _acks(read: Parameters) -> Acks:
    return read.one_of("acks", Acks, Acks.ALL)


def _timeout_ms(read: Parameters) -> int:
    return read.whole("timeoutMs", PRODUCE_TIMEOUT_MS_DEFAULT, least=1, most=PRODUCE_TIMEOUT_MS_MAX)


def _is_on(read: Parameters, name: str) -> bool:
    return read.one_of(name, _Switch, _Switch.FALSE) is _Switch.TRUE

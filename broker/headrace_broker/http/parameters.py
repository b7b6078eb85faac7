"""Queries, read strictly: every refusal names the field, the value and the rule (HTTP 400).

The results are typed; nothing behind this module sees a raw parameter. Parameters that a route does not know are
refused, so that a typing error never changes silently what is asked for.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from multidict import MultiDict, MultiMapping

from headrace.core.errors import InvalidRequestError
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
    LeaderEpoch,
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


_E = TypeVar("_E", bound=StrEnum)
_INT64_MAX = (1 << 63) - 1
_INT32_MAX = (1 << 31) - 1
_NO_FENCE = Fence()
_MEMBER_ID = re.compile(f"[A-Za-z0-9][-._A-Za-z0-9]{{0,{MEMBER_ID_LENGTH_MAX - 1}}}")
_EDGES = frozenset(Edge)


def parse_topic(path: Mapping[str, str]) -> TopicName:
    return TopicName(path["namespace"], path["topic"])


def parse_place(path: Mapping[str, str]) -> Place:
    return Place(
        parse_topic(path),
        PartitionId(_whole_number("partition", path["partition"], least=0, most=TOPIC_PARTITIONS_MAX - 1)),
    )


def parse_group(path: Mapping[str, str]) -> GroupName:
    """Raises InvalidRequestError for what cannot be a ConsumerGroup."""
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
    return BrokerId(_whole_number("broker", path["broker"], least=0, most=_INT32_MAX))


def parse_no_query(query: MultiMapping[str]) -> None:
    """For routes without parameters."""
    _Query(query).finish()


def parse_held(query: MultiMapping[str]) -> frozenset[TopicUid] | None:
    """The topics that are asked about, several separated by commas; None: all."""
    read = _Query(query)
    listed = read.topic_uid()
    read.finish()
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
    read = _Query(query)
    parsed = ProduceQuery(
        acks=read.choice("acks", Acks, Acks.ALL),
        timeout_ms=read.number("timeoutMs", PRODUCE_TIMEOUT_MS_DEFAULT, least=1, most=PRODUCE_TIMEOUT_MS_MAX),
        fence=read.fence(),
        is_committed=read.choice("committed", _Switch, _Switch.FALSE) is _Switch.TRUE,
    )
    read.finish()
    return parsed


def parse_spread(query: MultiMapping[str]) -> ProduceQuery:
    """As `parse_produce`, where the broker chooses the partitions: a leader epoch would name none."""
    read = _Query(query)
    parsed = ProduceQuery(
        acks=read.choice("acks", Acks, Acks.ALL),
        timeout_ms=read.number("timeoutMs", PRODUCE_TIMEOUT_MS_DEFAULT, least=1, most=PRODUCE_TIMEOUT_MS_MAX),
        fence=Fence(read.topic_uid()),
    )
    read.finish()
    return parsed


def parse_fetch(query: MultiMapping[str]) -> FetchQuery | WatchQuery:
    """Of one answer, or with `watch=true` of a stream of them."""
    read = _Query(query)
    if read.choice("watch", _Switch, _Switch.FALSE) is _Switch.TRUE:
        return _parse_watch(read)
    max_bytes = read.number("maxBytes", FETCH_BYTES_DEFAULT, least=1, most=FETCH_BYTES_MAX)
    parsed = FetchQuery(
        offset=read.offset(),
        max_bytes=max_bytes,
        max_records=read.number("maxRecords", FETCH_RECORDS_MAX, least=1, most=FETCH_RECORDS_MAX),
        min_bytes=min(max_bytes, read.number("minBytes", 1, least=0, most=FETCH_BYTES_MAX)),
        max_wait_ms=read.number("maxWaitMs", 0, least=0, most=FETCH_WAIT_MS_MAX),
        fence=read.fence(),
        value_format=read.choice("valueFormat", ValueFormat, ValueFormat.TEXT),
    )
    read.finish()
    return parsed


def _parse_watch(read: "_Query") -> WatchQuery:
    for name in ("minBytes", "maxWaitMs"):
        read.refuse(name, "not with watch=true, which waits for as long as the client does; leave it out")
    parsed = WatchQuery(
        offset=read.offset(),
        max_bytes=read.number("maxBytes", FETCH_BYTES_DEFAULT, least=1, most=FETCH_BYTES_MAX),
        max_records=read.number("maxRecords", 0, least=1, most=FETCH_RECORDS_MAX) or None,
        fence=read.fence(),
        value_format=read.choice("valueFormat", ValueFormat, ValueFormat.TEXT),
    )
    read.finish()
    return parsed


def parse_delete(query: MultiMapping[str]) -> DeleteQuery:
    read = _Query(query)
    parsed = DeleteQuery(_before(read.required("beforeOffset")), read.fence())
    read.finish()
    return parsed


def parse_offsets(query: MultiMapping[str]) -> OffsetsQuery:
    read = _Query(query)
    parsed = OffsetsQuery(read.position("timestamp"), read.fence())
    read.finish()
    return parsed


def parse_leave(query: MultiMapping[str]) -> bool:
    """Whether the member will be back."""
    read = _Query(query)
    away = read.choice("away", _Switch, _Switch.FALSE) is _Switch.TRUE
    read.finish()
    return away


def parse_group_type(query: MultiMapping[str]) -> GroupType:
    """What the group is to be, where this is its first use."""
    read = _Query(query)
    group_type = read.choice("type", GroupType, GroupType.CONSUMER)
    read.finish()
    return group_type


def parse_topics_asked(query: MultiMapping[str]) -> list[str]:
    """Names of topics, none or several."""
    names = query.getall("topic", [])
    _Query(MultiDict((name, value) for name, value in query.items() if name != "topic")).finish()
    return names


class _Query:
    """Takes parameters one by one; `finish` refuses those that nobody took."""

    def __init__(self, query: MultiMapping[str]) -> None:
        """Raises InvalidRequestError for a parameter that is given twice."""
        self._left = dict(query)
        self._known: list[str] = []
        if len(self._left) < len(query):
            name = next(name for name in query if len(query.getall(name)) > 1)
            raise InvalidRequestError(f"{name}: given {len(query.getall(name))} times; give it once", field=name)

    def number(self, name: str, default: int, *, least: int, most: int) -> int:
        text = self._take(name)
        return default if text is None else _whole_number(name, text, least=least, most=most)

    def choice(self, name: str, choices: type[_E], default: _E) -> _E:
        text = self._take(name)
        return default if text is None else _choice(name, text, choices)

    def position(self, name: str) -> int | Edge:
        """A number from 0, or one of the ends; `earliest` where nothing is said."""
        text = self._take(name)
        return Edge.EARLIEST if text is None else _position(name, text)

    def required(self, name: str) -> str:
        text = self._take(name)
        if text is None:
            raise InvalidRequestError(f"{name}: must be given", field=name)
        return text

    def fence(self) -> Fence:
        topic_uid, epoch = self.topic_uid(), self._take("leaderEpoch")
        if epoch is None:
            return Fence(topic_uid) if topic_uid is not None else _NO_FENCE
        return Fence(topic_uid, LeaderEpoch(_whole_number("leaderEpoch", epoch, least=0, most=_INT32_MAX)))

    def topic_uid(self) -> TopicUid | None:
        text = self._take("topicUid")
        return None if text is None else TopicUid(text)

    def offset(self) -> Offset | Edge:
        value = self.position("offset")
        return Offset(value) if isinstance(value, int) else value

    def refuse(self, name: str, why: str) -> None:
        if name in self._left:
            raise InvalidRequestError(f"{name}: {why}", field=name)

    def finish(self) -> None:
        if self._left:
            unknown, known = min(self._left), ", ".join(self._known) or "none"
            raise InvalidRequestError(
                f"{unknown}: this path takes no such query parameter; it takes {known}", field=unknown
            )

    def _take(self, name: str) -> str | None:
        self._known.append(name)
        return self._left.pop(name, None)


def _choice(name: str, text: str, choices: type[_E]) -> _E:
    try:
        return choices(text)
    except ValueError:
        raise InvalidRequestError(f"{name} {text!r}: must be one of {', '.join(choices)}", field=name) from None


def _position(name: str, text: str) -> int | Edge:
    if text in _EDGES:
        return Edge(text)
    if not _is_number(text) or int(text) > _INT64_MAX:
        raise InvalidRequestError(
            f"{name} {text!r}: must be a whole number from 0 to {_INT64_MAX}, earliest or latest", field=name
        )
    return int(text)


def _before(text: str) -> Offset | Edge:
    if text == Edge.LATEST:
        return Edge.LATEST
    if not _is_number(text) or int(text) > _INT64_MAX:
        raise InvalidRequestError(
            f"beforeOffset {text!r}: must be a whole number from 0 to {_INT64_MAX}, or latest", field="beforeOffset"
        )
    return Offset(int(text))


def _whole_number(name: str, text: str, *, least: int, most: int) -> int:
    if not _is_number(text) or not least <= int(text) <= most:
        raise InvalidRequestError(f"{name} {text!r}: must be a whole number from {least} to {most}", field=name)
    return int(text)


def _is_number(text: str) -> bool:
    # Not isdecimal() alone, which takes other scripts' digits; 20 digits hold every int64.
    return text.isascii() and text.isdecimal() and len(text) <= 20

"""The terms of a session's channel: what opens it, and what the broker says about it then. JSON, read strictly.

A field that is unknown, of another type or out of its range is refused by name, with the value and the rule, as in
queries; that costs the channel. A payload that is no JSON object at all costs the session.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self, TypeVar

from headrace.core.errors import BrokenSessionError, InvalidRequestError
from headrace.core.limits import (
    FETCH_BYTES_DEFAULT,
    FETCH_BYTES_MAX,
    PRODUCE_TIMEOUT_MS_DEFAULT,
    PRODUCE_TIMEOUT_MS_MAX,
    TOPIC_PARTITIONS_MAX,
)
from headrace.core.log.epochs import Fence
from headrace.core.types import Acks, LeaderEpoch, Offset, PartitionId, TopicName, TopicUid

Start = Offset | Literal["earliest", "latest"]
"""Where a fetch channel begins."""

_INT32_MAX = (1 << 31) - 1
_INT64_MAX = (1 << 63) - 1
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ProduceTerms:
    topic: TopicName
    partition: PartitionId
    acks: Acks = Acks.ALL
    timeout_ms: int = PRODUCE_TIMEOUT_MS_DEFAULT
    """Of each produce, from its append on."""
    fence: Fence = field(default_factory=Fence)

    @classmethod
    def parse(cls, payload: Iterable[memoryview]) -> Self:
        """Raises BrokenSessionError, InvalidRequestError."""
        read = _Fields(read_object(payload))
        return read.finished(
            cls(
                topic=read.topic(),
                partition=read.partition(),
                acks=read.acks(),
                timeout_ms=read.number("timeoutMs", PRODUCE_TIMEOUT_MS_DEFAULT, 1, PRODUCE_TIMEOUT_MS_MAX),
                fence=read.fence(),
            )
        )

    def to_json(self) -> bytes:
        return _json(
            {
                **_place(self.topic, self.partition, self.fence),
                "acks": self.acks.value,
                "timeoutMs": self.timeout_ms,
            }
        )


@dataclass(frozen=True, slots=True)
class FetchTerms:
    topic: TopicName
    partition: PartitionId
    offset: Start = "earliest"
    max_bytes: int = FETCH_BYTES_DEFAULT
    """Of batches in one frame; one batch is sent whatever its size."""
    credit: int = 0
    """Bytes of batches that may be sent before the first CREDIT."""
    fence: Fence = field(default_factory=Fence)

    @classmethod
    def parse(cls, payload: Iterable[memoryview]) -> Self:
        """Raises BrokenSessionError, InvalidRequestError."""
        read = _Fields(read_object(payload))
        return read.finished(
            cls(
                topic=read.topic(),
                partition=read.partition(),
                offset=read.offset(),
                max_bytes=read.number("maxBytes", FETCH_BYTES_DEFAULT, 1, FETCH_BYTES_MAX),
                credit=read.number("credit", 0, 0, _INT64_MAX),
                fence=read.fence(),
            )
        )

    def to_json(self) -> bytes:
        return _json(
            {
                **_place(self.topic, self.partition, self.fence),
                "offset": self.offset,
                "maxBytes": self.max_bytes,
                "credit": self.credit,
            }
        )


@dataclass(frozen=True, slots=True)
class Standing:
    """How a partition stands when a channel to it is opened."""

    topic_uid: TopicUid
    leader_epoch: LeaderEpoch
    log_start_offset: Offset
    high_watermark: Offset | None
    """None where a new leader does not know yet what is the latest."""
    max_message_bytes: int
    offset: Offset | None = None
    """Where a fetch channel begins; None for a produce channel."""

    @classmethod
    def parse(cls, payload: Iterable[memoryview]) -> Self:
        """Members that are not known are skipped: brokers may say more some day. Raises BrokenSessionError."""
        said = read_object(payload)
        try:
            return cls(
                topic_uid=TopicUid(said["topicUid"]),
                leader_epoch=LeaderEpoch(said["leaderEpoch"]),
                log_start_offset=Offset(said["logStartOffset"]),
                high_watermark=_known(said["highWatermark"]),
                max_message_bytes=said["maxMessageBytes"],
                offset=Offset(said["offset"]) if "offset" in said else None,
            )
        except KeyError as error:
            raise BrokenSessionError(f"OPENED has no {error.args[0]}: must be given") from None

    def to_json(self) -> bytes:
        return _json(
            {
                "topicUid": self.topic_uid,
                "leaderEpoch": self.leader_epoch,
                "logStartOffset": self.log_start_offset,
                "highWatermark": self.high_watermark,
                "maxMessageBytes": self.max_message_bytes,
                **({"offset": self.offset} if self.offset is not None else {}),
            }
        )


def _known(offset: Any) -> Offset | None:
    return None if offset is None else Offset(offset)


def read_object(payload: Iterable[memoryview]) -> dict[str, Any]:
    """Raises BrokenSessionError."""
    try:
        document = json.loads(b"".join(payload))
    except (ValueError, RecursionError) as error:
        raise BrokenSessionError(f"the payload is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise BrokenSessionError(f"the payload is the JSON of a {type(document).__name__}: must be an object")
    return document


class _Fields:
    """Takes members one by one; `finished` refuses those that nobody took."""

    def __init__(self, said: Mapping[str, Any]) -> None:
        self._left = dict(said)
        self._known: list[str] = []

    def topic(self) -> TopicName:
        return TopicName(self._name("namespace"), self._name("topic"))

    def partition(self) -> PartitionId:
        value = self._take("partition", None)
        return PartitionId(_whole_number("partition", value, 0, TOPIC_PARTITIONS_MAX - 1))

    def acks(self) -> Acks:
        value = self._take("acks", Acks.ALL.value)
        known = [each.value for each in Acks]
        if value not in known:
            raise InvalidRequestError(f"acks {value!r}: must be one of {', '.join(map(repr, known))}", field="acks")
        return Acks(value)

    def offset(self) -> Start:
        value = self._take("offset", "earliest")
        if value == "earliest" or value == "latest":
            return value  # type: ignore[no-any-return]  # it is one of the two
        if not _is_number(value, 0, _INT64_MAX):
            raise InvalidRequestError(
                f"offset {value!r}: must be a whole number from 0 to {_INT64_MAX}, 'earliest' or 'latest'",
                field="offset",
            )
        return Offset(value)

    def fence(self) -> Fence:
        uid, epoch = self._take("topicUid", None), self._take("leaderEpoch", None)
        if uid is not None and not isinstance(uid, str):
            raise InvalidRequestError(f"topicUid {uid!r}: must be a string", field="topicUid")
        if epoch is not None:
            epoch = LeaderEpoch(_whole_number("leaderEpoch", epoch, 0, _INT32_MAX))
        return Fence(TopicUid(uid) if uid is not None else None, epoch)

    def number(self, name: str, default: int, least: int, most: int) -> int:
        return _whole_number(name, self._take(name, default), least, most)

    def finished(self, terms: _T) -> _T:
        if self._left:
            name = min(self._left)
            raise InvalidRequestError(
                f"{name}: this frame takes no such member; it takes {', '.join(self._known)}", field=name
            )
        return terms

    def _name(self, field: str) -> str:
        value = self._take(field, None)
        if not isinstance(value, str):
            raise InvalidRequestError(f"{field} {value!r}: must be given, as a string", field=field)
        return value

    def _take(self, name: str, default: Any) -> Any:
        self._known.append(name)
        return self._left.pop(name, default)


def _whole_number(name: str, value: object, least: int, most: int) -> int:
    if not _is_number(value, least, most):
        raise InvalidRequestError(f"{name} {value!r}: must be a whole number from {least} to {most}", field=name)
    assert isinstance(value, int)
    return value


def _is_number(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _place(topic: TopicName, partition: PartitionId, fence: Fence) -> dict[str, object]:
    place: dict[str, object] = {"namespace": topic.namespace, "topic": topic.name, "partition": partition}
    if fence.topic_uid is not None:
        place["topicUid"] = fence.topic_uid
    if fence.leader_epoch is not None:
        place["leaderEpoch"] = fence.leader_epoch
    return place


def _json(document: Mapping[str, object]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()

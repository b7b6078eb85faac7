"""The terms of a session's channel: what opens it, and what the broker says about it then. JSON, read strictly.

A field that is unknown, of another type or out of its range is refused by name, with the value and the rule, as in
queries; that costs the channel. A payload that is no JSON object at all costs the session.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal, Self

from headrace.core.errors import BrokenSessionError
from headrace.core.fields import INT32_MAX, Fields
from headrace.core.frames.frame import read_object
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
"""The offset, or the end of the log, where a fetch channel begins."""

_ENDS: Final[tuple[Literal["earliest", "latest"], ...]] = ("earliest", "latest")
_NO_FENCE: Final = Fence()


@dataclass(frozen=True, slots=True)
class ProduceTerms:
    topic: TopicName
    partition: PartitionId
    acks: Acks = Acks.ALL
    timeout_ms: int = PRODUCE_TIMEOUT_MS_DEFAULT
    """The time limit of each produce, from its append on."""
    fence: Fence = field(default_factory=Fence)

    @classmethod
    def parse(cls, payload: Iterable[memoryview]) -> Self:
        """Parse the payload. Raises BrokenSessionError, InvalidRequestError."""
        read = Fields(read_object(payload))
        return read.finished(
            cls(
                topic=_topic(read),
                partition=_partition(read),
                acks=read.one_of("acks", Acks, Acks.ALL),
                timeout_ms=read.whole("timeoutMs", PRODUCE_TIMEOUT_MS_DEFAULT, least=1, most=PRODUCE_TIMEOUT_MS_MAX),
                fence=read_fence(read),
            )
        )

    def to_object(self) -> dict[str, object]:
        return {
            **_place(self.topic, self.partition, self.fence),
            "acks": self.acks.value,
            "timeoutMs": self.timeout_ms,
        }


@dataclass(frozen=True, slots=True)
class FetchTerms:
    topic: TopicName
    partition: PartitionId
    offset: Start = "earliest"
    max_bytes: int = FETCH_BYTES_DEFAULT
    """The bytes of batches in one frame; one batch is sent whatever its size."""
    credit: int = 0
    """The bytes of batches that may be sent before the first CREDIT."""
    fence: Fence = field(default_factory=Fence)

    @classmethod
    def parse(cls, payload: Iterable[memoryview]) -> Self:
        """Parse the payload. Raises BrokenSessionError, InvalidRequestError."""
        read = Fields(read_object(payload))
        return read.finished(
            cls(
                topic=_topic(read),
                partition=_partition(read),
                offset=_start(read),
                max_bytes=read.whole("maxBytes", FETCH_BYTES_DEFAULT, least=1, most=FETCH_BYTES_MAX),
                credit=read.whole("credit", 0),
                fence=read_fence(read),
            )
        )

    def to_object(self) -> dict[str, object]:
        return {
            **_place(self.topic, self.partition, self.fence),
            "offset": self.offset,
            "maxBytes": self.max_bytes,
            "credit": self.credit,
        }


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of a partition when a channel to it is opened."""

    topic_uid: TopicUid
    leader_epoch: LeaderEpoch
    log_start_offset: Offset
    high_watermark: Offset | None
    """The end of what may be read; None where a new leader does not know it yet."""
    max_message_bytes: int
    offset: Offset | None = None
    """The offset where a fetch channel begins; None for a produce channel."""

    @classmethod
    def parse(cls, payload: Iterable[memoryview]) -> Self:
        """Skip members that are not known: brokers may say more some day. Raises BrokenSessionError."""
        said = Fields(read_object(payload), BrokenSessionError)
        watermark, offset = said.optional_whole("highWatermark"), said.optional_whole("offset")
        return cls(
            topic_uid=TopicUid(said.text("topicUid")),
            leader_epoch=LeaderEpoch(said.whole("leaderEpoch")),
            log_start_offset=Offset(said.whole("logStartOffset")),
            high_watermark=Offset(watermark) if watermark is not None else None,
            max_message_bytes=said.whole("maxMessageBytes"),
            offset=Offset(offset) if offset is not None else None,
        )

    def to_object(self) -> dict[str, object]:
        return {
            "topicUid": self.topic_uid,
            "leaderEpoch": self.leader_epoch,
            "logStartOffset": self.log_start_offset,
            "highWatermark": self.high_watermark,
            "maxMessageBytes": self.max_message_bytes,
            **({"offset": self.offset} if self.offset is not None else {}),
        }


def read_fence(read: Fields) -> Fence:
    """Return what a request knows of its partition, from its fields `topicUid` and `leaderEpoch`."""
    uid, epoch = read.optional_text("topicUid"), read.optional_whole("leaderEpoch", most=INT32_MAX)
    if uid is None and epoch is None:
        return _NO_FENCE
    return Fence(TopicUid(uid) if uid is not None else None, LeaderEpoch(epoch) if epoch is not None else None)


def _topic(read: Fields) -> TopicName:
    wanted = "given, as a string"
    return TopicName(read.text("namespace", wanted=wanted), read.text("topic", wanted=wanted))


def _partition(read: Fields) -> PartitionId:
    return PartitionId(read.whole("partition", most=TOPIC_PARTITIONS_MAX - 1))


def _start(read: Fields) -> Start:
    value = read.whole_or("offset", _ENDS, "earliest")
    return Offset(value) if isinstance(value, int) else value


def _place(topic: TopicName, partition: PartitionId, fence: Fence) -> dict[str, object]:
    place: dict[str, object] = {"namespace": topic.namespace, "topic": topic.name, "partition": partition}
    if fence.topic_uid is not None:
        place["topicUid"] = fence.topic_uid
    if fence.leader_epoch is not None:
        place["leaderEpoch"] = fence.leader_epoch
    return place

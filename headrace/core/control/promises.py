"""What the operator asks brokers of a partition whose ISR nobody can renew, and what they answer: a promise each.

`POST /v1/brokers/{id}/promises` takes an object of `ask` and answers `Promises`. A broker answers for a partition once
it has put the epoch that is asked about on its disk, and has applied a state, no older than the one that the operator
saw, in which nobody leads: from then on it leads and votes in no earlier epoch, nor for any leader of this one,
whatever comes later, and its log stays as it says. For others it does not answer; it is asked again.
"""

from collections.abc import Mapping
from typing import Any

from headrace.core.control.held import Epochs
from headrace.core.errors import RemoteError
from headrace.core.limits import PROMISES_ASKED_MAX, TOPIC_PARTITIONS_MAX
from headrace.core.log.epochs import NO_EPOCH
from headrace.core.resources.partition_set import PartitionState
from headrace.core.resources.topic import Durability
from headrace.core.slotted import dataclass
from headrace.core.types import (
    BrokerId,
    Incarnation,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    PartitionId,
    PartitionKey,
    Seat,
    TopicUid,
)

_ASKED = {"topicUid", "partition", "leaderEpoch", "partitionEpoch"}
_INT32_MAX, _INT64_MAX = (1 << 31) - 1, (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class PromisedLog:
    last_epoch: LeaderEpoch
    """Of its last batch, -1 where it is empty."""
    log_end: Offset
    durable_end: Offset
    damage: str = ""
    """Why the log is not intact, as a clause; empty where it is: then a seat in the ISR is renewed."""

    def rank(self, durability: Durability) -> tuple[int, int]:
        """The greatest of all replicas' holds most of what was acknowledged."""
        return self.last_epoch, self.durable_end if durability is Durability.FSYNC else self.log_end


@dataclass(frozen=True, slots=True)
class Promises:
    seat: Seat
    logs: Mapping[PartitionKey, PromisedLog]

    def to_object(self) -> dict[str, Any]:
        return {
            "broker": self.seat.broker,
            "incarnation": self.seat.incarnation,
            "partitions": [
                {
                    "topicUid": key.uid,
                    "partition": key.partition,
                    "lastEpoch": log.last_epoch,
                    "logEndOffset": log.log_end,
                    "durableEndOffset": log.durable_end,
                    "renewable": not log.damage,
                    "damage": log.damage,
                }
                for key, log in sorted(self.logs.items())
            ],
        }

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> "Promises":
        """Raises RemoteError for what is no such answer."""
        try:
            broker, incarnation = (_whole(document, name, _INT64_MAX) for name in ("broker", "incarnation"))
            seat = Seat(BrokerId(broker), Incarnation(incarnation))
            return cls(seat, {_key(entry): _log(entry) for entry in document["partitions"]})
        except (KeyError, TypeError, ValueError) as error:
            raise RemoteError(f"the answer is no promise of a broker: {error!r}") from error


def ask(questions: Mapping[PartitionKey, Epochs]) -> dict[str, Any]:
    """The body of the request."""
    return {
        "partitions": [
            {
                "topicUid": key.uid,
                "partition": key.partition,
                "leaderEpoch": epochs.leader_epoch,
                "partitionEpoch": epochs.partition_epoch,
            }
            for key, epochs in sorted(questions.items())
        ]
    }


def parse_questions(document: Any) -> dict[PartitionKey, Epochs]:
    """Raises ValueError, with a sentence, for what `ask` does not make."""
    try:
        entries = document["partitions"]
        well_formed = isinstance(document, dict) and isinstance(entries, list) and len(document) == 1
        if not well_formed or any(set(entry) != _ASKED for entry in entries):
            raise TypeError("other fields")
        if len(entries) > PROMISES_ASKED_MAX:
            raise ValueError(f"{len(entries)} partitions, at most {PROMISES_ASKED_MAX} in one request")
        return {_key(entry): _epochs(entry) for entry in entries}
    except (KeyError, TypeError) as error:
        raise ValueError(
            "the body must be {partitions: [{topicUid, partition, leaderEpoch, partitionEpoch}, ...]}, and nothing else"
        ) from error


def may_promise(applied: PartitionState | None, asked: Epochs) -> bool:
    """Whether a broker that has applied this state, and nothing newer, may answer."""
    return (
        applied is not None
        and applied.leader is None
        and applied.leader_epoch >= asked.leader_epoch
        and applied.partition_epoch >= asked.partition_epoch
    )


def _key(entry: Mapping[str, Any]) -> PartitionKey:
    uid = entry["topicUid"]
    if not isinstance(uid, str) or not uid:
        raise TypeError("topicUid is no text")
    return PartitionKey(TopicUid(uid), PartitionId(_whole(entry, "partition", TOPIC_PARTITIONS_MAX - 1)))


def _epochs(entry: Mapping[str, Any]) -> Epochs:
    leader_epoch, partition_epoch = (_whole(entry, name, _INT32_MAX) for name in ("leaderEpoch", "partitionEpoch"))
    return Epochs(LeaderEpoch(leader_epoch), PartitionEpoch(partition_epoch))


def _log(entry: Mapping[str, Any]) -> PromisedLog:
    return PromisedLog(
        last_epoch=LeaderEpoch(_whole(entry, "lastEpoch", _INT32_MAX, least=NO_EPOCH)),
        log_end=Offset(_whole(entry, "logEndOffset", _INT64_MAX)),
        durable_end=Offset(_whole(entry, "durableEndOffset", _INT64_MAX)),
        damage=str(entry["damage"]),
    )


def _whole(entry: Mapping[str, Any], name: str, most: int, *, least: int = 0) -> int:
    """JSON knows one kind of number: 3.0 is a whole one."""
    number = entry[name]
    if isinstance(number, bool) or not isinstance(number, int | float) or number != number // 1:
        raise TypeError(f"{name} is not a whole number")
    if not least <= number <= most:
        raise TypeError(f"{name} is not between {least} and {most}")
    return int(number)

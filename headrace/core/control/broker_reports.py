"""The reports of brokers to the operator: the partitions that they have, the epochs that they know, and their promises.

`GET /v1/brokers/{id}/held` answers a `BrokerReport`; with `topicUid` of these topics alone. `cluster_recovery` and
`reclaiming` decide with it.

`POST /v1/brokers/{id}/promises` asks about partitions whose ISR no broker can renew, and answers `Promises`. A broker
answers for a partition once it has put the epoch that is asked about on its disk, and has applied a state, no older
than the one that the operator saw, which has no leader: from then on it leads and votes in no earlier epoch, nor for
any leader of this one, whatever comes later, and its log stays as reported. A partition that it leaves out is asked
about again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from headrace.core.errors import RemoteError
from headrace.core.limits import PROMISES_ASKED_MAX, TOPIC_PARTITIONS_MAX
from headrace.core.log.epochs import NO_EPOCH
from headrace.core.resources.partition_set import PartitionState
from headrace.core.resources.topic import Durability
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


class Epochs(NamedTuple):
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch


_NO_EPOCHS = Epochs(LeaderEpoch(0), PartitionEpoch(0))


@dataclass(frozen=True, slots=True)
class HeldLog:
    last_epoch: LeaderEpoch
    """The epoch of its last batch, -1 where it is empty."""
    log_end: Offset
    """The end of the log; where it is not open, as far as the headers of its batches show."""
    leads: bool = False
    damage: str = ""
    """The reason why the log is not intact, as a clause; empty where it is, or where that is not known."""
    trouble: str = ""
    """The reason why it cannot be opened, as a clause; then the numbers mean nothing."""
    seen_epoch: LeaderEpoch = NO_EPOCH
    """The greatest epoch that this broker has acted on: it never goes below it, whatever its log holds."""
    regressed: bool = False
    """True where the API server shows another state than this broker knows to have landed, under no greater epoch."""
    set_aside: bool = False
    """True where it is in `orphaned/`: closed, and no broker leads or votes with it until a PartitionSet names it
    again."""
    namespace: str = ""
    """The namespace of its topic; empty where that is not known."""
    applied_epoch: LeaderEpoch = NO_EPOCH
    """The epoch in which its replica takes part or leads, while it is open: the broker may know of later ones."""
    leads_late: bool = False
    """True where it leads in an epoch that others know to be over. The broker itself, which does not know it, does not
    report this."""

    @property
    def rank(self) -> tuple[int, int]:
        """Return the rank: the log with the greatest of all replicas holds every committed record (Raft's and Kafka's
        rule)."""
        return self.last_epoch, self.log_end


@dataclass(frozen=True, slots=True)
class BrokerReport:
    seat: Seat
    known: Mapping[PartitionKey, Epochs]
    """The latest epochs that this broker knows for each partition, also for those that it does not hold."""
    logs: Mapping[PartitionKey, HeldLog]

    def to_object(self) -> dict[str, Any]:
        keys = sorted({*self.known, *self.logs})
        return {
            "broker": self.seat.broker,
            "incarnation": self.seat.incarnation,
            "partitions": [self._partition(key) for key in keys],
        }

    def _partition(self, key: PartitionKey) -> dict[str, Any]:
        known, log = self.known.get(key), self.logs.get(key)
        return {
            "topicUid": key.uid,
            "partition": key.partition,
            "leaderEpoch": known.leader_epoch if known else 0,
            "partitionEpoch": known.partition_epoch if known else 0,
            "log": None if log is None else _log_object(log),
        }

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> "BrokerReport":
        """Parse a report. Raises RemoteError for what is no such report."""
        try:
            seat = Seat(BrokerId(document["broker"]), Incarnation(document["incarnation"]))
            partitions = [(_key(entry), entry) for entry in document["partitions"]]
            known = {key: _epochs(entry) for key, entry in partitions}
            logs = {key: _log(entry["log"], known[key]) for key, entry in partitions if entry["log"] is not None}
        except (KeyError, TypeError, ValueError) as error:
            raise RemoteError(f"the answer is no report of what a broker holds: {error!r}") from error
        return cls(seat, known, logs)


def known_epochs(
    remembered: Mapping[PartitionKey, LeaderEpoch], *heard: Mapping[PartitionKey, PartitionState]
) -> dict[PartitionKey, Epochs]:
    """Return the greatest that a broker knows of each of the two epochs: every reader accepts what is set above them.

    A set that was deleted and made anew begins again with low partition epochs, while replicas still go by the old one.
    """
    known = {key: Epochs(epoch, PartitionEpoch(0)) for key, epoch in remembered.items()}
    for key, state in (each for states in heard for each in states.items()):
        before = known.get(key, _NO_EPOCHS)
        leader_epoch = max(before.leader_epoch, state.leader_epoch)
        known[key] = Epochs(leader_epoch, max(before.partition_epoch, state.partition_epoch))
    return known


def _log_object(log: HeldLog) -> dict[str, Any]:
    return {
        "lastEpoch": log.last_epoch,
        "logEndOffset": log.log_end,
        "seenEpoch": log.seen_epoch,
        "regressed": log.regressed,
        "leads": log.leads,
        "damage": log.damage,
        "trouble": log.trouble,
        "setAside": log.set_aside,
        "namespace": log.namespace,
        "appliedEpoch": log.applied_epoch,
    }


def _key(entry: Mapping[str, Any]) -> PartitionKey:
    return PartitionKey(TopicUid(entry["topicUid"]), PartitionId(entry["partition"]))


def _epochs(entry: Mapping[str, Any]) -> Epochs:
    return Epochs(LeaderEpoch(entry["leaderEpoch"]), PartitionEpoch(entry["partitionEpoch"]))


def _log(entry: Mapping[str, Any], known: Epochs) -> HeldLog:
    return HeldLog(
        last_epoch=LeaderEpoch(entry["lastEpoch"]),
        log_end=Offset(entry["logEndOffset"]),
        leads=bool(entry["leads"]),
        damage=str(entry["damage"]),
        trouble=str(entry["trouble"]),
        seen_epoch=LeaderEpoch(entry.get("seenEpoch", NO_EPOCH)),
        regressed=bool(entry.get("regressed")),
        set_aside=bool(entry.get("setAside")),
        namespace=str(entry.get("namespace", "")),
        applied_epoch=LeaderEpoch(entry.get("appliedEpoch", known.leader_epoch)),
    )


_INT32_MAX, _INT64_MAX = (1 << 31) - 1, (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class PromisedLog:
    last_epoch: LeaderEpoch
    """The epoch of its last batch, -1 where it is empty."""
    log_end: Offset
    durable_end: Offset
    damage: str = ""
    """The reason why the log is not intact, as a clause; empty where it is: then a seat in the ISR is renewed."""

    def rank(self, durability: Durability) -> tuple[int, int]:
        """Return the rank: the log with the greatest of all replicas holds most of what was acknowledged."""
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
        """Parse an answer. Raises RemoteError for what is no such answer."""
        try:
            broker, incarnation = (_whole(document, name, _INT64_MAX) for name in ("broker", "incarnation"))
            seat = Seat(BrokerId(broker), Incarnation(incarnation))
            return cls(seat, {_asked_key(entry): _promised_log(entry) for entry in document["partitions"]})
        except (KeyError, TypeError, ValueError) as error:
            raise RemoteError(f"the answer is no promise of a broker: {error!r}") from error


def promises_request_object(questions: Mapping[PartitionKey, Epochs]) -> dict[str, Any]:
    """Return the body of the request."""
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


def parse_promises_request(document: Any) -> dict[PartitionKey, Epochs]:
    """Parse the body of the request. Raises ValueError, with a sentence, for what `promises_request_object` does not
    make."""
    try:
        entries = document["partitions"]
        well_formed = isinstance(document, dict) and isinstance(entries, list) and len(document) == 1
        if not well_formed or any(set(entry) != _ASKED for entry in entries):
            raise TypeError("other fields")
        if len(entries) > PROMISES_ASKED_MAX:
            raise ValueError(f"{len(entries)} partitions, at most {PROMISES_ASKED_MAX} in one request")
        return {_asked_key(entry): _asked_epochs(entry) for entry in entries}
    except (KeyError, TypeError) as error:
        raise ValueError(
            "the body must be {partitions: [{topicUid, partition, leaderEpoch, partitionEpoch}, ...]}, and nothing else"
        ) from error


def may_promise(applied: PartitionState | None, asked: Epochs) -> bool:
    """Return whether a broker that has applied this state, and nothing newer, may answer."""
    return (
        applied is not None
        and applied.leader is None
        and applied.leader_epoch >= asked.leader_epoch
        and applied.partition_epoch >= asked.partition_epoch
    )


def _asked_key(entry: Mapping[str, Any]) -> PartitionKey:
    uid = entry["topicUid"]
    if not isinstance(uid, str) or not uid:
        raise TypeError("topicUid is no text")
    return PartitionKey(TopicUid(uid), PartitionId(_whole(entry, "partition", TOPIC_PARTITIONS_MAX - 1)))


def _asked_epochs(entry: Mapping[str, Any]) -> Epochs:
    leader_epoch, partition_epoch = (_whole(entry, name, _INT32_MAX) for name in ("leaderEpoch", "partitionEpoch"))
    return Epochs(LeaderEpoch(leader_epoch), PartitionEpoch(partition_epoch))


def _promised_log(entry: Mapping[str, Any]) -> PromisedLog:
    return PromisedLog(
        last_epoch=LeaderEpoch(_whole(entry, "lastEpoch", _INT32_MAX, least=NO_EPOCH)),
        log_end=Offset(_whole(entry, "logEndOffset", _INT64_MAX)),
        durable_end=Offset(_whole(entry, "durableEndOffset", _INT64_MAX)),
        damage=str(entry["damage"]),
    )


def _whole(entry: Mapping[str, Any], name: str, most: int, *, least: int = 0) -> int:
    """Return a whole number: JSON knows one kind of number, and 3.0 is a whole one."""
    number = entry[name]
    if isinstance(number, bool) or not isinstance(number, int | float) or number != number // 1:
        raise TypeError(f"{name} is not a whole number")
    if not least <= number <= most:
        raise TypeError(f"{name} is not between {least} and {most}")
    return int(number)

"""PartitionSet: leaders and ISRs of at most 100 partitions of one Topic.

The operator and partition leaders write it, always by PUT with the `resourceVersion` that was read. Each change of a
partition raises its `partition_epoch`; a state whose `partition_epoch` is not above the one applied is ignored.

The annotation `headrace.io/adopted: <uid>/<partition>,<partition>...` names partitions that go on with the data of
another topic, of which brokers have directories under that uid. It is written with their first state and stays. A
`Census` adds up the states of all partitions, for people that ask for the state of a cluster.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from headrace.core.resources.metadata import API_VERSION, InvalidResourceError, Metadata, Object
from headrace.core.types import (
    BrokerId,
    Incarnation,
    LeaderEpoch,
    PartitionEpoch,
    PartitionId,
    PartitionKey,
    Seat,
    SetUid,
    TopicName,
    TopicUid,
)

PARTITIONS_PER_SET_MAX = 100
"""The number of partitions in one PartitionSet: it keeps the object far below the API server's 1.5 MiB."""


ADOPTED_ANNOTATION = "headrace.io/adopted"


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One entry of `spec.partitions`."""

    id: PartitionId
    leader: Seat | None
    """The leader; None: offline."""
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    replicas: tuple[BrokerId, ...]
    """The replicas; the first is the preferred leader."""
    isr: tuple[Seat, ...]
    adding: tuple[BrokerId, ...] = ()
    """The ones of `replicas` that have yet to catch up."""
    removing: tuple[BrokerId, ...] = ()
    """The ones of `replicas` that go as soon as the others can do without them."""

    @property
    def target(self) -> tuple[BrokerId, ...]:
        """Return the replicas once nothing moves any more, the preferred leader first."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)

    @classmethod
    def parse(cls, raw: Object) -> "PartitionState":
        return cls(
            id=PartitionId(raw["id"]),
            leader=_parse_seat(raw["leader"]) if raw.get("leader") else None,
            leader_epoch=LeaderEpoch(raw["leaderEpoch"]),
            partition_epoch=PartitionEpoch(raw["partitionEpoch"]),
            replicas=tuple(BrokerId(b) for b in raw["replicas"]),
            isr=tuple(_parse_seat(s) for s in raw["isr"]),
            adding=tuple(BrokerId(b) for b in raw.get("adding") or ()),
            removing=tuple(BrokerId(b) for b in raw.get("removing") or ()),
        )

    def to_object(self) -> dict[str, Any]:
        raw: dict[str, Any] = {
            "id": self.id,
            "leaderEpoch": self.leader_epoch,
            "partitionEpoch": self.partition_epoch,
            "replicas": list(self.replicas),
            "isr": [_seat_object(s) for s in self.isr],
        }
        if self.leader is not None:
            raw["leader"] = _seat_object(self.leader)
        if self.adding:
            raw["adding"] = list(self.adding)
        if self.removing:
            raw["removing"] = list(self.removing)
        return raw


@dataclass(frozen=True, slots=True)
class PartitionSet:
    metadata: Metadata
    topic: str
    topic_uid: TopicUid
    partitions: tuple[PartitionState, ...]
    deleting: bool = False
    """True once the operator has seen that the Topic is being deleted: brokers may delete the data."""

    @property
    def uid(self) -> SetUid:
        return SetUid(self.metadata.uid)

    @property
    def topic_name(self) -> TopicName:
        return TopicName(self.metadata.namespace, self.topic)

    def key(self, partition: PartitionId) -> PartitionKey:
        return PartitionKey(self.topic_uid, partition)

    @property
    def adopted_uid(self) -> TopicUid | None:
        """Return the uid whose data its adopted partitions go on with; None where there are none."""
        uid = self.metadata.annotations.get(ADOPTED_ANNOTATION, "").rpartition("/")[0]
        return TopicUid(uid) if uid else None

    @property
    def adopted(self) -> dict[PartitionId, PartitionKey]:
        """Return the adopted partitions, and what they were before."""
        uid, _, listed = self.metadata.annotations.get(ADOPTED_ANNOTATION, "").rpartition("/")
        ids = [PartitionId(int(number)) for number in listed.split(",") if number.isascii() and number.isdecimal()]
        return {number: PartitionKey(TopicUid(uid), number) for number in ids} if uid else {}

    def adopting(self, uid: TopicUid, partitions: Iterable[PartitionId]) -> "PartitionSet":
        """Return the same set, in which these partitions go on with the data of topic `uid` as well."""
        listed = ",".join(str(number) for number in sorted({*self.adopted, *partitions}))
        annotations = {**self.metadata.annotations, ADOPTED_ANNOTATION: f"{uid}/{listed}"}
        return replace(self, metadata=replace(self.metadata, annotations=annotations))

    def with_partitions(self, *changed: PartitionState) -> "PartitionSet":
        """Return the same set with these partitions in place of those of the same id."""
        by_id = {state.id: state for state in changed}
        return replace(self, partitions=tuple(by_id.get(p.id, p) for p in self.partitions))

    @classmethod
    def parse(cls, obj: Object) -> "PartitionSet":
        """Parse an object. Raises InvalidResourceError where it is not a PartitionSet."""
        try:
            spec = obj["spec"]
            return cls(
                metadata=Metadata.parse(obj),
                topic=spec["topic"],
                topic_uid=TopicUid(spec["topicUid"]),
                partitions=tuple(PartitionState.parse(p) for p in spec["partitions"]),
                deleting=bool(spec.get("deleting")),
            )
        except (KeyError, TypeError) as error:
            raise InvalidResourceError(f"not a PartitionSet: {error!r}") from error

    def to_object(self) -> dict[str, Any]:
        spec: dict[str, Any] = {
            "topic": self.topic,
            "topicUid": self.topic_uid,
            "partitions": [p.to_object() for p in self.partitions],
        }
        if self.deleting:
            spec["deleting"] = True
        return {
            "apiVersion": API_VERSION,
            "kind": "PartitionSet",
            "metadata": self.metadata.to_object(),
            "spec": spec,
        }


def set_name(topic: str, partition: PartitionId) -> str:
    """Return the name of the PartitionSet that holds `partition`: partitions 0 to 99 of `flights` stand in
    `flights-0`."""
    return f"{topic}-{partition // PARTITIONS_PER_SET_MAX}"


def _parse_seat(raw: Object) -> Seat:
    return Seat(BrokerId(raw["broker"]), Incarnation(raw["incarnation"]))


def _seat_object(seat: Seat) -> dict[str, int]:
    return {"broker": seat.broker, "incarnation": seat.incarnation}


@dataclass(frozen=True, slots=True)
class Census:
    partitions: int
    offline: int
    """Partitions without a leader that lives."""
    under_replicated: int
    """Partitions with a replica that is not in sync, or does not live."""
    leaders: Mapping[BrokerId, int]
    """Partitions that each broker leads; a broker that has none may be missing."""
    replicas: Mapping[BrokerId, int]


def census(states: Iterable[PartitionState], live: Collection[Seat]) -> Census:
    """Return the census; `live` are brokers in their present life, those that drain included."""
    known = list(states)
    return Census(
        partitions=len(known),
        offline=sum(state.leader not in live for state in known),
        under_replicated=sum(len([seat for seat in state.isr if seat in live]) < len(state.target) for state in known),
        leaders=Counter(state.leader.broker for state in known if state.leader is not None and state.leader in live),
        replicas=Counter(broker for state in known for broker in state.replicas),
    )

"""The bytes of the offsets topic's records: keys and values as JSON, versioned. What they mean stands in `entries`.

A key is an array without spaces, `[kind, 1, namespace, group, ...]`, the same bytes for the same key, as compaction
asks for; a value is an object with its own `version`; a tombstone is null. Whatever this version of Headrace does not
know is refused: a broker that skipped it would coordinate a group of which it knows only half.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, assert_never

from headrace.core.coordinating import UnreadableRecordError
from headrace.core.groups.assigning import Partitions
from headrace.core.groups.entries import (
    CurrentKey,
    CurrentRecord,
    CurrentValue,
    Entry,
    GroupKey,
    GroupRecord,
    GroupValue,
    Inputs,
    MemberKey,
    MemberRecord,
    MemberValue,
    OffsetKey,
    OffsetRecord,
    OffsetValue,
    TargetKey,
    TargetRecord,
)
from headrace.core.groups.identity import GroupEpoch, GroupName, GroupType, MemberId, TopicShape
from headrace.core.groups.settings import Assignor, Retention
from headrace.core.groups.subscriptions import Subscription
from headrace.core.types import LeaderEpoch, Offset, PartitionId, PartitionKey, TopicUid

_VERSION = 1
_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
"""Kept: to make one takes as long as to encode a key. Text as it came: escaped it could be three times as long."""


def encode(entry: Entry) -> tuple[bytes, bytes | None]:
    """Key and value of the record."""
    match entry:
        case GroupRecord(key, value):
            return _key("group", key.group), None if value is None else _json(_group_object(value))
        case MemberRecord(key, value):
            return _key("member", key.group, key.member), None if value is None else _json(_member_object(value))
        case TargetRecord(key, value):
            body = None if value is None else _json({"partitions": _by_uid(value)})
            return _key("target", key.group, key.member), body
        case CurrentRecord(key, value):
            return _key("current", key.group, key.member), None if value is None else _json(_current_object(value))
        case OffsetRecord(key, value):
            body = None if value is None else _json(_offset_object(value))
            return _key("offset", key.group, key.partition.uid, key.partition.partition), body
        case _:
            assert_never(entry)


def decode(key: bytes, value: bytes | None) -> Entry:
    """Raises UnreadableRecordError."""
    try:
        kind, version, namespace, name, *rest = json.loads(key)
        read = _READERS.get(kind) if version == _VERSION else None
        body = None if value is None else json.loads(value)
        if read is None or (body is not None and body.pop("version") != _VERSION):
            raise UnreadableRecordError(
                f"the record {key[:200]!r} of the offsets topic is of a kind or version that this broker does not know:"
                " it was written by a newer one; update this broker before it coordinates groups"
            )
        return read(GroupName(namespace, name), rest, body)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UnreadableRecordError(f"the record {key[:200]!r} of the offsets topic is damaged: {error!r}") from error


def _key(kind: str, group: GroupName, *rest: str | int) -> bytes:
    return _compact([kind, _VERSION, *group, *rest])


def _json(body: dict[str, Any]) -> bytes:
    return _compact({"version": _VERSION, **body})


def _compact(value: object) -> bytes:
    # JSON may have half of a character, `"\\ud800"`: it is read again as it is written.
    return _ENCODER.encode(value).encode(errors="surrogatepass")


def _group_object(value: GroupValue) -> dict[str, Any]:
    retention = {} if value.retention is None else {"retentionMs": value.retention.ms}
    kind = {} if value.type is GroupType.CONSUMER else {"type": value.type.value}
    return {
        "epoch": value.epoch,
        "assignmentEpoch": value.assignment_epoch,
        "topics": {name: [*shape] for name, shape in sorted(value.inputs.topics.items())},
        "assignor": value.inputs.assignor.value,
        "paused": value.inputs.paused,
        "emptySinceMs": value.empty_since_ms,
        "lastReset": value.last_reset,
        **retention,
        **kind,
    }


def _read_group(group: GroupName, _: list[Any], raw: Any) -> GroupRecord:
    if raw is None:
        return GroupRecord(GroupKey(group), None)
    topics = {name: TopicShape(TopicUid(uid), partitions) for name, (uid, partitions) in raw["topics"].items()}
    inputs = Inputs(topics, Assignor(raw["assignor"]), raw["paused"])
    # Records of before it was written have none.
    retention = Retention(raw["retentionMs"]) if "retentionMs" in raw else None
    value = GroupValue(
        raw["epoch"],
        raw["assignmentEpoch"],
        inputs,
        raw["emptySinceMs"],
        raw["lastReset"],
        retention,
        GroupType(raw.get("type", GroupType.CONSUMER)),
    )
    return GroupRecord(GroupKey(group), value)


def _member_object(value: MemberValue) -> dict[str, Any]:
    return {
        "topics": [*value.subscription.names],
        "pattern": value.subscription.pattern,
        "instance": value.instance,
        "clientAddress": value.client_address,
        "rebalanceTimeoutMs": value.rebalance_timeout_ms,
    }


def _read_member(group: GroupName, rest: list[Any], raw: Any) -> MemberRecord:
    key = MemberKey(group, MemberId(*rest))
    if raw is None:
        return MemberRecord(key, None)
    subscription = Subscription(tuple(raw["topics"]), raw["pattern"])
    value = MemberValue(subscription, raw["instance"], raw["clientAddress"], raw["rebalanceTimeoutMs"])
    return MemberRecord(key, value)


def _read_target(group: GroupName, rest: list[Any], raw: Any) -> TargetRecord:
    key = TargetKey(group, MemberId(*rest))
    return TargetRecord(key, None if raw is None else frozenset(_partitions(raw["partitions"])))


def _current_object(value: CurrentValue) -> dict[str, Any]:
    return {
        "epoch": value.epoch,
        "revision": value.revision,
        "assigned": _by_uid_and_epoch(value.assigned),
        "revoking": _by_uid_and_epoch(value.revoking),
        "away": value.away,
        "joined": [*value.joined],
    }


def _read_current(group: GroupName, rest: list[Any], raw: Any) -> CurrentRecord:
    key = CurrentKey(group, MemberId(*rest))
    if raw is None:
        return CurrentRecord(key, None)
    assigned, revoking = _with_epochs(raw["assigned"]), _with_epochs(raw["revoking"])
    epoch, revision = raw["joined"]
    value = CurrentValue(raw["epoch"], raw["revision"], assigned, revoking, raw["away"], (epoch, revision))
    return CurrentRecord(key, value)


def _offset_object(value: OffsetValue) -> dict[str, Any]:
    return {
        "offset": value.offset,
        "leaderEpoch": value.leader_epoch,
        "metadata": value.metadata,
        "committedMs": value.committed_ms,
    }


def _read_offset(group: GroupName, rest: list[Any], raw: Any) -> OffsetRecord:
    uid, partition = rest
    key = OffsetKey(group, PartitionKey(TopicUid(uid), PartitionId(partition)))
    if raw is None:
        return OffsetRecord(key, None)
    value = OffsetValue(Offset(raw["offset"]), LeaderEpoch(raw["leaderEpoch"]), raw["metadata"], raw["committedMs"])
    return OffsetRecord(key, value)


def _by_uid(partitions: Partitions) -> dict[str, list[int]]:
    by_uid: dict[str, list[int]] = {}
    for uid, partition in sorted(partitions):
        by_uid.setdefault(uid, []).append(partition)
    return by_uid


def _partitions(by_uid: dict[str, list[int]]) -> list[PartitionKey]:
    return [PartitionKey(TopicUid(uid), PartitionId(n)) for uid, numbers in by_uid.items() for n in numbers]


def _by_uid_and_epoch(partitions: Mapping[PartitionKey, GroupEpoch]) -> dict[str, list[list[int]]]:
    by_uid: dict[str, list[list[int]]] = {}
    for uid, partition in sorted(partitions):
        key = PartitionKey(uid, partition)
        by_uid.setdefault(uid, []).append([partition, partitions[key]])
    return by_uid


def _with_epochs(by_uid: dict[str, list[list[int]]]) -> dict[PartitionKey, GroupEpoch]:
    return {
        PartitionKey(TopicUid(uid), PartitionId(partition)): GroupEpoch(epoch)
        for uid, pairs in by_uid.items()
        for partition, epoch in pairs
    }


_READERS: dict[str, Callable[[GroupName, list[Any], Any], Entry]] = {
    "group": _read_group,
    "member": _read_member,
    "target": _read_target,
    "current": _read_current,
    "offset": _read_offset,
}

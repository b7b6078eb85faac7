"""The bytes of the offsets topic's records: keys and values as JSON, versioned. `entries` has their meaning.

A key is an array without spaces, `[kind, 1, namespace, group, ...]`, the same bytes for the same key, as compaction
asks for; a value is an object with its own `version`; a tombstone is null. A record that this version of Headrace does
not know is refused: a broker that skipped it would coordinate a group of which it knows only half.

`records_bytes_max` computes how many bytes records take at most, without making them: text as it is, numbers at their
longest. So a decision that is too large is refused before it is made, and a large one leaves the event loop. Pure;
called by `group_machine`, by `group` for offsets, and by the broker that reads and writes the log.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from json.encoder import encode_basestring
from typing import Any, assert_never

from headrace.core.coordinator import UnreadableRecordError
from headrace.core.groups.assignment import Partitions, Subscription
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
from headrace.core.groups.identity import (
    Assignor,
    GroupEpoch,
    GroupName,
    GroupType,
    MemberId,
    OffsetRetention,
    TopicShape,
)
from headrace.core.types import LeaderEpoch, Offset, PartitionId, PartitionKey, TopicUid

_NUMBER = 20
_KEY = 40
"""The bytes of kind and version, a number, and what stands between."""
_OBJECT = 240
"""The bytes of names and numbers of the largest kind of value."""
_OFFSET = 70 + 3 * _NUMBER
_BETWEEN = 6
"""The bytes of marks between one text or number and the next."""
_VERSION = 1
_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
"""The encoder, kept because making one takes as long as encoding a key. Text stays as it came: escaped it could be
three times as long."""


def records_bytes_max(entries: Iterable[Entry]) -> int:
    return sum(map(_entry_bytes, entries))


def offset_bytes(group: GroupName, partition: PartitionKey, value: OffsetValue | None) -> int:
    """Return the bytes of one `OffsetRecord`."""
    key = _KEY + _texts(group) + _texts((partition.uid,))
    return key if value is None else key + _OFFSET + _texts((value.metadata,))


def _entry_bytes(entry: Entry) -> int:
    match entry:
        case OffsetRecord(key, value):
            return offset_bytes(key.group, key.partition, value)
        case GroupRecord(key, value):
            return _KEY + _texts(key.group) + (0 if value is None else _group_bytes(value))
        case MemberRecord(key, value):
            return _KEY + _texts((*key.group, key.member)) + (0 if value is None else _member_bytes(value))
        case TargetRecord(key, value):
            body = 0 if value is None else _OBJECT + _partitions_bytes(value, 1)
            return _KEY + _texts((*key.group, key.member)) + body
        case CurrentRecord(key, value):
            return _KEY + _texts((*key.group, key.member)) + (0 if value is None else _current_bytes(value))
        case _:
            assert_never(entry)


def _group_bytes(value: GroupValue) -> int:
    topics = value.inputs.topics
    named = _texts(topics) + _texts(shape.uid for shape in topics.values()) + _NUMBER * len(topics)
    return _OBJECT + named + _texts((value.last_reset,))


def _member_bytes(value: MemberValue) -> int:
    said = value.subscription
    return _OBJECT + _texts((*said.names, said.pattern, value.instance, value.client_address))


def _current_bytes(value: CurrentValue) -> int:
    return _OBJECT + _partitions_bytes(value.assigned, 2) + _partitions_bytes(value.revoking, 2)


def _partitions_bytes(partitions: Collection[PartitionKey], numbers: int) -> int:
    """Return the bytes of partitions listed by topic, with so many numbers for each."""
    return _texts({uid for uid, _ in partitions}) + (numbers * _NUMBER + _BETWEEN) * len(partitions)


def _texts(texts: Iterable[str]) -> int:
    return sum(len(encode_basestring(text).encode(errors="surrogatepass")) + _BETWEEN for text in texts)


def encode(entry: Entry) -> tuple[bytes, bytes | None]:
    """Return key and value of the record."""
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
    """Decode a record. Raises UnreadableRecordError."""
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
    # Records from before it was written have none.
    retention = OffsetRetention(raw["retentionMs"]) if "retentionMs" in raw else None
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

"""How many bytes the records of the offsets topic take at most, without making them: text as it is, numbers at their
longest. So that what is too large is refused before it is decided, and what is large leaves the event loop.

Pure. Called by `coordinator` for each decision, and by `offsets`.
"""

from collections.abc import Collection, Iterable
from json.encoder import encode_basestring
from typing import assert_never

from headrace.core.groups.entries import (
    CurrentRecord,
    CurrentValue,
    Entry,
    GroupRecord,
    GroupValue,
    MemberRecord,
    MemberValue,
    OffsetRecord,
    OffsetValue,
    TargetRecord,
)
from headrace.core.groups.identity import GroupName
from headrace.core.types import PartitionKey

_NUMBER = 20
_KEY = 40
"""Kind and version, a number, and what stands between."""
_OBJECT = 240
"""Names and numbers of the largest kind of value."""
_OFFSET = 70 + 3 * _NUMBER
_BETWEEN = 6
"""Marks between one text or number and the next."""


def bytes_of(entries: Iterable[Entry]) -> int:
    return sum(map(_entry_bytes, entries))


def offset_bytes(group: GroupName, partition: PartitionKey, value: OffsetValue | None) -> int:
    """Of one `OffsetRecord`."""
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
            body = 0 if value is None else _OBJECT + _partitions(value, 1)
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
    return _OBJECT + _partitions(value.assigned, 2) + _partitions(value.revoking, 2)


def _partitions(partitions: Collection[PartitionKey], numbers: int) -> int:
    """Listed by topic, with so many numbers for each."""
    return _texts({uid for uid, _ in partitions}) + (numbers * _NUMBER + _BETWEEN) * len(partitions)


def _texts(texts: Iterable[str]) -> int:
    return sum(len(encode_basestring(text).encode(errors="surrogatepass")) + _BETWEEN for text in texts)

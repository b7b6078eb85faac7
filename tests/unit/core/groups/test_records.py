"""What is written to the offsets topic is read again, the same; and what is not known is refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.coordinator import UnreadableRecordError
from headrace.core.groups.assignment import Subscription
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
from headrace.core.groups.records import decode, encode, records_bytes_max
from headrace.core.types import LeaderEpoch, Offset, PartitionId, PartitionKey, TopicUid
from tests.support.group_world import GROUP, member, part, parts, shape

texts = st.text(st.characters(), max_size=5)
"""Halves of characters among them, which JSON may have."""
counts = st.integers(0, (1 << 63) - 1)
epochs = counts.map(GroupEpoch)
groups = st.builds(GroupName, texts, texts)
ids = texts.map(MemberId)
uids = texts.map(TopicUid)
partitions = st.builds(PartitionKey, uids, st.integers(0, 1023).map(PartitionId))
with_epochs = st.dictionaries(partitions, epochs, max_size=4)
inputs = st.builds(
    Inputs,
    st.dictionaries(texts, st.builds(TopicShape, uids, counts), max_size=3),
    st.sampled_from(Assignor),
    st.booleans(),
)
group_values = st.builds(
    GroupValue,
    epochs,
    epochs,
    inputs,
    counts,
    texts,
    st.none() | st.builds(OffsetRetention, st.none() | counts),
    st.sampled_from(GroupType),
)
subscriptions = st.builds(Subscription, st.lists(texts).map(tuple), texts)
current_values = st.builds(
    CurrentValue, epochs, counts, with_epochs, with_epochs, st.booleans(), st.tuples(epochs, counts)
)
offset_values = st.builds(OffsetValue, counts.map(Offset), counts.map(LeaderEpoch), texts, counts)
entries: st.SearchStrategy[Entry] = st.one_of(
    st.builds(GroupRecord, st.builds(GroupKey, groups), st.none() | group_values),
    st.builds(
        MemberRecord,
        st.builds(MemberKey, groups, ids),
        st.none() | st.builds(MemberValue, subscriptions, texts, texts, counts),
    ),
    st.builds(TargetRecord, st.builds(TargetKey, groups, ids), st.none() | st.frozensets(partitions, max_size=5)),
    st.builds(CurrentRecord, st.builds(CurrentKey, groups, ids), st.none() | current_values),
    st.builds(OffsetRecord, st.builds(OffsetKey, groups, partitions), st.none() | offset_values),
)


@given(entries)
def test_should_be_read_as_it_was_written(entry: Entry) -> None:
    read = decode(*encode(entry))
    assert read == entry
    assert type(read) is type(entry)


@given(st.lists(entries, max_size=3))
def test_should_know_their_size_without_making_them(some: list[Entry]) -> None:
    sizes = [sum(map(len, (key, value or b""))) for key, value in map(encode, some)]
    assert sum(sizes) <= records_bytes_max(some)


def test_should_not_think_large_what_is_small() -> None:
    """Whoever commits with metadata is refused by this estimate."""
    for text in ("x", "\u00e9", '"', "\u2028"):
        noted = OffsetRecord(
            OffsetKey(GROUP, part("flights", 1023)), OffsetValue(Offset(1 << 40), metadata=text * 1000)
        )
        key, value = encode(noted)
        assert value is not None
        assert records_bytes_max([noted]) <= len(key) + len(value) + 150


_VALUES: list[tuple[Entry, object, object]] = [
    (
        GroupRecord(
            GroupKey(GROUP),
            GroupValue(GroupEpoch(7), GroupEpoch(6), Inputs({"flights": shape("flights", 6)}), 12, "replay-1"),
        ),
        ["group", 1, "default", "billing"],
        {
            "version": 1,
            "epoch": 7,
            "assignmentEpoch": 6,
            "topics": {"flights": ["uid-flights", 6]},
            "assignor": "Uniform",
            "paused": False,
            "emptySinceMs": 12,
            "lastReset": "replay-1",
        },
    ),
    (
        GroupRecord(GroupKey(GROUP), GroupValue(retention=OffsetRetention(86_400_000))),
        ["group", 1, "default", "billing"],
        {
            "version": 1,
            "epoch": 0,
            "assignmentEpoch": 0,
            "topics": {},
            "assignor": "Uniform",
            "paused": False,
            "emptySinceMs": 0,
            "lastReset": "",
            "retentionMs": 86_400_000,
        },
    ),
    (
        GroupRecord(GroupKey(GROUP), GroupValue(empty_since_ms=12, type=GroupType.SPARK)),
        ["group", 1, "default", "billing"],
        {
            "version": 1,
            "epoch": 0,
            "assignmentEpoch": 0,
            "topics": {},
            "assignor": "Uniform",
            "paused": False,
            "emptySinceMs": 12,
            "lastReset": "",
            "type": "Spark",
        },
    ),
    (
        MemberRecord(
            MemberKey(GROUP, member("m1")), MemberValue(Subscription(("flights",), "x.*"), "billing-0", "::1", 60_000)
        ),
        ["member", 1, "default", "billing", "m1"],
        {
            "version": 1,
            "topics": ["flights"],
            "pattern": "x.*",
            "instance": "billing-0",
            "clientAddress": "::1",
            "rebalanceTimeoutMs": 60000,
        },
    ),
    (
        TargetRecord(TargetKey(GROUP, member("m1")), parts("flights", 2, 0)),
        ["target", 1, "default", "billing", "m1"],
        {"version": 1, "partitions": {"uid-flights": [0, 2]}},
    ),
    (
        CurrentRecord(
            CurrentKey(GROUP, member("m1")),
            CurrentValue(
                GroupEpoch(7),
                3,
                {part("flights", 0): GroupEpoch(5)},
                {part("flights", 1): GroupEpoch(6)},
                joined=(GroupEpoch(5), 0),
            ),
        ),
        ["current", 1, "default", "billing", "m1"],
        {
            "version": 1,
            "epoch": 7,
            "revision": 3,
            "assigned": {"uid-flights": [[0, 5]]},
            "revoking": {"uid-flights": [[1, 6]]},
            "away": False,
            "joined": [5, 0],
        },
    ),
    (
        OffsetRecord(OffsetKey(GROUP, part("flights", 3)), OffsetValue(Offset(812), LeaderEpoch(4), "note", 99)),
        ["offset", 1, "default", "billing", "uid-flights", 3],
        {"version": 1, "offset": 812, "leaderEpoch": 4, "metadata": "note", "committedMs": 99},
    ),
]


@pytest.mark.parametrize(("entry", "key", "value"), _VALUES)
def test_should_have_the_bytes_that_the_decision_record_gives(entry: Entry, key: Any, value: Any) -> None:
    written = encode(entry)
    assert written == (
        json.dumps(key, separators=(",", ":")).encode(),
        json.dumps(value, separators=(",", ":")).encode(),
    )


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        (b'["lease",1,"a","b"]', b'{"version":1}', "newer"),
        (b'["group",2,"a","b"]', b'{"version":1}', "newer"),
        (b'["group",1,"a","b"]', b'{"version":2}', "newer"),
        (b'["group",2,"a","b"]', None, "newer"),
        (b'["group",1,"a"]', None, "damaged"),
        (b'["group",1,"a","b"]', b'{"version":1}', "damaged"),
        (b'["member",1,"a","b"]', None, "damaged"),
        (b'["offset",1,"a","b","uid"]', None, "damaged"),
        (b'["group",1,"a","b"]', b"[]", "damaged"),
        (b"{", None, "damaged"),
        (b"\xff", b"1", "damaged"),
    ],
)
def test_should_refuse_what_it_does_not_know(key: bytes, value: bytes | None, said: str) -> None:
    with pytest.raises(UnreadableRecordError, match=said):
        decode(key, value)

"""What is committed is what its user is done with, of partitions that are held, and of no earlier time."""

from typing import Any

import pytest

from headrace.client.consumer.cursor import Cursor, Handed
from headrace.client.groups.assigned_partitions import Share, Shares
from headrace.client.record import Record, TopicPartition
from headrace.core.errors import FencedMemberError, LocalError
from headrace.core.groups.entries import OffsetValue
from headrace.core.limits import OFFSETS_PER_COMMIT_MAX
from headrace.core.types import Offset, PartitionId, PartitionKey, TopicUid

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)


def key(partition: TopicPartition) -> PartitionKey:
    return PartitionKey(TopicUid("uid-flights"), PartitionId(partition.partition))


def share(partition: TopicPartition, position: int, committed: int | None) -> Share:
    return Share(key(partition), Cursor(partition, position, position), committed)


def held(*shares: Share) -> Shares:
    made = Shares()
    made.take_up(shares)
    return made


def test_should_commit_what_was_passed_and_is_not_known() -> None:
    shares, handed = held(share(P0, 5, 5), share(P1, 7, None)), Handed()
    commit = shares.passed(handed)
    assert commit.values() == {key(P1): OffsetValue(Offset(7))}
    commit.written()
    assert shares.passed(handed).offsets == ()
    shares.held[P0].cursor.position = 9
    assert shares.passed(handed).offsets == ()
    handed.last = Record("flights", 0, 7, 0, None, b"", ())
    assert shares.passed(handed).values() == {key(P0): OffsetValue(Offset(7))}
    assert shares.passed(handed, among=[P1, TopicPartition("trains", 0)]).offsets == ()


def test_should_commit_no_more_than_its_user_says_where_he_hands_records_on() -> None:
    shares, handed = held(share(P0, 9, 5), share(P1, 7, None)), Handed()
    undone: dict[TopicPartition, int] = {P0: 6}
    shares.first_undone = undone.get
    assert shares.passed(handed).values() == {key(P0): OffsetValue(Offset(6)), key(P1): OffsetValue(Offset(7))}
    undone[P0] = 3  # Of an earlier share, before it went to another member and came back.
    assert shares.passed(handed, among=[P0]).offsets == ()
    undone.clear()
    assert shares.passed(handed, among=[P0]).values() == {key(P0): OffsetValue(Offset(9))}


def in_hand(offset: int) -> Handed:
    return Handed(last=Record("flights", 0, offset, 0, None, b"", ()))


@pytest.mark.parametrize("offsets", [None, {P0: 8}])
def test_should_commit_what_is_in_hand_where_its_user_says_so(offsets: dict[TopicPartition, int] | None) -> None:
    shares, handed = held(share(P0, 5, 5)), in_hand(7)
    shares.held[P0].cursor.position = 9
    commit = shares.handed_out(handed, "half") if offsets is None else shares.named(offsets, handed, "half")
    assert commit.values() == {key(P0): OffsetValue(Offset(8), metadata="half")}
    # It may have landed before its user was cancelled.
    assert shares.passed(handed).values() == {key(P0): OffsetValue(Offset(8))}
    commit.written()
    assert shares.passed(handed).offsets == (), "what is committed is not taken back"


def test_should_go_on_from_an_offset_that_its_user_names_once_that_is_written() -> None:
    """Further than what he was handed: those between are not wanted."""
    shares, handed = held(share(P0, 5, 5)), in_hand(7)
    shares.held[P0].cursor.position = 9
    commit = shares.named({P0: 20}, handed, "")
    assert shares.passed(handed).values() == {key(P0): OffsetValue(Offset(8))}, "a commit that failed skips nothing"
    commit.written()
    assert shares.passed(handed).offsets == ()


@pytest.mark.parametrize("is_asked", [False, True])
def test_should_commit_where_its_user_went_back_to_while_a_commit_was_under_way(is_asked: bool) -> None:
    shares, handed = held(share(P0, 5, 5)), in_hand(7)
    cursor = shares.held[P0].cursor
    cursor.position = 9
    commit = shares.handed_out(handed, "") if is_asked else shares.passed(handed)
    handed.last = None
    cursor.move(2)
    cursor.passed = 2  # As seek does.
    commit.written()
    assert shares.passed(handed).values() == {key(P0): OffsetValue(Offset(2))}


def test_should_commit_nothing_of_a_partition_that_came_back() -> None:
    shares = held(share(P0, 5, 5))
    old = shares.named({P0: 6}, Handed(), "")
    shares.check(old)
    shares.drop([P0])
    with pytest.raises(FencedMemberError, match=r"of flights/0 are not committed: .* does not have it any more"):
        shares.check(old)
    shares.take_up([share(P0, 5, 5)])
    with pytest.raises(FencedMemberError):
        shares.check(old)


def test_should_send_no_more_offsets_at_once_than_are_taken() -> None:
    places = [TopicPartition("flights", number) for number in range(OFFSETS_PER_COMMIT_MAX + 1)]
    commit = held(*(share(place, 1, None) for place in places)).passed(Handed())
    assert [len(part.offsets) for part in commit.parts()] == [OFFSETS_PER_COMMIT_MAX, 1]


@pytest.mark.parametrize(
    ("offsets", "metadata", "error", "sentence"),
    [
        ({P1: 6}, "", FencedMemberError, "offsets of flights/1 are not committed"),
        ({0: 6}, "", TypeError, "offsets has 0: its keys are TopicPartitions"),
        ([P0], "", TypeError, "offsets is list: give a dict"),
        ({P0: -1}, "", LocalError, "the offset of flights/0 is -1: it must be 0 or more"),
        ({P0: "6"}, "", TypeError, "the offset of flights/0 is str: give a whole number"),
        ({P0: 6}, "é" * 2049, LocalError, "metadata has 4098 bytes: at most 4096"),
        ({P0: 6}, b"x", TypeError, "metadata is bytes: give text"),
    ],
)
def test_should_say_what_cannot_be_committed(
    offsets: Any, metadata: Any, error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        held(share(P0, 5, 5)).named(offsets, Handed(), metadata)

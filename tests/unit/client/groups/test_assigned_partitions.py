"""A member commits what its user is done with, of partitions that it holds now.

A member begins behind what is committed for this very topic, else at its start; for all partitions at once.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from headrace.client.consumer.cursor import Cursor, FetchPlan, Handed
from headrace.client.groups import assigned_partitions
from headrace.client.groups.assigned_partitions import Beginning, Given, MemberPartition, MemberPartitions
from headrace.client.record import GroupOffset, Record, TopicPartition
from headrace.client.transport.retry import RetryPolicy
from headrace.core.errors import FencedMemberError, HeadraceError, LocalError, PartitionOfflineError
from headrace.core.groups.entries import OffsetValue
from headrace.core.limits import OFFSETS_PER_COMMIT_MAX
from headrace.core.types import Offset, PartitionId, PartitionKey, TopicUid

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)


def key(place: TopicPartition, uid: str = "") -> PartitionKey:
    return PartitionKey(TopicUid(uid or f"uid-{place.topic}"), PartitionId(place.partition))


def part(partition: TopicPartition, position: int, committed: int | None) -> MemberPartition:
    return MemberPartition(key(partition), Cursor(partition, position, position), committed)


def held(*assigned: MemberPartition) -> MemberPartitions:
    made = MemberPartitions()
    made.take_up(assigned)
    return made


def test_should_commit_what_was_passed_and_is_not_known() -> None:
    assigned, handed = held(part(P0, 5, 5), part(P1, 7, None)), Handed()
    commit = assigned.passed(handed)
    assert commit.values() == {key(P1): OffsetValue(Offset(7))}
    commit.written()
    assert assigned.passed(handed).offsets == ()
    assigned.held[P0].cursor.position = 9
    assert assigned.passed(handed).offsets == ()
    handed.last = Record("flights", 0, 7, 0, None, b"", ())
    assert assigned.passed(handed).values() == {key(P0): OffsetValue(Offset(7))}
    assert assigned.passed(handed, among=[P1, TopicPartition("trains", 0)]).offsets == ()


def test_should_commit_no_more_than_its_user_says_where_he_hands_records_on() -> None:
    assigned, handed = held(part(P0, 9, 5), part(P1, 7, None)), Handed()
    undone: dict[TopicPartition, int] = {P0: 6}
    assigned.first_undone = undone.get
    assert assigned.passed(handed).values() == {key(P0): OffsetValue(Offset(6)), key(P1): OffsetValue(Offset(7))}
    undone[P0] = 3  # Of an earlier part, before it went to another member and came back.
    assert assigned.passed(handed, among=[P0]).offsets == ()
    undone.clear()
    assert assigned.passed(handed, among=[P0]).values() == {key(P0): OffsetValue(Offset(9))}


def in_hand(offset: int) -> Handed:
    return Handed(last=Record("flights", 0, offset, 0, None, b"", ()))


@pytest.mark.parametrize("offsets", [None, {P0: 8}])
def test_should_commit_what_is_in_hand_where_its_user_says_so(offsets: dict[TopicPartition, int] | None) -> None:
    assigned, handed = held(part(P0, 5, 5)), in_hand(7)
    assigned.held[P0].cursor.position = 9
    commit = assigned.handed_out(handed, "half") if offsets is None else assigned.named(offsets, handed, "half")
    assert commit.values() == {key(P0): OffsetValue(Offset(8), metadata="half")}
    # It may have landed before its user was cancelled.
    assert assigned.passed(handed).values() == {key(P0): OffsetValue(Offset(8))}
    commit.written()
    assert assigned.passed(handed).offsets == (), "what is committed is not taken back"


def test_should_go_on_from_an_offset_that_its_user_names_once_that_is_written() -> None:
    """Further than what he was handed: those between are not wanted."""
    assigned, handed = held(part(P0, 5, 5)), in_hand(7)
    assigned.held[P0].cursor.position = 9
    commit = assigned.named({P0: 20}, handed, "")
    assert assigned.passed(handed).values() == {key(P0): OffsetValue(Offset(8))}, "a commit that failed skips nothing"
    commit.written()
    assert assigned.passed(handed).offsets == ()


@pytest.mark.parametrize("is_asked", [False, True])
def test_should_commit_where_its_user_went_back_to_while_a_commit_was_under_way(is_asked: bool) -> None:
    assigned, handed = held(part(P0, 5, 5)), in_hand(7)
    cursor = assigned.held[P0].cursor
    cursor.position = 9
    commit = assigned.handed_out(handed, "") if is_asked else assigned.passed(handed)
    handed.last = None
    cursor.move(2)
    cursor.passed = 2  # As seek does.
    commit.written()
    assert assigned.passed(handed).values() == {key(P0): OffsetValue(Offset(2))}


def test_should_commit_nothing_of_a_partition_that_came_back() -> None:
    assigned = held(part(P0, 5, 5))
    old = assigned.named({P0: 6}, Handed(), "")
    assigned.check(old)
    assigned.drop([P0])
    with pytest.raises(FencedMemberError, match=r"of flights/0 are not committed: .* does not have it any more"):
        assigned.check(old)
    assigned.take_up([part(P0, 5, 5)])
    with pytest.raises(FencedMemberError):
        assigned.check(old)


def test_should_send_no_more_offsets_at_once_than_are_taken() -> None:
    places = [TopicPartition("flights", number) for number in range(OFFSETS_PER_COMMIT_MAX + 1)]
    commit = held(*(part(place, 1, None) for place in places)).passed(Handed())
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
        held(part(P0, 5, 5)).named(offsets, Handed(), metadata)


F0, F1, T0 = TopicPartition("flights", 0), TopicPartition("flights", 1), TopicPartition("trains", 0)


def at(offset: int, committed_ms: int = 0) -> GroupOffset:
    return GroupOffset(offset, "", committed_ms)


def test_should_begin_behind_what_is_committed_else_at_the_start() -> None:
    given = Given({key(place): place for place in (T0, F1, F0)})
    flights, trains = assigned_partitions.by_topic(given)
    assert (flights.topic, flights.uid, trains.topic) == ("flights", "uid-flights", "trains")
    offsets = {key(F0): ("flights", at(5)), key(T0, "uid-old"): ("trains", at(99))}
    assert flights.not_committed(offsets) == [F1]
    assert trains.not_committed(offsets) == [T0], "that was another topic of the name"
    plan = FetchPlan(RetryPolicy(1_000), {}, is_shared=True)
    assigned = begin(plan, flights.beginnings(offsets, {F1: 7}, {F0: 10, F1: 11}))
    assert [(part.partition, part.cursor.position, part.committed) for part in assigned] == [
        (F0, 5, 5),
        (F1, 7, None),
    ]
    assert [cursor.end for cursor in plan.cursors.values()] == [10, 11]
    (part,) = begin(plan, trains.beginnings({}, {T0: 0}, {}))
    turn = part.cursor.turn
    assert part.cursor.end is None
    (again,) = begin(plan, trains.beginnings({}, {T0: 5}, {}))
    assert (again.cursor.position, part.cursor.turn) == (5, turn + 1), "whatever is left of an earlier time"


def test_should_begin_where_it_can_and_say_why_not_elsewhere() -> None:
    (flights,) = assigned_partitions.by_topic(Given({key(place): place for place in (F0, F1)}))
    offline, far = PartitionOfflineError("nobody leads it"), PartitionOfflineError("nor that")
    assert flights.beginnings({}, {F0: offline, F1: 7}, {F0: 9, F1: 9}) == {
        key(F0): offline,
        key(F1): Beginning(key(F1), F1, 7, None, 9),
    }
    assert flights.beginnings({}, {F0: 1, F1: 7}, {F0: far, F1: 9})[key(F0)] is far


def begin(plan: FetchPlan, found: Mapping[PartitionKey, Beginning | HeadraceError]) -> list[MemberPartition]:
    return assigned_partitions.begin(plan, [each for each in found.values() if isinstance(each, Beginning)])


def test_should_name_each_offset_by_what_was_committed_last() -> None:
    offsets = {
        key(T0, "uid-old"): ("trains", at(99, 1)),
        key(T0): ("trains", at(3, 2)),
        key(F1, "uid-gone"): ("", at(4, 9)),
        key(F0): ("flights", at(5, 1)),
        key(F0, "uid-older"): ("flights", at(50, 0)),
    }
    assert assigned_partitions.newest(offsets) == {F0: at(5, 1), T0: at(3, 2)}

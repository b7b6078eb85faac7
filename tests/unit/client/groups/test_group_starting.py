"""Where a member begins: behind what is committed for the very topic, else at its start; all at once."""

from collections.abc import Mapping

from headrace.client.consumer.cursor import FetchPlan
from headrace.client.groups import assigned_partitions
from headrace.client.groups.assigned_partitions import Beginning, Given, Share
from headrace.client.record import GroupOffset, TopicPartition
from headrace.client.transport.retry import RetryPolicy
from headrace.core.errors import HeadraceError, PartitionOfflineError
from headrace.core.types import PartitionId, PartitionKey, TopicUid

F0, F1, T0 = TopicPartition("flights", 0), TopicPartition("flights", 1), TopicPartition("trains", 0)


def key(place: TopicPartition, uid: str = "") -> PartitionKey:
    return PartitionKey(TopicUid(uid or f"uid-{place.topic}"), PartitionId(place.partition))


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
    shares = begin(plan, flights.beginnings(offsets, {F1: 7}, {F0: 10, F1: 11}))
    assert [(share.partition, share.cursor.position, share.committed) for share in shares] == [
        (F0, 5, 5),
        (F1, 7, None),
    ]
    assert [cursor.end for cursor in plan.cursors.values()] == [10, 11]
    (share,) = begin(plan, trains.beginnings({}, {T0: 0}, {}))
    turn = share.cursor.turn
    assert share.cursor.end is None
    (again,) = begin(plan, trains.beginnings({}, {T0: 5}, {}))
    assert (again.cursor.position, share.cursor.turn) == (5, turn + 1), "whatever is left of an earlier time"


def test_should_begin_where_it_can_and_say_why_not_elsewhere() -> None:
    (flights,) = assigned_partitions.by_topic(Given({key(place): place for place in (F0, F1)}))
    offline, far = PartitionOfflineError("nobody leads it"), PartitionOfflineError("nor that")
    assert flights.beginnings({}, {F0: offline, F1: 7}, {F0: 9, F1: 9}) == {
        key(F0): offline,
        key(F1): Beginning(key(F1), F1, 7, None, 9),
    }
    assert flights.beginnings({}, {F0: 1, F1: 7}, {F0: far, F1: 9})[key(F0)] is far


def begin(plan: FetchPlan, found: Mapping[PartitionKey, Beginning | HeadraceError]) -> list[Share]:
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

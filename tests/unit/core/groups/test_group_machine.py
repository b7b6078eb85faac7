"""Many groups on one log: nothing is told before it is committed, and whoever is elected next knows what was.

What groups are told of topics: what is there, what is gone for sure, and nothing where all of it vanished.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from headrace.core.coordinator import (
    Answer,
    Append,
    Committed,
    Coordinator,
    CoordinatorState,
    Deposed,
    Elected,
    LogEvent,
    Read,
    ReadToEnd,
    Refuse,
    Ticked,
)
from headrace.core.groups.assignment import Subscription
from headrace.core.groups.entries import Entry, Image, OffsetValue
from headrace.core.groups.events import (
    CommitReceived,
    DeletionReceived,
    Done,
    Effect,
    GroupChanged,
    HeartbeatReceived,
    JoinReceived,
    OffsetsAsked,
    ResetResolved,
    TargetOffered,
    TopicDeleted,
)
from headrace.core.groups.group import GROUP_EXPIRY_INTERVAL_MS, Group
from headrace.core.groups.group_machine import (
    COORDINATOR_COMMITS_UNANSWERED_MAX,
    COORDINATOR_UNANSWERED_MAX,
    COORDINATOR_UNCOMMITTED_BYTES_MAX,
    COORDINATOR_UNCOMMITTED_OFFSETS_BYTES_MAX,
    DELETED_TOPICS_REMEMBERED_MAX,
    ForGroup,
    GroupConfigured,
    GroupEvent,
    GroupMachine,
    TopicsListed,
    VisibleTopics,
)
from headrace.core.groups.identity import (
    GROUP_SESSION_MS_DEFAULT,
    GroupEpoch,
    GroupName,
    GroupSettings,
    GroupType,
    TopicShape,
)
from headrace.core.groups.rebalancing import ASSIGNMENT_TIMEOUT_MS
from headrace.core.limits import GROUPS_PER_COORDINATOR_MAX, OFFSET_METADATA_BYTES_MAX
from headrace.core.resources.consumer_group import ConsumerGroup, ConsumerGroupSpec
from headrace.core.resources.metadata import Metadata
from headrace.core.resources.topic import Topic, TopicSpec
from headrace.core.types import Offset, TopicUid
from tests.support.group_world import GROUP, GroupCoordination, GroupOrder, member, part, shape

OTHER = GroupName("default", "audit")
ELSEWHERE = GroupName("lab", "billing")
TOPICS = {"flights": shape("flights", 2)}


class Groups:
    """A coordinator of groups, and the groups that it has."""

    def __init__(self) -> None:
        self.machine = GroupMachine()
        self._coordinator: GroupCoordination = Coordinator(self.machine)

    @property
    def state(self) -> CoordinatorState:
        return self._coordinator.state

    @property
    def groups(self) -> dict[GroupName, Group]:
        return self.machine.groups

    def is_settled(self, group: GroupName) -> bool:
        return self.machine.is_settled(group)

    def step(self, event: LogEvent[Entry] | GroupEvent, now_ms: int) -> list[GroupOrder]:
        return self._coordinator.step(event, now_ms)


def active(*entries: Entry) -> Groups:
    made = Groups()
    made.step(Elected(), 0)
    made.step(Read(entries), 0)
    made.step(ReadToEnd(1_000), 0)
    return made


def commit(request: int, offset: int = 5) -> CommitReceived:
    return CommitReceived(request, {part("flights", 0): OffsetValue(Offset(offset))})


def join(request: int, name: str = "a") -> JoinReceived:
    return JoinReceived(request, member(name), Subscription(("flights",)))


def codes(orders: list[GroupOrder]) -> list[tuple[int, str]]:
    return [(order.request, order.error.code) for order in orders if isinstance(order, Refuse)]


def entries_of(orders: list[GroupOrder]) -> tuple[Entry, ...]:
    return tuple(entry for order in orders if isinstance(order, Append) for entry in order.entries)


def test_should_tell_nothing_before_all_that_was_decided_earlier_is_committed() -> None:
    coordinator = active()
    first = coordinator.step(ForGroup(GROUP, commit(1)), 0)
    assert [type(order) for order in first] == [Append]
    second = coordinator.step(ForGroup(OTHER, commit(2)), 0)
    assert [order.number for order in second if isinstance(order, Append)] == [2]
    assert coordinator.step(ForGroup(GROUP, OffsetsAsked(3)), 0) == [], "it may not say yet what is not committed"
    told = coordinator.step(Committed(1), 0)
    assert [type(order) for order in told] == [Answer, GroupChanged]
    told = coordinator.step(Committed(2), 0)
    assert [order.request for order in told if isinstance(order, Answer)] == [2, 3]
    assert coordinator.step(Committed(1), 0) == []
    at_once = coordinator.step(ForGroup(GROUP, OffsetsAsked(4)), 0)
    assert [order.request for order in at_once if isinstance(order, Answer)] == [4]


def test_should_know_whose_last_change_is_committed() -> None:
    coordinator = active()
    assert coordinator.is_settled(GROUP), "there is nothing of it"
    coordinator.step(ForGroup(GROUP, commit(1)), 0)
    coordinator.step(ForGroup(OTHER, commit(2)), 0)
    coordinator.step(ForGroup(GROUP, ResetResolved(3, "r1", {})), 0)
    coordinator.step(Committed(1), 0)
    assert not coordinator.is_settled(GROUP), "it may yet be as if it was never reset"
    coordinator.step(Committed(2), 0)
    assert (coordinator.is_settled(GROUP), coordinator.is_settled(OTHER)) == (False, True)
    told = coordinator.step(Committed(3), 0)
    assert [order.group for order in told if isinstance(order, GroupChanged)] == [GROUP], "whoever shows it hears of it"
    assert coordinator.is_settled(GROUP)
    coordinator.step(ForGroup(GROUP, commit(4)), 0)
    assert coordinator.is_settled(GROUP), "offsets alone are shown by nobody"
    coordinator.step(ForGroup(GROUP, DeletionReceived(5)), 0)
    assert GROUP not in coordinator.groups
    assert not coordinator.is_settled(GROUP)
    coordinator.step(Deposed("it died"), 0)
    assert coordinator.is_settled(GROUP), "the log says what became of it"


def test_should_refuse_while_it_is_none_and_while_it_loads() -> None:
    coordinator = Groups()
    assert codes(coordinator.step(ForGroup(GROUP, join(1)), 0)) == [(1, "NotCoordinator")]
    coordinator.step(Elected(), 0)
    assert codes(coordinator.step(ForGroup(GROUP, join(2)), 0)) == [(2, "CoordinatorLoading")]
    assert coordinator.step(ForGroup(GROUP, TargetOffered(GroupEpoch(1), {})), 0) == []
    assert coordinator.state is CoordinatorState.LOADING


def test_should_refuse_all_who_wait_when_it_is_deposed() -> None:
    coordinator = active()
    coordinator.step(ForGroup(GROUP, join(1)), 0)
    coordinator.step(Committed(1), 0)
    waits = HeartbeatReceived(2, member("a"), GroupEpoch(1), 0, frozenset(), wait_ms=1_000)
    assert coordinator.step(ForGroup(GROUP, waits), 0) == []
    coordinator.step(ForGroup(OTHER, commit(3)), 0)
    assert codes(coordinator.step(Deposed("it resigned"), 0)) == [(3, "NotCoordinator"), (2, "NotCoordinator")]
    assert coordinator.state is CoordinatorState.IDLE
    assert coordinator.groups == {}
    assert codes(coordinator.step(ForGroup(GROUP, join(4)), 0)) == [(4, "NotCoordinator")]


def test_should_wait_for_nothing_of_an_earlier_reign() -> None:
    coordinator = active()
    coordinator.step(ForGroup(GROUP, commit(1)), 0)
    coordinator.step(Deposed("its disk is full"), 0)
    coordinator.step(Elected(), 0)
    coordinator.step(ReadToEnd(0), 0)
    told = coordinator.step(ForGroup(GROUP, OffsetsAsked(2)), 0)
    assert [order.request for order in told if isinstance(order, Answer)] == [2]


def test_should_know_what_the_log_says_when_elected_again() -> None:
    coordinator = active()
    written = entries_of(coordinator.step(ForGroup(GROUP, join(1)), 0))
    written += entries_of(coordinator.step(ForGroup(OTHER, commit(2)), 0))
    coordinator.step(Deposed("it resigned"), 0)
    coordinator.step(TopicsListed("default", TOPICS), 0)
    coordinator.step(GroupConfigured(GROUP, GroupSettings(session_ms=6_000)), 0)
    coordinator.step(Elected(), 0)
    coordinator.step(Read(written[:2]), 0)
    coordinator.step(Read(written[2:]), 0)
    risen = coordinator.step(ReadToEnd(0), 0)
    assert coordinator.groups.keys() == {GROUP, OTHER}
    assert coordinator.machine.count == 2
    assert entries_of(risen), "there are topics now"
    number = next(order.number for order in risen if isinstance(order, Append))
    told = coordinator.step(Committed(number), 0)
    assert any(isinstance(order, GroupChanged) and order.group == GROUP for order in told)
    gone = coordinator.step(Ticked(50_000), 50_000)
    assert any("session expired" in order.reason for order in gone if isinstance(order, Append))


def test_should_leave_out_groups_of_which_only_tombstones_are_left() -> None:
    coordinator = active()
    written = entries_of(coordinator.step(ForGroup(GROUP, commit(1)), 0))
    coordinator.step(Committed(1), 0)
    coordinator.step(GroupConfigured(GROUP, GroupSettings()), 0)
    coordinator.step(Ticked(30 * 24 * 3_600_000), 70_000)
    assert coordinator.groups == {}
    gone = tuple(entry._replace(value=None) for entry in written)
    assert active(*written, *gone).groups == {}


def test_should_tell_topics_to_the_groups_of_their_namespace_alone() -> None:
    coordinator = active()
    coordinator.step(ForGroup(GROUP, join(1)), 0)
    coordinator.step(ForGroup(ELSEWHERE, join(2)), 0)
    written = entries_of(coordinator.step(TopicsListed("lab", TOPICS), 0))
    assert {entry.key.group for entry in written} == {ELSEWHERE}


def test_should_forget_the_offsets_of_a_topic_that_was_deleted() -> None:
    coordinator = active()
    coordinator.step(ForGroup(GROUP, commit(1)), 0)
    assert coordinator.step(TopicDeleted(TopicUid("another")), 0) == []
    gone = coordinator.step(TopicDeleted(TopicUid("uid-flights")), 0)
    assert [entry.value for entry in entries_of(gone)] == [None]
    assert coordinator.groups[GROUP].image.offsets == {}


def test_should_know_the_settings_of_a_group_before_it_is_there() -> None:
    coordinator = active()
    assert coordinator.step(GroupConfigured(GROUP, GroupSettings(session_ms=6_000)), 0) == []
    coordinator.step(TopicsListed("default", TOPICS), 0)
    coordinator.step(ForGroup(GROUP, join(1)), 0)
    told = coordinator.step(Ticked(0), 6_000)
    assert any("session expired" in order.reason for order in told if isinstance(order, Append))


def test_should_know_nothing_of_settings_whose_resource_is_gone() -> None:
    coordinator = active()
    coordinator.step(GroupConfigured(GROUP, GroupSettings(session_ms=6_000)), 0)
    assert coordinator.step(GroupConfigured(GROUP, None), 0) == []
    assert coordinator.step(GroupConfigured(OTHER, None), 0) == [], "it was never there"
    coordinator.step(TopicsListed("default", TOPICS), 0)
    coordinator.step(ForGroup(GROUP, join(1)), 0)
    told = coordinator.step(Ticked(0), 6_000)
    assert not any("session expired" in order.reason for order in told if isinstance(order, Append))


def test_should_take_nobody_into_a_group_that_shows_the_progress_of_a_query() -> None:
    coordinator = active()
    spec = ConsumerGroupSpec(type=GroupType.SPARK)
    settings = ConsumerGroup(Metadata(GROUP.name, GROUP.namespace), spec).settings(0, 0)
    coordinator.step(GroupConfigured(GROUP, settings), 0)
    for request in (join(1), commit(1), ResetResolved(1, "r1", {})):
        assert codes(coordinator.step(ForGroup(GROUP, request), 0)) == [(1, "WrongGroupType")]
    assert coordinator.groups == {}
    asked = coordinator.step(ForGroup(GROUP, OffsetsAsked(2)), 0)
    assert [type(order) for order in asked] == [Answer], "it has none"


def settings_of(group_type: GroupType) -> GroupSettings:
    resource = ConsumerGroup(Metadata(GROUP.name, GROUP.namespace), ConsumerGroupSpec(type=group_type))
    return resource.settings(0, 0)


def progress(request: int, offset: int = 5) -> CommitReceived:
    return replace(commit(request, offset), type=GroupType.SPARK)


def test_should_take_what_a_query_reports_when_its_group_is_of_that_type() -> None:
    coordinator = active()
    coordinator.step(GroupConfigured(GROUP, settings_of(GroupType.SPARK)), 0)
    orders = coordinator.step(ForGroup(GROUP, progress(1)), 0)
    assert codes(orders) == []
    assert coordinator.groups[GROUP].image.group.type is GroupType.SPARK
    heir = active(*entries_of(orders))
    for request in (join(1), commit(1), ResetResolved(1, "r1", {})):
        assert codes(heir.step(ForGroup(GROUP, request), 0)) == [(1, "WrongGroupType")], "the log says so"
    assert codes(heir.step(ForGroup(GROUP, progress(2, 9)), 0)) == []
    assert (heir.groups[GROUP].state, heir.groups[GROUP].image.offsets[part("flights", 0)].offset) == ("Empty", 9)


def test_should_refuse_a_report_when_the_group_is_of_members() -> None:
    coordinator = active()
    coordinator.step(ForGroup(GROUP, commit(1)), 0)
    assert codes(coordinator.step(ForGroup(GROUP, progress(2)), 0)) == [], "the commit may yet be lost, and be none"
    (refused,) = [order for order in coordinator.step(Committed(1), 0) if isinstance(order, Refuse)]
    assert "is of type Consumer" in refused.error.message
    coordinator.step(GroupConfigured(OTHER, settings_of(GroupType.CONSUMER)), 0)
    assert codes(coordinator.step(ForGroup(OTHER, progress(3)), 0)) == [(3, "WrongGroupType")]
    assert OTHER not in coordinator.groups


def test_should_refuse_all_uses_when_log_and_manifest_differ() -> None:
    coordinator = active()
    coordinator.step(ForGroup(GROUP, progress(1)), 0)
    coordinator.step(GroupConfigured(GROUP, settings_of(GroupType.CONSUMER)), 0)
    coordinator.step(Committed(2), 0)
    for request in (join(2), commit(2), progress(2)):
        assert codes(coordinator.step(ForGroup(GROUP, request), 0)) == [(2, "WrongGroupType")]
    coordinator.step(ForGroup(GROUP, DeletionReceived(3)), 0)
    coordinator.step(Committed(3), 0)
    assert codes(coordinator.step(ForGroup(GROUP, commit(4)), 0)) == [], "the log knows it no more"


def test_should_look_only_at_groups_that_are_due() -> None:
    coordinator = active()
    coordinator.step(ForGroup(GROUP, join(1)), 0)
    coordinator.step(ForGroup(OTHER, commit(2)), 0)
    due_ms = {name: group.due_ms for name, group in coordinator.groups.items()}
    assert due_ms[GROUP] == ASSIGNMENT_TIMEOUT_MS
    assert 0 < due_ms[OTHER] <= GROUP_EXPIRY_INTERVAL_MS
    looked: list[GroupName] = []
    for group in coordinator.groups.values():
        group.step = partial(_noted, looked, group.step, group.image.name)  # type: ignore[method-assign]
    coordinator.step(Ticked(0), ASSIGNMENT_TIMEOUT_MS - 1)
    assert looked == []
    coordinator.step(Ticked(0), ASSIGNMENT_TIMEOUT_MS)
    assert looked == [GROUP]
    coordinator.step(Ticked(0), ASSIGNMENT_TIMEOUT_MS)
    assert looked == [GROUP], "until it is due again"
    coordinator.step(Ticked(0), GROUP_EXPIRY_INTERVAL_MS)
    assert sorted(looked) == [OTHER, GROUP, GROUP]


def _noted(
    looked: list[GroupName], step: Callable[[Any, int], list[Effect]], name: GroupName, event: Any, now_ms: int
) -> list[Effect]:
    looked.append(name)
    return step(event, now_ms)


def test_should_look_at_sessions_and_heartbeats_when_they_end() -> None:
    names = (GroupName("default", f"g{number}") for number in range(1_000))
    late = next(name for name in names if Group(Image(name), now_ms=0, wall_ms=0).due_ms > GROUP_SESSION_MS_DEFAULT)
    before = active()
    written = entries_of(before.step(ForGroup(late, join(1)), 0))
    written += entries_of(before.step(Ticked(0), ASSIGNMENT_TIMEOUT_MS))
    coordinator = active(*written)
    assert coordinator.groups[late].due_ms == GROUP_SESSION_MS_DEFAULT
    mark = coordinator.groups[late].image.currents[member("a")].mark
    waits = HeartbeatReceived(2, member("a"), *mark, frozenset(), wait_ms=1_000)
    assert coordinator.step(ForGroup(late, waits), 100) == []
    assert coordinator.groups[late].due_ms == 1_100, "it is to be answered"
    assert [type(order) for order in coordinator.step(Ticked(0), 1_100)] == [Answer]
    gone = coordinator.step(Ticked(0), GROUP_SESSION_MS_DEFAULT + 100)
    assert any("session expired" in order.reason for order in gone if isinstance(order, Append))


def test_should_know_the_wall_clock_in_groups_that_nobody_looks_at() -> None:
    coordinator = active()
    coordinator.step(Ticked(7_000), 0)
    coordinator.step(ForGroup(GROUP, commit(1)), 0)
    coordinator.step(Ticked(9_000), 1)
    written = entries_of(coordinator.step(ForGroup(GROUP, commit(2)), 2))
    assert [entry.value.committed_ms for entry in written if isinstance(entry.value, OffsetValue)] == [9_000]


def test_should_take_no_more_requests_than_may_wait() -> None:
    """Members are heard while commits are refused already."""
    coordinator = active()
    for number in range(COORDINATOR_COMMITS_UNANSWERED_MAX):
        coordinator.step(ForGroup(GROUP, commit(number)), 0)
    reset = ResetResolved(99_998, "replay-1", {})
    for refused in (commit(99_998), reset):
        assert codes(coordinator.step(ForGroup(GROUP, refused), 0)) == [(99_998, "Throttled")]
    others = COORDINATOR_UNANSWERED_MAX - COORDINATOR_COMMITS_UNANSWERED_MAX
    heard = [not codes(coordinator.step(ForGroup(GROUP, OffsetsAsked(20_000 + n)), 0)) for n in range(others)]
    assert sum(heard) >= others - 10, "all but what is to be told of the group itself"
    assert codes(coordinator.step(ForGroup(GROUP, join(99_999)), 0)) == [(99_999, "Throttled")]
    coordinator.step(Committed(COORDINATOR_COMMITS_UNANSWERED_MAX - 1), 0)
    (append,) = coordinator.step(ForGroup(GROUP, commit(99_999)), 0)
    assert isinstance(append, Append)
    assert Answer(99_999, Done(), "done") in coordinator.step(Committed(append.number), 0)


def test_should_take_no_more_bytes_than_may_wait() -> None:
    """As a follower that lags makes of commits with much metadata."""
    coordinator = active()
    note = OffsetValue(Offset(1), metadata="x" * OFFSET_METADATA_BYTES_MAX)
    offsets = {part("flights", number): note for number in range(500)}
    decided: list[Append[Entry]] = []
    for number in range(100):
        orders = coordinator.step(ForGroup(GROUP, CommitReceived(number, offsets)), 0)
        if codes(orders) == [(number, "Throttled")]:
            break
        decided += [order for order in orders if isinstance(order, Append)]
    waiting = sum(order.size_bytes for order in decided)
    largest = max(order.size_bytes for order in decided)
    bound = COORDINATOR_UNCOMMITTED_OFFSETS_BYTES_MAX
    assert bound <= waiting < bound + largest < COORDINATOR_UNCOMMITTED_BYTES_MAX
    assert codes(coordinator.step(ForGroup(OTHER, join(1_000)), 0)) == [], "members are heard"
    coordinator.step(Committed(decided[0].number), 0)
    assert codes(coordinator.step(ForGroup(GROUP, commit(1_001)), 0)) == []
    coordinator.step(Deposed("another leads"), 0)
    coordinator.step(Elected(), 0)
    coordinator.step(ReadToEnd(0), 0)
    for number in range(3):
        assert codes(coordinator.step(ForGroup(GROUP, CommitReceived(2_000 + number, offsets)), 0)) == []


def test_should_take_no_more_groups_than_it_may() -> None:
    coordinator = active()
    for number in range(GROUPS_PER_COORDINATOR_MAX):
        coordinator.step(ForGroup(GroupName("default", f"g{number}"), commit(number)), 0)
        coordinator.step(Committed(number + 1), 0)
    assert codes(coordinator.step(ForGroup(GROUP, commit(1)), 0)) == [(1, "GroupFull")]
    coordinator.step(ForGroup(GroupName("default", "g0"), commit(2)), 0)
    assert len(coordinator.groups) == GROUPS_PER_COORDINATOR_MAX


def topic(name: str, partitions: int = 1, namespace: str = "default", **spec: object) -> Topic:
    metadata = Metadata(namespace=namespace, name=name, uid=f"uid-{name}")
    return Topic(metadata, TopicSpec.parse({"partitions": partitions, **spec}))


def going(each: Topic) -> Topic:
    return replace(each, metadata=replace(each.metadata, deletion_timestamp="2026-11-21T09:00:00Z"))


def shapes(**topics: int) -> dict[str, TopicShape]:
    return {name: TopicShape(TopicUid(f"uid-{name}"), partitions) for name, partitions in topics.items()}


def deleted(name: str) -> TopicDeleted:
    return TopicDeleted(TopicUid(f"uid-{name}"))


def test_should_tell_each_namespace_once_and_again_when_it_changed() -> None:
    sight = VisibleTopics()
    here, there = topic("flights", 2), topic("orders", namespace="shop")
    assert sight.look([here, there]) == [
        TopicsListed("default", shapes(flights=2)),
        TopicsListed("shop", shapes(orders=1)),
    ]
    assert sight.look([there, here]) == []
    assert sight.look([topic("flights", 3), there]) == [TopicsListed("default", shapes(flights=3))]
    assert sight.all() == [TopicsListed("default", shapes(flights=3)), TopicsListed("shop", shapes(orders=1))]


def test_should_not_tell_that_all_of_a_namespace_vanished() -> None:
    sight = VisibleTopics()
    sight.look([topic("flights"), topic("orders"), topic("bills", namespace="shop")])
    assert sight.look([topic("bills", namespace="shop")]) == []
    assert sight.topics["default"] == shapes(flights=1, orders=1)
    assert sight.look([topic("flights"), topic("bills", namespace="shop")]) == [
        TopicsListed("default", shapes(flights=1))
    ]


def test_should_be_sure_of_a_deletion_that_began_and_is_over() -> None:
    sight = VisibleTopics()
    sight.look([topic("flights"), topic("orders")])
    assert sight.look([going(topic("flights")), topic("orders")]) == []
    assert sight.look([topic("orders")]) == [TopicsListed("default", shapes(orders=1)), deleted("flights")]
    assert sight.all() == [TopicsListed("default", shapes(orders=1)), deleted("flights")]
    assert sight.look([topic("orders")]) == []


def test_should_tell_that_a_namespace_is_empty_when_its_last_topic_was_deleted() -> None:
    sight = VisibleTopics()
    sight.look([going(topic("flights"))])
    assert sight.look([]) == [TopicsListed("default", {}), deleted("flights")]


def test_should_not_take_retained_data_for_deleted() -> None:
    sight = VisibleTopics()
    sight.look([going(topic("flights", deletionPolicy="Retain")), topic("orders")])
    assert sight.look([topic("orders")]) == [TopicsListed("default", shapes(orders=1))]


def test_should_not_take_a_topic_for_deleted_whose_deletion_was_undone() -> None:
    """A restored API server has it as it was before."""
    sight = VisibleTopics()
    sight.look([going(topic("flights")), topic("orders")])
    assert sight.look([topic("flights"), topic("orders")]) == []
    assert sight.look([topic("orders")]) == [TopicsListed("default", shapes(orders=1))]


def test_should_not_repeat_a_deletion_that_was_undone_when_it_was_over() -> None:
    sight = VisibleTopics()
    sight.look([going(topic("flights")), topic("orders")])
    assert deleted("flights") in sight.look([topic("orders")])
    sight.look([topic("flights"), topic("orders")])
    assert sight.all() == [TopicsListed("default", shapes(flights=1, orders=1))], "offsets of it were committed since"


def test_should_remember_the_last_deletions_only() -> None:
    sight = VisibleTopics()
    for number in range(DELETED_TOPICS_REMEMBERED_MAX + 1):
        sight.look([going(topic(f"t{number}")), topic("orders")])
        sight.look([topic("orders")])
    remembered = sight.all()[1:]
    assert len(remembered) == DELETED_TOPICS_REMEMBERED_MAX
    assert remembered[0] == deleted("t1")

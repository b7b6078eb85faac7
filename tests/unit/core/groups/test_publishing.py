"""ConsumerGroups are looked at as soon as they may be, and never too often; nothing that changed is forgotten.

Made-up names of groups are objects of the cluster's API: one client makes so many, and no more.

A ConsumerGroup comes with its group, says what is true of it, and goes with it if a broker has created it.
"""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import ThrottledError
from headrace.core.groups.entries import OffsetValue
from headrace.core.groups.events import CommitReceived, DeletionReceived, LeaveReceived
from headrace.core.groups.identity import GroupName, GroupSettings, GroupState, GroupType
from headrace.core.groups.publishing import (
    GROUP_CHANGES_IN_A_ROW_MAX,
    GROUP_LAG_STATUS_INTERVAL_MS,
    GROUP_LAG_WRITES_PER_SECOND_MAX,
    GROUP_STATUS_INTERVAL_MS,
    GROUP_WRITES_IN_FLIGHT_MAX,
    GROUP_WRITES_PER_SECOND_MAX,
    GROUPS_NEW_CLIENTS_MAX,
    CreateConsumerGroup,
    DeleteConsumerGroup,
    Newcomers,
    Publishing,
    Turn,
    Upkeep,
    WriteStatus,
    lags_shown,
    upkeep,
)
from headrace.core.groups.status import GroupReport, report_of
from headrace.core.resources.consumer_group import ConsumerGroup, ConsumerGroupSpec, auto_created
from headrace.core.resources.metadata import Metadata
from headrace.core.types import BrokerId, Offset, TopicUid
from tests.support.group_world import GROUP, World, part, shape

BILLING = GroupName("default", "billing")
AUDIT = GroupName("default", "audit")


def group(number: int) -> GroupName:
    return GroupName("default", f"group-{number:04}")


def written(publishing: Publishing, now_ms: int, *, ends: bool = True) -> list[GroupName]:
    """Everybody whose turn it is, and what all of them have is written."""
    groups = []
    while (turn := publishing.take(now_ms)) is not None:
        publishing.began(turn.group, now_ms)
        if ends:
            publishing.ended(turn.group)
        groups.append(turn.group)
    return groups


def test_should_show_a_change_at_once_and_the_next_ones_together_a_second_later() -> None:
    publishing = Publishing()
    assert publishing.next_ms() is None
    publishing.changed(BILLING, 100)
    assert publishing.next_ms() == 100
    assert written(publishing, 100) == [BILLING]
    for now_ms in (101, 500, 900):
        publishing.changed(BILLING, now_ms)
        assert publishing.take(now_ms) is None
    assert publishing.next_ms() == 100 + GROUP_STATUS_INTERVAL_MS
    assert written(publishing, 100 + GROUP_STATUS_INTERVAL_MS) == [BILLING]
    assert publishing.next_ms() is None, "there is nothing more to show"


def test_should_take_nothing_for_written_that_was_only_looked_at() -> None:
    publishing = Publishing()
    publishing.changed(BILLING, 0)
    assert publishing.take(0) == Turn(BILLING, is_for_lag=False)
    assert publishing.take(0) is None
    publishing.changed(BILLING, 1)
    assert publishing.take(1) == Turn(BILLING, is_for_lag=False), "nothing was written a moment ago"


def test_should_show_a_lag_alone_every_ten_seconds_and_along_with_a_change_at_any_time() -> None:
    publishing = Publishing()
    publishing.lag_changed(BILLING, 0)
    assert publishing.take(0) == Turn(BILLING, is_for_lag=True)
    publishing.began(BILLING, 0)
    publishing.ended(BILLING)
    publishing.lag_changed(BILLING, 5_000)
    assert publishing.next_ms() == GROUP_LAG_STATUS_INTERVAL_MS
    publishing.changed(BILLING, 6_000)
    assert publishing.take(6_000) == Turn(BILLING, is_for_lag=False)
    assert publishing.next_ms() == GROUP_LAG_STATUS_INTERVAL_MS, "nothing was written: the lag is still to be shown"
    publishing.changed(BILLING, 7_000)
    assert written(publishing, 7_000) == [BILLING]
    assert publishing.next_ms() is None, "the lag went along"
    publishing.lag_changed(BILLING, 8_000)
    assert publishing.next_ms() == 7_000 + GROUP_LAG_STATUS_INTERVAL_MS


def test_should_look_again_after_what_came_while_a_write_was_on_its_way() -> None:
    publishing = Publishing()
    publishing.changed(BILLING, 0)
    assert written(publishing, 0, ends=False) == [BILLING]
    publishing.changed(BILLING, 10)
    publishing.lag_changed(BILLING, 10)
    assert publishing.next_ms() is None
    publishing.ended(BILLING)
    assert publishing.take(4_000) == Turn(BILLING, is_for_lag=False)


def test_should_leave_a_group_alone_that_could_not_be_written() -> None:
    publishing = Publishing()
    publishing.changed(BILLING, 0)
    assert written(publishing, 0, ends=False) == [BILLING]
    publishing.hold(BILLING, 9_000)
    publishing.ended(BILLING)
    publishing.changed(BILLING, 2_000)
    assert publishing.next_ms() == 9_000
    assert (publishing.is_held(BILLING, 8_999), publishing.is_held(BILLING, 9_000)) == (True, False)
    assert not publishing.is_held(AUDIT, 0)
    assert written(publishing, 9_000) == [BILLING]
    publishing.hold(BILLING, 90_000)
    publishing.release(BILLING, 10_000)
    publishing.changed(BILLING, 10_000)
    assert not publishing.is_held(BILLING, 10_000)


def test_should_never_write_more_in_a_second_than_a_broker_may() -> None:
    publishing = Publishing()
    for number in range(50):
        publishing.changed(group(number), number)
    first = written(publishing, 100)
    assert first == [group(number) for number in range(GROUP_WRITES_PER_SECOND_MAX)], "whoever has waited longest"
    assert publishing.next_ms() == 1_100
    assert publishing.take(1_099) is None
    second = written(publishing, 1_100)
    assert second == [group(number) for number in range(20, 40)]
    assert [len(written(publishing, now_ms)) for now_ms in (2_099, 2_100, 3_100)] == [0, 10, 0]


def busy(publishing: Publishing, now_ms: int) -> None:
    """The lag of a thousand groups is another one."""
    for number in range(1_000):
        publishing.lag_changed(group(number), now_ms)


def test_should_not_have_changes_wait_for_lags() -> None:
    publishing, lags = Publishing(), 0
    for now_ms in range(0, 20_000, 100):
        if now_ms % 5_000 == 0:
            busy(publishing, now_ms)
        if now_ms % 1_000 == 0:
            publishing.changed(BILLING, now_ms)
        shown = written(publishing, now_ms)
        assert (shown[:1] == [BILLING]) is (now_ms % 1_000 == 0)
        lags += len(shown) - shown.count(BILLING)
    assert lags == 20 * GROUP_LAG_WRITES_PER_SECOND_MAX, "lags are given so much, and no more"


def test_should_show_every_lag_in_its_turn_where_there_are_many() -> None:
    publishing, seen = Publishing(), set[GroupName]()
    busy(publishing, 0)
    for now_ms in range(0, 1_000 * 1_000 // GROUP_LAG_WRITES_PER_SECOND_MAX, 1_000):
        seen.update(written(publishing, now_ms))
        publishing.lag_changed(group(0), now_ms)
    assert len(seen) == 1_000


def test_should_not_have_lags_wait_for_ever_for_changes() -> None:
    publishing, lags, changes = Publishing(), 0, 0
    publishing.lag_changed(BILLING, 0)
    for now_ms in range(0, 60_000, 1_000):
        for number in range(100):
            publishing.changed(group(number), now_ms)
        publishing.lag_changed(BILLING, now_ms)
        shown = written(publishing, now_ms)
        lags, changes = lags + shown.count(BILLING), changes + len(shown)
    assert lags == 60_000 // GROUP_LAG_STATUS_INTERVAL_MS
    assert changes == 60 * GROUP_WRITES_PER_SECOND_MAX
    assert GROUP_CHANGES_IN_A_ROW_MAX < GROUP_WRITES_PER_SECOND_MAX


def test_should_say_when_the_next_lag_may_be_written() -> None:
    publishing = Publishing()
    busy(publishing, 0)
    assert len(written(publishing, 0)) == GROUP_LAG_WRITES_PER_SECOND_MAX
    assert publishing.next_ms() == 1_000
    publishing.changed(BILLING, 300)
    assert publishing.next_ms() == 300
    assert written(publishing, 300) == [BILLING]


def test_should_count_what_else_the_api_server_is_asked() -> None:
    publishing = Publishing()
    for _ in range(GROUP_WRITES_PER_SECOND_MAX):
        publishing.asked(0)
    publishing.changed(BILLING, 0)
    assert publishing.take(999) is None
    assert publishing.next_ms() == 1_000
    assert written(publishing, 1_000) == [BILLING]


def test_should_have_only_so_many_on_their_way() -> None:
    publishing = Publishing()
    for number in range(20):
        publishing.changed(group(number), 0)
    begun = written(publishing, 0, ends=False)
    assert len(begun) == GROUP_WRITES_IN_FLIGHT_MAX
    assert publishing.next_ms() is None, "until one of them ends"
    publishing.ended(begun[0])
    assert publishing.next_ms() == 0
    assert len(written(publishing, 60_000, ends=False)) == 1


def test_should_forget_what_somebody_else_coordinates() -> None:
    publishing = Publishing()
    publishing.changed(BILLING, 0)
    publishing.forget(BILLING)
    publishing.forget(AUDIT)
    assert publishing.next_ms() is None
    assert publishing.take(0) is None
    publishing.changed(BILLING, 0)
    publishing.forget(BILLING)
    publishing.changed(AUDIT, 0)
    assert written(publishing, 0, ends=False) == [AUDIT], "what was forgotten is passed over"
    publishing.changed(AUDIT, 1)
    publishing.forget(AUDIT)
    publishing.ended(AUDIT)
    assert publishing.next_ms() is None


def test_should_know_a_group_again_that_comes_back_while_its_write_is_on_its_way() -> None:
    publishing = Publishing()
    publishing.changed(BILLING, 0)
    assert written(publishing, 0, ends=False) == [BILLING]
    publishing.forget(BILLING)
    publishing.changed(BILLING, 10)
    publishing.ended(BILLING)
    assert publishing.next_ms() == GROUP_STATUS_INTERVAL_MS, "the pause counts from what was written before"


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["change", "lag", "write", "look", "hold", "forget", "end"]),
        st.integers(0, 4),
        st.integers(0, 700),
    ),
    max_size=120,
)


class Broker:
    """Remembers what it has written, and what it still owes."""

    def __init__(self) -> None:
        self.publishing = Publishing()
        self.writes: list[tuple[int, GroupName]] = []
        self.owed: set[GroupName] = set()
        self.on_their_way: list[GroupName] = []

    def do(self, what: str, number: int, now_ms: int) -> None:
        match what:
            case "change":
                self.publishing.changed(group(number), now_ms)
                self.owed.add(group(number))
            case "lag":
                self.publishing.lag_changed(group(number), now_ms)
            case "hold":
                self.publishing.hold(group(number), now_ms + 100 * number)
                self.owed.add(group(number))
            case "forget":
                self.publishing.forget(group(number))
                self.owed.discard(group(number))
            case "write" | "look":
                self.look(now_ms, writes=what == "write")
            case "end" if self.on_their_way:
                self.publishing.ended(self.on_their_way.pop(0))

    def look(self, now_ms: int, *, writes: bool) -> None:
        turn = self.publishing.take(now_ms)
        if turn is None:
            return
        self.owed.discard(turn.group)
        if writes:
            self.publishing.began(turn.group, now_ms)
            self.writes.append((now_ms, turn.group))
            self.on_their_way.append(turn.group)


@given(_STEPS)
def test_should_keep_its_rates_and_forget_nothing_whatever_happens(steps: list[tuple[str, int, int]]) -> None:
    broker, now_ms = Broker(), 0
    for what, number, pause_ms in steps:
        now_ms += pause_ms
        broker.do(what, number, now_ms)
    for at_ms, written_group in broker.writes:
        meanwhile = [other for ms, other in broker.writes if at_ms <= ms < at_ms + 1_000]
        assert len(meanwhile) <= GROUP_WRITES_PER_SECOND_MAX
        assert meanwhile.count(written_group) == 1
    for _ in [*broker.on_their_way]:
        broker.do("end", 0, now_ms)
    looks = 0
    while (next_ms := broker.publishing.next_ms()) is not None:
        now_ms, looks = max(now_ms, next_ms), looks + 1
        broker.look(now_ms, writes=False)
        assert looks < 100, "it comes to an end"
    assert not broker.owed, "each change is looked at"


def test_should_refuse_one_new_group_too_many_and_take_it_later() -> None:
    newcomers = Newcomers(burst=3, interval_ms=100)
    for _ in range(3):
        newcomers.take("10.0.0.1", 1_000)
    with pytest.raises(
        ThrottledError, match=r"10\.0\.0\.1 has made 3 new groups in a row; the next is taken in 0\.1 s"
    ):
        newcomers.take("10.0.0.1", 1_000)
    newcomers.take("10.0.0.2", 1_000)
    newcomers.take("10.0.0.1", 1_100)
    with pytest.raises(ThrottledError) as refused:
        newcomers.take("10.0.0.1", 1_150)
    assert refused.value.details["retryAfterMs"] == 50
    for _ in range(3):
        newcomers.take("10.0.0.1", 10_000)


def test_should_never_refuse_a_broker_that_asks_for_itself() -> None:
    newcomers = Newcomers(burst=1, interval_ms=100)
    for _ in range(10):
        newcomers.take(None, 0)
    assert len(newcomers) == 0


def test_should_remember_so_many_clients_and_no_more() -> None:
    newcomers = Newcomers(burst=2, interval_ms=1_000)
    for number in range(GROUPS_NEW_CLIENTS_MAX):
        newcomers.take(f"client {number}", number)
    newcomers.take("another", 500)
    assert len(newcomers) == GROUPS_NEW_CLIENTS_MAX, "the first is nearest to having earned what it took"
    newcomers.take("client 0", 500)
    newcomers.take("later", 1_000_000)
    assert len(newcomers) == 1


TOPICS = {"flights": shape("flights", 2)}
FLIGHTS = TopicUid("uid-flights")
MADE = ConsumerGroup(Metadata(GROUP.name, GROUP.namespace, uid="made"))


def found(cluster: str = "headrace") -> ConsumerGroup:
    """As the API server gives back what a broker has created."""
    parsed = ConsumerGroup.parse(auto_created(GROUP, cluster))
    finalizers = (*parsed.metadata.finalizers, "example.com/mine")
    metadata = replace(parsed.metadata, uid="found", resource_version="7", finalizers=finalizers)
    return replace(parsed, metadata=metadata)


def report(world: World, lag: int | None = None) -> GroupReport:
    group = world.machine.groups.get(GROUP)
    state = GroupState.DEAD if group is None else group.state
    return report_of(world.image, state, BrokerId(1), TOPICS, {FLIGHTS: lag})


def kept(
    resource: ConsumerGroup | None, said: GroupReport, *, is_for_lag: bool = False, is_unused: bool = False
) -> Upkeep | None:
    return upkeep(resource, said, "headrace", 0, is_for_lag=is_for_lag, is_unused=is_unused)


def joined() -> World:
    world = World(dict(TOPICS))
    world.send(world.process("a", "flights"))
    world.commit_log()
    return world


def shown(world: World, resource: ConsumerGroup, lag: int | None = None) -> ConsumerGroup:
    action = kept(resource, report(world, lag))
    assert isinstance(action, WriteStatus)
    return action.resource


def test_should_create_what_is_missing_and_then_say_what_is_true() -> None:
    world = joined()
    action = kept(None, report(world))
    assert isinstance(action, CreateConsumerGroup)
    assert ConsumerGroup.parse(action.manifest).auto_created
    resource = shown(world, found())
    assert (resource.status.state, len(resource.status.members)) == (GroupState.ASSIGNING, 1)
    assert kept(resource, report(world)) is None, "it says so already"
    world.rounds_until(world.is_stable)
    assert shown(world, resource).status.state is GroupState.STABLE


def test_should_create_again_what_was_lost_with_the_retention_that_the_group_had() -> None:
    world = joined()
    for kept_ms in (None, 30 * 86_400_000):
        world.configure(GroupSettings(offsets_retention_ms=kept_ms))
        action = kept(None, report(world))
        assert isinstance(action, CreateConsumerGroup)
        assert ConsumerGroup.parse(action.manifest).spec.offsets_retention_ms == kept_ms


def test_should_write_a_lag_alone_only_when_it_is_time_for_lags() -> None:
    world = joined()
    resource = shown(world, found(), 7)
    assert lags_shown(resource) == {FLIGHTS: 7}
    for lag in (8, None):
        assert kept(resource, report(world, lag)) is None
        action = kept(resource, report(world, lag), is_for_lag=True)
        assert isinstance(action, WriteStatus)
        assert lags_shown(action.resource) == {FLIGHTS: lag}
    assert kept(resource, report(world, 7), is_for_lag=True) is None
    assert lags_shown(None) == {}


def test_should_delete_with_a_forgotten_group_only_what_a_broker_has_created() -> None:
    world = joined()
    shown_found, shown_made = shown(world, found()), shown(world, MADE)
    world.deliver(LeaveReceived(world.numbers.next(), world.processes[0].id))
    world.deliver(DeletionReceived(world.numbers.next()))
    world.commit_log()
    dead = report(world)
    assert dead.state is GroupState.DEAD
    assert kept(None, dead) is None
    action = kept(shown_found, dead)
    assert isinstance(action, DeleteConsumerGroup)
    assert action.metadata.uid == "found"
    assert action.release == {"metadata": {"resourceVersion": "7", "finalizers": ["example.com/mine"]}}
    unheld = replace(shown_found, metadata=replace(shown_found.metadata, finalizers=("example.com/mine",)))
    action = kept(unheld, dead)
    assert isinstance(action, DeleteConsumerGroup)
    assert action.release is None
    going = replace(shown_found, metadata=replace(shown_found.metadata, deletion_timestamp="2024-01-01T00:00:00Z"))
    assert kept(going, dead) is None, "it is being deleted"
    emptied = shown(world, shown_made)
    assert (emptied.status.state, emptied.status.members, emptied.status.lag) == (GroupState.EMPTY, (), "0")


def test_should_wait_for_those_for_whom_it_was_created_before_there_was_a_coordinator() -> None:
    world = World(dict(TOPICS))
    assert kept(found(), report(world)) is None
    assert isinstance(kept(found(), report(world), is_unused=True), DeleteConsumerGroup)


def test_should_leave_the_group_of_another_cluster_alone() -> None:
    world, dead = joined(), report(World(dict(TOPICS)))
    others = replace(MADE, spec=ConsumerGroupSpec(cluster="other"))
    assert kept(others, report(world)) is None
    assert kept(found("other"), dead, is_unused=True) is None


def reported() -> World:
    world = World(dict(TOPICS))
    offsets = {part("flights", 0): OffsetValue(Offset(5))}
    world.deliver(CommitReceived(1, offsets, type=GroupType.SPARK))
    world.commit_log()
    return world


def test_should_show_the_progress_of_a_query_in_a_group_of_its_type() -> None:
    world = reported()
    action = kept(None, report(world))
    assert isinstance(action, CreateConsumerGroup)
    assert ConsumerGroup.parse(action.manifest).spec.type is GroupType.SPARK
    spark = replace(MADE, spec=ConsumerGroupSpec(type=GroupType.SPARK))
    status = shown(world, spark, lag=7).status
    assert (status.state, status.members, status.lag) == (GroupState.EMPTY, (), "7")
    assert shown(World(dict(TOPICS)), spark).status.state is GroupState.EMPTY, "before anything is reported"


def test_should_leave_a_group_of_another_type_alone() -> None:
    spark = replace(MADE, spec=ConsumerGroupSpec(type=GroupType.SPARK))
    assert kept(spark, report(joined()), is_for_lag=True) is None
    assert kept(MADE, report(reported()), is_for_lag=True) is None

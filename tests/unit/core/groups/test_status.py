"""Coordinator and operator agree through a ConsumerGroup's status, and leave each other's part of it alone."""

from dataclasses import dataclass, field, replace

import pytest

from headrace.core.control.group_errands import wish_of
from headrace.core.groups.assignment import partitions_of
from headrace.core.groups.entries import Image, OffsetValue
from headrace.core.groups.events import CommitReceived, LeaveReceived, ResetResolved
from headrace.core.groups.identity import Assignor, GroupEpoch, GroupState, GroupType, MemberId, TopicShape
from headrace.core.groups.lag import Watermarks, partition_lag, topic_lag
from headrace.core.groups.sessions import Silence
from headrace.core.groups.status import (
    GroupReport,
    GroupSummary,
    MemberReport,
    assigned,
    group_object,
    groups_object,
    offered_of,
    parse_group,
    parse_groups,
    report_of,
    reported,
    target_for,
    with_silences,
)
from headrace.core.resources.consumer_group import (
    ConsumerGroup,
    ConsumerGroupSpec,
    ConsumerGroupStatus,
    LastReset,
    MemberStatus,
    ResetOffsets,
    ResetTo,
    TopicShare,
    TopicStatus,
)
from headrace.core.resources.metadata import Metadata
from headrace.core.types import BrokerId, Offset, PartitionId, TopicUid
from tests.support.group_world import GROUP, World, member, part, parts, shape

TOPICS = {"flights": shape("flights", 4), "orders": shape("orders", 3), "other": shape("other", 1)}
COORDINATOR = BrokerId(2)


@dataclass
class Cluster:
    """A group in a world, and its resource in an API server."""

    world: World = field(default_factory=lambda: World(dict(TOPICS)))
    resource: ConsumerGroup = field(default_factory=lambda: ConsumerGroup(Metadata(GROUP.name, GROUP.namespace)))
    topics: dict[str, TopicShape] = field(default_factory=lambda: dict(TOPICS))

    def report(self, lags: dict[TopicUid, int | None] | None = None) -> GroupReport:
        group = self.world.machine.groups.get(GROUP)
        state = GroupState.DEAD if group is None else group.state
        return report_of(self.world.image, state, COORDINATOR, self.topics, lags or {})

    def publish(self) -> ConsumerGroupStatus:
        self.resource = reported(self.resource, self.report(), self.world.now_ms)
        return self.resource.status

    def operate(self) -> bool:
        target = target_for(self.resource, self.topics, self.world.now_ms)
        if target is not None:
            self.resource = assigned(self.resource, target, self.topics)
        return target is not None

    def join(self, *names: str, topics: tuple[str, ...] = ("flights", "orders"), instance: str = "") -> None:
        for name in names:
            self.world.send(self.world.process(name, *topics, instance=instance))
        self.world.commit_log()
        self.world.hear_all()


def test_should_assign_what_the_operator_publishes_without_waiting() -> None:
    cluster = Cluster()
    cluster.join("a", "b")
    status = cluster.publish()
    assert (status.state, status.group_epoch, status.assignment_epoch) == (GroupState.ASSIGNING, 2, 0)
    assert offered_of(cluster.resource) is None, "nobody has assigned anything for this epoch"
    assert cluster.operate()
    assert not cluster.operate(), "it is done"
    offered = offered_of(cluster.resource)
    assert offered is not None
    cluster.world.offer(offered)
    cluster.world.commit_log()
    assert cluster.world.ignored == []
    assert cluster.world.image.targets == offered.target
    assert sorted(map(len, offered.target.values())) == [3, 4]
    status = cluster.publish()
    assert (status.state, status.assignment_epoch) == (GroupState.STABLE, 2)
    echo = offered_of(cluster.resource)
    assert echo is not None
    cluster.world.offer(echo)
    cluster.world.commit_log()
    assert cluster.world.ignored == [], "what it says itself comes back with every write"


def test_should_keep_what_the_operator_published_until_it_is_taken() -> None:
    cluster = Cluster()
    cluster.join("a", "b")
    cluster.publish()
    cluster.operate()
    published = cluster.resource.status
    assert cluster.publish() == published, "the coordinator has not seen it"
    cluster.world.deliver(LeaveReceived(cluster.world.numbers.next(), member("b")))
    after = cluster.publish()
    assert [m.member for m in after.members] == ["a"], "with a member goes what it was to have"
    assert after.members[0].assignment == published.members[0].assignment
    assert (after.group_epoch, after.assignment_epoch) == (3, 2)
    assert cluster.operate()


def test_should_show_a_target_that_the_coordinator_made_itself() -> None:
    cluster = Cluster()
    cluster.join("a")
    cluster.publish()
    cluster.world.round(600)
    status = cluster.publish()
    assert (status.group_epoch, status.assignment_epoch) == (1, 1)
    assert [share.partitions for share in status.members[0].assignment] == [(0, 1, 2, 3), (0, 1, 2)]
    assert not cluster.operate(), "the operator has nothing to publish"


def test_should_have_the_coordinator_win_where_both_made_one() -> None:
    cluster = Cluster()
    cluster.join("a", "b")
    cluster.publish()
    cluster.operate()
    mine = cluster.resource.status.members
    swapped = tuple(replace(m, assignment=other.assignment) for m, other in zip(mine, reversed(mine), strict=True))
    cluster.resource = replace(cluster.resource, status=replace(cluster.resource.status, members=swapped))
    cluster.world.round(600)
    assert cluster.publish().members[0].assignment == mine[0].assignment


def test_should_not_take_epochs_of_an_earlier_life_for_the_operators() -> None:
    cluster = Cluster()
    cluster.join("a")
    cluster.resource = replace(
        cluster.resource, status=ConsumerGroupStatus(group_epoch=GroupEpoch(9), assignment_epoch=GroupEpoch(9))
    )
    assert cluster.publish().assignment_epoch == 0
    assert cluster.operate()


def test_should_call_a_group_that_nobody_has_used_empty() -> None:
    cluster = Cluster()
    status = cluster.publish()
    assert (status.state, status.members, status.lag, status.coordinator) == (GroupState.EMPTY, (), "0", COORDINATOR)
    assert not cluster.operate()
    assert offered_of(cluster.resource) is None


def test_should_assign_nothing_to_groups_that_share_out_themselves() -> None:
    cluster = Cluster()
    cluster.join("a")
    cluster.publish()
    cluster.resource = replace(cluster.resource, spec=ConsumerGroupSpec(type=GroupType.SPARK))
    assert not cluster.operate()


def test_should_assign_nothing_while_the_group_is_paused() -> None:
    cluster = Cluster(resource=ConsumerGroup(Metadata("billing", "default"), ConsumerGroupSpec(paused_until_ms=1_000)))
    cluster.world.configure(cluster.resource.settings(0, 0))
    cluster.join("a")
    assert cluster.report().paused
    cluster.publish()
    assert cluster.operate()
    offered = offered_of(cluster.resource)
    assert offered is not None
    cluster.world.offer(offered)
    cluster.world.commit_log()
    assert (cluster.world.ignored, offered.target) == ([], {"a": frozenset()})


@pytest.mark.parametrize("assignor", Assignor)
def test_should_give_members_what_they_had_before(assignor: Assignor) -> None:
    cluster = Cluster(resource=ConsumerGroup(Metadata("billing", "default"), ConsumerGroupSpec(assignor=assignor)))
    cluster.world.configure(cluster.resource.settings(0, 0))
    cluster.join("b", "c", instance="")
    cluster.world.rounds_until(cluster.world.is_stable)
    before = dict(cluster.world.image.targets)
    cluster.join("a", topics=("flights",))
    cluster.publish()
    assert cluster.operate()
    offered = offered_of(cluster.resource)
    assert offered is not None
    cluster.world.offer(offered)
    cluster.world.commit_log()
    assert cluster.world.ignored == []
    if assignor is Assignor.UNIFORM:
        assert all(offered.target[each] <= before[each] for each in before)


def test_should_leave_out_topics_that_the_operator_does_not_see() -> None:
    cluster = Cluster()
    cluster.join("a")
    cluster.publish()
    del cluster.topics["orders"]
    cluster.operate()
    offered = offered_of(cluster.resource)
    assert offered is not None
    assert offered.target == {"a": parts("flights", 0, 1, 2, 3)}
    cluster.world.offer(offered)
    cluster.world.commit_log()
    assert len(cluster.world.ignored) == 1, "the coordinator sees more"


def test_should_name_the_last_reset_once() -> None:
    cluster = Cluster()
    cluster.world.now_ms = 1_000_000
    cluster.world.deliver(ResetResolved(1, "replay-1", {part("flights", 0): OffsetValue(Offset(3))}))
    first = cluster.publish().last_reset
    assert first == LastReset("replay-1", "1970-01-01T00:16:40Z", "Applied")
    cluster.world.now_ms = 2_000_000
    assert cluster.publish().last_reset == first
    cluster.world.deliver(ResetResolved(2, "replay-2", {}))
    assert cluster.publish().last_reset == LastReset("replay-2", "1970-01-01T00:33:20Z", "Applied")


def test_should_believe_the_log_about_a_reset_that_the_status_tells_of() -> None:
    """It was written by somebody whose log was lost; the operator is to ask again."""
    cluster = Cluster()
    wished = ConsumerGroupSpec(reset_offsets=ResetOffsets("replay-1", ResetTo.EARLIEST))
    told = ConsumerGroupStatus(last_reset=LastReset("replay-1", "1970-01-01T00:16:40Z", "Applied"))
    cluster.resource = replace(cluster.resource, spec=wished, status=told)
    assert cluster.publish().last_reset == told.last_reset, "there is no group that says otherwise"
    cluster.world.deliver(CommitReceived(1, {part("flights", 0): OffsetValue(Offset(3))}))
    assert cluster.publish().last_reset is None
    wish = wish_of(cluster.resource)
    assert wish is not None
    assert wish.reset == wished.reset_offsets


def test_should_count_readable_records_that_are_not_committed() -> None:
    cluster = Cluster()
    offsets = {part("flights", n): OffsetValue(Offset(at)) for n, at in ((0, 5), (1, 2), (2, 30))}
    offsets[part("gone", 0)] = OffsetValue(Offset(1))
    cluster.world.deliver(CommitReceived(1, offsets))
    water = {part("flights", n): Watermarks(Offset(4), Offset(20)) for n in range(4)}
    flights = cluster.topics["flights"]
    behind = {each: partition_lag(cluster.world.image, each, water.get(each)) for each in partitions_of(flights)}
    lags = {flights.uid: topic_lag(flights, behind)}
    assert lags == {"uid-flights": 15 + 16 + 0 + 16}
    status = reported(cluster.resource, cluster.report(lags), 0).status
    assert (status.topics, status.lag) == ((TopicStatus("flights", TopicUid("uid-flights"), 47),), "47")
    del water[part("flights", 3)]
    behind = {each: partition_lag(cluster.world.image, each, water.get(each)) for each in partitions_of(flights)}
    lags = {flights.uid: topic_lag(flights, behind)}
    assert lags == {"uid-flights": None}
    assert reported(cluster.resource, cluster.report(lags), 0).status.lag == "unknown"


def test_should_describe_a_group_over_http() -> None:
    cluster = Cluster()
    cluster.join("a", instance="billing-0")
    cluster.world.round(600)
    cluster.topics = {name: TOPICS[name] for name in ("flights", "orders")}
    report = cluster.report()
    body = group_object(report)
    assert parse_group(body, "default") == replace(report, topics=())
    assert body["members"][0]["assignment"][0] == {
        "topic": "flights",
        "topicUid": "uid-flights",
        "partitions": [0, 1, 2, 3],
    }
    assert report.members[0].topics == ("flights", "orders")


def test_should_list_groups_over_http() -> None:
    lines = [
        GroupSummary(name, GroupState.STABLE, 2, COORDINATOR, kind) for name, kind in zip("ba", GroupType, strict=True)
    ]
    body = groups_object(lines, [BrokerId(3), BrokerId(1)])
    assert body["unreachable"] == [1, 3]
    assert parse_groups(body) == ((lines[1], lines[0]), (BrokerId(1), BrokerId(3)))


def test_should_not_name_in_the_status_what_has_no_name_any_more() -> None:
    cluster = Cluster()
    cluster.join("a")
    cluster.world.round(600)
    cluster.topics = cluster.world.topics = {"flights": TOPICS["flights"]}
    cluster.world.see(cluster.topics)
    owned = cluster.report().members[0].owned
    assert [(each.topic, each.uid) for each in owned] == [("", "uid-orders"), ("flights", "uid-flights")]
    assert [share.topic for share in cluster.publish().members[0].owned] == ["flights"]


def test_should_show_an_image_that_has_nothing() -> None:
    report = report_of(Image(GROUP), GroupState.EMPTY, COORDINATOR, {}, {})
    assert (report.members, report.topics, report.group_epoch) == ((), (), 0)


def test_should_offer_only_topics_that_have_a_uid() -> None:
    shares = (MemberStatus(member("a"), assignment=shares_of("flights", 0)),)
    status = ConsumerGroupStatus(members=shares)
    offered = offered_of(ConsumerGroup(Metadata("billing"), status=status))
    assert offered is not None
    assert offered.target == {"a": frozenset()}


def shares_of(topic: str, *numbers: int) -> tuple[TopicShare, ...]:
    return (TopicShare(topic, tuple(map(PartitionId, numbers))),)


@pytest.mark.parametrize("silences", [{}, {MemberId("a"): Silence(silent_ms=200, expires_in_ms=44_800)}])
def test_should_say_how_long_a_member_is_silent(silences: dict[MemberId, Silence]) -> None:
    one = MemberReport(MemberId("a"), "", "10.1.2.3", GroupEpoch(1), ("orders",), "", (), ())
    report = replace(report_of(Image(GROUP), GroupState.EMPTY, COORDINATOR, {}, {}), members=(one,))
    report = with_silences(report, silences)
    assert report.members[0].silence == silences.get(MemberId("a"))
    assert parse_group(group_object(report), GROUP.namespace).members == report.members

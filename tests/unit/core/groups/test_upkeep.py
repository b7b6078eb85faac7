"""A ConsumerGroup comes with its group, says what is true of it, and goes with it if a broker has created it."""

from dataclasses import replace

from headrace.core.groups.entries import OffsetValue
from headrace.core.groups.events import CommitReceived, DeletionReceived, LeaveReceived
from headrace.core.groups.identity import GroupSettings, GroupState, GroupType
from headrace.core.groups.publishing import (
    CreateConsumerGroup,
    DeleteConsumerGroup,
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

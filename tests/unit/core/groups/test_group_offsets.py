"""What is committed, reset and forgotten of one group, and who may do so."""

from itertools import islice

from headrace.core.coordinator import Answer
from headrace.core.groups.entries import GroupValue, OffsetValue
from headrace.core.groups.events import (
    CommitReceived,
    DeletionReceived,
    LeaveReceived,
    Offsets,
    OffsetsAsked,
    ResetResolved,
)
from headrace.core.groups.group import GROUP_OFFSETS_MAX, OFFSETS_BYTES_PER_COMMIT_MAX
from headrace.core.groups.identity import GroupSettings, GroupState, OffsetRetention
from headrace.core.limits import OFFSET_METADATA_BYTES_MAX, OFFSETS_PER_COMMIT_MAX
from headrace.core.types import Offset
from tests.support.group_asking import FLIGHTS, commit, refused, state, told, world_of
from tests.support.group_world import World, member, part, parts

DAY_MS = 24 * 3_600_000


def test_should_refuse_a_commit_of_who_does_not_have_the_partition() -> None:
    world = world_of("a", "b")
    first, second = world.processes
    assert isinstance(told(world, commit(world, 10, member=first.id, epoch=first.seen[0])), Answer)
    late = commit(world, 11, member=second.id, epoch=second.seen[0])
    error = refused(world, late)
    assert (error.code, error.details) == ("FencedMember", {"memberEpoch": second.seen[0]})
    assert world.image.offsets[part("flights", 0)].offset == 10
    assert refused(world, commit(world, 12)).code == "GroupNotEmpty"


def test_should_refuse_a_commit_from_before_the_partition_came_back() -> None:
    world = world_of("a")
    process = world.processes[0]
    old_epoch = process.seen[0]
    world.see({})
    world.rounds_until(world.is_stable, 5)
    world.see(FLIGHTS)
    world.rounds_until(world.is_stable, 5)
    assert refused(world, commit(world, 5, member=process.id, epoch=old_epoch)).code == "FencedMember"
    assert isinstance(told(world, commit(world, 5, member=process.id, epoch=process.seen[0])), Answer)


def test_should_take_a_commit_while_the_partition_is_being_given_up() -> None:
    world = world_of("b")
    process = world.processes[0]
    world.process("a")
    world.round(500)
    assert world.image.currents[process.id].revoking
    given_up = min(world.image.currents[process.id].revoking)
    offsets = {given_up: OffsetValue(Offset(9))}
    request = CommitReceived(world.numbers.next(), offsets, process.id, process.seen[0])
    assert isinstance(told(world, request), Answer)


def test_should_remember_offsets_of_a_group_that_never_had_members() -> None:
    world = World(FLIGHTS)
    assert isinstance(told(world, commit(world, 8)), Answer)
    assert state(world) is GroupState.EMPTY
    world.crash(0)
    answer = told(world, OffsetsAsked(world.numbers.next()))
    assert isinstance(answer, Answer)
    assert answer.reply == Offsets({part("flights", 0): OffsetValue(Offset(8))})
    some = told(world, OffsetsAsked(world.numbers.next(), parts("flights", 1)))
    assert isinstance(some, Answer)
    assert some.reply == Offsets()


def test_should_refuse_offsets_that_break_a_bound() -> None:
    world = World(FLIGHTS)
    assert refused(world, commit(world, -1)).code == "InvalidRequest"
    noted = {part("flights", 0): OffsetValue(Offset(0), metadata="\ud800" * 1366)}
    assert "metadata" in refused(world, CommitReceived(world.numbers.next(), noted)).message
    many = {part("flights", number): OffsetValue(Offset(0)) for number in range(OFFSETS_PER_COMMIT_MAX + 1)}
    assert "in one request" in refused(world, CommitReceived(world.numbers.next(), many)).message
    most = {part("flights", number): OffsetValue(Offset(0)) for number in range(GROUP_OFFSETS_MAX + 1)}
    assert refused(world, ResetResolved(world.numbers.next(), "r", most)).code == "GroupFull"


def test_should_refuse_offsets_that_are_too_large_for_one_batch() -> None:
    world = World(FLIGHTS)
    note = OffsetValue(Offset(0), metadata="x" * OFFSET_METADATA_BYTES_MAX)
    large = {part("flights", number): note for number in range(OFFSETS_PER_COMMIT_MAX)}
    number = world.numbers.next
    for request in (CommitReceived(number(), large), ResetResolved(number(), "r", large)):
        error = refused(world, request)
        assert (error.code, error.details) == ("BatchTooLarge", {"limit": OFFSETS_BYTES_PER_COMMIT_MAX})
        assert "in several requests" in error.message
    fits = dict(islice(large.items(), OFFSETS_BYTES_PER_COMMIT_MAX // 2 // OFFSET_METADATA_BYTES_MAX))
    assert isinstance(told(world, CommitReceived(number(), fits)), Answer)
    bare = dict.fromkeys(large, OffsetValue(Offset(0)))
    assert isinstance(told(world, CommitReceived(number(), bare)), Answer), "as many as may be, without metadata"


def test_should_reset_once_and_only_while_it_is_empty() -> None:
    world = world_of("a")
    process = world.processes[0]

    def reset(name: str, offset: int) -> ResetResolved:
        return ResetResolved(world.numbers.next(), name, {part("flights", 0): OffsetValue(Offset(offset))})

    assert refused(world, reset("replay-1", 5)).code == "GroupNotEmpty"
    told(world, LeaveReceived(world.numbers.next(), process.id))
    batches = len(world.log)
    assert isinstance(told(world, reset("replay-1", 5)), Answer)
    assert len(world.log) == batches + 1, "the id and the offsets are one batch"
    assert world.image.offsets[part("flights", 0)].offset == 5
    assert isinstance(told(world, commit(world, 7)), Answer)
    assert isinstance(told(world, reset("replay-1", 5)), Answer)
    assert world.image.offsets[part("flights", 0)].offset == 7, "not again"
    assert world.image.group.last_reset == "replay-1"


def test_should_delete_a_group_only_while_it_is_empty() -> None:
    world = world_of("a")
    assert refused(world, DeletionReceived(world.numbers.next())).code == "GroupNotEmpty"
    told(world, LeaveReceived(world.numbers.next(), member("a")))
    told(world, commit(world, 3))
    assert isinstance(told(world, DeletionReceived(world.numbers.next())), Answer)
    assert state(world) is GroupState.DEAD
    world.crash(0)
    assert world.machine.groups == {}
    assert isinstance(told(world, DeletionReceived(world.numbers.next())), Answer), "and again"


def test_should_forget_offsets_some_time_after_the_last_member_left() -> None:
    world = world_of("a")
    process = world.processes[0]
    told(world, commit(world, 3, member=process.id, epoch=process.seen[0]))
    world.configure(GroupSettings(session_ms=20 * DAY_MS))
    world.round()
    world.pass_time(8 * DAY_MS)
    assert world.image.offsets, "a member is there"
    told(world, LeaveReceived(world.numbers.next(), process.id))
    world.pass_time(6 * DAY_MS)
    assert world.image.offsets
    world.pass_time(30_000)
    world.pass_time(2 * DAY_MS)
    assert state(world) is GroupState.DEAD
    world.commit_log()
    assert world.committed_image.group == GroupValue()


def test_should_count_from_when_the_last_member_is_removed() -> None:
    """Not from when the group was empty before it: the tick that removes the member may be the one that forgets."""
    world = world_of("a")
    process = world.processes[0]
    told(world, commit(world, 3, member=process.id, epoch=process.seen[0]))
    world.configure(GroupSettings())
    world.pass_time(8 * DAY_MS)
    assert not world.image.members
    assert world.image.offsets
    world.pass_time(8 * DAY_MS)
    assert state(world) is GroupState.DEAD


def test_should_forget_nothing_before_anybody_said_how_long_it_is_kept() -> None:
    world = World(FLIGHTS)
    told(world, commit(world, 3))
    for _ in range(60):
        world.pass_time(DAY_MS)
    assert world.image.offsets
    assert len(world.log) == 1, "nothing was written"
    world.configure(GroupSettings(offsets_retention_ms=None))
    world.pass_time(99 * DAY_MS)
    assert world.image.offsets
    world.configure(GroupSettings(offsets_retention_ms=7 * DAY_MS))
    world.pass_time(60_000)
    assert state(world) is GroupState.DEAD


def test_should_keep_offsets_as_its_log_says_where_nobody_else_does() -> None:
    """The API server is away when the next coordinator begins, or has lost the ConsumerGroup."""
    for kept_days, days, is_kept in ((None, 999, True), (30, 29, True), (30, 31, False)):
        world = World(FLIGHTS)
        told(world, commit(world, 3))
        kept_ms = None if kept_days is None else kept_days * DAY_MS
        world.configure(GroupSettings(offsets_retention_ms=kept_ms))
        assert world.image.group.retention == OffsetRetention(kept_ms)
        world.crash(kept=9)
        assert world.image.group.retention == OffsetRetention(kept_ms)
        world.pass_time(days * DAY_MS)
        assert bool(world.image.offsets) is is_kept


def test_should_not_write_again_how_long_offsets_are_kept() -> None:
    world = World(FLIGHTS)
    world.configure(GroupSettings(offsets_retention_ms=DAY_MS))
    assert world.log == [], "there is no group yet"
    told(world, commit(world, 3))
    assert (len(world.log), world.committed_image.group.retention) == (1, OffsetRetention(DAY_MS)), "in its first batch"
    world.configure(GroupSettings(session_ms=6_000, offsets_retention_ms=DAY_MS))
    assert len(world.log) == 1


def test_should_keep_what_was_committed_later_and_what_is_kept_for_ever() -> None:
    world = World(FLIGHTS)
    world.configure(GroupSettings())
    told(world, commit(world, 3))
    world.pass_time(5 * DAY_MS)
    told(world, CommitReceived(world.numbers.next(), {part("flights", 1): OffsetValue(Offset(4))}))
    world.pass_time(3 * DAY_MS)
    assert [*world.image.offsets] == [part("flights", 1)]
    world.configure(GroupSettings(offsets_retention_ms=None))
    world.pass_time(99 * DAY_MS)
    assert [*world.image.offsets] == [part("flights", 1)]
    assert state(world) is GroupState.EMPTY


def test_should_not_forget_a_group_that_was_reset() -> None:
    world = World(FLIGHTS)
    world.configure(GroupSettings())
    told(world, ResetResolved(world.numbers.next(), "replay-1", {part("flights", 0): OffsetValue(Offset(1))}))
    world.pass_time(30 * DAY_MS)
    assert world.image.offsets == {}
    assert state(world) is GroupState.EMPTY

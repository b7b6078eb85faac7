"""Rules of which each has its story here: without it somebody would read, or commit, what is somebody else's."""

from dataclasses import replace

import pytest

from headrace.core.groups.assignment import Subscription
from headrace.core.groups.entries import (
    CurrentKey,
    CurrentRecord,
    CurrentValue,
    Image,
    MemberKey,
    MemberRecord,
    MemberValue,
    OffsetValue,
)
from headrace.core.groups.events import (
    AbsenceReceived,
    CommitReceived,
    HeartbeatReceived,
    JoinReceived,
    Membership,
    TargetOffered,
)
from headrace.core.groups.identity import GroupEpoch, GroupSettings
from headrace.core.types import Offset
from tests.support.group_asking import FLIGHTS, membership, refused, told
from tests.support.group_world import GROUP, Process, World, member, part, parts


def hear(world: World, process: Process) -> None:
    world.send(process)
    world.commit_log()
    world.hear_all()


def static(*names: str) -> World:
    """Each with an instance id of its own, at rest."""
    world = World(dict(FLIGHTS))
    for name in names:
        world.process(name, instance=f"i-{name}")
    world.rounds_until(world.is_stable)
    return world


def revoking(world: World) -> Process:
    """The first is to give half of it up, and has heard so."""
    first = world.processes[0]
    world.send(world.process("z"))
    world.commit_log()
    world.pass_time(500)
    world.commit_log()
    hear(world, first)
    assert first.owned == parts("flights", 0, 1, 2, 3)
    assert world.image.currents[first.id].revoking.keys() == parts("flights", 2, 3)
    return first


def away(world: World, process: Process) -> None:
    told(world, AbsenceReceived(world.numbers.next(), process.id))
    process.alive = False


def take_over(world: World, name: str, instance: str) -> Membership:
    return membership(
        world, JoinReceived(world.numbers.next(), member(name), world.processes[0].subscription, instance=instance)
    )


@pytest.mark.parametrize("ahead", [1, 7])
def test_should_refuse_a_commit_of_an_epoch_that_is_not_there_yet(ahead: int) -> None:
    world = static("a")
    process = world.processes[0]
    epoch = GroupEpoch(process.seen[0] + ahead)
    commit = CommitReceived(world.numbers.next(), {part("flights", 0): OffsetValue(Offset(5))}, process.id, epoch)
    assert refused(world, commit).code == "FencedMember"


def test_should_answer_a_late_heartbeat_that_owns_what_was_given_up_since() -> None:
    world = static("a")
    first = revoking(world)
    late = first.speak()
    first.give_up()
    hear(world, first)
    hear(world, first)
    assert isinstance(late, HeartbeatReceived)
    assert late.owned > first.owned
    news = membership(world, late)
    assert (news.epoch, news.revision) == first.seen


def test_should_fence_what_an_instance_said_before_it_was_replaced_and_came_back() -> None:
    world = static("a")
    first = world.processes[0]
    late = first.speak()
    away(world, first)
    take_over(world, "b", "i-a")
    told(world, AbsenceReceived(world.numbers.next(), member("b")))
    back = take_over(world, "a", "i-a")
    current = world.image.currents[member("a")]
    assert current.joined == current.mark == (back.epoch, back.revision)
    assert refused(world, late).code == "FencedMember"


def test_should_free_at_once_what_a_replaced_member_was_giving_up() -> None:
    world = static("a")
    revoking(world)
    world.pass_time(6_000)
    world.commit_log()
    answer = take_over(world, "b", "i-a")
    assert answer.assigned == parts("flights", 0, 1)
    assert world.image.owners[part("flights", 2)] == member("z")
    assert not world.image.currents[member("b")].revoking


def test_should_free_at_once_what_a_member_was_giving_up_that_stops_for_a_while() -> None:
    world = static("a")
    away(world, revoking(world))
    assert not world.image.currents[member("a")].revoking
    assert world.image.owners[part("flights", 2)] == member("z")


def test_should_not_take_for_slow_who_stopped_for_a_while_instead_of_giving_up() -> None:
    world = static("a")
    world.configure(GroupSettings(session_ms=600_000))
    first = revoking(world)
    hear(world, first)  # it knows
    away(world, first)
    world.pass_time(400_000)
    assert member("a") in world.image.members


def test_should_note_an_absence_once() -> None:
    world = static("a")
    away(world, world.processes[0])
    before, written = world.image.currents[member("a")], len(world.log)
    told(world, AbsenceReceived(world.numbers.next(), member("a")))
    assert (world.image.currents[member("a")], len(world.log)) == (before, written)


def test_should_change_nothing_when_a_join_is_repeated_at_rest() -> None:
    world = static("a")
    before, written = world.image.currents[member("a")], len(world.log)
    assert take_over(world, "a", "i-a").assigned == parts("flights", 0, 1, 2, 3)
    assert (world.image.currents[member("a")], len(world.log)) == (before, written)


def test_should_not_remove_for_being_slow_who_does_not_know_what_to_give_up() -> None:
    """Its rebalance timeout is over; but it may count on its session, and hears of it only now."""
    world = World(dict(FLIGHTS))
    first = world.process("a")
    first.rebalance_timeout_ms = 1_000
    world.rounds_until(world.is_stable)
    world.send(world.process("z"))
    world.commit_log()
    world.pass_time(500)
    world.pass_time(20_000)
    assert first.id in world.image.members, "it was not heard from since: its session counts"
    hear(world, first)
    world.pass_time(10)
    assert first.id in world.image.members, "it has just been told"
    hear(world, first)
    world.pass_time(10)
    assert first.id not in world.image.members, "it knows, and is late"


def test_should_not_count_what_was_known_before_a_member_joined_again() -> None:
    """It lost all it knew: a heartbeat of the life before does not make it know what to give up now."""
    world = World(dict(FLIGHTS))
    first = world.process("a")
    first.rebalance_timeout_ms = 1_000
    world.rounds_until(world.is_stable)
    first = revoking(world)
    hear(world, first)  # it knows
    late = first.speak()
    first.forget()
    hear(world, first)
    world.deliver(replace(late, request=world.numbers.next()))
    world.pass_time(20_000)
    assert first.id in world.image.members
    hear(world, first)
    assert not world.image.currents[first.id].revoking, "it owns what it was told on joining, and nothing else"


def test_should_not_shorten_a_session_that_was_granted() -> None:
    world = static("a")
    hear(world, world.processes[0])
    world.configure(GroupSettings(session_ms=6_000))
    world.send(world.processes[0])
    world.pass_time(44_000)
    assert member("a") in world.image.members, "it may not have heard that sessions are shorter now"
    world.pass_time(2_000)
    assert member("a") not in world.image.members


def test_should_give_no_longer_than_ever_to_give_up_after_an_election() -> None:
    world = static("a")
    first = revoking(world)
    world.crash(0)
    for _ in range(8):
        world.pass_time(10_000)
        assert first.id in world.image.members or world.now_ms > 60_000
        hear(world, first)
    assert "UnknownMember" in first.refusals, "it is heard from, and does not give up"


def test_should_give_long_sessions_after_an_election_too() -> None:
    world = static("a")
    world.crash(0)
    world.configure(GroupSettings(session_ms=600_000))
    world.pass_time(500_000)
    assert member("a") in world.image.members
    world.pass_time(100_001)
    assert member("a") not in world.image.members


def test_should_give_a_member_that_gives_up_bit_by_bit_its_time_for_each() -> None:
    world = World(dict(FLIGHTS))
    first = world.process("a")
    first.rebalance_timeout_ms = 1_000
    world.rounds_until(world.is_stable)
    first = revoking(world)
    hear(world, first)  # it knows
    world.pass_time(900)
    first.owned = parts("flights", 0, 1, 2)
    hear(world, first)
    hear(world, first)
    world.pass_time(900)
    assert first.id in world.image.members
    assert world.image.owners[part("flights", 3)] == member("z")
    world.pass_time(100)
    assert first.id not in world.image.members


def test_should_keep_the_new_owner_where_a_log_names_him_before_the_old_one_goes() -> None:
    """Each key once in a batch, as it was last put: whoever got something more comes after whom he gave it to."""
    image, shared = Image(GROUP), {part("flights", 0): GroupEpoch(1)}
    a, b = CurrentKey(GROUP, member("a")), CurrentKey(GROUP, member("b"))
    for key, assigned in ((a, shared), (b, shared), (a, {})):
        image.apply(CurrentRecord(key, CurrentValue(GroupEpoch(1), assigned=assigned)))
    assert image.owners == {part("flights", 0): "b"}
    image.apply(CurrentRecord(b, None))
    assert image.owners == {}


def test_should_keep_the_new_holder_of_an_instance_where_the_old_one_goes_later() -> None:
    image, value = Image(GROUP), MemberValue(Subscription(("flights",)), "i-a")
    for name in ("a", "b"):
        image.apply(MemberRecord(MemberKey(GROUP, member(name)), value))
    image.apply(MemberRecord(MemberKey(GROUP, member("a")), None))
    assert image.instances == {"i-a": "b"}
    image.apply(MemberRecord(MemberKey(GROUP, member("b")), None))
    assert image.instances == {}


def test_should_ignore_a_target_that_gives_a_partition_twice() -> None:
    world = World(dict(FLIGHTS))
    for name in ("a", "b"):
        world.send(world.process(name))
    world.offer(
        TargetOffered(
            world.image.group.epoch, {member("a"): parts("flights", 0, 1, 2, 3), member("b"): parts("flights", 3)}
        )
    )
    world.commit_log()
    assert world.ignored == ["it gives 5 partitions, 4 are to be given, each once"]
    assert world.image.targets == {}

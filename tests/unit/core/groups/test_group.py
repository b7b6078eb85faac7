"""One group step by step: who comes and goes, what moves when, and who is refused.

Who is to read what of one group, as its members, topics and settings and the operator change.
"""

from dataclasses import replace

import pytest

from headrace.core.coordinator import Answer, Refuse
from headrace.core.groups.assignment import Subscription
from headrace.core.groups.events import (
    AbsenceReceived,
    Done,
    HeartbeatReceived,
    JoinReceived,
    LeaveReceived,
    Membership,
    TargetOffered,
)
from headrace.core.groups.identity import Assignor, GroupEpoch, GroupSettings, GroupState
from headrace.core.groups.members import GROUP_MEMBERS_MAX
from tests.support.group_asking import FLIGHTS, commit, live, membership, refused, state, told, world_of
from tests.support.group_world import GROUP, World, member, parts, shape

SUBSCRIPTION = Subscription(("flights",))


def test_should_go_from_dead_to_stable_when_the_first_member_joins() -> None:
    world = World(FLIGHTS)
    first = world.process("a")
    assert state(world) is GroupState.DEAD
    world.send(first)
    assert state(world) is GroupState.ASSIGNING
    assert world.told == [], "nothing is told before it is committed"
    world.commit_log()
    world.hear_all()
    assert first.seen == (1, 0)
    world.round(500)
    assert state(world) is GroupState.STABLE
    world.round()
    assert first.owned == parts("flights", 0, 1, 2, 3)


def test_should_give_a_partition_only_once_its_owner_gave_it_up() -> None:
    world = world_of("a")
    old, new = world.processes[0], world.process("b")
    world.round(500)
    assert state(world) is GroupState.RECONCILING
    world.send(old)
    world.commit_log()
    world.hear_all()
    assert old.owned == parts("flights", 0, 1, 2, 3)
    assert old.assigned == parts("flights", 0, 1)
    for _ in range(3):
        world.send(old)
        world.send(new)
        world.commit_log()
        world.hear_all()
    assert new.owned == frozenset(), "the old owner has not given anything up"
    old.give_up()
    world.rounds_until(world.is_stable, 3)
    assert new.owned == parts("flights", 2, 3)
    assert state(world) is GroupState.STABLE


def test_should_give_what_is_given_up_one_by_one() -> None:
    world = world_of("a")
    old = world.processes[0]
    world.process("b")
    world.round(500)
    world.send(old)
    world.commit_log()
    world.hear_all()
    old.owned = parts("flights", 0, 1, 2)
    world.send(old)
    assert world.image.currents[member("b")].assigned.keys() == parts("flights", 3)
    assert state(world) is GroupState.RECONCILING


def test_should_not_take_for_given_up_what_an_old_heartbeat_does_not_name() -> None:
    world = world_of("a")
    old = world.processes[0]
    late = world.note(old, HeartbeatReceived(world.numbers.next(), old.id, old.seen[0], 0, frozenset()))
    world.process("b")
    world.round(500)
    world.deliver(late)
    world.send(old)
    assert world.image.currents[old.id].revoking.keys() == parts("flights", 2, 3)


def test_should_answer_a_repeated_join_and_take_nothing_for_given_up() -> None:
    world = world_of("a")
    world.process("b")
    world.round(500)
    before = world.image.currents[member("a")]
    again = membership(world, JoinReceived(world.numbers.next(), member("a"), SUBSCRIPTION))
    assert (again.epoch, again.assigned) == (before.epoch, parts("flights", 0, 1))
    assert world.image.currents[member("a")] == replace(before, revision=before.revision + 1)
    assert before.revoking.keys() == parts("flights", 2, 3)


@pytest.mark.parametrize("graceful", [True, False])
def test_should_give_a_members_partitions_to_others_when_it_goes(graceful: bool) -> None:
    world = world_of("a", "b")
    gone = world.processes[0]
    gone.alive = False
    if graceful:
        assert told(world, LeaveReceived(world.numbers.next(), gone.id)) == Answer(world.numbers.last, Done(), "done")
        assert isinstance(told(world, LeaveReceived(world.numbers.next(), gone.id)), Answer), "and again"
    else:
        live(world, 46_000)
    world.rounds_until(world.is_stable, 10)
    assert world.processes[1].owned == parts("flights", 0, 1, 2, 3)
    error = refused(world, commit(world, 5, member=gone.id, epoch=gone.seen[0]))
    assert error.code == "UnknownMember"


def test_should_say_how_long_its_members_are_silent() -> None:
    world = world_of("a")
    silence = world.machine.groups[GROUP].silences(world.now_ms + 20_000)[member("a")]
    assert silence.silent_ms >= 20_000
    assert silence.silent_ms + silence.expires_in_ms == 45_000
    assert world.machine.groups[GROUP].silences(world.now_ms + 60_000)[member("a")].expires_in_ms == 0


def test_should_remove_a_member_that_does_not_give_up_in_time() -> None:
    world = world_of("a")
    stuck = world.processes[0]
    stuck.assigned = stuck.owned
    world.process("b")
    world.round(500)
    for _ in range(70):
        world.deliver(HeartbeatReceived(world.numbers.next(), stuck.id, stuck.seen[0], 0, frozenset()))
        world.send(world.processes[1])
        world.pass_time(1_000)
        world.commit_log()
        world.hear_all()
    assert stuck.id not in world.image.members
    assert world.processes[1].owned == parts("flights", 0, 1, 2, 3)


def test_should_keep_the_partitions_of_a_static_member_that_comes_back() -> None:
    world = World(FLIGHTS)
    world.process("a-1", instance="pod-0")
    world.process("b-1", instance="pod-1")
    world.rounds_until(world.is_stable)
    epoch = world.image.group.epoch
    first = world.processes[0]
    first.alive = False
    assert isinstance(told(world, AbsenceReceived(world.numbers.next(), first.id)), Answer)
    assert isinstance(told(world, AbsenceReceived(world.numbers.next(), first.id)), Answer), "and again"
    assert refused(world, first.speak()).code == "FencedMember"
    live(world, 5_000)
    second = world.process("a-2", instance="pod-0")
    world.rounds_until(world.is_stable, 3)
    assert second.owned == first.owned
    assert world.image.group.epoch == epoch, "nothing was shared out again"
    assert refused(world, first.speak()).code == "FencedInstance"


def test_should_take_back_what_an_absent_member_is_not_to_have_any_more() -> None:
    world = World(FLIGHTS)
    absent = world.process("a", instance="pod-0")
    world.rounds_until(world.is_stable)
    absent.alive = False
    told(world, AbsenceReceived(world.numbers.next(), absent.id))
    other = world.process("b")
    world.round(500)
    world.round()
    assert other.owned == parts("flights", 2, 3), "nobody has to give up what nobody reads"
    absent.forget()
    absent.alive = True
    world.rounds_until(world.is_stable, 3)
    assert absent.owned == parts("flights", 0, 1)


def test_should_remove_an_absent_member_that_does_not_come_back() -> None:
    world = World(FLIGHTS)
    absent = world.process("a", instance="pod-0")
    world.rounds_until(world.is_stable)
    told(world, AbsenceReceived(world.numbers.next(), absent.id))
    world.pass_time(45_000)
    assert state(world) is GroupState.EMPTY
    assert isinstance(told(world, AbsenceReceived(world.numbers.next(), absent.id)), Answer)


def test_should_take_absence_for_leave_when_the_member_is_not_static() -> None:
    world = world_of("a")
    told(world, AbsenceReceived(world.numbers.next(), member("a")))
    assert state(world) is GroupState.EMPTY


def test_should_refuse_a_second_process_of_an_instance_until_the_first_is_silent() -> None:
    world = World(FLIGHTS)
    first = world.process("a-1", instance="pod-0")
    world.rounds_until(world.is_stable)
    second = world.process("a-2", instance="pod-0")
    live(world, 20_000)
    assert set(second.refusals) == {"UnreleasedInstance"}
    first.alive = False
    live(world, 7_000)
    assert second.owned == first.owned
    assert refused(world, commit(world, 3, member=first.id, epoch=first.seen[0])).code == "UnknownMember"


def test_should_take_over_before_anything_was_assigned_and_answer_who_waited() -> None:
    world = World(FLIGHTS)
    first = world.process("a-1", instance="pod-0")
    world.send(first)
    world.commit_log()
    world.hear_all()
    epoch, revision = first.seen
    waits = HeartbeatReceived(
        world.numbers.next(), first.id, epoch, revision, frozenset(), instance="pod-0", wait_ms=9_000
    )
    world.deliver(waits)
    world.now_ms += 6_000
    second = JoinReceived(world.numbers.next(), member("a-2"), Subscription(("orders",)), "pod-0")
    world.deliver(second)
    world.commit_log()
    answers = {each.request: each for each in world.told}
    refusal = answers[waits.request]
    assert isinstance(refusal, Refuse)
    assert refusal.error.code == "UnknownMember"
    assert world.image.group.epoch == epoch + 1, "the new process subscribes to something else"


def test_should_refuse_another_instance_id_for_the_same_member() -> None:
    world = World(FLIGHTS)
    world.process("a", instance="pod-0")
    world.round()
    error = refused(world, JoinReceived(world.numbers.next(), member("a"), SUBSCRIPTION, "pod-1"))
    assert error.code == "InvalidRequest"


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (JoinReceived(900, member(""), SUBSCRIPTION), "random UUID"),
        (JoinReceived(900, member("x" * 65), SUBSCRIPTION), "65 characters"),
        (JoinReceived(900, member("x"), SUBSCRIPTION, "i" * 254), "254 characters"),
        (JoinReceived(900, member("x"), SUBSCRIPTION, client_address="i" * 254), "254 characters"),
        (JoinReceived(900, member("x"), SUBSCRIPTION, rebalance_timeout_ms=1), "rebalance timeout"),
    ],
)
def test_should_refuse_a_join_that_breaks_a_bound(request_: JoinReceived, said: str) -> None:
    assert said in refused(World(FLIGHTS), request_).message


def test_should_take_no_more_members_than_a_group_may_have() -> None:
    world = World(FLIGHTS)
    for number in range(GROUP_MEMBERS_MAX):
        world.deliver(JoinReceived(number, member(f"m{number}"), SUBSCRIPTION))
    error = refused(world, JoinReceived(5_000, member("one-more"), SUBSCRIPTION))
    assert (error.code, error.details) == ("GroupFull", {"limit": GROUP_MEMBERS_MAX})


def test_should_fence_a_member_that_says_what_cannot_be() -> None:
    world = world_of("a", "b")
    first = world.processes[0]
    epoch, revision = first.seen
    number = world.numbers.next()
    ahead = HeartbeatReceived(number, first.id, GroupEpoch(epoch + 1), 0, frozenset())
    assert refused(world, ahead).code == "FencedMember"
    before_joining = HeartbeatReceived(number, first.id, GroupEpoch(0), 5, frozenset())
    assert refused(world, before_joining).code == "FencedMember"
    more = HeartbeatReceived(number, first.id, epoch, revision, parts("flights", 0, 1, 2, 3))
    assert "was not given" in refused(world, more).message
    assert (
        refused(world, HeartbeatReceived(number, member("nobody"), epoch, revision, frozenset())).code
        == "UnknownMember"
    )


def test_should_hand_the_members_to_the_next_coordinator() -> None:
    world = world_of("a", "b")
    before = [process.owned for process in world.processes]
    world.configure(GroupSettings(Assignor.RANGE, paused_until_ms=world.now_ms + 1))
    world.pass_time(10)
    world.crash(0)
    live(world, 5_000)
    world.rounds_until(world.is_stable, 8)
    assert [process.owned for process in world.processes] == before


def test_should_begin_sessions_anew_when_the_coordinator_is_another() -> None:
    world = world_of("a", "b")
    world.processes[0].alive = False
    live(world, 40_000)
    world.crash(0)
    live(world, 40_000)
    assert member("a") in world.image.members
    live(world, 7_000)
    assert member("a") not in world.image.members


def test_should_go_on_where_a_lost_decision_had_not_been_told() -> None:
    world = world_of("a")
    old = world.processes[0]
    new = world.process("b")
    world.round(500)
    world.round()
    old.give_up()
    world.send(old)
    assert world.image.currents[new.id].assigned, "decided"
    world.crash(0)
    assert not world.image.currents[new.id].assigned, "and lost"
    world.rounds_until(world.is_stable, 10)
    assert len(new.owned) == 2


def test_should_share_out_among_fifty_that_join_at_once_in_a_few_rounds() -> None:
    world = World({"flights": shape("flights", 100)})
    for number in range(50):
        world.process(f"m{number:02}")
    rounds = world.rounds_until(world.is_stable, 10)
    assert rounds <= 5, "250 ms each"
    assert {len(process.owned) for process in world.processes} == {2}
    assert len([batch for batch in world.log if any(b'"target"' in key for key, _ in batch)]) == 1


def test_should_share_out_again_when_a_member_subscribes_to_something_else() -> None:
    world = world_of("a", topics={"flights": 2, "orders": 2})
    process = world.processes[0]
    process.subscription = Subscription(("orders",))
    world.round(500)
    world.rounds_until(world.is_stable, 5)
    assert process.owned == parts("orders", 0, 1)


def test_should_follow_topics_that_grow_and_go_and_come_again() -> None:
    world = world_of("a")
    world.see({"flights": shape("flights", 6)})
    world.rounds_until(world.is_stable, 5)
    assert len(world.processes[0].owned) == 6
    epoch = world.image.group.epoch
    world.see({"flights": shape("flights", 6), "others": shape("others", 1)})
    assert world.image.group.epoch == epoch, "nobody subscribes to that"
    world.see({"flights": shape("flights-again", 1)})
    world.rounds_until(world.is_stable, 5)
    assert world.processes[0].owned == parts("flights-again", 0)


def test_should_write_only_the_targets_that_change() -> None:
    world = world_of("a", "b", topics={"flights": 2})
    batches = len(world.log)
    world.see({"flights": shape("flights", 3)})
    world.rounds_until(world.is_stable, 5)
    keys = [key for batch in world.log[batches:] for key, _ in batch if b'"target"' in key]
    assert keys == [b'["target",1,"default","billing","a"]']


def test_should_pause_until_it_is_time() -> None:
    world = world_of("a", "b")
    world.configure(GroupSettings(paused_until_ms=world.now_ms + 10_000))
    world.rounds_until(world.is_stable, 6)
    assert [process.owned for process in world.processes] == [frozenset(), frozenset()]
    live(world, 12_000)
    assert world.is_stable()
    assert len(world.processes[0].owned) == 2


def test_should_use_the_assignor_that_is_configured() -> None:
    world = world_of("a", "b", topics={"flights": 3, "orders": 3})
    world.configure(GroupSettings(Assignor.RANGE))
    world.rounds_until(world.is_stable, 8)
    assert world.processes[0].owned == parts("flights", 0, 1) | parts("orders", 0, 1)


def test_should_take_the_operators_target_when_it_fits() -> None:
    world = World(FLIGHTS)
    world.process("a")
    world.process("b")
    world.round(1)
    halves = {member("a"): parts("flights", 0, 2), member("b"): parts("flights", 1, 3)}
    world.offer(TargetOffered(GroupEpoch(2), halves))
    assert world.ignored == []
    assert state(world) is GroupState.STABLE
    assert world.image.targets == halves
    world.offer(TargetOffered(GroupEpoch(2), halves))
    world.commit_log()
    assert world.ignored == [], "it is what there is"
    swapped = {member("a"): halves[member("b")], member("b"): halves[member("a")]}
    world.offer(TargetOffered(GroupEpoch(2), swapped))
    world.commit_log()
    assert "assigned up to 2" in world.ignored[0]
    assert world.image.targets == halves


@pytest.mark.parametrize(
    ("epoch", "target", "said"),
    [
        (1, {"a": parts("flights", 0, 1, 2, 3), "b": frozenset()}, "for epoch 1"),
        (2, {"a": parts("flights", 0, 1, 2, 3)}, "members differ: b"),
        (2, {"a": parts("flights", 0, 1), "b": parts("flights", 2)}, "3 partitions, 4"),
        (2, {"a": parts("flights", 0, 1, 2), "b": parts("flights", 2)}, "each once"),
        (2, {"a": parts("flights", 0, 1, 2), "b": parts("flights", 4)}, "each once"),
    ],
)
def test_should_ignore_a_target_that_does_not_fit(epoch: int, target: dict[str, frozenset[object]], said: str) -> None:
    world = World(FLIGHTS)
    world.process("a")
    world.process("b")
    world.round(1)
    offered = {member(name): each for name, each in target.items()}
    world.offer(TargetOffered(GroupEpoch(epoch), offered))  # type: ignore[arg-type]
    assert said in world.ignored[0]
    assert state(world) is GroupState.ASSIGNING


def test_should_ignore_a_target_with_topics_that_a_member_does_not_read() -> None:
    world = World({"flights": shape("flights", 1), "orders": shape("orders", 1)})
    world.process("a", "flights")
    world.process("b", "orders")
    world.round(1)
    world.offer(TargetOffered(GroupEpoch(2), {member("a"): parts("orders", 0), member("b"): parts("flights", 0)}))
    assert "a does not subscribe to orders" in world.ignored[0]


def test_should_take_nothing_from_the_operator_but_nothing_while_paused() -> None:
    world = World(FLIGHTS)
    world.configure(GroupSettings(paused_until_ms=99_000))
    world.process("a")
    world.round(1)
    world.offer(TargetOffered(GroupEpoch(1), {member("a"): parts("flights", 0, 1, 2, 3)}))
    assert "0 are to be given" in world.ignored[0]
    world.offer(TargetOffered(GroupEpoch(1), {member("a"): frozenset()}))
    assert state(world) is GroupState.STABLE


def test_should_answer_a_heartbeat_that_waits_when_there_is_news_or_at_its_end() -> None:
    world = world_of("a")
    first = world.processes[0]
    epoch, revision = first.seen

    def waiting() -> HeartbeatReceived:
        return HeartbeatReceived(world.numbers.next(), first.id, epoch, revision, first.owned, wait_ms=60_000)

    world.deliver(one := waiting())
    world.commit_log()
    assert world.told == []
    world.deliver(two := waiting())
    assert [each.request for each in world.told] == [one.request], "it waits once"
    world.told = []
    world.pass_time(2_900)
    assert world.told == []
    world.pass_time(200)
    assert world.told == [Answer(two.request, Membership(epoch, revision, None, 3_000, 45_000), "as before")]
    world.told = []
    world.deliver(three := waiting())
    world.process("b")
    world.deliver(world.processes[1].speak())
    world.commit_log()
    world.pass_time(500)
    world.commit_log()
    news = [each for each in world.told if each.request == three.request]
    assert isinstance(news[0], Answer)
    assert news[0].reply == Membership(epoch, revision + 1, parts("flights", 0, 1), 250, 45_000)

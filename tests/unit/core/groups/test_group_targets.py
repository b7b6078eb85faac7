"""Who is to read what of one group, as its members, topics and settings and the operator change."""

import pytest

from headrace.core.coordinator import Answer
from headrace.core.groups.assignment import Subscription
from headrace.core.groups.events import HeartbeatReceived, Membership, TargetOffered
from headrace.core.groups.identity import Assignor, GroupEpoch, GroupSettings, GroupState
from tests.support.group_asking import FLIGHTS, live, state, world_of
from tests.support.group_world import World, member, parts, shape


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

"""What a group answers and refuses, once all is committed: for tests that ask one question at a time."""

from headrace.core.coordinator import Answer, Refuse
from headrace.core.errors import HeadraceError
from headrace.core.groups.entries import OffsetValue
from headrace.core.groups.events import CommitReceived, Membership, Reply, Request
from headrace.core.groups.identity import GroupState
from headrace.core.types import Offset
from tests.support.group_world import GROUP, World, part, shape

FLIGHTS = {"flights": shape("flights", 4)}


def world_of(*names: str, topics: dict[str, int] | None = None) -> World:
    """With these members, at rest."""
    world = World({name: shape(name, count) for name, count in (topics or {"flights": 4}).items()})
    for name in names:
        world.process(name, *world.topics)
    world.rounds_until(world.is_stable)
    return world


def told(world: World, request: Request) -> Answer[Reply] | Refuse:
    """The one answer to `request`, once all is committed."""
    world.deliver(request)
    world.commit_log()
    found, world.told = [each for each in world.told if each.request == request.request], []
    assert len(found) == 1, found
    return found[0]


def refused(world: World, request: Request) -> HeadraceError:
    answer = told(world, request)
    assert isinstance(answer, Refuse), answer
    return answer.error


def membership(world: World, request: Request) -> Membership:
    answer = told(world, request)
    assert isinstance(answer, Answer), answer
    assert isinstance(answer.reply, Membership)
    return answer.reply


def state(world: World) -> GroupState:
    group = world.machine.groups.get(GROUP)
    return GroupState.DEAD if group is None else group.state


def live(world: World, ms: int) -> None:
    """Everybody heartbeats for so long."""
    until_ms = world.now_ms + ms
    while world.now_ms < until_ms:
        world.round(1_000)
        world.check()


def commit(world: World, offset: int, **of_whom: object) -> CommitReceived:
    offsets = {part("flights", 0): OffsetValue(Offset(offset))}
    return CommitReceived(world.numbers.next(), offsets, **of_whom)  # type: ignore[arg-type]

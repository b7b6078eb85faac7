"""The groups of a `World`, as coordinators show them to those who publish them, count them, and look at lags."""

from dataclasses import dataclass, field

from headrace.core.groups.assignment import Topics
from headrace.core.groups.events import DeletionReceived, LeaveReceived, TargetOffered
from headrace.core.groups.group import Group
from headrace.core.groups.identity import GroupName, GroupSettings
from tests.support.group_world import GROUP, World, shape

TOPICS = {"flights": shape("flights", 2)}


@dataclass
class Coordinated:
    """`CoordinatedGroups`, of one group."""

    world: World = field(default_factory=lambda: World(dict(TOPICS)))
    is_here: bool = True
    shapes: Topics = field(default_factory=lambda: TOPICS)
    settings: dict[GroupName, GroupSettings | None] = field(default_factory=dict)
    settled_asked: int = 0

    def configure(self, group: GroupName, settings: GroupSettings | None) -> None:
        self.settings[group] = settings

    def offer(self, group: GroupName, target: TargetOffered) -> None:
        assert group == GROUP
        self.world.offer(target)
        self.world.commit_log()

    def coordinates(self, group: GroupName) -> bool:
        return self.is_here

    def is_settled(self, group: GroupName) -> bool:
        self.settled_asked += 1
        return self.world.machine.is_settled(group)

    def topics(self, namespace: str) -> Topics:
        return self.shapes

    def find(self, group: GroupName) -> Group | None:
        return self.world.machine.groups.get(group) if self.is_here else None

    def all(self) -> list[Group]:
        return [*self.world.machine.groups.values()] if self.is_here else []

    def join(self, name: str) -> None:
        self.world.send(self.world.process(name, "flights"))
        self.world.commit_log()

    def die(self) -> None:
        for process in self.world.processes:
            self.world.deliver(LeaveReceived(self.world.numbers.next(), process.id))
        self.world.deliver(DeletionReceived(self.world.numbers.next()))
        self.world.commit_log()

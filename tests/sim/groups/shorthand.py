"""Steps of scripts that stand for many, as in `tests.sim.shorthand`: what goes well between members and coordinators.

`exchange` lets coordinators begin, look, decide and write, and members send what is due and hear of it, until nothing
moves; with a member as its target, only its requests and answers move. Nobody reads by that (`reads on`), commits
or gives anything up, the ConsumerGroup is left alone, and what is held up stays so.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tests.sim.groups.members import Member
from tests.sim.schedule import WHOLE, Kind, Target, Whole
from tests.sim.shorthand import Shorthand

if TYPE_CHECKING:
    from tests.sim.groups.group import GroupPart

ROUNDS = 6


class GroupShorthand:
    def __init__(self, group: "GroupPart", shorthand: Shorthand) -> None:
        self._group, self._shorthand = group, shorthand

    def kinds(self) -> list[Kind]:
        return [
            Kind("exchange", 0, lambda: [*WHOLE, *self._group.awake()], self.exchange),
            Kind("reads on", 0, self._group.awake, self.read_on),
        ]

    def exchange(self, target: Target, _: int) -> None:
        members = [target] if isinstance(target, Member) else self._group.awake()
        for _ in range(ROUNDS):
            self._coordinate()
            for member in members:
                self._talk(member)
            self._coordinate()
            self._hear(members)

    def read_on(self, member: Member, _: int) -> None:
        """Read a record of each partition that it believes to own, if any: it asks where to begin before."""
        if member.unbegun():
            member.ask_offsets(1)
            self._talk(member)
            self._hear([member])
        for draw in range(len(member.readable())):
            member.read(draw)

    def _coordinate(self) -> None:
        for each in [each for each in self._group.all() if not each.life.is_paused]:
            if each.may_begin:
                each.begin()
            if each.is_behind:
                each.look()
            if each.may_read:
                each.read(0)
            if each.is_to_tick:
                each.tick()
            while each.has_to_append:
                each.append(0)
        self._shorthand.replicate(Whole(), 0)

    def _talk(self, member: Member) -> None:
        if member.is_due:
            member.tick()
        post = self._group.post
        for letter in [each for each in post.there() if each.asker is member]:
            post.deliver(letter, 0)

    def _hear(self, members: Sequence[Member]) -> None:
        post = self._group.post
        for letter in [each for each in post.heard() if each.asker in members]:
            post.answer(letter, 0)

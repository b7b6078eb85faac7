"""The operator's part for a group: it publishes targets, and has resets and deletions carried out.

Of the real one it has what decides (`target_for`, `assigned`, `wish_of`), over what it has seen of the ConsumerGroup,
which may be old. Its requests go the way of those of members: lost, doubled, held up. It stops and comes back.
"""

from collections.abc import Callable
from dataclasses import replace

from headrace.core.control.group_errands import Wish, wish_of
from headrace.core.coordinator import Answer, Refuse
from headrace.core.groups.entries import OffsetValue
from headrace.core.groups.events import DeletionReceived, Reply, ResetResolved, TargetOffered
from headrace.core.groups.identity import MemberId
from headrace.core.groups.status import assigned, offered_of, target_for
from headrace.core.resources.consumer_group import ConsumerGroup
from headrace.core.types import BrokerId, Offset
from tests.sim.groups.post import Post
from tests.sim.groups.shared import Shared
from tests.sim.schedule import Kind
from tests.sim.setting import Setting


class GroupOperator:
    def __init__(self, setting: Setting, shared: Shared, post: Post, find: Callable[[int], BrokerId]) -> None:
        self.label, self.id = "operator", MemberId("operator")
        self.is_paused = False
        """True while it does nothing, and gets nothing."""
        self.published: list[TargetOffered] = []
        self._setting, self._shared, self._post, self._find = setting, shared, post, find
        self._resource = shared.resource
        self._seen = 0
        """The number of versions that were seen."""
        self._last_reset = ""
        """The reset that it asked for last."""
        self._deletions: dict[int, ConsumerGroup] = {}
        """The deletions by request."""

    @property
    def known(self) -> ConsumerGroup | None:
        return self._resource.versions[self._seen - 1] if self._seen else None

    def kinds(self) -> list[Kind]:
        return [
            Kind("operator sees group", 8, lambda: [self] if self.is_behind else [], lambda _, draw: self.see(draw)),
            Kind("operator assigns", 8, lambda: [self] if self.has_to_assign else [], lambda _, __: self.assign()),
            Kind("operator asks group", 2, lambda: [self] if self._wish() else [], lambda _, draw: self.ask(draw)),
        ]

    def faults(self) -> list[Kind]:
        kinds = [
            Kind("operator is hasty", 0.5, lambda: [self] if self._wish(hasty=True) else [], self._ask_hastily),
            Kind("operator rests", 0.15, lambda: [] if self.is_paused else [self], lambda _, __: self.rest()),
            Kind("operator works", 0.3, lambda: [self] if self.is_paused else [], lambda _, __: self.work()),
        ]
        return [replace(kind, is_fault=True) for kind in kinds]

    # -- what it sees ------------------------------------------------------------------------------------------------

    @property
    def is_awake(self) -> bool:
        return not self.is_paused and not self._resource.is_away

    @property
    def is_behind(self) -> bool:
        return self.is_awake and self._seen < len(self._resource.versions)

    def see(self, draw: int) -> None:
        """Take all news, or the next."""
        self._seen = len(self._resource.versions) if draw % 4 else self._seen + 1

    def rest(self) -> None:
        self.is_paused = True

    def work(self) -> None:
        self.is_paused = False

    def wrote(self) -> None:
        if not self.is_paused:
            self._seen = len(self._resource.versions)

    # -- targets -----------------------------------------------------------------------------------------------------

    @property
    def has_to_assign(self) -> bool:
        known = self.known
        may_write = self.is_awake and known is not None and not self._resource.is_written_by(self)
        return may_write and known is not None and self._target(known) is not None

    def _target(self, known: ConsumerGroup) -> ConsumerGroup | None:
        topics = self._shared.topics
        target = target_for(known, topics, self._setting.now_ms)
        return None if target is None else assigned(known, target, topics)

    def assign(self) -> None:
        assert self.known is not None, "it has a group to assign"
        content = self._target(self.known)
        assert content is not None, "it has something to assign"
        self._resource.write(self, self.known, content)
        offered = offered_of(content)
        if offered is not None:
            self.published.append(offered)

    # -- resets and deletions ----------------------------------------------------------------------------------------

    def _wish(self, *, hasty: bool = False) -> Wish | None:
        """Return the wish. A hasty operator does not check whether there are members, nor whether it is done."""
        known = self.known
        if known is None or not self.is_awake:
            return None
        if hasty:
            known = replace(known, status=replace(known.status, members=(), last_reset=None))
        wish = wish_of(known)
        return None if wish is not None and wish.reset is not None and self._is_early(wish.reset.id) else wish

    def _is_early(self, id_: str) -> bool:
        """Resets are asked for one after the other: of one that comes after the next, nobody remembers the id."""
        return self._post.has_reset and id_ != self._last_reset

    def _ask_hastily(self, _: object, draw: int) -> None:
        self.ask(draw, hasty=True)

    def ask(self, draw: int, *, hasty: bool = False) -> None:
        wish, number = self._wish(hasty=hasty), self._shared.next_request()
        assert wish is not None, "it has something to ask for"
        assert self.known is not None, "its wish is of that"
        if wish.reset is None:
            self._deletions[number] = self.known
        else:
            self._last_reset = wish.reset.id
        request = DeletionReceived(number) if wish.reset is None else self._resolved(number, wish.reset.id, draw)
        self._shared.askers[number] = self
        self._post.send(self, self._find(draw), request)

    def _resolved(self, number: int, id_: str, draw: int) -> ResetResolved:
        ends = self._shared.ends
        chosen = [each for at, each in enumerate(sorted(ends)) if draw >> (at + 2) & 1]
        offsets = {each: OffsetValue(Offset((draw >> 9) % (ends[each] + 1))) for each in chosen}
        return ResetResolved(number, id_, offsets)

    def missed(self) -> None:
        """Note that there is no broker where it wrote to: it asks again."""

    def hear(self, told: Answer[Reply] | Refuse) -> None:
        """Take an answer: a deleted group is let go of; other results are in the status."""
        deleted = self._deletions.pop(told.request, None)
        if isinstance(told, Refuse):
            self._setting.counts[f"operator refused: {told.error.code}"] += 1
        elif deleted is not None and not self._resource.is_written_by(self):
            self._resource.write(self, deleted, None)

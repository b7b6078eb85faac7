"""Which groups need no look: nothing was to be done about them, and they, and all that was looked at, are as they were.

A plan depends on the group, on the picture of topics and brokers, on what brokers have answered, and where it is paused
on time. So with a thousand groups, of which one changes all the time, a pass costs one. One per operator process, used
in its event loop; forgetting everything is always right.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from headrace.core.control.group_errands import Wish
from headrace.core.control.group_verdicts import Verdict
from headrace.core.control.group_view import Coordinators, GroupView
from headrace.core.resources.consumer_group import ConsumerGroup


class _Seen(NamedTuple):
    group: ConsumerGroup
    verdict: Verdict | None


class GroupResting:
    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        """By uid: those about which nothing was to be done."""
        self._looked_at: tuple[object, ...] = ()
        """The picture, and ..."""
        self._around: tuple[object, ...] = ()
        """... what plans depend on in it: most pictures are the same in this."""

    def among(self, view: GroupView, verdicts: Mapping[Wish, Verdict]) -> frozenset[str]:
        """The uids of those that rest."""
        self._look_around(view)
        said = {wish.group: verdict for wish, verdict in verdicts.items()}
        return frozenset(
            uid
            for group in view.groups
            if (seen := self._seen.get(uid := group.metadata.uid)) is not None
            and seen.group is group
            and seen.verdict is said.get(uid)
        )

    def _look_around(self, view: GroupView) -> None:
        looked_at = (view.topics, view.observed, view.settled, view.is_whole)
        if self._looked_at and all(a is b for a, b in zip(looked_at, self._looked_at, strict=True)):
            return
        coordinators = Coordinators.of(view)
        # Whether it is settled matters only where somebody has no coordinator.
        around = (view.shapes(), coordinators, view.settled or coordinators.are_complete)
        if around != self._around:
            self._seen = {}
        self._looked_at, self._around = looked_at, around

    def settle(self, view: GroupView, verdicts: Mapping[Wish, Verdict], planned: Collection[str]) -> None:
        """Of `view` only `planned` have something to be done."""
        said = {wish.group: verdict for wish, verdict in verdicts.items()}
        self._seen = {
            group.metadata.uid: _Seen(group, said.get(group.metadata.uid))
            for group in view.groups
            if group.metadata.uid not in planned and group.spec.paused_until_ms is None
        }

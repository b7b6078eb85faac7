"""When the operator asks brokers for what groups need, and what it has heard. No I/O; one per operator process.

    wished ── a place is free ──> asked ── answered ──> a verdict, shown in conditions
       └───────── its time has come, and it is wished as before ─────────┘

A wish that is no more is forgotten, whatever its answer will be; a new one is asked for at once. What was done is
asked for again only if the resource does not show it after a while: all of it may be repeated. A new process knows
nothing and asks again. A group that has members, as its status tells, is asked about seldom: until they are gone.
Invariant: at most one errand for a wish, GROUP_ERRANDS_MAX for all.
"""

from collections.abc import Iterable

from headrace.core.control.group_errands import Wish, wish_of
from headrace.core.control.group_verdicts import Result, Verdict
from headrace.core.limits import GROUP_ERRAND_RETRY_MS, GROUP_ERRANDS_MAX, RECONCILE_RESYNC_MS
from headrace.core.resources.consumer_group import ConsumerGroup
from headrace.core.slotted import dataclass


@dataclass(slots=True)
class _Asked:
    wish: Wish
    due_ms: int
    verdict: Verdict | None = None
    is_held: bool = False
    """By members, as far as is known; then it is due later."""

    def takes_note_of(self, group: ConsumerGroup) -> None:
        refused = self.verdict is not None and self.verdict.result is Result.NOT_EMPTY
        self.is_held = refused and bool(group.status.members)

    @property
    def next_ms(self) -> int:
        return self.due_ms + (RECONCILE_RESYNC_MS if self.is_held else 0)


class GroupAsking:
    def __init__(self, most: int = GROUP_ERRANDS_MAX) -> None:
        self._most = most
        self._asked: dict[str, _Asked] = {}
        """By the uid of the group."""
        self._running: set[Wish] = set()

    def due(self, groups: Iterable[ConsumerGroup], now_ms: int) -> list[tuple[ConsumerGroup, Wish]]:
        """All groups as they are now -> whom to ask for; each is to be `answered`, or `failed`."""
        wished = {group.metadata.uid: (group, wish) for group in groups if (wish := wish_of(group)) is not None}
        self._asked = {
            uid: known if (known := self._asked.get(uid)) is not None and known.wish == wish else _Asked(wish, now_ms)
            for uid, (_, wish) in wished.items()
        }
        for uid, asked in self._asked.items():
            asked.takes_note_of(wished[uid][0])
        waiting = [asked for asked in self._waiting() if asked.next_ms <= now_ms]
        chosen = sorted(waiting, key=lambda asked: asked.next_ms)[: self._most - len(self._running)]
        self._running |= {asked.wish for asked in chosen}
        return [wished[asked.wish.group] for asked in chosen]

    def answered(self, wish: Wish, verdict: Verdict, now_ms: int) -> bool:
        """Whether it says anything new."""
        self._running.discard(wish)
        asked = self._asked.get(wish.group)
        if asked is None or asked.wish != wish:
            return False
        is_new = asked.verdict != verdict
        pause_ms = RECONCILE_RESYNC_MS if verdict.result in (Result.DONE, Result.REFUSED) else GROUP_ERRAND_RETRY_MS
        asked.verdict, asked.due_ms = verdict, now_ms + pause_ms
        return is_new

    def verdicts(self) -> dict[Wish, Verdict]:
        """The last ones of what is wished for."""
        return {asked.wish: asked.verdict for asked in self._asked.values() if asked.verdict is not None}

    def next_due_ms(self) -> int | None:
        due = (asked.next_ms for asked in self._waiting())
        return min(due, default=None) if len(self._running) < self._most else None

    def _waiting(self) -> list[_Asked]:
        return [asked for asked in self._asked.values() if asked.wish not in self._running]

    def drop(self) -> None:
        """This operator does not act any more: nothing that it has heard counts. What it has sent comes to its end."""
        self._asked = {}

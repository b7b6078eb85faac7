"""When the operator asks brokers for what groups need, and what it has heard. No I/O; one per operator process.

    wished ── a place is free ──> asked ── answered ──> a verdict, shown in conditions
       └───────── its time has come, and it is wished as before ─────────┘

A wish that is no more is forgotten, whatever its answer will be; a new one is asked for at once. What was done is
asked for again only if the resource does not show it after a while: all of it may be repeated. A new process knows
nothing and asks again. Invariant: at most one errand for a wish, GROUP_ERRANDS_MAX for all.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.core.control.group_errands import Wish, wish_of
from headrace.core.control.group_verdicts import Result, Verdict
from headrace.core.limits import GROUP_ERRAND_RETRY_MS, GROUP_ERRANDS_MAX, RECONCILE_RESYNC_MS
from headrace.core.resources.consumer_group import ConsumerGroup


@dataclass(slots=True)
class _Asked:
    wish: Wish
    due_ms: int
    verdict: Verdict | None = None
    running: bool = False


class GroupAsking:
    def __init__(self, most: int = GROUP_ERRANDS_MAX) -> None:
        self._most = most
        self._asked: dict[str, _Asked] = {}
        """By the uid of the group."""
        self._running = 0

    def due(self, groups: Iterable[ConsumerGroup], now_ms: int) -> list[tuple[ConsumerGroup, Wish]]:
        """All groups as they are now -> whom to ask for; each is to be `answered`, or `failed`."""
        wished = {group.metadata.uid: (group, wish) for group in groups if (wish := wish_of(group)) is not None}
        self._asked = {
            uid: known if (known := self._asked.get(uid)) is not None and known.wish == wish else _Asked(wish, now_ms)
            for uid, (_, wish) in wished.items()
        }
        waiting = [asked for asked in self._asked.values() if not asked.running and asked.due_ms <= now_ms]
        chosen = sorted(waiting, key=lambda asked: asked.due_ms)[: self._most - self._running]
        for asked in chosen:
            asked.running = True
        self._running += len(chosen)
        return [wished[asked.wish.group] for asked in chosen]

    def answered(self, wish: Wish, verdict: Verdict, now_ms: int) -> None:
        self._running -= 1
        asked = self._asked.get(wish.group)
        if asked is None or asked.wish != wish:
            return
        pause_ms = RECONCILE_RESYNC_MS if verdict.result in (Result.DONE, Result.REFUSED) else GROUP_ERRAND_RETRY_MS
        asked.verdict, asked.running, asked.due_ms = verdict, False, now_ms + pause_ms

    def verdicts(self) -> dict[Wish, Verdict]:
        """The last ones of what is wished for."""
        return {asked.wish: asked.verdict for asked in self._asked.values() if asked.verdict is not None}

    def next_due_ms(self) -> int | None:
        due = (asked.due_ms for asked in self._asked.values() if not asked.running)
        return min(due, default=None) if self._running < self._most else None

    def drop(self) -> None:
        """This operator does not act any more: nothing that it has heard counts."""
        self._asked = {}

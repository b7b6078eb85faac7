"""When a broker looks at the ConsumerGroups of the groups that it coordinates: at once, and never too often.

    changed, lag_changed ──> due ── take ──> looked at ── nothing is to be written ──> (until the next change)
                              ^                  └─ began ──> on its way ── ended ──┘
                              └──────── hold, failed ────────────┘

What is shown of a group is decided when its turn comes, so that a hundred changes, or an hour without API server, cost
one write of what is true then. Between two writes of one group lie GROUP_STATUS_INTERVAL_MS; for the sake of its lag
alone, GROUP_LAG_STATUS_INTERVAL_MS; in each second there are GROUP_WRITES_PER_SECOND_MAX of all groups together, and
GROUP_WRITES_IN_FLIGHT_MAX of them are on their way at once. Whoever has waited longest is next.

Pure; one per broker. Bounded by the groups that it coordinates: `forget` those that it does no more.
"""

from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

from headrace.core.groups.identity import GroupName
from headrace.core.limits import (
    GROUP_LAG_STATUS_INTERVAL_MS,
    GROUP_STATUS_INTERVAL_MS,
    GROUP_WRITES_IN_FLIGHT_MAX,
    GROUP_WRITES_PER_SECOND_MAX,
)

_SECOND_MS = 1_000


class Turn(NamedTuple):
    group: GroupName
    is_for_lag: bool
    """Whether it may be written if nothing but its lag is new."""


@dataclass(slots=True)
class _Group:
    has_changed: bool = False
    has_new_lag: bool = False
    not_before_ms: int = 0
    lag_not_before_ms: int = 0
    is_on_its_way: bool = False
    is_forgotten: bool = False
    due_ms: int | None = None
    """Of its one valid entry in the queue."""


class Publishing:
    def __init__(self) -> None:
        self._groups: dict[GroupName, _Group] = {}
        self._queue: list[tuple[int, GroupName]] = []
        """A heap; an entry whose time is not the group's is void."""
        self._written: deque[int] = deque(maxlen=GROUP_WRITES_PER_SECOND_MAX)
        """When the last writes began."""
        self._on_their_way = 0

    def changed(self, group: GroupName, now_ms: int) -> None:
        """Something of it is to be shown."""
        self._known(group).has_changed = True
        self._queue_up(group, now_ms)

    def lag_changed(self, group: GroupName, now_ms: int) -> None:
        self._known(group).has_new_lag = True
        self._queue_up(group, now_ms)

    def hold(self, group: GroupName, until_ms: int) -> None:
        """Look at it again then, not before."""
        known = self._known(group)
        known.has_changed, known.not_before_ms = True, max(known.not_before_ms, until_ms)
        self._queue_up(group, until_ms)

    def forget(self, group: GroupName) -> None:
        """It is somebody else's to show; a write that is on its way still counts until it has ended."""
        known = self._groups.get(group)
        if known is not None and known.is_on_its_way:
            known.has_changed = known.has_new_lag = False
            known.is_forgotten = True
        elif known is not None:
            del self._groups[group]

    def take(self, now_ms: int) -> Turn | None:
        """Whose turn it is; tell at once what is done about it: `began`, or nothing."""
        while self._has_room(now_ms) and self._queue and self._queue[0][0] <= now_ms:
            due_ms, group = heappop(self._queue)
            known = self._groups.get(group)
            if known is None or known.due_ms != due_ms:
                continue
            known.due_ms, known.has_changed = None, False
            is_for_lag = known.has_new_lag and known.lag_not_before_ms <= now_ms
            known.has_new_lag = known.has_new_lag and not is_for_lag
            self._queue_up(group, now_ms)
            return Turn(group, is_for_lag)
        return None

    def began(self, group: GroupName, now_ms: int) -> None:
        """All that is to be shown of it is on its way."""
        known = self._known(group)
        known.is_on_its_way, known.has_new_lag, known.due_ms = True, False, None
        known.not_before_ms = now_ms + GROUP_STATUS_INTERVAL_MS
        known.lag_not_before_ms = now_ms + GROUP_LAG_STATUS_INTERVAL_MS
        self._written.append(now_ms)
        self._on_their_way += 1

    def ended(self, group: GroupName, now_ms: int) -> None:
        """It landed, or did not."""
        known = self._groups[group]
        assert known.is_on_its_way, "it began first"
        known.is_on_its_way = False
        self._on_their_way -= 1
        if known.is_forgotten:
            del self._groups[group]
        else:
            self._queue_up(group, now_ms)

    def next_ms(self, now_ms: int) -> int | None:
        """When there may be a turn to take; None: not before something else happens."""
        while self._queue and self._is_void(*self._queue[0]):
            heappop(self._queue)
        if not self._queue or self._on_their_way >= GROUP_WRITES_IN_FLIGHT_MAX:
            return None
        due_ms = self._queue[0][0]
        return due_ms if self._has_room(max(due_ms, now_ms)) else max(due_ms, self._written[0] + _SECOND_MS)

    def _known(self, group: GroupName) -> _Group:
        known = self._groups.setdefault(group, _Group())
        known.is_forgotten = False
        return known

    def _has_room(self, now_ms: int) -> bool:
        is_fast = len(self._written) == GROUP_WRITES_PER_SECOND_MAX and now_ms - self._written[0] < _SECOND_MS
        return self._on_their_way < GROUP_WRITES_IN_FLIGHT_MAX and not is_fast

    def _is_void(self, due_ms: int, group: GroupName) -> bool:
        known = self._groups.get(group)
        return known is None or known.due_ms != due_ms

    def _queue_up(self, group: GroupName, now_ms: int) -> None:
        known = self._groups[group]
        if known.is_on_its_way or not (known.has_changed or known.has_new_lag):
            return
        due_ms = max(now_ms, known.not_before_ms, 0 if known.has_changed else known.lag_not_before_ms)
        if known.due_ms is None or due_ms < known.due_ms:
            known.due_ms = due_ms
            heappush(self._queue, (due_ms, group))

"""Who is alive, and who takes too long: what a coordinator knows of members in memory only.

A new coordinator knows nobody's last sign of life, and gives all of them a whole session. A session that was granted is
never shortened: its member counts on it until it has heard of another one. Owned by one `Group`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from headrace.core.groups.identity import GroupEpoch, MemberId
from headrace.core.limits import GROUP_HEARTBEAT_MS_MAX

STATIC_SILENT_HEARTBEATS = 2
"""A static member that missed so many may be replaced by another process of the same instance id."""


class Silence(NamedTuple):
    """How a member's session is, at the moment of asking."""

    silent_ms: int
    """Since it was heard of."""
    expires_in_ms: int
    """Until it loses its partitions, unless it is heard of."""


class Waiting(NamedTuple):
    """A heartbeat that is answered when there is news, or at `until_ms`."""

    request: int
    epoch: GroupEpoch
    revision: int
    """What the member has seen."""
    until_ms: int


@dataclass(slots=True)
class Session:
    heard_ms: int
    expires_ms: int
    revoke_by_ms: int | None = None
    """Until when the member must have given up what it is to give up; None: nothing."""
    unaware_until_ms: int = 0
    """A member that has not heard that it is to give something up may count on its session as it was then."""
    waiting: Waiting | None = None

    @property
    def removed_ms(self) -> int:
        """When it was too slow, at the latest."""
        if self.revoke_by_ms is None:
            return self.expires_ms
        return min(self.expires_ms, max(self.revoke_by_ms, self.unaware_until_ms))

    @property
    def due_ms(self) -> int:
        return self.removed_ms if self.waiting is None else min(self.removed_ms, self.waiting.until_ms)


NEVER: Final = 1 << 62
"""Later than any time."""


class Sessions:
    def __init__(self) -> None:
        self.by_member: dict[MemberId, Session] = {}
        self.due_ms = NEVER
        """Nobody is overdue, and no heartbeat has waited long enough, before: maybe not then either, as signs of life
        do not move it."""

    def begin(self, members: Iterable[MemberId], now_ms: int, session_ms: int) -> None:
        """Of a coordinator that has just read its log."""
        for member in members:
            self.hear(member, now_ms, session_ms)

    def hear(self, member: MemberId, now_ms: int, session_ms: int) -> Session:
        session = self.by_member.setdefault(member, Session(now_ms, 0))
        session.heard_ms, session.expires_ms = now_ms, max(session.expires_ms, now_ms + session_ms)
        self.due_ms = min(self.due_ms, session.expires_ms)
        return session

    def keep_waiting(self, waiting: Waiting) -> None:
        self.due_ms = min(self.due_ms, waiting.until_ms)

    def knows(self, session: Session) -> None:
        """Its member has heard what it is to give up."""
        session.unaware_until_ms = 0
        self.due_ms = min(self.due_ms, session.due_ms)

    def look_again(self) -> None:
        """All who were due have had their due."""
        self.due_ms = min((session.due_ms for session in self.by_member.values()), default=NEVER)

    def stretch(self, session_ms: int) -> None:
        """Who was heard from may know that sessions are that long, from an earlier coordinator."""
        for session in self.by_member.values():
            session.expires_ms = max(session.expires_ms, session.heard_ms + session_ms)

    def is_silent(self, member: MemberId, now_ms: int, session_ms: int) -> bool:
        """Whether the member missed several heartbeats: another process may have taken its place."""
        silent_ms = now_ms - self.by_member[member].heard_ms
        return silent_ms >= STATIC_SILENT_HEARTBEATS * heartbeat_ms(session_ms)

    def silences(self, now_ms: int) -> dict[MemberId, Silence]:
        return {
            member: Silence(max(0, now_ms - session.heard_ms), max(0, session.removed_ms - now_ms))
            for member, session in self.by_member.items()
        }

    def overdue(self, now_ms: int) -> list[tuple[MemberId, str]]:
        """Who is to be removed, and why."""
        found = []
        for member, session in self.by_member.items():
            if now_ms >= session.expires_ms:
                found.append((member, "session expired"))
            elif now_ms >= session.removed_ms:
                found.append((member, "did not give its partitions up in time"))
        return found


def heartbeat_ms(session_ms: int) -> int:
    """How often a member is to be heard from."""
    return min(GROUP_HEARTBEAT_MS_MAX, session_ms // 3)

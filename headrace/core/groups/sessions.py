"""The sessions of members: which are alive, and which take too long. A coordinator keeps them in memory only.

A new coordinator knows no member's last heartbeat, and gives all of them a whole session. A session that was granted is
never shortened: its member counts on it until it has got another one. One `Group` owns the object.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from headrace.core.groups.identity import GroupEpoch, MemberId
from headrace.core.limits import GROUP_HEARTBEAT_MS_MAX

STATIC_SILENT_HEARTBEATS = 2
"""The number of missed heartbeats after which a static member may be replaced by another process of the same instance
id."""
NEVER: Final = 1 << 62
"""A time later than any other."""


class Silence(NamedTuple):
    """The state of a member's session at the moment of asking."""

    silent_ms: int
    """The time since its last heartbeat."""
    expires_in_ms: int
    """The time until it loses its partitions, unless a heartbeat comes."""


class Waiting(NamedTuple):
    """A heartbeat that is answered when there is news, or at `until_ms`."""

    request: int
    epoch: GroupEpoch
    revision: int
    """The revision that the member has seen."""
    until_ms: int


@dataclass(slots=True)
class MemberSession:
    heard_ms: int
    expires_ms: int
    revoke_by_ms: int | None = None
    """The time until which the member must have given up what it is to give up; None: nothing."""
    unaware_until_ms: int = 0
    """The time until which a member may count on its former session because it does not know that it is to give
    something up."""
    waiting: Waiting | None = None

    @property
    def removed_ms(self) -> int:
        """Return when it was too slow, at the latest."""
        if self.revoke_by_ms is None:
            return self.expires_ms
        return min(self.expires_ms, max(self.revoke_by_ms, self.unaware_until_ms))

    @property
    def due_ms(self) -> int:
        return self.removed_ms if self.waiting is None else min(self.removed_ms, self.waiting.until_ms)


class Sessions:
    def __init__(self) -> None:
        self.by_member: dict[MemberId, MemberSession] = {}
        self.due_ms = NEVER
        """The time before which no member is overdue, and no heartbeat has waited long enough; maybe not then either,
        as heartbeats do not move it."""

    def begin(self, members: Iterable[MemberId], now_ms: int, session_ms: int) -> None:
        """Begin the sessions of a coordinator that has just read its log."""
        for member in members:
            self.refresh(member, now_ms, session_ms)

    def refresh(self, member: MemberId, now_ms: int, session_ms: int) -> MemberSession:
        session = self.by_member.setdefault(member, MemberSession(now_ms, 0))
        session.heard_ms, session.expires_ms = now_ms, max(session.expires_ms, now_ms + session_ms)
        self.due_ms = min(self.due_ms, session.expires_ms)
        return session

    def keep_waiting(self, waiting: Waiting) -> None:
        self.due_ms = min(self.due_ms, waiting.until_ms)

    def knows(self, session: MemberSession) -> None:
        """Note that the member knows what it is to give up."""
        session.unaware_until_ms = 0
        self.due_ms = min(self.due_ms, session.due_ms)

    def recompute_due(self) -> None:
        """Compute the due time again, once all that was due is done."""
        self.due_ms = min((session.due_ms for session in self.by_member.values()), default=NEVER)

    def stretch(self, session_ms: int) -> None:
        """Stretch sessions: a member may know, from an earlier coordinator, that they are that long."""
        for session in self.by_member.values():
            session.expires_ms = max(session.expires_ms, session.heard_ms + session_ms)

    def is_silent(self, member: MemberId, now_ms: int, session_ms: int) -> bool:
        """Return whether the member missed several heartbeats: another process may have taken its place."""
        silent_ms = now_ms - self.by_member[member].heard_ms
        return silent_ms >= STATIC_SILENT_HEARTBEATS * heartbeat_ms(session_ms)

    def silences(self, now_ms: int) -> dict[MemberId, Silence]:
        return {
            member: Silence(max(0, now_ms - session.heard_ms), max(0, session.removed_ms - now_ms))
            for member, session in self.by_member.items()
        }

    def overdue(self, now_ms: int) -> list[tuple[MemberId, str]]:
        """Return the members that are to be removed, and why."""
        found = []
        for member, session in self.by_member.items():
            if now_ms >= session.expires_ms:
                found.append((member, "session expired"))
            elif now_ms >= session.removed_ms:
                found.append((member, "did not give its partitions up in time"))
        return found


def heartbeat_ms(session_ms: int) -> int:
    """Return how often a member must send heartbeats."""
    return min(GROUP_HEARTBEAT_MS_MAX, session_ms // 3)

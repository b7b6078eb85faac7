"""What happens to a member, and what it is to do: the words of `MemberState.step`."""

from typing import TypeAlias

from headrace.core.errors import HeadraceError
from headrace.core.groups.assigning import Partitions
from headrace.core.groups.events import AbsenceReceived, HeartbeatReceived, JoinReceived, LeaveReceived, Membership
from headrace.core.groups.subscriptions import Subscription
from headrace.core.slotted import dataclass


@dataclass(frozen=True, slots=True)
class Answered:
    request: int
    membership: Membership | None
    """None: of a request to leave."""


@dataclass(frozen=True, slots=True)
class Refused:
    """By the coordinator, by a broker on the way, or by nobody: connections and time limits included."""

    request: int
    error: HeadraceError


@dataclass(frozen=True, slots=True)
class Ticked:
    """`MemberState.next_ms` is reached; earlier does no harm."""


@dataclass(frozen=True, slots=True)
class Subscribed:
    subscription: Subscription


@dataclass(frozen=True, slots=True)
class GivenUp:
    """What a `Revoke` was about is read no more, and what was read of it is committed."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Doubted:
    """A commit was refused as late: the coordinator is to say how things are."""

    reason: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """Nothing is read any more, and all is committed."""

    for_a_while: bool = False
    """Another process of the same instance id will take over: partitions wait for it."""


Event: TypeAlias = Answered | Refused | Ticked | Subscribed | GivenUp | Doubted | Stopped


@dataclass(frozen=True, slots=True)
class Send:
    """To the coordinator, beside whatever is on its way: an answer to an earlier one may be waited for or not."""

    request: JoinReceived | HeartbeatReceived | LeaveReceived | AbsenceReceived
    timeout_ms: int
    """Who is not answered by then may stop waiting: it is sent again."""
    reason: str


@dataclass(frozen=True, slots=True)
class Assigned:
    """Read these as well, from what the group has committed."""

    partitions: Partitions
    reason: str


@dataclass(frozen=True, slots=True)
class Revoke:
    """Stop reading these, commit what was read, and say `GivenUp`; until then heartbeats say that they are owned."""

    ticket: int
    partitions: Partitions
    by_ms: int
    """Later all is lost."""
    reason: str


@dataclass(frozen=True, slots=True)
class Lost:
    """All that was owned, and what was to be given up, may be somebody else's: stop reading at once, commit nothing."""

    partitions: Partitions
    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """For good: this member will not be in the group again."""

    error: HeadraceError
    reason: str


@dataclass(frozen=True, slots=True)
class Left:
    """It is over, as was asked for."""

    reason: str


Effect: TypeAlias = Send | Assigned | Revoke | Lost | Failed | Left

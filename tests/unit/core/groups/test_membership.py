"""A member step by step: `tests/golden/membership/*.txt`, what happens and, indented, what the member makes of it.

    TIME polls|waits NAME [instance=I] [rebalance=MS]                         it begins
    TIME answered REQUEST EPOCH.REVISION [0,1|same] [session=MS] [heartbeat=MS]    partitions of `flights`
    TIME refused REQUEST CODE [retryAfterMs=MS] | left REQUEST | given up TICKET | subscribed TOPIC | doubted | tick
    TIME stopped [for a while] | holds

To record what members make of it again, after a deliberate change:

    HEADRACE_REWRITE_GOLDEN=1 pytest tests/unit/core/groups/test_membership.py
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.core import errors
from headrace.core.errors import HeadraceError
from headrace.core.groups.assignment import Partitions, Subscription
from headrace.core.groups.events import HeartbeatReceived, JoinReceived, Membership
from headrace.core.groups.identity import GroupEpoch
from headrace.core.groups.membership import (
    Assigned,
    Doubted,
    Effect,
    Event,
    GivenUp,
    Identity,
    Left,
    Lost,
    MembershipAnswered,
    MembershipFailed,
    MembershipRefused,
    MembershipTicked,
    MemberState,
    Revoke,
    Send,
    Stopped,
    Subscribed,
)
from tests.support.group_world import member, parts

FOLDER = Path(__file__).parents[3] / "golden" / "membership"
REWRITE = os.environ.get("HEADRACE_REWRITE_GOLDEN") == "1"
SCRIPTS = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_should_do_what_the_script_says(path: Path) -> None:
    text = path.read_text()
    told = "".join(line + "\n" for line in played(text.splitlines()))
    if REWRITE:
        path.write_text(told)
    assert told == text


def played(lines: list[str]) -> list[str]:
    told: list[str] = []
    state: MemberState | None = None
    for line in lines:
        if line.startswith("    "):
            continue
        told.append(line)
        if not line or line.startswith("#"):
            continue
        at_ms, what, *words = line.split()
        if what in ("polls", "waits"):
            state = MemberState(identity(what == "waits", words), int(at_ms))
            what, words = "tick", []
        assert state is not None
        told += [f"    {each}" for each in done(state, int(at_ms), what, words)]
    return told


def identity(waits: bool, words: list[str]) -> Identity:
    options = dict(word.split("=") for word in words[1:])
    return Identity(
        member(words[0]),
        Subscription.parse(["flights"]),
        options.get("instance", ""),
        int(options.get("rebalance", "60000")),
        waits,
    )


def done(state: MemberState, at_ms: int, what: str, words: list[str]) -> list[str]:
    if what == "holds":
        return [f"{'holds' if state.holds(at_ms) else 'holds no more'} {named(state.owned)}, epoch {state.epoch}"]
    effects = state.step(EVENTS[what](words), at_ms)
    until = "never" if state.next_ms is None else state.next_ms
    return [*map(shown, effects), f"{state.phase.value}, until {until}"]


def answered(words: list[str]) -> MembershipAnswered:
    options = dict(word.split("=") for word in words[2:] if "=" in word)
    epoch, revision = words[1].split(".")
    listed = [word for word in words[2:] if "=" not in word] or [""]
    assigned = None if listed[0] == "same" else parts("flights", *map(int, filter(None, listed[0].split(","))))
    session_ms, heartbeat_ms = int(options.get("session", "45000")), int(options.get("heartbeat", "3000"))
    return MembershipAnswered(
        int(words[0]), Membership(GroupEpoch(int(epoch)), int(revision), assigned, heartbeat_ms, session_ms)
    )


def refused(words: list[str]) -> MembershipRefused:
    kind: type[HeadraceError] = getattr(errors, f"{words[1]}Error")
    details = {name: int(value) for name, value in (word.split("=") for word in words[2:])}
    return MembershipRefused(int(words[0]), kind(f"it says {words[1]}", **details))


EVENTS: dict[str, Callable[[list[str]], Event]] = {
    "answered": answered,
    "refused": refused,
    "left": lambda words: MembershipAnswered(int(words[0]), None),
    "given": lambda words: GivenUp(int(words[1])),
    "subscribed": lambda words: Subscribed(Subscription.parse(words)),
    "doubted": lambda words: Doubted("a commit was refused"),
    "stopped": lambda words: Stopped(for_a_while=bool(words)),
    "tick": lambda words: MembershipTicked(),
}


def shown(effect: Effect) -> str:
    match effect:
        case Send(request, timeout_ms, reason):
            text = f"send {request.request}, {timeout_ms} ms: {type(request).__name__.removesuffix('Received')}"
            if isinstance(request, HeartbeatReceived):
                text += f" {request.epoch}.{request.revision} owns {named(request.owned)}, waits {request.wait_ms} ms"
            if isinstance(request, HeartbeatReceived | JoinReceived) and request.subscription is not None:
                text += f", wants {','.join(request.subscription.names)}"
            return f"{text} ({reason})"
        case Assigned(partitions, reason):
            return f"assigned {named(partitions)} ({reason})"
        case Revoke(ticket, partitions, by_ms, reason):
            return f"revoke {ticket}: {named(partitions)} by {by_ms} ({reason})"
        case Lost(partitions, reason):
            return f"lost {named(partitions)} ({reason})"
        case MembershipFailed(error, reason):
            return f"failed: {error.code} ({reason})"
        case Left(reason):
            return f"left ({reason})"


def named(partitions: Partitions) -> str:
    return ",".join(str(partition.partition) for partition in sorted(partitions)) or "nothing"


def test_should_leave_at_once_where_it_has_never_asked_for_anything() -> None:
    state = MemberState(Identity(member("a"), Subscription.parse(["flights"])), 0)
    assert [type(effect) for effect in state.step(Stopped(), 0)] == [Left]


def test_should_have_all_requests_answered_that_are_worth_it() -> None:
    """So many are remembered; what is older says nothing new."""
    state = MemberState(Identity(member("a"), Subscription.parse(["flights"])), 0)
    effects = [effect for at_ms in range(0, 300_000, 100) for effect in state.step(MembershipTicked(), at_ms)]
    last = max(effect.request.request for effect in effects if isinstance(effect, Send))
    assert last > 20
    membership = Membership(GroupEpoch(1), 0, parts("flights", 0), 3_000, 1 << 30)
    assert state.step(MembershipAnswered(1, membership), 300_000) == []
    assert not state.holds(300_000)
    assert any(isinstance(effect, Assigned) for effect in state.step(MembershipAnswered(last, membership), 300_000))


def test_should_not_try_again_all_at_once() -> None:
    times = set()
    for number in range(50):
        state = MemberState(Identity(member(f"m{number}"), Subscription.parse(["flights"])), 0)
        state.step(MembershipTicked(), 0)
        state.step(MembershipRefused(1, errors.CoordinatorLoadingError("it loads")), 0)
        assert state.next_ms is not None
        times.add(state.next_ms)
    assert min(times) >= 50
    assert max(times) <= 100
    assert len(times) > 20

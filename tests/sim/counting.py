"""The events that the simulator must have played often enough to be worth something: every kind, every transition.

The names are written down here, not taken from what was counted: what is never played is missing, and that is an error.
"""

from collections.abc import Mapping

RUNS_FULL = 4_000
TIMES_FULL = 1_000
"""The number of runs in which each happens so often; half of that share is enough in a smaller round.

None is excepted: where one stays below, its weight or mood is too small, or it cannot happen any more.
"""

WORK = (
    "message up",
    "message down",
    "push",
    "connect",
    "sync",
    "cut",
    "produce",
    "ask latest",
    "read",
    "delete records",
    "checkpoint",
    "tick",
    "start",
    "api acts",
    "api answers",
    "late call lands",
    "coordinate",
    "watch",
    "renew lease",
    "watch leases",
    "operator watches",
    "operator watches leases",
    "operate",
    "recover asks",
    "recover decides",
)
FAULTS = (
    "kill",
    "kill leader",
    "pause",
    "resume",
    "drain",
    "drain leader",
    "drained",
    "part",
    "join",
    "break stream",
    "power failure",
    "all lose power",
    "disk lost",
    "old disk is back",
    "sync fails",
    "stop broken",
    "disk full",
    "disk freed",
    "call lost",
    "call given up",
    "call doubled",
    "answer lost",
    "late call lost",
    "lose api",
    "find api",
    "operator killed",
    "operator loses api",
    "operator finds api",
    "replicas change",
    "leader is one too many",
    "api restored",
    "any disk lost",
    "broker leaves",
    "broker stays",
)
REPLICA = (
    "Sync",
    "Lead",
    "Resign",
    "Acknowledge",
    "Expire",
    "Abandon",
    "RaiseHighWatermark",
    "GiveUp",
    "Follow",
    "Unfollow",
    "AskEpochEnd",
    "Truncate",
    "StartAnew",
    "DeleteBelow",
    "Fetch",
    "Report",
    "refused",
)
SET_WRITER = ("written", "written again", "landed", "unanswered", "conflict", "read decides nothing", "read settles")
SEATS = (
    "wish: claim renewed",
    "wish: claim given up",
    "wish: give up",
    "wish: step down",
    "wish: step down, full",
    "wish: ISR grows",
    "wish: ISR shrinks",
)
OPERATOR = (
    "operator: drain",
    "operator: leader moved off a leaving broker",
    "operator: leader moved off a replica to remove",
    "operator: preferred leader",
    "operator: offline",
    "operator: election, leader gone",
    "operator: election, nobody leads",
    "operator: unclean election",
    "operator: last resort",
    "operator: lost broker leaves ISR",
    "operator: replicas caught up",
    "operator: reassignment",
    "operator landed",
    "operator conflict",
)
PEOPLE = ("latest is said", "latest is not said", "recover loses nothing", "recover landed")
ALL = (*WORK, *FAULTS, *REPLICA, *SET_WRITER, *SEATS, *OPERATOR, *PEOPLE)


def events(counts: Mapping[str, int]) -> int:
    return sum(counts.get(name, 0) for name in (*WORK, *FAULTS))


def too_rare(counts: Mapping[str, int], runs: int) -> list[str]:
    """Return what did not happen as often as it had to in so many runs, with how often it did."""
    needed = TIMES_FULL if runs >= RUNS_FULL else TIMES_FULL * runs // RUNS_FULL // 2
    rare = [(name, counts.get(name, 0)) for name in ALL if counts.get(name, 0) < needed]
    return [f"{name}: {count:,d} times, {needed:,d} are needed" for name, count in rare]

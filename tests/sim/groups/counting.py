"""The events that runs with a group must have played often enough, as in `tests.sim.counting`."""

from collections.abc import Mapping

from tests.sim import counting

RUNS_FULL = 300
TIMES_FULL = 10
"""The number of runs in which each happens so often."""

WORK = (
    "member request",
    "member answer",
    "held up comes",
    "records are written",
    "group reset",
    "group deleted",
    "group status lands",
    "operator sees group",
    "operator assigns",
    "operator asks group",
    "member starts",
    "member ticks",
    "member reads",
    "member commits",
    "member asks offsets",
    "member gives up",
    "member subscribes",
    "member stops",
    "all stop",
    "coordinator begins",
    "coordinator reads",
    "coordinator appends",
    "coordinator ticks",
    "coordinator looks",
    "coordinator shows",
    "all is replicated",
    "all agree",
    "time goes by",
)
FAULTS = (
    "member request lost",
    "member request doubled",
    "member answer lost",
    "held up",
    "target late",
    "target wrong",
    "target otherwise",
    "topic grows",
    "topic vanishes",
    "topic returns",
    "topic deleted",
    "topic created",
    "group paused",
    "settings change",
    "group vanishes",
    "group status lost",
    "groups lose api",
    "groups find api",
    "operator is hasty",
    "operator rests",
    "operator works",
    "days go by",
    "member killed",
    "member pauses",
    "member resumes",
    "kill leader",
    "power failure",
)
DECIDED = (
    "coordinator: decision",
    "coordinator: read",
    "coordinator: deposed",
    "coordinator: target ignored",
    "coordinator: target seen",
    "group status landed",
    "group status conflict",
    "rebalance",
    "rebalance without operator",
    "rebalance without API server",
    "committed: reset",
    "committed: deletion",
    "committed: offset expired",
    "operator refused: GroupNotEmpty",
    "member: Send",
    "member: Assigned",
    "member: Revoke",
    "member: Lost",
    "member: Left",
    "member: MembershipFailed",
    "member: Commit",
    "member: may not read",
    "refused: NotCoordinator",
    "refused: CoordinatorLoading",
    "refused: UnreleasedInstance",
    "refused: UnknownMember",
    "refused: FencedMember",
    "refused: FencedInstance",
)
ALL = (*WORK, *FAULTS, *DECIDED)


def events(counts: Mapping[str, int]) -> int:
    return counting.events(counts) + sum(counts.get(name, 0) for name in {*WORK, *FAULTS} - {*counting.FAULTS})


def too_rare(counts: Mapping[str, int], runs: int) -> list[str]:
    """Return what did not happen as often as it had to in so many runs; nothing is demanded of a few."""
    needed = TIMES_FULL * runs // RUNS_FULL
    rare = [(name, counts.get(name, 0)) for name in ALL if counts.get(name, 0) < needed]
    return [f"{name}: {count:,d} times, {needed:,d} are needed" for name, count in rare]

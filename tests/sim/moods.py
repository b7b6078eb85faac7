"""How much more, or less, often than its weight says each kind of event happens in a run.

Most runs draw a mood for each kind. A drill has one trouble, and all else goes well: what the core does about it is
played through to its end, again and again.
"""

from collections.abc import Mapping
from random import Random

from tests.sim.plans import Plan
from tests.sim.schedule import Kind

REPAIRS = frozenset({"resume", "join", "find api", "disk freed", "operator finds api", "broker stays"})
BEYOND = frozenset({"api restored", "any disk lost"})
"""The events that a run that is for them has for sure."""
DRILLS: Mapping[str, Mapping[str, float]] = {
    "broker leaves": {"broker leaves": 1},
    # Who steps aside needs others that have room.
    "disk full": {"disk full": 0.35, "disk freed": 1},
    # A leader loses its place where it is the last of the replicas, and the first, which was away, is just back: there
    # are few records, so that much is decided before the leadership returns by itself.
    "leader is one too many": {
        "kill leader": 1,
        "replicas change": 0.3,
        "leader is one too many": 1,
        "start": 4,
        "operate": 1.5,
        "operator watches": 3,
        "watch": 2,
        "api acts": 3,
        "api answers": 3,
        "coordinate": 2,
        "connect": 2,
        "push": 0.5,
        "produce": 0.1,
        "ask latest": 0.1,
        "read": 0.1,
        "checkpoint": 0.1,
        "delete records": 0.3,
    },
}
"""The fixed values of drills."""
LEAPS = {"leader is one too many": 0.003}
"""The frequency of leaps of time, where that is fixed."""
NO_TROUBLE = 0.15
"""The share of all kinds of faults that do not happen at all in a run."""


class Moods:
    def __init__(self, plan: Plan, random: Random) -> None:
        self._plan, self._random = plan, random
        self._trouble = 10 ** random.uniform(-1.8 if plan.focus else -0.8, 0.0)
        self._fixed = DRILLS.get(plan.focus, {}) if plan.drill else {}

    def of(self, kind: Kind) -> float:
        plan, name = self._plan, kind.name
        if name in self._fixed:
            return self._fixed[name]
        if name in BEYOND:
            return self._random.uniform(0.5, 2)
        if name == plan.focus:
            return 4 if plan.drill else 2
        if plan.drill and (kind.is_fault or name == "start"):
            return 1 if name in REPAIRS or name == "start" else 0
        return self._drawn(kind)

    def _drawn(self, kind: Kind) -> float:
        random = self._random
        if kind.name == "start":
            return 10 ** random.uniform(-1.3 if self._plan.unclean else -0.7, 0.4)
        if not kind.is_fault or kind.name in REPAIRS:
            return 10 ** random.uniform(-0.5, 0.5)
        return 0 if random.random() < NO_TROUBLE else self._trouble * 10 ** random.uniform(-0.5, 0.7)


def leaps(plan: Plan, random: Random) -> float:
    """Return how often time leaps, for each step."""
    drawn = 0.06 if plan.unclean else 0.01 * 10 ** random.random()
    return LEAPS.get(plan.focus, drawn) if plan.drill else drawn

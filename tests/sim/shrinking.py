"""The way from a run that breaks a rule to a short one that breaks the same rule: delta debugging over its steps.

Steps are left out in blocks, from half of all down to single ones, as long as the rest still breaks the rule (Zeller
and Hildebrandt's ddmin, with complements only). What a step means does not depend on those before it (`schedule`), so
most blocks can go at once.
"""

from collections.abc import Sequence
from time import process_time

from tests.sim.plans import Plan
from tests.sim.schedule import Step
from tests.sim.world import HEAL, FailedRunError, World, rule_of


def shrink(failed: FailedRunError, limit_s: float = 60) -> list[Step]:
    """Return the steps of a shorter run, or of the same where nothing could be left out in time."""
    plan, rule, ends_at = failed.world.plan, failed.rule, process_time() + limit_s
    steps = list(failed.world.trace)
    if rule == "Liveness":
        steps = steps[: next(number for number, step in enumerate(steps) if step.kind == HEAL)]
    block = len(steps) // 2
    while block and process_time() < ends_at:
        steps, block = _without_blocks(plan, rule, steps, block), block // 2
    return steps


def _without_blocks(plan: Plan, rule: str, steps: list[Step], block: int) -> list[Step]:
    """Leave blocks out from the end: the last steps often have the least to do with it."""
    end = len(steps)
    while end > 0:
        thinned = steps[: max(0, end - block)] + steps[end:]
        if broken_rule(plan, thinned, settles=rule == "Liveness") == rule:
            steps = thinned
        end -= block
    return steps


def broken_rule(plan: Plan, steps: Sequence[Step], *, settles: bool) -> str:
    """Empty where all rules hold."""
    world = World(plan)
    try:
        world.replay(steps)
        if settles:
            world.settle()
    except AssertionError as error:
        return rule_of(error)
    return ""

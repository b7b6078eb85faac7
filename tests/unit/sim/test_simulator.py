"""The core keeps its promises in simulated runs full of faults; runs can be played again, and shrunk.

`make sim-mutations` and `test_golden` prove that the simulator notices each rule that is deleted.
"""

from dataclasses import replace
from functools import partial

import pytest

from tests.sim import counting
from tests.sim.mutations import MUTATIONS, Mutation
from tests.sim.plans import Plan
from tests.sim.schedule import Step
from tests.sim.scripts import Script
from tests.sim.shrinking import broken_rule, shrink
from tests.sim.world import FailedRunError, World, finish, run


@pytest.mark.parametrize("seed", range(8))
def test_should_lose_nothing_and_come_to_rest(seed: int) -> None:
    assert run(replace(Plan.drawn(seed), steps=600)).is_at_rest()


def test_should_be_the_same_run_for_the_same_seed() -> None:
    one, other = (run(Plan.drawn(3)) for _ in range(2))
    assert one.trace == other.trace
    assert one.api.history == other.api.history


def test_should_play_the_steps_of_a_run_again() -> None:
    world = run(Plan.drawn(5))
    again = World(world.plan)
    again.replay(world.trace)
    assert again.trace == world.trace
    assert again.api.history == world.api.history


def test_should_write_a_run_down_and_read_it_again() -> None:
    script = Script(Plan.drawn(7), (Step("api acts", "1.PUT#1", 17, 250), Step("heal"), Step("kill", "2")))
    assert Script.parse(f"# a remark\n\n{script}") == script


def play(mutation: Mutation) -> None:
    for seed in range(60):
        plan = replace(Plan.drawn(seed), steps=1_000, **mutation.plan)
        world = World(plan)
        finish(world, partial(world.storm, plan.steps), rests=False)


def test_should_shrink_a_run_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    mutation = next(each for each in MUTATIONS if each.name == "votes of what is not on disk")
    for patch in mutation.patches:
        monkeypatch.setattr(patch.owner, patch.attribute, patch.replacement)
    with pytest.raises(FailedRunError) as caught:
        play(mutation)
    world, rule = caught.value.world, caught.value.rule
    steps = shrink(caught.value, limit_s=600)
    assert len(steps) < len(world.trace) * 3 / 4
    assert broken_rule(world.plan, steps, settles=False) == rule


def test_should_ask_for_what_was_played_too_seldom() -> None:
    often = dict.fromkeys(counting.ALL, counting.TIMES_FULL)
    assert counting.too_rare(often, counting.RUNS_FULL) == []
    assert counting.too_rare({**often, "kill": 999}, counting.RUNS_FULL) == ["kill: 999 times, 1,000 are needed"]
    assert counting.too_rare({**often, "kill": 13}, 100) == []

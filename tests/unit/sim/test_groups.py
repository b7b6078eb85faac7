"""The core of groups keeps its promises in simulated runs; `make sim-mutations` proves that breaches are noticed."""

from dataclasses import replace

import pytest

from tests.sim.groups import counting
from tests.sim.plans import Plan
from tests.sim.schedule import Step
from tests.sim.scripts import Script
from tests.sim.world import World, run


@pytest.mark.parametrize("seed", range(4))
def test_should_share_everything_out_and_come_to_rest(seed: int) -> None:
    world = run(replace(Plan.drawn_group(seed), steps=800))
    assert world.is_at_rest()
    assert world.group is not None
    assert world.counts["coordinator: decision"] > 0


def test_should_play_the_steps_of_a_run_again() -> None:
    world = run(replace(Plan.drawn_group(3), steps=600))
    again = World(world.plan)
    again.replay(world.trace)
    assert again.trace == world.trace
    assert again.group is not None
    assert world.group is not None
    assert again.group.promises.image.offsets == world.group.promises.image.offsets


def test_should_write_a_run_down_and_read_it_again() -> None:
    script = Script(Plan.drawn_group(7), (Step("member request", "m1.Heartbeat#1", 17, 250), Step("heal")))
    assert Script.parse(str(script)) == script


def test_should_ask_for_what_was_played_too_seldom() -> None:
    often = dict.fromkeys(counting.ALL, counting.TIMES_FULL)
    assert counting.too_rare(often, counting.RUNS_FULL) == []
    assert counting.too_rare({**often, "held up": 9}, counting.RUNS_FULL) == ["held up: 9 times, 10 are needed"]
    assert counting.too_rare({}, 20) == []

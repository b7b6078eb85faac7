"""The core keeps its promises in simulated runs full of faults, and the simulator sees when it does not."""

import pytest

from tests.sim.__main__ import PLANS
from tests.sim.checks import BrokenPromiseError
from tests.sim.mutations import MUTATIONS, Mutation
from tests.sim.world import Plan, run


@pytest.mark.parametrize("seed", range(15))
def test_should_lose_nothing_and_come_to_rest(seed: int) -> None:
    assert run(seed, PLANS[seed % len(PLANS)]).is_at_rest()


def test_should_be_the_same_run_for_the_same_seed() -> None:
    one, other = (run(3, Plan(steps=300)) for _ in range(2))
    assert one.trace == other.trace
    assert one.api.history == other.api.history


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_should_catch_a_core_without(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutation.owner, mutation.attribute, mutation.replacement)

    def play_all() -> None:
        for seed in mutation.seeds:
            run(seed, Plan())

    with pytest.raises(BrokenPromiseError):
        play_all()

"""Scripts to where a deleted rule does harm: the core as it is comes through; without the rule it does not."""

from dataclasses import replace

import pytest

from tests.sim.hunting import ALL, hunt, mutated
from tests.sim.mutations import Mutation, Patch
from tests.sim.scripts import FOLDER, Script
from tests.sim.world import FailedRunError

NAMES = sorted(path.stem for path in FOLDER.glob("*.txt"))
SCRIPTED = [mutation for mutation in ALL if mutation.golden]
COVERED = [(mutation, patch) for mutation in SCRIPTED if mutation.covers for patch in mutation.patches]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(2))
def test_should_come_through_and_to_rest(name: str, seed: int) -> None:
    assert Script.named(name).run(seed, strict=True).is_at_rest()


@pytest.mark.parametrize("mutation", SCRIPTED, ids=lambda each: each.name)
def test_should_show_the_harm_without(mutation: Mutation) -> None:
    with mutated(mutation), pytest.raises(FailedRunError) as caught:
        Script.named(mutation.golden).alone().run(rests=mutation.rests)
    assert caught.value.rule == mutation.breaks


@pytest.mark.parametrize(
    ("mutation", "patch"), COVERED, ids=lambda each: each.name if isinstance(each, Mutation) else each.attribute
)
def test_should_come_through_where_one_of_two_rules_stands(mutation: Mutation, patch: Patch) -> None:
    script = Script.named(mutation.golden)
    with mutated(replace(mutation, patches=[patch])):
        script.alone().run(rests=False)


def test_should_use_each_script() -> None:
    assert {mutation.golden for mutation in SCRIPTED} == set(NAMES)


def test_should_begin_the_hunt_with_the_script() -> None:
    catch = hunt(SCRIPTED[0], runs_max=0)
    assert (catch.rule, catch.runs) == (SCRIPTED[0].breaks, 0)
    assert "its script" in str(catch)

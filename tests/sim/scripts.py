"""A run written down: the plan on the first line, then a step a line; `#` begins a remark.

Scripts in `golden/` lead to a corner that chance seldom finds: there a deleted rule does harm (`mutations`), while the
core as it is comes through. `run` plays the steps, goes on by chance for as long as the plan says, and demands that the
cluster comes to rest.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from tests.sim.plans import Plan
from tests.sim.schedule import Step
from tests.sim.world import World, finish

FOLDER = Path(__file__).parent / "golden"


@dataclass(frozen=True, slots=True)
class Script:
    plan: Plan
    steps: tuple[Step, ...]

    @classmethod
    def parse(cls, text: str) -> "Script":
        # A remark stands alone, or after a space: `1.PUT#1` is a target.
        lines = [f" {line}".split(" #")[0].strip() for line in text.splitlines()]
        plan, *steps = [line for line in lines if line]
        return cls(Plan.parse(plan), tuple(map(Step.parse, steps)))

    @classmethod
    def named(cls, name: str) -> "Script":
        return cls.parse((FOLDER / f"{name}.txt").read_text())

    def alone(self) -> "Script":
        """Return the script with nothing after it by chance."""
        return replace(self, plan=replace(self.plan, steps=0))

    def __str__(self) -> str:
        return "\n".join(map(str, (self.plan, *self.steps)))

    def run(self, seed: int | None = None, *, rests: bool = True, strict: bool = False) -> World:
        """Play the script. Raises FailedRunError. `seed`: of what comes after the script. Strict: no step of it may be
        left out."""
        world = World(self.plan)
        return finish(world, lambda: self._play(world, seed, strict), rests=rests)

    def _play(self, world: World, seed: int | None, strict: bool) -> None:
        world.replay(self.steps, left_out=_refuse) if strict else world.replay(self.steps)
        world.random.seed(self.plan.seed if seed is None else seed)
        world.storm(self.plan.steps)


def _refuse(step: Step) -> None:
    raise AssertionError(f"it cannot be played any more from here: {step}")

"""A run written down: the plan on the first line, then a step a line; `#` begins a remark.

Scripts in `scripts/` lead to a corner that chance seldom finds, or are runs that failed once. `run` plays the steps,
goes on by chance for as long as the plan says, and demands that the cluster comes to rest.
"""

from dataclasses import dataclass
from pathlib import Path

from tests.sim.plans import Plan
from tests.sim.schedule import Step
from tests.sim.world import World, finish

FOLDER = Path(__file__).parent / "scripts"


@dataclass(frozen=True, slots=True)
class Script:
    plan: Plan
    steps: tuple[Step, ...]

    @classmethod
    def parse(cls, text: str) -> "Script":
        lines = [
            line.split("#")[0].strip() if line.lstrip().startswith("#") else line.strip() for line in text.splitlines()
        ]
        plan, *steps = [line for line in lines if line]
        return cls(Plan.parse(plan), tuple(map(Step.parse, steps)))

    @classmethod
    def named(cls, name: str) -> "Script":
        return cls.parse((FOLDER / f"{name}.txt").read_text())

    def __str__(self) -> str:
        return "\n".join(map(str, (self.plan, *self.steps)))

    def run(self, seed: int | None = None) -> World:
        """Raises FailedRunError. `seed`: of what comes after the script."""
        world = World(self.plan)
        return finish(world, lambda: self._play(world, seed))

    def _play(self, world: World, seed: int | None) -> None:
        world.replay(self.steps)
        world.random.seed(self.plan.seed if seed is None else seed)
        world.storm(self.plan.steps)

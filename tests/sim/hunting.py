"""Look for each deleted rule: is a run found that it breaks? `python -m tests.sim.hunting [NAME ...]`, and `make sim`.

First its script is played, where it has one. Runs are long storms; the rest after them is played only where the rule is
one of liveness. Without the mutation the same runs must pass, which is what all other tests of the simulator say.
"""

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from unittest import mock

import click

from tests.sim.groups.mutations import GROUP_MUTATIONS
from tests.sim.mutations import MUTATIONS, Mutation
from tests.sim.plans import Plan
from tests.sim.scripts import Script
from tests.sim.world import FailedRunError, World, finish

STEPS = 3_000
RUNS_MAX = 150
ALL = (*MUTATIONS, *GROUP_MUTATIONS)


@dataclass(frozen=True, slots=True)
class Catch:
    """`rule` was seen to be broken in the run of `seed`, after so many runs and steps; or it was not (empty).

    After no run: in its script.
    """

    mutation: str
    rule: str = ""
    seed: int = 0
    runs: int = 0
    steps: int = 0
    took_s: float = 0

    def __str__(self) -> str:
        found = (
            f"{self.rule}, {f'run {self.runs}' if self.runs else 'its script'}, after {self.steps:,d} steps"
            if self.rule
            else f"NOT CAUGHT in {self.runs} runs"
        )
        return f"{self.mutation:42s} {found}; {self.took_s:.1f} s"


def hunt(mutation: Mutation, runs_max: int = RUNS_MAX, *, scripts: bool = True) -> Catch:
    """Hunt for a mutation. Raises nothing: a run that ends with any error has caught it."""
    started = time.process_time()
    with mutated(mutation):
        failed = _failed_script(mutation) if mutation.golden and scripts else None
        if failed is not None:
            steps, took_s = len(failed.world.trace), time.process_time() - started
            return Catch(mutation.name, failed.rule, steps=steps, took_s=took_s)
        drawn = Plan.drawn_group if mutation.in_group else Plan.drawn
        for seed in range(runs_max):
            failed = _failed(mutation, replace(drawn(seed), steps=STEPS, **mutation.plan))
            if failed is not None:
                steps, took_s = len(failed.world.trace), time.process_time() - started
                return Catch(mutation.name, failed.rule, seed, seed + 1, steps, took_s)
    return Catch(mutation.name, runs=runs_max, took_s=time.process_time() - started)


@contextmanager
def mutated(mutation: Mutation) -> Iterator[None]:
    with ExitStack() as stack:
        for patch in mutation.patches:
            stack.enter_context(mock.patch.object(patch.owner, patch.attribute, patch.replacement))
        yield


def _failed(mutation: Mutation, plan: Plan) -> FailedRunError | None:
    world = World(plan)
    try:
        finish(world, lambda: world.storm(plan.steps), rests=mutation.rests)
    except FailedRunError as error:
        return error
    return None


def _failed_script(mutation: Mutation) -> FailedRunError | None:
    try:
        Script.named(mutation.golden).alone().run(rests=mutation.rests)
    except FailedRunError as error:
        return error
    return None


def _hunt_named(name: str, scripts: bool) -> Catch:
    """Hunt in a process of its own."""
    return hunt(next(mutation for mutation in ALL if mutation.name == name), scripts=scripts)


def hunt_all(names: list[str], processes: int, *, scripts: bool) -> Iterator[Catch]:
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        yield from pool.map(partial(_hunt_named, scripts=scripts), names)


@click.command()
@click.argument("names", nargs=-1)
@click.option("--processes", type=click.IntRange(min=1), default=2, show_default=True)
@click.option("--scripts/--no-scripts", default=True, show_default=True, help="Or is chance enough?")
def main(names: tuple[str, ...], processes: int, scripts: bool) -> None:
    """NAMES are parts of names of mutations; without, all."""
    known = [each.name for each in ALL]
    wanted = [name for name in known if not names or any(part in name for part in names)]
    missed = 0
    for catch in hunt_all(wanted, processes, scripts=scripts):
        click.echo(catch)
        missed += not catch.rule
    click.echo(f"{len(wanted) - missed} of {len(wanted)} deleted rules were noticed")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()

"""`python -m tests.sim [SEEDS] [--first N]`: play so many runs, count what happened, stop at the first that fails.

The same seed gives the same run: `python -m tests.sim --first 33 1` plays seed 33 alone and prints its steps. Of a run
that fails a shorter one that fails alike is looked for, and printed: `python -m tests.sim --script FILE` plays such
steps again.
"""

import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import click

from tests.sim import counting
from tests.sim.groups import counting as group_counting
from tests.sim.plans import Plan
from tests.sim.playing import FailedSeedError, play_all
from tests.sim.scripts import Script
from tests.sim.shrinking import shrink
from tests.sim.world import FailedRunError, run

SHRINKING_S = 30


class Family(NamedTuple):
    """A family of runs, and the demands on many of them."""

    drawn: Callable[[int], Plan]
    events: Callable[[Mapping[str, int]], int]
    too_rare: Callable[[Mapping[str, int], int], list[str]]


LOG = Family(Plan.drawn, counting.events, counting.too_rare)
GROUP = Family(Plan.drawn_group, group_counting.events, group_counting.too_rare)


@click.command()
@click.argument("seeds", type=click.IntRange(min=1), default=100)
@click.option("--first", type=int, default=0, show_default=True, help="The first seed.")
@click.option("--processes", type=click.IntRange(min=1), default=2, show_default=True)
@click.option("--group", is_flag=True, help="Of a consumer group that reads, in place of clients that write.")
@click.option("--script", type=click.Path(exists=True, path_type=Path), help="Play this instead.")
def main(seeds: int, first: int, processes: int, *, group: bool, script: Path | None) -> None:
    family = GROUP if group else LOG
    if script is not None:
        _play(Script.parse(script.read_text()))
    elif seeds == 1:
        _play(Script(family.drawn(first), ()))
    else:
        _play_all(range(first, first + seeds), processes, family)


def _play(script: Script) -> None:
    """Play one run, with its steps."""
    try:
        world = script.run() if script.steps else run(script.plan)
    except FailedRunError as error:
        _fail(error)
    click.echo(Script(world.plan, tuple(world.trace)))
    click.echo(f"# at rest: {world.api.state}", err=True)


def _play_all(seeds: range, processes: int, family: Family) -> None:
    counts: Counter[str] = Counter()
    started = time.monotonic()
    try:
        for counted in play_all(seeds, processes, family.drawn):
            counts += counted
    except FailedSeedError as failed:
        _play(Script(family.drawn(failed.seed), ()))
    took, played = time.monotonic() - started, family.events(counts)
    for name, count in counts.most_common():
        click.echo(f"{count:10,d}  {name}")
    click.echo(f"{played:,d} events in {len(seeds):,d} runs, nothing lost; {took:.0f} s, {played / took:,.0f} a second")
    rare = family.too_rare(counts, len(seeds))
    for each in rare:
        click.echo(each, err=True)
    sys.exit(bool(rare))


def _fail(error: FailedRunError) -> None:
    click.echo(f"{error}\nlooking for a shorter run for at most {SHRINKING_S} s ...", err=True)
    steps = shrink(error, SHRINKING_S)
    click.echo(
        f"# {error.rule}; it took {len(error.world.trace)} steps\n{Script(error.world.plan, tuple(steps))}", err=True
    )
    sys.exit(1)


if __name__ == "__main__":
    main()

"""`python -m tests.sim [SEEDS] [--first N]`: play so many runs, count what happened, stop at the first that fails.

The same seed gives the same run: `python -m tests.sim 1 --first 33` plays seed 33 alone.
"""

import sys
import time
from collections import Counter

import click

from headrace.core.resources.topic import Durability
from tests.sim.checks import BrokenPromiseError
from tests.sim.world import Plan, run

PLANS = (
    Plan(),
    Plan(min_insync_replicas=1, lost_disks=0),
    Plan(durability=Durability.REPLICATED, power_failures=False, lost_disks=0),
)


@click.command()
@click.argument("seeds", type=click.IntRange(min=1), default=100)
@click.option("--first", type=int, default=0, show_default=True, help="The first seed.")
def main(seeds: int, first: int) -> None:
    counts: Counter[str] = Counter()
    acknowledged, started = 0, time.monotonic()
    for seed in range(first, first + seeds):
        try:
            world = run(seed, PLANS[seed % len(PLANS)])
        except BrokenPromiseError as error:
            click.echo(str(error), err=True)
            sys.exit(1)
        counts += world.counts
        acknowledged += world.checks.acknowledged
    for name, count in counts.most_common():
        click.echo(f"{count:9,d}  {name}")
    took = time.monotonic() - started
    click.echo(
        f"{counts.total():,d} events in {seeds} runs, {acknowledged:,d} records acknowledged, none lost; {took:.0f} s"
    )


if __name__ == "__main__":
    main()

"""`python -m tests.faults [--short] [S1 S2 ...]`: play the scenarios, two at a time, and print what came of each.

Exits with 1 where a promise was broken or a run could not be finished, with 2 where this machine cannot play.
"""

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import click

from headrace.dev.supervisor.parent_death import dying_with_parent
from tests.faults.network import own_namespace, why_not
from tests.faults.scenarios import SCENARIOS
from tests.faults.verdict import Verdict, gaps, table
from tests.support.patience import patient

_LONG_S, _SHORT_S = 1_800, 600


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(SCENARIOS)))
@click.option("--short", is_flag=True, help="Each fault once or a few times: all within eight minutes.")
@click.option("--jobs", type=click.IntRange(min=1), default=2, show_default=True, help="Runs at a time.")
@click.option(
    "--seed", type=int, default=time.time_ns() % 1_000_000, help="Whom it hits, where that is left to chance."
)
@click.option("--replicas", type=click.IntRange(1, 3), help="Of the topic, instead of the scenario's own.")
def main(names: tuple[str, ...], short: bool, jobs: int, seed: int, replicas: int | None) -> None:
    """Play faults on real processes and judge what clients were told."""
    reason = why_not()
    if reason:
        click.echo(f"faults: no network namespaces here: {reason}", err=True)
        sys.exit(2)
    click.echo(f"faults: seed {seed}")
    chosen = names or tuple(SCENARIOS)
    with ThreadPoolExecutor(jobs) as pool:
        verdicts = list(pool.map(partial(_run, short=short, seed=seed, replicas=replicas), chosen))
    for line in table([(SCENARIOS[verdict.scenario].title, verdict) for verdict in verdicts]):
        click.echo(line)
    for verdict in verdicts:
        for note in (*gaps(verdict), *verdict.notes):
            click.echo(f"{verdict.scenario}: {note}")
    broken = [verdict for verdict in verdicts if verdict.wrong]
    for verdict in broken:
        click.echo(f"\n{verdict.scenario} WRONG (requests that failed: {verdict.failures}; found: {verdict.kinds})")
        for wrong in verdict.wrong:
            click.echo(f"  {wrong}")
    sys.exit(1 if broken else 0)


def _run(name: str, *, short: bool, seed: int, replicas: int | None) -> Verdict:
    scenario = SCENARIOS[name]
    rounds = str(scenario.short if short else scenario.long)
    command = [sys.executable, "-m", "tests.faults.one", name, "--rounds", rounds, "--seed", str(seed)]
    if replicas is not None:
        command += ["--replicas", str(replicas)]
    limit_s, started = patient(_SHORT_S if short else _LONG_S), time.monotonic()
    # It goes with this process, and all that it has started goes with it.
    with subprocess.Popen(
        dying_with_parent(own_namespace(command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            out, err = process.communicate(timeout=limit_s)
            verdict = Verdict(**json.loads(out.decode().splitlines()[-1]))
        except subprocess.TimeoutExpired:
            process.kill()
            verdict = Verdict(name, seed, time.monotonic() - started, [f"not done within {limit_s:g} s"])
        except (ValueError, IndexError):
            verdict = Verdict(name, seed, time.monotonic() - started, [f"it broke: {err.decode()[-3000:]}"])
    click.echo(f"  {name} {'WRONG' if verdict.wrong else 'ok'} after {verdict.seconds:.0f} s", err=True)
    for wrong in verdict.wrong:
        click.echo(f"    {wrong}", err=True)
    return verdict


if __name__ == "__main__":
    main()

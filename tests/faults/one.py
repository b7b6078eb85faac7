"""`python -m tests.faults.one S1`: one run of one scenario, in the network namespace that this process has to itself.

Called by `tests.faults`, once for each run. The verdict is one line of JSON on stdout; all else goes to stderr.
"""

import dataclasses
import json
import logging
import time
from dataclasses import replace

import click

from tests.faults.play import play
from tests.faults.scenarios import SCENARIOS
from tests.faults.verdict import Verdict

_SHOWN = 8


@click.command()
@click.argument("name", type=click.Choice(list(SCENARIOS)))
@click.option("--rounds", type=click.IntRange(min=1), default=1)
@click.option("--seed", type=int, default=1)
@click.option("--replicas", type=click.IntRange(1, 3), help="Instead of the scenario's own.")
def main(name: str, rounds: int, seed: int, replicas: int | None) -> None:
    logging.basicConfig(level=logging.ERROR)  # clients warn of brokers that are killed: they are
    scenario, started = SCENARIOS[name], time.monotonic()
    setting = scenario.setting
    if replicas is not None:
        setting = replace(setting, replicas=replicas, min_insync_replicas=min(replicas, setting.min_insync_replicas))
    report, run, unfinished = play(setting, scenario.act, seed, rounds)
    wrong = [*run.wrong, *run.journal.wrong, *([unfinished] if unfinished else [])]
    if report is not None:
        kinds = [str(finding) for finding in report.findings]
        wrong += kinds[:_SHOWN] + ([f"... and {len(kinds) - _SHOWN} more"] if len(kinds) > _SHOWN else [])
    verdict = Verdict(
        name,
        seed,
        time.monotonic() - started,
        wrong,
        run.notes,
        acknowledged=report.acknowledged if report else sum(run.journal.acknowledged.values()),
        unknown=report.unknown if report else 0,
        refused=report.refused if report else 0,
        lost=report.lost if report else None,
        duplicated=report.duplicated if report else None,
        read=report.read if report else 0,
        kinds=dict(report.kinds) if report else {},
        unavailability_s=dict(report.unavailability_s) if report else {},
        silence_s=dict(report.silence_s) if report else {},
        progress=[dataclasses.asdict(progress) for progress in report.progress] if report else [],
        failures=dict(run.journal.failures),
    )
    click.echo(json.dumps(dataclasses.asdict(verdict)))


if __name__ == "__main__":
    main()

"""`python -m tests.soak [--short]`: minutes at full load with kill -9, retention, compaction and slow readers; then
thousands of calls of the SDK's clients that are interrupted or cancelled (`--seconds 0` for these alone).

Prints what happens as it goes, then a verdict; exits with 1 where a promise was broken. What is promised: nothing
acknowledged is lost, moved, doubled or changed as long as retention keeps it; the last value of each key survives
compaction; memory and open files of a broker stay flat, no deleted file stays open, the disk holds what it may. Of
interrupted clients: nothing is skipped, nothing comes twice beyond at-least-once, nothing hangs, each can be closed.
"""

import argparse
import logging
import random
import sys
import tempfile
import time
from pathlib import Path

import click

from tests.soak.brokers import running_brokers
from tests.soak.interrupted import interrupt_clients
from tests.soak.run import Soak
from tests.soak.verdict import Findings

_SHORT_S, _LONG_S = 60, 600
_SHORT_INTERRUPTS, _LONG_INTERRUPTS = 1_000, 10_000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--short", action="store_true", help="one minute instead of ten, fewer interrupts")
    parser.add_argument("--seconds", type=int, help="another length")
    parser.add_argument("--interrupts", type=int, help="another number of interrupted calls")
    parser.add_argument(
        "--seed", type=int, default=time.time_ns() % 1_000_000, help="what dies, and is interrupted, when"
    )
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)  # clients warn of brokers that are killed: they are
    seconds = _or(options.seconds, _SHORT_S if options.short else _LONG_S)
    interrupts = _or(options.interrupts, _SHORT_INTERRUPTS if options.short else _LONG_INTERRUPTS)
    click.echo(f"soak: {seconds} s, {interrupts} interrupts, seed {options.seed}")
    with tempfile.TemporaryDirectory(prefix="headrace-soak-") as home, running_brokers(Path(home)) as brokers:
        findings = Soak(brokers, random.Random(options.seed)).run(seconds) if seconds else Findings()
        if interrupts:
            interrupt_clients(brokers.cluster, options.seed, interrupts, findings)
    for fact in findings.facts:
        click.echo(f"  ok      {fact}")
    for wrong in findings.wrong:
        click.echo(f"  BROKEN  {wrong}")
    click.echo("soak: " + (f"{len(findings.wrong)} promises broken" if findings.wrong else "every promise was kept"))
    return 1 if findings.wrong else 0


def _or(given: int | None, otherwise: int) -> int:
    return otherwise if given is None else given


if __name__ == "__main__":
    sys.exit(main())

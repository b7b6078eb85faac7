"""`python -m tests.soak [--short]`: minutes at full load with kill -9, retention, compaction and slow readers.

Prints what happens as it goes, then a verdict; exits with 1 where a promise was broken. What is promised: nothing
acknowledged is lost, moved, doubled or changed as long as retention keeps it; the last value of each key survives
compaction; memory and open files of a broker stay flat, no deleted file stays open, the disk holds what it may.
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
from tests.soak.run import Soak

_SHORT_S, _LONG_S = 60, 600


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--short", action="store_true", help="one minute instead of ten")
    parser.add_argument("--seconds", type=int, help="another length")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000, help="which brokers die when")
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)  # clients warn of brokers that are killed: they are
    seconds = options.seconds or (_SHORT_S if options.short else _LONG_S)
    click.echo(f"soak: {seconds} s, seed {options.seed}")
    with tempfile.TemporaryDirectory(prefix="headrace-soak-") as home, running_brokers(Path(home)) as brokers:
        findings = Soak(brokers, random.Random(options.seed)).run(seconds)
    for fact in findings.facts:
        click.echo(f"  ok      {fact}")
    for wrong in findings.wrong:
        click.echo(f"  BROKEN  {wrong}")
    click.echo("soak: " + (f"{len(findings.wrong)} promises broken" if findings.wrong else "every promise was kept"))
    return 1 if findings.wrong else 0


if __name__ == "__main__":
    sys.exit(main())

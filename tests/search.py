"""`python -m tests.search [SECONDS] [--seed N]`: look for examples that break a property, until the time is over.

Ordinary runs try the same few examples each time. This plays shares of the files with properties, in an order that the
seed gives, each with a seed of its own and many examples a property, and begins again when all had their turn. No
share begins after the time is over; one takes some seconds. The first that fails ends the search, is shown with the
example, and with the command that plays it again: write the example into the test (`@example`, or a test of its own).
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from random import Random
from typing import NamedTuple

import click

_FILES_A_SHARE = 6


class Share(NamedTuple):
    files: tuple[str, ...]
    seed: int

    @property
    def command(self) -> list[str]:
        chosen = ["-q", "-x", "-m", "hypothesis", "--hypothesis-profile=search", f"--hypothesis-seed={self.seed}"]
        return [sys.executable, "-m", "pytest", "-c", "pyproject.toml", *chosen, *self.files]


class Played(NamedTuple):
    share: Share
    is_good: bool
    output: str
    took_s: float


@click.command()
@click.argument("seconds", type=click.IntRange(min=1), default=60)
@click.option("--seed", type=int, help="Of the order of files, and of all seeds; drawn where none is given.")
@click.option("--processes", type=click.IntRange(min=1), default=2, show_default=True)
@click.option("--folder", type=click.Path(exists=True, path_type=Path), default=Path("tests/unit"), show_default=True)
def main(seconds: int, seed: int | None, processes: int, folder: Path) -> None:
    seed = Random().getrandbits(32) if seed is None else seed
    files = files_with_properties(folder)
    click.echo(f"seed {seed}: properties of {len(files)} files for {seconds} s")
    ends_s, count = time.monotonic() + seconds, 0
    for played in _all_played(shares(files, Random(seed)), processes, ends_s):
        count += 1
        verdict = "nothing" if played.is_good else "FOUND"
        click.echo(f"share {count}: {verdict}; seed {played.share.seed}, {played.took_s:.0f} s", err=True)
        if not played.is_good:
            click.echo(f"{played.output}\nagain: {' '.join(played.share.command)}", err=True)
            sys.exit(1)
    click.echo(f"nothing found in {count} shares ({count * _FILES_A_SHARE / len(files):.1f} times all files)")


def files_with_properties(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("test_*.py") if "\nfrom hypothesis" in path.read_text())


def shares(files: list[str], random: Random) -> Iterator[Share]:
    """Yield the files a few at a time, all of them before any again, without end."""
    while True:
        order = random.sample(files, len(files))
        for at in range(0, len(order), _FILES_A_SHARE):
            yield Share(tuple(order[at : at + _FILES_A_SHARE]), random.getrandbits(32))


def _all_played(stream: Iterator[Share], processes: int, ends_s: float) -> Iterator[Played]:
    with ThreadPoolExecutor(processes) as threads:
        running: set[Future[Played]] = set()
        while True:
            while time.monotonic() < ends_s and len(running) < processes:
                running.add(threads.submit(_play, next(stream)))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (each.result() for each in done)


def _play(share: Share) -> Played:
    started = time.monotonic()
    done = subprocess.run(share.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return Played(share, done.returncode == 0, done.stdout, time.monotonic() - started)


if __name__ == "__main__":
    main()

"""Chooses the stages of stages.toml that a landing runs, and what it makes from nothing, and says why.

A landing is the commits that come to `main` together. CI sees a clone and no more, so git's own times tell them apart:
a pause of `PAUSE_S` between two commits ends a stretch of work, and each stretch has a number. The commits of the last
`WINDOW_S` before the newest one count as the present landing. Whoever lands the work of a longer time names the commit
that landed last in CI_BASE.

- A long form runs where a path that it judges has changed, and when it is its turn: stretch number n is the turn of
  long form n modulo their count. A landing takes the turns of all its stretches, so each long form has run within as
  many landings as there are long forms.
- One of the things that CI keeps between its runs (`CACHED`) is made from nothing, by the same count.

pipeline.py calls `plan`. Where the landing is not known (an archive of the sources, a shallow clone) everything runs.
"""

import os
import subprocess
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

PAUSE_S = 30 * 60
"""CI itself takes as long, so two landings are never nearer to each other."""
WINDOW_S = 4 * 3600
CACHED = ("environment", "wheels", "images", "programs")
"""pip's downloads for the environment; the wheels that images are made of; images; the lab's programs.

Of these the Go modules are fetched anew. What Go has compiled stays: it is kept by its content.
"""

Lane = Literal["first", "main", "beside", "last"]


@dataclass(frozen=True)
class Stage:
    """A row of stages.toml, which says what each field means."""

    name: str
    run: str
    lane: Lane
    whole: str = ""
    after: str = ""
    judges: tuple[str, ...] = ()
    instead: str = ""

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> "Stage":
        """Raises TypeError for a field that there is not, ValueError for a lane that there is not."""
        stage = cls(**{**row, "judges": tuple(row.get("judges", ()))})
        if stage.lane not in get_args(Lane):
            raise ValueError(f"stage {stage.name}: lane {stage.lane!r} is none of {', '.join(get_args(Lane))}")
        return stage

    def command(self, *, whole: bool) -> str:
        """The command, of a long form in full where `whole` is asked for."""
        return self.whole if whole and self.whole else self.run

    def judged(self, changed: Iterable[str]) -> str:
        """The first of the changed paths that this stage judges; empty where there is none."""
        return next((path for path in changed if path.startswith(self.judges)), "")


@dataclass(frozen=True)
class Landing:
    """The stretches of work that a landing holds, as (first, last], and the paths that it changes."""

    first: int
    last: int
    changed: tuple[str, ...]

    def turn_of(self, position: int, count: int) -> bool:
        """Tell whether this landing has the turn of the one at `position` of `count`."""
        return any(stretch % count == position for stretch in range(self.first + 1, self.last + 1))


@dataclass(frozen=True)
class Plan:
    """The stages that run. `why` has the reason of each long form that runs, `left_out` names the others."""

    stages: tuple[Stage, ...]
    cold: tuple[str, ...]
    why: Mapping[str, str]
    left_out: tuple[str, ...]


def stages() -> tuple[Stage, ...]:
    """The rows of stages.toml."""
    table = tomllib.loads(Path(__file__).with_name("stages.toml").read_text())
    return tuple(Stage.read(row) for row in table["stage"])


def plan(rows: Sequence[Stage], landing: Landing | None, *, everything: bool = False, cold: bool = False) -> Plan:
    """Choose for this landing; everything where it is not known or `everything` is asked for."""
    long_forms = [row for row in rows if row.judges]
    why: dict[str, str] = {}
    for position, row in enumerate(long_forms):
        if landing is None or everything:
            why[row.name] = "everything runs"
        elif path := row.judged(landing.changed):
            why[row.name] = f"{path} changed"
        elif landing.turn_of(position, len(long_forms)):
            why[row.name] = "its turn"
    contained = {row.instead for row in long_forms if row.name in why}
    chosen = tuple(row for row in rows if row.name not in contained and (not row.judges or row.name in why))
    left_out = tuple(row.name for row in long_forms if row.name not in why)
    return Plan(chosen, _cold(landing, all_of_it=cold), why, left_out)


def _cold(landing: Landing | None, *, all_of_it: bool) -> tuple[str, ...]:
    if all_of_it:
        return CACHED
    if landing is None:
        return ()
    return tuple(name for position, name in enumerate(CACHED) if landing.turn_of(position, len(CACHED)))


class UnknownLandingError(Exception):
    """Git does not tell what the landing is; the message says why."""


def landing_of(checkout: Path) -> Landing:
    """Return the landing that the checkout's HEAD is the end of.

    Raises UnknownLandingError where git has no history of it, and ValueError where CI_BASE is no commit of this clone.
    """
    if _git(checkout, "rev-parse", "--is-shallow-repository").strip() == "true":
        raise UnknownLandingError("this clone is shallow")
    # What was merged counts when it came to this branch, however old its own commits are.
    commits = [line.split() for line in _git(checkout, "log", "--first-parent", "--format=%H %ct", "HEAD").splitlines()]
    times = sorted(int(time) for _, time in commits)
    base = _base(checkout, commits, times[-1] - WINDOW_S)
    base_time = int(_git(checkout, "log", "-1", "--format=%ct", base))
    # A file that has moved counts where it was, too.
    changed = _git(checkout, "diff", "--name-only", "--no-renames", "-z", base, "HEAD").split("\0")
    last = stretches(times)
    first = min(stretches(time for time in times if time <= base_time), last - 1)
    return Landing(first, last, tuple(path for path in changed if path))


def _base(checkout: Path, commits: Sequence[Sequence[str]], time: int) -> str:
    """Return CI_BASE, else the newest commit that is not younger than `time`."""
    if named := os.environ.get("CI_BASE"):
        try:
            return _git(checkout, "rev-parse", "--verify", "--quiet", f"{named}^{{commit}}").strip()
        except UnknownLandingError:
            raise ValueError(f"CI_BASE={named} is no commit of this clone: name the one that landed last") from None
    for name, committed in commits:
        if int(committed) <= time:
            return name
    raise UnknownLandingError(f"no commit is older than {WINDOW_S // 3600} hours")


def stretches(times: Iterable[int]) -> int:
    """Count the stretches of work in commits of these times, which are in seconds and sorted."""
    count, before = 0, None
    for time in times:
        if before is None or time - before >= PAUSE_S:
            count += 1
        before = time
    return count


def _git(checkout: Path, *arguments: str) -> str:
    """Raises UnknownLandingError with git's words."""
    command = ["git", "-C", str(checkout), *arguments]
    # A hook's variables name another repository.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    except subprocess.CalledProcessError as error:
        raise UnknownLandingError(error.stderr.strip() or f"git {arguments[0]} failed") from None
    except OSError as error:
        raise UnknownLandingError(str(error)) from None

"""Runs the stages that landing.py has chosen, in two lanes, and fails when any of them fails. `.ci/run` calls it.

The main lane has what mostly waits, one stage after the other, with its output as it comes. Beside it, at the lowest
priority, runs what mostly computes, one stage after the other as well; its output is printed between two stages of the
main lane. Each stage is a process group of its own, so that nothing of it goes on when CI is ended by a signal. The
table at the end says how long each stage took by the clock, how much of the processors it used, and what came of it;
what failed says its last lines once more there, so that the end of the output tells why.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from landing import CACHED, Landing, Plan, Stage, UnknownLandingError, landing_of, plan, stages

CHECKOUT = Path(__file__).parents[1]
LOGS = CHECKOUT / "build" / "ci"
AT_LOWEST_PRIORITY = ("nice", "-n", "19")
NOT_STARTED = 127
GRACE_S = 10
"""The time that stages get to end when CI is ended."""
LOOK_S = 0.2
"""How often the main lane's new output is printed."""
LAST_LINES = 25
"""The number of lines that a stage that failed says once more below the table."""


@dataclass
class Ended:
    """A stage that ran: wall and processor seconds, its exit code, where its output is, whether that was printed."""

    stage: Stage
    wall_s: float
    processor_s: float
    code: int
    log: Path
    printed: bool

    @property
    def line(self) -> str:
        verdict = "passed" if self.code == 0 else f"FAILED (exit code {self.code})"
        return f"{self.stage.name:<12}{self.wall_s:>7.0f} s{self.processor_s:>8.0f} s  {verdict}"

    @property
    def last_lines(self) -> str:
        if not self.log.exists():  # It did not start.
            return ""
        return "\n".join(self.log.read_text(errors="replace").rstrip().splitlines()[-LAST_LINES:])


@dataclass
class Pipeline:
    """One run. Every stage gets `environment`; `whole` runs the long forms in full; output goes into `logs`."""

    plan: Plan
    environment: Mapping[str, str]
    logs: Path
    whole: bool = False
    stopping: bool = False
    ended: list[Ended] = field(default_factory=list)
    running: set[int] = field(default_factory=set)
    """The process groups of the stages that run now."""
    starting: threading.Lock = field(default_factory=threading.Lock)
    """Held while a stage is started, so that `stop` sees each one that has begun."""
    done: dict[str, threading.Event] = field(default_factory=dict)

    def run(self) -> bool:
        """Run all of it; tells whether all passed."""
        self.done = {stage.name: threading.Event() for stage in self.plan.stages}
        began = time.monotonic()
        for stage in self._of("first"):
            if self._print(self._play(stage)) != 0:
                return self._summary(began)
        beside = threading.Thread(target=self._beside, daemon=True)
        beside.start()
        for stage in self._of("main"):
            self._main(stage)
        beside.join()
        self._print_companions()
        for stage in self._of("last"):
            self._main(stage)
        return self._summary(began)

    def stop(self) -> None:
        """End what runs, by SIGTERM, and by SIGKILL what does not end. No other stage begins. For another thread."""
        with self.starting:
            self.stopping = True
        for event in self.done.values():
            event.set()
        for number in (signal.SIGTERM, signal.SIGKILL):
            for group in set(self.running):
                with suppress(ProcessLookupError):
                    os.killpg(group, number)
            deadline = time.monotonic() + GRACE_S
            while self.running and time.monotonic() < deadline:
                time.sleep(0.1)

    def _of(self, lane: str) -> Iterator[Stage]:
        """The stages of a lane, until the run is stopped."""
        for stage in self.plan.stages:
            if stage.lane == lane and not self.stopping:
                yield stage

    def _main(self, stage: Stage) -> None:
        if stage.after in self.done:
            self.done[stage.after].wait()
        if self.stopping:
            return
        self._print_companions()
        self._print(self._play(stage))

    def _beside(self) -> None:
        for stage in self._of("beside"):
            try:
                self.ended.append(self._play(stage, beside=True))
            finally:
                self.done[stage.name].set()

    def _print_companions(self) -> None:
        for ended in list(self.ended):
            if not ended.printed:
                say(f"\n=== {ended.stage.name}, beside the others")
                sys.stdout.write(ended.log.read_text(errors="replace"))
                say(f"=== {ended.line}")
                ended.printed = True

    def _print(self, ended: Ended) -> int:
        self.ended.append(ended)
        say(f"=== {ended.line}")
        return ended.code

    def _play(self, stage: Stage, *, beside: bool = False) -> Ended:
        """Run a stage to its end, and print its output as it comes unless it runs beside others."""
        say(f"\n=== {stage.name}: begins{', beside the others' if beside else ''}")
        log = self.logs / f"{stage.name}.log"
        began = time.monotonic()
        try:
            process = self._start(stage, log, beside=beside)
        except OSError as error:
            say(f"{stage.name}: cannot be started: {error}")
            return Ended(stage, 0, 0, NOT_STARTED, log, printed=True)
        has_ended = threading.Event()
        printing = threading.Thread(target=print_growing, args=(log, has_ended), daemon=True)
        if not beside:
            printing.start()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.running.discard(process.pid)
        wall_s = time.monotonic() - began
        if not beside:
            has_ended.set()
            printing.join()
        return Ended(stage, wall_s, used.ru_utime + used.ru_stime, process.returncode, log, printed=not beside)

    def _start(self, stage: Stage, log: Path, *, beside: bool) -> subprocess.Popen[bytes]:
        """Start a stage; at the lowest priority beside others. Raises OSError.

        It writes to a file, not to a pipe: what a stage leaves behind may keep its output open, and holds nobody up.
        """
        priority = AT_LOWEST_PRIORITY if beside else ()
        with self.starting:
            if self.stopping:
                raise InterruptedError("CI is being ended")
            with log.open("wb") as output:
                process = subprocess.Popen(
                    [*priority, "bash", "-c", stage.command(whole=self.whole)],
                    cwd=CHECKOUT,
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            self.running.add(process.pid)
        return process

    def _summary(self, began: float) -> bool:
        say(f"\n=== summary\n{'stage':<12}{'clock':>9}{'processor':>10}")
        for ended in self.ended:
            say(ended.line)
        say(f"{'total':<12}{time.monotonic() - began:>7.0f} s{sum(each.processor_s for each in self.ended):>8.0f} s")
        for ended in self.ended:
            if ended.code != 0:
                say(f"\n=== {ended.stage.name} failed; its last lines\n{ended.last_lines}")
        passed = {ended.stage.name for ended in self.ended if ended.code == 0}
        return passed == {stage.name for stage in self.plan.stages}


def print_growing(log: Path, has_ended: threading.Event) -> None:
    """Print what comes into a file, until its writer has ended."""
    with log.open("rb") as output:
        last = False
        while not last:
            last = has_ended.wait(LOOK_S)
            sys.stdout.flush()
            shutil.copyfileobj(output, sys.stdout.buffer)
            sys.stdout.flush()


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - CI's log


def describe(chosen: Plan) -> None:
    """Say what runs, what does not, and why."""
    for name, why in chosen.why.items():
        say(f"{name}: {why}")
    if chosen.left_out:
        say(f"not in this run, until their turn comes or what they judge changes: {', '.join(chosen.left_out)}")
    if chosen.cold:
        say(f"made from nothing: {', '.join(chosen.cold)}")


def environment_of(cold: Sequence[str]) -> dict[str, str]:
    """The environment of all stages. What is to be made from nothing is forgotten here, or has its cache turned off."""
    environment = dict(os.environ)
    if "environment" in cold or "wheels" in cold:
        environment["PIP_NO_CACHE_DIR"] = "1"
    if "programs" in cold:
        environment["GOMODCACHE"] = str(LOGS / "go-modules")
        environment["GOFLAGS"] = "-modcacherw"  # What cannot be written cannot be removed either.
    lab = Path(environment.get("LAB_HOME") or Path.home() / ".cache" / "headrace-lab")
    for name, folder in (("wheels", "wheels"), ("images", "images"), ("programs", "bin")):
        if name in cold:
            subprocess.run(["rm", "-rf", "--", str(lab / folder)], check=True)
    return environment


def main() -> None:
    parser = argparse.ArgumentParser(prog=".ci/run", description="All that must pass before a change lands.")
    parser.add_argument("--everything", action="store_true", help="all stages, the long forms in full length")
    parser.add_argument("--cold", action="store_true", help=f"make {', '.join(CACHED)} from nothing")
    parser.add_argument("--plan", action="store_true", help="say what would run, and why; run nothing")
    asked = parser.parse_args()
    landing: Landing | None = None
    try:
        landing = landing_of(CHECKOUT)
    except ValueError as error:
        sys.exit(f".ci/run: {error}")
    except UnknownLandingError as error:
        say(f"it is not known what this landing changes: {error}")
    chosen = plan(stages(), landing, everything=asked.everything, cold=asked.cold)
    describe(chosen)
    if asked.plan:
        for stage in chosen.stages:
            say(f"{stage.lane:<8}{stage.name:<12}{stage.command(whole=asked.everything)}")
        return
    pipeline = Pipeline(chosen, environment_of(chosen.cold), LOGS, whole=asked.everything)

    def end(number: int, frame: FrameType | None) -> None:
        pipeline.stop()
        os._exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    # The run has a thread of its own, so that this one hears signals while the other one waits for stages.
    passed: list[bool] = []
    running = threading.Thread(target=lambda: passed.append(pipeline.run()), daemon=True)
    running.start()
    running.join()
    sys.exit(0 if passed == [True] else 1)


if __name__ == "__main__":
    main()

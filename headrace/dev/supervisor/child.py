"""One program under supervision, over all of its lives.

Owns the process: `run` starts it, notices when it is ready, and starts it again when it dies, until `stop`. Each life
is a real process in a session of its own (Ctrl-C in a terminal reaches the supervisor alone) that dies with the
supervisor, and writes to one log file. Whoever wants to know what changed gives `on_change`.
"""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from headrace.core.slotted import dataclass
from headrace.dev.supervisor.log_file import open_log
from headrace.dev.supervisor.parent_death import dying_with_parent
from headrace.dev.supervisor.pod_status import Exit
from headrace.dev.supervisor.probe import until_answers
from headrace.dev.supervisor.restart import RESTART_DELAY_MIN_MS, Backoff

_log = logging.getLogger("headrace.dev")


@dataclass(frozen=True, slots=True)
class Program:
    """What to run, and how to see that it is ready."""

    name: str
    arguments: tuple[str, ...]
    log: Path
    ready_url: str
    """Answers 200 once the process does its work."""


class Child:
    def __init__(self, program: Program, on_change: Callable[[], None]) -> None:
        self.program = program
        self.ready = asyncio.Event()
        """Of the present life."""
        self.restarts = 0
        """Starts after the first."""
        self.started_at = ""
        """RFC 3339; of the latest life."""
        self.exited: Exit | None = None
        """The latest death, unless `stop` brought it about."""
        self._on_change = on_change
        self._process: asyncio.subprocess.Process | None = None
        self._backoff = Backoff()
        self._stopping = asyncio.Event()

    @property
    def is_backing_off(self) -> bool:
        """Dead, and not started again at once."""
        return self._process is None and self._backoff.delay_ms > RESTART_DELAY_MIN_MS

    @property
    def pid(self) -> int | None:
        """None between two lives."""
        return self._process.pid if self._process else None

    async def run(self) -> None:
        """Keep it alive until `stop`."""
        while True:
            await self._live()
            if self._stopping.is_set():
                return
            self._on_change()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), self._backoff.delay_ms / 1000)
                return
            self.restarts += 1

    async def stop(self, grace_s: float) -> None:
        """Ask politely (SIGTERM), insist after `grace_s`. Returns when no process is left."""
        self._stopping.set()
        await self.terminate(grace_s)

    async def terminate(self, grace_s: float) -> None:
        """End this life (SIGTERM, and SIGKILL after `grace_s`); the next one follows, unless it was stopped."""
        process = self._process
        if process is None:
            return
        self._signal(process, signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), grace_s)
        except TimeoutError:
            _log.warning("%s did not stop within %.0f s: killing it", self.program.name, grace_s)
            self._signal(process, signal.SIGKILL)
            await process.wait()

    def kill(self) -> None:
        """kill -9: it is started again as after any death."""
        if self._process is not None:
            self._signal(self._process, signal.SIGKILL)

    async def _live(self) -> None:
        with open_log(self.program.log) as output:
            process = await asyncio.create_subprocess_exec(
                *dying_with_parent(list(self.program.arguments)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
        self._process = process
        self.started_at = _now()
        self._on_change()
        if self._stopping.is_set():  # stop() came while the process was being made, and could not know it
            self._signal(process, signal.SIGTERM)
        probe = asyncio.create_task(self._notice_ready())
        code = await process.wait()
        probe.cancel()
        self._died(process.pid, code)

    def _died(self, pid: int, code: int) -> None:
        was_ready = self.ready.is_set()
        self._process = None
        self.ready.clear()
        if self._stopping.is_set():
            return
        self.exited = Exit.of_process(code, self.started_at, _now())
        self._backoff = self._backoff.after_death(was_ready=was_ready, was_killed=code == -signal.SIGKILL)
        _log.warning(
            "%s (process %d) %s: starting it again in %d ms; its log is %s",
            *(self.program.name, pid, _how(code), self._backoff.delay_ms, self.program.log),
        )

    async def _notice_ready(self) -> None:
        await until_answers(self.program.ready_url)
        self.ready.set()
        if self.restarts:
            _log.info("%s is ready again, as process %s", self.program.name, self.pid)
        self._on_change()

    @staticmethod
    def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)


def _how(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

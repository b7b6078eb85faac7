"""The programs under supervision, each over all of its lives, and the fleet of brokers that they make.

A `Child` owns a process: `run` starts it, notices when it is ready, and starts it again when it dies, until `stop`.
Each life is a real process in a session of its own (Ctrl-C in a terminal reaches the supervisor alone) that dies with
the supervisor, and writes to one log file. `on_change` is called with each change. A process is ready when a GET on
loopback is answered with 200; like a kubelet's probe, the GET accepts any certificate: it checks whether the process
works, not its identity.

A `Fleet` owns one `Child` per broker and the task that runs it, and knows which Pod stands for which broker. Called by
the supervisor (start, stop) and by the controller (scale, kill).
"""

import asyncio
import contextlib
import logging
import signal
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from headrace.dev.supervisor.forking import RESTART_DELAY_MIN_MS, RestartDelay, Running, Start, execute
from headrace.dev.supervisor.layout import LOOPBACK, open_log
from headrace.dev.supervisor.pod_status import Exit, PodStatus
from headrace.dev.supervisor.workload import LEAVING_GRACE_S, BrokerView

_TIMEOUT_S = 2.0
_INTERVAL_S = 0.05
_log = logging.getLogger("headrace.dev")


async def until_answers(url: str) -> None:
    """Ask until the answer is 200."""
    while True:
        if await answers(url):
            return
        await asyncio.sleep(_INTERVAL_S)


async def answers(url: str) -> bool:
    """Return whether a GET of `url` comes back with 200; anything else, a refused connection included, is a no."""
    parts = urlsplit(url)
    request = f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n\r\n".encode()
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(
                parts.hostname or LOOPBACK, parts.port, ssl=_unverified() if parts.scheme == "https" else None
            )
            try:
                writer.write(request)
                status_line = await reader.readline()
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
    except (OSError, TimeoutError):
        return False
    return status_line.split()[1:2] == [b"200"]


def _unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@dataclass(frozen=True, slots=True)
class Program:
    """A command to run, and the way to see that it is ready."""

    name: str
    arguments: tuple[str, ...]
    log: Path
    ready_url: str
    """The URL that answers 200 once the process does its work."""


class Child:
    def __init__(self, program: Program, on_change: Callable[[], None], start: Start = execute) -> None:
        self.program = program
        self.ready = asyncio.Event()
        """The readiness of the present life."""
        self.restarts = 0
        """The number of starts after the first."""
        self.started_at = ""
        """The start of the latest life in RFC 3339."""
        self.exited: Exit | None = None
        """The latest death, unless `stop` brought it about."""
        self._on_change = on_change
        self._start = start
        self._process: Running | None = None
        self._backoff = RestartDelay()
        self._stopping = asyncio.Event()

    @property
    def is_backing_off(self) -> bool:
        """Return whether it is dead, and not started again at once."""
        return self._process is None and self._backoff.delay_ms > RESTART_DELAY_MIN_MS

    @property
    def pid(self) -> int | None:
        """Return the pid; None between two lives."""
        return self._process.pid if self._process else None

    async def run(self) -> None:
        """Keep the process alive until `stop`."""
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
        """Send SIGTERM, and SIGKILL after `grace_s`. Returns when no process is left."""
        self._stopping.set()
        await self.terminate(grace_s)

    async def terminate(self, grace_s: float) -> None:
        """End this life (SIGTERM, and SIGKILL after `grace_s`); the next one follows, unless `stop` was called."""
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
        """Kill with SIGKILL; it is started again as after any death."""
        if self._process is not None:
            self._signal(self._process, signal.SIGKILL)

    async def _live(self) -> None:
        with open_log(self.program.log) as output:
            process = await self._start(self.program.arguments, output)
        self._process = process
        self.started_at = _now()
        self._on_change()
        if self._stopping.is_set():  # stop() was called while the process was being made, before its pid was known.
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
    def _signal(process: Running, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)


def _how(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(slots=True)
class _Member:
    child: Child
    run: asyncio.Task[None]
    pod_uid: str | None = None
    restarts_before_pod: int = 0
    """The restarts before this Pod: a Pod counts those of its own life, as on a kubelet."""
    stopping: bool = False

    def status(self) -> PodStatus:
        child = self.child
        running, restarts = child.pid is not None, max(0, child.restarts - self.restarts_before_pod)
        of_this_pod = restarts > 0 or (not running and child.restarts >= self.restarts_before_pod)
        return PodStatus(
            ready=child.ready.is_set(),
            restarts=restarts,
            started_at=child.started_at,
            running=running,
            exited=child.exited if of_this_pod else None,
            backing_off=child.is_backing_off,
        )


class Fleet:
    def __init__(
        self,
        program: Callable[[int], Program],
        port: Callable[[int], int],
        tasks: asyncio.TaskGroup,
        on_change: Callable[[], None],
        grace_s: float,
        start: Start = execute,
    ) -> None:
        """Take `grace_s`, the time that each gets where all stop at once."""
        self._program = program
        self._port = port
        self._tasks = tasks
        self._on_change = on_change
        self._grace_s = grace_s
        self._start = start
        self._members: dict[int, _Member] = {}

    @property
    def children(self) -> dict[int, Child]:
        """Return the children by broker id, ascending."""
        return {broker: self._members[broker].child for broker in sorted(self._members)}

    def add(self, broker: int) -> None:
        child = Child(self._program(broker), self._on_change, self._start)
        self._members[broker] = _Member(child, self._tasks.create_task(child.run()))

    def remove(self, broker: int) -> None:
        """Stop it gracefully, beside all else; its data stays until it is added again."""
        self._members[broker].stopping = True
        self._tasks.create_task(self._leave(broker))

    async def stop(self) -> None:
        """Stop all at once, each gracefully."""
        await asyncio.gather(*(member.child.stop(self._grace_s) for member in self._members.values()))

    def restart(self, broker: int) -> None:
        """Stop its process gracefully, beside all else; the next one follows."""
        self._members[broker].stopping = True
        self._tasks.create_task(self._end_life(broker))

    def kill(self, broker: int) -> None:
        """Kill it. One that is stopping may be gone by now: then there is nothing to do, here and below."""
        if broker in self._members:
            self._members[broker].child.kill()

    def set_pod(self, broker: int, uid: str | None) -> None:
        member = self._members.get(broker)
        if member is None:
            return
        if uid is None:  # Its process is about to die with its Pod, which is no restart of the next Pod.
            member.restarts_before_pod = member.child.restarts + 1
        member.pod_uid = uid

    def views(self) -> tuple[BrokerView, ...]:
        return tuple(
            BrokerView(broker, member.status(), self._port(broker), member.pod_uid, member.stopping)
            for broker, member in sorted(self._members.items())
        )

    async def _leave(self, broker: int) -> None:
        await self._members[broker].child.stop(LEAVING_GRACE_S)
        del self._members[broker]
        self._on_change()

    async def _end_life(self, broker: int) -> None:
        member = self._members[broker]
        await member.child.terminate(LEAVING_GRACE_S)
        member.stopping = False
        self._on_change()

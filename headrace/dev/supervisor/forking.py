"""The ways to start a program: forked by one that has loaded them all (`fork_server`), or executed where that fails.

    the program is one that the server knows       ──> fork it
    ... and wants another interpreter              ──> execute it: LD_PRELOAD, PYTHONMALLOC and the like are read once,
                                                       before any program
    ... and the server is dead, or does not answer ──> execute it, and say so
    the server is killed                           ──> start another one; what it has forked lives on

    a process died after it was ready              ──> start it again after the least delay (a crash, a kill -9)
    ... before it was ready                        ──> after twice the last delay (a bad disk, a port in use)
    ... killed before it was ready                 ──> the same, within a bound (a user does that on purpose)

A program that was forked is a child of this process like one that was executed, and dies with it in the same way. It is
held by its pidfd, so that no signal ever reaches another process.
"""

import asyncio
import contextlib
import ctypes
import logging
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Protocol, Self, TypeAlias

from headrace.dev.supervisor.fork_server import GO, PID_BYTES_MAX, Order, server_command
from headrace.dev.supervisor.parent_death import dying_with_parent

_PR_SET_CHILD_SUBREAPER = 36
RESTART_DELAY_MIN_MS = 100
RESTART_DELAY_MAX_MS = 10_000
RESTART_DELAY_KILLED_MAX_MS = 400
PROGRAMS: Mapping[str, tuple[str, ...]] = {
    "headrace.dev.api": ("headrace.dev.api.__main__",),
    "headrace_broker.main": ("headrace_broker.main", "headrace_broker.process"),
    "headrace_operator.main": ("headrace_operator.main",),
}
"""The programs, by the argument of `python -m`: the module with that `main`, then others that it will need."""
_INTERPRETER = ("PYTHON", "LD_", "MALLOC_", "GLIBC_", "LANG", "LC_", "OPENSSL_")
"""The beginnings of variables that the interpreter and its libraries read at their start."""
_ANSWER_S = 30.0
"""The patience with a server that has yet to load everything, on a busy machine."""
_log = logging.getLogger("headrace.dev")


class Forked:
    """A forked process with the interface of `asyncio.subprocess.Process`. Used on one event loop, or on none."""

    def __init__(self, pid: int) -> None:
        """Open the process. Raises ProcessLookupError where it has ended and was waited for."""
        self.pid = pid
        self._code: int | None = None
        self._pidfd = os.pidfd_open(pid)
        self._ended: asyncio.Future[None] | None = None

    def fileno(self) -> int:
        """Return the descriptor: readable once the process has ended, and closed once `poll` has returned the exit
        code."""
        return self._pidfd

    def poll(self) -> int | None:
        """Return the exit code, negative for the signal that ended it; None as long as it runs."""
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
                self._let_go()
        return self._code

    @property
    def returncode(self) -> int | None:
        """Return the same under `subprocess`' name."""
        return self.poll()

    async def wait(self) -> int:
        """Wait for the end and return the exit code."""
        while (code := self.poll()) is None:
            if self._ended is None:
                loop = asyncio.get_running_loop()
                self._ended = loop.create_future()
                loop.add_reader(self._pidfd, self.poll)
            await asyncio.shield(self._ended)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal; does nothing where the process has ended."""
        if self.poll() is None:
            signal.pidfd_send_signal(self._pidfd, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _let_go(self) -> None:
        if self._ended is not None:
            self._ended.get_loop().remove_reader(self._pidfd)
            self._ended.set_result(None)
        os.close(self._pidfd)


@contextlib.contextmanager
def taking_in_orphans() -> Iterator[None]:
    """Make this process, until the block ends, the parent of those below it whose own parent ends."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    if prctl(_PR_SET_CHILD_SUBREAPER, 1) != 0:
        raise OSError(ctypes.get_errno(), "the kernel lets this process take in no orphans")
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, 0)


@dataclass(frozen=True, slots=True)
class RestartDelay:
    """The time to wait after the latest death."""

    delay_ms: int = 0
    """The delay; 0 while it has not died yet."""

    def after_death(self, *, was_ready: bool, was_killed: bool) -> "RestartDelay":
        """Return the next delay; `was_killed` means by SIGKILL, which no program sends itself."""
        if was_ready:
            return RestartDelay(RESTART_DELAY_MIN_MS)
        most = RESTART_DELAY_KILLED_MAX_MS if was_killed else RESTART_DELAY_MAX_MS
        return RestartDelay(min(max(2 * self.delay_ms, RESTART_DELAY_MIN_MS), most))


class CannotForkError(OSError):
    """The server does not fork this program, or does not fork at all."""


class Running(Protocol):
    """A process, forked or executed."""

    @property
    def pid(self) -> int: ...

    async def wait(self) -> int: ...

    def send_signal(self, number: signal.Signals, /) -> None: ...


Start: TypeAlias = Callable[[Sequence[str], BinaryIO], Awaitable[Running]]
"""A function that starts a command line with its output in that file."""


async def execute(command: Sequence[str], output: BinaryIO) -> Running:
    """Start a process in a session of its own that dies with this one."""
    return await asyncio.create_subprocess_exec(
        *dying_with_parent(list(command)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=output,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )


class ForkServer:
    """The owner of the server's process from `start` to `close`. One program is being forked at a time."""

    def __init__(
        self, programs: Mapping[str, tuple[str, ...]] = PROGRAMS, environment: Mapping[str, str] | None = None
    ) -> None:
        """Take `environment` for the server, else that of this process."""
        self._programs = programs
        self._environment = dict(os.environ if environment is None else environment)
        self._turn = asyncio.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._asking: socket.socket | None = None
        self._has_forked = False

    @classmethod
    @contextlib.contextmanager
    def running(cls) -> Iterator[Self]:
        """Run a server until the block ends; where it cannot be started, programs are executed."""
        forks = cls()
        with contextlib.closing(forks):
            with contextlib.suppress(OSError):
                forks.start()
            yield forks

    @property
    def pid(self) -> int | None:
        """Return the pid; None where no server runs."""
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """Start the server and return at once. The kernel watches the thread that calls this: one that stays."""
        self.close()
        self._has_forked = False
        self._asking, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._asking.settimeout(0)
        modules = [module for needed in self._programs.values() for module in needed]
        with theirs:
            self._process = subprocess.Popen(
                server_command(theirs.fileno(), os.getpid(), modules),
                stdin=subprocess.DEVNULL,
                env=self._environment,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )

    def close(self) -> None:
        """End the server; what it has forked stays. Does nothing where it does not run."""
        if self._asking is not None:
            self._asking.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._asking = self._process = None

    async def keep(self) -> None:
        """Start another one whenever it dies, until this is cancelled."""
        backoff = RestartDelay()
        while True:
            await self._dead()
            backoff = backoff.after_death(was_ready=self._has_forked, was_killed=False)
            _log.warning("the fork server died: starting it again in %d ms", backoff.delay_ms)
            await asyncio.sleep(backoff.delay_ms / 1000)
            with contextlib.suppress(OSError):  # This is tried again after a longer while.
                self.start()

    async def run(self, command: Sequence[str], output: BinaryIO) -> Running:
        """Run the program, forked or else executed. Raises OSError where neither can be."""
        if self.can_fork(command, os.environ):
            try:
                return await self._forked(command, output)
            except (OSError, TimeoutError) as error:
                _log.warning("%s is executed, not forked: %s", command[2], str(error) or "no answer")
        return await execute(command, output)

    def can_fork(self, command: Sequence[str], environment: Mapping[str, str]) -> bool:
        """Return whether the server can fork this command: one of its programs, by the interpreter that it has."""
        is_known = tuple(command[:2]) == (sys.executable, "-m") and command[2] in self._programs
        return is_known and _interpreter(environment) == _interpreter(self._environment)

    def ask(self, command: Sequence[str], output: int, errors: int, environment: Mapping[str, str]) -> socket.socket:
        """Order what `can_fork`, and return the socket on which the new process will send its pid, for `take_in`.
        Raises OSError.

        Orphans must be taken in from before this call until after that.
        """
        if self._asking is None:
            raise CannotForkError("there is no fork server")
        order = Order(self._programs[command[2]], tuple(command), tuple(command[3:]), dict(environment))
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        directory = os.open(".", os.O_PATH)
        try:
            socket.send_fds(self._asking, [order.to_bytes()], [directory, output, errors, theirs.fileno()])
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(directory)
        return ours

    async def _forked(self, command: Sequence[str], output: BinaryIO) -> Forked:
        async with self._turn:
            file = output.fileno()
            with taking_in_orphans(), self.ask(command, file, file, os.environ) as line:
                line.settimeout(0)
                async with asyncio.timeout(_ANSWER_S):
                    told = await asyncio.get_running_loop().sock_recv(line, PID_BYTES_MAX)
                forked = take_in(line, told)
        self._has_forked = True
        return forked

    async def _dead(self) -> None:
        if self._asking is not None:
            with contextlib.suppress(ConnectionError):
                await asyncio.get_running_loop().sock_recv(self._asking, 1)


def take_in(line: socket.socket, told: bytes) -> Forked:
    """Return the process that has sent its pid on `line`; it starts its program now. Raises OSError."""
    if not told:
        raise CannotForkError("the fork server has died, or the kernel gives it no more processes")
    forked = Forked(int(told))
    try:
        line.send(GO)
    except OSError:  # It was killed meanwhile.
        forked.kill()
        select.select([forked], [], [])
        forked.poll()
        raise
    return forked


def _interpreter(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_INTERPRETER)}

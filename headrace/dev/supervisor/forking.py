"""Starts programs: forked by a process that has loaded them all (`fork_server`), executed where that cannot be.

    the program is one that the server knows       ──> fork it
    ... and wants another interpreter              ──> execute it: LD_PRELOAD, PYTHONMALLOC and the like are read once,
                                                       before any program
    ... and the server is dead, or does not answer ──> execute it, and say so
    the server is killed                           ──> start another one; what it has forked lives on

A program that was forked is a child of this process as one that was executed, and dies with it in the same way.
"""

import asyncio
import contextlib
import logging
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import BinaryIO, Protocol, Self, TypeAlias

from headrace.dev.supervisor.fork_server import GO, PID_BYTES_MAX, Order, server_command
from headrace.dev.supervisor.forked import Forked, taking_in_orphans
from headrace.dev.supervisor.parent_death import dying_with_parent
from headrace.dev.supervisor.restart import Backoff

PROGRAMS: Mapping[str, tuple[str, ...]] = {
    "headrace.dev.api": ("headrace.dev.api.__main__",),
    "headrace_broker.main": ("headrace_broker.main", "headrace_broker.process"),
    "headrace_operator.main": ("headrace_operator.main",),
}
"""The programs, by what `python -m` runs: the module whose `main` that is, then others that it will need."""
_INTERPRETER = ("PYTHON", "LD_", "MALLOC_", "GLIBC_", "LANG", "LC_", "OPENSSL_")
"""The beginnings of variables that the interpreter and its libraries read at their start."""
_ANSWER_S = 30.0
"""The patience with a server that has yet to load everything, on a busy machine."""
_log = logging.getLogger("headrace.dev")


class CannotForkError(OSError):
    """The server does not fork this program, or none at all."""


class Running(Protocol):
    """A process, forked or executed."""

    @property
    def pid(self) -> int: ...

    async def wait(self) -> int: ...

    def send_signal(self, number: signal.Signals, /) -> None: ...


Start: TypeAlias = Callable[[Sequence[str], BinaryIO], Awaitable[Running]]
"""A function that starts a command line with its output in that file."""


async def execute(command: Sequence[str], output: BinaryIO) -> Running:
    """A process in a session of its own that dies with this one."""
    return await asyncio.create_subprocess_exec(
        *dying_with_parent(list(command)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=output,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )


class ForkServer:
    """Owns the server's process from `start` to `close`. One program is being forked at a time."""

    def __init__(
        self, programs: Mapping[str, tuple[str, ...]] = PROGRAMS, environment: Mapping[str, str] | None = None
    ) -> None:
        """The server gets `environment`, else what this process has."""
        self._programs = programs
        self._environment = dict(os.environ if environment is None else environment)
        self._turn = asyncio.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._asking: socket.socket | None = None
        self._has_forked = False

    @classmethod
    @contextlib.contextmanager
    def running(cls) -> Iterator[Self]:
        """A server until the block ends; where it cannot be started, programs are executed."""
        forks = cls()
        with contextlib.closing(forks):
            with contextlib.suppress(OSError):
                forks.start()
            yield forks

    @property
    def pid(self) -> int | None:
        """None where no server runs."""
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """Returns at once. The kernel watches the thread that calls it: one that stays."""
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
        """End the server; what it has forked stays. Nothing happens where it does not run."""
        if self._asking is not None:
            self._asking.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._asking = self._process = None

    async def keep(self) -> None:
        """Start another one whenever it dies, until this is cancelled."""
        backoff = Backoff()
        while True:
            await self._dead()
            backoff = backoff.after_death(was_ready=self._has_forked, was_killed=False)
            _log.warning("the fork server died: starting it again in %d ms", backoff.delay_ms)
            await asyncio.sleep(backoff.delay_ms / 1000)
            with contextlib.suppress(OSError):  # tried again after a longer while
                self.start()

    async def run(self, command: Sequence[str], output: BinaryIO) -> Running:
        """The program, forked or else executed. Raises OSError where neither can be."""
        if self.can_fork(command, os.environ):
            try:
                return await self._forked(command, output)
            except (OSError, TimeoutError) as error:
                _log.warning("%s is executed, not forked: %s", command[2], str(error) or "no answer")
        return await execute(command, output)

    def can_fork(self, command: Sequence[str], environment: Mapping[str, str]) -> bool:
        """Tell whether the server can fork this command: one of its programs, by the interpreter that it has."""
        is_known = tuple(command[:2]) == (sys.executable, "-m") and command[2] in self._programs
        return is_known and _interpreter(environment) == _interpreter(self._environment)

    def ask(self, command: Sequence[str], output: int, errors: int, environment: Mapping[str, str]) -> socket.socket:
        """Order what `can_fork`; the socket by which the new process will tell its pid, for `take_in`. Raises OSError.

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
    """The process that has told its pid on `line`; it goes on now. Raises OSError."""
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

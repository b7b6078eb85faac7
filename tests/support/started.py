"""Headrace's own programs as processes, forked by one server for each process that runs tests.

What is forked dies with that process. What wants another interpreter, or is started by another program, is executed.
"""

import asyncio
import atexit
import os
import select
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Protocol, TypeAlias

from headrace.dev.supervisor.fork_server import PID_BYTES_MAX
from headrace.dev.supervisor.forking import Forked, ForkServer, take_in, taking_in_orphans
from tests.support.patience import patient

_FORKED_S = patient(60)
_OWN = dict(os.environ)
"""The variables of this process before any test has changed one."""
_turn = threading.Lock()


class Process(Protocol):
    """The part of `subprocess.Popen` that tests use."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | Any: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, sig: int) -> None: ...

    def kill(self) -> None: ...


AsyncProcess: TypeAlias = Forked | asyncio.subprocess.Process


class _Waited:
    """A `Process` that was forked."""

    def __init__(self, forked: Forked, command: Sequence[str]) -> None:
        self._forked = forked
        self._command = command
        self.pid = forked.pid
        self.poll = forked.poll
        self.send_signal = forked.send_signal
        self.kill = forked.kill

    @property
    def returncode(self) -> int | None:
        return self._forked.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Raises TimeoutExpired."""
        if self.poll() is None:
            readable, _, _ = select.select([self._forked], [], [], timeout)
            if not readable:
                raise subprocess.TimeoutExpired(self._command, timeout or 0)
        code = self.poll()
        assert code is not None
        return code


def start(command: Sequence[str], output: int, errors: int | None = None) -> Process:
    """Run it with these descriptors for what it says: one for both, unless `errors` is given."""
    errors = output if errors is None else errors
    forked = _fork(command, output, errors)
    if forked is not None:
        return _Waited(forked, command)
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=_environment())


async def start_beside(command: Sequence[str], output: int) -> AsyncProcess:
    """Start it for the event loop, on which it is waited for."""
    return _fork(command, output, output) or await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output, env=_environment()
    )


def module(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", name, *arguments]


def _fork(command: Sequence[str], output: int, errors: int) -> Forked | None:
    """Fork it; return None where it must be executed.

    The kernel ends the server with the thread that has started it, so that is the main one or none.
    """
    environment = _environment()
    with _turn:
        if threading.current_thread() is not threading.main_thread() and not _server.cache_info().currsize:
            return None
        server = _server()
        if not server.can_fork(command, environment):
            return None
        with taking_in_orphans(), server.ask(command, output, errors, environment) as line:
            line.settimeout(_FORKED_S)
            return take_in(line, line.recv(PID_BYTES_MAX))


@cache
def _server() -> ForkServer:
    server = ForkServer(environment={**_OWN, "PYTHONUNBUFFERED": "1"})
    server.start()
    atexit.register(server.close)
    return server


def _environment() -> Mapping[str, str]:
    """Tests read what programs print as soon as it is printed."""
    return {**os.environ, "PYTHONUNBUFFERED": "1"}

"""A detached `headrace dev` that comes back by itself when its supervisor is killed.

    supervisor is ready       ──> a successor is started; it waits at a pipe whose other end only the supervisor holds
    supervisor ends by itself ──> it ends the successor first
    supervisor is killed      ──> the pipe ends: the successor becomes the supervisor (exec, same pid), on the same data
                                  and ports, and has a successor of its own from the start
    successor is killed       ──> the supervisor starts another one

All other processes die with their supervisor (`parent_death`), so that the successor starts from what is on disk, as
any start does, and never has to look for processes that it did not start. This file is also the program that waits: it
loads next to nothing (`-I -S`), because it waits for as long as all goes well.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import Sequence

_RESTART_DELAY_S = 0.1
_STDIN = 0


class Successor:
    """The owner of the waiting process, for as long as `keep` runs."""

    def __init__(self, command: Sequence[str]) -> None:
        """Take the `command` that it becomes."""
        self._command = [sys.executable, "-I", "-S", __file__, *command]
        self._process: asyncio.subprocess.Process | None = None
        self._keeping: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Start one: it is there when this returns, and there is always one until `dismiss`."""
        self._process = await self._start()
        self._keeping = tasks.create_task(self._keep(self._process))

    async def dismiss(self) -> None:
        """End it in silence, as it is not needed any more. Does nothing where none was started."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):  # It may have been killed.
                self._process.kill()
            await self._process.wait()

    async def _keep(self, process: asyncio.subprocess.Process) -> None:
        while True:
            await process.wait()
            await asyncio.sleep(_RESTART_DELAY_S)
            process = self._process = await self._start()

    async def _start(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *self._command, stdin=asyncio.subprocess.PIPE, start_new_session=True
        )


def _wait_and_become(command: list[str]) -> None:
    os.read(_STDIN, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, _STDIN)
    os.execv(command[0], command)


if __name__ == "__main__":
    _wait_and_become(sys.argv[1:])

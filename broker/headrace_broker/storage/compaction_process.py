"""A broker's handle on the process that compacts for it: started for the first job, ended when there is none for long.

One per broker, used by one task. A process that dies (out of memory, killed) or cannot be started fails the job that
it had; the next job starts another one. `close` ends it at once: what it had written and was not swapped in is removed
by the broker, or by the next opening of the log.
"""

import asyncio
import logging
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import suppress

from headrace.core.limits import COMPACTOR_IDLE_MS
from headrace_broker.storage.compaction_job import GO_ON, Done, Failed, Job, Told, Why, format_job, parse_told

_log = logging.getLogger(__name__)
_LINE_BYTES_MAX = 1 << 20


class CompactionProcess:
    def __init__(self, idle_ms: int = COMPACTOR_IDLE_MS) -> None:
        self._idle_ms = idle_ms
        self._process: Process | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._leaving: asyncio.Task[int] | None = None
        """Waits for the last process whose input has ended."""

    async def run(self, job: Job) -> AsyncGenerator[Told, None]:
        """What the process tells, the last of it Done or Failed; it goes on when the caller asks for more."""
        try:
            process = await self._started()
        except OSError as error:
            yield Failed(Why.ENDED, f"the process that compacts cannot be started: {error.strerror}")
            return
        try:
            told = await self._ask(process, format_job(job))
            while not isinstance(told, Done | Failed):
                yield told
                told = await self._ask(process, GO_ON)
            if isinstance(told, Done):
                assert process.stdin is not None
                process.stdin.write(GO_ON)
        except (OSError, ValueError) as error:
            await self.close()
            told = Failed(Why.ENDED, f"the process that compacts {_how_ended(process.returncode)}: {error}")
        except BaseException:
            await self.close()  # It would wait for an answer that never comes.
            raise
        # Before the last word: whoever has heard that does not come back for more.
        self._idle = asyncio.get_running_loop().call_later(self._idle_ms / 1000, self._end)
        yield told

    async def close(self) -> None:
        """End the process now."""
        process, self._process = self._process, None
        if process is not None:
            self._cancel_idle()
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        if self._leaving is not None:
            await self._leaving

    async def _started(self) -> Process:
        self._cancel_idle()
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "headrace_broker.storage.compaction_worker"),
                stdin=PIPE,
                stdout=PIPE,
                limit=_LINE_BYTES_MAX,
            )
            _log.info("the process that compacts is %d", self._process.pid)
        return self._process

    async def _ask(self, process: Process, line: bytes) -> Told:
        """Raises ConnectionError where the process has ended."""
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(line)
        await process.stdin.drain()
        answer = await process.stdout.readline()
        if not answer:
            await process.wait()
            raise ConnectionResetError("it has said nothing more")
        return parse_told(answer)

    def _end(self) -> None:
        """Its input ends, and with it the process; a job that comes now has another one."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
            self._leaving = asyncio.create_task(process.wait())

    def _cancel_idle(self) -> None:
        if self._idle is not None:
            self._idle.cancel()


def _how_ended(code: int | None) -> str:
    if code == -signal.SIGKILL:
        return "was killed (signal 9), as the kernel does where memory runs out"
    return f"ended with code {code}"

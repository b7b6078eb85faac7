"""The end of a broker's life: what brings it about, and the waiting for it.

    asked to stop ──> `asked` ── asked again ──> `hurry`: nothing more is handed over
    a log is damaged that others have whole ──> `asked`, and another life begins (`returns`)
    the disk failed ──> every wait raises DiskFailedError

One per life, on its event loop.
"""

import asyncio
import logging
import signal
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from headrace.core.errors import HeadraceError

T = TypeVar("T")
_log = logging.getLogger(__name__)


class DiskFailedError(HeadraceError):
    """A write or a sync failed: what is on disk is not known any more."""

    code = "DiskFailed"


class StoppedEarlyError(Exception):
    """The broker was asked to stop before this life had begun."""


class Ending:
    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.asked: asyncio.Future[None] = loop.create_future()
        """Resolved when this process is asked to stop."""
        self.hurry: asyncio.Future[None] = loop.create_future()
        """Resolved when it is asked again."""
        self._broken: asyncio.Future[None] = loop.create_future()
        """Failed when it must stop because its disk failed."""
        self.returns = False
        """Whether another life begins: nobody has asked the broker to stop, and that life mends what this one holds."""

    def ask(self, number: signal.Signals) -> None:
        """Stop. The second time: wait for nobody else. Where this life ends for damage already: begin no other."""
        is_second, self.returns = self.asked.done() and not self.returns, False
        asked = self.hurry if is_second else self.asked
        if not asked.done():
            _log.info("stopping: %s", number.name)
            asked.set_result(None)

    def mend(self, reason: str) -> None:
        """End this life, and begin another one that mends what this one holds."""
        if not self.asked.done():
            _log.error("this life ends, and another begins: %s", reason)
            self.returns = True
            self.asked.set_result(None)

    def fail(self, reason: str) -> None:
        """Stop, because the disk failed."""
        if not self._broken.done():
            self._broken.set_exception(DiskFailedError(f"the disk failed, this broker stops: {reason}"))

    async def unless_asked(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work, which may take as long as others are away. Raises StoppedEarlyError when it is asked to stop."""
        task = asyncio.create_task(work)
        try:
            await asyncio.wait((task, self.asked), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise StoppedEarlyError
            return task.result()
        finally:
            await cancel((task,))

    async def wait(self, end: asyncio.Future[None], tasks: Sequence[asyncio.Task[None]]) -> None:
        """Wait for `end`. Raises what any of the tasks raises, and DiskFailedError."""
        waiting: set[asyncio.Future[None]] = {end, self._broken, *tasks}
        while not end.done():
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                ended.result()


async def cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

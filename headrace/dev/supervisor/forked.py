"""A child process that another one has forked: known by its pidfd, so that no signal ever meets a stranger."""

import asyncio
import contextlib
import ctypes
import os
import signal
from collections.abc import Iterator

_PR_SET_CHILD_SUBREAPER = 36


class Forked:
    """Offers what `asyncio.subprocess.Process` offers. Used on one event loop, or on none."""

    def __init__(self, pid: int) -> None:
        """Raises ProcessLookupError where it has ended and was waited for."""
        self.pid = pid
        self._code: int | None = None
        self._pidfd = os.pidfd_open(pid)
        self._ended: asyncio.Future[None] | None = None

    def fileno(self) -> int:
        """Readable once it has ended, and gone once `poll` has told so."""
        return self._pidfd

    def poll(self) -> int | None:
        """The exit code, negative for the signal that ended it; None as long as it runs."""
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
                self._let_go()
        return self._code

    @property
    def returncode(self) -> int | None:
        """The same, as `subprocess` names it."""
        return self.poll()

    async def wait(self) -> int:
        """The exit code, once it has ended."""
        while (code := self.poll()) is None:
            if self._ended is None:
                loop = asyncio.get_running_loop()
                self._ended = loop.create_future()
                loop.add_reader(self._pidfd, self.poll)
            await asyncio.shield(self._ended)
        return code

    def send_signal(self, number: int) -> None:
        """Nothing happens where it has ended."""
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

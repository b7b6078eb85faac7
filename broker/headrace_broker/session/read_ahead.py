"""A read that has to wait for the disk: made in a thread, then held until its turn to be sent has come.

    idle ── begin ──> waiting for its turn to read ──> reading ──> ready (the writer is told) ── take ──> idle

One for each channel that reads, so that whoever is far behind is read for ahead of the writer, and never holds it up.
What was read is counted in the budget of its stream until it is taken.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from headrace.core.errors import HeadraceError, ThrottledError
from headrace_broker.admission import Share
from headrace_broker.session.outgoing import ROOM_S, Outgoing, Source

T = TypeVar("T")


class ReadAhead(Generic[T]):
    def __init__(self, outgoing: Outgoing, source: Source) -> None:
        """`source` is let speak as soon as something was read for it."""
        self._outgoing = outgoing
        self._source = source
        self._reading: asyncio.Task[None] | None = None
        self._read: T | HeadraceError | None = None

    @property
    def is_under_way(self) -> bool:
        """Until `take`."""
        return self._reading is not None

    def begin(self, read: Callable[[Share], Awaitable[T]]) -> None:
        """`read` counts what it reads in the share; ThrottledError is no failure of it, it is called again."""
        self._reading = asyncio.create_task(self._run(read), name="session reads")
        self._reading.add_done_callback(self._outgoing.fail_with)

    def take(self) -> T | None:
        """What was read; None where that is not there yet. Raises what the read raised."""
        read = self._read
        if read is None:
            return None
        self._read, self._reading = None, None
        self._taken.set_result(None)
        if isinstance(read, HeadraceError):
            raise read
        return read

    def cancel(self) -> None:
        if self._reading is not None:
            self._reading.cancel()

    async def _run(self, read: Callable[[Share], Awaitable[T]]) -> None:
        """Ends when the writer has taken over what was read: until then it is counted here."""
        async with self._outgoing.cold_reads:
            with self._outgoing.share() as share:
                self._taken = asyncio.get_running_loop().create_future()
                while self._read is None:
                    try:
                        self._read = await read(share)
                    except ThrottledError:
                        await share.room(ROOM_S)
                    except HeadraceError as error:
                        self._read = error
                self._outgoing.let_speak(self._source)
                await self._taken

"""The frames that one stream still has to send, and whose turn it is. One writer: nothing is ever written in between.

Answers wait here for as long as the event loop has something else to do, and leave together. After them each channel
that has something to send sends one frame a turn, so that one far behind never keeps another waiting; small frames
leave together, too. If the other side does not take the frames, that holds up the writer, and after some answers the
reader of the stream too. Lives as long as its session or replication stream, which alone uses it.

`SessionReadAhead` is a read that has to wait for the disk: made in a thread, then held until its turn to be sent has
come.

    idle ── begin ──> waiting for its turn to read ──> reading ──> ready (the writer is told) ── take ──> idle

One for each channel that reads: for a client that is far behind it reads ahead of the writer, and never holds it up.
The bytes that were read are counted in the budget of the stream until they are taken.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, Protocol, TypeVar

from headrace.core.errors import HeadraceError, ThrottledError
from headrace.core.frames.frame import Buffer
from headrace.core.limits import READ_INLINE_BYTES_MAX, SESSION_GROUP_FRAMES_MAX
from headrace_broker.admission import Budget, BudgetShare

SESSION_READ_BYTES = READ_INLINE_BYTES_MAX
"""The bytes of batches that a session reads at a time, one batch at least: it holds them while its client is slow."""
SESSION_COLD_READS_MAX = 4
"""The reads of one session that have to wait for the disk, under way or waiting to be sent."""
SESSION_ANSWERS_BYTES_MAX = 1 << 20
"""The bytes of answers that a client has not taken; above it nothing more is read of what it sends."""
SESSION_JOINED_BYTES = 64 << 10
"""The frames of batches up to this size in all are copied into one piece: each piece costs more than the copy."""


ROOM_S = 1.0
"""The longest time that a waiter for room in a budget waits before it looks again."""
T = TypeVar("T")


class FrameSource(Protocol):
    def next_frame(self, max_bytes: int) -> Sequence[Buffer]:
        """Return one frame in pieces, with so many bytes of batches at most, or one batch; empty where none is due."""


class StreamWriter(Protocol):
    def put(self, chunk: Buffer) -> None:
        """Write without waiting."""

    async def write(self, chunk: Buffer) -> None:
        """Write, and wait until the client takes what was written. Raises when the client is gone."""


class OutgoingFrames:
    def __init__(self, budget: Budget, holder: str | None) -> None:
        """Begin; `budget` bounds what is on its way to clients, over all requests, and `holder` is this client."""
        self._budget = budget
        self._holder = holder
        self.cold_reads = asyncio.Semaphore(SESSION_COLD_READS_MAX)
        """The bound of what is read from the disk and held until its turn comes."""
        self._said: list[bytes] = []
        self._said_bytes = 0
        self._ready: dict[FrameSource, None] = {}
        """The sources that have a frame to send, in turn."""
        self._woken: asyncio.Future[None] | None = None
        """The future that wakes the writer; it is there while the writer has nothing to do."""
        self._room: asyncio.Future[None] | None = None
        """The future of the reader that waits until answers are gone."""
        self._is_gathering = False
        self._writer: StreamWriter | None = None
        self._put_bytes = 0
        """The bytes that were written since the client was last seen to take them."""
        self._ended = False
        self._failure: BaseException | None = None
        self.written_s = asyncio.get_running_loop().time()
        """The time when the last frame was written, by the loop's clock."""

    def share(self) -> BudgetShare:
        """Return a share of what is on its way, for something that is read."""
        return self._budget.share(self._holder)

    def say(self, frame: bytes) -> None:
        self._said.append(frame)
        self._said_bytes += len(frame)
        if not self._is_gathering:
            self._wake()

    @property
    def is_idle(self) -> bool:
        """Return whether the writer waits for something to write, and the client takes what is written."""
        return self._woken is not None and not self._woken.done() and self._put_bytes <= SESSION_JOINED_BYTES

    def gather(self) -> None:
        """Hold what is said from now on: nothing is written before `speak`."""
        self._is_gathering = True

    def speak(self) -> None:
        """Write what was said, at once where the client takes all that is written; else the writer does it."""
        self._is_gathering = False
        if not self._said:
            return
        if not self.is_idle or self._writer is None:
            self._wake()
        else:
            said = self._take()
            self._put_bytes += len(said)
            self._writer.put(said)

    def let_speak(self, source: FrameSource) -> None:
        """Give a source a turn: it has something to send, or may have."""
        self._ready[source] = None
        self._wake()

    def silence(self, source: FrameSource) -> None:
        self._ready.pop(source, None)

    def end(self) -> None:
        """End the stream: `write_to` returns when everything is written."""
        self._ended = True
        self._wake()

    def fail(self, error: BaseException) -> None:
        """Make `write_to` raise the error."""
        self._failure = error
        self._wake()

    def fail_with(self, task: asyncio.Task[None]) -> None:
        """End the stream with the error that ended a task of ours, which nobody else hears of."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.fail(error)

    async def room(self) -> None:
        """Wait until few answers are waiting for the client to take them."""
        while self._said_bytes > SESSION_ANSWERS_BYTES_MAX:
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    async def write_to(self, writer: StreamWriter) -> None:
        """Write as there is something to write, until the end."""
        self._writer = writer
        while self._failure is None:
            if self._said:
                await writer.write(self._take())
                self._put_bytes = 0
            elif self._ready:
                await self._write_some(writer.write)
            elif self._ended:
                return
            else:
                self._woken = asyncio.get_running_loop().create_future()
                await self._woken
                self._woken = None
        raise self._failure

    async def _write_some(self, write: Callable[[Buffer], Awaitable[None]]) -> None:
        """Write one large frame, or several small ones in one piece."""
        with self.share() as share:
            try:
                granted = share.grant(SESSION_READ_BYTES)
            except ThrottledError:
                await self._pause(share)
                return
            buffers, size = self._gather(granted)
            share.resize(size)
            for buffer in [b"".join(buffers)] if size <= SESSION_JOINED_BYTES else buffers:
                await write(buffer)
        if size:
            self.written_s = asyncio.get_running_loop().time()
            # A fast client with much to read must not keep the loop from all others.
            await asyncio.sleep(0)

    async def _pause(self, share: BudgetShare) -> None:
        """Wait until there may be room for batches, or something else to send."""
        room = asyncio.create_task(share.room(ROOM_S), name="session waits for room")
        self._woken = asyncio.get_running_loop().create_future()
        try:
            await asyncio.wait((room, self._woken), return_when=asyncio.FIRST_COMPLETED)
        finally:
            room.cancel()
            self._woken = None

    def _gather(self, granted: int) -> tuple[list[Buffer], int]:
        """Return the frames of the sources whose turn it is, as long as they are small and few, and their bytes."""
        buffers: list[Buffer] = []
        size = 0
        for _ in range(min(len(self._ready), SESSION_GROUP_FRAMES_MAX)):
            source = next(iter(self._ready))
            del self._ready[source]
            frame = source.next_frame(granted - size)
            buffers += frame
            size += sum(map(len, frame))
            if size > SESSION_JOINED_BYTES // 2:
                break
        return buffers, size

    def _take(self) -> bytes:
        said = b"".join(self._said)
        self._said.clear()
        self._said_bytes = 0
        self.written_s = asyncio.get_running_loop().time()
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        return said

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)


class SessionReadAhead(Generic[T]):
    def __init__(self, outgoing: OutgoingFrames, source: FrameSource) -> None:
        """Read for `source`, which gets a turn as soon as something was read for it."""
        self._outgoing = outgoing
        self._source = source
        self._reading: asyncio.Task[None] | None = None
        self._read: T | HeadraceError | None = None

    @property
    def is_under_way(self) -> bool:
        """Return whether a read has begun that nobody has taken yet."""
        return self._reading is not None

    def begin(self, read: Callable[[BudgetShare], Awaitable[T]]) -> None:
        """Begin a read that counts its bytes in the share. ThrottledError is no failure: `read` is called again."""
        self._reading = asyncio.create_task(self._run(read), name="session reads")
        self._reading.add_done_callback(self._outgoing.fail_with)

    def take(self) -> T | None:
        """Return what was read; None where that is not there yet. Raises what the read raised."""
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

    async def _run(self, read: Callable[[BudgetShare], Awaitable[T]]) -> None:
        """Run the read until the writer has taken over what was read: until then the bytes are counted here."""
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

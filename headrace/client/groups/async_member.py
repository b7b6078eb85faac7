"""An `AsyncConsumer`'s membership in its group: the face of `member_errands` for an event loop.

It runs on one event loop, so the `GroupMember` needs no lock. Every await of the reader may be cancelled: the errand
that it follows goes on in a task of its own, and the reader's next await waits for it. An `AsyncConsumer` owns one,
from its start to `close`.
"""

import asyncio
import inspect
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from headrace.client.clock import now_ms
from headrace.client.consumer.async_fetcher import AsyncBetween, AsyncFetcher
from headrace.client.consumer.options import GroupOptions, Start
from headrace.client.groups.member import Sending
from headrace.client.groups.member_errands import MemberErrands
from headrace.client.record import TopicPartition
from headrace.client.transport.async_brokers import AsyncBrokers
from headrace.client.transport.errands import Errand
from headrace.core.errors import LocalError
from headrace.core.groups.events import JoinReceived
from headrace.core.limits import CONSUMER_LEAVE_MS_MIN

_log = logging.getLogger("headrace.client")


class AsyncMember(MemberErrands[AsyncBrokers], AsyncBetween):
    def __init__(
        self, brokers: AsyncBrokers, fetcher: AsyncFetcher, options: GroupOptions, start: Start, timeout_ms: int
    ) -> None:
        super().__init__(brokers, fetcher, options, start, timeout_ms)
        self._fetcher = fetcher
        self._changed = asyncio.Event()
        """Set when it may be time to look."""
        self._settled = asyncio.Event()
        """Set when the member is in the group, or there is an error to raise."""
        self._committing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._joining: set[asyncio.Task[None]] = set()
        """The tasks among these that ask to join."""
        self._following: asyncio.Task[None] | None = None
        """The errand that the reader follows, whether the reader waits for it or was cancelled."""

    async def join(self) -> None:
        """Join the group. Raises the coordinator's error, and the last error when the time limit is over."""
        self._keep(asyncio.create_task(self._look_after(), name="headrace-group"))
        await self._brokers.run(self.resume())
        while not (self.group_member.is_in or self.group_member.has_failed or self._closed):
            self._settled.clear()
            await self._settled.wait()
        self.group_member.raise_error()
        if self._closed:
            raise LocalError(f"{self.group_member.what}: closed meanwhile")

    # -- the reader's task -------------------------------------------------------------------------------------------

    async def follow(self) -> None:
        """Do what the group wants by now. Raises what a callback raises, and the error that ended the membership."""
        if self._following is None:
            if not self._plan.is_due() or self._close_by_ms is not None:
                return
            self._following = asyncio.create_task(self._run_following(), name="headrace-group-follow")
            self._following.add_done_callback(_look_at)
        await self.settle()

    async def _run_following(self) -> None:
        try:
            await self._brokers.run(self._follow())
        finally:  # The user may have gone away meanwhile.
            self._reading.handed.is_waited_for = self._fetcher.is_asked

    async def settle(self) -> None:
        """Wait for the errand that is followed. Raises its error."""
        following = self._following
        if following is None or self.is_in_callback():
            return
        await asyncio.wait([following])
        if self._following is following:
            self._following = None
            if not following.cancelled():
                following.result()

    def is_in_callback(self) -> bool:
        """Return whether the caller is a callback: then it must not wait for the errand, which waits for it."""
        return asyncio.current_task() is self._following

    async def is_settled(self) -> bool:
        return await self._brokers.run(self._is_settled())

    async def _call(self, callback: Callable[[list[TopicPartition]], Any], partitions: list[TopicPartition]) -> None:
        outcome = callback(partitions)
        if inspect.isawaitable(outcome):
            await outcome

    async def _commit_alone(self, errand: Errand[None], by_ms: int | None) -> bool:
        try:
            async with asyncio.timeout(None if by_ms is None else max(0, by_ms - now_ms()) / 1000):
                await self._committing.acquire()
        except TimeoutError:
            return False
        try:
            await self._brokers.run(errand)
        finally:
            self._committing.release()
        return True

    # -- in the background -------------------------------------------------------------------------------------------

    async def _look_after(self) -> None:
        try:
            while not self._closed:
                self._changed.clear()
                self._look()
                with suppress(TimeoutError):
                    async with asyncio.timeout(self.group_member.look_ms(now_ms()) / 1000):
                        await self._changed.wait()
        except BaseException as error:  # The user must hear of it, and not wait for ever.
            if not self._closed:
                self.group_member.die(error)
                self._tell()
            raise

    def _spawn(self, errand: Errand[None], name: str) -> asyncio.Task[None]:
        return self._keep(asyncio.get_running_loop().create_task(self._brokers.run(errand), name=name))

    def _send(self, sendings: list[Sending]) -> None:
        for sending in sendings:
            task = self._spawn(self._exchange(sending), "headrace-group-request")
            if isinstance(sending.send.request, JoinReceived):
                self._joining.add(task)
                task.add_done_callback(self._joining.discard)
        if sendings:
            self._look_again()

    def _look_again(self) -> None:
        self._changed.set()

    def _tell(self) -> None:
        if self.group_member.is_in or self.group_member.has_failed:
            self._settled.set()
        if self.group_member.news:
            self._fetcher.wake()

    def _keep(self, task: asyncio.Task[None]) -> asyncio.Task[None]:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # -- the end -----------------------------------------------------------------------------------------------------

    async def close(self, by_ms: int) -> None:
        """Commit the user's progress, call the callback, and leave. Callbacks that run at `by_ms` are cancelled."""
        self._close_by_ms = by_ms
        commit_by_ms = self._commit_by_ms()
        try:
            async with asyncio.timeout(max(0, commit_by_ms - now_ms()) / 1000):
                if self._following is not None:
                    await asyncio.wait([self._following])
                await self._brokers.run(self._hand_back(commit_by_ms))
        except TimeoutError:
            _log.warning("%s: closed before all callbacks were done", self.group_member.what)
        finally:
            self._closed = True
            self._settled.set()
            # A join that the coordinator hears after the leave would make a member of a consumer that is closed.
            if self._joining:
                await asyncio.wait(self._joining, timeout=max(0, commit_by_ms - now_ms()) / 1000)
            await self._end_tasks()
            for sending in self.group_member.leave(now_ms()):
                leave_by_ms = max(by_ms, now_ms() + CONSUMER_LEAVE_MS_MIN)
                await self._brokers.run(self._coordinator.leave(sending, leave_by_ms))

    async def _end_tasks(self) -> None:
        tasks = [*self._tasks, *([] if self._following is None else [self._following])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _look_at(task: asyncio.Task[None]) -> None:
    """Log the error of an errand that was followed: the user may never come back to hear of it."""
    error = None if task.cancelled() else task.exception()
    if error is not None:
        _log.debug("what was done for the group ended by %r", error)

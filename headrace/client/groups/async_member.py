"""An `AsyncConsumer`'s membership in its group: the face of `blocking_member` for an event loop.

It runs on one event loop, so the `GroupMember` needs no lock. Every await of the reader may be cancelled: the errand
that it follows goes on in a task of its own, and the reader's next await waits for it. An `AsyncConsumer` owns one,
from its start to `close`. `AsyncCoordinatorClient` reaches the group's coordinator.
"""

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, assert_never

from headrace.client.clock import now_ms
from headrace.client.consumer.async_fetcher import AsyncBetween, AsyncFetcher
from headrace.client.consumer.options import Callback, Start
from headrace.client.consumer.read_ahead import ReadAhead
from headrace.client.groups import assigned_partitions, requests
from headrace.client.groups.assigned_partitions import Commit, Given
from headrace.client.groups.blocking_member import as_group_error
from headrace.client.groups.member import GroupMember, Sending
from headrace.client.groups.plan import AskOffsets, CommitPassed, Drop, Errand, LookUp, Plan, Say, Step, Tell
from headrace.client.groups.requests import GroupOffsets, Joined
from headrace.client.record import GroupOffset, TopicPartition
from headrace.client.transport.async_brokers import AsyncBrokers
from headrace.client.transport.calls import Call
from headrace.core.errors import HeadraceError, LocalError, UnknownGroupError, UnknownTopicError
from headrace.core.groups.assignment import Names
from headrace.core.groups.events import JoinReceived, Request
from headrace.core.groups.identity import GroupName
from headrace.core.groups.status import GroupReport
from headrace.core.limits import CONSUMER_LEAVE_MS_MIN, GROUP_REQUEST_TIMEOUT_MS
from headrace.core.types import PartitionKey
from headrace.http2.blocking_transport import Response


class AsyncCoordinatorClient:
    def __init__(self, brokers: AsyncBrokers, group: GroupName) -> None:
        self.what = f"the coordinator of group {group.name}"
        """For the sentences that users read."""
        self._brokers, self._group = brokers, group
        self._url: str | None = None
        """None: not known; whoever is asked instead passes the request on."""

    async def said_once(self, sending: Sending, by_ms: int | None = None) -> Joined | None:
        """What the coordinator says to a member; None: it knows that it leaves."""
        answer = await self.ask_once(sending.send.request, sending.names, sending.send.timeout_ms, by_ms)
        return requests.membership(answer) if sending.is_answered else None

    async def ask_once(
        self, request: Request, names: Names, timeout_ms: int = GROUP_REQUEST_TIMEOUT_MS, by_ms: int | None = None
    ) -> Response:
        """Who must be done `by_ms` asks nobody for the way first."""
        url = await self._found() if by_ms is None else self._url
        call = requests.call_of(self._group, request, names, url, timeout_ms)
        try:
            return await self._get_once(call if by_ms is None else call.within(by_ms - now_ms()))
        except HeadraceError as error:
            self._forget(error)
            raise

    def _forget(self, error: HeadraceError) -> None:
        if not requests.is_from_coordinator(error):
            self._url = None

    async def leave(self, sending: Sending, by_ms: int) -> None:
        """Where nobody hears of it the session ends by itself."""
        with suppress(HeadraceError):
            await self._brokers.retrying(
                self.what, lambda: self.said_once(sending, by_ms), timeout_ms=max(0, by_ms - now_ms())
            )

    async def offsets(self) -> GroupOffsets:
        """All of the group."""
        return await self._brokers.retrying(
            f"the offsets of group {self._group.name}", lambda: self._offsets_once(requests.offsets_call(self._group))
        )

    async def offsets_once(self, partitions: frozenset[PartitionKey], names: Names) -> GroupOffsets:
        """Of the topics of these, and perhaps of others."""
        try:
            return await self._offsets_once(requests.offsets_call(self._group, await self._found(), partitions, names))
        except UnknownTopicError:  # One of them is gone by now: what is left is among everything.
            return await self._offsets_once(requests.offsets_call(self._group))
        except HeadraceError as error:
            self._forget(error)
            raise

    async def description(self) -> GroupReport:
        answer = await self._brokers.retrying(self.what, lambda: self._get_once(requests.description_call(self._group)))
        return requests.description(answer, self._group)

    async def _offsets_once(self, call: Call) -> GroupOffsets:
        try:
            return requests.offsets(await self._get_once(call))
        except UnknownGroupError:
            return {}

    async def _found(self) -> str | None:
        if self._url is None:
            try:
                self._url = requests.coordinator_url(await self._get_once(requests.coordinator_call(self._group)))
            except HeadraceError as error:
                if not error.retriable:
                    raise
        return self._url

    async def _get_once(self, call: Call) -> Response:
        return await self._brokers.request_once(call)


_log = logging.getLogger("headrace.client")


class AsyncMember(AsyncBetween):
    def __init__(
        self,
        brokers: AsyncBrokers,
        coordinator: AsyncCoordinatorClient,
        reading: ReadAhead,
        fetcher: AsyncFetcher,
        seat: GroupMember,
        start: Start,
    ) -> None:
        self.seat = seat
        self._brokers, self._coordinator = brokers, coordinator
        self._reading, self._fetcher = reading, fetcher
        self._plan = Plan(seat, reading, brokers.directory, start, now_ms)
        self._changed = asyncio.Event()
        """It may be time to look."""
        self._settled = asyncio.Event()
        """It is in the group, or there is an error to raise."""
        self._committing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._joining: set[asyncio.Task[None]] = set()
        """The tasks among these that ask to join."""
        self._following: asyncio.Task[None] | None = None
        """What the reader follows, whether he waits for it or was cancelled."""
        self._close_by_ms: int | None = None
        """Somebody closes it; it must be over by then."""
        self._closed = False

    async def join(self) -> None:
        """Returns as a member. Raises what the coordinator says, and what was wrong when the time limit was over."""
        self._spawn(self._look_after(), "headrace-group")
        self.resume()
        while not (self.seat.is_in or self.seat.has_failed or self._closed):
            self._settled.clear()
            await self._settled.wait()
        self.seat.raise_error()
        if self._closed:
            raise LocalError(f"{self.seat.what}: closed meanwhile")

    # -- the reader's task -------------------------------------------------------------------------------------------

    def resume(self) -> None:
        """A reading begins: who is in the group no more joins again."""
        self._send(self.seat.begin(now_ms()))

    async def follow(self) -> None:
        """Do what the group wants by now. Raises what a callback raises, and why this member is none any more."""
        if self._following is None:
            if not self._plan.is_due() or self._close_by_ms is not None:
                return
            self._following = asyncio.create_task(self._follow(), name="headrace-group-follow")
            self._following.add_done_callback(_look_at)
        await self.settle()

    async def _follow(self) -> None:
        try:
            await self._carry_out(self._plan.follow())
        finally:  # Its user may have gone away meanwhile.
            self._reading.handed.is_waited_for = self._fetcher.is_asked

    async def settle(self) -> None:
        """What was followed is done. Raises what came of it."""
        following = self._following
        if following is None or self.is_in_callback():
            return
        await asyncio.wait([following])
        if self._following is following:
            self._following = None
            if not following.cancelled():
                following.result()

    def is_in_callback(self) -> bool:
        """Whether who asks is one, and so waited for by what he may want to wait for."""
        return asyncio.current_task() is self._following

    async def is_settled(self) -> bool:
        asked_ms = now_ms()
        report = await self._coordinator.description()
        is_silent, said = self.seat.silent(report, asked_ms)
        for sentence in said:
            _log.warning("%s", sentence)
        missing = self.seat.missing(report)
        return missing is not None and not is_silent and not any([await self._exists(name) for name in missing])

    async def _exists(self, topic: str) -> bool:
        """Unless brokers say that it does not: the coordinator is about to hear of it, or nobody can be asked yet."""
        try:
            await self._brokers.layout_once(topic)
        except UnknownTopicError:
            return False
        except HeadraceError as error:
            _log.debug("whether topic %s is there cannot be known yet: %s", topic, error)
        return True

    async def commit(self, offsets: Mapping[TopicPartition, int] | None, metadata: str) -> None:
        """Raises FencedMemberError where a partition is not ours any more: nothing is committed then."""
        with self._reading.handed.waiting():
            async with self._committing:
                await self._commit(self.seat.commit_of(offsets, metadata), None)

    async def group_offsets(self) -> dict[TopicPartition, GroupOffset]:
        return assigned_partitions.newest(await self._coordinator.offsets())

    # -- steps -------------------------------------------------------------------------------------------------------

    async def _carry_out(self, errand: Errand) -> None:
        go_on: Callable[[], Step] = partial(next, errand)
        while True:
            try:
                step = go_on()
            except StopIteration:
                return
            try:
                go_on = partial(errand.send, await self._do(step))
            except BaseException as error:
                go_on = partial(errand.throw, error)

    async def _do(self, step: Step) -> Any:
        match step:
            case Say(sendings):
                self._send(sendings)
            case Drop(partitions):
                for partition in partitions:
                    self._fetcher.drop(partition)
            case Tell(callback, partitions):
                await self._call(callback, partitions)
            case CommitPassed(partitions, by_ms):
                await self._commit_passed(partitions, by_ms)
            case AskOffsets(partitions, names):
                return await self._coordinator.offsets_once(partitions, names)
            case LookUp(partitions, timestamp):
                return await self._brokers.offsets_once(partitions, timestamp, GROUP_REQUEST_TIMEOUT_MS)
            case _:
                assert_never(step)
        return None

    async def _call(self, callback: Callback, partitions: list[TopicPartition]) -> None:
        """What a callback does is its user's time."""
        if callback is not None:
            with self._reading.handed.waiting(whether=False):
                outcome = callback(partitions)
                if inspect.isawaitable(outcome):
                    await outcome

    # -- commits -----------------------------------------------------------------------------------------------------

    async def _commit_passed(self, partitions: list[TopicPartition] | None, by_ms: int) -> None:
        """Where it fails, whoever reads on begins a little earlier: that is for the log."""
        with self._reading.handed.waiting():
            try:
                async with asyncio.timeout(max(0, by_ms - now_ms()) / 1000):
                    await self._committing.acquire()
            except TimeoutError:
                _log.warning("%s", self.seat.not_committed(LocalError("an earlier commit is not answered")))
                return
            try:
                await self._commit(self.seat.passed(partitions), by_ms)
            except HeadraceError as error:
                _log.warning("%s", self.seat.not_committed(error))
            finally:
                self._committing.release()

    async def _commit(self, commit: Commit, by_ms: int | None) -> None:
        """With `_committing` held; without `by_ms`, for as long as the client's time limit allows."""
        what = self.seat.what_commits
        timeout_ms = None if by_ms is None else max(0, by_ms - now_ms())
        for part in commit.parts():
            await self._brokers.retrying(what, partial(self._commit_once, part, by_ms), timeout_ms=timeout_ms)

    async def _commit_once(self, commit: Commit, by_ms: int | None = None) -> None:
        if by_ms is None and self._close_by_ms is not None:  # Its user commits, and it is closed meanwhile.
            by_ms = self._close_by_ms
            if now_ms() >= by_ms:
                raise LocalError(f"{self.seat.what_commits} are not committed: this consumer was closed meanwhile")
        request, names = self.seat.commit_request(commit)
        try:
            await self._coordinator.ask_once(request, names, by_ms=by_ms)
        except HeadraceError as error:
            self._send(self.seat.committed(commit, error, now_ms()))
            raise
        self._send(self.seat.committed(commit, None, now_ms()))

    # -- in the background -------------------------------------------------------------------------------------------

    async def _look_after(self) -> None:
        try:
            while not self._closed:
                self._look()
                with suppress(TimeoutError):
                    async with asyncio.timeout(self.seat.look_ms(now_ms()) / 1000):
                        await self._changed.wait()
        except BaseException as error:  # Its user must hear of it, and not wait for ever.
            if not self._closed:
                self.seat.die(error)
                self._tell()
            raise

    def _look(self) -> None:
        self._changed.clear()
        self._send(self.seat.look(now_ms()))
        given, commit = self.seat.to_find(now_ms()), self.seat.commit_due(now_ms())
        if given is not None:
            self._spawn(self._find(given), "headrace-group-find")
        if commit is not None:
            self._spawn(self._commit_in_time(commit), "headrace-commit")
        self._tell()

    async def _find(self, given: Given) -> None:
        try:
            await self._carry_out(self._plan.find(given))
        except Exception as error:
            self.seat.tell_found(given, dict.fromkeys(given.places, as_group_error(error)), now_ms())
        self._changed.set()
        self._tell()

    async def _commit_in_time(self, commit: Commit) -> None:
        """Once; while somebody else commits, later."""
        if self._committing.locked():
            return
        async with self._committing:
            try:
                for part in commit.parts():
                    await self._commit_once(part)
            except Exception as error:
                if not as_group_error(error).retriable:
                    _log.warning("%s", self.seat.not_committed(as_group_error(error)))

    def _send(self, sendings: list[Sending]) -> None:
        for sending in sendings:
            task = self._spawn(self._exchange(sending), "headrace-group-request")
            if isinstance(sending.send.request, JoinReceived):
                self._joining.add(task)
                task.add_done_callback(self._joining.discard)
        if sendings:
            self._changed.set()

    async def _exchange(self, sending: Sending) -> None:
        try:
            joined = await self._coordinator.said_once(sending)
        except Exception as error:
            self._send(self.seat.refused(sending, as_group_error(error), now_ms()))
        else:
            self._send(self.seat.answered(sending, joined, now_ms()))
        self._changed.set()
        self._tell()

    def _tell(self) -> None:
        if self.seat.is_in or self.seat.has_failed:
            self._settled.set()
        if self.seat.news:
            self._fetcher.wake()

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # -- the end -----------------------------------------------------------------------------------------------------

    async def close(self, by_ms: int) -> None:
        """Commit what its user has done, tell him, and leave. Callbacks that are not done by then are cancelled."""
        self._close_by_ms = by_ms
        commit_by_ms = by_ms - max(0, by_ms - now_ms()) // 4
        try:
            async with asyncio.timeout(max(0, commit_by_ms - now_ms()) / 1000):
                if self._following is not None:
                    await asyncio.wait([self._following])
                await self._carry_out(self._plan.hand_back(commit_by_ms))
        except TimeoutError:
            _log.warning("%s: closed before all callbacks were done", self.seat.what)
        finally:
            self._closed = True
            self._settled.set()
            # A join that the coordinator hears after the leave would make a member of a consumer that is closed.
            if self._joining:
                await asyncio.wait(self._joining, timeout=max(0, commit_by_ms - now_ms()) / 1000)
            await self._end_tasks()
            for sending in self.seat.leave(now_ms()):
                await self._coordinator.leave(sending, max(by_ms, now_ms() + CONSUMER_LEAVE_MS_MIN))

    async def _end_tasks(self) -> None:
        tasks = [*self._tasks, *([] if self._following is None else [self._following])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _look_at(task: asyncio.Task[None]) -> None:
    """Where its user never comes back to hear of it, the log does."""
    error = None if task.cancelled() else task.exception()
    if error is not None:
        _log.debug("what was done for the group ended by %r", error)

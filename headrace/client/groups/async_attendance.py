"""An `AsyncConsumer`'s place in its group: what `attendance` is for threads, with tasks where that has threads.

On one event loop, so that the seat needs no lock. Every await of the reader may be cancelled: what was not done is done
in the next one. Owned by one `AsyncConsumer`, from its start to `close`.
"""

import asyncio
import inspect
import logging
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from headrace.client.async_brokers import AsyncBrokers
from headrace.client.async_fetcher import AsyncBetween, AsyncFetcher
from headrace.client.clock import now_ms
from headrace.client.groups import starting
from headrace.client.groups.async_coordinator import AsyncCoordinator
from headrace.client.groups.attendance import as_group_error
from headrace.client.groups.options import Callback
from headrace.client.groups.seat import Given, Seat, Sending
from headrace.client.groups.shares import Commit
from headrace.client.read_ahead import ReadAhead
from headrace.client.record import GroupOffset, TopicPartition
from headrace.client.subscription import Start, fixed_offset, timestamp_of
from headrace.core.errors import HeadraceError
from headrace.core.groups.membership_events import Revoke
from headrace.core.limits import GROUP_LAST_COMMIT_MS, GROUP_LOOK_MS_MAX

_log = logging.getLogger("headrace.client")


class AsyncAttendance(AsyncBetween):
    def __init__(
        self,
        brokers: AsyncBrokers,
        coordinator: AsyncCoordinator,
        reading: ReadAhead,
        fetcher: AsyncFetcher,
        seat: Seat,
        start: Start,
    ) -> None:
        self.seat = seat
        self._brokers, self._coordinator = brokers, coordinator
        self._reading, self._fetcher = reading, fetcher
        self._start = start
        self._changed = asyncio.Event()
        """It may be time to look."""
        self._settled = asyncio.Event()
        """It is in the group, or there is an error to raise."""
        self._committing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    async def join(self) -> None:
        """Returns as a member. Raises what the coordinator says, and what was wrong when the time limit was over."""
        self._spawn(self._look_after(), "headrace-group")
        self.resume()
        while not (self.seat.is_in or self.seat.has_failed):
            self._settled.clear()
            await self._settled.wait()
        self.seat.raise_error()

    # -- the reader's task -------------------------------------------------------------------------------------------

    def resume(self) -> None:
        """A reading begins: who is in the group no more joins again."""
        self._send(self.seat.begin(now_ms()))

    async def follow(self) -> None:
        """Do what the group wants by now. Raises what a callback raises, and why this member is none any more."""
        while self.seat.news or not self.seat.holds(now_ms()):
            self._send(self.seat.look(now_ms()))
            (lost, why), revoked, given = self.seat.take_lost(), self.seat.revoked(), self.seat.given()
            if lost:
                _log.warning("%s", why)
                self._drop(lost)
                await self._call(self.seat.options.callbacks.of_lost(), lost)
            elif revoked is not None:
                await self._give_up(*revoked)
            elif given.places:
                await self._take_up(given)
            else:
                self.seat.raise_error()

    async def is_settled(self) -> bool:
        topics = await self._coordinator.settled_topics()
        if topics is None or self.seat.news:
            return False
        missing = [name for name in self.seat.options.subscription.names if name not in topics]
        return not any([await self._exists(name) for name in missing])

    async def _exists(self, topic: str) -> bool:
        """As far as brokers tell: the coordinator is about to hear of it."""
        try:
            await self._brokers.layout_once(topic)
        except HeadraceError:
            return False
        return True

    async def commit(self, offsets: Mapping[TopicPartition, int] | None, metadata: str) -> None:
        """Raises FencedMemberError where a partition is not ours any more: nothing is committed then."""
        async with self._committing:
            await self._commit(self.seat.commit_of(offsets, metadata), None)

    async def group_offsets(self) -> dict[TopicPartition, GroupOffset]:
        return starting.newest(await self._coordinator.offsets())

    async def _give_up(self, revoke: Revoke, partitions: list[TopicPartition]) -> None:
        """Nothing of it is handed out any more; what its user has done of it is committed first."""
        if partitions:
            await self._commit_passed(partitions, max(0, revoke.by_ms - now_ms()))
        try:
            if partitions:
                await self._call(self.seat.options.callbacks.revoked, partitions)
        finally:
            self._drop(partitions)
            self._send(self.seat.gave_up(revoke, now_ms()))

    async def _take_up(self, given: Given) -> None:
        with self._reading.handed.waiting():
            beginnings = await self._beginnings(given)
        shares = starting.begin(self._reading.plan, beginnings)
        places = [share.partition for share in shares]
        if not self.seat.take_up(given, shares, now_ms()):
            self._drop(places)
        elif places:
            await self._call(self.seat.options.callbacks.assigned, places)

    async def _beginnings(self, given: Given) -> list[starting.Beginning]:
        offsets = await self._coordinator.offsets()
        found: list[starting.Beginning] = []
        for topic in starting.by_topic(given):
            self._brokers.directory.pin_anew(topic.topic, topic.uid)
            try:
                starts = await self._starts(topic.not_committed(offsets))
                ends = await self._ends([*topic.places.values()])
            except starting.TAKEN_AWAY:
                self.seat.leave_alone(topic.uid, now_ms() + GROUP_LOOK_MS_MAX)
            else:
                found += topic.beginnings(offsets, starts, ends)
        return found

    async def _starts(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        offset = fixed_offset(self._start)
        if offset is not None:
            return dict.fromkeys(partitions, offset)
        return await self._brokers.offsets(partitions, timestamp_of(self._start))

    async def _ends(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return await self._brokers.offsets(partitions, "latest") if self._reading.plan.has_ends else {}

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._fetcher.drop(partition)

    async def _call(self, callback: Callback, partitions: list[TopicPartition]) -> None:
        if callback is not None:
            outcome = callback(partitions)
            if inspect.isawaitable(outcome):
                await outcome

    # -- commits -----------------------------------------------------------------------------------------------------

    async def _commit_passed(self, partitions: list[TopicPartition] | None, timeout_ms: int) -> None:
        """Where it fails, whoever reads on begins a little earlier: that is for the log."""
        with self._reading.handed.waiting():
            async with self._committing:
                try:
                    await self._commit(self.seat.passed(partitions), timeout_ms)
                except HeadraceError as error:
                    _log.warning("%s", self.seat.not_committed(error))

    async def _commit(self, commit: Commit, timeout_ms: int | None) -> None:
        """With `_committing` held."""
        for part in commit.parts():
            await self._brokers.retrying(
                self.seat.what_commits, partial(self._commit_once, part), timeout_ms=timeout_ms
            )

    async def _commit_once(self, commit: Commit) -> None:
        request, names = self.seat.commit_request(commit)
        try:
            await self._coordinator.ask_once(request, names)
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
        commit = self.seat.commit_due(now_ms())
        if commit is not None:
            self._spawn(self._commit_in_time(commit), "headrace-commit")
        self._tell()

    async def _commit_in_time(self, commit: Commit) -> None:
        """Once; while somebody else commits, later."""
        if self._committing.locked():
            return
        async with self._committing:
            try:
                for part in commit.parts():
                    await self._commit_once(part)
            except HeadraceError as error:
                if not error.retriable:
                    _log.warning("%s", self.seat.not_committed(error))

    def _send(self, sendings: list[Sending]) -> None:
        for sending in sendings:
            self._spawn(self._exchange(sending), "headrace-group-request")
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

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- the end -----------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Commit what its user has done, tell him, and leave. Safe to call again."""
        if self._closed:
            return
        self._closed = True
        held = [*self.seat.shares.held] if self.seat.is_in else []
        try:
            if held:
                await self._commit_passed(held, GROUP_LAST_COMMIT_MS)
                await self._call(self.seat.options.callbacks.revoked, held)
        finally:
            tasks = [*self._tasks]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for sending in self.seat.leave(now_ms()):
                await self._coordinator.leave(sending)

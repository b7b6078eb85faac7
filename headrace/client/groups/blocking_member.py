"""A `Consumer`'s membership in its group, kept up in the background; `member` decides.

The thread `headrace-group` looks after time. Workers carry requests, one of which often waits at the coordinator for
news. The reader's thread acts on the news (`follow`), from within its user's loop: it alone takes partitions up and
gives them up, calls callbacks, and raises. All shared state is in the `GroupMember`, behind one lock, which nobody
holds while waiting for an answer: `plan` decides under it, step by step. Commits go one by one, so that none overtakes
a later one. A `Consumer` owns one `BlockingMember`, from its construction to `close`.

`CoordinatorClient` reaches the group's coordinator: directly where it is known, through any broker where it is not.
Several threads of one consumer use it. `*_once` try once and raise; the others try again until the time limit is over.
"""

import logging
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from time import sleep
from typing import Any, assert_never

from headrace.client.clock import now_ms
from headrace.client.consumer.fetcher import Between, Fetcher
from headrace.client.consumer.options import Callback, Start
from headrace.client.consumer.read_ahead import ReadAhead
from headrace.client.groups import assigned_partitions, requests
from headrace.client.groups.assigned_partitions import Commit, Given
from headrace.client.groups.member import GroupMember, Sending
from headrace.client.groups.plan import AskOffsets, CommitPassed, Drop, Errand, LookUp, Plan, Say, Step, Tell
from headrace.client.groups.requests import GroupOffsets, Joined
from headrace.client.record import GroupOffset, TopicPartition
from headrace.client.transport.brokers import Brokers, Workers
from headrace.client.transport.calls import Call
from headrace.core.errors import HeadraceError, LocalError, UnknownGroupError, UnknownTopicError
from headrace.core.groups.assignment import Names
from headrace.core.groups.events import JoinReceived, Request
from headrace.core.groups.identity import GroupName, GroupType
from headrace.core.groups.status import GroupReport
from headrace.core.limits import (
    CONSUMER_CLOSE_MS_DEFAULT,
    CONSUMER_LEAVE_MS_MIN,
    GROUP_REQUEST_TIMEOUT_MS,
    MEMBER_REQUESTS_MAX,
)
from headrace.core.types import PartitionKey
from headrace.http2.blocking_transport import Response
from headrace.http2.interrupts import HeldInterrupts


class CoordinatorClient:
    def __init__(self, brokers: Brokers, group: GroupName, group_type: GroupType = GroupType.CONSUMER) -> None:
        self.what = f"the coordinator of group {group.name}"
        """For the sentences that users read."""
        self._brokers, self._group, self._type = brokers, group, group_type
        self._url: str | None = None
        """None: not known; whoever is asked instead passes the request on."""

    def said_once(self, sending: Sending, by_ms: int | None = None) -> Joined | None:
        """What the coordinator says to a member; None: it knows that it leaves."""
        answer = self.ask_once(sending.send.request, sending.names, sending.send.timeout_ms, by_ms)
        return requests.membership(answer) if sending.is_answered else None

    def ask_once(
        self, request: Request, names: Names, timeout_ms: int = GROUP_REQUEST_TIMEOUT_MS, by_ms: int | None = None
    ) -> Response:
        """Who must be done `by_ms` asks nobody for the way first."""
        url = self._found() if by_ms is None else self._url
        call = requests.call_of(self._group, request, names, url, timeout_ms)
        try:
            return self._get_once(call if by_ms is None else call.within(by_ms - now_ms()))
        except HeadraceError as error:
            self._forget(error)
            raise

    def find(self, by_ms: int) -> None:
        """Ask for the way, where it is not known, until then at most. Raises what no other try would change."""
        self._found(by_ms)

    def _forget(self, error: HeadraceError) -> None:
        if not requests.is_from_coordinator(error):
            self._url = None

    def leave(self, sending: Sending, by_ms: int) -> None:
        """Where nobody hears of it the session ends by itself."""
        with suppress(HeadraceError):
            self._brokers.retrying(
                self.what, lambda: self.said_once(sending, by_ms), timeout_ms=max(0, by_ms - now_ms())
            )

    def offsets(self) -> GroupOffsets:
        """All of the group."""
        return self._brokers.retrying(
            f"the offsets of group {self._group.name}", lambda: self._offsets_once(requests.offsets_call(self._group))
        )

    def offsets_once(self, partitions: frozenset[PartitionKey], names: Names) -> GroupOffsets:
        """Of the topics of these, and perhaps of others."""
        try:
            return self._offsets_once(requests.offsets_call(self._group, self._found(), partitions, names))
        except UnknownTopicError:  # One of them is gone by now: what is left is among everything.
            return self._offsets_once(requests.offsets_call(self._group))
        except HeadraceError as error:
            self._forget(error)
            raise

    def description(self) -> GroupReport:
        answer = self._brokers.retrying(self.what, lambda: self._get_once(requests.description_call(self._group)))
        return requests.description(answer, self._group)

    def _offsets_once(self, call: Call) -> GroupOffsets:
        try:
            return requests.offsets(self._get_once(call))
        except UnknownGroupError:
            return {}

    def _found(self, by_ms: int | None = None) -> str | None:
        if self._url is None:
            call = requests.coordinator_call(self._group, self._type)
            try:
                self._url = requests.coordinator_url(
                    self._get_once(call if by_ms is None else call.within(by_ms - now_ms()))
                )
            except HeadraceError as error:
                if not error.retriable:
                    raise
        return self._url

    def _get_once(self, call: Call) -> Response:
        return self._brokers.request_once(call)


_log = logging.getLogger("headrace.client")
_COMMITTING_LOOK_S = 0.01
"""How often to look whether another commit is done."""


class BlockingMember(Between):
    def __init__(
        self,
        brokers: Brokers,
        coordinator: CoordinatorClient,
        reading: ReadAhead,
        fetcher: Fetcher,
        seat: GroupMember,
        start: Start,
    ) -> None:
        self.seat = seat
        self._brokers, self._coordinator = brokers, coordinator
        self._reading, self._fetcher = reading, fetcher
        self._plan = Plan(seat, reading, brokers.directory, start, now_ms)
        self._workers = Workers("headrace-group-requests", MEMBER_REQUESTS_MAX)
        self._changed = threading.Condition()
        """The seat's lock; told when it may be time to look."""
        self._committing = threading.Lock()
        self._close_by_ms: int | None = None
        """Somebody closes it; it must be over by then."""
        self._is_handed_back = False
        self._closed = self._has_left = False
        self._joining = 0
        """Requests to join that are not answered."""
        self._leaving: list[Sending] = []
        """How the coordinator hears that it leaves."""
        self._pid = os.getpid()

    def join(self) -> None:
        """Returns as a member. Raises what the coordinator says, and what was wrong when the time limit was over."""
        threading.Thread(target=self._look_after, name="headrace-group", daemon=True).start()
        self.resume()
        with self._changed:
            self._changed.wait_for(lambda: self.seat.is_in or self.seat.has_failed)
            self.seat.raise_error()

    # -- the reader's thread -----------------------------------------------------------------------------------------

    def resume(self) -> None:
        """A reading begins: who is in the group no more joins again."""
        with HeldInterrupts(), self._changed:
            self._send(self.seat.begin(now_ms()))

    def follow(self) -> None:
        """Do what the group wants by now. Raises what a callback raises, and why this member is none any more."""
        if self._plan.is_due():
            self._carry_out(self._plan.follow())

    def is_settled(self) -> bool:
        asked_ms = now_ms()
        report = self._coordinator.description()
        with HeldInterrupts(), self._changed:
            missing = self.seat.missing(report)
            is_silent, said = self.seat.silent(report, asked_ms)
        for sentence in said:
            _log.warning("%s", sentence)
        return missing is not None and not is_silent and not any(map(self._exists, missing))

    def _exists(self, topic: str) -> bool:
        """Unless brokers say that it does not: the coordinator is about to hear of it, or nobody can be asked yet."""
        try:
            self._brokers.layout_once(topic)
        except UnknownTopicError:
            return False
        except HeadraceError as error:
            _log.debug("whether topic %s is there cannot be known yet: %s", topic, error)
        return True

    def commit(self, offsets: Mapping[TopicPartition, int] | None, metadata: str) -> None:
        """Raises FencedMemberError where a partition is not ours any more: nothing is committed then."""
        with self._reading.handed.waiting(), self._committing:
            with HeldInterrupts(), self._changed:
                commit = self.seat.commit_of(offsets, metadata)
            self._commit(commit, None)

    def group_offsets(self) -> dict[TopicPartition, GroupOffset]:
        return assigned_partitions.newest(self._coordinator.offsets())

    # -- steps -------------------------------------------------------------------------------------------------------

    def _carry_out(self, errand: Errand) -> None:
        """Decisions are made with the lock, steps carried out without. Interrupts strike in steps that take long."""
        go_on: Callable[[], Step] = partial(next, errand)
        with HeldInterrupts() as interrupts:
            while True:
                with self._changed:
                    try:
                        step = go_on()
                    except StopIteration:
                        return
                try:
                    is_short = isinstance(step, Say | Drop)
                    done = self._do(step) if is_short else interrupts.allowing(self._do, step)
                    go_on = partial(errand.send, done)
                except BaseException as error:
                    go_on = partial(errand.throw, error)

    def _do(self, step: Step) -> Any:
        match step:
            case Say(sendings):
                with self._changed:
                    self._send(sendings)
            case Drop(partitions):
                for partition in partitions:
                    self._fetcher.drop(partition)
            case Tell(callback, partitions):
                self._call(callback, partitions)
            case CommitPassed(partitions, by_ms):
                self._commit_passed(partitions, by_ms)
            case AskOffsets(partitions, names):
                return self._coordinator.offsets_once(partitions, names)
            case LookUp(partitions, timestamp):
                return self._brokers.offsets_once(partitions, timestamp, GROUP_REQUEST_TIMEOUT_MS)
            case _:
                assert_never(step)
        return None

    def _call(self, callback: Callback, partitions: list[TopicPartition]) -> None:
        """What a callback does is its user's time."""
        if callback is not None:
            with self._reading.handed.waiting(whether=False):
                callback(partitions)

    # -- commits -----------------------------------------------------------------------------------------------------

    def _commit_passed(self, partitions: list[TopicPartition] | None, by_ms: int) -> None:
        """Where it fails, whoever reads on begins a little earlier: that is for the log."""
        with self._reading.handed.waiting(), HeldInterrupts() as interrupts:
            while not self._committing.acquire(blocking=False):  # Nothing that may be interrupted takes a lock here.
                if now_ms() >= by_ms:
                    _log.warning("%s", self.seat.not_committed(LocalError("an earlier commit is not answered")))
                    return
                interrupts.allowing(sleep, _COMMITTING_LOOK_S)
            try:
                with self._changed:
                    commit = self.seat.passed(partitions)
                interrupts.allowing(self._commit, commit, by_ms)
            except HeadraceError as error:
                _log.warning("%s", self.seat.not_committed(error))
            finally:
                self._committing.release()

    def _commit(self, commit: Commit, by_ms: int | None) -> None:
        """With `_committing` held; without `by_ms`, for as long as the client's time limit allows."""
        what = self.seat.what_commits
        timeout_ms = None if by_ms is None else max(0, by_ms - now_ms())
        for part in commit.parts():
            self._brokers.retrying(what, partial(self._commit_once, part, by_ms), timeout_ms=timeout_ms)

    def _commit_once(self, commit: Commit, by_ms: int | None = None) -> None:
        if by_ms is None and self._close_by_ms is not None:  # Its user commits, and it is closed meanwhile.
            by_ms = self._close_by_ms
            if now_ms() >= by_ms:
                raise LocalError(f"{self.seat.what_commits} are not committed: this consumer was closed meanwhile")
        with HeldInterrupts(), self._changed:
            request, names = self.seat.commit_request(commit)
        try:
            self._coordinator.ask_once(request, names, by_ms=by_ms)
        except HeadraceError as error:
            self._committed(commit, error)
            raise
        self._committed(commit, None)

    def _committed(self, commit: Commit, error: HeadraceError | None) -> None:
        with HeldInterrupts(), self._changed:
            self._send(self.seat.committed(commit, error, now_ms()))

    # -- in the background -------------------------------------------------------------------------------------------

    def _look_after(self) -> None:
        try:
            while not self._closed:
                self._look()
                with self._changed:
                    if not self._closed:
                        self._changed.wait(self.seat.look_ms(now_ms()) / 1000)
        except BaseException as error:  # Its user must hear of it, and not wait for ever.
            with self._changed:
                self.seat.die(error)
                self._changed.notify_all()
            self._fetcher.wake()
            raise

    def _look(self) -> None:
        with self._changed:
            self._send(self.seat.look(now_ms()))
            given, commit = self.seat.to_find(now_ms()), self.seat.commit_due(now_ms())
        if given is not None:
            self._workers.submit(partial(self._find, given))
        if commit is not None:
            self._workers.submit(partial(self._commit_in_time, commit))
        if self.seat.news:
            self._fetcher.wake()

    def _find(self, given: Given) -> None:
        """On a worker's thread, as all that follows."""
        try:
            self._carry_out(self._plan.find(given))
        except Exception as error:
            with self._changed:
                self.seat.tell_found(given, dict.fromkeys(given.places, as_group_error(error)), now_ms())
        self._fetcher.wake()

    def _commit_in_time(self, commit: Commit) -> None:
        """Once; while somebody else commits, later."""
        if self._closed or not self._committing.acquire(blocking=False):
            return
        try:
            for part in commit.parts():
                self._commit_once(part)
        except Exception as error:
            if not as_group_error(error).retriable:
                _log.warning("%s", self.seat.not_committed(as_group_error(error)))
        finally:
            self._committing.release()

    def _send(self, sendings: list[Sending]) -> None:
        for sending in sendings:
            self._joining += isinstance(sending.send.request, JoinReceived)
            self._workers.submit(partial(self._exchange, sending))
        self._changed.notify_all()

    def _exchange(self, sending: Sending) -> None:
        try:
            joined = self._coordinator.said_once(sending)
        except Exception as error:
            with self._changed:
                self._joining -= isinstance(sending.send.request, JoinReceived)
                self._send(self.seat.refused(sending, as_group_error(error), now_ms()))
        else:
            with self._changed:
                self._joining -= isinstance(sending.send.request, JoinReceived)
                self._send(self.seat.answered(sending, joined, now_ms()))
        if self.seat.news:
            self._fetcher.wake()

    # -- the end -----------------------------------------------------------------------------------------------------

    def hurry(self, by_ms: int) -> None:
        """It is to be closed by then: nobody begins anything that takes longer. From signal handlers too."""
        self._close_by_ms = by_ms

    def hand_back(self) -> None:
        """Before `close`, while nobody reads: what its user has done is committed, and he hears that it is over."""
        self._is_handed_back = True
        self._carry_out(self._plan.hand_back(self._commit_by_ms()))

    def close(self) -> None:
        """Leave the group. Safe to call again, and from any thread; a child process only lets go.

        Who was interrupted says again that he leaves.
        """
        if self._pid != os.getpid() or self._has_left:
            return
        by_ms = self._commit_by_ms()
        if not self._is_handed_back and not self._closed:
            self._commit_passed(None, by_ms)
        with HeldInterrupts(), self._changed:
            self._closed = True
            self._leaving += self.seat.leave(now_ms())
            self._changed.notify_all()
        # A join that the coordinator hears after the leave would make a member of a consumer that is closed.
        with HeldInterrupts() as interrupts, self._changed:
            timeout_s = max(0, by_ms - now_ms()) / 1000
            interrupts.allowing(self._changed.wait_for, lambda: not self._joining, timeout_s)
        for sending in self._leaving:
            self._coordinator.leave(sending, max(self._close_by_ms or 0, now_ms() + CONSUMER_LEAVE_MS_MIN))
        self._workers.stop()
        self._has_left = True  # Not before: who was interrupted closes it again.

    def _commit_by_ms(self) -> int:
        """What comes last, to say that it leaves, gets its time too."""
        if self._close_by_ms is None:
            self._close_by_ms = now_ms() + CONSUMER_CLOSE_MS_DEFAULT
        return self._close_by_ms - max(0, self._close_by_ms - now_ms()) // 4


def as_group_error(error: Exception) -> HeadraceError:
    """Expected failures as they are."""
    return error if isinstance(error, HeadraceError) else HeadraceError(f"a request about a group failed: {error!r}")

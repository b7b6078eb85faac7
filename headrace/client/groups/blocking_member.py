"""A `Consumer`'s membership in its group, kept up in the background; `member_errands` has the work to do.

The thread `headrace-group` looks after time. Workers carry requests, one of which often waits at the coordinator for
news. The reader's thread acts on the news (`follow`), from within the user's loop: it alone takes partitions up and
gives them up, calls callbacks, and raises. All shared state is in the `GroupMember`, behind one lock, which no thread
holds while waiting for an answer: errands decide under it, step by step. A `Consumer` owns one `BlockingMember`, from
its construction to `close`.
"""

import os
import threading
from collections.abc import Callable
from functools import partial
from time import sleep
from typing import Any

from headrace.client.clock import now_ms
from headrace.client.consumer.fetcher import Between, Fetcher
from headrace.client.consumer.options import GroupOptions, Start
from headrace.client.groups.member import Sending
from headrace.client.groups.member_errands import MemberErrands
from headrace.client.record import TopicPartition
from headrace.client.transport.brokers import Brokers, Workers
from headrace.client.transport.errands import Course, Errand, T
from headrace.core.groups.events import JoinReceived
from headrace.core.limits import CONSUMER_LEAVE_MS_MIN, MEMBER_REQUESTS_MAX
from headrace.http2.interrupts import HeldInterrupts

_COMMITTING_LOOK_S = 0.01
"""The time between looks whether another commit is done."""


class BlockingMember(MemberErrands[Brokers], Between):
    def __init__(
        self, brokers: Brokers, fetcher: Fetcher, options: GroupOptions, start: Start, timeout_ms: int
    ) -> None:
        super().__init__(brokers, fetcher, options, start, timeout_ms)
        self._workers = Workers("headrace-group-requests", MEMBER_REQUESTS_MAX)
        self._changed = threading.Condition()
        """The member's lock; it is notified when it may be time to look."""
        self._committing = threading.Lock()
        self._is_handed_back = False
        self._has_left = False
        self._joining = 0
        """The number of requests to join that are not answered."""
        self._leaving: list[Sending] = []
        """The requests that tell the coordinator that the member leaves."""
        self._pid = os.getpid()

    def join(self) -> None:
        """Join the group. Raises the coordinator's error, and the last error when the time limit is over."""
        threading.Thread(target=self._look_after, name="headrace-group", daemon=True).start()
        self.run(self.resume())
        with self._changed:
            self._changed.wait_for(lambda: self.group_member.is_in or self.group_member.has_failed)
            self.group_member.raise_error()

    # -- the reader's thread -----------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Do what the group wants by now. Raises what a callback raises, and the error that ended the membership."""
        if self._plan.is_due():
            self.run(self._follow())

    def is_settled(self) -> bool:
        return self.run(self._is_settled())

    def run(self, errand: Errand[T]) -> T:
        """Run the errand: it decides with the lock, and its steps run without. Interrupts strike in steps alone."""
        with HeldInterrupts() as interrupts:
            with self._changed:
                course = Course(errand)
            while course.step is not None:
                try:
                    done = interrupts.allowing(course.step.by, self._brokers)
                except BaseException as error:
                    with self._changed:
                        course.failed(error)
                else:
                    with self._changed:
                        course.done(done)
        return course.result

    def _call(self, callback: Callable[[list[TopicPartition]], Any], partitions: list[TopicPartition]) -> None:
        callback(partitions)

    def _commit_alone(self, errand: Errand[None], by_ms: int | None) -> bool:
        with HeldInterrupts() as interrupts:
            while not self._committing.acquire(blocking=False):  # A wait for the lock could not be interrupted here.
                if by_ms is not None and now_ms() >= by_ms:
                    return False
                interrupts.allowing(sleep, _COMMITTING_LOOK_S)
            try:
                interrupts.allowing(self.run, errand)
            finally:
                self._committing.release()
        return True

    # -- in the background -------------------------------------------------------------------------------------------

    def _look_after(self) -> None:
        try:
            with self._changed:
                while not self._closed:
                    self._look()
                    self._changed.wait(self.group_member.look_ms(now_ms()) / 1000)
        except BaseException as error:  # The user must hear of it, and not wait for ever.
            with self._changed:
                self.group_member.die(error)
                self._changed.notify_all()
            self._fetches.wake()
            raise

    def _spawn(self, errand: Errand[None], name: str) -> None:
        """Carry the errand out on a worker; threads do not use the name."""
        self._workers.submit(partial(self.run, errand))

    def _send(self, sendings: list[Sending]) -> None:
        for sending in sendings:
            self._joining += isinstance(sending.send.request, JoinReceived)
            self._spawn(self._exchange_counted(sending), "headrace-group-request")
        self._changed.notify_all()

    def _exchange_counted(self, sending: Sending) -> Errand[None]:
        try:
            yield from self._exchange(sending)
        finally:
            self._joining -= isinstance(sending.send.request, JoinReceived)
            self._changed.notify_all()

    def _look_again(self) -> None:
        self._changed.notify_all()

    def _tell(self) -> None:
        if self.group_member.news:
            self._fetches.wake()

    # -- the end -----------------------------------------------------------------------------------------------------

    def hurry(self, by_ms: int) -> None:
        """Set the time by which it is closed: no thread begins a longer step. Signal handlers may call it too."""
        self._close_by_ms = by_ms

    def hand_back(self) -> None:
        """Commit the user's progress and call the callback, before `close`, while nobody reads."""
        self._is_handed_back = True
        self.run(self._hand_back(self._commit_by_ms()))

    def close(self) -> None:
        """Leave the group. Safe to call again, and from any thread; a child process only lets go.

        After an interrupt, another call tells the coordinator again.
        """
        if self._pid != os.getpid() or self._has_left:
            return
        by_ms = self._commit_by_ms()
        if not self._is_handed_back and not self._closed:
            self.run(self._commit_passed(None, by_ms))
        with HeldInterrupts(), self._changed:
            self._closed = True
            self._leaving += self.group_member.leave(now_ms())
            self._changed.notify_all()
        # A join that the coordinator hears after the leave would make a member of a consumer that is closed.
        with HeldInterrupts() as interrupts, self._changed:
            timeout_s = max(0, by_ms - now_ms()) / 1000
            interrupts.allowing(self._changed.wait_for, lambda: not self._joining, timeout_s)
        for sending in self._leaving:
            leave_by_ms = max(self._close_by_ms or 0, now_ms() + CONSUMER_LEAVE_MS_MIN)
            self._brokers.run(self._coordinator.leave(sending, leave_by_ms))
        self._workers.stop()
        self._has_left = True  # Not before: after an interrupt another call closes it again.

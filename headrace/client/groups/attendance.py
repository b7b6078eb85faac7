"""A `Consumer`'s place in its group, kept in the background; what there is to decide is `seat`'s.

The thread `headrace-group` looks after time, workers carry requests, one of which often waits at the coordinator for
news. The reader's thread does what comes of the news (`follow`), from within its user's loop: it alone takes partitions
up and gives them up, calls callbacks, and raises. All shared state is in the seat, behind one lock, which nobody holds
while he waits for an answer. Commits go one by one, so that none overtakes a later one.

Owned by one `Consumer`, from its construction to `close`.
"""

import logging
import os
import threading
from collections.abc import Iterable, Mapping
from functools import partial

from headrace.client.brokers import Brokers
from headrace.client.clock import now_ms
from headrace.client.fetcher import Between, Fetcher
from headrace.client.groups import starting
from headrace.client.groups.coordinator import Coordinator
from headrace.client.groups.options import Callback
from headrace.client.groups.seat import Given, Seat, Sending
from headrace.client.groups.shares import Commit
from headrace.client.read_ahead import ReadAhead
from headrace.client.record import GroupOffset, TopicPartition
from headrace.client.subscription import Start, fixed_offset, timestamp_of
from headrace.client.workers import Workers
from headrace.core.errors import HeadraceError
from headrace.core.groups.membership_events import Revoke
from headrace.core.limits import GROUP_LAST_COMMIT_MS, GROUP_LOOK_MS_MAX, MEMBER_REQUESTS_MAX

_log = logging.getLogger("headrace.client")


class Attendance(Between):
    def __init__(
        self, brokers: Brokers, coordinator: Coordinator, reading: ReadAhead, fetcher: Fetcher, seat: Seat, start: Start
    ) -> None:
        self.seat = seat
        self._brokers, self._coordinator = brokers, coordinator
        self._reading, self._fetcher = reading, fetcher
        self._start = start
        self._workers = Workers("headrace-group-requests", MEMBER_REQUESTS_MAX)
        self._changed = threading.Condition()
        """The seat's lock; told when it may be time to look."""
        self._committing = threading.Lock()
        self._closed = False
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
        with self._changed:
            self._send(self.seat.begin(now_ms()))

    def follow(self) -> None:
        """Do what the group wants by now. Raises what a callback raises, and why this member is none any more."""
        while self.seat.news or not self.seat.holds(now_ms()):
            with self._changed:
                self._send(self.seat.look(now_ms()))
                (lost, why), revoked, given = self.seat.take_lost(), self.seat.revoked(), self.seat.given()
                if not (lost or revoked or given.places):
                    self.seat.raise_error()
            if lost:
                _log.warning("%s", why)
                self._drop(lost)
                self._call(self.seat.options.callbacks.of_lost(), lost)
            elif revoked is not None:
                self._give_up(*revoked)
            elif given.places:
                self._take_up(given)

    def is_settled(self) -> bool:
        topics = self._coordinator.settled_topics()
        if topics is None or self.seat.news:
            return False
        return not any(self._exists(name) for name in self.seat.options.subscription.names if name not in topics)

    def _exists(self, topic: str) -> bool:
        """As far as brokers tell: the coordinator is about to hear of it."""
        try:
            self._brokers.layout_once(topic)
        except HeadraceError:
            return False
        return True

    def commit(self, offsets: Mapping[TopicPartition, int] | None, metadata: str) -> None:
        """Raises FencedMemberError where a partition is not ours any more: nothing is committed then."""
        with self._committing:
            with self._changed:
                commit = self.seat.commit_of(offsets, metadata)
            self._commit(commit, None)

    def group_offsets(self) -> dict[TopicPartition, GroupOffset]:
        return starting.newest(self._coordinator.offsets())

    def _give_up(self, revoke: Revoke, partitions: list[TopicPartition]) -> None:
        """Nothing of it is handed out any more; what its user has done of it is committed first."""
        if partitions:
            self._commit_passed(partitions, max(0, revoke.by_ms - now_ms()))
        try:
            if partitions:
                self._call(self.seat.options.callbacks.revoked, partitions)
        finally:
            self._drop(partitions)
            with self._changed:
                self._send(self.seat.gave_up(revoke, now_ms()))

    def _take_up(self, given: Given) -> None:
        with self._reading.handed.waiting():
            beginnings = self._beginnings(given)
        shares = starting.begin(self._reading.plan, beginnings)
        places = [share.partition for share in shares]
        with self._changed:
            taken = self.seat.take_up(given, shares, now_ms())
        if not taken:
            self._drop(places)
        elif places:
            self._call(self.seat.options.callbacks.assigned, places)

    def _beginnings(self, given: Given) -> list[starting.Beginning]:
        offsets = self._coordinator.offsets()
        found: list[starting.Beginning] = []
        for topic in starting.by_topic(given):
            self._brokers.directory.pin_anew(topic.topic, topic.uid)
            try:
                starts = self._starts(topic.not_committed(offsets))
                ends = self._brokers.offsets([*topic.places.values()], "latest") if self._reading.plan.has_ends else {}
            except starting.TAKEN_AWAY:
                with self._changed:
                    self.seat.leave_alone(topic.uid, now_ms() + GROUP_LOOK_MS_MAX)
            else:
                found += topic.beginnings(offsets, starts, ends)
        return found

    def _starts(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        offset = fixed_offset(self._start)
        if offset is not None:
            return dict.fromkeys(partitions, offset)
        return self._brokers.offsets(partitions, timestamp_of(self._start))

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._fetcher.drop(partition)

    def _call(self, callback: Callback, partitions: list[TopicPartition]) -> None:
        if callback is not None:
            callback(partitions)

    # -- commits -----------------------------------------------------------------------------------------------------

    def _commit_passed(self, partitions: list[TopicPartition] | None, timeout_ms: int) -> None:
        """Where it fails, whoever reads on begins a little earlier: that is for the log."""
        with self._reading.handed.waiting(), self._committing:
            with self._changed:
                commit = self.seat.passed(partitions)
            try:
                self._commit(commit, timeout_ms)
            except HeadraceError as error:
                _log.warning("%s", self.seat.not_committed(error))

    def _commit(self, commit: Commit, timeout_ms: int | None) -> None:
        """With `_committing` held."""
        what = self.seat.what_commits
        for part in commit.parts():
            self._brokers.retrying(what, partial(self._commit_once, part), timeout_ms=timeout_ms)

    def _commit_once(self, commit: Commit) -> None:
        with self._changed:
            request, names = self.seat.commit_request(commit)
        try:
            self._coordinator.ask_once(request, names)
        except HeadraceError as error:
            self._committed(commit, error)
            raise
        self._committed(commit, None)

    def _committed(self, commit: Commit, error: HeadraceError | None) -> None:
        with self._changed:
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
            commit = self.seat.commit_due(now_ms())
        if commit is not None:
            self._workers.submit(partial(self._commit_in_time, commit))
        if self.seat.news:
            self._fetcher.wake()

    def _commit_in_time(self, commit: Commit) -> None:
        """On a worker's thread, once; while somebody else commits, later."""
        if self._closed or not self._committing.acquire(blocking=False):
            return
        try:
            for part in commit.parts():
                self._commit_once(part)
        except HeadraceError as error:
            if not error.retriable:
                _log.warning("%s", self.seat.not_committed(error))
        finally:
            self._committing.release()

    def _send(self, sendings: list[Sending]) -> None:
        for sending in sendings:
            self._workers.submit(partial(self._exchange, sending))
        self._changed.notify_all()

    def _exchange(self, sending: Sending) -> None:
        """On a worker's thread."""
        try:
            joined = self._coordinator.said_once(sending)
        except Exception as error:
            with self._changed:
                self._send(self.seat.refused(sending, as_group_error(error), now_ms()))
        else:
            with self._changed:
                self._send(self.seat.answered(sending, joined, now_ms()))
        if self.seat.news:
            self._fetcher.wake()

    # -- the end -----------------------------------------------------------------------------------------------------

    def hand_back(self) -> None:
        """Before `close`, by the reader's thread: what its user has done is committed, and he hears that it is over."""
        with self._changed:
            held = [*self.seat.shares.held] if self.seat.is_in else []
        if held:
            self._commit_passed(held, GROUP_LAST_COMMIT_MS)
            self._call(self.seat.options.callbacks.revoked, held)

    def close(self) -> None:
        """Leave the group. Safe to call again, and from any thread; a child process only lets go."""
        if self._pid != os.getpid() or self._closed:
            return
        self._commit_passed(None, GROUP_LAST_COMMIT_MS)
        with self._changed:
            self._closed = True
            leaving = self.seat.leave(now_ms())
            self._changed.notify_all()
        for sending in leaving:
            self._coordinator.leave(sending)
        self._workers.stop()


def as_group_error(error: Exception) -> HeadraceError:
    """Expected failures as they are."""
    return error if isinstance(error, HeadraceError) else HeadraceError(f"a request about a group failed: {error!r}")

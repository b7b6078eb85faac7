"""A consumer's part in its group, for threads and for an event loop: requests, commits, and the errands of its reader.

`GroupMember` decides, `Plan` gives the order, and the errands here make the requests and calls for it. No I/O. Nothing
else happens to the member between two steps of an errand: the blocking face holds a lock, which no thread holds while
a step is carried out; on an event loop no other task runs in between. Commits go one by one, so that none
overtakes a later one. `MemberErrands` is the base of `BlockingMember` and `AsyncMember`.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Generic, assert_never

from headrace.client.clock import now_ms
from headrace.client.consumer.fetch_errands import FetchErrands
from headrace.client.consumer.options import GroupOptions, Start, new_member_id
from headrace.client.groups import assigned_partitions
from headrace.client.groups.assigned_partitions import Commit, Given
from headrace.client.groups.coordinator_client import CoordinatorClient
from headrace.client.groups.member import GroupMember, Sending
from headrace.client.groups.plan import AskOffsets, CommitPassed, Drop, LookUp, Plan, Say, Tell
from headrace.client.groups.plan import Step as PlanStep
from headrace.client.record import GroupOffset, TopicPartition
from headrace.client.transport.errands import B, Course, Errand, Here
from headrace.core.errors import HeadraceError, LocalError, UnknownTopicError
from headrace.core.groups.identity import GroupName
from headrace.core.limits import CONSUMER_CLOSE_MS_DEFAULT, GROUP_REQUEST_TIMEOUT_MS

_log = logging.getLogger("headrace.client")


class MemberErrands(ABC, Generic[B]):
    def __init__(
        self, brokers: B, fetches: FetchErrands[B], options: GroupOptions, start: Start, timeout_ms: int
    ) -> None:
        self._brokers, self._fetches, self._reading = brokers, fetches, fetches.reading
        self.group_member = GroupMember(options, self._reading.handed, new_member_id, brokers.trouble, timeout_ms)
        self._coordinator = CoordinatorClient(brokers, GroupName(brokers.namespace, options.group))
        self._plan = Plan(self.group_member, self._reading, brokers.directory, start, now_ms)
        self._close_by_ms: int | None = None
        """The time by which a close must be over; None: nobody closes it."""
        self._closed = False

    @abstractmethod
    def _spawn(self, errand: Errand[None], name: str) -> object:
        """Carry the errand out in the background."""

    @abstractmethod
    def _call(self, callback: Callable[[list[TopicPartition]], Any], partitions: list[TopicPartition]) -> Any:
        """Call the callback. Raises what it raises."""

    @abstractmethod
    def _commit_alone(self, errand: Errand[None], by_ms: int | None) -> Any:
        """Carry the errand out while no other one commits. False where another one does until `by_ms`."""

    @abstractmethod
    def _send(self, sendings: list[Sending]) -> None:
        """Carry out `_exchange` for each request in the background."""

    @abstractmethod
    def _look_again(self) -> None:
        """Wake the background: the member has changed, so it may be time to look."""

    @abstractmethod
    def _tell(self) -> None:
        """Wake the threads or tasks that wait for a change of the member."""

    # -- the reader --------------------------------------------------------------------------------------------------

    def resume(self) -> Errand[None]:
        """Begin a reading: a consumer that is not in the group any more joins again."""
        self._send(self.group_member.begin(now_ms()))
        yield from ()

    def _follow(self) -> Errand[None]:
        """Do what the group wants by now. Raises what a callback raises, and the error that ended the membership."""
        return self._steps(self._plan.follow())

    def _is_settled(self) -> Errand[bool]:
        asked_ms = now_ms()
        report = yield from self._coordinator.description()
        missing = self.group_member.missing(report)
        is_silent, said = self.group_member.silent(report, asked_ms)
        for sentence in said:
            _log.warning("%s", sentence)
        if missing is None or is_silent:
            return False
        for topic in missing:
            if (yield from self._exists(topic)):
                return False
        return True

    def _exists(self, topic: str) -> Errand[bool]:
        """Return False only if brokers say that the topic does not exist: else the coordinator may hear of it soon."""
        try:
            yield from self._brokers.layout_once(topic)
        except UnknownTopicError:
            return False
        except HeadraceError as error:
            _log.debug("whether topic %s is there cannot be known yet: %s", topic, error)
        return True

    def group_offsets(self) -> Errand[dict[TopicPartition, GroupOffset]]:
        offsets = yield from self._coordinator.offsets()
        return assigned_partitions.newest(offsets)

    # -- steps of the plan -------------------------------------------------------------------------------------------

    def _steps(self, errand: Errand[None]) -> Errand[None]:
        """Carry out an errand of the plan by steps of a face."""
        course = Course(errand)
        while course.step is not None:
            try:
                done = yield from self._step(course.step)
            except BaseException as error:
                course.failed(error)
            else:
                course.done(done)

    def _step(self, step: PlanStep) -> Errand[Any]:
        match step:
            case Say(sendings):
                self._send(sendings)
            case Drop(partitions):
                for partition in partitions:
                    self._fetches.drop(partition)
            case Tell(callback, partitions):
                if callback is not None:
                    with self._reading.handed.waiting(whether=False):  # A callback takes the user's time.
                        yield Here(partial(self._call, callback, partitions))
            case CommitPassed(partitions, by_ms):
                yield from self._commit_passed(partitions, by_ms)
            case AskOffsets(partitions, names):
                return (yield from self._coordinator.offsets_once(partitions, names))
            case LookUp(partitions, timestamp):
                return (yield from self._brokers.offsets_once(partitions, timestamp, GROUP_REQUEST_TIMEOUT_MS))
            case _:
                assert_never(step)
        return None

    # -- commits -----------------------------------------------------------------------------------------------------

    def commit(self, offsets: Mapping[TopicPartition, int] | None, metadata: str) -> Errand[None]:
        """Commit for the user. Raises FencedMemberError, and commits nothing, if a partition is not ours any more."""
        with self._reading.handed.waiting():
            parts = self._commit_parts(partial(self.group_member.commit_of, offsets, metadata), None)
            yield Here(partial(self._commit_alone, parts, None))

    def _commit_passed(self, partitions: list[TopicPartition] | None, by_ms: int) -> Errand[None]:
        """Commit the user's progress. A failure is only logged: the next reader begins a little earlier."""
        with self._reading.handed.waiting():
            try:
                parts = self._commit_parts(partial(self.group_member.passed, partitions), by_ms)
                if not (yield Here(partial(self._commit_alone, parts, by_ms))):
                    raise LocalError("an earlier commit is not answered")
            except HeadraceError as error:
                _log.warning("%s", self.group_member.not_committed(error))

    def _commit_parts(self, choose: Callable[[], Commit], by_ms: int | None) -> Errand[None]:
        """Commit in parts until `by_ms`; without it, for as long as the client's time limit allows."""
        what = self.group_member.what_commits
        parts = choose().parts()
        timeout_ms = None if by_ms is None else max(0, by_ms - now_ms())
        for part in parts:
            yield from self._brokers.retrying(what, partial(self._commit_once, part, by_ms), timeout_ms=timeout_ms)

    def _commit_once(self, commit: Commit, by_ms: int | None = None) -> Errand[None]:
        if by_ms is None and self._close_by_ms is not None:  # The user commits, and the consumer is closed meanwhile.
            by_ms = self._close_by_ms
            if now_ms() >= by_ms:
                what = self.group_member.what_commits
                raise LocalError(f"{what} are not committed: this consumer was closed meanwhile")
        request, names = self.group_member.commit_request(commit)
        try:
            yield from self._coordinator.ask_once(request, names, by_ms=by_ms)
        except HeadraceError as error:
            self._send(self.group_member.committed(commit, error, now_ms()))
            raise
        self._send(self.group_member.committed(commit, None, now_ms()))

    # -- in the background -------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Start what is due by the time."""
        self._send(self.group_member.look(now_ms()))
        given, commit = self.group_member.to_find(now_ms()), self.group_member.commit_due(now_ms())
        if given is not None:
            self._spawn(self._find(given), "headrace-group-find")
        if commit is not None:
            self._spawn(self._commit_in_time(commit), "headrace-commit")
        self._tell()

    def _find(self, given: Given) -> Errand[None]:
        try:
            yield from self._steps(self._plan.find(given))
        except Exception as error:
            self.group_member.tell_found(given, dict.fromkeys(given.places, as_group_error(error)), now_ms())
        self._look_again()
        self._tell()
        self._fetches.wake()

    def _commit_in_time(self, commit: Commit) -> Errand[None]:
        """Try an automatic commit once; while another commit is under way, it waits for its next time."""
        if self._closed:
            return
        try:
            yield Here(partial(self._commit_alone, self._commit_each_once(commit), 0))
        except Exception as error:
            if not as_group_error(error).retriable:
                _log.warning("%s", self.group_member.not_committed(as_group_error(error)))

    def _commit_each_once(self, commit: Commit) -> Errand[None]:
        for part in commit.parts():
            yield from self._commit_once(part)

    def _exchange(self, sending: Sending) -> Errand[None]:
        """Send a request of the member, and give the member the answer."""
        try:
            joined = yield from self._coordinator.said_once(sending)
        except Exception as error:
            self._send(self.group_member.refused(sending, as_group_error(error), now_ms()))
        else:
            self._send(self.group_member.answered(sending, joined, now_ms()))
        self._look_again()
        self._tell()

    # -- the end -----------------------------------------------------------------------------------------------------

    def _hand_back(self, by_ms: int) -> Errand[None]:
        """Commit the user's progress and call the callback, while nobody reads."""
        return self._steps(self._plan.hand_back(by_ms))

    def _commit_by_ms(self) -> int:
        """Return the time by which the last commit is over: it leaves a quarter of the time for the leave request."""
        if self._close_by_ms is None:
            self._close_by_ms = now_ms() + CONSUMER_CLOSE_MS_DEFAULT
        return self._close_by_ms - max(0, self._close_by_ms - now_ms()) // 4


def as_group_error(error: Exception) -> HeadraceError:
    """Return expected failures as they are, and others as an error that says what failed."""
    return error if isinstance(error, HeadraceError) else HeadraceError(f"a request about a group failed: {error!r}")

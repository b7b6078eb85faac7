"""The steps that a member takes for its group: taking up, giving up, losing, handing back. Pure, for both faces.

An errand is a generator: it gives out a step, is sent the result (or thrown the error), and decides what is next.
`blocking_member` carries steps out with threads, `async_member` with tasks. Anything may have happened between two
steps, even the end of the session: so errands ask the member again after each.

    find      (background)  look up the first offsets of given partitions
    follow    (reader)      lost: drop, tell    revoked: commit, tell, drop, say so    found: read, tell    error: raise
    hand_back (close)       commit, tell

A callback that was interrupted is called again.
"""

import logging
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from headrace.client.consumer.options import Callback, Start, fixed_offset, timestamp_of
from headrace.client.consumer.read_ahead import ReadAhead
from headrace.client.groups import assigned_partitions
from headrace.client.groups.assigned_partitions import Beginning, Found, Given
from headrace.client.groups.member import GroupMember, Sending
from headrace.client.record import TopicPartition
from headrace.client.transport.calls import Directory
from headrace.core.errors import HeadraceError
from headrace.core.groups.assignment import Names
from headrace.core.groups.membership import Revoke
from headrace.core.types import PartitionKey

_log = logging.getLogger("headrace.client")


@dataclass(frozen=True, slots=True)
class AskOffsets:
    """Ask once for the offsets that the group has committed of these. The result is GroupOffsets."""

    partitions: frozenset[PartitionKey]
    names: Names


@dataclass(frozen=True, slots=True)
class LookUp:
    """Look up `earliest`, `latest` or a time in each of these, once. The result is Found."""

    partitions: list[TopicPartition]
    timestamp: str | int


@dataclass(frozen=True, slots=True)
class CommitPassed:
    """Commit the user's progress in these. If that fails, the next reader begins a little earlier."""

    partitions: list[TopicPartition]
    by_ms: int


@dataclass(frozen=True, slots=True)
class Tell:
    """Call the callback, and raise what it raises."""

    callback: Callback
    partitions: list[TopicPartition]


@dataclass(frozen=True, slots=True)
class Drop:
    """Stop reading these: none of their records is handed out from now on."""

    partitions: list[TopicPartition]


@dataclass(frozen=True, slots=True)
class Say:
    """Send these requests to the coordinator, in the background."""

    sendings: list[Sending]


Step: TypeAlias = AskOffsets | LookUp | CommitPassed | Tell | Drop | Say
Errand: TypeAlias = Generator[Step, Any, None]


class Plan:
    def __init__(
        self, member: GroupMember, reading: ReadAhead, directory: Directory, start: Start, clock: Callable[[], int]
    ) -> None:
        self._member, self._reading, self._directory = member, reading, directory
        self._start, self._clock = start, clock
        self._untold: Tell | None = None
        """The callback that the user may not have finished: it was interrupted."""

    # -- the reader --------------------------------------------------------------------------------------------------

    def is_due(self) -> bool:
        """Return whether there is something to `follow`."""
        return self._member.news or self._untold is not None or not self._member.holds(self._clock())

    def follow(self) -> Errand:
        """Do all that is due by now. Raises what a callback raises, and the error that ended the membership."""
        member = self._member
        while self.is_due() and not self._reading.handed.stops:
            if self._untold is not None:
                yield from self._tell(self._untold)
            yield Say(member.look(self._clock()))
            (lost, why), revoked, found = member.take_lost(), member.revoked(), member.found()
            if lost:
                _log.warning("%s", why)
                yield Drop(lost)
                yield from self._tell(Tell(member.options.callbacks.of_lost(), lost))
            elif revoked is not None:
                yield from self._give_up(*revoked)
            elif found:
                yield from self._take_up(found)
            else:
                member.raise_error()
                return

    def _tell(self, tell: Tell) -> Errand:
        self._untold = tell
        try:
            yield tell
        except Exception:
            self._untold = None
            raise
        self._untold = None

    def _give_up(self, revoke: Revoke, partitions: list[TopicPartition]) -> Errand:
        """Commit the user's progress, then give the partitions up. If all is lost by then, the user hears of that."""
        if partitions:
            yield CommitPassed(partitions, revoke.by_ms)
        if not self._member.is_asked(revoke):
            return
        try:
            if partitions:
                yield Tell(self._member.options.callbacks.revoked, partitions)
        except Exception:  # After an interrupt (no Exception) the callback is called again.
            yield from self._let_go(revoke, partitions)
            raise
        yield from self._let_go(revoke, partitions)

    def _let_go(self, revoke: Revoke, partitions: list[TopicPartition]) -> Errand:
        yield Drop(partitions)
        yield Say(self._member.gave_up(revoke, partitions, self._clock()))

    def _take_up(self, found: list[Beginning]) -> Errand:
        """Read the partitions that were found. A reading that has ends waits for the end of each partition."""
        plan = self._reading.plan
        if not plan.has_ends:
            found = [each._replace(end=None) for each in found]
        ready = {each.place: each for each in found if each.end is not None or not plan.has_ends}
        self._member.finding.forget([each.key for each in found if each.place not in ready])
        taken = assigned_partitions.begin(plan, ready.values())
        self._member.take_up(taken, self._clock())
        if taken:
            yield from self._tell(Tell(self._member.options.callbacks.assigned, [each.partition for each in taken]))

    # -- the background ----------------------------------------------------------------------------------------------

    def find(self, given: Given) -> Errand:
        """Look up where to begin in each partition; one that cannot be read just now keeps no other waiting."""
        outcomes: dict[PartitionKey, Beginning | HeadraceError] = {}
        try:
            offsets = yield AskOffsets(frozenset(given.places), self._member.names())
            topics = assigned_partitions.by_topic(given)
            for topic in topics:
                self._directory.pin_anew(topic.topic, topic.uid)
            starts = yield from self._starts([place for topic in topics for place in topic.not_committed(offsets)])
            has_ends = self._reading.plan.has_ends
            ends: Found = (yield LookUp([*given.places.values()], "latest")) if has_ends else {}
            for topic in topics:
                outcomes.update(topic.beginnings(offsets, starts, ends))
        except HeadraceError as error:
            outcomes = dict.fromkeys(given.places, error)
        self._member.tell_found(given, outcomes, self._clock())

    def _starts(self, partitions: list[TopicPartition]) -> Generator[Step, Any, Mapping[TopicPartition, Any]]:
        offset = fixed_offset(self._start)
        if offset is not None:
            return dict.fromkeys(partitions, offset)
        return (yield LookUp(partitions, timestamp_of(self._start))) if partitions else {}

    # -- the end -----------------------------------------------------------------------------------------------------

    def hand_back(self, by_ms: int) -> Errand:
        """Commit the user's progress, and tell the user that the partitions are given up, or lost."""
        member = self._member
        held = [*member.assigned.held] if member.is_in else []
        if held:
            yield CommitPassed(held, by_ms)
        still = [place for place in held if place in member.assigned.held]
        if still:
            yield Tell(member.options.callbacks.revoked, still)
        lost, why = member.take_lost()
        if lost:
            _log.warning("%s", why)
            yield Tell(member.options.callbacks.of_lost(), lost)

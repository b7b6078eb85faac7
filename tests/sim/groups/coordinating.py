"""One life of a broker as coordinator: the real `Coordinator` of groups, over the replica that this broker has.

As the broker's own shell: elected when the replica leads, reads what the log held then once all of it is committed,
appends in order, and is deposed at the first refusal, failure or other leader. What needed no record is told only where
this broker knows that it leads.
"""

from collections import deque
from collections.abc import Sequence
from typing import assert_never

from headrace.core.coordinator import (
    Append,
    Committed,
    Coordinator,
    CoordinatorAnswer,
    CoordinatorState,
    Deposed,
    Elected,
    LogEvent,
    Read,
    ReadToEnd,
    Refuse,
    Ticked,
    Told,
)
from headrace.core.errors import CoordinatorLoadingError, HeadraceError, NotCoordinatorError, NotReadyError
from headrace.core.groups.entries import Entry, GroupRecord, Image, OffsetRecord
from headrace.core.groups.events import (
    CommitReceived,
    DeletionReceived,
    GroupChanged,
    Ignored,
    Notice,
    Reply,
    Request,
    ResetResolved,
    TopicDeleted,
)
from headrace.core.groups.group import Group
from headrace.core.groups.group_machine import ForGroup, GroupConfigured, GroupEvent, GroupMachine, TopicsListed
from headrace.core.groups.identity import GroupState
from headrace.core.groups.publishing import CreateConsumerGroup, DeleteConsumerGroup, Upkeep, WriteStatus, upkeep
from headrace.core.groups.records import decode, encode
from headrace.core.groups.status import GroupReport, offered_of, report_of
from headrace.core.log.epochs import Fence
from headrace.core.replication.leadership import Contact
from headrace.core.resources.consumer_group import ConsumerGroup
from headrace.core.resources.metadata import DEFAULT_CLUSTER
from headrace.core.types import Acks, LeaderEpoch, Offset
from tests.sim.groups.post import Post
from tests.sim.groups.promises import Promises
from tests.sim.groups.shared import GROUP, Batch, Cause, Shared
from tests.sim.life import Life
from tests.support.group_world import GroupCoordination, GroupOrder

NO_EPOCH = LeaderEpoch(0)
LABEL = "headrace-offsets/0"
TICK_MS = 100


class Coordinating:
    def __init__(self, life: Life, shared: Shared, promises: Promises, post: Post) -> None:
        self.life, self.label = life, life.label
        self.machine = GroupMachine()
        self.coordinator: GroupCoordination = Coordinator(self.machine)
        self.ticked_ms = 0
        self._shared, self._promises, self._post = shared, promises, post
        self._epoch = NO_EPOCH
        """The epoch in which the coordinator was elected, while it is not deposed."""
        self._end = Offset(0)
        """The end up to which it reads."""
        self._queue: deque[tuple[int, Batch]] = deque()
        """The batches that are not appended yet."""
        self._numbers: dict[int, int] = {}
        """The numbers of what it appended, by what stands in the log."""
        self.known: ConsumerGroup | None = None
        self._seen_topics = self._seen_resource = self._seen_deleted = 0
        """The number of versions that were seen."""

    @property
    def group(self) -> Group | None:
        return self.machine.groups.get(GROUP)

    @property
    def is_active(self) -> bool:
        return self.coordinator.state is CoordinatorState.ACTIVE

    @property
    def may_begin(self) -> bool:
        return self.life.replica.leads and self._epoch == NO_EPOCH

    @property
    def may_read(self) -> bool:
        is_loading = self.coordinator.state is CoordinatorState.LOADING
        return is_loading and self.life.replica.high_watermark >= self._end and self._is_writable()

    @property
    def has_to_append(self) -> bool:
        return bool(self._queue)

    @property
    def waits_for_log(self) -> bool:
        is_loading = self.coordinator.state is CoordinatorState.LOADING
        return not self.life.is_paused and (bool(self._numbers) or (is_loading and not self.may_read))

    @property
    def is_to_tick(self) -> bool:
        return self.is_active and self.life.clock.now_ms >= self.ticked_ms + TICK_MS

    @property
    def is_behind(self) -> bool:
        """Return whether there is news of topics, or of the ConsumerGroup, that the API server shows."""
        shared = self._shared
        seen = (self._seen_topics, self._seen_resource, self._seen_deleted)
        there = (len(shared.listings), len(shared.resource.versions), len(shared.deleted))
        return seen != there and not shared.resource.is_away

    # -- the log -----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        self._epoch, self._end = self.life.replica.leader_epoch, self.life.log.log_end_offset
        self.step(Elected())

    def read(self, draw: int) -> None:
        """Read all at once; the log may be compacted."""
        values = [entry.value for entry in self.life.log.entries[: self._end]]
        entries = tuple(entry for value in values for entry in self._shared.batches[value].entries)
        self.step(Read(compacted(entries) if draw % 2 else entries))
        self.step(ReadToEnd(self._wall_ms))
        self._count("read")

    def append(self, draw: int) -> None:
        """Append what waits, or some of it; where it fails all begins anew."""
        for _ in range(min(len(self._queue), 1 + draw % 4)):
            number, batch = self._queue.popleft()
            value = self._shared.write(batch)
            self._numbers[value] = number
            try:
                self.life.produce(value)
            except HeadraceError as error:
                self.depose(error.code)
            if self._epoch == NO_EPOCH:
                return

    def acknowledged(self, values: Sequence[int]) -> None:
        for value in values:
            number = self._numbers.pop(value, None)
            if number is not None:
                self.step(Committed(number))

    def failed(self, values: Sequence[int]) -> None:
        if any(value in self._numbers for value in values):
            self.depose("not acknowledged")

    def moved(self) -> None:
        """Act on a change of the replica."""
        replica = self.life.replica
        if self._epoch != NO_EPOCH and not (replica.leads and replica.leader_epoch == self._epoch):
            self.depose("another leader")

    def depose(self, reason: str) -> None:
        if self._epoch != NO_EPOCH:
            self._epoch = NO_EPOCH
            self._queue.clear()
            self._numbers.clear()
            self._count("deposed")
            self.step(Deposed(reason))

    def _is_writable(self) -> bool:
        replica, contact = self.life.replica, self._contact
        try:
            replica.check_latest(LABEL, contact)
            replica.check_writable(LABEL, Fence(leader_epoch=self._epoch), Acks.ALL, contact)
        except HeadraceError:
            return False
        return True

    # -- the ConsumerGroup -------------------------------------------------------------------------------------------

    @property
    def has_to_show(self) -> bool:
        """Return whether something is committed that the ConsumerGroup does not show, as far as it has seen it."""
        resource = self._shared.resource
        may_write = self._seen_resource and not resource.is_away and not resource.is_written_by(self)
        is_told = self.is_active and self.machine.is_settled(GROUP)
        return bool(may_write and is_told and self._upkeep(self._report()) is not None)

    def show(self) -> None:
        report = self._report()
        self._promises.show(report)
        match self._upkeep(report):
            case CreateConsumerGroup(manifest):
                self._promises.is_unheard |= report.retention is None
                self._shared.resource.write(self, None, ConsumerGroup.parse(manifest))
            case WriteStatus(content):
                self._shared.resource.write(self, self.known, content)
            case DeleteConsumerGroup():
                self._shared.resource.write(self, self.known, None)
            case None:
                raise AssertionError("it has something to show")
            case never:
                assert_never(never)

    def wrote(self) -> None:
        if self.life.is_up and not self.life.is_paused:
            self._see_resource()

    def _report(self) -> GroupReport:
        group = self.group
        image, state = (Image(GROUP), GroupState.DEAD) if group is None else (group.image, group.state)
        return report_of(image, state, self.life.broker, self._shared.listings[self._seen_topics - 1], {})

    def _upkeep(self, report: GroupReport) -> Upkeep | None:
        return upkeep(self.known, report, DEFAULT_CLUSTER, self._wall_ms, is_for_lag=False, is_unused=False)

    # -- events ------------------------------------------------------------------------------------------------------

    def ask(self, request: Request) -> None:
        self.step(ForGroup(GROUP, request))

    def tick(self) -> None:
        self.ticked_ms = self.life.clock.now_ms
        self.step(Ticked(self._wall_ms))

    def look(self) -> None:
        """Take all the news there is."""
        shared, seen = self._shared, self._seen_deleted
        self._seen_topics, self._seen_deleted = len(shared.listings), len(shared.deleted)
        self.step(TopicsListed(GROUP.namespace, shared.topics))
        for uid in shared.deleted[seen:]:
            self.step(TopicDeleted(uid))
        self._see_resource()

    def _see_resource(self) -> None:
        resource, clock = self._shared.resource, self.life.clock
        self._seen_resource, self.known = len(resource.versions), resource.stored
        if self.known is None:
            self.step(GroupConfigured(GROUP, None))
            return
        self.step(GroupConfigured(GROUP, self.known.settings(clock.now_ms, self._wall_ms)))
        offered, group = offered_of(self.known), self.group
        if offered is not None and group is not None and offered.epoch > group.image.group.assignment_epoch:
            self._count("target seen")
            self.step(ForGroup(GROUP, offered))

    def step(self, event: LogEvent[Entry] | GroupEvent) -> None:
        last_reset = self.group.image.group.last_reset if self.group is not None else ""
        orders = self.coordinator.step(event, self.life.clock.now_ms)
        problem = None if isinstance(event, Committed | Deposed) else self._problem(orders)
        asked = event.event if isinstance(event, ForGroup) else None
        cause = asked if isinstance(asked, CommitReceived | ResetResolved | DeletionReceived) else None
        for order in orders:
            if isinstance(order, Append):
                entries = tuple(decode(*encode(entry)) for entry in order.entries)
                is_own = cause is not None and _is_of(cause, last_reset, entries)
                self._queue.append((order.number, Batch(entries, cause if is_own else None)))
                self._count("decision")
            else:
                self._carry_out(order, problem)

    def _problem(self, orders: Sequence[GroupOrder]) -> HeadraceError | None:
        if not self.is_active or not any(isinstance(order, CoordinatorAnswer | Refuse) for order in orders):
            return None
        try:
            self.life.replica.check_leader(LABEL, Fence(leader_epoch=self._epoch))
            self.life.replica.check_latest(LABEL, self._contact)
        except NotReadyError as error:
            return CoordinatorLoadingError(error.message)
        except HeadraceError as error:
            return NotCoordinatorError(error.message)
        return None

    def _carry_out(self, order: Told[Reply, Notice], problem: HeadraceError | None) -> None:
        match order:
            case CoordinatorAnswer(request) | Refuse(request):
                self._tell(order if problem is None else Refuse(request, problem, "not sure"))
            case Ignored():
                self._count("target ignored")
            case GroupChanged():
                pass
            case _:
                assert_never(order)

    def _tell(self, told: CoordinatorAnswer[Reply] | Refuse) -> None:
        member = self._shared.askers.get(told.request)
        if member is not None:
            if isinstance(told, CoordinatorAnswer):
                self._promises.tell(told, member.id)
            self._post.tell(member, self.life, told)

    @property
    def _contact(self) -> Contact:
        return Contact(self.life.clock.now_ms, self.life.clock_port.renewed_ms)

    @property
    def _wall_ms(self) -> int:
        return self.life.setting.now_ms

    def _count(self, what: str) -> None:
        self.life.setting.counts[f"coordinator: {what}"] += 1


def _is_of(cause: Cause, last_reset: str, written: Sequence[Entry]) -> bool:
    """Return whether it is its own: whatever else was due is written with a step as well, maybe of a request that is
    refused."""
    groups = [entry.value for entry in written if isinstance(entry, GroupRecord)]
    match cause:
        case DeletionReceived():
            return None in groups
        case CommitReceived() | ResetResolved():
            is_reset = any(value is not None and value.last_reset != last_reset for value in groups)
            return is_reset or any(isinstance(entry, OffsetRecord) for entry in written)
        case _:
            assert_never(cause)


def compacted(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Return the last entry of each key."""
    last = {entry.key: at for at, entry in enumerate(entries)}
    return tuple(entry for at, entry in enumerate(entries) if last[entry.key] == at)

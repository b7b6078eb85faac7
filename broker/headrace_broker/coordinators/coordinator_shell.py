"""The coordinator of one partition of an internal topic on this broker, and the log that holds its decisions.

    waiting ── this broker leads ──> loading ── read to its end, writable ──> active
       └──── (after a pause where it failed) ──── another leads, an append or a read failed ──────┘

Runs as one task for as long as the partition is open here. `CoordinatorShell` carries out what the pure `Coordinator`
orders, at once, on the event loop; `coordinator_log` writes it. If that fails, or the core makes a mistake, the
coordinator is deposed before anything else happens, and begins again from the log, which says what became of it. The
shell is the same for groups and writers: each gives it a state machine, a codec, and a `NoticeHandler` that carries out
what is neither written nor answered. `WaitingRequests` are the requests that wait for answers, by number, each
answered once.

Invariants: nothing is appended in another epoch than the one that the coordinator was elected in; what is told without
a record is told only while this broker knows that it leads; once it is deposed, nobody waits for an answer.
"""

import asyncio
import logging
from collections.abc import Sequence
from time import perf_counter
from typing import Generic, Protocol, TypeVar

from headrace.core.coordinator import (
    Append,
    Committed,
    Coordinator,
    CoordinatorAnswer,
    CoordinatorState,
    Deposed,
    Elected,
    EntryT,
    EventT,
    LogEvent,
    NoticeT,
    Order,
    Read,
    ReadToEnd,
    Refuse,
    ReplyT,
    StateMachine,
    Ticked,
    UnreadableRecordError,
)
from headrace.core.errors import (
    CoordinatorLoadingError,
    CorruptBatchError,
    HeadraceError,
    NotCoordinatorError,
    NotLeaderError,
    NotReadyError,
)
from headrace.core.limits import COORDINATOR_RELOAD_MS
from headrace.core.log.epochs import Fence
from headrace.core.types import Acks, LeaderEpoch
from headrace_broker.clock import monotonic_ms, wall_ms
from headrace_broker.coordinators.coordinator_log import EntryCodec, TermAppends, load_codec
from headrace_broker.partition.partition import Partition

COORDINATOR_TICK_MS = 100

NoticeT_contra = TypeVar("NoticeT_contra", contravariant=True)
ReplyT_contra = TypeVar("ReplyT_contra", contravariant=True)
_log = logging.getLogger(__name__)
_NO_EPOCH = LeaderEpoch(0)


class WaitingRequests(Generic[ReplyT]):
    def __init__(self) -> None:
        self._last = 0
        self._asked: dict[int, asyncio.Future[ReplyT]] = {}

    @property
    def waiting(self) -> int:
        return len(self._asked)

    def next_number(self) -> int:
        self._last += 1
        return self._last

    def expect(self, number: int) -> "asyncio.Future[ReplyT]":
        """Return the answer to come, before the coordinator is told of the request. It raises what the request is
        refused with."""
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        return answer

    def answer(self, number: int, reply: ReplyT) -> None:
        answer = self._asked.pop(number)
        # The waiter may have gone away meanwhile: then the future is cancelled.
        if not answer.done():
            answer.set_result(reply)

    def refuse(self, number: int, error: HeadraceError) -> None:
        answer = self._asked.pop(number)
        if not answer.done():
            answer.set_exception(error)

    def refuse_all(self, error: HeadraceError) -> None:
        """Refuse all requests that are left: nobody else will answer them."""
        for number in [*self._asked]:
            self.refuse(number, error)


class NoticeHandler(Protocol[NoticeT_contra, ReplyT_contra]):
    """The part of the shell that groups and writers each have of their own. Each call returns at once."""

    def began(self, took_s: float) -> None:
        """Begin what is done for as long as the coordinator is active, which it has just become."""

    def notice(self, notice: NoticeT_contra) -> None:
        """Carry out what the machine wants to be done, or others to be told."""

    def answered(self, request: int, reply: ReplyT_contra) -> None:
        """Note that a request was answered, not refused."""

    def ended(self) -> None:
        """End what was begun: the coordinator is about to be deposed, and still has what it coordinates."""


class CoordinatorShell(Generic[EntryT, EventT, ReplyT, NoticeT]):
    def __init__(
        self,
        partition: Partition,
        machine: StateMachine[EntryT, EventT, ReplyT, NoticeT],
        codec: EntryCodec[EntryT],
        handler: NoticeHandler[NoticeT, ReplyT],
    ) -> None:
        self.partition = partition
        self.requests = WaitingRequests[ReplyT]()
        """The requests that it has yet to answer."""
        self.label = str(partition.place)
        self._machine = machine
        self._coordinator = Coordinator(machine)
        self._codec = codec
        self._handler = handler
        self._epoch = _NO_EPOCH
        """The epoch that the coordinator was elected in, while it is not deposed."""
        self._appends: TermAppends[EntryT] | None = None
        """The appends of the present term, while it is not deposed: an epoch may have two terms."""
        self._failed = False
        """Whether the last term ended by a failure, not by an election."""
        self._news = asyncio.Event()
        """The partition may have another leader or high watermark, or the coordinator is deposed."""
        self._ticking: asyncio.TimerHandle | None = None

    @property
    def state(self) -> CoordinatorState:
        return self._coordinator.state

    @property
    def is_ticking(self) -> bool:
        """Whether the machine is told of the time: only while it has something that time matters to."""
        return self._ticking is not None

    @property
    def is_active(self) -> bool:
        return self.state is CoordinatorState.ACTIVE

    @property
    def leads(self) -> bool:
        return self.partition.leads

    def ask(self, number: int, event: EventT, label: str) -> "asyncio.Future[ReplyT]":
        """Return the answer to come. It raises what the request is refused with. `label` says whom it is about."""
        answer = self.requests.expect(number)
        if self._ticking is None:
            self.step(Ticked(wall_ms()))  # it may have had nothing for hours: records are kept with the time
        if not self.step(event):
            self.requests.refuse_all(NotCoordinatorError(f"the coordinator of {label} failed; try again"))
        return answer

    def check_begun(self, label: str) -> None:
        """Raise CoordinatorLoadingError where this broker leads and does not coordinate yet, or not again after a
        failure: nobody else does meanwhile."""
        if self.state is CoordinatorState.IDLE:
            raise CoordinatorLoadingError(f"this broker is about to begin as the coordinator of {label}: try again")

    async def run(self) -> None:
        """Coordinate until it is cancelled, or the partition is closed for good."""
        self.partition.follow(self._moved)
        try:
            while True:
                await self._until_led()
                await self._serve_term()
                if self._failed:
                    await asyncio.sleep(COORDINATOR_RELOAD_MS / 1000)
        finally:
            self.partition.unfollow(self._moved)
            self.depose("it is led here no more")

    def step(self, event: LogEvent[EntryT] | EventT) -> bool:
        """Return whether it went well: a coordinator that makes a mistake begins again."""
        try:
            orders = self._coordinator.step(event, monotonic_ms())
            # A commit proves what it releases; what a deposed coordinator says is only that it is none.
            problem = None if isinstance(event, Committed | Deposed) else self._problem(orders)
            for order in orders:
                self._carry_out(order, problem)
        except Exception:  # a mistake of ours: the memory may differ from the log
            if isinstance(event, Deposed):
                raise
            _log.exception("%s: the coordinator failed", self.label)
            self.fail(f"it failed at {type(event).__name__}")
            return False
        if self._ticking is None and self.is_active and self._machine.count:
            self._ticking = asyncio.get_running_loop().call_later(COORDINATOR_TICK_MS / 1000, self._tick)
        return True

    def depose(self, reason: str) -> None:
        if self.state is CoordinatorState.IDLE:
            return
        self._epoch = _NO_EPOCH
        if self._appends is not None:
            self._appends.stop()
        if self._ticking is not None:
            self._ticking.cancel()
        self._appends = self._ticking = None
        try:
            self._handler.ended()
        finally:
            self._resign(reason)
        _log.info("%s: coordinated here no more: %s", self.label, reason)

    def _resign(self, reason: str) -> None:
        try:
            self.step(Deposed(reason))
        finally:
            # The core does not know of those whose answers were lost by a mistake.
            self.requests.refuse_all(NotCoordinatorError(f"the coordinator is none any more ({reason}): try again"))
            self._news.set()

    async def _until_led(self) -> None:
        while not self.leads:
            self._news.clear()
            await self._news.wait()

    async def _serve_term(self) -> None:
        """Coordinate in one epoch, until that is over."""
        epoch = self._epoch = self.partition.replica.leader_epoch
        self._failed = False
        self._appends = TermAppends(self.partition, self._codec, epoch, self._committed, self.fail)
        self.step(Elected())
        try:
            await self._load(epoch)
        except (HeadraceError, UnreadableRecordError, CorruptBatchError) as error:
            if self._epoch == epoch:
                _log.error("%s: cannot be coordinated: %s", self.label, error)
                self.fail(str(error))
        while self._epoch == epoch:
            self._news.clear()
            await self._news.wait()

    async def _load(self, epoch: LeaderEpoch) -> None:
        """Read all that the log holds now. Raise what reading raises, and NotLeaderError where the term is over."""
        started, count = perf_counter(), 0
        end = self.partition.log.log_end_offset
        await load_codec()
        while self.partition.high_watermark < end or not self._is_writable(epoch):
            await self.partition.moved(COORDINATOR_RELOAD_MS / 1000)
        async for run in self._codec.entries(self.partition, end):
            self._check_term(epoch)
            self.step(Read(run))
            count += len(run)
        self._check_term(epoch)
        self.step(ReadToEnd(wall_ms()))
        took_s = perf_counter() - started
        _log.info("%s: coordinates %d, read %d records in %.3f s", self.label, self._machine.count, count, took_s)
        self._handler.began(took_s)

    def _is_writable(self, epoch: LeaderEpoch) -> bool:
        """Return whether decisions can be written: a coordinator that cannot write would be deposed by the first who
        asks. Raise NotLeaderError where the term is over."""
        self._check_term(epoch)
        try:
            replica, contact = self.partition.replica, self.partition.contact
            replica.check_latest(self.label, contact)
            replica.check_writable(self.label, Fence(leader_epoch=epoch), Acks.ALL, contact)
        except HeadraceError as error:
            _log.debug("%s: not coordinated yet: %s", self.label, error)
            return False
        return True

    def _check_term(self, epoch: LeaderEpoch) -> None:
        if self._epoch != epoch:
            raise NotLeaderError(f"{self.label} is led here no more in epoch {epoch}")

    def _moved(self) -> None:
        self._news.set()
        if self._epoch and not (self.leads and self.partition.replica.leader_epoch == self._epoch):
            self.depose("another leader was elected")

    def _committed(self, number: int) -> None:
        self.step(Committed(number))

    def fail(self, reason: str) -> None:
        """Depose it though it may still lead: it begins again from its log, after a pause."""
        self._failed = True
        self.depose(reason)

    def _tick(self) -> None:
        self._ticking = None
        self.step(Ticked(wall_ms()))

    def _problem(self, orders: Sequence[Order[EntryT, ReplyT, NoticeT]]) -> HeadraceError | None:
        """Return why this broker must not tell anything that it did not write; None where it may."""
        if self.is_active and any(isinstance(order, CoordinatorAnswer | Refuse) for order in orders):
            try:
                self.check_sure()
            except HeadraceError as error:
                return error
        return None

    def check_sure(self) -> None:
        """Check that this broker leads, and knows it. Raise NotCoordinatorError or CoordinatorLoadingError else."""
        replica = self.partition.replica
        try:
            replica.check_leader(self.label, Fence(leader_epoch=self._epoch))
            replica.check_latest(self.label, self.partition.contact)
        except NotReadyError as error:
            raise CoordinatorLoadingError(error.message) from error
        except HeadraceError as error:
            raise NotCoordinatorError(f"this broker coordinates {self.label} no more: {error.message}") from error

    def _carry_out(self, order: Order[EntryT, ReplyT, NoticeT], problem: HeadraceError | None) -> None:
        match order:
            case Append():
                assert self._appends is not None, "it was elected"
                self._appends.add(order)
            case CoordinatorAnswer(request, reply) if problem is None:
                self.requests.answer(request, reply)
                self._handler.answered(request, reply)
            case CoordinatorAnswer(request):
                assert problem is not None, "else it is answered"
                self.requests.refuse(request, problem)
            case Refuse(request, error):
                self.requests.refuse(request, problem or error)
            case _:
                self._handler.notice(order)

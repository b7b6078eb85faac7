"""The writers of one partition of the commits topic on this broker: how they are asked, and what is done for them.

What makes a coordinator of a partition that is led here is `internal_topics.coordinating`'s. Looks at stages, rolls
forward and cleans in tasks of its own, which end with its term.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, assert_never

from headrace.core.errors import HeadraceError, OffsetOutOfRangeError
from headrace.core.limits import STAGING_LOOK_INTERVAL_MS
from headrace.core.records.raw import stored_times
from headrace.core.records.time_rules import TimeRules
from headrace.core.staging.coordinator import (
    Answer,
    CommitReceived,
    Look,
    Roll,
    RolledForward,
    SpansSeen,
    StagingSeen,
    StateAsked,
    Status,
    WriterCoordinator,
)
from headrace.core.staging.decisions import Clean, Share, Span, WriterRecord, decode, encode
from headrace.core.staging.writers import staging_partitions
from headrace.core.types import PartitionId, TopicName, TopicUid
from headrace_broker.clock import wall_ms
from headrace_broker.internal_topics.coordinating import LogCoordinating
from headrace_broker.internal_topics.log import Codec
from headrace_broker.internal_topics.requests import Requests
from headrace_broker.partition import Partition
from headrace_broker.requests import Place
from headrace_broker.staging.metrics import WriterMetrics
from headrace_broker.staging.reach import Reach
from headrace_broker.staging.rolling import Rolling

_log = logging.getLogger(__name__)
COMMITS_LOG = Codec(encode, decode)


class WriterCoordinating(LogCoordinating[WriterRecord, Status]):
    def __init__(
        self,
        partition: Partition,
        reach: Reach,
        staging: TopicName,
        rolling: Rolling,
        metrics: WriterMetrics,
        rules_of: Callable[[TopicUid], TimeRules | None],
    ) -> None:
        """`rules_of` gives what a topic says of the times of its records; None where it says nothing."""
        self.coordinator = WriterCoordinator()
        super().__init__(partition, self.coordinator, COMMITS_LOG, Requests())
        self._reach = reach
        self._staging = staging
        self._rolling = rolling
        self._metrics = metrics
        self._rules_of = rules_of
        self.staging_uid: TopicUid | None = None
        """Of the staging topic, as it was seen last."""
        self._tasks: set[asyncio.Task[None]] = set()
        """Of this term."""

    def ask(self, asked: CommitReceived | StateAsked) -> "asyncio.Future[Status]":
        """The answer, once it may be told. Raises what it is refused with."""
        return self.ask_machine(asked.request, asked, str(asked.writer))

    @property
    def has_work(self) -> bool:
        return bool(self.coordinator.writers)

    @property
    def holds(self) -> str:
        return f"{len(self.coordinator.writers)} writers"

    def _tell(self, order: Answer | Look | Roll | Clean, problem: HeadraceError | None) -> None:
        match order:
            case Answer(request, status) if problem is None:
                self.requests.answer(request, status)
            case Answer(request):
                assert problem is not None, "else it is answered"
                self.requests.refuse(request, problem)
            case Look():
                self._start(self._look(order), f"look at stages for {self._label}")
            case Roll(writer):
                self._start(self._roll(order), f"roll {writer} forward")
            case Clean():
                self._start(self._clean(order), f"clean stages of {self._label}")
            case _:
                assert_never(order)

    def _is_answer(self, order: Any) -> bool:
        return isinstance(order, Answer)

    def _began(self, took_s: float) -> None:
        self._start(self._keep_looking(), f"clean up after {self._label}")

    def _ends(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _ended(self) -> None:
        """Nobody else needs to know."""

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s: %r", task.get_name(), error, exc_info=error)
            self._fail(f"it failed to {task.get_name()}")

    async def _look(self, order: Look) -> None:
        seen: dict[PartitionId, Span] | HeadraceError
        try:
            seen = await self._reach.spans(self._staging, order.decision.staging_uid, order.partitions)
            for share in order.decision.shares:
                await self._check_times(share, order.decision.staging_uid)
        except HeadraceError as error:
            seen = error
        self.step(SpansSeen(order.request, seen))

    async def _check_times(self, share: Share, staging_uid: TopicUid) -> None:
        """Before the decision: what is decided is written, whatever its topic takes. Raises InvalidTimestampError."""
        rules, first = self._rules_of(share.key.uid), 0
        if rules is None or not rules.has_bounds:
            return
        label = f"{share.topic}/{share.key.partition}"
        for number, batch in enumerate(share.batches):
            try:
                stored = await self._reach.read(Place(self._staging, batch.partition), staging_uid, batch.base_offset)
                if stored:
                    rules.check_times(stored_times(stored), wall_ms(), label, batch=number, first=first)
            except OffsetOutOfRangeError:
                return  # The spans show that it is not there.
            first += batch.record_count

    async def _roll(self, order: Roll) -> None:
        with self._metrics.rolling(order.decision):
            dropped = await self._rolling.roll(order.writer, order.decision)
        for why in dropped:
            _log.error("batch %d of %s: %s", order.decision.batch, order.writer, why)
        self.step(RolledForward(order.writer, order.decision.batch, dropped))

    async def _clean(self, order: Clean) -> None:
        if self.staging_uid is not None:
            try:
                await self._reach.delete_before(Place(self._staging, order.partition), self.staging_uid, order.before)
            except HeadraceError as error:
                _log.info("staging partition %d is cleaned later: %s", order.partition, error.message)

    async def _keep_looking(self) -> None:
        """What can be deleted? Now and then, until the term is over."""
        mine = staging_partitions(self.partition.place.partition)
        while True:
            await asyncio.sleep(STAGING_LOOK_INTERVAL_MS / 1000)
            if self.staging_uid is not None:
                await self._see(map(PartitionId, mine), self.staging_uid)

    async def _see(self, partitions: Iterable[PartitionId], uid: TopicUid) -> None:
        try:
            spans = await self._reach.spans(self._staging, uid, partitions)
        except HeadraceError as error:
            _log.debug("%s: its stages cannot be looked at: %s", self._label, error)
        else:
            self.step(StagingSeen(spans))

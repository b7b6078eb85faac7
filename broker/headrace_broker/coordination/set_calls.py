"""The calls of one broker to the API server about PartitionSets: a PUT or a GET at a time for each set.

A `WrittenSet` is a set that places something here, or of which something is here. Its call runs in a task of its own;
what it brings goes to the set's writer and to the cluster view, so that the two agree on what is newest. PUTs are never
repeated here: whether one that has no answer has landed is the writer's to find out. Where the API server does not
answer, each set waits by itself, with backoff and jitter.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from headrace.core.limits import SET_CALLS_MAX, SET_WRITE_INTERVAL_MS_MIN
from headrace.core.replication.set_writer import SetWriter, WantedState, isr_changes
from headrace.core.resources.partition_set import PartitionSet
from headrace.core.types import PartitionId, Seat
from headrace.kube.client import Backoff, KubeClient
from headrace.kube.errors import ApiError, ConflictError, NotFoundError
from headrace.kube.resource import PARTITION_SETS
from headrace_broker.clock import monotonic_ms
from headrace_broker.coordination.cluster_view import ClusterView
from headrace_broker.coordination.set_metrics import SetMetrics
from headrace_broker.coordination.telling import Teller

_log = logging.getLogger(__name__)
_WENT_BACK = (
    "PartitionSet {} went back in time, as after a restore of the API server's data: this broker goes on with what it"
    " knows, and nobody is elected; run `headrace cluster recover`"
)


@dataclass(slots=True)
class WrittenSet:
    writer: SetWriter
    call: asyncio.Task[None] | None = None
    is_stale: bool = True
    """It was not looked at since something changed."""
    asked: Collection[PartitionId] = ()
    """Partitions that it is time to ask for their ISR."""
    is_doubted: bool = False
    """Something older was shown than is known: only a read tells why."""
    is_gone: bool = False
    """There is no such object any more."""
    wished: Sequence[WantedState] = ()
    """When it was last looked at."""
    due_ms: float = 0
    """Nothing is sent before."""
    backoff: Backoff = field(default_factory=lambda: Backoff(Random()))

    @property
    def name(self) -> str:
        return self.writer.known.metadata.name

    @property
    def is_decided(self) -> bool:
        """Whether nothing that was sent may land yet."""
        return self.call is None and not (self.writer.is_writing or self.writer.is_undecided)

    @property
    def is_settled(self) -> bool:
        """Nothing is wanted, under way or undecided; of a set that went back in time nothing can be wanted."""
        wants = self.is_stale or self.wished or self.writer.is_undecided
        return self.call is None and (not wants or self.writer.is_regressed)


class SetCalls:
    """One per process."""

    def __init__(self, me: Seat, client: KubeClient, view: ClusterView, metrics: SetMetrics, teller: Teller) -> None:
        self._me = me
        self._client = client
        self._view = view
        self._metrics = metrics
        self._teller = teller
        self._turns = asyncio.Semaphore(SET_CALLS_MAX)
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        """A call has ended, or a wait is over."""

    def put(self, each: WrittenSet, put: PartitionSet) -> None:
        """Send what `each.writer` says is to be written, for the sake of what was wished."""
        self._start(each, self._put(each, put, each.wished))

    def read(self, each: WrittenSet) -> None:
        """Find out what is there now."""
        self._start(each, self._read(each))

    def learn(self, each: WrittenSet, news: PartitionSet, tell: Callable[[PartitionSet], None]) -> None:
        """`tell`, of its writer, is told `news`."""
        before, was_regressed = each.writer.known, each.writer.is_regressed
        tell(news)
        shrinks, expands = isr_changes(before, each.writer.known, self._me)
        self._metrics.isr_shrinks.inc(shrinks)
        self._metrics.isr_expands.inc(expands)
        if each.writer.is_regressed and not was_regressed:
            self._teller.warn(before.topic_name, before.topic_uid, "MetadataRegressed", _WENT_BACK.format(each.name))
            self._view.changed.set()

    async def wait(self, timeout_s: float) -> None:
        """Until a set may be looked at again, at most so long."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return
        self._changed.clear()

    async def close(self) -> None:
        """What is under way is not waited for: it lands, or does not."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, each: WrittenSet, call: Coroutine[Any, Any, None]) -> None:
        each.call = asyncio.create_task(self._run(each, call), name=f"call for {each.name}")
        self._tasks.add(each.call)
        each.call.add_done_callback(self._tasks.discard)

    async def _run(self, each: WrittenSet, call: Coroutine[Any, Any, None]) -> None:
        try:
            async with self._turns:
                await call
        except ApiError as error:
            self._back_off(each, error)
        except Exception as error:  # a mistake of our own must not leave the set without a writer
            _log.exception("%s", each.name)
            self._back_off(each, error)
        each.call, each.is_stale = None, True
        self._changed.set()

    async def _put(self, each: WrittenSet, put: PartitionSet, wished: Sequence[WantedState]) -> None:
        try:
            landed = await self._client.replace(PARTITION_SETS, put.to_object())
        except Exception as error:
            each.writer.unanswered()
            self._metrics.writes.labels("conflict" if isinstance(error, ConflictError) else "unanswered").inc()
            raise
        self._metrics.writes.labels("landed").inc()
        each.backoff.reset()
        each.wished = ()  # All of it is so now: what else is wanted will be found when it may be sent.
        self._hold(each, SET_WRITE_INTERVAL_MS_MIN)
        self.learn(each, landed, each.writer.landed)
        self._view.put_answer(landed)
        _log.info("wrote %s: %s", each.name, "; ".join(wish.reason for wish in wished) or "as it was")
        for wish in wished:
            if wish.loss:
                self._teller.warn(landed.topic_name, landed.topic_uid, "RecordsMayBeLost", wish.loss)

    async def _read(self, each: WrittenSet) -> None:
        each.is_doubted, known = False, each.writer.known
        found = await self._find(known)
        if found is None:
            each.writer.gone()
            each.is_gone = True
            self._view.remove_set(known)
            return
        based_on = known.metadata.resource_version
        self.learn(each, found, lambda read: each.writer.read(read, based_on=based_on))
        if not each.writer.is_regressed:
            self._view.put_answer(found)

    async def _find(self, known: PartitionSet) -> PartitionSet | None:
        """None where it is gone, whatever else has its name by now. Raises ApiError."""
        try:
            found = await self._client.get(PARTITION_SETS, known.metadata.name, known.metadata.namespace)
        except NotFoundError:
            return None
        return found if found.uid == known.uid else None

    def _back_off(self, each: WrittenSet, error: Exception) -> None:
        wait_ms = each.backoff.next_ms()
        self._hold(each, wait_ms)
        level = logging.INFO if isinstance(error, ConflictError) else logging.WARNING
        _log.log(level, "%s: looking at it again in %.0f ms: %s", each.name, wait_ms, error)

    def _hold(self, each: WrittenSet, wait_ms: float) -> None:
        each.due_ms = monotonic_ms() + wait_ms
        asyncio.get_running_loop().call_later(wait_ms / 1000, self._changed.set)

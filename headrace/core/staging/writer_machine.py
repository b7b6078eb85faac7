"""The writers of one partition of the commits topic, on the broker that leads it: its log says what is decided.

`WriterMachine` is the state machine that `core.coordinator` drives.

    commit received ──> Look (are the stages there?) ──> spans seen ──> decided, appended, committed ──> Roll
       ├─ the writer's last batch once more ──> answered as what it is                     │
       └─ an older one, or another one of its number ──> refused: nobody has written it    │
    rolled forward ──> appended as done, the stages of no use <────────────────────────────┘
    read to its end, elected anew: whatever is not done is rolled forward again

The record of a decision is the commit: from then on the batch will be in its partitions, each record once, whichever
broker dies (`writers.producer_of` makes brokers know repetitions). A writer's batches are decided one after the other.
Nothing is told or rolled forward before all that was decided earlier is committed.

Owned by one partition's task. Bounds: writers, requests that wait, batches of one commit (`requests`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, assert_never

from headrace.core.coordinator import (
    Backlog,
    CoordinatorAnswer,
    CoordinatorState,
    Immediate,
    MachineEffect,
    Persist,
    Refuse,
)
from headrace.core.errors import (
    HeadraceError,
    InvalidRequestError,
    NotReadyError,
    StagesGoneError,
    StaleBatchError,
    ThrottledError,
)
from headrace.core.limits import WRITER_REQUESTS_MAX
from headrace.core.staging.decisions import Clean, Cleaning, Counts, Decision, Span, StagedBatch, WriterRecord, bytes_of
from headrace.core.staging.writers import WriterName
from headrace.core.types import PartitionId

WRITERS_PER_COORDINATOR_MAX = 10_000
WRITER_RETENTION_MS = 30 * 86_400_000
"""The time after which a query that commits nothing is forgotten: a batch that it repeats then is written again."""
WRITER_ONCE_RETENTION_MS = 86_400_000
"""The same time for a job that has one batch."""


_FORGET_INTERVAL_MS = 60_000


@dataclass(frozen=True, slots=True)
class CommitAsked:
    """A writer wants to commit a batch that it has staged."""

    request: int
    writer: WriterName
    decision: Decision
    wait_ms: int
    """The longest time that the answer may wait until everything is in its partition."""


@dataclass(frozen=True, slots=True)
class StateAsked:
    """A client wants to know how far a writer is."""

    request: int
    writer: WriterName


@dataclass(frozen=True, slots=True)
class SpansSeen:
    """The spans of the stages were seen: the answer to `Look`."""

    request: int
    spans: Mapping[PartitionId, Span] | HeadraceError


@dataclass(frozen=True, slots=True)
class StagingSeen:
    """The ends of the staging partitions were seen, as they are now and then, to clean them."""

    spans: Mapping[PartitionId, Span]


@dataclass(frozen=True, slots=True)
class RolledForward:
    """The shares of this batch are in their partitions, acknowledged by all that must have them."""

    writer: WriterName
    batch: int
    dropped: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Status:
    """The progress of a writer."""

    batch: int
    """The last batch that is committed; -1 where none is."""
    is_done: bool
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Look:
    """Look at what these partitions of the staging topic hold, and report it as `SpansSeen`."""

    request: int
    partitions: frozenset[PartitionId]
    decision: Decision


@dataclass(frozen=True, slots=True)
class Roll:
    """Carry what is committed into its partitions, and report it as `RolledForward`."""

    writer: WriterName
    decision: Decision
    reason: str


WriterEvent: TypeAlias = CommitAsked | StateAsked | SpansSeen | StagingSeen | RolledForward
WriterNotice: TypeAlias = Roll | Look | Clean
WriterEffect: TypeAlias = MachineEffect[WriterRecord, Status, WriterNotice]

_NOTHING = Status(-1, is_done=True)


class WriterMachine:
    def __init__(self) -> None:
        self.writers: dict[WriterName, Decision] = {}
        """The last decision of each writer; while the log is read, the last one that was read."""
        self._cleaning = Cleaning()
        self._looking: dict[int, CommitAsked] = {}
        """The commits whose stages are being looked at, by their requests."""
        self._waiting: dict[WriterName, list[tuple[int, int]]] = {}
        """The requests that wait until the writer's last batch is done, each with its time limit."""
        self._wall_ms = 0
        self._forget_ms = 0

    @property
    def count(self) -> int:
        return len(self.writers)

    def load(self, entries: Sequence[WriterRecord]) -> None:
        for entry in entries:
            self._apply(entry)

    def begin(self, wall_ms: int, now_ms: int) -> list[WriterEffect]:
        self._wall_ms, self._forget_ms = wall_ms, now_ms
        unfinished = [(writer, each) for writer, each in self.writers.items() if not each.is_done]
        return [Roll(writer, each, "a coordinator before this one has decided it") for writer, each in unfinished]

    def act(self, event: WriterEvent, now_ms: int, backlog: Backlog) -> list[WriterEffect]:
        match event:
            case CommitAsked(request, writer) | StateAsked(request, writer):
                problem = backlog.problem(f"writer {writer}") or self._too_many(backlog)
                if problem is not None:
                    return [Immediate(Refuse(request, problem, problem.code))]
                if isinstance(event, CommitAsked):
                    return self._commit(event, now_ms)
                return [CoordinatorAnswer(request, self._status(writer), "asked")]
            case SpansSeen(request, spans):
                return self._decide(request, spans, now_ms)
            case RolledForward(writer, batch, dropped):
                is_active = backlog.state is CoordinatorState.ACTIVE
                return self._finish(writer, batch, dropped) if is_active else []
            case StagingSeen(spans):
                return [*self._cleaning.look(spans, self._pinned(), now_ms)]
            case _:
                assert_never(event)

    def tick(self, wall_ms: int, now_ms: int) -> list[WriterEffect]:
        self._wall_ms = wall_ms
        effects: list[WriterEffect] = []
        for writer, waiting in [*self._waiting.items()]:
            self._waiting[writer] = [each for each in waiting if each[1] > now_ms]
            for request, until_ms in waiting:
                if until_ms <= now_ms:
                    effects.append(CoordinatorAnswer(request, self._status(writer), "decided, and still on its way"))
            if not self._waiting[writer]:
                del self._waiting[writer]
        if now_ms - self._forget_ms >= _FORGET_INTERVAL_MS:
            self._forget_ms = now_ms
            forgotten = (WriterRecord(writer, None) for writer in [*self._forgotten()])
            effects += (self._persist(record, "it has not committed for long") for record in forgotten)
        return effects

    def size_bytes(self, entries: Sequence[WriterRecord]) -> int:
        return sum(map(bytes_of, entries))

    def told(self, notice: WriterNotice) -> None:
        """Note nothing: only the shell acts on it."""

    def reset(self) -> list[int]:
        requests = [*self._looking, *(request for waiting in self._waiting.values() for request, _ in waiting)]
        self.writers, self._looking, self._waiting = {}, {}, {}
        self._cleaning = Cleaning()
        return requests

    def _apply(self, entry: WriterRecord) -> None:
        if entry.decision is None:
            self.writers.pop(entry.writer, None)
        else:
            self.writers[entry.writer] = entry.decision

    def _too_many(self, backlog: Backlog) -> HeadraceError | None:
        waiting = len(self._looking) + sum(map(len, self._waiting.values()))
        if waiting + backlog.untold >= WRITER_REQUESTS_MAX:
            return ThrottledError(f"the writer's coordinator has {WRITER_REQUESTS_MAX} requests to answer: try again")
        return None

    def _commit(self, event: CommitAsked, now_ms: int) -> list[WriterEffect]:
        known = self.writers.get(event.writer)
        if known is not None and event.decision.batch <= known.batch:
            return self._repeated(event, known, now_ms)
        problem = self._not_now(event, known)
        if problem is not None:
            return [Refuse(event.request, problem, "not now")]
        partitions = frozenset(batch.partition for batch in event.decision.staged())
        self._looking[event.request] = event
        if not partitions:
            return self._decide(event.request, {}, now_ms)
        return [Immediate(Look(event.request, partitions, event.decision))]

    def _repeated(self, event: CommitAsked, known: Decision, now_ms: int) -> list[WriterEffect]:
        """Answer a commit of the last batch, which is committed already: by this very request before, or by an earlier
        run, whose rows count then. A number alone does not show that it is this batch."""
        problem = _another_batch(event, known)
        if problem is None and not known.is_done:
            self._waiting.setdefault(event.writer, []).append((event.request, now_ms + event.wait_ms))
            return []
        if known.is_done:
            self._cleaning.of_no_use(event.decision.staged())
        if problem is not None:
            return [Refuse(event.request, problem, "it is not the batch that was committed")]
        return [CoordinatorAnswer(event.request, self._status(event.writer), "it is committed already")]

    def _not_now(self, event: CommitAsked, known: Decision | None) -> HeadraceError | None:
        writer = event.writer
        if known is not None and not known.is_done:
            return NotReadyError(
                f"batch {known.batch} of {writer} is still on its way into its partitions, and"
                f" {event.decision.batch} comes after it: try again"
            )
        if any(other.writer == writer for other in self._looking.values()):
            return NotReadyError(f"another commit of {writer} is about to be decided: try again")
        if known is None and len(self.writers) >= WRITERS_PER_COORDINATOR_MAX:
            return ThrottledError(
                f"{WRITERS_PER_COORDINATOR_MAX} writers have the coordinator that {writer} would have: each is"
                f" forgotten {WRITER_RETENTION_MS // 86_400_000} days after its last commit"
            )
        return None

    def _decide(
        self, request: int, spans: Mapping[PartitionId, Span] | HeadraceError, now_ms: int
    ) -> list[WriterEffect]:
        event = self._looking.pop(request, None)
        if event is None:
            return []  # of a term before this one
        problem = spans if isinstance(spans, HeadraceError) else _missing(event, spans)
        if problem is not None:
            return [Refuse(request, problem, "its stages are not there")]
        is_empty = not event.decision.shares
        known = self.writers.get(event.writer)
        since_ms = self._wall_ms if known is None else known.since_ms
        decision = replace(event.decision, decided_ms=self._wall_ms, since_ms=since_ms)
        decision = decision.done(()) if is_empty else decision
        persist = self._persist(WriterRecord(event.writer, decision), "decided")
        if is_empty:
            return [persist, CoordinatorAnswer(request, self._status(event.writer), "there is nothing to write")]
        self._waiting.setdefault(event.writer, []).append((request, now_ms + event.wait_ms))
        return [persist, Roll(event.writer, decision, "decided")]

    def _finish(self, writer: WriterName, batch: int, dropped: tuple[str, ...]) -> list[WriterEffect]:
        known = self.writers.get(writer)
        if known is None or known.batch != batch or known.is_done:
            return []
        self._cleaning.of_no_use(known.staged())
        persist = self._persist(WriterRecord(writer, known.done(dropped)), "everything is in its partition")
        answered = (request for request, _ in self._waiting.pop(writer, ()))
        return [persist, *(CoordinatorAnswer(request, self._status(writer), "done") for request in answered)]

    def _forgotten(self) -> Iterator[WriterName]:
        for writer, decision in self.writers.items():
            retention_ms = WRITER_ONCE_RETENTION_MS if decision.once else WRITER_RETENTION_MS
            if decision.is_done and self._wall_ms - decision.decided_ms >= retention_ms:
                yield writer

    def _status(self, writer: WriterName) -> Status:
        known = self.writers.get(writer)
        return _NOTHING if known is None else Status(known.batch, known.is_done, known.dropped)

    def _pinned(self) -> Iterator[StagedBatch]:
        for decision in self.writers.values():
            if not decision.is_done:
                yield from decision.staged()
        for event in self._looking.values():
            yield from event.decision.staged()

    def _persist(self, entry: WriterRecord, reason: str) -> Persist[WriterRecord]:
        self._apply(entry)
        return Persist((entry,), reason)


def _another_batch(event: CommitAsked, known: Decision) -> HeadraceError | None:
    """Return why this is not the batch that `known` has committed, whose number is not below its own; None where it
    is that batch."""
    batch = event.decision.batch
    if batch < known.batch:
        why = f"its last committed batch is {known.batch}"
    elif known.counts is not None and known.counts != event.decision.counts:
        why = f"it was committed with {_told_counts(known.counts)}, and now has {_told_counts(event.decision.counts)}"
    else:
        return None
    return StaleBatchError(
        f"batch {batch} of writer {event.writer} is refused, nothing of it is written: {why}. Its checkpoint is older"
        " than what was written (a backup that was put back, or a copy), two queries share it, or the query gives other"
        " rows when it is run again. Give it a checkpoint of its own that is new, and say where it begins",
        lastBatch=known.batch,
    )


def _told_counts(counts: Counts | None) -> str:
    return " and ".join(f"{count:,} records for {topic}" for topic, count in counts or ()) or "no records"


def _missing(event: CommitAsked, spans: Mapping[PartitionId, Span]) -> HeadraceError | None:
    """Return which stage is not there, not committed, or deleted; None where all are there."""
    for batch in event.decision.staged():
        span = spans[batch.partition]
        if batch.base_offset < span.start:
            return StagesGoneError(
                f"batch {event.decision.batch} of {event.writer}: offset {batch.base_offset} of staging partition"
                f" {batch.partition} is deleted, it begins at {span.start}: the stages are too old, write them again",
                logStartOffset=span.start,
            )
        if batch.last_offset >= span.end:
            return InvalidRequestError(
                f"batch {event.decision.batch} of {event.writer}: offset {batch.last_offset} of staging partition"
                f" {batch.partition} is not there, it ends at {span.end}: commit what was acknowledged, with acks=all",
                field="shares",
            )
    return None

"""The decisions of a coordinator of staged commits as records, and the stages that nobody needs after them. Pure.

One record for each writer, its last decision. A key is `["writer",1,namespace,name]`, a value an object with its own
`version`; a tombstone is null. A version that this Headrace does not know is refused: a broker that skipped it would
take a committed batch for a new one.

    stage: rolled forward, or of an attempt that was repeated in vain ──> of no use
           nobody has committed it for STAGE_EXPIRY_MS ──> expired: the attempt that wrote it is long dead
           committed, and still on its way ──> pinned, however old

A log is deleted from its start only, so a stage of no use goes as soon as nothing before it is needed. `Cleaning`
knows this coordinator's own term; a new coordinator waits for the expiry of what it does not know of. It goes by the
clock `now_ms` of this process: it deletes later than it might, never sooner.
"""

import json
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

from headrace.core.coordinator import UnreadableRecordError
from headrace.core.limits import STAGING_LOOK_INTERVAL_MS
from headrace.core.staging.writers import WriterName
from headrace.core.types import Offset, PartitionId, PartitionKey, TopicUid

STAGE_EXPIRY_MS = 12 * 3_600_000
"""The age at which a stage that nobody has committed belongs to an attempt that is dead."""


_VERSION = 1
_VERSION_OF_LIVES = 2
"""The version of a decision that is on its way as another producer than older brokers would make of it: they refuse it,
because they would write it a second time."""
_KIND = "writer"
_FEW_BYTES = 400
"""The bytes of a decision without shares, its key included, beside its texts."""
_SHARE_BYTES = 120
_BATCH_BYTES = 3 * 21 + 2
_COUNT_BYTES = 30
Counts: TypeAlias = tuple[tuple[str, int], ...]
"""The topics, in the order of their names, with the number of records that each of them gets."""


class StagedBatch(NamedTuple):
    """A record batch in the staging topic."""

    partition: PartitionId
    base_offset: Offset
    last_offset: Offset

    @property
    def record_count(self) -> int:
        return self.last_offset - self.base_offset + 1


@dataclass(frozen=True, slots=True)
class StagedShare:
    """The batches that one partition of a topic is to get, in this order."""

    topic: str
    key: PartitionKey
    batches: tuple[StagedBatch, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """This batch is committed; while it is not done, its shares are on their way into their partitions."""

    batch: int
    staging_uid: TopicUid
    """The uid of the topic that the stages are in."""
    shares: tuple[StagedShare, ...]
    """The shares of the batch; a decision that is done has none."""
    decided_ms: int
    """The wall time of the decision."""
    is_done: bool = False
    once: bool = False
    """The writer has no other batch: it is soon forgotten."""
    dropped: tuple[str, ...] = ()
    """The partitions that could not get their share, and why: their topics were made anew, or the stages are gone."""
    done_counts: Counts | None = None
    """The counts of a decision that is done; None where an older broker wrote it, which did not keep them."""
    since_ms: int = 0
    """The wall time when the writer committed its first batch; 0 where an older broker wrote it, which did not keep
    it. A writer that was forgotten and begins anew is another producer to brokers, which may still remember the
    first one."""

    @property
    def counts(self) -> Counts | None:
        """Return what the batch consists of. A repetition has the same, in any order and in any partitions."""
        if self.is_done:
            return self.done_counts
        counts: Counter[str] = Counter()
        for share in self.shares:
            counts[share.topic] += sum(batch.record_count for batch in share.batches)
        return tuple(sorted(counts.items()))

    def staged(self) -> Iterator[StagedBatch]:
        for share in self.shares:
            yield from share.batches

    def done(self, dropped: tuple[str, ...]) -> "Decision":
        return replace(self, shares=(), is_done=True, dropped=dropped, done_counts=self.counts)


class WriterRecord(NamedTuple):
    writer: WriterName
    decision: Decision | None
    """The decision; None where the writer is forgotten."""


def encode(entry: WriterRecord) -> tuple[bytes, bytes | None]:
    """Return key and value of the record."""
    return _json([_KIND, _VERSION, *entry.writer]), None if entry.decision is None else _json(_object(entry.decision))


def decode(key: bytes, value: bytes | None) -> WriterRecord:
    """Decode a record. Raises UnreadableRecordError."""
    try:
        kind, version, namespace, name = json.loads(key)
        body = None if value is None else json.loads(value)
        if (kind, version) != (_KIND, _VERSION) or (
            body is not None and body.pop("version") not in (_VERSION, _VERSION_OF_LIVES)
        ):
            raise UnreadableRecordError(
                f"the record {key[:200]!r} of the commits topic is of a kind or version that this broker does not know:"
                " it was written by a newer one; update this broker before it decides for writers"
            )
        return WriterRecord(WriterName(namespace, name), None if body is None else _decision(body))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UnreadableRecordError(f"the record {key[:200]!r} of the commits topic is damaged: {error!r}") from error


def bytes_of(entry: WriterRecord) -> int:
    """Return the most bytes that its record can take, without making it."""
    if entry.decision is None:
        return _FEW_BYTES
    shares, texts = entry.decision.shares, sum(4 * len(why) for why in entry.decision.dropped)
    texts += sum(4 * len(topic) + _COUNT_BYTES for topic, _ in entry.decision.done_counts or ())
    return _FEW_BYTES + texts + sum(_SHARE_BYTES + 4 * len(s.topic) + _BATCH_BYTES * len(s.batches) for s in shares)


def share_object(share: StagedShare) -> dict[str, Any]:
    return {
        "topic": share.topic,
        "topicUid": share.key.uid,
        "partition": share.key.partition,
        "batches": [list(batch) for batch in share.batches],
    }


def _object(decision: Decision) -> dict[str, Any]:
    counts = {} if decision.done_counts is None else {"counts": dict(decision.done_counts)}
    return {
        "version": _VERSION_OF_LIVES if decision.since_ms and not decision.is_done else _VERSION,
        "batch": decision.batch,
        "stagingUid": decision.staging_uid,
        "shares": [share_object(share) for share in decision.shares],
        "decidedMs": decision.decided_ms,
        "done": decision.is_done,
        "once": decision.once,
        "dropped": list(decision.dropped),
        "sinceMs": decision.since_ms,
        **counts,
    }


def _decision(raw: Mapping[str, Any]) -> Decision:
    return Decision(
        int(raw["batch"]),
        TopicUid(raw["stagingUid"]),
        tuple(map(_share, raw["shares"])),
        int(raw["decidedMs"]),
        bool(raw["done"]),
        bool(raw["once"]),
        tuple(map(str, raw["dropped"])),
        _counts(raw.get("counts")),
        int(raw.get("sinceMs", 0)),
    )


def _counts(raw: Mapping[str, Any] | None) -> Counts | None:
    return None if raw is None else tuple((str(topic), int(count)) for topic, count in raw.items())


def _share(raw: Mapping[str, Any]) -> StagedShare:
    batches = tuple(StagedBatch(PartitionId(p), Offset(base), Offset(last)) for p, base, last in raw["batches"])
    return StagedShare(
        str(raw["topic"]), PartitionKey(TopicUid(raw["topicUid"]), PartitionId(raw["partition"])), batches
    )


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


class Span(NamedTuple):
    """The committed part of a partition: from `start` to `end`, exclusive."""

    start: Offset
    end: Offset


@dataclass(frozen=True, slots=True)
class Clean:
    """Delete what lies below `before` in this partition of the staging topic."""

    partition: PartitionId
    before: Offset
    reason: str


@dataclass(slots=True)
class _Partition:
    seen: deque[tuple[int, Offset]] = field(default_factory=deque)
    """The ends of the partition, each with the time when it was seen, a look interval apart."""
    runs: list[tuple[Offset, Offset]] = field(default_factory=list)
    """The runs of no use, from first offsets to ends (exclusive), in order; no two of them touch."""

    def add(self, base: Offset, end: Offset) -> None:
        """Add a run that is of no use. It may be known already: commits are repeated."""
        first = bisect_left(self.runs, base, key=lambda run: run[1])
        after = bisect_right(self.runs, end, key=lambda run: run[0])
        if first < after:
            base, end = min(base, self.runs[first][0]), max(end, self.runs[after - 1][1])
        self.runs[first:after] = [(base, end)]

    def useless_to(self, start: Offset) -> Offset:
        """Return the end of the run that `start` lies in, and forget the runs before it."""
        self.runs = [run for run in self.runs if run[1] > start]
        return self.runs[0][1] if self.runs and self.runs[0][0] <= start else start

    def expired_to(self, end: Offset, now_ms: int) -> Offset:
        if not self.seen or now_ms - self.seen[-1][0] >= STAGING_LOOK_INTERVAL_MS:
            self.seen.append((now_ms, end))
        expired = Offset(0)
        while len(self.seen) > 1 and now_ms - self.seen[1][0] >= STAGE_EXPIRY_MS:
            self.seen.popleft()
        if now_ms - self.seen[0][0] >= STAGE_EXPIRY_MS:
            expired = self.seen[0][1]
        return expired


class Cleaning:
    def __init__(self) -> None:
        self._partitions: dict[PartitionId, _Partition] = {}

    def of_no_use(self, batches: Iterable[StagedBatch]) -> None:
        for batch in batches:
            known = self._partitions.setdefault(batch.partition, _Partition())
            known.add(batch.base_offset, Offset(batch.last_offset + 1))

    def look(self, spans: Mapping[PartitionId, Span], pinned: Iterable[StagedBatch], now_ms: int) -> list[Clean]:
        lowest: dict[PartitionId, Offset] = {}
        for batch in pinned:
            lowest[batch.partition] = min(batch.base_offset, lowest.get(batch.partition, batch.base_offset))
        orders: list[Clean] = []
        for partition, span in spans.items():
            known = self._partitions.setdefault(partition, _Partition())
            before = max(known.useless_to(span.start), known.expired_to(span.end, now_ms))
            before = min(before, lowest.get(partition, before), span.end)
            if before > span.start:
                orders.append(Clean(partition, before, "nobody can need it any more"))
        return orders

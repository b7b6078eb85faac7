"""What a coordinator of staged commits writes down, and the bytes of it: one record for each writer, its last decision.

A key is `["writer",1,namespace,name]`, a value an object with its own `version`; a tombstone is null. Whatever this
version of Headrace does not know is refused: a broker that skipped it would take a committed batch for a new one.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

from headrace.core.coordinating import UnreadableRecordError
from headrace.core.staging.identity import WriterName
from headrace.core.types import Offset, PartitionId, PartitionKey, TopicUid

_VERSION = 1
_VERSION_OF_LIVES = 2
"""Of a decision that is on its way as another producer than brokers of before would make of it: they refuse it, where
they would write it a second time."""
_KIND = "writer"
_FEW_BYTES = 400
"""Of a decision without shares, its key included, beside its texts."""
_SHARE_BYTES = 120
_BATCH_BYTES = 3 * 21 + 2
_COUNT_BYTES = 30


class StagedBatch(NamedTuple):
    """One record batch in the staging topic."""

    partition: PartitionId
    base_offset: Offset
    last_offset: Offset

    @property
    def record_count(self) -> int:
        return self.last_offset - self.base_offset + 1


@dataclass(frozen=True, slots=True)
class Share:
    """What one partition of a topic is to get, in this order."""

    topic: str
    key: PartitionKey
    batches: tuple[StagedBatch, ...]


Counts: TypeAlias = tuple[tuple[str, int], ...]
"""Topics, in the order of their names, and the records that each of them gets."""


@dataclass(frozen=True, slots=True)
class Decision:
    """This batch is committed; while it is not done, its shares are on their way into their partitions."""

    batch: int
    staging_uid: TopicUid
    """Of the topic that the stages are in."""
    shares: tuple[Share, ...]
    """None of one that is done."""
    decided_ms: int
    """Wall time."""
    is_done: bool = False
    once: bool = False
    """The writer has no other batch: it is soon forgotten."""
    dropped: tuple[str, ...] = ()
    """Partitions that could not be given their share, and why: their topics were made anew, or the stages are gone."""
    done_counts: Counts | None = None
    """The counts of one that is done; None where a broker has written it down that did not keep them yet."""
    since_ms: int = 0
    """When the writer committed its first batch, wall time: one that was forgotten and begins anew is another producer
    to brokers, which may still remember the first one. 0 where a broker wrote it down that did not keep it yet."""

    @property
    def counts(self) -> Counts | None:
        """What the batch consists of: a repetition has the same, in whichever order and partitions its records are."""
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
    """None: the writer is forgotten."""


def encode(entry: WriterRecord) -> tuple[bytes, bytes | None]:
    """Key and value of the record."""
    return _json([_KIND, _VERSION, *entry.writer]), None if entry.decision is None else _json(_object(entry.decision))


def decode(key: bytes, value: bytes | None) -> WriterRecord:
    """Raises UnreadableRecordError."""
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
    """Of its record, at most, without making it."""
    if entry.decision is None:
        return _FEW_BYTES
    shares, texts = entry.decision.shares, sum(4 * len(why) for why in entry.decision.dropped)
    texts += sum(4 * len(topic) + _COUNT_BYTES for topic, _ in entry.decision.done_counts or ())
    return _FEW_BYTES + texts + sum(_SHARE_BYTES + 4 * len(s.topic) + _BATCH_BYTES * len(s.batches) for s in shares)


def share_object(share: Share) -> dict[str, Any]:
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


def _share(raw: Mapping[str, Any]) -> Share:
    batches = tuple(StagedBatch(PartitionId(p), Offset(base), Offset(last)) for p, base, last in raw["batches"])
    return Share(str(raw["topic"]), PartitionKey(TopicUid(raw["topicUid"]), PartitionId(raw["partition"])), batches)


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()

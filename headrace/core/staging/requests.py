"""The requests of writers, and their answers, as JSON bodies over HTTP. `docs/protocol.md` shows them.

`writer_machine` says what they mean. A body that is wrong is an InvalidRequestError that names the field. Pure; called
by the broker's routes and by the SDK.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from headrace.core.errors import InvalidRequestError
from headrace.core.fields import BodyFields
from headrace.core.limits import COMMIT_WAIT_MS_MAX
from headrace.core.staging.decisions import Decision, StagedBatch, StagedShare, share_object
from headrace.core.staging.writer_machine import CommitAsked, Status
from headrace.core.staging.writers import WriterName, commits_partition, staging_partitions
from headrace.core.types import Offset, PartitionId, PartitionKey, TopicName, TopicUid

STAGED_BATCHES_MAX = 50_000
"""The record batches of one commit: a decision is one record, and their places stand in it."""


_BODY = "the body"
_ANSWER = "the answer about the writer"


@dataclass(frozen=True, slots=True)
class Staging:
    """The place where a writer's stages belong."""

    topic: TopicName
    uid: TopicUid
    partitions: tuple[PartitionId, ...]


def writer_path(writer: WriterName) -> str:
    return f"/v1/namespaces/{quote(writer.namespace, safe='')}/writers/{quote(writer.name, safe='')}"


def commit_body(batch: int, staging_uid: TopicUid, shares: Iterable[StagedShare], *, wait_ms: int, once: bool) -> bytes:
    body = {
        "batch": batch,
        "stagingUid": staging_uid,
        "shares": [share_object(share) for share in shares],
        "waitMs": wait_ms,
        "once": once,
    }
    return json.dumps(body, separators=(",", ":")).encode()


def parse_commit(body: object, request: int, writer: WriterName, staging_uid: TopicUid) -> CommitAsked:
    """Parse a commit; `staging_uid` is that of the staging topic now. Raises InvalidRequestError."""
    fields = BodyFields(body, _BODY)
    uid = TopicUid(fields.text("stagingUid"))
    shares = tuple(_share(each, writer) for each in fields.objects("shares"))
    _check_shares(shares)
    if uid != staging_uid and shares:
        raise InvalidRequestError(
            f"stagingUid of the body is {uid!r}, the staging topic's is {staging_uid!r}: it was made anew, and what was"
            " staged is gone with it; write the batch again",
            field="stagingUid",
        )
    decision = Decision(fields.whole("batch"), uid, shares, 0, once=fields.truth("once", default=False))
    return CommitAsked(request, writer, decision, min(fields.whole("waitMs", 0), COMMIT_WAIT_MS_MAX))


def status_object(status: Status) -> dict[str, Any]:
    batch = status.batch if status.batch >= 0 else None
    return {"batch": batch, "done": status.is_done, "dropped": list(status.dropped)}


def parse_status(body: object) -> Status:
    fields = BodyFields(body, _ANSWER)
    return Status(fields.whole("batch", -1), fields.truth("done"), tuple(fields.texts("dropped", [])))


def staging_object(staging: Staging) -> dict[str, Any]:
    return {
        "namespace": staging.topic.namespace,
        "topic": staging.topic.name,
        "topicUid": staging.uid,
        "partitions": list(staging.partitions),
    }


def parse_staging(body: object) -> Staging:
    fields = BodyFields(body, _ANSWER)
    topic = TopicName(fields.text("namespace"), fields.text("topic"))
    return Staging(topic, TopicUid(fields.text("topicUid")), tuple(map(PartitionId, fields.wholes("partitions"))))


def _share(fields: BodyFields, writer: WriterName) -> StagedShare:
    key = PartitionKey(TopicUid(fields.text("topicUid")), PartitionId(fields.whole("partition")))
    return StagedShare(fields.text("topic"), key, tuple(_batch(each, writer) for each in fields.lists("batches")))


def _batch(raw: Sequence[int], writer: WriterName) -> StagedBatch:
    """Parse `[partition, baseOffset, lastOffset]`."""
    mine = staging_partitions(commits_partition(writer))
    if len(raw) != 3 or raw[0] not in mine or raw[2] < raw[1]:
        raise InvalidRequestError(
            f"batches has {list(raw)}: send [partition, baseOffset, lastOffset] of what was staged, the partition from"
            f" {mine.start} to {mine.stop - 1}, which are those of {writer}",
            field="batches",
        )
    return StagedBatch(PartitionId(raw[0]), Offset(raw[1]), Offset(raw[2]))


def _check_shares(shares: Sequence[StagedShare]) -> None:
    count = sum(len(share.batches) for share in shares)
    if count > STAGED_BATCHES_MAX:
        raise InvalidRequestError(
            f"shares have {count} batches: stage larger ones, {STAGED_BATCHES_MAX} are the most that one commit takes",
            field="shares",
        )
    keys = [share.key for share in shares]
    if len(set(keys)) < len(keys) or not all(share.batches for share in shares):
        raise InvalidRequestError(
            "shares name a partition twice, or one without batches: send one share for each partition that gets any",
            field="shares",
        )

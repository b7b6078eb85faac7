"""A writer of batches that become visible by one decision, for many tasks that share one batch (Spark's tasks).

    each task:    Stager.stage(...) ... finish() ──> shares, to be told to the driver
    the driver:   Commits.commit(batch, shares of all tasks) ──> decided once, in all partitions soon after

Staged records that are never committed are never seen. A writer's last batch may be committed again, with other stages
of the same rows: it counts once, and the new stages are thrown away. `docs/protocol.md` has the requests.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from headrace.client.clock import epoch_ms, now_ms
from headrace.client.producer.deliveries import BatchesDelivery
from headrace.client.producer.in_flight import TimeWarnings
from headrace.client.producer.producer import Producer
from headrace.client.producer.writer import CompressionName
from headrace.client.record import TopicPartition
from headrace.client.transport.brokers import Brokers
from headrace.client.transport.calls import Call, as_namespace, parse_json
from headrace.client.transport.discovery import Servers
from headrace.core.errors import HeadraceError, InvalidRequestError, RemoteError
from headrace.core.limits import COMMIT_WAIT_MS_MAX, DELIVERY_TIMEOUT_MS_DEFAULT, PRODUCE_TIMEOUT_MS_DEFAULT
from headrace.core.records.arrays import long_numbers
from headrace.core.records.arrow_message import times_in
from headrace.core.staging.decisions import StagedBatch, StagedShare
from headrace.core.staging.requests import Staging, commit_body, parse_staging, parse_status, writer_path
from headrace.core.staging.writer_machine import Status
from headrace.core.staging.writers import WriterName
from headrace.core.types import Offset, PartitionId, PartitionKey, TopicUid

STAGE_BATCH_BYTES = 2 << 20
"""The size of a staged batch, where the topic takes as much: it is read again, and written a second time, as it is."""
STAGE_BUFFER_BYTES = 64 << 20
"""The bytes that one attempt gathers, for all partitions, before they are staged."""
COMMIT_TIMEOUT_MS = 300_000
"""The time that a writer waits for its commit: for the decision, and until everything is in its partition."""


_log = logging.getLogger(__name__)
_JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Staged:
    """The batches that one task has staged, in order. It is small: it goes from the task to the driver."""

    staging_uid: TopicUid
    shares: tuple[StagedShare, ...]

    @property
    def record_count(self) -> int:
        return sum(batch.record_count for share in self.shares for batch in share.batches)


class Commits:
    """The way to a writer's coordinator, for the life of one query or job. Making it connects to nobody yet."""

    def __init__(
        self,
        writer: str,
        server: str | Servers | None = None,
        namespace: str | None = None,
        *,
        ca_file: str | None = None,
    ) -> None:
        self.writer = WriterName(as_namespace(namespace), writer)
        self._brokers = Brokers(
            server,
            namespace,
            ca_file=ca_file,
            timeout_ms=DELIVERY_TIMEOUT_MS_DEFAULT,
            request_timeout_ms=PRODUCE_TIMEOUT_MS_DEFAULT,
        )

    def staging(self) -> Staging:
        """Return where stages are written. The first writer of a cluster waits until the topics for them are made."""
        try:
            return parse_staging(self._described().get("staging"))
        except InvalidRequestError as error:
            raise RemoteError(f"the answer about writer {self.writer}: {error.message}") from error

    def status(self) -> Status:
        """Return how far the writer is."""
        return parse_status(self._described())

    def commit(
        self, batch: int, staged: Iterable[Staged], *, once: bool = False, timeout_ms: int = COMMIT_TIMEOUT_MS
    ) -> Status:
        """Decide, and wait until everything is in its partition.

        When this returns the batch is committed, or was before; `is_done` is False where its last records are still on
        their way after `timeout_ms`, which nothing can stop any more. `once`: the writer has no other batch. Raises
        StagesGoneError where the stages are too old, StaleBatchError where the writer has committed a later batch, or
        this one with other topics or numbers of records, and the last error where the outcome stays unknown.
        """
        uid, shares = _merged(staged)
        until_ms = now_ms() + timeout_ms
        while True:
            wait_ms = max(0, min(COMMIT_WAIT_MS_MAX // 4, until_ms - now_ms()))
            body = commit_body(batch, uid, shares, wait_ms=wait_ms, once=once)
            call = Call(
                "POST",
                f"{writer_path(self.writer)}/commits",
                PRODUCE_TIMEOUT_MS_DEFAULT + wait_ms,
                None,
                (body,),
                _JSON,
            )
            left_ms = max(1, until_ms - now_ms())
            status = parse_status(self._ask(f"batch {batch} of writer {self.writer}", call, left_ms))
            if status.batch != batch:
                raise RemoteError(
                    f"batch {batch} of writer {self.writer}: its coordinator answers that batch {status.batch} is"
                    " committed: it is not known whether this one is; update the brokers"
                )
            if status.is_done or now_ms() >= until_ms:
                return status

    def close(self) -> None:
        self._brokers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _described(self) -> dict[str, Any]:
        call = Call("GET", writer_path(self.writer), PRODUCE_TIMEOUT_MS_DEFAULT)
        return self._ask(f"the coordinator of writer {self.writer}", call)

    def _ask(self, what: str, call: Call, timeout_ms: int | None = None) -> dict[str, Any]:
        once = partial(self._brokers.request_once, call)
        return parse_json(self._brokers.run(self._brokers.retrying(what, once, timeout_ms=timeout_ms)).body)


@dataclass(slots=True)
class _Gathered:
    """The rows of one partition that are not staged yet."""

    pieces: list[Any] = field(default_factory=list)
    size_bytes: int = 0


class Stager:
    """One task's part of a batch. It owns its connections until `close`, and belongs to one thread."""

    def __init__(
        self,
        writer: str,
        server: str | Servers | None = None,
        namespace: str | None = None,
        *,
        task: int = 0,
        batch_bytes: int = STAGE_BATCH_BYTES,
        compression: CompressionName = "none",
    ) -> None:
        """Connect to the brokers. `task` numbers the tasks that stage at the same time: they take turns with the
        staging topic's partitions.

        `batch_bytes` is counted before `compression`; batches are brought to their partitions as they are staged.
        """
        with Commits(writer, server, namespace) as commits:
            self._where = commits.staging()
        self._task = task
        self._batch_bytes = batch_bytes
        # `_topics` knows the topics and divides, `_staging` writes.
        self._topics = Producer(server, namespace, batch_bytes=batch_bytes)
        self._staging = Producer(server, self._where.topic.namespace, compression=compression)
        self._time_warnings = TimeWarnings()
        self._gathered: dict[TopicPartition, _Gathered] = {}
        self._gathered_bytes = 0
        self._sent: list[tuple[TopicPartition, BatchesDelivery]] = []
        """The staged batches in order, also within each partition."""

    def stage(self, topic: str, records: Any, partition: int | None = None) -> None:
        """Stage columns (RECORD_SCHEMA) for a topic: divided among its partitions as `Producer.send_batch` does.

        Raises UnknownTopicError, UnknownPartitionError, BatchTooLargeError.
        """
        for place, piece, size in self._topics.divided(topic, records, partition):
            times = times_in(long_numbers(piece.column(2)).data)
            self._time_warnings.look(self._topics.layout(topic), times, epoch_ms())
            gathered = self._gathered.setdefault(place, _Gathered())
            if gathered.pieces and gathered.size_bytes + size > self._limit(topic):
                self._send(place)
                gathered = self._gathered.setdefault(place, _Gathered())
            gathered.pieces.append(piece)
            gathered.size_bytes += size
            self._gathered_bytes += size
            if self._gathered_bytes > STAGE_BUFFER_BYTES:
                self._send(max(self._gathered, key=lambda each: self._gathered[each].size_bytes))

    def finish(self) -> Staged:
        """Wait until every stage is acknowledged. Raises the first failure: then this task has failed."""
        for place in [*self._gathered]:
            self._send(place)
        self._staging.flush()
        self._time_warnings.sum_up()
        batches: dict[TopicPartition, list[StagedBatch]] = {}
        for place, delivery in self._sent:
            for written in delivery.result():
                last = Offset(written.base_offset + written.record_count - 1)
                staged = StagedBatch(PartitionId(written.partition), Offset(written.base_offset), last)
                batches.setdefault(place, []).append(staged)
        shares = (StagedShare(place.topic, self._key(place), tuple(each)) for place, each in sorted(batches.items()))
        return Staged(self._where.uid, tuple(shares))

    def close(self) -> None:
        """End the connections. Stages that were not committed are thrown away in time."""
        for producer in (self._staging, self._topics):
            try:
                producer.close()
            except HeadraceError as error:
                _log.warning("staging for %s: %s", self._where.topic, error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _limit(self, topic: str) -> int:
        return min(self._batch_bytes, self._topics.layout(topic).max_message_bytes)

    def _send(self, place: TopicPartition) -> None:
        gathered = self._gathered.pop(place)
        self._gathered_bytes -= gathered.size_bytes
        records = gathered.pieces[0] if len(gathered.pieces) == 1 else pa.concat_batches(gathered.pieces)
        numbers = self._where.partitions
        number = numbers[(self._task + len(self._sent)) % len(numbers)]
        target = TopicPartition(self._where.topic.name, number)
        self._sent.append((place, self._staging.send_whole(target, records, gathered.size_bytes)))

    def _key(self, place: TopicPartition) -> PartitionKey:
        return PartitionKey(TopicUid(self._topics.layout(place.topic).uid), PartitionId(place.partition))


def _merged(staged: Iterable[Staged]) -> tuple[TopicUid, list[StagedShare]]:
    """Return one share for each partition: the first task's batches for it come first."""
    shares: dict[PartitionKey, StagedShare] = {}
    uid = TopicUid("")
    for each in staged:
        uid = each.staging_uid
        for share in each.shares:
            before = shares.get(share.key)
            batches = share.batches if before is None else (*before.batches, *share.batches)
            shares[share.key] = replace(share, batches=batches)
    return uid, [*shares.values()]

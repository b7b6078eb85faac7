"""The answers that a consumer has read ahead: decoded batches, each cut to what is wanted, then handed out. Pure.

`fetcher` and `async_fetcher` carry the fetches, report what came with `take`, and wait. All state belongs to the one
thread or task that uses the consumer. Partitions that a topic is given later are read from their beginning.
"""

import logging
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import assert_never

from headrace.client.clock import Watchdog
from headrace.client.consumed_records import between
from headrace.client.consumer.cursor import Ask, Cursor, FetchPlan, Handed
from headrace.client.consumer.options import EARLIEST, LATEST, RAISE
from headrace.client.record import TopicPartition
from headrace.client.transport.calls import Directory, Fetched
from headrace.client.transport.metadata import TopicLayout
from headrace.client.transport.retry import RetryPolicy, StopTrying, Trouble, TryAgain
from headrace.core.errors import (
    CorruptBatchError,
    HeadraceError,
    OffsetOutOfRangeError,
    StaleTopicError,
    StalledError,
    UnknownPartitionError,
    UnknownTopicError,
    UnreadableBatchError,
)
from headrace.core.limits import (
    CLIENT_STALL_CHECK_MS,
    CLIENT_STALL_SLACK_MS,
    CONSUMER_REQUESTS_MAX,
    FETCH_BYTES_DEFAULT,
    FETCH_BYTES_MIN,
    FETCH_LONG_POLL_MS,
    PRODUCE_TIMEOUT_MS_DEFAULT,
)
from headrace.core.records.columns import DecodedBatch, decode_batches

_TAKEN_AWAY = (UnknownTopicError, UnknownPartitionError, StaleTopicError)
"""The errors of a topic that was deleted, or created again: the group will take it away."""

_ASKED_MS_MAX = PRODUCE_TIMEOUT_MS_DEFAULT + CLIENT_STALL_SLACK_MS
"""Each request has an answer or an error by then: a fetch that waits for longer was lost on its way."""

_log = logging.getLogger("headrace.client")


@dataclass(frozen=True, slots=True)
class Added:
    """The first offset of a partition that is new, or the error of the look-up."""

    partition: TopicPartition
    offset: int | HeadraceError


@dataclass(frozen=True, slots=True)
class Answered:
    """The outcome of a fetch."""

    ask: Ask
    outcome: Fetched | HeadraceError


Arrival = Added | Answered


class ReadAhead:
    def __init__(
        self,
        directory: Directory,
        positions: Mapping[TopicPartition, int],
        trouble: Trouble,
        *,
        growing: Iterable[str] | None,
        timeout_ms: int,
        prefetch_bytes: int,
    ) -> None:
        """Read on from these positions. `growing`: topics whose new partitions are read too; None: a group says which
        partitions are read.
        """
        policy = RetryPolicy(timeout_ms, _TAKEN_AWAY if growing is None else (), trouble)
        self.plan = FetchPlan(policy, positions, is_shared=growing is None)
        self.handed = Handed()
        self.watchdog = Watchdog(timeout_ms + PRODUCE_TIMEOUT_MS_DEFAULT + CLIENT_STALL_SLACK_MS)
        self._directory, self._trouble = directory, trouble
        self._looked_ms = 0
        self._growing: dict[str, TopicLayout | None] = dict.fromkeys(growing or ())
        """The topics that may grow, with the metadata that was looked at last."""
        self._adding: set[TopicPartition] = set()
        self._prefetch_bytes = prefetch_bytes
        self.on_out_of_range = RAISE
        self.on_unreadable = RAISE
        self.jumps = 0
        """The number of times that reading went on elsewhere, because the records that were next are gone."""
        self.skips = 0
        """The number of batches that were left out, because nobody can decode them."""
        self._random = Random()
        self._unread: deque[tuple[Ask, Fetched]] = deque()
        self._open: tuple[Ask, Fetched] | None = None
        """The answer whose batches are being handed out."""
        self._is_in_order = True
        """Whether no reading is under way, and the last one was not broken off in the middle of a step."""

    @property
    def fetch_bytes(self) -> int:
        """The bytes of one fetch: half of the memory is for the answers that wait, half for those on their way."""
        share = self._prefetch_bytes // (2 * max(1, len(self.plan.cursors)))
        return max(FETCH_BYTES_MIN, min(FETCH_BYTES_DEFAULT, share))

    @property
    def wait_ms(self) -> int:
        """The time that a fetch may wait: polls take turns where there are more partitions than requests."""
        return min(FETCH_LONG_POLL_MS, FETCH_LONG_POLL_MS * CONSUMER_REQUESTS_MAX // max(1, len(self.plan.cursors)))

    # -- what arrives ------------------------------------------------------------------------------------------------

    def take(self, arrival: Arrival, now_ms: int) -> None:
        """Keep an arrival. Raises the error of a partition that cannot be read; its next fetch goes on from there."""
        self.watchdog.moved()
        if isinstance(arrival, Added):
            self._add(arrival.partition, arrival.offset)
        elif isinstance(arrival.outcome, HeadraceError):
            self._failed(arrival.ask, arrival.outcome, now_ms)
        elif self.plan.answered(arrival.ask, arrival.outcome.next_offset):
            self._unread.append((arrival.ask, arrival.outcome))

    def _add(self, partition: TopicPartition, offset: int | HeadraceError) -> None:
        self._adding.discard(partition)
        if isinstance(offset, HeadraceError):
            self._growing[partition.topic] = None  # Look again.
            raise offset
        self.plan.add(partition, offset)

    def _failed(self, ask: Ask, error: HeadraceError, now_ms: int) -> None:
        if isinstance(error, OffsetOutOfRangeError) and ask.is_current() and self._jump(ask.cursor, error):
            return
        decision = self.plan.failed(ask, error, now_ms, self._random)
        match decision:
            case StopTrying(last):
                raise last
            case TryAgain(_, refresh):
                if refresh:
                    self._directory.forget(ask.cursor.partition.topic)
            case None:
                pass
            case _:
                assert_never(decision)

    def _jump(self, cursor: Cursor, error: OffsetOutOfRangeError) -> bool:
        """Go on where the user wants. False: the user wants the error, or no broker says where to go on."""
        to = {EARLIEST: "logStartOffset", LATEST: "highWatermark"}.get(self.on_out_of_range)
        offset = error.details.get(to) if to is not None else None
        if not isinstance(offset, int):
            return False
        self.jumps += 1
        _log.warning(
            "%s goes on at %d, as on_out_of_range=%r says: %s",
            cursor.what,
            offset,
            self.on_out_of_range,
            error.message,
        )
        cursor.move(offset)
        return True

    def drop(self, partition: TopicPartition) -> None:
        """Stop reading the partition; its records that were read ahead are forgotten."""
        cursor = self.plan.cursors.get(partition)
        if cursor is None:
            return
        self.handed.stay(cursor)
        self.plan.remove(partition)
        self._unread = deque((ask, fetched) for ask, fetched in self._unread if ask.is_current())

    def added(self) -> list[TopicPartition]:
        """Return the partitions that are new: look up their beginnings, and `take` them as Added. Each comes once."""
        new: list[TopicPartition] = []
        for topic, seen in self._growing.items():
            newest = self._directory.newest(topic)
            if newest is None or newest is seen:
                continue
            self._growing[topic] = newest
            places = (TopicPartition(topic, number) for number in range(len(newest.partitions)))
            new += (place for place in places if place not in self.plan.cursors and place not in self._adding)
        self._adding.update(new)
        return new

    @contextmanager
    def adding(self) -> Iterator[list[TopicPartition]]:
        """Give what `added` returns, for a caller that takes it at once: partitions not taken by the end come again."""
        new = self.added()
        try:
            yield new
        finally:
            for partition in self._adding.intersection(new):
                self._adding.discard(partition)
                self._growing[partition.topic] = None

    # -- what is handed out ------------------------------------------------------------------------------------------

    def open(self) -> bool:
        """Begin with the next answer that is still wanted. False: there is none."""
        while self._unread:
            ask, fetched = self._unread.popleft()
            if ask.is_current():
                ask.cursor.unread = False
                self._open = (ask, fetched)
                return True
        return False

    def read(self) -> Generator[tuple[Cursor, DecodedBatch]]:
        """Yield the batches of the answer that was opened, each as `handed.hand_out` has it.

        There are none where the partition was dropped, or moved elsewhere, after `open`: an asyncio consumer waits
        between the two.
        """
        assert self._open is not None, "only what was opened is read"
        ask, fetched = self._open
        cursor = ask.cursor
        if not ask.is_current():
            return
        try:
            for batch in decode_batches(fetched.batches, partial(self._unreadable, cursor)):
                wanted = between(batch, cursor.position, cursor.end)
                if len(wanted.offsets):
                    self.handed.hand_out(cursor, int(wanted.offsets[-1]) + 1)
                    yield cursor, wanted
                    if not ask.is_current():
                        return
                if cursor.done:
                    break
        except BaseException as error:  # The reader left, or a batch is damaged: the rest must be fetched again.
            if ask.is_current():
                self.handed.stay(cursor)
            if isinstance(error, CorruptBatchError) and not isinstance(error, UnreadableBatchError):
                raise _placed(error, cursor) from error
            raise
        self._open = None
        cursor.read_to(fetched.next_offset)
        cursor.passed = cursor.position

    def _unreadable(self, cursor: Cursor, error: UnreadableBatchError) -> None:
        """Skip a batch of an answer if the user wants that. Else raises the error with its place and the remedy."""
        next_offset = int(str(error.details["nextOffset"]))
        if next_offset <= cursor.position:
            return  # No record of the batch is wanted.
        if self.on_unreadable == RAISE:
            raise UnreadableBatchError(
                f"{cursor.partition}: {error.message}; go on with seek({cursor.partition!r}, {next_offset}), or leave"
                " such records out with on_unreadable='skip'",
                topic=cursor.partition.topic,
                partition=cursor.partition.partition,
                **error.details,
            ) from error
        self.skips += 1
        _log.warning("%s: %s; left out, as on_unreadable='skip' says", cursor.partition, error.message)
        cursor.position = next_offset

    def settle(self) -> None:
        """End a reading in order: an answer that is left half-read must be fetched again."""
        opened = self._open
        if opened is not None and opened[0].is_current():
            self.handed.stay(opened[0].cursor)
        self._open, self._is_in_order = None, True

    def begin(self) -> None:
        """Begin a reading, which may be broken off at any point: `settle` says that it was not.

        After a reading that was broken off, only the records that were handed out are sure: all else is fetched again.
        """
        if not self._is_in_order:
            for cursor in self.plan.cursors.values():
                self.handed.stay(cursor)
            self._unread.clear()
            self._adding.clear()
            self._growing.update(dict.fromkeys(self._growing))
            self._open = None
        self._is_in_order = False

    # -- waiting -----------------------------------------------------------------------------------------------------

    def patience_s(self, now_ms: int) -> float:
        """Return how long to wait for an arrival before the next look at the plan, and `check`."""
        next_due_ms = self.plan.next_due_ms()
        wait_ms = CLIENT_STALL_CHECK_MS if next_due_ms is None else next_due_ms - now_ms
        return min(CLIENT_STALL_CHECK_MS, max(0, wait_ms)) / 1000

    def check(self, now_ms: int) -> None:
        """Raise StalledError where fetches are on their way and nothing has come for longer than time limits allow.

        It logs fetches without an answer, and lets those that can have none any more be asked again. It may be called
        at any time, and looks once a second.
        """
        if now_ms - self._looked_ms < CLIENT_STALL_CHECK_MS:
            return
        self._looked_ms = now_ms
        asking = self.plan.asking()
        for cursor in () if self.watchdog.was_away(now_ms) else asking:
            self._trouble.tell_unanswered(cursor.what, cursor.attempt_ms, now_ms)
            if now_ms - cursor.attempt_ms > _ASKED_MS_MAX:
                self.handed.stay(cursor)
        if self.watchdog.is_stalled(now_ms, should_move=bool(asking)):
            raise StalledError(
                f"this consumer has stalled: for {self.watchdog.still_s} none of its requests has ended; make a new"
                " consumer"
            )


def _placed(error: CorruptBatchError, cursor: Cursor) -> CorruptBatchError:
    """Return the error of damaged bytes with the place that they were read from, and the remedy."""
    return CorruptBatchError(
        f"{cursor.partition}, read from offset {cursor.position}: {error.message}; read on to try again: the broker"
        " mends its log where another one has the records",
        topic=cursor.partition.topic,
        partition=cursor.partition.partition,
        offset=cursor.position,
    )

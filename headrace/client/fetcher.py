"""Reads ahead for a consumer: one fetch per partition on its way, one answer per partition waiting to be read.

The consumer's thread decides (with `FetchPlan`) and takes answers from a queue; workers only carry fetches to brokers.
So all state belongs to the one thread that uses the consumer. Owned by one `Consumer`, for its lifetime.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from random import Random
from typing import assert_never

from headrace.client.brokers import Brokers, Fetched, now_ms
from headrace.client.cursor import Ask, Cursor, FetchPlan
from headrace.client.frames import between
from headrace.client.record import TopicPartition
from headrace.client.retry import GiveUp, RetryPolicy, TryAgain
from headrace.client.workers import Workers
from headrace.core.errors import HeadraceError
from headrace.core.limits import CONSUMER_REQUESTS_MAX, FETCH_BYTES_DEFAULT, FETCH_BYTES_MIN, FETCH_LONG_POLL_MS
from headrace.core.records.columns import DecodedBatch, decode_batches


@dataclass(frozen=True, slots=True)
class _Answer:
    ask: Ask
    fetched: Fetched


class Fetcher:
    def __init__(
        self, brokers: Brokers, positions: Mapping[TopicPartition, int], *, timeout_ms: int, prefetch_bytes: int
    ) -> None:
        self.plan = FetchPlan(RetryPolicy(timeout_ms), positions)
        self._brokers = brokers
        self._random = Random()
        partitions = len(positions)
        # Half for the answers that wait, half for those on their way.
        share = prefetch_bytes // (2 * partitions)
        self._fetch_bytes = max(FETCH_BYTES_MIN, min(FETCH_BYTES_DEFAULT, share))
        # With more partitions than workers the polls take turns, so none may hold its worker for long.
        self._wait_ms = min(FETCH_LONG_POLL_MS, FETCH_LONG_POLL_MS * CONSUMER_REQUESTS_MAX // partitions)
        self._workers = Workers("headrace-fetch", CONSUMER_REQUESTS_MAX)
        self._arrived: SimpleQueue[tuple[Ask, Fetched | HeadraceError]] = SimpleQueue()
        self._unread: deque[_Answer] = deque()
        self._reading: Ask | None = None
        """Whose answer is being handed out."""

    def close(self) -> None:
        self._workers.stop()
        self._brokers.close()

    def batches(self) -> Iterator[tuple[Cursor, DecodedBatch]]:
        """Batches of all partitions as they come, each cut to what is wanted, until the plan is done.

        `position` has passed a batch when it is given out. Raises the error of a partition that cannot be read; the
        next call goes on where this one stopped.
        """
        while True:
            self._start_due()
            self._take_arrived(wait=False)
            if self._unread:
                yield from self._read(self._unread.popleft())
            elif self.plan.done:
                return
            else:
                self._take_arrived(wait=True)

    def settle(self) -> None:
        """What somebody has left half-read must be fetched again, even where he still holds his iterator."""
        ask, self._reading = self._reading, None
        if ask is not None and ask.is_current():
            ask.cursor.move(ask.cursor.position)

    def _read(self, answer: _Answer) -> Iterator[tuple[Cursor, DecodedBatch]]:
        ask, cursor = answer.ask, answer.ask.cursor
        if not ask.is_current():
            return
        cursor.unread = False
        self._reading = ask
        self._start_due()
        try:
            for batch in decode_batches(answer.fetched.body):
                wanted = between(batch, cursor.position, cursor.end)
                if len(wanted.offsets):
                    cursor.position = int(wanted.offsets[-1]) + 1
                    yield cursor, wanted
                    if not ask.is_current():
                        return
                if cursor.done:
                    break
        except BaseException:  # The reader went away, or a batch is damaged: the rest must be fetched again.
            if ask.is_current():
                cursor.move(cursor.position)
            raise
        self._reading = None
        cursor.read_to(answer.fetched.next_offset)

    def _start_due(self) -> None:
        for ask in self.plan.due(now_ms()):
            self._workers.submit(partial(self._fetch, ask))

    def _fetch(self, ask: Ask) -> None:
        """On a worker's thread."""
        try:
            fetched = self._brokers.fetch_once(
                ask.cursor.partition, ask.offset, max_bytes=self._fetch_bytes, wait_ms=self._wait_ms
            )
            self._arrived.put((ask, fetched))
        except HeadraceError as error:
            self._arrived.put((ask, error))
        except Exception as error:
            self._arrived.put((ask, HeadraceError(f"reading {ask.cursor.partition} failed: {error!r}")))

    def _take_arrived(self, *, wait: bool) -> None:
        """Everything that has arrived; with `wait`, at least one answer or the time of the next retry."""
        while True:
            try:
                ask, outcome = self._arrived.get(timeout=self._patience_s()) if wait else self._arrived.get_nowait()
            except Empty:
                return
            wait = False
            self._take(ask, outcome)

    def _patience_s(self) -> float | None:
        next_due_ms = self.plan.next_due_ms()
        return None if next_due_ms is None else max(0, next_due_ms - now_ms()) / 1000

    def _take(self, ask: Ask, outcome: Fetched | HeadraceError) -> None:
        if isinstance(outcome, Fetched):
            if self.plan.answered(ask, outcome.next_offset):
                self._unread.append(_Answer(ask, outcome))
            return
        decision = self.plan.failed(ask, outcome, now_ms(), self._random)
        match decision:
            case GiveUp(error):
                raise error
            case TryAgain(_, refresh):
                if refresh:
                    self._brokers.forget(ask.cursor.partition.topic)
            case None:
                pass
            case _:
                assert_never(decision)

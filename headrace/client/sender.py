"""The producer's thread: takes what is due from the accumulator, and has workers carry each batch to its leader.

One `Sender` per `Producer`, for its lifetime. All of the accumulator is touched under `lock`; futures are resolved
outside of it, before their batch leaves the accumulator, so that `flush` returns only after every future is done.
A producer that is forgotten, or still open when the interpreter ends, is flushed and closed by its finalizer. The child
of a fork has no such threads: there every producer of the parent is closed, and what it holds is the parent's to send.
"""

import logging
import os
import threading
from collections import deque
from functools import partial
from random import Random
from weakref import WeakSet

from headrace.client.accumulator import Accumulator
from headrace.client.batches import Batch
from headrace.client.brokers import Brokers, now_ms
from headrace.client.retry import Failure, GiveUp, RetryPolicy, TryAgain
from headrace.client.workers import Workers
from headrace.core.errors import HeadraceError, StaleTopicError
from headrace.core.limits import FAILED_BATCHES_KEPT_MAX, PRODUCER_REQUESTS_MAX
from headrace.core.records.columns import encode_batch, record_columns
from headrace.core.records.header import Compression

_log = logging.getLogger(__name__)


class Sender:
    def __init__(
        self, brokers: Brokers, accumulator: Accumulator, *, acks: str, compression: Compression, timeout_ms: int
    ) -> None:
        self._make_lock()
        self.closed = False
        """Nothing more is taken."""
        self.failed: deque[tuple[Batch, HeadraceError]] = deque(maxlen=FAILED_BATCHES_KEPT_MAX)
        """For `flush`, which raises what nobody else has looked at."""
        self._brokers, self._accumulator = brokers, accumulator
        self._acks, self._compression = acks, compression
        # A topic that was created again is another place for the same records: producers go on.
        self._policy = RetryPolicy(timeout_ms, also_retriable=(StaleTopicError,))
        self._random = Random()
        self._workers = Workers("headrace-produce", PRODUCER_REQUESTS_MAX)
        # Loads what pyarrow leaves for later (pandas, where it is installed): an interpreter that ends cannot any more.
        record_columns([b""], timestamps_ms=0)
        _senders.add(self)
        self._thread = threading.Thread(target=self._run, name="headrace-sender", daemon=True)
        self._thread.start()

    def _make_lock(self) -> None:
        self.lock = threading.Lock()
        self.work = threading.Condition(self.lock)
        """Something new to plan: the thread waits here."""
        self.progress = threading.Condition(self.lock)
        """A batch arrived or was given up: `send` waits here for room, and `flush` for the end."""

    def flush(self) -> None:
        """Wait until everything that is queued now has arrived or failed."""
        with self.lock:
            waiting = set(map(id, self._accumulator.waiting_batches()))
            self._accumulator.close_batches()
            self.work.notify()
            self.progress.wait_for(lambda: waiting.isdisjoint(map(id, self._accumulator.waiting_batches())))

    def close(self) -> None:
        """Take nothing more, flush and end. Safe to call again."""
        with self.lock:
            self.closed = True
        self.flush()
        with self.lock:
            self.work.notify()
        self._workers.stop()
        self._brokers.close()

    def leave_to_parent(self) -> None:
        """In the child of a fork: closed, with nothing to send. The old lock may be held by a thread that is gone."""
        self._make_lock()
        self.closed = True
        self._accumulator = Accumulator(linger_ms=0, timeout_ms=0)

    def _run(self) -> None:
        while True:
            with self.lock:
                due = self._accumulator.due(now_ms())
                if not due.send and not due.expired:
                    if self.closed and not self._accumulator.buffered_bytes:
                        return
                    next_due_ms = self._accumulator.next_due_ms()
                    self.work.wait(None if next_due_ms is None else max(0, next_due_ms - now_ms()) / 1000)
            for batch in due.send:
                self._workers.submit(partial(self._attempt, batch))
            for batch, error in due.expired:
                self._give_up(batch, error)

    def _attempt(self, batch: Batch) -> None:
        try:
            encoded = encode_batch(batch.records(), compression=self._compression)
            base_offset = self._brokers.produce_once(batch.partition, encoded, self._acks)
        except HeadraceError as error:
            self._retry_or_give_up(batch, error)
        except Exception as error:
            _log.exception("a batch for %s could not be sent", batch.partition)
            self._give_up(batch, HeadraceError(f"a batch for {batch.partition} could not be sent: {error!r}"))
        else:
            batch.delivered(base_offset)
            with self.lock:
                self._accumulator.arrived(batch)
                self.progress.notify_all()
                self.work.notify()

    def _retry_or_give_up(self, batch: Batch, error: HeadraceError) -> None:
        batch.attempts += 1
        failure = Failure(f"records for {batch.partition}", error, batch.attempts, batch.opened_ms)
        match self._policy.decide(failure, now_ms(), self._random):
            case TryAgain(at_ms, refresh):
                if refresh:
                    self._brokers.forget(batch.partition.topic)
                with self.lock:
                    self._accumulator.put_back(batch, error, at_ms)
                    self.work.notify()
            case GiveUp(last):
                self._give_up(batch, last)

    def _give_up(self, batch: Batch, error: HeadraceError) -> None:
        batch.failed(error)
        with self.lock:
            self._accumulator.given_up(batch, error)
            self.failed.append((batch, error))
            self.progress.notify_all()
            self.work.notify()


_senders: WeakSet[Sender] = WeakSet()


def _leave_to_parent() -> None:
    for sender in list(_senders):
        sender.leave_to_parent()


os.register_at_fork(after_in_child=_leave_to_parent)

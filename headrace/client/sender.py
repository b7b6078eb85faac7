"""The producer's thread: takes what is due from the accumulator, and has workers carry each batch to its leader.

One `Sender` per `Producer`, for its lifetime. All of `in_flight` is touched under `lock`; futures are resolved outside
of it, before their batch leaves the accumulator, so that `flush` returns only after every future is done. Whoever waits
looks now and then whether anything still moves, and raises `StalledError` where nothing does; so does every future when
the thread dies. A producer that is forgotten, or still open when the interpreter ends, is flushed and closed by its
finalizer. The child of a fork has no such threads: there every producer of the parent is closed, and what it holds is
the parent's to send.
"""

import logging
import os
import threading
from functools import partial
from weakref import WeakSet

from headrace.client.batches import Batch
from headrace.client.brokers import Brokers
from headrace.client.clock import now_ms
from headrace.client.deliveries import ThreadRows
from headrace.client.in_flight import InFlight
from headrace.client.retry import GiveUp, TryAgain
from headrace.client.workers import Workers
from headrace.client.write_options import WriteOptions
from headrace.client.writer import as_raised
from headrace.core.errors import HeadraceError, StalledError
from headrace.core.limits import CLIENT_STALL_CHECK_MS, PRODUCER_REQUESTS_MAX
from headrace.core.records.columns import encode_batch, record_columns

_log = logging.getLogger(__name__)


class Sender:
    def __init__(self, brokers: Brokers, options: WriteOptions) -> None:
        self._make_lock()
        self.closed = False
        """Nothing more is taken."""
        self.broken: StalledError | None = None
        """Nothing moves any more."""
        self.in_flight: InFlight[ThreadRows] = InFlight(options, ThreadRows, brokers.trouble)
        self._answered: set[Batch] = set()
        """Batches whose deliveries are being told, by the worker that has their answer."""
        self._brokers, self._options = brokers, options
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

    def wait_for_progress(self) -> None:
        """Under the lock: until there may be some. Raises StalledError where there will be none."""
        self._check()
        self.progress.wait(CLIENT_STALL_CHECK_MS / 1000)

    def flush(self) -> None:
        """Wait until everything that is queued now has arrived or failed. Raises StalledError."""
        with self.lock:
            waiting = set(map(id, self.in_flight.accumulator.waiting_batches()))
            self.in_flight.accumulator.close_batches()
            self.work.notify()
            while not waiting.isdisjoint(map(id, self.in_flight.accumulator.waiting_batches())):
                self.wait_for_progress()

    def close(self) -> None:
        """Take nothing more, flush and end. Safe to call again."""
        with self.lock:
            self.closed = True
        try:
            if self.broken is None:
                self.flush()
        finally:
            with self.lock:
                self.work.notify()
            self._workers.stop()
            self._brokers.close()

    def leave_to_parent(self) -> None:
        """In the child of a fork: closed, with nothing to send. The old lock may be held by a thread that is gone."""
        self._make_lock()
        self.closed = True
        self.in_flight = InFlight(self._options, ThreadRows, self._brokers.trouble)

    # -- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._step():
                pass
        except BaseException as error:
            _log.exception("the sending thread ended")
            self._break(StalledError(f"the sending thread of this producer ended by {error!r}; make a new Producer"))

    def _step(self) -> bool:
        """Start what is due, or wait for more. False: that was all."""
        with self.lock:
            if self.broken is not None:
                return False
            due = self.in_flight.due(now_ms())
            if not due.send and not due.expired:
                if self.closed and not self.in_flight.accumulator.buffered_bytes:
                    return False
                self.work.wait(self._patience_s())
        for batch in due.send:
            self._workers.submit(partial(self._attempt, batch))
        for batch, error in due.expired:
            self._give_up(batch, error)
        self._watch()
        return True

    def _patience_s(self) -> float | None:
        """Until something is due or the watchdog looks; None while there is nothing at all."""
        accumulator = self.in_flight.accumulator
        if not accumulator.buffered_bytes:
            return None
        next_due_ms = accumulator.next_due_ms()
        wait_ms = CLIENT_STALL_CHECK_MS if next_due_ms is None else max(0, next_due_ms - now_ms())
        return min(wait_ms, CLIENT_STALL_CHECK_MS) / 1000

    def _watch(self) -> None:
        with self.lock:
            stalled = self.in_flight.stalled(now_ms())
        if stalled is not None:
            self._break(stalled)

    def _check(self) -> None:
        """Under the lock, by those who wait. Raises StalledError."""
        if self.broken is None and not self._thread.is_alive() and not self.closed:
            self.broken = StalledError("the sending thread of this producer is gone; make a new Producer")
        stalled = self.broken or self.in_flight.stalled(now_ms())
        if stalled is not None:
            raise as_raised(stalled)

    def _break(self, error: StalledError) -> None:
        """Tell everybody that nothing moves any more, once."""
        with self.lock:
            if self.broken is not None:
                return
            self.broken, self.closed = error, True
            lost = [batch for batch in self.in_flight.accumulator.waiting_batches() if batch not in self._answered]
            self.progress.notify_all()
        for batch in lost:
            batch.failed(error)

    # -- the workers -------------------------------------------------------------------------------------------------

    def _attempt(self, batch: Batch) -> None:
        try:
            encoded = encode_batch(batch.records(), compression=self._options.compression)
            base_offset = self._brokers.produce_once(batch.partition, encoded, self._options.acks)
        except HeadraceError as error:
            self._retry_or_give_up(batch, error)
        except Exception as error:
            _log.exception("a batch for %s could not be sent", batch.partition)
            self._give_up(batch, HeadraceError(f"a batch for {batch.partition} could not be sent: {error!r}"))
        else:
            if not self._is_ours(batch):
                return
            batch.delivered(base_offset)
            with self.lock:
                self._answered.discard(batch)
                self.in_flight.arrived(batch)
                self._moved()

    def _retry_or_give_up(self, batch: Batch, error: HeadraceError) -> None:
        match self.in_flight.decide(batch, error, now_ms()):
            case TryAgain(at_ms, refresh):
                if refresh:
                    self._brokers.directory.forget(batch.partition.topic)
                with self.lock:
                    self.in_flight.put_back(batch, error, at_ms)
                    self.work.notify()
            case GiveUp(last):
                self._give_up(batch, last)

    def _give_up(self, batch: Batch, error: HeadraceError) -> None:
        if not self._is_ours(batch):
            return
        batch.failed(error)
        with self.lock:
            self._answered.discard(batch)
            self.in_flight.given_up(batch, error)
            self._moved()

    def _is_ours(self, batch: Batch) -> bool:
        """Whether its deliveries are still to be told: each is told once."""
        with self.lock:
            if self.broken is None:
                self._answered.add(batch)
            return self.broken is None

    def _moved(self) -> None:
        self.progress.notify_all()
        self.work.notify()


_senders: WeakSet[Sender] = WeakSet()


def _leave_to_parent() -> None:
    for sender in list(_senders):
        sender.leave_to_parent()


os.register_at_fork(after_in_child=_leave_to_parent)

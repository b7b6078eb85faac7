"""The producer's sending thread: it takes due batches from the accumulator and sends each on its leader's session.

A producer owns one `Sender` for its lifetime. A batch whose partition has no channel yet goes to a worker, which finds
the leader and opens one; where only other brokers lead to the leader, the worker carries the batch as a request. Each
outcome is told once, by the thread that reads the connection, or by a worker where callbacks run. Taking a batch and
sending it on a channel is one step, under `_carrying`, so that no batch overtakes another; with `linger_ms=0` the
thread that calls `send` takes the batch itself.

`lock` guards `in_flight`; futures are resolved outside of it, before their batch leaves the accumulator, so that
`flush` returns only after every future is done. Waiters raise `StalledError` where nothing moves any more; so does
every future when the thread dies. A finalizer flushes and closes a producer that is forgotten, or still open when the
interpreter ends. In the child of a fork every producer of the parent is closed; its records are the parent's to send.
"""

import logging
import os
import threading
from collections.abc import Callable
from functools import partial
from weakref import WeakSet

from headrace.client.clock import now_ms
from headrace.client.producer.accumulator import Due
from headrace.client.producer.deliveries import ThreadRows
from headrace.client.producer.in_flight import Arrived, InFlight, Outcome
from headrace.client.producer.send_errands import SendErrands
from headrace.client.producer.writer import ProducerOptions, as_raised, closed_error
from headrace.client.transport.brokers import Brokers, Workers
from headrace.client.transport.errands import Errand
from headrace.core.errors import StalledError
from headrace.core.limits import CLIENT_STALL_CHECK_MS, LEADER_SEARCH_MS, PRODUCER_REQUESTS_MAX
from headrace.http2.interrupts import HeldInterrupts

_log = logging.getLogger(__name__)


class Sender(SendErrands[Brokers, ThreadRows]):
    def __init__(self, brokers: Brokers, options: ProducerOptions) -> None:
        self._make_lock()
        super().__init__(brokers, options)
        self.has_ended = False
        """Whether its threads and connections end, also where `close` was interrupted while it flushed."""
        self.is_parents = False
        """Whether this is the child of a fork: records that were sent are the parent's."""
        self._workers = Workers("headrace-produce", PRODUCER_REQUESTS_MAX)
        make_rows = partial(ThreadRows, carrier_of=self._sessions.carrier)
        self.in_flight = InFlight(options, make_rows, brokers.trouble, brokers.directory.newest)
        self._carrying = threading.Lock()
        self._is_searching, self._searched_ms = False, 0
        self._is_asleep = False
        """Whether the thread waits until it is notified, and looks at no clock."""
        self.is_left = False
        """Whether a thread has queued a batch that it must send itself; after an interrupt the next thread does it."""
        _senders.add(self)
        self._thread = threading.Thread(target=self._run, name="headrace-sender", daemon=True)
        self._thread.start()

    def _make_lock(self) -> None:
        self.lock = threading.Lock()
        self.work = threading.Condition(self.lock)
        """The condition on which the thread waits for something new to plan."""
        self.progress = threading.Condition(self.lock)
        """The condition that a batch arrived or was given up: `send` waits here for room, and `flush` for the end."""

    def wait_for_progress(self) -> None:
        """Wait until there may be progress. Raises StalledError where there will be none. The caller holds the lock."""
        self._check()
        self.progress.wait(CLIENT_STALL_CHECK_MS / 1000)

    def flush(self) -> None:
        """Wait until all that is queued now has arrived or failed. Raises StalledError, and LocalError in a child."""
        if self.is_parents:
            raise closed_error()
        with self.lock:
            waiting = set(map(id, self.in_flight.accumulator.waiting_batches()))
            self.in_flight.accumulator.close_batches()
            self.work.notify()
            while not waiting.isdisjoint(map(id, self.in_flight.accumulator.waiting_batches())):
                self.wait_for_progress()
        self.in_flight.time_warnings.sum_up()

    def close(self) -> None:
        """Take nothing more, flush and end. Safe to call again."""
        with self.lock:
            self.closed = True
        try:
            if self.broken is None and not self.is_parents and not self.has_ended:
                self.flush()
        finally:
            self.has_ended = True
            with self.lock:
                self.work.notify()
            self._workers.stop()
            self._brokers.close()

    def leave_to_parent(self) -> None:
        """Close the sender in the child of a fork, with nothing to send. A thread that is gone may hold its lock."""
        self._make_lock()
        self.closed = self.is_parents = True
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
        """Start the batches that are due, or wait for more. False: that was all."""
        if self.broken is not None:
            return False
        if not self._carry_due():
            with self.lock:
                if self.closed and not self.in_flight.accumulator.buffered_bytes:
                    return False
                patience_s = self._patience_s()
                self._is_asleep = patience_s is None
                self.work.wait(patience_s)
                self._is_asleep = False
        self._watch()
        return True

    def send_now(self) -> None:
        """Start the batches that are due in the caller's thread, unless another one does: no other thread must wake."""
        with HeldInterrupts():  # A batch that is taken must be sent.
            self.is_left = False
            if not self._carrying.acquire(blocking=False):
                self._look_again()
                return
            try:
                self._take_due()
            finally:
                self._carrying.release()
            if self._is_asleep:  # The thread must look whether an answer comes in time.
                self._look_again()

    def _look_again(self) -> None:
        with self.lock:
            self.work.notify()

    def _carry_due(self) -> bool:
        with self._carrying:
            return self._take_due()

    def _take_due(self) -> bool:
        with self.lock:
            due = self.in_flight.due(now_ms()) if self.broken is None else Due([], [])
        for batch in due.send:
            self._carry(batch)
        for batch, error in due.expired:
            self._give_up(batch, error)
        return bool(due.send or due.expired)

    def _patience_s(self) -> float | None:
        """Return how long to wait until a batch is due or the watchdog looks; None while there is no batch."""
        accumulator = self.in_flight.accumulator
        if not accumulator.buffered_bytes:
            return None
        next_due_ms = accumulator.next_due_ms()
        wait_ms = CLIENT_STALL_CHECK_MS if next_due_ms is None else max(0, next_due_ms - now_ms())
        return min(wait_ms, LEADER_SEARCH_MS if self._is_searching else CLIENT_STALL_CHECK_MS) / 1000

    def _watch(self) -> None:
        self._sessions.end_overdue()
        if now_ms() - self._searched_ms >= LEADER_SEARCH_MS:
            self._is_searching, self._searched_ms = self._look_elsewhere(), now_ms()
        with self.lock:
            stalled = self.in_flight.stalled(now_ms())
        if stalled is not None:
            self._break(stalled)

    def _check(self) -> None:
        """Raise StalledError where nothing moves any more. Waiters call it with the lock held."""
        if self.broken is None and not self._thread.is_alive() and not self.closed:
            self.broken = StalledError("the sending thread of this producer is gone; make a new Producer")
        stalled = self.broken or self.in_flight.stalled(now_ms())
        if stalled is not None:
            raise as_raised(stalled)

    def _break(self, error: StalledError) -> None:
        """Tell all futures and waiters that nothing moves any more, once."""
        with self.lock:
            if self.broken is not None:
                return
            self.broken, self.closed = error, True
            lost = [batch for batch in self.in_flight.accumulator.waiting_batches() if batch not in self._answered]
            self.progress.notify_all()
        for batch in lost:
            batch.failed(error)

    # -- the workers, and the threads of connections ----------------------------------------------------------------

    def _start(self, errand: Errand[None], when_cancelled: Callable[[], object]) -> None:
        """Carry the errand out on a worker, which nobody cancels."""
        self._workers.submit(partial(self._brokers.run, errand))

    def _cancelled(self, what: str) -> None:
        raise AssertionError(f"nobody cancels threads, but {what}")

    def _tell(self, outcomes: list[Outcome]) -> None:
        """Carry out the outcomes of batches on channels; workers do it where callbacks run."""
        for outcome in outcomes:
            batches = [outcome.batch] if isinstance(outcome, Arrived) else outcome.batches[:1]
            tell = partial(self._carry_out, outcome)
            if any(batch.has_callbacks for batch in batches):
                self._workers.submit(tell)
            else:
                tell()

    def _moved(self) -> None:
        self.progress.notify_all()
        if self.in_flight.accumulator.next_due_ms() is not None:
            self.work.notify()


_senders: WeakSet[Sender] = WeakSet()


def _leave_to_parent() -> None:
    for sender in list(_senders):
        sender.leave_to_parent()


os.register_at_fork(after_in_child=_leave_to_parent)

"""The producer's sending thread: it takes due batches from the accumulator and sends each on its leader's session.

A producer owns one `Sender` for its lifetime. A batch whose partition has no channel yet goes to a worker, which finds
the leader and opens one; where only other brokers lead to the leader, the worker carries the batch as a request. Each
outcome is told once, by the thread that reads the connection, or by a worker where callbacks run. Taking a batch and
sending it on a channel is one step, under `_carrying`, so that no batch overtakes another; with `linger_ms=0` the
caller takes it itself.

`lock` guards `in_flight`; futures are resolved outside of it, before their batch leaves the accumulator, so that
`flush` returns only after every future is done. Waiters raise `StalledError` where nothing moves any more; so does
every future when the thread dies. A finalizer flushes and closes a producer that is forgotten, or still open when the
interpreter ends. In the child of a fork every producer of the parent is closed; its records are the parent's to send.
"""

import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from weakref import WeakSet

from headrace.client.clock import now_ms
from headrace.client.producer.accumulator import Due
from headrace.client.producer.batches import Batch
from headrace.client.producer.deliveries import ThreadRows
from headrace.client.producer.in_flight import (
    Again,
    Arrived,
    InFlight,
    Outcome,
    ProduceChannel,
    ProduceSession,
    Refused,
)
from headrace.client.producer.writer import ProducerOptions, as_raised, closed_error, unsendable
from headrace.client.record import TopicPartition
from headrace.client.transport import calls
from headrace.client.transport.blocking_sessions import BlockingSessions
from headrace.client.transport.brokers import Brokers, Workers
from headrace.client.transport.calls import Buffers
from headrace.core.errors import HeadraceError, StalledError
from headrace.core.limits import CLIENT_STALL_CHECK_MS, LEADER_SEARCH_MS, PRODUCER_REQUESTS_MAX
from headrace.http2.blocking_transport import BlockingStream
from headrace.http2.interrupts import HeldInterrupts


class ProduceSessions(BlockingSessions[ProduceSession]):
    def __init__(self, brokers: Brokers, acks: str, tell: Callable[[list[Outcome]], None]) -> None:
        super().__init__(brokers, ProduceSession)
        self._acks, self._tell = acks, tell
        self._channels: dict[TopicPartition, tuple[ProduceSession, ProduceChannel, BlockingStream]] = {}

    def has_channel(self, partition: TopicPartition) -> bool:
        return partition in self._channels

    def carrier(self, partition: TopicPartition) -> BlockingStream | None:
        """What its answers come by."""
        return self._channels.get(partition, (None, None, None))[2]

    def produce(self, batch: Batch, encoded: Buffers) -> bool:
        """Send it on the channel of its partition. False: there is none any more."""
        with self._lock:
            session, channel, stream = self._channels.get(batch.partition, (None, None, None))
            if session is None or channel is None or stream is None or not session.is_open(channel):
                return False
            stream.send(*channel.produce(batch, encoded))
            return True

    def open(self, batch: Batch, encoded: Buffers) -> bool:
        """Send it as the first of a new channel; may connect. False: only requests lead to its partition just now."""
        partition = batch.partition
        layout = self._brokers.layout_with(partition)
        url = self._leader_url(layout, partition.partition)
        if url is None:
            return False
        session, stream = self._session(url)
        timeout_ms = self._brokers.request_timeout_ms
        terms = calls.produce_terms(self._brokers.namespace, layout, partition.partition, self._acks, timeout_ms)
        with self._lock:
            channel, opening = session.open(partition, terms)
            self._channels[partition] = (session, channel, stream)
            stream.send(opening, *channel.produce(batch, encoded))
        return True

    def end_overdue(self) -> None:
        """Give up the sessions in which an answer is missing for longer than its time limit."""
        limit_ms = self._brokers.request_timeout_ms + calls.ANSWER_SLACK_MS
        for session, stream in list(self._streams.values()):
            with self._lock:
                oldest_ms = session.oldest_ms()
            if oldest_ms is not None and now_ms() - oldest_ms > limit_ms:
                self._end(session, calls.overdue_error(session.url, limit_ms))
                stream.cancel()

    def _hear(self, session: ProduceSession, news: list[Outcome]) -> None:
        with self._lock:
            for outcome in news:
                if isinstance(outcome, Refused):
                    owner, channel, _ = self._channels.get(outcome.partition, (None, None, None))
                    if owner is not None and channel is not None and not owner.is_open(channel):
                        del self._channels[outcome.partition]
        if news:
            self._tell(news)


_log = logging.getLogger(__name__)


class Sender:
    def __init__(self, brokers: Brokers, options: ProducerOptions) -> None:
        self._make_lock()
        self.closed = False
        """Nothing more is taken."""
        self.has_ended = False
        """Its threads and connections end, also where `close` was interrupted while it flushed."""
        self.is_parents = False
        """This is the child of a fork: what was sent is its parent's."""
        self.broken: StalledError | None = None
        """Nothing moves any more."""
        self._answered: set[Batch] = set()
        """Batches whose deliveries are being told, by the worker that has their answer."""
        self._brokers, self._options = brokers, options
        self._workers = Workers("headrace-produce", PRODUCER_REQUESTS_MAX)
        self._sessions = ProduceSessions(brokers, options.acks, self._tell)
        make_rows = partial(ThreadRows, carrier_of=self._sessions.carrier)
        self.in_flight: InFlight[ThreadRows] = InFlight(options, make_rows, brokers.trouble, brokers.directory.newest)
        self._carrying = threading.Lock()
        self._refreshing: set[str] = set()
        """Topics whose metadata a worker asks for."""
        self._is_searching, self._searched_ms = False, 0
        self._is_asleep = False
        """The thread waits until it is notified, and looks at no clock."""
        self.is_left = False
        """Somebody has queued a batch that he is to send himself; where he was interrupted, the next one does."""
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
        """In the child of a fork: closed, with nothing to send. The old lock may be held by a thread that is gone."""
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
        """Start what is due, or wait for more. False: that was all."""
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
        """Start what is due in the caller's own thread, where nobody else is at it: no other has to wake for it."""
        with HeldInterrupts():  # What is taken must be sent.
            self.is_left = False
            if not self._carrying.acquire(blocking=False):
                self._wake()
                return
            try:
                self._take_due()
            finally:
                self._carrying.release()
            if self._is_asleep:  # Somebody must look whether an answer comes in time.
                self._wake()

    def _wake(self) -> None:
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

    def _carry(self, batch: Batch) -> None:
        """On the channel of its partition, or by a worker where there is none."""
        if self._sessions.has_channel(batch.partition):
            self._maybe_refresh(batch.partition.topic)
            encoded = self._encoded(batch)
            if encoded is None or self._sessions.produce(batch, encoded):
                return
        with self.lock:
            may_go = self.in_flight.accumulator.may_go(batch)
            if not may_go:  # The channel has just failed: what went before comes back too, and goes first.
                self.in_flight.put_back(Again([batch]))
        if may_go:
            self._workers.submit(partial(self._attempt, batch))

    def _patience_s(self) -> float | None:
        """Until something is due or the watchdog looks; None while there is nothing at all."""
        accumulator = self.in_flight.accumulator
        if not accumulator.buffered_bytes:
            return None
        next_due_ms = accumulator.next_due_ms()
        wait_ms = CLIENT_STALL_CHECK_MS if next_due_ms is None else max(0, next_due_ms - now_ms())
        return min(wait_ms, LEADER_SEARCH_MS if self._is_searching else CLIENT_STALL_CHECK_MS) / 1000

    def _watch(self) -> None:
        self._sessions.end_overdue()
        if now_ms() - self._searched_ms >= LEADER_SEARCH_MS:
            self._look_elsewhere()
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

    def _maybe_refresh(self, topic: str) -> None:
        """Channels go on without metadata; but there may be more partitions by now."""
        if topic not in self._refreshing and self._brokers.directory.fresh(topic, now_ms()) is None:
            self._refreshing.add(topic)
            self._workers.submit(partial(self._refresh, topic))

    # -- the workers, and the threads of connections ----------------------------------------------------------------

    def _attempt(self, batch: Batch) -> None:
        encoded = self._encoded(batch)
        if encoded is None:
            return
        try:
            is_sent = self._sessions.open(batch, encoded)
            base_offset = 0 if is_sent else self._brokers.produce_once(batch.partition, encoded, self._options.acks)
        except HeadraceError as error:
            self._carry_out(Refused.request(batch, error))
        except Exception as error:
            self._give_up(batch, unsendable(batch, error))
        else:
            if is_sent:
                with self.lock:
                    self.in_flight.pipeline(batch.partition)
                    self.work.notify()
            else:
                self._carry_out(Arrived(batch, base_offset))

    def _look_elsewhere(self) -> None:
        """Where a leader is silent, ask who leads by now, and go there."""
        silent = self._sessions.look_elsewhere()
        self._is_searching, self._searched_ms = bool(silent), now_ms()
        for topic in silent - self._refreshing:
            self._refreshing.add(topic)
            self._workers.submit(partial(self._search, topic))

    def _search(self, topic: str) -> None:
        try:
            with suppress(HeadraceError):  # The next look asks again.
                self._brokers.ask_who_leads(topic)
                self._sessions.look_elsewhere()
        finally:
            self._refreshing.discard(topic)

    def _refresh(self, topic: str) -> None:
        try:
            with suppress(HeadraceError):  # The next batch asks again.
                self._brokers.layout_once(topic)
        finally:
            self._refreshing.discard(topic)

    def _encoded(self, batch: Batch) -> Buffers | None:
        """None: it cannot be, and was given up."""
        try:
            return self.in_flight.encoded(batch)
        except HeadraceError as error:
            self._give_up(batch, error)
        return None

    def _tell(self, outcomes: list[Outcome]) -> None:
        """What has come of batches on channels."""
        for outcome in outcomes:
            batches = [outcome.batch] if isinstance(outcome, Arrived) else outcome.batches[:1]
            tell = partial(self._carry_out, outcome)
            if any(batch.has_callbacks for batch in batches):
                self._workers.submit(tell)
            else:
                tell()

    def _carry_out(self, outcome: Outcome) -> None:
        verdict = self.in_flight.judge(outcome, now_ms())
        if verdict.forget is not None:
            self._brokers.directory.forget(verdict.forget)
        if verdict.again is not None:
            with self.lock:
                self.in_flight.put_back(verdict.again)
                self.work.notify()
        if verdict.failed is not None:
            self._give_up(*verdict.failed)
        if verdict.delivered is not None:
            self._arrived(*verdict.delivered)

    def _arrived(self, batch: Batch, base_offset: int) -> None:
        if not self._is_ours(batch):
            return
        batch.delivered(base_offset)
        with self.lock:
            self._answered.discard(batch)
            self.in_flight.arrived(batch)
            self._moved()

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
        if self.in_flight.accumulator.next_due_ms() is not None:
            self.work.notify()


_senders: WeakSet[Sender] = WeakSet()


def _leave_to_parent() -> None:
    for sender in list(_senders):
        sender.leave_to_parent()


os.register_at_fork(after_in_child=_leave_to_parent)

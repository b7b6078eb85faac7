"""The blocking consumer's reading ahead: leaders push answers over sessions, and one of each partition waits.

The consumer's thread decides (with `ReadAhead`), asks, and takes answers from a queue. Workers carry out what
`fetch_errands` has to ask. So all reading state belongs to the one thread that uses the consumer, which owns one
fetcher for its lifetime.
"""

from collections.abc import Callable, Generator
from contextlib import closing
from functools import partial
from queue import Empty, SimpleQueue

from headrace.client.clock import now_ms
from headrace.client.consumer.cursor import Cursor
from headrace.client.consumer.fetch_errands import FetchErrands
from headrace.client.consumer.read_ahead import Arrival, ReadAhead
from headrace.client.transport.brokers import Brokers, Workers
from headrace.client.transport.errands import Errand
from headrace.core.limits import CONSUMER_REQUESTS_MAX
from headrace.core.records.columns import DecodedBatch
from headrace.http2.interrupts import HeldInterrupts


class Between:
    """The checks of a reader between batches; a reader without a group has none."""

    def follow(self) -> None:
        """Follow the group: partitions may come and go here."""

    def is_settled(self) -> bool:
        """Return whether no more partitions will come."""
        return True


class Fetcher(FetchErrands[Brokers]):
    def __init__(self, brokers: Brokers, reading: ReadAhead) -> None:
        super().__init__(brokers, reading)
        self._workers = Workers("headrace-fetch", CONSUMER_REQUESTS_MAX)
        self._arrived: SimpleQueue[Arrival | None] = SimpleQueue()
        """The arrivals that nobody has taken yet. None: the thread that waits shall look around."""

    def close(self) -> None:
        self._workers.stop()
        self._brokers.close()

    def batches(self, between: Between) -> Generator[tuple[Cursor, DecodedBatch]]:
        """Yield batches of all partitions as they come, cut to what is wanted, until the plan is done or reading stops.

        Raises the error of a partition that cannot be read, and StalledError; the next call goes on where this one
        stopped.
        """
        handed = self.reading.handed
        handed.is_waited_for = True
        try:
            while not self._stops():
                between.follow()
                self._start_due()
                is_called = self._take_arrived(wait=False)
                if self.reading.open():
                    self._start_due()
                    with closing(self.reading.read()) as batches:
                        while not self._stops() and (found := next(batches, None)) is not None:
                            yield found
                            handed.came_back()
                            handed.is_waited_for = True
                            between.follow()
                elif self.reading.plan.done and between.is_settled():
                    return
                elif not is_called:
                    self._take_arrived(wait=True)
        finally:
            handed.is_waited_for = False

    def _stops(self) -> bool:
        return self.reading.handed.stops

    def wake(self) -> None:
        """Wake the thread that waits for records: it looks around. Any thread may call it."""
        self._arrived.put(None)

    def _start_due(self) -> None:
        with HeldInterrupts():  # A message that is half sent would break the connection for all.
            self._ask()

    def _arrive(self, arrival: Arrival) -> None:
        self._arrived.put(arrival)

    def _start(self, errand: Errand[None], when_cancelled: Callable[[], object]) -> None:
        """Carry the errand out on a worker, which nobody cancels."""
        self._workers.submit(partial(self._brokers.run, errand))

    def _take_arrived(self, *, wait: bool) -> bool:
        """Take everything that has arrived. With `wait`, wait for an answer, or for the time to look at the plan again.

        Return whether `wake` was called.
        """
        is_called = False
        patience_s = self.reading.patience_s(now_ms()) if wait else None
        while True:
            try:
                arrival = self._arrived.get_nowait() if patience_s is None else self._arrived.get(timeout=patience_s)
            except Empty:
                self._look_at_sessions()
                self.reading.check(now_ms())
                return is_called
            patience_s = None
            if arrival is None:
                is_called = True
            else:
                self.reading.take(arrival, now_ms())

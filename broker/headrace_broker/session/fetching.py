"""A channel that reads: pushes batches as they are committed, for as long as there is credit.

    waiting ── credit, or the high watermark rises ──> ready ── its turn ──> a frame ──> ready, or waiting
                                                         └── not in the page cache ──> reading in a thread ──> ready

It holds one piece of the log at most, and a second one while the first is sent: whoever is far behind is read for in a
thread, in larger pieces and ahead of the writer. What it may see and what it is refused is what `fetch` says, in one
epoch.
"""

from collections.abc import Callable, Sequence

from headrace.core.errors import HeadraceError
from headrace.core.frames.frame import Buffer
from headrace.core.frames.session_messages import UNKNOWN_OFFSET, Batches, Closed, Failed
from headrace.core.frames.session_terms import FetchTerms
from headrace.core.limits import FETCH_RECORDS_MAX, SESSION_COLD_READ_BYTES
from headrace.core.types import Offset
from headrace_broker.fetch import Fetched, fetch, fetch_cached, start_offset
from headrace_broker.requests import Edge, FetchQuery, ValueFormat
from headrace_broker.session.hold import Hold
from headrace_broker.session.outgoing import Outgoing
from headrace_broker.session.read_ahead import ReadAhead


class FetchChannel:
    is_pending = False
    """Nobody waits for an answer."""

    def __init__(
        self, number: int, hold: Hold, terms: FetchTerms, outgoing: Outgoing, over: Callable[[Failed | Closed], None]
    ) -> None:
        """`over` is told the last word on it. Raises what `fetch` raises."""
        self.number = number
        self.hold = hold
        self._over = over
        self._max_bytes = terms.max_bytes
        self._credit = terms.credit
        offset = terms.offset if isinstance(terms.offset, int) else Edge(terms.offset)
        self.offset = start_offset(hold.partition, self._query(offset, terms.max_bytes))
        """Where the next frame goes on."""
        self._outgoing = outgoing
        self._cold = ReadAhead[Fetched](outgoing, self)
        """Of what was not in the page cache."""
        self._reads_ahead = False
        """The last piece came from a thread."""

    def begin(self) -> None:
        self.hold.partition.follow(self.wake)
        self.wake()

    def add_credit(self, nbytes: int) -> None:
        self._credit += nbytes
        self.wake()

    def wake(self) -> None:
        """There may be something to send, or to say."""
        if not self._cold.is_under_way and (self._credit > 0 or self.hold.is_over):
            self._outgoing.let_speak(self)

    def next_frame(self, max_bytes: int) -> Sequence[Buffer]:
        try:
            if self.hold.is_over:
                raise self.hold.why_over()
            fetched = self._fetched(max_bytes)
        except HeadraceError as error:
            self.fail(error)
            return ()
        if fetched is None or not fetched.buffers:
            return ()
        self.offset = fetched.next_offset
        self._credit -= sum(map(len, fetched.buffers))
        # As it is now: what was committed since the read has woken nobody.
        if self.offset < self.hold.partition.high_watermark and self._credit > 0:
            self._go_on()
        return Batches(
            self.number,
            fetched.next_offset,
            fetched.high_watermark if fetched.high_watermark is not None else UNKNOWN_OFFSET,
            fetched.log_start_offset,
            fetched.leader_epoch,
            fetched.buffers,
        ).buffers()

    def fail(self, error: HeadraceError) -> None:
        self._over(Failed(self.number, self.hold.with_leader(error)))

    def close(self) -> None:
        """The client wants no more of it."""
        self._over(Closed(self.number))

    def leave(self) -> None:
        """It is over, or its session is."""
        self.hold.partition.unfollow(self.wake)
        self._outgoing.silence(self)
        self._cold.cancel()

    def _fetched(self, max_bytes: int) -> Fetched | None:
        """None where it has to be waited for."""
        if self._cold.is_under_way:
            fetched = self._cold.take()
            self._reads_ahead = fetched is not None
            return fetched
        if self._credit <= 0:
            return None
        self._reads_ahead = False
        fetched = fetch_cached(self.hold.partition, self._query(self.offset, max_bytes))
        if fetched is None:
            self._begin_reading()
        return fetched

    def _go_on(self) -> None:
        """There is more, and credit for it."""
        if self._reads_ahead:
            self._begin_reading()
        else:
            self.wake()

    def _begin_reading(self) -> None:
        query = self._query(self.offset, SESSION_COLD_READ_BYTES)
        self._cold.begin(lambda share: fetch(self.hold.partition, query, share))

    def _query(self, offset: Offset | Edge, max_bytes: int) -> FetchQuery:
        return FetchQuery(
            offset=offset,
            max_bytes=max(1, min(max_bytes, self._max_bytes, self._credit)),
            max_records=FETCH_RECORDS_MAX,
            min_bytes=0,
            max_wait_ms=0,
            fence=self.hold.fence,
            value_format=ValueFormat.TEXT,
        )

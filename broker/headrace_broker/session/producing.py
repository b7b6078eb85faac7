"""A channel that writes: checks batches as they come, appends them in groups, answers in order.

Produces that arrive together are appended together, in one write: what is collected is appended by `flush`, before the
session waits for anything. `core.session.channels.Ledger` says what is answered when. A produce that takes long to
check is checked by a task; the session hands over no other frame before that is done (`Channels.checked`).
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from headrace.core.errors import HeadraceError
from headrace.core.frames.session_messages import Closed, Failed, Ledger, Produce, Produced, ProduceGroup
from headrace.core.limits import SESSION_GROUP_BYTES, SESSION_GROUP_FRAMES_MAX
from headrace.core.records.raw import RawBatch, split_batches
from headrace.core.types import LeaderEpoch
from headrace_broker.body_checks import check, check_in_thread, take_long
from headrace_broker.requests import ProduceQuery
from headrace_broker.session.hold import Hold
from headrace_broker.session.outgoing import Outgoing
from headrace_broker.storage.log_appender import Appended


class _Checked(NamedTuple):
    """A produce whose batches may be appended."""

    sequence: int
    batches: list[RawBatch]


class ProduceChannel:
    def __init__(
        self,
        number: int,
        hold: Hold,
        query: ProduceQuery,
        outgoing: Outgoing,
        over: Callable[[Failed | Closed], None],
    ) -> None:
        """`over` is told the last word on it."""
        self.number = number
        self.hold = hold
        self._query = query
        self._outgoing = outgoing
        self._over = over
        self._ledger = Ledger(number)
        self._collected: list[_Checked] = []
        self._collected_bytes = 0
        self._batch_bytes_max = 0
        """As the topic said when the first of them came."""
        self.checking: asyncio.Task[None] | None = None
        """Of a produce that takes long to check."""

    def begin(self) -> None:
        self.hold.partition.follow(self._moved)

    @property
    def is_pending(self) -> bool:
        """Somebody waits for an answer."""
        return self._ledger.pending > 0 or self.checking is not None

    def collect(self, produce: Produce) -> None:
        """Check it; the next `flush` appends it."""
        ledger = self._ledger
        if not ledger.takes_more:
            return
        try:
            ledger.check_room(len(self._collected))
            if not self._collected:
                self._batch_bytes_max = self.hold.max_message_bytes
            checked = _Checked(produce.sequence, split_batches(produce.batches, batch_bytes_max=self._batch_bytes_max))
            if take_long(checked.batches):
                self.checking = asyncio.create_task(self._check(checked), name="session checks")
                self.checking.add_done_callback(self._outgoing.fail_with)
                return
            check(checked.batches)
        except HeadraceError as error:
            self.fail(error, produce.sequence)
            return
        self._collect(checked)

    async def _check(self, produce: _Checked) -> None:
        """In a thread; what comes of it is appended, or told, at once."""
        try:
            await check_in_thread(produce.batches, self.hold.serving.admission)
        except HeadraceError as error:
            self.fail(error, produce.sequence)
        else:
            if self._ledger.takes_more:
                self._collect(produce)
                self.flush()
        finally:
            self.checking = None

    def _collect(self, produce: _Checked) -> None:
        self._collected.append(produce)
        self._collected_bytes += sum(batch.nbytes for batch in produce.batches)
        if len(self._collected) >= SESSION_GROUP_FRAMES_MAX or self._collected_bytes >= SESSION_GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Append what is collected: all of it, or as much as can be."""
        if not self._collected:
            return
        collected, self._collected, self._collected_bytes = self._collected, [], 0
        if not self._append(collected) and len(collected) > 1:
            # One of them is at fault: it is to be named, and those before it are to be written.
            for each in collected:
                self._append([each])
        self._tell()

    def _append(self, produces: list[_Checked]) -> bool:
        """Whether they are written, all of them. One that cannot be written alone fails the channel."""
        if not self._ledger.takes_more:
            return True
        group = ProduceGroup(())
        batches = [batch for produce in produces for batch in produce.batches]
        try:
            written, epoch = self.hold.partition.append(batches, self._query, partial(self._answered, group))
        except HeadraceError as error:
            if len(produces) == 1:
                self._ledger.refuse(self.hold.with_leader(error), produces[0].sequence)
            return False
        group.answers = self._answers(produces, written, epoch)
        self._ledger.appended(group)
        return True

    def fail(self, error: HeadraceError, *sequence: int) -> None:
        """What was collected is appended, and answered first."""
        self.flush()
        self._ledger.refuse(error, *sequence)
        self._tell()

    def close(self) -> None:
        """The client wants no more of it: `Closed` follows the last answer."""
        self.flush()
        self._ledger.close()
        self._tell()

    def leave(self) -> None:
        """It is over, or its session is."""
        self.hold.partition.unfollow(self._moved)
        if self.checking is not None and self.checking is not asyncio.current_task():
            self.checking.cancel()

    def _answers(self, produces: list[_Checked], written: Appended, epoch: LeaderEpoch) -> list[Produced]:
        start = self.hold.partition.log.log_start_offset
        answers, first = [], 0
        for sequence, batches in produces:
            base, last = written.base_offsets[first], written.last_offsets[first + len(batches) - 1]
            answers.append(Produced(self.number, sequence, base, last, start, epoch))
            first += len(batches)
        return answers

    def _answered(self, group: ProduceGroup, error: HeadraceError | None) -> None:
        group.is_done = True
        group.error = self.hold.with_leader(error) if error is not None else None
        if group.answers:  # else `_append` has yet to say what the answers are
            self._tell()

    def _moved(self) -> None:
        if self.hold.is_over:
            self.fail(self.hold.why_over())

    def _tell(self) -> None:
        for said in self._ledger.take():
            if isinstance(said, Produced):
                self._outgoing.say(said.pack())
            else:
                self._over(said)

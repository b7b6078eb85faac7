"""A consumer's position in each partition, and the fetch that is due next. Pure: time and chance come in.

    due ──> asking ──answered──> unread ──read (by batches)──> position moves; the next fetch is due meanwhile
              └──failed──> due again at `not_before_ms`, or given up

Invariants: a partition has at most one fetch on its way and one answer unread; an answer of an older `turn` (before a
seek, a pause, a broken-off reading) is never read; `Handed.position` is the next offset that the user has not been
given (a cursor's own `position` lies behind the whole batch that is being given); `passed` is the first that the user
may still work on: never above it, it rises when the user comes back for more, and a group commits it. One consumer
owns the cursors and one thread uses them; other threads read `passed`.

A KeyboardInterrupt may strike at any call, and at the end of any turn of a loop, but not within a row of plain
assignments: CPython checks for signals nowhere else. Fields that must change together change in such a row, and the
last assignment before the `yield` or `return` notes what is handed out.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

from headrace.client.record import Record, TopicPartition
from headrace.client.transport.retry import Failure, RetryPolicy, StopTrying, TryAgain
from headrace.core.errors import HeadraceError
from headrace.core.limits import FETCH_LONG_POLL_MS


@dataclass(slots=True, eq=False)
class Cursor:
    partition: TopicPartition
    position: int
    ask_at: int
    """The offset of the next fetch: ahead of `position` by what was answered and is not read yet."""
    end: int | None = None
    """Reading ends before this offset; None: never."""
    paused: bool = False
    turn: int = 0
    asking: bool = False
    unread: bool = False
    not_before_ms: int = 0
    attempts: int = 0
    asked_ms: int = 0
    """The time when the first of the attempts began."""
    attempt_ms: int = 0
    """The time when the last attempt began."""
    failing_since_ms: int = 0
    passed: int = field(init=False)

    def __post_init__(self) -> None:
        self.passed = self.position

    @property
    def done(self) -> bool:
        return self.end is not None and self.position >= self.end

    @property
    def what(self) -> str:
        """The name of the work, as error messages show it."""
        return f"reading {self.partition}"

    def read_to(self, next_offset: int) -> None:
        """Note that an answer is read: offsets below `next_offset` that it did not hold are gone for good."""
        if self.end is None or next_offset <= self.end:
            self.position = max(self.position, next_offset)
        else:  # Records beyond the end were fetched too, and may be wanted later.
            self.move(self.end)

    def move(self, offset: int) -> None:
        """Go on from `offset`; what was asked before, and what is unread, is not wanted any more.

        `passed` stays: the user may still work on the records that were handed out. No call in here: see the rule for
        interrupts at the head of this module.
        """
        self.position = self.ask_at = offset
        self.turn += 1
        self.asking = self.unread = False
        self.not_before_ms = self.attempts = 0

    def is_due(self, now_ms: int) -> bool:
        wanted = not self.paused and (self.end is None or self.ask_at < self.end)
        return wanted and not self.asking and not self.unread and now_ms >= self.not_before_ms


@dataclass(slots=True, eq=False)
class Handed:
    """The records that the user has in hand. The user's thread writes this and other threads read it; they may find
    fewer records passed than there are, but never more.

    A loop over records sets `last` for each record, without a call or a lock: nothing below it is in hand.
    """

    last: Record | None = None
    """The record handed out last, while its batch is not done."""
    out: Cursor | None = None
    """The cursor whose batch was handed out last, while the user has not come back for the next."""
    turn: int = 0
    """The cursor's turn when its batch was handed out: `last` means nothing once the cursor has moved."""
    begin: int = 0
    """The offset at which that batch begins."""
    given: bool = True
    """Whether the user has the whole batch. Until then `last` alone is in hand, or nothing."""
    batches: int = 0
    """The number of batches that were ever handed out: it rises while the user goes on."""
    is_waited_for: bool = False
    """Whether the user waits for the next record, with nothing in hand."""
    stops: bool = False
    """Whether the loop that asks next ends, with nothing handed out. Any thread and any signal handler may set it."""

    def hand_out(self, cursor: Cursor, next_offset: int) -> None:
        """Note a batch of this cursor, up to `next_offset`. The loop then sets `last` for each record, and `given`."""
        self.last, self.given = None, False
        self.out, self.turn, self.begin = cursor, cursor.turn, cursor.position
        self.batches += 1
        self.is_waited_for = False
        cursor.position = next_offset

    def passed(self, cursor: Cursor) -> int:
        """Return the offset from which on records of this partition may be in hand."""
        turn = self.turn  # Read before `last`: `hand_out` clears `last` before it sets another turn.
        last = self.last  # Read before `passed`: the user's thread raises `passed` before it replaces `last`.
        passed = cursor.passed
        if last is not None and turn == cursor.turn and (last.topic, last.partition) == cursor.partition:
            return max(passed, last.offset)
        return passed

    def position(self, cursor: Cursor) -> int:
        """Return the offset of the next record that will be handed out."""
        last = self.last
        if self.turn != cursor.turn:
            return cursor.position
        if last is not None and (last.topic, last.partition) == cursor.partition:
            return last.offset + 1
        return cursor.position if self.given or self.out is not cursor else self.begin

    def move(self, cursor: Cursor, offset: int) -> None:
        """Go on from `offset`. The rest of the batch is not wanted; the user may still work on records in hand."""
        cursor.passed = self.passed(cursor)
        cursor.move(offset)

    def stay(self, cursor: Cursor) -> None:
        """Stay where the user is: records that were read ahead of that must be read again."""
        self.move(cursor, self.position(cursor))

    @contextmanager
    def waiting(self, *, whether: bool = True) -> Iterator[None]:
        """Count the time of this `with` as the SDK's own and not as the user's; as the user's where it is False."""
        before, self.is_waited_for = self.is_waited_for, whether
        try:
            yield
        finally:
            self.is_waited_for = before

    def came_back(self) -> None:
        """Note that the user came back for another batch: nothing is in hand."""
        cursor = self.out
        if cursor is not None:
            cursor.passed = self.position(cursor)
            self.out = None

    def came_back_between(self, cursor: Cursor) -> None:
        """Note that the user came back for the next record of the batch."""
        cursor.passed = self.position(cursor)


@dataclass(frozen=True, slots=True)
class Ask:
    """A fetch from `offset`, to be reported as `answered` or `failed`."""

    cursor: Cursor
    turn: int
    offset: int

    def is_current(self) -> bool:
        return self.cursor.turn == self.turn


class FetchPlan:
    """All cursors of one consumer."""

    def __init__(
        self, policy: RetryPolicy, positions: Mapping[TopicPartition, int], *, is_shared: bool = False
    ) -> None:
        """Plan fetches from these positions. `is_shared`: partitions come and go, so it may wait without any."""
        self.cursors = {partition: Cursor(partition, offset, offset) for partition, offset in positions.items()}
        self._policy = policy
        self._is_shared = is_shared
        self.has_ends = False
        self._turns = 0
        """The highest turn of all cursors that are gone: a partition that comes back gets a higher one."""

    def add(self, partition: TopicPartition, offset: int) -> Cursor:
        """Add a partition to read, from `offset` on. A reading that has ends does not wait for later records."""
        if partition not in self.cursors:
            end = offset if self.has_ends else None
            self.cursors[partition] = Cursor(partition, offset, offset, end=end, turn=self._turns + 1)
        return self.cursors[partition]

    def remove(self, partition: TopicPartition) -> None:
        """Stop reading a partition: records of it that were read ahead or are on their way are not handed out.

        The others go on. A partition that is gone already changes nothing.
        """
        cursor = self.cursors.get(partition)
        if cursor is not None:
            cursor.move(cursor.position)
            self._turns = max(self._turns, cursor.turn)
            self.cursors.pop(partition)

    def due(self, now_ms: int) -> list[Ask]:
        """Return every fetch that may start now, and count it as on its way."""
        asks = []
        for cursor in self.cursors.values():
            if cursor.is_due(now_ms):
                cursor.asking, cursor.attempt_ms = True, now_ms
                if not cursor.attempts:
                    cursor.asked_ms = now_ms
                asks.append(Ask(cursor, cursor.turn, cursor.ask_at))
        return asks

    def next_due_ms(self) -> int | None:
        """Return when the first fetch that waits after a failure is due; None where none waits."""
        waiting = (c.not_before_ms for c in self.cursors.values() if c.is_due(c.not_before_ms))
        return min(waiting, default=None)

    def asking(self) -> list[Cursor]:
        """Return the cursors with a fetch on its way."""
        return [cursor for cursor in self.cursors.values() if cursor.asking]

    def answered(self, ask: Ask, next_offset: int) -> bool:
        """Note that the broker answered up to `next_offset`, perhaps with nothing. False: the answer came too late."""
        cursor = ask.cursor
        if not ask.is_current():
            return False
        cursor.asking, cursor.attempts, cursor.not_before_ms = False, 0, 0
        cursor.ask_at, cursor.unread = next_offset, True
        return True

    def failed(self, ask: Ask, error: HeadraceError, now_ms: int, random: Random) -> TryAgain | StopTrying | None:
        """Return what to do about the failure. None: nobody wants the answer any more."""
        cursor = ask.cursor
        if not ask.is_current():
            return None
        cursor.asking = False
        cursor.attempts += 1
        if cursor.attempts == 1:
            cursor.failing_since_ms = now_ms
        # A fetch may wait at the broker for new records: that is no trouble.
        trouble_since_ms = min(cursor.failing_since_ms, cursor.asked_ms + FETCH_LONG_POLL_MS)
        failure = Failure(cursor.what, error, cursor.attempts, cursor.failing_since_ms, trouble_since_ms)
        decision = self._policy.decide(failure, now_ms, random)
        match decision:
            case TryAgain(at_ms):
                cursor.not_before_ms = at_ms
            case StopTrying():
                cursor.attempts = cursor.not_before_ms = 0
        return decision

    def end_at(self, ends: Mapping[TopicPartition, int] | None) -> None:
        """End reading at these offsets; None: never."""
        self.has_ends = ends is not None
        for partition, cursor in self.cursors.items():
            cursor.end = None if ends is None else ends[partition]

    @property
    def done(self) -> bool:
        """Whether nothing more will come: every partition is at its end or paused."""
        if self._is_shared and not self.has_ends:
            return False
        return all(cursor.done or cursor.paused for cursor in self.cursors.values())

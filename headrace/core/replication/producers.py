"""The idempotent producers of one partition: how far each has come, and whether a batch is new. No I/O.

A batch has (producer id, epoch, sequence of its first record); sequences count a producer's records in this partition
from 0 and go on at 0 after 2^31 - 1 (KIP-98). The last batches of each producer are remembered:

    a remembered batch, again        -> it is answered with the place that it has
    the sequence that comes next     -> new
    a higher epoch, from sequence 0  -> new; what comes of the old epoch is fenced from then on (KIP-360)
    a producer that is not known     -> new, whatever its sequence: it was forgotten, or its records were
    any other sequence               -> OutOfOrderSequenceError
    a lower epoch                    -> FencedProducerError, unless it is a remembered batch

Invariants: what is remembered of a producer lies in the log, in its order; at most `PRODUCER_BATCHES_REMEMBERED`
batches of each, and at most `PRODUCERS_REMEMBERED_MAX` producers: the one that has written nothing for longest is
forgotten first, and each after `PRODUCER_EXPIRY_MS`. Everything is O(1) per batch.

A producer that has no more batches unanswered than are remembered finds here each of them that the log holds, after
any cut: `cut` forgets what the log loses and knows the sequence that must come again. Owned by one partition's log: it
notes what is appended, by a leader or by a follower, cuts with the log, and is written and read as `producer-snapshot`
(`sealed` text) with the recovery point. `states` may be called from another thread.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Self

from headrace.core.errors import FencedProducerError, OutOfOrderSequenceError
from headrace.core.limits import PRODUCER_BATCHES_REMEMBERED
from headrace.core.log.checkpoints import DamagedFileError, seal, unseal
from headrace.core.records.header import NO_PRODUCER, SEQUENCES, BatchHeader
from headrace.core.types import Offset

PRODUCERS_REMEMBERED_MAX = 2_000
"""The producers that one partition remembers; above it the one that wrote nothing for longest is forgotten."""
PRODUCER_EXPIRY_MS = 86_400_000
"""A producer that wrote nothing for so long may be forgotten (Kafka's producer.id.expiration.ms)."""


PRODUCERS_FILE: Final = "producer-snapshot"


class Remembered(NamedTuple):
    """A batch that the log holds."""

    epoch: int
    base_sequence: int
    base_offset: Offset
    last_offset: Offset

    @property
    def next_sequence(self) -> int:
        return (self.base_sequence + self.last_offset - self.base_offset + 1) % SEQUENCES


class ProducerState(NamedTuple):
    """The state of one producer. It is a value that each batch replaces."""

    epoch: int
    next_sequence: int
    used_ms: int
    """The time when the producer last wrote here, as far as is known."""
    batches: tuple[Remembered, ...]
    """The last batches, in order, of an older epoch too. It is empty where all that was remembered was cut."""


class Producers:
    def __init__(self, states: Mapping[int, ProducerState] | None = None) -> None:
        self._states = dict(states or {})
        """The states by producer id; the producer that has written nothing for longest comes first."""
        self.revision = 0
        """A number that changes with each change."""

    def states(self) -> dict[int, ProducerState]:
        """Return a copy, for a snapshot that another thread writes."""
        return self._states.copy()

    def repeated(self, headers: Sequence[BatchHeader], log_end: Offset) -> dict[int, Remembered]:
        """Return which of these batches the log has already, by index; the others are to be appended at `log_end`.

        A batch that is among them twice is new once. Raises OutOfOrderSequenceError and FencedProducerError, with
        `batch` in the details; then none of them may be appended.
        """
        found: dict[int, Remembered] = {}
        ahead: dict[int, ProducerState] = {}
        more = len(headers) - 1
        for index, header in enumerate(headers):
            number = header.producer_id
            if number != NO_PRODUCER:
                state = ahead.get(number) or self._states.get(number)
                written = None if state is None else _judged(state, header, index)
                if written is not None:
                    found[index] = written
                    continue
                if index < more:
                    ahead[number] = _after(state, header, log_end, 0)
            log_end = Offset(log_end + header.last_offset_delta + 1)
        return found

    def note(self, header: BatchHeader, now_ms: int) -> None:
        """Note that this batch is appended, with its place stamped into it."""
        number = header.producer_id
        if number == NO_PRODUCER:
            return
        state = self._states.pop(number, None)
        if state is None:
            self._forget(now_ms)
        self._states[number] = _after(state, header, header.base_offset, now_ms)
        self.revision += 1

    def cut(self, end: Offset) -> None:
        """Note that the log now ends at `end`.

        A producer that loses all its remembered batches continues with the oldest of them. That is the batch after the
        last one that the log still has, as long as only unanswered batches are cut. If more is cut, which takes an
        unclean election, it may lie above that batch: then older retries are refused, and their producer goes on in a
        higher epoch; the log never takes twice what it still has.
        """
        for number, state in self._states.items():
            lost = next((each for each in state.batches if each.last_offset >= end), None)
            if lost is not None:
                kept = tuple(each for each in state.batches if each.last_offset < end)
                epoch = kept[-1].epoch if kept else lost.epoch
                after = kept[-1].next_sequence if kept else lost.base_sequence
                self._states[number] = ProducerState(epoch, after, state.used_ms, kept)
                self.revision += 1

    def _forget(self, now_ms: int) -> None:
        """Make room for one more."""
        while self._states:
            oldest = next(iter(self._states))
            is_over = self._states[oldest].used_ms + PRODUCER_EXPIRY_MS <= now_ms
            if not is_over and len(self._states) < PRODUCERS_REMEMBERED_MAX:
                return
            del self._states[oldest]

    @classmethod
    def parse(cls, content: bytes) -> Self:
        """Parse a snapshot. Raises DamagedFileError."""
        lines = unseal(PRODUCERS_FILE, content)
        try:
            return cls(dict(map(_parse_line, lines)))
        except (TypeError, ValueError) as error:
            raise DamagedFileError(f"{lines[:3]} are not producers with their batches") from error


def format_producers(states: Mapping[int, ProducerState]) -> bytes:
    """Return a line for each producer, in order: id, epoch, next sequence, time, then each batch as `e:s:base:last`."""
    return seal(PRODUCERS_FILE, [" ".join(_words(number, state)) for number, state in states.items()])


def _words(number: int, state: ProducerState) -> Iterable[str]:
    yield from map(str, (number, state.epoch, state.next_sequence, state.used_ms))
    for batch in state.batches:
        yield ":".join(map(str, batch))


def _parse_line(line: str) -> tuple[int, ProducerState]:
    number, epoch, sequence, used_ms, *batches = line.split(" ")
    written = (Remembered._make(map(int, each.split(":"))) for each in batches)
    return int(number), ProducerState(int(epoch), int(sequence), int(used_ms), tuple(written))


def _judged(state: ProducerState, header: BatchHeader, index: int) -> Remembered | None:
    """Return the batch that this one repeats; None where it is new."""
    epoch, sequence = header.producer_epoch, header.base_sequence
    if epoch == state.epoch and sequence == state.next_sequence:
        return None
    for batch in state.batches:
        is_same_size = batch.last_offset - batch.base_offset == header.last_offset_delta
        if batch.base_sequence == sequence and batch.epoch == epoch and is_same_size:
            return batch
    if epoch < state.epoch:
        raise FencedProducerError(
            f"producer {header.producer_id} has written in epoch {state.epoch}: what it sends in epoch {epoch} is"
            " refused; go on in the higher epoch, or take a new producer id",
            producerEpoch=state.epoch,
            batch=index,
        )
    expected = state.next_sequence if epoch == state.epoch else 0
    if sequence != expected:
        raise OutOfOrderSequenceError(
            f"producer {header.producer_id} sends sequence {sequence} in epoch {epoch}, expected is {expected}: a batch"
            f" before it is missing, or it was written more than {PRODUCER_BATCHES_REMEMBERED} batches ago; send what"
            " is missing first, or go on in a higher epoch from sequence 0",
            expectedSequence=expected,
            sequence=sequence,
            producerEpoch=state.epoch,
            batch=index,
        )
    return None


def _after(state: ProducerState | None, header: BatchHeader, base_offset: Offset, now_ms: int) -> ProducerState:
    last_offset = Offset(base_offset + header.last_offset_delta)
    written = Remembered(header.producer_epoch, header.base_sequence, base_offset, last_offset)
    before = () if state is None else state.batches[1 - PRODUCER_BATCHES_REMEMBERED :]
    return ProducerState(written.epoch, written.next_sequence, now_ms, (*before, written))

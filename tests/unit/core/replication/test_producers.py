"""A batch is written once, whatever is sent again, cut, forgotten or restarted; a gap is never filled with silence."""

from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import FencedProducerError, OutOfOrderSequenceError
from headrace.core.limits import PRODUCER_BATCHES_REMEMBERED
from headrace.core.log.checkpoints import DamagedFileError, seal
from headrace.core.records.columns import plain_header
from headrace.core.records.header import SEQUENCES, BatchHeader
from headrace.core.replication.producers import (
    PRODUCER_EXPIRY_MS,
    PRODUCERS_FILE,
    PRODUCERS_REMEMBERED_MAX,
    Producers,
    ProducerState,
    Remembered,
    format_producers,
)
from headrace.core.types import Offset

ME = 7


def batch(sequence: int, records: int = 1, *, epoch: int = 0, producer: int = ME) -> BatchHeader:
    header = plain_header(records, 0, 0)
    return header._replace(producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


def stamped(header: BatchHeader, offset: int) -> BatchHeader:
    return header._replace(base_offset=Offset(offset))


def noted(*headers: BatchHeader) -> tuple[Producers, Offset]:
    """After these were appended, and the end of the log."""
    producers, end = Producers(), Offset(0)
    for header in headers:
        producers.note(stamped(header, end), now_ms=0)
        end = Offset(end + header.record_count)
    return producers, end


def repeated(producers: Producers, *headers: BatchHeader, end: int = 100) -> dict[int, Remembered]:
    return producers.repeated(headers, Offset(end))


def test_should_know_a_batch_again_and_take_the_next_one() -> None:
    producers, end = noted(batch(0, 3), batch(3, 2))
    assert repeated(producers, batch(3, 2)) == {0: Remembered(0, 3, Offset(3), Offset(4))}
    assert repeated(producers, batch(0, 3), batch(5)) == {0: Remembered(0, 0, Offset(0), Offset(2))}
    assert repeated(producers, batch(5), end=end) == {}


def test_should_take_any_batch_that_is_of_no_producer() -> None:
    header = plain_header(1, 0, 0)
    producers, _ = noted(header)
    assert producers.revision == 0
    assert repeated(producers, header, header) == {}


def test_should_take_whatever_comes_first_of_a_producer_that_it_does_not_know() -> None:
    assert repeated(Producers(), batch(57, epoch=3)) == {}


def test_should_find_repetitions_within_one_list() -> None:
    producers, end = noted(batch(0, 2))
    found = repeated(producers, batch(2, 3), batch(2, 3), batch(0, producer=8), batch(5), batch(5), end=end)
    assert found == {1: Remembered(0, 2, Offset(2), Offset(4)), 4: Remembered(0, 5, Offset(6), Offset(6))}
    with pytest.raises(OutOfOrderSequenceError, match="expected is 5") as refused:
        repeated(producers, batch(2, 3), batch(6), end=end)
    assert refused.value.details["batch"] == 1


def test_should_refuse_a_gap_and_say_what_is_missing() -> None:
    producers, _ = noted(batch(0, 2))
    with pytest.raises(
        OutOfOrderSequenceError, match=r"sends sequence 3 in epoch 0, expected is 2: .* go on in"
    ) as gap:
        repeated(producers, batch(3))
    assert gap.value.details == {"expectedSequence": 2, "sequence": 3, "producerEpoch": 0, "batch": 0}


def test_should_not_take_a_batch_for_another_of_the_same_sequence() -> None:
    producers, _ = noted(batch(0, 2), batch(2))
    with pytest.raises(OutOfOrderSequenceError):
        repeated(producers, batch(0, 3))


def test_should_refuse_what_was_written_too_long_ago_to_be_remembered() -> None:
    producers, _ = noted(*(batch(number) for number in range(PRODUCER_BATCHES_REMEMBERED + 1)))
    assert len(repeated(producers, *(batch(n) for n in range(1, PRODUCER_BATCHES_REMEMBERED + 1)))) == (
        PRODUCER_BATCHES_REMEMBERED
    )
    with pytest.raises(OutOfOrderSequenceError, match="written more than 5 batches ago"):
        repeated(producers, batch(0))


def test_should_begin_a_new_epoch_at_sequence_zero_and_fence_the_old_one() -> None:
    producers, end = noted(batch(0), batch(1))
    with pytest.raises(OutOfOrderSequenceError, match="in epoch 1, expected is 0"):
        repeated(producers, batch(2, epoch=1))
    assert repeated(producers, batch(0, epoch=1)) == {}
    producers.note(stamped(batch(0, epoch=1), end), 0)

    with pytest.raises(FencedProducerError, match="has written in epoch 1") as fenced:
        repeated(producers, batch(2))
    assert fenced.value.details == {"producerEpoch": 1, "batch": 0}
    assert repeated(producers, batch(1)) == {0: Remembered(0, 1, Offset(1), Offset(1))}, (
        "it is there: no harm in saying so"
    )


def test_should_go_on_at_zero_after_the_last_sequence() -> None:
    producers, _ = noted(batch(SEQUENCES - 2, 3))
    assert repeated(producers, batch(1)) == {}
    producers, _ = noted(batch(SEQUENCES - 1))
    assert repeated(producers, batch(0)) == {}


def test_should_expect_again_what_the_log_has_lost() -> None:
    producers, _ = noted(batch(0, 2), batch(2, 2), batch(4, 2))
    producers.cut(Offset(4))
    assert repeated(producers, batch(2, 2), batch(4)) == {0: Remembered(0, 2, Offset(2), Offset(3))}

    producers.cut(Offset(0))
    assert repeated(producers, batch(0, 2)) == {}
    with pytest.raises(OutOfOrderSequenceError, match="expected is 0"):
        repeated(producers, batch(2, 2))
    revision = producers.revision
    producers.cut(Offset(0))
    assert producers.revision == revision


@pytest.mark.parametrize("left", range(4))
def test_should_take_nothing_twice_when_more_is_cut_than_is_remembered(left: int) -> None:
    """Of eight batches the last five are remembered, so the first that may come is the fourth, whatever is left."""
    producers, _ = noted(*map(batch, range(8)))
    producers.cut(Offset(left))
    assert repeated(producers, batch(3)) == {}
    for older in range(3):
        with pytest.raises(OutOfOrderSequenceError, match="expected is 3"):
            repeated(producers, batch(older))
    assert repeated(producers, batch(0, epoch=1)) == {}


def test_should_go_back_to_the_epoch_that_the_log_is_left_with() -> None:
    producers, _ = noted(batch(0), batch(0, epoch=1))
    producers.cut(Offset(1))
    assert repeated(producers, batch(1)) == {}
    assert repeated(producers, batch(0, epoch=1)) == {}


def test_should_forget_the_producer_that_wrote_nothing_for_longest() -> None:
    producers = Producers()
    for number in range(PRODUCERS_REMEMBERED_MAX):
        producers.note(batch(0, producer=number), number)
    producers.note(stamped(batch(1, producer=0), 1), PRODUCERS_REMEMBERED_MAX)
    producers.note(batch(0, producer=PRODUCERS_REMEMBERED_MAX), PRODUCERS_REMEMBERED_MAX)
    assert len(producers.states()) == PRODUCERS_REMEMBERED_MAX
    assert 0 in producers.states()
    assert 1 not in producers.states()

    producers.note(batch(0, producer=-2), PRODUCER_EXPIRY_MS + 100)
    assert min(state.used_ms for state in producers.states().values()) == 101


def test_should_come_back_from_its_snapshot() -> None:
    producers, _ = noted(batch(0, 3), batch(5, producer=9, epoch=2), batch(3))
    producers.note(stamped(batch(4), 5), now_ms=77)
    content = format_producers(producers.states())
    assert content.splitlines()[1:] == [b"9 2 6 0 2:5:3:3", b"7 0 5 77 0:0:0:2 0:3:4:4 0:4:5:5"]
    back = Producers.parse(content)
    assert list(back.states().items()) == list(producers.states().items())


@pytest.mark.parametrize("line", ["7 0", "7 0 1 x", "7 0 1 2 0:1", "7 0 1 2 0:1:2:x"])
def test_should_not_believe_a_snapshot_that_says_something_else(line: str) -> None:
    with pytest.raises(DamagedFileError, match="are not producers"):
        Producers.parse(seal(PRODUCERS_FILE, [line]))


def test_should_not_believe_a_snapshot_in_which_a_bit_has_flipped() -> None:
    content = bytearray(format_producers({7: ProducerState(0, 1, 0, ())}))
    content[-3] ^= 1
    with pytest.raises(DamagedFileError):
        Producers.parse(bytes(content))


@dataclass
class Model:
    """One producer, its partition, and a network that answers late, twice or never."""

    producers: Producers = field(default_factory=Producers)
    log: list[BatchHeader] = field(default_factory=list)
    snapshot: tuple[bytes, int] = (b"", 0)
    """And the recovery point: the log's end then, or where it was cut since."""
    sent: list[BatchHeader] = field(default_factory=list)
    acknowledged: int = 0
    """Of `sent`, from the front: answered, and committed."""
    committed: int = 0

    @property
    def end(self) -> Offset:
        return self.log[-1].next_offset if self.log else Offset(0)

    def receive(self, number: int) -> None:
        """The batch arrives at the leader, again or for the first time."""
        header = self.sent[number]
        found = self.producers.repeated([header], self.end)
        if found:
            (place,) = found.values()
            assert any(each.base_offset == place.base_offset for each in self.log), "the original is there"
        else:
            self.log.append(stamped(header, self.end))
            self.producers.note(self.log[-1], 0)

    def cut(self, batches: int) -> None:
        """What is not committed may be lost."""
        del self.log[max(self.committed, len(self.log) - batches) :]
        self.producers.cut(self.end)
        self.snapshot = (self.snapshot[0], min(self.snapshot[1], self.end))

    def restart(self) -> None:
        """From the snapshot and the log above it."""
        content, end = self.snapshot
        self.producers = Producers.parse(content) if content else Producers()
        self.producers.cut(Offset(end))
        for header in self.log:
            if header.base_offset >= end:
                self.producers.note(header, 0)

    def check(self) -> None:
        sequences = [header.base_sequence for header in self.log]
        assert sequences == [header.base_sequence for header in self.sent[: len(sequences)]], "no duplicate, no gap"


@given(st.data())
def test_should_write_each_batch_once_and_in_order_whatever_happens(data: st.DataObject) -> None:
    model, sequence = Model(), SEQUENCES - 6
    moves = ["send", "again", "acknowledge", "cut", "snapshot", "restart"]
    for move in data.draw(st.lists(st.sampled_from(moves), max_size=60), label="moves"):
        unanswered = len(model.sent) - model.acknowledged
        if move == "send" and unanswered < PRODUCER_BATCHES_REMEMBERED:
            records = data.draw(st.integers(1, 3))
            model.sent.append(batch(sequence, records))
            sequence = (sequence + records) % SEQUENCES
        elif move == "again" and unanswered:
            # What comes first of a producer is believed: its batches do not overtake each other on their way.
            last = len(model.sent) - 1 if model.producers.states() else model.acknowledged
            with suppress(OutOfOrderSequenceError):
                model.receive(data.draw(st.integers(model.acknowledged, last)))
        elif move == "acknowledge" and len(model.log) > model.acknowledged:
            model.committed = len(model.log)
            model.acknowledged += data.draw(st.integers(0, len(model.log) - model.acknowledged))
        elif move == "cut":
            model.cut(data.draw(st.integers(1, 6)))
        elif move == "snapshot":
            model.snapshot = (format_producers(model.producers.states()), model.end)
        elif move == "restart":
            model.restart()
        model.check()
    while model.acknowledged < len(model.sent):
        model.receive(model.acknowledged)
        model.acknowledged += 1
        model.check()
    assert len(model.log) == len(model.sent)

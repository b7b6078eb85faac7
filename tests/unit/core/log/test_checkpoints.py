"""Small files that know whether they are whole.

The file of the epochs that a broker has promised.
"""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.log.checkpoints import (
    EPOCHS_SEEN_FILE,
    RECOVERY_POINT_FILE,
    DamagedFileError,
    LogPoint,
    format_epochs_seen,
    format_high_watermark,
    format_log_point,
    format_log_start,
    format_void_before,
    parse_epochs_seen,
    parse_high_watermark,
    parse_log_point,
    parse_log_start,
    parse_void_before,
    raised,
    seal,
    unseal,
    unseal_integers,
)
from headrace.core.log.epochs import NO_EPOCH, EpochEnd, EpochStart, LeaderEpochs
from headrace.core.types import Incarnation, LeaderEpoch, Offset, PartitionId, PartitionKey, TopicUid

POINT = LogPoint(Offset(812), Offset(512), 65536, 1767225600000)


def epochs_of(*starts: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs(EpochStart(LeaderEpoch(epoch), Offset(offset)) for epoch, offset in starts)


def test_should_read_what_was_written() -> None:
    assert parse_log_point(RECOVERY_POINT_FILE, format_log_point(RECOVERY_POINT_FILE, POINT)) == POINT
    assert parse_high_watermark(format_high_watermark(Offset(7))) == 7
    assert parse_log_start(format_log_start(Offset(7))) == 7
    assert parse_void_before(format_void_before(Incarnation(3))) == 3
    epochs = epochs_of((1, 0), (4, 100))
    assert LeaderEpochs.parse(epochs.format()).starts == epochs.starts
    assert LeaderEpochs.parse(LeaderEpochs().format()).starts == ()


@pytest.mark.parametrize(
    ("content", "parse"),
    [
        (format_log_point(RECOVERY_POINT_FILE, POINT), lambda content: parse_log_point(RECOVERY_POINT_FILE, content)),
        (format_high_watermark(Offset(123456)), parse_high_watermark),
        (epochs_of((1, 0), (4, 100)).format(), LeaderEpochs.parse),
    ],
)
@given(data=st.data())
def test_should_notice_when_any_bit_is_flipped_or_the_file_is_cut(
    content: bytes, parse: Callable[[bytes], object], data: st.DataObject
) -> None:
    bit = data.draw(st.integers(0, len(content) * 8 - 1))
    flipped = bytearray(content)
    flipped[bit // 8] ^= 1 << bit % 8
    with pytest.raises(DamagedFileError):
        parse(bytes(flipped))
    with pytest.raises(DamagedFileError):
        parse(content[: bit // 8])


def test_should_not_take_one_file_for_another() -> None:
    with pytest.raises(DamagedFileError, match="asks for b'headrace cut-at"):
        parse_log_point("cut-at", format_log_point(RECOVERY_POINT_FILE, POINT))


@pytest.mark.parametrize("lines", [["1 2"], ["1", "2", "3"], [], ["one"], ["1  2 3"]])
def test_should_refuse_other_numbers_than_it_asks_for(lines: list[str]) -> None:
    content = seal("kind", lines)
    assert unseal("kind", content) == lines
    with pytest.raises(DamagedFileError):
        unseal_integers("kind", content, 1)


@pytest.mark.parametrize("lines", [["1"], ["1 2 3"], ["a b"], ["2 0", "1 10"], ["1 10", "2 10"]])
def test_should_refuse_epochs_that_do_not_rise(lines: list[str]) -> None:
    with pytest.raises(DamagedFileError):
        LeaderEpochs.parse(seal("leader-epoch-checkpoint", lines))


def test_should_begin_an_epoch_once_when_many_batches_carry_it() -> None:
    epochs = LeaderEpochs()
    assert epochs.latest == NO_EPOCH
    for epoch, offset in [(1, 0), (1, 5), (3, 9), (3, 12)]:
        epochs.assign(LeaderEpoch(epoch), Offset(offset))

    assert epochs.starts == epochs_of((1, 0), (3, 9)).starts
    assert epochs.latest == 3
    with pytest.raises(AssertionError, match="never fall"):
        epochs.assign(LeaderEpoch(2), Offset(20))


@pytest.mark.parametrize(("end", "kept"), [(10, 2), (9, 1), (1, 1), (0, 0)])
def test_should_forget_epochs_that_began_at_the_cut_or_later(end: int, kept: int) -> None:
    epochs = epochs_of((1, 0), (3, 9))
    epochs.cut(Offset(end))
    assert epochs.starts == epochs_of((1, 0), (3, 9)).starts[:kept]


@pytest.mark.parametrize(
    ("asked", "epoch", "end"), [(0, NO_EPOCH, 5), (1, 1, 9), (2, 1, 9), (3, 3, 20), (4, 3, 20), (7, 7, 30), (9, 7, 30)]
)
def test_should_answer_with_the_greatest_epoch_up_to_the_one_asked_for(asked: int, epoch: int, end: int) -> None:
    epochs = epochs_of((1, 5), (3, 9), (7, 20))
    assert epochs.end_of(LeaderEpoch(asked), Offset(30)) == EpochEnd(LeaderEpoch(epoch), Offset(end))


def test_should_answer_with_its_end_when_the_log_has_no_batch() -> None:
    assert LeaderEpochs().end_of(LeaderEpoch(4), Offset(30)) == EpochEnd(NO_EPOCH, Offset(30))


@pytest.mark.parametrize(("log_start", "left"), [(0, 3), (5, 3), (8, 3), (9, 2), (19, 2), (20, 1), (99, 1)])
def test_should_forget_epochs_that_were_deleted_but_never_the_last(log_start: int, left: int) -> None:
    starts = (1, 5), (3, 9), (7, 20)
    epochs = epochs_of(*starts)
    epochs.forget_below(Offset(log_start))
    assert epochs.starts == epochs_of(*starts[-left:]).starts


KEY = PartitionKey(TopicUid("6f0c-11"), PartitionId(0))
OTHER = PartitionKey(TopicUid("6f0c-11"), PartitionId(1))


def test_should_be_read_as_it_was_written() -> None:
    seen = {KEY: LeaderEpoch(3), OTHER: LeaderEpoch(0)}
    assert parse_epochs_seen(format_epochs_seen(seen)) == seen
    assert parse_epochs_seen(format_epochs_seen({})) == {}


@pytest.mark.parametrize("line", ["6f0c-11 0", "6f0c-11 0 1 2", "6f0c-11 x 1", "6f0c-11 0 x"])
def test_should_refuse_other_lines(line: str) -> None:
    with pytest.raises(DamagedFileError, match="are not rows of a uid"):
        parse_epochs_seen(seal(EPOCHS_SEEN_FILE, [line]))


def test_should_never_fall() -> None:
    known = {KEY: LeaderEpoch(3)}
    assert raised(known, {KEY: LeaderEpoch(2), OTHER: LeaderEpoch(0)}) == {KEY: 3, OTHER: 0}
    assert raised(known, {KEY: LeaderEpoch(4)}) == {KEY: 4}

"""The judges of a soak: what they pass, and that they would notice."""

from dataclasses import replace

import pytest

from headrace.core.records.columns import decode_batches
from tests.soak.journal import (
    ROWS,
    STEADY,
    DamagedBatchError,
    KeyedWord,
    Sample,
    batch_of,
    entries_of,
    growth,
    values_of,
    wrong_keys,
)
from tests.soak.verdict import Findings, History, judge_history, judge_memory
from tests.support.history import Entry

MIB = 1 << 20


def entries(*places: int) -> list[Entry]:
    return [Entry(0, place, b"w0-%d" % place) for place in places]


KEPT = History(
    acknowledged=entries(0, 1, 2, 3, 5), seen=entries(*range(7)), skipped={}, final=entries(4, 5, 6), starts={0: 4}
)
"""4 and 6 were written without an answer; 0 to 3 were deleted later."""


def broken(history: History) -> str:
    findings = Findings()
    judge_history(history, findings)
    assert len(findings.wrong) + len(findings.facts) == 2
    return "\n".join(findings.wrong)


def test_should_pass_what_was_read_before_retention_deleted_it() -> None:
    assert broken(KEPT) == ""


def test_should_pass_what_no_reader_could_reach_because_retention_was_faster() -> None:
    late = replace(KEPT, seen=entries(0, 3, 4, 5, 6), skipped={0: [range(1, 3)]})
    assert broken(late) == ""
    assert "missing between others" in broken(replace(late, skipped={}))


@pytest.mark.parametrize(
    ("history", "said"),
    [
        (replace(KEPT, seen=entries(0, 1, 2, 3, 4)), "gone from the end of the log: Entry(partition=0, offset=5"),
        (replace(KEPT, seen=entries(0, 1, 2, 3, 3, 4, 5, 6)), "found more than once"),
        (replace(KEPT, final=entries(4, 6)), "Entry(partition=0, offset=5"),
        (replace(KEPT, final=entries(4, 5)), "seen by a reader, and gone later"),
        (replace(KEPT, acknowledged=[*entries(0), Entry(0, 1, b"w0-2")]), "found at another"),
        (replace(KEPT, final=[*entries(4, 5), Entry(0, 6, b"another")]), "gone later"),
    ],
)
def test_should_notice_what_is_lost_doubled_or_moved(history: History, said: str) -> None:
    assert said in broken(history)


def test_should_know_a_batch_by_its_name_and_refuse_a_mixture() -> None:
    (whole,) = decode_batches(batch_of(b"w1-7", 1))
    values = whole.records.column("value").to_pylist()
    joined = values + values_of(b"w1-8")
    assert entries_of(3, 2 * ROWS, joined) == [Entry(3, 2, b"w1-7"), Entry(3, 3, b"w1-8")]
    for damaged in ([*values[1:], b"b"], values[1:], joined[:-1]):
        with pytest.raises(DamagedBatchError, match="partition 3, "):
            entries_of(3, 0, damaged)
    with pytest.raises(DamagedBatchError, match="records from 5"):
        entries_of(3, 5, values)


def test_should_notice_a_batch_that_is_there_twice_and_say_whose_it_is() -> None:
    twice = replace(KEPT, seen=[*entries(0, 1, 2), Entry(0, 3, b"w0-2"), *entries(4, 5, 6)], acknowledged=entries(0, 2))
    findings = Findings()
    judge_history(twice, findings, by=" by the SDK")
    assert "2 batches acknowledged by the SDK was read once" in findings.wrong[0]
    assert "found more than once" in findings.wrong[0]


def test_should_allow_a_key_its_last_value_and_what_was_never_answered_after_it() -> None:
    word = KeyedWord()
    assert word.allows(None)
    word.written(b"1", acknowledged=False)
    assert word.allows(None)
    assert word.allows(b"1")
    word.written(b"2", acknowledged=True)
    word.written(None, acknowledged=False)
    assert [word.allows(value) for value in (b"1", b"2", None)] == [False, True, True]
    assert wrong_keys({b"k": word}, {b"k": b"2"}) == []
    assert "the last value is b'1', acknowledged was b'2'" in wrong_keys({b"k": word}, {b"k": b"1"})[0]
    assert wrong_keys({}, {b"k": b"1"}) == ["key b'k' was never written"]


def test_should_measure_how_far_a_line_through_the_samples_rises() -> None:
    assert growth([]) == growth([(1, 5)]) == growth([(1, 5), (1, 9)]) == 0
    assert growth([(0, 10), (1, 12), (2, 14), (4, 18)]) == pytest.approx(8)
    assert growth([(0, 10), (1, 20), (2, 10), (3, 20), (4, 10)]) == pytest.approx(0)


@pytest.mark.parametrize(
    ("rise_bytes", "files_rise", "peak_bytes", "broken"),
    [(0, 0, 0, 0), (20 * MIB, 0, 0, 1), (0, 20, 0, 1), (0, 0, 1 << 30, 1), (20 * MIB, 20, 1 << 30, 3)],
)
def test_should_notice_memory_and_files_that_grow(
    rise_bytes: int, files_rise: int, peak_bytes: int, broken: int
) -> None:
    samples = [
        Sample(float(at), STEADY, 1, 50 * MIB + (rise_bytes * at) // 50, 40 + (files_rise * at) // 50)
        for at in range(100)
    ]
    findings = Findings()
    judge_memory([*samples, Sample(1.0, STEADY + 1, 2, peak_bytes, 1000)], findings)
    assert (len(findings.wrong), len(findings.facts)) == (broken, 3 - broken)

"""The history checker finds what is wrong in histories made by hand, and nothing in good ones."""

import pytest

from tests.support.history import Entry, Finding, Kind, check


def entries(*offsets: int, partition: int = 0) -> list[Entry]:
    return [Entry(partition, offset, f"{partition}/{offset}".encode()) for offset in offsets]


def test_should_find_nothing_when_every_acknowledged_record_is_read_back() -> None:
    final = [*entries(0, 1, 2), *entries(0, 1, partition=1)]
    assert check(entries(0, 2), final, seen=entries(1)) == []


def test_should_find_nothing_when_an_unacknowledged_record_is_missing() -> None:
    assert check(entries(0), entries(0)) == []


@pytest.mark.parametrize(
    ("acknowledged", "kept", "kind", "lost"),
    [
        ((0, 1, 2, 3), (2, 3), Kind.LOST_PREFIX, (0, 1)),
        ((0, 1, 2, 3), (0, 1), Kind.LOST_POSTFIX, (2, 3)),
        ((0, 1), (), Kind.LOST_EVERYTHING, (0, 1)),
    ],
)
def test_should_tell_where_the_log_lost_records(
    acknowledged: tuple[int, ...], kept: tuple[int, ...], kind: Kind, lost: tuple[int, ...]
) -> None:
    assert check(entries(*acknowledged), entries(*kept)) == [Finding(kind, entry) for entry in entries(*lost)]


def test_should_report_a_hole_as_a_loss_in_the_middle_and_a_gap() -> None:
    lost, next_kept = entries(1, 2)
    assert check(entries(0, 1, 2), entries(0, 2)) == [
        Finding(Kind.LOST_MIDDLE, lost),
        Finding(Kind.GAP, next_kept),
    ]


def test_should_report_a_record_at_another_offset_than_acknowledged() -> None:
    acknowledged = Entry(0, 0, b"a")
    assert check([acknowledged], [Entry(0, 1, b"a")]) == [Finding(Kind.MOVED, acknowledged)]


def test_should_report_other_bytes_at_an_acknowledged_offset_as_a_loss() -> None:
    acknowledged = Entry(0, 0, b"a")
    assert check([acknowledged], [Entry(0, 0, b"b")]) == [Finding(Kind.LOST_EVERYTHING, acknowledged)]


def test_should_judge_partitions_apart() -> None:
    acknowledged = [*entries(0, 1), *entries(0, 1, partition=1)]
    assert check(acknowledged, [*entries(0, 1), *entries(0, partition=1)]) == [
        Finding(Kind.LOST_POSTFIX, Entry(1, 1, b"1/1"))
    ]


def test_should_report_both_places_of_a_duplicate() -> None:
    final = [Entry(0, 0, b"a"), Entry(0, 1, b"a")]
    assert check(final[:1], final) == [Finding(Kind.DUPLICATE, entry) for entry in final]


def test_should_report_what_a_reader_saw_and_nobody_finds_again() -> None:
    seen = Entry(0, 1, b"seen")
    assert check(entries(0), entries(0), seen=[seen]) == [Finding(Kind.VANISHED, seen)]


def test_should_report_offsets_that_do_not_rise() -> None:
    first, second = entries(0, 1)
    assert check([], [second, first]) == [Finding(Kind.DISORDER, first)]

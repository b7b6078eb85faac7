"""The oracle finds each kind of wrong in histories made by hand, and nothing in good ones."""

from collections.abc import Sequence

import pytest

from tests.faults.history import History, Look, Outcome, Poll, Row, Write
from tests.faults.judge import Wrong, judge
from tests.support.history import Kind

HELD = b"bytes"


def write(number: int, offset: int = -1, **changes: object) -> Write:
    """Acknowledged at `offset`; -1: not."""
    told = Outcome.ACKNOWLEDGED if offset >= 0 else Outcome.UNKNOWN
    fields: dict[str, object] = {
        "writer": "w",
        "number": number,
        "partition": 0,
        "value": f"w-{number}".encode(),
        "began_s": float(number),
        "ended_s": number + 0.5,
        "outcome": told,
        "offset": offset,
    }
    return Write(**{**fields, **changes})  # type: ignore[arg-type]


def rows(*numbers: int, first: int = 0, epoch: int = 1) -> tuple[Row, ...]:
    """The values of these writes, at offsets that follow each other."""
    return tuple(Row(first + i, f"w-{number}".encode(), epoch) for i, number in enumerate(numbers))


def poll(given: Sequence[Row], high_watermark: int = -1, at_s: float = 0.0) -> Poll:
    return Poll("r", 0, at_s, tuple(given), high_watermark)


def kinds(history: History) -> list[str]:
    return [finding.kind for finding in judge(history).findings]


def good() -> History:
    final = rows(0, 1, 2)
    return History(
        writes=[write(0, 0), write(1), write(2, 2), write(3), write(4, outcome=Outcome.REFUSED)],
        polls=[poll(final[:1], 1, 0.1), poll(final[1:], 3, 0.3)],
        looks=[Look("r", 0, 0.2, 2), Look("r", 0, 0.4, 3)],
        final={0: final},
        replicas={0: {"a": {0: HELD, 2: HELD}, "b": {0: HELD, 2: HELD}}},
        idempotent=frozenset({"w"}),
        ends_reached={"r": (0,)},
    )


def test_should_find_nothing_when_every_promise_was_kept() -> None:
    report = judge(good())
    assert report.findings == ()
    assert (report.acknowledged, report.unknown, report.refused, report.read) == (2, 2, 1, 3)
    assert (report.lost, report.duplicated) == (0, 0)


@pytest.mark.parametrize(
    ("kept", "kind"),
    [
        (rows(1, 2, first=1), Kind.LOST_PREFIX),
        (rows(0, 1), Kind.LOST_POSTFIX),
        ((), Kind.LOST_EVERYTHING),
    ],
)
def test_should_count_a_loss_when_an_acknowledged_write_is_gone(kept: tuple[Row, ...], kind: Kind) -> None:
    report = judge(History(writes=[write(n, n) for n in range(3)], final={0: kept}))
    assert {finding.kind for finding in report.findings} == {kind}
    assert report.lost == 3 - len(kept)


def test_should_tell_a_hole_in_the_middle() -> None:
    kept = (*rows(0), *rows(2, first=2))
    assert Kind.LOST_MIDDLE in kinds(History(writes=[write(n, n) for n in range(3)], final={0: kept}))


def test_should_report_both_places_when_a_write_is_there_twice() -> None:
    report = judge(History(writes=[write(0, 0)], final={0: rows(0, 0)}))
    assert report.duplicated == 2


def test_should_report_an_unknown_write_that_is_there_twice() -> None:
    assert kinds(History(writes=[write(0)], final={0: rows(0, 0)})) == [Kind.DUPLICATE] * 2


def test_should_report_a_write_at_another_offset_than_acknowledged() -> None:
    assert Kind.MOVED in kinds(History(writes=[write(0, 1)], final={0: rows(0)}))


def test_should_report_a_refused_write_that_is_there() -> None:
    refused = write(0, outcome=Outcome.REFUSED, why="NotEnoughReplicas")
    assert kinds(History(writes=[refused], final={0: rows(0)})) == [Wrong.REFUSED_AND_THERE]


def test_should_report_what_a_reader_saw_and_nobody_finds_again() -> None:
    history = History(writes=[write(0, 0), write(1)], polls=[poll(rows(0, 1))], final={0: rows(0)})
    assert kinds(history) == [Kind.VANISHED]


def test_should_report_other_bytes_at_an_offset_that_a_reader_saw() -> None:
    history = History(writes=[write(0), write(1)], polls=[poll(rows(0))], final={0: rows(1)})
    assert kinds(history) == [Kind.VANISHED]


def test_should_report_writes_of_one_writer_in_another_order() -> None:
    assert kinds(History(writes=[write(0, 1), write(1, 0)], final={0: rows(1, 0)})) == [Wrong.ORDER]


def test_should_judge_the_order_of_unknown_writes_only_when_their_writer_numbers_them() -> None:
    history = History(writes=[write(0), write(1, 0)], final={0: rows(1, 0)})
    assert kinds(history) == []
    history.idempotent = frozenset({"w"})
    assert kinds(history) == [Wrong.ORDER]


def test_should_report_a_record_that_nobody_wrote() -> None:
    assert kinds(History(writes=[write(0, 0)], final={0: rows(0, 9)})) == [Wrong.NOBODY_WROTE]


def test_should_report_a_record_of_another_partition() -> None:
    history = History(writes=[write(0, 0), write(1, partition=1)], final={0: rows(0, 1), 1: ()})
    assert kinds(history) == [Wrong.ELSEWHERE]


def test_should_report_records_where_nobody_wrote_anything() -> None:
    assert kinds(History(final={0: rows(0)})) == [Wrong.NOBODY_WROTE]


def test_should_report_a_poll_that_skips_records() -> None:
    final = rows(0, 1, 2)
    history = History(writes=[write(n, n) for n in range(3)], final={0: final})
    history.polls = [poll(final[:1]), poll(final[2:])]
    assert kinds(history) == [Wrong.SKIPPED]


def test_should_report_a_reader_that_is_not_given_the_first_record() -> None:
    final = rows(0, 1, 2)
    history = History(writes=[write(n, n) for n in range(3)], final={0: final}, polls=[poll(final[1:])])
    assert kinds(history) == [Wrong.SKIPPED]


@pytest.mark.parametrize("polls", [[], [poll(rows(0, 1))]])
def test_should_report_a_reader_that_says_to_have_read_all_and_was_not_given_the_last_record(polls: list[Poll]) -> None:
    history = History(writes=[write(n, n) for n in range(3)], final={0: rows(0, 1, 2)}, polls=polls)
    assert kinds(history) == []
    history.ends_reached = {"r": (0,)}
    assert kinds(history) == [Wrong.UNREAD]


def test_should_take_a_skip_for_right_when_the_log_begins_there_by_now() -> None:
    final = rows(2, first=2)
    history = History(writes=[write(n, n) for n in range(3)], final={0: final}, starts={0: 2})
    history.polls = [poll(rows(0)), poll(final)]
    assert kinds(history) == []


def test_should_report_a_poll_that_goes_back() -> None:
    final = rows(0, 1)
    history = History(writes=[write(n, n) for n in range(2)], final={0: final}, polls=[poll(final), poll(final[1:])])
    assert kinds(history) == [Wrong.READ_TWICE]


def test_should_report_a_record_at_the_high_watermark() -> None:
    final = rows(0, 1)
    history = History(writes=[write(n, n) for n in range(2)], final={0: final}, polls=[poll(final, 1)])
    assert kinds(history) == [Wrong.DIRTY_READ]


@pytest.mark.parametrize(
    ("polls", "looks"),
    [
        ([poll((), 2, 0.1), poll((), 1, 0.2)], []),
        ([], [Look("r", 0, 0.1, 2), Look("r", 0, 0.2, 1)]),
        ([poll((), 2, 0.1)], [Look("r", 0, 0.2, 1)]),
    ],
)
def test_should_report_an_end_that_goes_back(polls: list[Poll], looks: list[Look]) -> None:
    history = History(writes=[write(0, 0), write(1, 1)], final={0: rows(0, 1)}, polls=polls, looks=looks)
    assert kinds(history) == [Wrong.WENT_BACK]


def test_should_not_compare_the_ends_that_two_readers_were_told() -> None:
    history = History(writes=[write(0, 0), write(1, 1)], final={0: rows(0, 1)})
    history.looks = [Look("a", 0, 0.1, 2), Look("b", 0, 0.2, 1)]
    assert kinds(history) == []


@pytest.mark.parametrize(("polls", "looks"), [([poll((), 3)], []), ([], [Look("r", 0, 0.1, 3)])])
def test_should_report_an_end_behind_which_records_vanished(polls: list[Poll], looks: list[Look]) -> None:
    history = History(writes=[write(0, 0), write(1, 1)], final={0: rows(0, 1)}, polls=polls, looks=looks)
    assert kinds(history) == [Wrong.END_VANISHED]


def test_should_find_ends_right_when_all_before_them_was_deleted() -> None:
    assert kinds(History(final={0: ()}, starts={0: 3}, looks=[Look("r", 0, 0.1, 3)])) == []


def test_should_report_a_record_whose_epoch_is_another_in_the_end() -> None:
    history = History(writes=[write(0, 0)], polls=[poll(rows(0, epoch=1))], final={0: rows(0, epoch=2)})
    assert kinds(history) == [Wrong.OTHER_EPOCH]


def test_should_report_epochs_that_fall() -> None:
    final = (*rows(0, epoch=2), *rows(1, first=1, epoch=1))
    history = History(writes=[write(0, 0), write(1, 1)], polls=[poll(final)], final={0: final})
    assert kinds(history) == [Wrong.EPOCH_FELL] * 2  # the reader saw it, and it stays so
    history.polls = []
    assert kinds(history) == [Wrong.EPOCH_FELL]


@pytest.mark.parametrize(
    "other", [{0: HELD, 2: b"other", 4: HELD}, {0: HELD, 4: HELD}, {0: HELD, 2: HELD, 3: HELD, 4: HELD}]
)
def test_should_report_replicas_that_differ(other: dict[int, bytes]) -> None:
    held = {0: HELD, 2: HELD, 4: HELD}
    assert kinds(History(replicas={0: {"a": held, "b": other}})) == [Wrong.REPLICAS_DIFFER]


def test_should_compare_from_where_both_replicas_begin() -> None:
    held = {0: HELD, 2: HELD, 4: HELD}
    assert kinds(History(replicas={0: {"a": held, "b": {2: HELD, 4: HELD}}})) == []


def test_should_report_a_replica_in_sync_that_ends_too_early() -> None:
    held = {0: HELD, 2: HELD, 4: HELD}
    assert kinds(History(replicas={0: {"a": held, "b": {0: HELD, 2: HELD}}})) == [Wrong.REPLICAS_DIFFER]


def test_should_report_replicas_that_hold_nothing() -> None:
    history = History(writes=[write(0, 0)], final={0: rows(0)}, replicas={0: {"a": {}, "b": {}}})
    assert kinds(history) == [Wrong.EMPTY_REPLICA] * 2
    history.replicas = {0: {"a": {0: HELD}, "b": {}}}
    assert kinds(history) == [Wrong.EMPTY_REPLICA, Wrong.REPLICAS_DIFFER]


def test_should_find_empty_replicas_right_when_nothing_can_be_read() -> None:
    assert kinds(History(final={0: ()}, replicas={0: {"a": {}, "b": {}}})) == []


def test_should_count_the_findings_of_each_kind() -> None:
    report = judge(History(writes=[write(n, n) for n in range(3)], final={0: rows(0, 0)}))
    assert report.kinds == {Kind.LOST_POSTFIX: 2, Kind.DUPLICATE: 2}
    assert len(report.findings) == 4

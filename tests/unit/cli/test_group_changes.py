"""What the options of `headrace group reset` mean, and what is refused of them."""

from datetime import UTC, datetime

import click
import pytest

from headrace.cli.group_changes import (
    OffsetMove,
    ResetTarget,
    check_offsets,
    move_table,
    moves,
    parse_offset,
    parse_target,
    reset_of,
)
from headrace.client.record import TopicPartition
from headrace.core.errors import LocalError
from headrace.core.groups.lag import Watermarks
from headrace.core.resources.consumer_group import ResetOffset, ResetOffsets, ResetTo
from headrace.core.types import Offset, PartitionId

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
ORDERS = ResetOffset("orders", PartitionId(0), Offset(12))


@pytest.mark.parametrize(
    ("text", "target", "start"),
    [
        ("earliest", ResetTarget(ResetTo.EARLIEST), "earliest"),
        ("Latest", ResetTarget(ResetTo.LATEST), "latest"),
        ("1h ago", ResetTarget(ResetTo.TIMESTAMP, 1_795_258_800_000), datetime(2026, 11, 21, 11, tzinfo=UTC)),
        (
            "2026-11-21T11:00:00.9Z",
            ResetTarget(ResetTo.TIMESTAMP, 1_795_258_800_000),
            datetime(2026, 11, 21, 11, tzinfo=UTC),
        ),
        ("1960-01-01", ResetTarget(ResetTo.TIMESTAMP, 0), datetime(1970, 1, 1, tzinfo=UTC)),
    ],
)
def test_should_say_where_to(text: str, target: ResetTarget, start: object) -> None:
    assert parse_target(text, NOW) == target
    assert target.start == start


@pytest.mark.parametrize(
    ("text", "says"),
    [("12", "give --offset TOPIC:PARTITION=OFFSET for each"), ("soon", "nor a time such as '1h ago'")],
)
def test_should_refuse_what_is_no_target(text: str, says: str) -> None:
    with pytest.raises(click.BadParameter, match=says):
        parse_target(text, NOW)


def test_should_read_an_offset_of_a_partition() -> None:
    assert parse_offset("orders:0=12") == ORDERS


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("orders=12", "is not TOPIC:PARTITION=OFFSET, for example orders:0=1200"),
        ("orders:0=-1", "is not TOPIC:PARTITION=OFFSET"),
        ("my_orders:0=1", "try my-orders"),
        ("orders:0=9223372036854775808", "numbers go up to 9223372036854775807"),
    ],
)
def test_should_refuse_what_is_no_offset(text: str, says: str) -> None:
    with pytest.raises(click.BadParameter, match=says):
        parse_offset(text)


def test_should_write_what_the_resource_takes() -> None:
    at = ResetTarget(ResetTo.TIMESTAMP, 1_795_258_800_000)
    reset = reset_of("replay-1", at, ["orders", "orders", "audit"], [])
    assert reset.to_object() == {
        "id": "replay-1",
        "to": "Timestamp",
        "timestamp": "2026-11-21T11:00:00Z",
        "topics": ["orders", "audit"],
    }
    assert ResetOffsets.parse(reset.to_object()) == reset
    for target in (None, ResetTarget(ResetTo.OFFSETS)):
        assert reset_of("replay-2", target, [], [ORDERS]) == ResetOffsets(
            "replay-2", ResetTo.OFFSETS, offsets=(ORDERS,)
        )


@pytest.mark.parametrize(
    ("target", "topics", "offsets", "says"),
    [
        (None, [], [], "Say where to"),
        (ResetTarget(ResetTo.OFFSETS), [], [], "--offset belongs to --to offsets"),
        (ResetTarget(ResetTo.LATEST), [], [ORDERS], "--offset belongs to --to offsets"),
        (None, ["orders"], [ORDERS], "exclude each other"),
        (None, [], [ORDERS, ORDERS], "names partition 0 of orders twice"),
    ],
)
def test_should_refuse_options_that_do_not_fit_together(
    target: ResetTarget | None, topics: list[str], offsets: list[ResetOffset], says: str
) -> None:
    with pytest.raises(click.UsageError, match=says):
        reset_of("x", target, topics, offsets)


@pytest.mark.parametrize(("start", "end", "is_fine"), [(0, 12, True), (12, 20, True), (0, 11, False), (13, 20, False)])
def test_should_refuse_offsets_that_could_not_be_read_next(start: int, end: int, is_fine: bool) -> None:
    marks = {TopicPartition("orders", 0): Watermarks(Offset(start), Offset(end))}
    if is_fine:
        check_offsets([ORDERS], marks)
        return
    with pytest.raises(LocalError, match=f"--offset orders:0=12: orders/0 has the offsets {start} to {end}"):
        check_offsets([ORDERS], marks)


def test_should_leave_to_the_operator_what_no_leader_tells() -> None:
    check_offsets([ORDERS], {TopicPartition("orders", 0): None})


def test_should_show_from_where_to_where() -> None:
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 10)
    found = moves({first: 7}, {second: 0, first: 3})
    assert found == [OffsetMove(first, 7, 3), OffsetMove(second, None, 0)]
    titles, rows = move_table(found)
    assert titles == ["TOPIC", "PARTITION", "FROM", "TO"]
    assert rows == [["orders", 0, 7, 3], ["orders", 10, "-", 0]]
    assert move_table(found, before="unknown")[1][1] == ["orders", 10, "unknown", 0]

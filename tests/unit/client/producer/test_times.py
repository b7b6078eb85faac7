"""Which times a producer warns of, and how often."""

import logging

import pytest

from headrace.client.producer.in_flight import TimeWarnings
from headrace.client.transport.metadata import TopicLayout
from headrace.core.records.arrow_message import RecordTimes, times_in

NOW_MS = 1_790_000_000_000


def layout(**said: object) -> TopicLayout:
    partitions = [{"partition": 0, "leader": None, "leaderEpoch": 0}]
    return TopicLayout.parse({"name": "flights", "uid": "u", "maxMessageBytes": 9, "partitions": partitions, **said}, 0)


def times(*times_ms: int) -> RecordTimes:
    return times_in(memoryview(b"".join(time_ms.to_bytes(8, "little") for time_ms in times_ms)))


def test_should_warn_once_and_sum_up_what_came_after(caplog: pytest.LogCaptureFixture) -> None:
    warnings, known = TimeWarnings(), layout(timestampType="CreateTime", retentionMs=86_400_000)
    with caplog.at_level(logging.WARNING, "headrace.client"):
        for _ in range(3):
            warnings.look(known, times(1, NOW_MS, NOW_MS + 7_200_000), NOW_MS)
        assert [record.getMessage().partition(" is ")[0] for record in caplog.records] == [
            "records for flights: 1 record",
            "records for flights: 1 record",
        ]
        caplog.clear()
        for _ in range(2):
            warnings.sum_up()
    assert [record.getMessage().partition(" are ")[0] for record in caplog.records] == [
        "records for flights in all: 3 records",
        "records for flights in all: 3 records",
    ]


@pytest.mark.parametrize(
    "known",
    [
        None,
        layout(),
        layout(timestampType="LogAppendTime", retentionMs=None),
        layout(timestampType="CreateTime", retentionMs=None),
    ],
)
def test_should_not_warn_of_old_records_where_they_are_kept_or_nothing_is_known(
    known: TopicLayout | None, caplog: pytest.LogCaptureFixture
) -> None:
    TimeWarnings().look(known, times(1), NOW_MS)
    assert not caplog.records

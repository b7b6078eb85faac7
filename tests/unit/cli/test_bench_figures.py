"""Figures and lines of the bench commands, beside what Kafka's own tools print for the same counts."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.bench_figures import (
    ConsumeFigures,
    ProduceFigures,
    consume_header,
    kafka_time,
    latency_lines,
    metric_lines,
    percentiles,
    wait_ms,
)

_MB = 1024 * 1024


def test_should_print_the_total_as_kafka_does() -> None:
    figures = ProduceFigures(started_ms=1_000)
    figures.add(3, 150, _MB, 1_500)
    figures.add(8, 50, _MB, 2_000)
    assert figures.total_line(3_000) == (
        "200 records sent, 100.000000 records/sec (1.00 MB/sec), 4.25 ms avg latency, 8.00 ms max latency,"
        " 3 ms 50th, 8 ms 95th, 8 ms 99th, 8 ms 99.9th."
    )


def test_should_print_zeros_when_nothing_was_sent_in_no_time() -> None:
    line = ProduceFigures(started_ms=5).total_line(5)
    assert line.startswith("0 records sent, 0.000000 records/sec (0.00 MB/sec), 0.00 ms avg latency")


def test_should_report_each_window_of_five_seconds_for_itself() -> None:
    figures = ProduceFigures(started_ms=0)
    assert figures.add(2, 10, _MB, 4_999) == []
    assert figures.add(4, 10, _MB, 5_000) == [
        "20 records sent, 4.0 records/sec (0.40 MB/sec), 3.0 ms avg latency, 4.0 ms max latency."
    ]
    (line,) = figures.add(1, 5, _MB, 10_000)
    assert line.startswith("5 records sent, 1.0 records/sec (0.20 MB/sec), 1.0 ms avg latency, 1.0 ms max")


def test_should_speak_of_the_steady_state_once_and_hold_its_tongue_about_the_rest() -> None:
    everything, steady = ProduceFigures(0, quiet=True), ProduceFigures(0, steady=True)
    assert everything.add(1, 10, 100, 6_000) == []
    first, second = (steady.add(1, 10, 100, now_ms) for now_ms in (6_000, 12_000))
    assert [first[0], len(first), len(second)] == ["In steady state.", 2, 1]
    assert steady.total_line(12_000).startswith("20 steady state records sent, ")


def test_should_print_what_was_consumed_as_kafka_does() -> None:
    assert consume_header(detailed=False) == (
        "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms,"
        " fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
    )
    assert consume_header(detailed=True).startswith("time, threadId, data.consumed.in.MB, ")
    figures = ConsumeFigures(started_ms=10_000)
    figures.add(300, 3 * _MB)
    start, end = kafka_time(10_000), kafka_time(12_000)
    expected = f"{start}, {end}, 3.0000, 1.5000, 300, 150.0000, 0, 2000, 1.5000, 150.0000"
    assert figures.total_line(12_000) == expected


def test_should_report_each_interval_for_itself_and_sums_beside_it() -> None:
    figures = ConsumeFigures(started_ms=0)
    figures.add(100, _MB)
    assert not figures.is_due(999, 1_000)
    assert figures.is_due(1_000, 1_000)
    figures.progress_line(1_000)
    figures.add(50, 2 * _MB)
    assert not figures.is_due(1_500, 1_000)
    expected = f"{kafka_time(1_500)}, 0, 3.0000, 4.0000, 150, 100.0000, 0, 500, 4.0000, 100.0000"
    assert figures.progress_line(1_500) == expected


def test_should_write_times_with_milliseconds_after_a_colon() -> None:
    assert kafka_time(1_700_000_000_007).endswith(":007")


def test_should_summarize_latencies_as_kafka_does() -> None:
    assert latency_lines([1_500_000, 2_500_000, 7_000_000]) == [
        "Avg latency: 3.6667 ms",
        "Percentiles: 50th = 2, 99th = 7, 99.9th = 7",
    ]


def test_should_align_metrics_in_alphabetical_order() -> None:
    assert metric_lines({"b:long": 2, "a": 1.5}) == ["", "Metric Name   Value", "a      : 1.500", "b:long : 2.000"]


@given(st.lists(st.integers(0, 50), max_size=200))
def test_should_take_percentiles_from_the_sorted_values(values: list[int]) -> None:
    wanted = (0.5, 0.95, 0.99, 0.999)
    expected = [sorted(values)[int(share * len(values))] if values else 0 for share in wanted]
    assert percentiles(Counter(values), wanted) == expected


@pytest.mark.parametrize(
    ("sent", "elapsed_ms", "throughput", "expected"), [(100, 0, -1, 0), (100, 50, 1_000, 50), (100, 150, 1_000, 0)]
)
def test_should_wait_only_while_it_is_ahead(sent: int, elapsed_ms: int, throughput: float, expected: float) -> None:
    assert wait_ms(sent, elapsed_ms, throughput) == expected

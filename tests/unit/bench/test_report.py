"""The tables of the bench: ratios are taken round by round, and to the shortest log."""

import pytest

from bench.behind import BehindRound
from bench.length import Lengths
from bench.report import render_behind, render_lengths, render_start_costs, render_starts, render_tail
from bench.start_costs import NOTHING
from bench.starts import Starts
from bench.tail import TailRound


def latencies(milliseconds: float) -> list[float]:
    return [milliseconds / 1000] * 100


def test_should_take_the_median_of_the_ratios_of_rounds() -> None:
    """The second round met a busy machine: both halves were slow, and the ratio is not."""
    rounds = [
        TailRound(alone=latencies(10), followed=latencies(11)),
        TailRound(alone=latencies(50), followed=latencies(60)),
        TailRound(alone=latencies(10), followed=latencies(13)),
    ]
    alone, followed = render_tail(rounds).splitlines()[-2:]
    assert [float(cell) for cell in alone.split()[1:]] == pytest.approx([10, 10])
    assert [float(cell) for cell in followed.split()[-4:]] == pytest.approx([13, 13, 1.2, 1.2])


def test_should_compare_a_consumer_that_waits_for_the_disk_with_one_that_does_not() -> None:
    rounds = [
        BehindRound(latencies(10), latencies(20), latencies(22), cached_rate=2**20, cold_rate=2**19),
        BehindRound(latencies(50), latencies(100), latencies(110), cached_rate=3 * 2**20, cold_rate=2**20),
        BehindRound(latencies(10), latencies(20), latencies(22), cached_rate=2 * 2**20, cold_rate=2**20),
    ]
    alone, cached, cold = render_behind(rounds).splitlines()[-3:]
    assert [float(cell) for cell in alone.split()[-2:]] == pytest.approx([10, 10])
    assert [float(cell) for cell in cached.split()[-4:]] == pytest.approx([20, 20, 2, 2])
    assert [float(cell) for cell in cold.split()[-5:]] == pytest.approx([22, 22, 2.2, 1.1, 1])


def test_should_compare_long_logs_with_the_shortest() -> None:
    sizes = (10**7, 10**9, 10**10)
    times = {"append": dict(zip(sizes, (0.001, 0.0011, 0.0012), strict=True))}
    lengths = Lengths(dict(zip(sizes, (1, 4, 40), strict=True)), 0.5, 0.6, dict.fromkeys(sizes, 0.002), times)
    title, _, head, append, opened, start = render_lengths(lengths).splitlines()
    assert title.endswith("in 1, 4, 40 segments")
    assert head.split() == ["10", "MB", "1", "GB", "10", "GB", "/", "10", "MB", "/", "10", "MB"]
    assert append.split()[1:] == ["1.000", "1.100", "1.200", "1.10", "1.20"]
    assert opened.split()[-5:] == ["2.000", "2.000", "2.000", "1.00", "1.00"]
    assert start.endswith("0.60 s, 0.50 s before they were written (1.20)")


def test_should_give_medians_of_starts() -> None:
    starts = Starts(1000, [0.5, 0.4, 9], [50 << 20] * 3, [1.5, 1.4, 9], [60 << 20] * 3)
    empty, full = render_starts(starts).splitlines()[-2:]
    assert empty.split() == ["empty", "0.50", "50"]
    assert full.split() == ["1,000", "partitions", "1.50", "60"]


def test_should_compare_starts_with_a_python_that_does_nothing() -> None:
    costs = {NOTHING: [0.01, 0.01, 0.03], "broker": [0.3, 0.9, 0.31]}
    nothing, broker = render_start_costs(costs).splitlines()[-2:]
    assert [float(cell) for cell in nothing.split()[-2:]] == pytest.approx([0.01, 1])
    assert [float(cell) for cell in broker.split()[-2:]] == pytest.approx([0.31, 31])

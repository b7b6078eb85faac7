"""The table of a producer beside a follower: ratios are taken round by round."""

import pytest

from bench.report import render_tail
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

"""Rounds of measurements in, a table for people out: medians, each as a ratio to the machine's own."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.tail import RATE, TailRound
from bench.workload import VALUE_BYTES

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Round:
    """What one round measured, by label. Every round has the same labels, in the order of the table."""

    machine_rates: Mapping[str, float]
    """Bytes per second."""
    rates: Mapping[str, float]
    """Records (of VALUE_BYTES) per second."""
    machine_times: Mapping[str, Sequence[float]]
    """Seconds, one per attempt."""
    times: Mapping[str, Sequence[float]]


def render(rounds: Sequence[Round]) -> str:
    """Throughput counts the bytes of values alone, so that headers and framing are a cost and not a merit."""
    lines = [*_throughput(rounds), "", *_latency(rounds)]
    return "\n".join([f"medians of {len(rounds)} rounds, records of {VALUE_BYTES} bytes, acks=all", "", *lines])


def render_tail(rounds: Sequence[TailRound]) -> str:
    """Medians of the halves, and the medians of the rounds' own ratios: what was slow for both halves cancels out."""
    lines = [
        f"{len(rounds)} rounds, {RATE:,} records of {VALUE_BYTES} bytes a second, acks=all, fsync",
        "",
        f"{'latency of a steady producer':<36}{'p50 ms':>10}{'p99 ms':>10}{'p50 / alone':>20}{'p99 / alone':>20}",
    ]
    alone, followed = [r.alone for r in rounds], [r.followed for r in rounds]
    figures = [_percentile(alone, percent) * 1000 for percent in (50, 99)]
    lines.append(f"{'alone':<36}" + "".join(f"{figure:>10.2f}" for figure in figures))
    figures = [_percentile(followed, percent) * 1000 for percent in (50, 99)]
    ratios = [
        statistics.median(_percentile([r.followed], percent) / _percentile([r.alone], percent) for r in rounds)
        for percent in (50, 99)
    ]
    row = "".join(f"{figure:>10.2f}" for figure in figures) + "".join(f"{ratio:>20.2f}" for ratio in ratios)
    return "\n".join([*lines, f"{'beside headrace consume --follow':<36}{row}"])


def _throughput(rounds: Sequence[Round]) -> list[str]:
    machine = {name: statistics.median(r.machine_rates[name] for r in rounds) for name in rounds[0].machine_rates}
    columns = "".join(f"{'of ' + name:>20}" for name in machine)
    lines = [f"{'throughput':<36}{'MiB/s':>10}{'records/s':>14}{columns}"]
    lines += [f"{name:<36}{rate / _MIB:>10,.0f}" for name, rate in machine.items()]
    for name in rounds[0].rates:
        records = statistics.median(r.rates[name] for r in rounds)
        ratios = "".join(f"{records * VALUE_BYTES / yardstick:>20.3f}" for yardstick in machine.values())
        lines.append(f"{name:<36}{records * VALUE_BYTES / _MIB:>10,.1f}{records:>14,.0f}{ratios}")
    return lines


def _latency(rounds: Sequence[Round]) -> list[str]:
    machine = {name: _percentile([r.machine_times[name] for r in rounds], 50) for name in rounds[0].machine_times}
    columns = "".join(f"{'p50 / ' + name:>28}" for name in machine)
    lines = [f"{'latency of one record':<36}{'p50 ms':>10}{'p99 ms':>10}{columns}"]
    lines += [f"{name:<36}{median * 1000:>10.3f}" for name, median in machine.items()]
    for name in rounds[0].times:
        attempts = [r.times[name] for r in rounds]
        median, high = (_percentile(attempts, percent) for percent in (50, 99))
        ratios = "".join(f"{median / yardstick:>28.1f}" for yardstick in machine.values())
        lines.append(f"{name:<36}{median * 1000:>10.3f}{high * 1000:>10.3f}{ratios}")
    return lines


def _percentile(rounds: Sequence[Sequence[float]], percent: int) -> float:
    """The median over the rounds of each round's percentile."""
    return statistics.median(statistics.quantiles(attempts, n=100)[percent - 1] for attempts in rounds)

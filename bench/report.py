"""Rounds of measurements in, a table for people out: medians, each as a ratio to the machine's own."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bench.behind import BehindRound
from bench.length import Lengths
from bench.start_costs import NOTHING, StartCosts
from bench.starts import Starts
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


def render_starts(starts: Starts) -> str:
    return "\n".join(
        [
            f"medians of {len(starts.empty_s)} starts after a clean stop, process start to ready",
            "",
            f"{'broker':<36}{'seconds':>10}{'RSS MiB':>10}",
            _start_row("empty", starts.empty_s, starts.empty_rss_bytes),
            _start_row(f"{starts.partitions:,} partitions", starts.full_s, starts.full_rss_bytes),
        ]
    )


def _start_row(what: str, seconds: Sequence[float], rss_bytes: Sequence[int]) -> str:
    return f"{what:<36}{statistics.median(seconds):>10.2f}{statistics.median(rss_bytes) / _MIB:>10.0f}"


def render_start_costs(costs: StartCosts) -> str:
    """Medians, each as a ratio to a Python that does nothing."""
    nothing = statistics.median(costs[NOTHING])
    lines = [
        f"medians of {len(costs[NOTHING])}, in processor seconds, byte code at hand",
        "",
        f"{'until ready, or to the end':<46}{'seconds':>10}{f'/ {NOTHING}':>20}",
    ]
    for what, seconds in costs.items():
        median = statistics.median(seconds)
        lines.append(f"{what:<46}{median:>10.3f}{median / nothing:>20.0f}")
    return "\n".join(lines)


def render_lengths(lengths: Lengths) -> str:
    """Each figure as a ratio to that of the shortest log, in the same run."""
    shortest, *longer = lengths.segments
    columns = "".join(f"{f'/ {_size(shortest)}':>12}" for _ in longer)
    lines = [
        f"medians in ms by length of one partition's log, in {_enumerated(lengths.segments.values())} segments",
        "",
        f"{'':<36}" + "".join(f"{_size(size):>10}" for size in lengths.segments) + columns,
    ]
    rows = {**lengths.times, "open the log alone": lengths.open_s}
    for what, times in rows.items():
        ratios = "".join(f"{times[size] / times[shortest]:>12.2f}" for size in longer)
        lines.append(f"{what:<36}" + "".join(f"{time * 1000:>10.3f}" for time in times.values()) + ratios)
    start = f"{lengths.full_start_s:.2f} s, {lengths.empty_start_s:.2f} s before they were written"
    ratio = lengths.full_start_s / lengths.empty_start_s
    lines.append(f"broker with all of these, clean stop to ready: {start} ({ratio:.2f})")
    return "\n".join(lines)


def _enumerated(counts: Iterable[int]) -> str:
    return ", ".join(str(count) for count in counts)


def _size(size: int) -> str:
    return f"{size // 10**9} GB" if size >= 10**9 else f"{size // 10**6} MB"


def render_behind(rounds: Sequence[BehindRound]) -> str:
    """Medians of the rounds, and the medians of the rounds' own ratios."""
    alone, cached, cold = ([getattr(r, name) for r in rounds] for name in ("alone", "cached", "cold"))
    titles = f"{'p50 ms':>10}{'p99 ms':>10}{'p99 / alone':>14}{'p99 / in memory':>18}{'read MiB/s':>12}"
    return "\n".join(
        [
            f"{len(rounds)} rounds, {RATE:,} records of {VALUE_BYTES} bytes a second, acks=all, replicated",
            "",
            f"{'latency of a steady producer':<46}{titles}",
            f"{'alone':<46}{_percentiles(alone)}",
            f"{'beside a consumer that reads from memory':<46}{_percentiles(cached)}{_p99_ratio(cached, alone):>14.2f}"
            f"{'':>18}{_rate([r.cached_rate for r in rounds])}",
            f"{'beside a consumer that reads from disk':<46}{_percentiles(cold)}{_p99_ratio(cold, alone):>14.2f}"
            f"{_p99_ratio(cold, cached):>18.2f}{_rate([r.cold_rate for r in rounds])}",
        ]
    )


def _percentiles(times: Sequence[Sequence[float]]) -> str:
    return "".join(f"{_percentile(times, percent) * 1000:>10.2f}" for percent in (50, 99))


def _p99_ratio(times: Sequence[Sequence[float]], others: Sequence[Sequence[float]]) -> float:
    pairs = zip(times, others, strict=True)
    return statistics.median(_percentile([each], 99) / _percentile([other], 99) for each, other in pairs)


def _rate(bytes_per_second: Sequence[float]) -> str:
    return f"{statistics.median(bytes_per_second) / _MIB:>12,.0f}"


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

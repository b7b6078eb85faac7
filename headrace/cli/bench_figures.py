"""The figures that the bench commands count and print: the very lines of Kafka's own performance tools, for comparison.

The forms are those of Kafka 4.1's ProducerPerformance, ConsumerPerformance and EndToEndLatency: latencies in whole
milliseconds, MB of 1024 * 1024 bytes. Latencies are counted by millisecond, so memory does not grow with the number of
records and percentiles are exact. Pure: all times come in, in milliseconds of a clock that never goes back unless they
are called wall time.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

_MB = 1024 * 1024
_WINDOW_MS = 5_000
_CONSUME_FIELDS = (
    "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec,"
    " rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)


@dataclass(slots=True)
class _Tally:
    since_ms: int
    records: int = 0
    size_bytes: int = 0
    latency_ms: int = 0
    """The latency of all these records together."""
    latency_ms_max: int = 0

    def add(self, latency_ms: int, records: int, size_bytes: int) -> None:
        self.records += records
        self.size_bytes += size_bytes
        self.latency_ms += latency_ms * records
        self.latency_ms_max = max(self.latency_ms_max, latency_ms)

    def rates(self, now_ms: int) -> tuple[float, float]:
        """Return records per second and MB per second."""
        return per_second(self.records, now_ms - self.since_ms), per_second(
            self.size_bytes, now_ms - self.since_ms
        ) / _MB

    @property
    def latency_ms_average(self) -> float:
        return self.latency_ms / self.records if self.records else 0.0


@dataclass(slots=True)
class ProduceFigures:
    """The figures of the records that were acknowledged since `started_ms`. `steady`: these are the ones after the
    warm-up."""

    started_ms: int
    steady: bool = False
    quiet: bool = False
    """True where no lines are printed meanwhile: those of the steady state are printed instead."""
    failed: int = 0
    _total: _Tally = field(init=False)
    _window: _Tally = field(init=False)
    _latencies: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._total, self._window = _Tally(self.started_ms), _Tally(self.started_ms)

    @property
    def records(self) -> int:
        return self._total.records

    @property
    def size_bytes(self) -> int:
        return self._total.size_bytes

    def add(self, latency_ms: int, records: int, size_bytes: int, now_ms: int) -> list[str]:
        """Count records that arrived together; return the lines to print where a reporting interval is over."""
        self._total.add(latency_ms, records, size_bytes)
        self._window.add(latency_ms, records, size_bytes)
        self._latencies[latency_ms] += records
        if now_ms - self._window.since_ms < _WINDOW_MS:
            return []
        lines = [] if self.quiet else [self._window_line(now_ms)]
        if self.steady and self._total.records == self._window.records:
            lines.insert(0, "In steady state.")
        self._window = _Tally(now_ms)
        return lines

    def total_line(self, now_ms: int) -> str:
        rate, mb_rate = self._total.rates(now_ms)
        middle, high, higher, highest = percentiles(self._latencies, (0.5, 0.95, 0.99, 0.999))
        return (
            f"{self.records}{' steady state' if self.steady else ''} records sent, {rate:f} records/sec"
            f" ({mb_rate:.2f} MB/sec), {self._total.latency_ms_average:.2f} ms avg latency,"
            f" {self._total.latency_ms_max:.2f} ms max latency, {middle} ms 50th, {high} ms 95th, {higher} ms 99th,"
            f" {highest} ms 99.9th."
        )

    def _window_line(self, now_ms: int) -> str:
        rate, mb_rate = self._window.rates(now_ms)
        return (
            f"{self._window.records} records sent, {rate:.1f} records/sec ({mb_rate:.2f} MB/sec),"
            f" {self._window.latency_ms_average:.1f} ms avg latency, {self._window.latency_ms_max:.1f} ms max latency."
        )


@dataclass(slots=True)
class ConsumeFigures:
    """The figures of the records that were read since `started_ms` (wall time); no rebalance happens, so its time is
    always 0."""

    started_ms: int
    records: int = 0
    size_bytes: int = 0
    _reported_ms: int = field(init=False)
    _reported_records: int = 0
    _reported_bytes: int = 0

    def __post_init__(self) -> None:
        self._reported_ms = self.started_ms

    def add(self, records: int, size_bytes: int) -> None:
        self.records += records
        self.size_bytes += size_bytes

    def is_due(self, now_ms: int, interval_ms: int) -> bool:
        return now_ms - self._reported_ms >= interval_ms

    def progress_line(self, now_ms: int) -> str:
        """Return the line for the time since the last such line; with --show-detailed-stats."""
        elapsed_ms = now_ms - self._reported_ms
        mb_rate = per_second(self.size_bytes - self._reported_bytes, elapsed_ms) / _MB
        rate = per_second(self.records - self._reported_records, elapsed_ms)
        self._reported_ms, self._reported_records, self._reported_bytes = now_ms, self.records, self.size_bytes
        return (
            f"{kafka_time(now_ms)}, 0, {self.size_bytes / _MB:.4f}, {mb_rate:.4f}, {self.records}, {rate:.4f},"
            f" 0, {elapsed_ms}, {mb_rate:.4f}, {rate:.4f}"
        )

    def total_line(self, now_ms: int) -> str:
        elapsed_ms = now_ms - self.started_ms
        mb_rate, rate = per_second(self.size_bytes, elapsed_ms) / _MB, per_second(self.records, elapsed_ms)
        return (
            f"{kafka_time(self.started_ms)}, {kafka_time(now_ms)}, {self.size_bytes / _MB:.4f}, {mb_rate:.4f},"
            f" {self.records}, {rate:.4f}, 0, {elapsed_ms}, {mb_rate:.4f}, {rate:.4f}"
        )


def consume_header(*, detailed: bool) -> str:
    return f"{'time, threadId' if detailed else 'start.time, end.time'}, {_CONSUME_FIELDS}"


def latency_lines(times_ns: Sequence[int]) -> list[str]:
    """Return the summary of an end-to-end run: `times_ns` of every record, one at least."""
    average_ms = sum(times_ns) / len(times_ns) / 1_000_000
    middle, high, highest = percentiles(Counter(time // 1_000_000 for time in times_ns), (0.5, 0.99, 0.999))
    return [
        f"Avg latency: {average_ms:.4f} ms",
        f"Percentiles: 50th = {middle}, 99th = {high}, 99.9th = {highest}",
    ]


def metric_lines(metrics: Mapping[str, float]) -> list[str]:
    """Return the table of --print-metrics, in alphabetical order."""
    width = max(map(len, metrics))
    rows = [f"{name:<{width}} : {value:.3f}" for name, value in sorted(metrics.items())]
    return ["", f"{'Metric Name':<{width}}   Value", *rows]


def percentiles(counted: Counter[int], wanted: Sequence[float]) -> list[int]:
    """Return the value at each share of the sorted values, in rising order of `wanted`; 0 where there are no values."""
    total = counted.total()
    values = iter(sorted(counted.items()))
    found, value, below = [], 0, 0
    for share in wanted:
        while total and below <= int(share * total):
            value, count = next(values)
            below += count
        found.append(value)
    return found


def wait_ms(sent: int, elapsed_ms: float, throughput: float) -> float:
    """Return how long to wait so that no more than `throughput` records a second are sent; below 0 there is no
    limit."""
    return 0.0 if throughput < 0 else max(0.0, sent * 1000 / throughput - elapsed_ms)


def per_second(amount: float, elapsed_ms: int) -> float:
    """Return a rate; a time of less than a millisecond counts as one."""
    return 1000.0 * amount / max(1, elapsed_ms)


def kafka_time(wall_ms: int) -> str:
    """Return a local time as `2026-11-21 09:30:00:123`."""
    seconds, milliseconds = divmod(wall_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC).astimezone():%Y-%m-%d %H:%M:%S}:{milliseconds:03d}"

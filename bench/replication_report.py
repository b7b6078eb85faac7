"""The tables about replication. Pure."""

import statistics
from collections.abc import Mapping, Sequence

from bench.failover import Failovers
from bench.partitions import Partitions
from bench.replication import REPLICAS, YARDSTICK, ReplicationRound
from bench.workload import VALUE_BYTES
from headrace.core.limits import LEASE_DURATION_MS

_RATIO_WANTED = 0.35
_KILLED_S_WANTED = 1.5
_SILENT_S_WANTED = LEASE_DURATION_MS / 1000 + 1
_IDLE_WANTED = 0.10
_FAILOVER_S_WANTED = 5.0
_FEW, _MANY = REPLICAS


def render_replication(rounds: Sequence[ReplicationRound]) -> str:
    """Medians of the rounds, and the medians of the rounds' own ratios: what was slow for both halves cancels out."""
    titles = "".join(f"{f'{replicas} replica' + 's' * (replicas > 1):>14}" for replicas in REPLICAS)
    lines = [
        f"medians of {len(rounds)} rounds, records of {VALUE_BYTES} bytes, acks=all, three brokers",
        "",
        f"{'produced records/s':<36}{titles}{'ratio':>10}{'wanted':>10}",
        *(_rate(label, rounds) for label in rounds[0].rates),
        "",
        f"{'latency of one record, p50 ms':<36}{titles}{'ratio':>10}",
        *(_time(label, rounds) for label in rounds[0].times),
    ]
    return "\n".join(lines)


def _rate(label: str, rounds: Sequence[ReplicationRound]) -> str:
    figures = [each.rates[label] for each in rounds]
    cells = "".join(f"{_median(figures, replicas):>14,.0f}" for replicas in REPLICAS)
    ratio = statistics.median(figure[_MANY] / figure[_FEW] for figure in figures)
    return f"{label:<36}{cells}{ratio:>10.2f}" + ("" if label == YARDSTICK else f"{f'>= {_RATIO_WANTED}':>10}")


def _time(label: str, rounds: Sequence[ReplicationRound]) -> str:
    figures = [{replicas: statistics.median(times) for replicas, times in each.times[label].items()} for each in rounds]
    cells = "".join(f"{_median(figures, replicas) * 1000:>14.2f}" for replicas in REPLICAS)
    return f"{label:<36}{cells}{statistics.median(f[_MANY] / f[_FEW] for f in figures):>10.2f}"


def _median(figures: Sequence[Mapping[int, float]], replicas: int) -> float:
    return statistics.median(figure[replicas] for figure in figures)


def render_failovers(failovers: Failovers) -> str:
    lines = [
        f"{'a leader of three replicas is':<36}{'times':>10}{'median s':>10}{'worst s':>10}{'wanted':>10}",
        _stalls("killed", failovers.killed, _KILLED_S_WANTED),
    ]
    if failovers.silent:
        lines.append(_stalls("silent (SIGSTOP)", failovers.silent, _SILENT_S_WANTED))
    return "\n".join(["longest time without an acknowledgement, acks=all", "", *lines])


def _stalls(what: str, seconds: Sequence[float], wanted: float) -> str:
    median, worst = statistics.median(seconds), max(seconds)
    return f"{what:<36}{len(seconds):>10}{median:>10.2f}{worst:>10.2f}{f'<= {wanted:g}':>10}"


def render_partitions(found: Partitions) -> str:
    copies = f"{found.replicas} replica" + "s" * (found.replicas > 1)
    lines = [
        f"{found.partitions:,} partitions of {copies} on three brokers",
        "",
        f"{'':<56}{'s':>10}{'wanted':>10}",
        f"{'headrace dev, clean stop to all in sync':<56}{found.start_s:>10.2f}",
        f"{f'broker killed: other leaders for its {found.led:,}':<56}{found.elected_s:>10.2f}{_at_most_s()}",
        f"{'broker killed: a record acknowledged in each of them':<56}{found.served_s:>10.2f}{_at_most_s()}",
        "",
        f"{'CPU without traffic':<56}{'of a core':>10}{'wanted':>10}",
        *(f"{name:<56}{share:>10.1%}" for name, share in sorted(found.idle.items())),
        f"{'all':<56}{sum(found.idle.values()):>10.1%}{f'<= {_IDLE_WANTED:.0%}':>10}",
    ]
    return "\n".join(lines)


def _at_most_s() -> str:
    return f"{f'<= {_FAILOVER_S_WANTED:g}':>10}"

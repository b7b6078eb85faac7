"""What was measured, and its medians. Pure."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Measured:
    """One case in one round."""

    records: int
    seconds: float
    p50_ms: float | None
    """None where the client did not wait for each record."""
    p99_ms: float | None
    client_cpu_s: float
    """Of its whole process, the start of its runtime and what it did before counting included."""
    client_peak_bytes: int
    broker_cpu_s: float
    broker_peak_bytes: int


@dataclass(frozen=True, slots=True)
class Idle:
    """A process that has nothing to do."""

    resident_bytes: int
    cpu_share: float
    """Of one core."""


@dataclass(frozen=True, slots=True)
class Started:
    """A broker that has been started again, and what it takes at rest."""

    ready_s: float
    acknowledged_s: float
    idle: Idle


class Figure(StrEnum):
    RATE = "records/s"
    P50 = "p50 ms"
    P99 = "p99 ms"


Rounds = Sequence[Mapping[str, Measured]]


def median(rounds: Rounds, case: str, figure: Figure) -> float:
    return statistics.median(_value(measured[case], figure) for measured in rounds)


def _value(measured: Measured, figure: Figure) -> float:
    if figure is Figure.RATE:
        return measured.records / measured.seconds
    value = measured.p50_ms if figure is Figure.P50 else measured.p99_ms
    assert value is not None, "this client waits for each record"
    return value


def medians(rounds: Rounds, case: str) -> Measured:
    """Each of its figures for itself."""
    all_of_it = [measured[case] for measured in rounds]
    return Measured(
        records=all_of_it[0].records,
        seconds=statistics.median(each.seconds for each in all_of_it),
        p50_ms=_median_or_none([each.p50_ms for each in all_of_it]),
        p99_ms=_median_or_none([each.p99_ms for each in all_of_it]),
        client_cpu_s=statistics.median(each.client_cpu_s for each in all_of_it),
        client_peak_bytes=int(statistics.median(each.client_peak_bytes for each in all_of_it)),
        broker_cpu_s=statistics.median(each.broker_cpu_s for each in all_of_it),
        broker_peak_bytes=int(statistics.median(each.broker_peak_bytes for each in all_of_it)),
    )


def _median_or_none(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def peak_bytes(rounds: Rounds, cases: Sequence[str]) -> float:
    """The most that a broker took in any of these cases: the median over the rounds."""
    return statistics.median(max(measured[case].broker_peak_bytes for case in cases) for measured in rounds)

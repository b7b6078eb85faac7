"""The comparison as Markdown, and as plain data for other programs. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.peers.cases import Case, Size, cases
from bench.peers.figures import Figure, Idle, Measured, Rounds, Started, medians
from bench.peers.job import Work
from bench.peers.tables import table
from bench.peers.targets import Outcome, outcomes, server_outcomes

_MIB = 1 << 20
_MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class Results:
    rounds: Rounds
    size: Size
    kafka: Started
    headrace: Started
    operator: Idle
    machine: Mapping[str, str]
    """What to know about the machine and the programs, by name."""


def as_json(results: Results) -> dict[str, Any]:
    """Everything, each round for itself."""
    found = [*outcomes(results.rounds), *server_outcomes(results.rounds, results.kafka, results.headrace)]
    return {
        "machine": dict(results.machine),
        "rounds": [{case: asdict(measured) for case, measured in one.items()} for one in results.rounds],
        "atRest": {
            "kafka": asdict(results.kafka),
            "headrace": asdict(results.headrace),
            "operator": asdict(results.operator),
        },
        "targets": [{**asdict(each), "ratio": each.ratio, "met": each.is_met} for each in found],
    }


def as_markdown(results: Results) -> str:
    found = [*outcomes(results.rounds), *server_outcomes(results.rounds, results.kafka, results.headrace)]
    parts = [
        _machine(results),
        _targets(found),
        _bulk_table(results.rounds),
        _waiting_table(results.rounds),
        _rest_table(results),
        _settings_table(),
    ]
    return "\n\n".join(parts) + "\n"


def _machine(results: Results) -> str:
    rounds = len(results.rounds)
    lines = [f"Medians of {rounds} {'round' if rounds == 1 else 'rounds'}, on this machine:", ""]
    return "\n".join([*lines, *(f"- {name}: {value}" for name, value in results.machine.items())])


def _targets(found: Sequence[Outcome]) -> str:
    rows = [
        (
            outcome.label,
            outcome.beside,
            _amount(outcome.ours, outcome.unit),
            _amount(outcome.theirs, outcome.unit),
            f"{outcome.ratio:.2f}",
            f"{'≥' if outcome.at_least else '≤'} {outcome.bound:.2g}",
            "yes" if outcome.is_met else "**no**",
        )
        for outcome in found
    ]
    head = ("work", "beside (the better of its settings)", "Headrace", "peer", "ratio", "wanted", "met")
    return "#### Ratios\n\n" + table(head, rows)


def _amount(value: float, unit: str) -> str:
    if unit == "bytes":
        return f"{value / _MIB:,.0f} MiB"
    return (
        f"{value:,.0f} {unit}"
        if unit == Figure.RATE
        else f"{value:.2f} {unit.removeprefix('p50 ').removeprefix('p99 ')}"
    )


def _bulk_table(rounds: Rounds) -> str:
    head = (
        *("work", "client", "settings", "records/s", "MiB/s"),
        *("client CPU, µs/record", "broker CPU, µs/record", "client RSS", "broker RSS"),
    )
    rows = [
        _bulk_row(case, medians(rounds, case.key))
        for case in _cases(Work.PRODUCE, Work.CONSUME, Work.PRODUCE_REPLICATED)
    ]
    return "#### Throughput\n\n" + table(head, rows)


def _bulk_row(case: Case, measured: Measured) -> tuple[str, ...]:
    rate = measured.records / measured.seconds
    return (
        f"{case.work}, {_size(case.value_bytes)}",
        case.client,
        case.how,
        f"{rate:,.0f}",
        f"{rate * case.value_bytes / _MIB:,.0f}",
        f"{measured.client_cpu_s / measured.records * _MICROSECONDS:.2f}",
        f"{measured.broker_cpu_s / measured.records * _MICROSECONDS:.2f}",
        f"{measured.client_peak_bytes / _MIB:,.0f} MiB",
        f"{measured.broker_peak_bytes / _MIB:,.0f} MiB",
    )


def _waiting_table(rounds: Rounds) -> str:
    head = ("work", "client", "how", "p50 ms", "p99 ms", "records/s")
    rows = []
    for case in _cases(Work.ROUND_TRIP, Work.MANY_PRODUCERS):
        measured = medians(rounds, case.key)
        rate = f"{measured.records / measured.seconds:,.0f}"
        times = (f"{measured.p50_ms or 0:.2f}", f"{measured.p99_ms or 0:.2f}")
        rows.append((f"{case.work}, {_size(case.value_bytes)}", case.client, case.how, *times, rate))
    return "#### Records that are waited for\n\n" + table(head, rows)


def _rest_table(results: Results) -> str:
    head = ("process", "start to ready", "start to first acknowledged record", "RSS, idle", "CPU, idle")
    rows = [
        (name, f"{started.ready_s:.2f} s", f"{started.acknowledged_s:.2f} s", *_idle(started.idle))
        for name, started in (("Kafka, broker and controller", results.kafka), ("Headrace, broker", results.headrace))
    ]
    rows.append(("Headrace, operator (one for all brokers)", "", "", *_idle(results.operator)))
    return "#### Start and rest\n\n" + table(head, rows)


def _idle(idle: Idle) -> tuple[str, str]:
    return f"{idle.resident_bytes / _MIB:,.0f} MiB", f"{idle.cpu_share:.1%} of a core"


def _settings_table() -> str:
    """What differs from each client's defaults; that the SDK sends columns is how, and no setting."""
    seen = {(case.client, case.work, case.how): case.settings for case in _cases(*Work)}
    rows = [
        (client, work, how, ", ".join(f"`{name}={value}`" for name, value in settings.items() if name != "columns"))
        for (client, work, how), settings in seen.items()
        if settings.keys() - {"columns"}
    ]
    return "#### Settings that are not a client's defaults\n\n" + table(("client", "work", "how", "settings"), rows)


def _cases(*works: Work) -> list[Case]:
    return [case for group in cases() for case in group if case.work in works]


def _size(value_bytes: int) -> str:
    return "1 kB" if value_bytes == 1024 else f"{value_bytes} B"

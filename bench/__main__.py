"""`python -m bench [--short] [--rounds N] [--only SECTION]`."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import click

from bench import (
    behind,
    failover,
    groups,
    interpreter,
    length,
    machine,
    partitions,
    replication,
    sdk,
    start_costs,
    starts,
    tail,
)
from bench.dev_broker import dev_broker
from bench.groups_report import render_groups
from bench.raw import RawClient
from bench.replication_report import render_failovers, render_partitions, render_replication
from bench.report import Round, render, render_behind, render_lengths, render_start_costs, render_starts, render_tail
from bench.sizes import FULL, SHORT, Size
from bench.workload import BATCH_RECORDS, VALUE_BYTES, Batch, batch, values
from headrace.http2.blocking_transport import BlockingTransport

_MIB = 1 << 20
T = TypeVar("T")
_DURABILITIES = ("Fsync", "Replicated")


SECTIONS = ("speed", "tail", "starts", "length", "behind", "replication", "failover", "partitions", "groups")
_TAIL_TOPIC = "bench-tail"
_START_PARTITIONS = 1_000


@click.command()
@click.option("--short", is_flag=True, help="A quick look: a fraction of the data.")
@click.option("--rounds", type=click.IntRange(min=3), default=3, show_default=True)
@click.option("--only", type=click.Choice(SECTIONS), help="One section alone.")
def main(*, short: bool, rounds: int, only: str | None) -> None:
    """Measure produce, fetch and latency beside what the machine can do; what a follower, and one far behind, costs the
    producers of a topic; starts; what the length of a log costs; replication: what three copies cost, how long
    producers wait when a leader dies, and what a thousand partitions take; and consumer groups: joins, moves, commits.
    """
    size = SHORT if short else FULL
    sections: dict[str, Callable[[], str]] = {
        "speed": lambda: _measure_speed(size, rounds),
        "tail": lambda: _measure_tail(size),
        "starts": lambda: _in_folder(lambda folder: _measure_starts(folder, size)),
        "length": lambda: _in_folder(
            lambda folder: render_lengths(length.measure(folder, size.log_bytes, size.requests, size.starts))
        ),
        "behind": lambda: _in_folder(lambda folder: _measure_behind(folder, size)),
        "replication": lambda: render_replication(replication.measure(rounds, size.replication, batch(BATCH_RECORDS))),
        "failover": lambda: render_failovers(failover.measure(size.kills, size.silences)),
        "partitions": lambda: render_partitions(
            partitions.measure(size.partitions, replication.REPLICAS[-1], size.rest_s)
        ),
        "groups": lambda: render_groups(groups.measure(size.groups)),
    }
    click.echo(f"{interpreter.described()}\n")
    for name, measure in sections.items():
        if only in (None, name):
            click.echo(f"measuring: {name}", err=True)
            click.echo(f"{measure()}\n")


def _in_folder(measure: Callable[[Path], str]) -> str:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        return measure(Path(folder))


def _one_value() -> bytes:
    value: bytes = values(1).to_pylist()[0]
    return value


def _measure_starts(folder: Path, size: Size) -> str:
    of_broker = render_starts(starts.measure(folder, _START_PARTITIONS, size.starts))
    costs = render_start_costs(start_costs.measure(folder / "costs", size.starts))
    return f"{of_broker}\n\n{costs}"


def _measure_behind(folder: Path, size: Size) -> str:
    rounds = behind.measure(folder, size.behind_bytes, size.behind_rounds, size.behind_s, _one_value())
    return render_behind(rounds)


def _measure_tail(size: Size) -> str:
    with dev_broker([(_TAIL_TOPIC, "Fsync")]) as (server, _):
        tail.measure(server, _TAIL_TOPIC, _one_value(), SHORT.tail_s)  # warms up; not counted
        tails = []
        for number in range(1, size.tail_rounds + 1):
            click.echo(f"round {number} of {size.tail_rounds} beside a follower", err=True)
            tails.append(tail.measure(server, _TAIL_TOPIC, _one_value(), size.tail_s))
    return render_tail(tails)


def _measure_speed(size: Size, rounds: int) -> str:
    topics = [(_topic(number, durability), durability) for number in range(rounds + 1) for durability in _DURABILITIES]
    with dev_broker(topics) as (server, folder), BlockingTransport() as transport:
        bench = _Bench(server, folder, transport, size)
        bench.round(0, SHORT)  # warms up page cache, allocators and connections; not counted
        measured = []
        for number in range(1, rounds + 1):
            click.echo(f"round {number} of {rounds}", err=True)
            measured.append(bench.round(number, size))
    return render(measured)


def _topic(number: int, durability: str) -> str:
    return f"bench-{durability.lower()}-{number}"


class _Bench:
    def __init__(self, server: str, folder: Path, transport: BlockingTransport, size: Size) -> None:
        self._server = server
        self._folder = folder
        self._transport = transport
        self._batch = batch(BATCH_RECORDS)
        self._single: Batch = batch(1)
        self._column = values(size.sdk_records)
        self._values: list[bytes] = self._column.slice(0, size.single_records).to_pylist()

    def round(self, number: int, size: Size) -> Round:
        moved = size.raw_batches * BATCH_RECORDS * VALUE_BYTES
        total = max(1, moved // _MIB) * _MIB
        measured = [
            (durability.lower(), self._measure(_topic(number, durability), size)) for durability in _DURABILITIES
        ]
        return Round(
            machine_rates={
                "loopback copy": machine.loopback_copy(total),
                "file append": machine.file_append(self._folder, total, sync=False),
            },
            rates=_interleaved([(durability, rates) for durability, (rates, _) in measured]),
            machine_times={
                "loopback round trip": machine.round_trip_times(size.latency_records),
                "1 KiB + fdatasync": machine.sync_times(self._folder, size.latency_records),
            },
            times=_interleaved([(durability, times) for durability, (_, times) in measured]),
        )

    def _measure(self, topic: str, size: Size) -> tuple[dict[str, float], dict[str, list[float]]]:
        """Rates and times by what was done, in the order in which they make sense: a fetch needs what was produced."""
        raw = RawClient(self._transport, self._server, topic)
        rates = {
            "produce, raw transport": raw.produce(self._batch, size.raw_batches),
            "fetch, raw transport": raw.fetch(),
            "fetch, SDK batches": sdk.read_batches(self._server, topic),
            "fetch, SDK records": sdk.read_records(self._server, topic, size.single_records),
            "produce, SDK send_batch": sdk.send_batch(self._server, topic, self._column),
            "produce, SDK send": sdk.send(self._server, topic, self._values),
        }
        times = {
            "raw transport": raw.produce_times(self._single, size.latency_records),
            "SDK": sdk.send_times(self._server, topic, size.latency_records, self._values[0]),
        }
        return rates, times


def _interleaved(by_durability: Sequence[tuple[str, Mapping[str, T]]]) -> dict[str, T]:
    """`what, durability` -> figure, the durabilities of one thing below each other."""
    _, first = by_durability[0]
    return {f"{what}, {durability}": figures[what] for what in first for durability, figures in by_durability}


if __name__ == "__main__":
    main()

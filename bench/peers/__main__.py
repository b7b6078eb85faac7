"""`python -m bench.peers [--short] [--rounds N] [--only PART] [--into PAGE] [--json FILE]`."""

import json
import os
import platform
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click
import confluent_kafka
import pyarrow as pa
import pyspark

from bench import interpreter
from bench.peers.cases import (
    FULL,
    HEADRACE_REPLICATED_TOPICS,
    HEADRACE_TOPICS,
    KAFKA_REPLICATED_TOPICS,
    KAFKA_TOPICS,
    LARGE_BYTES,
    REPLICAS,
    SHORT,
    SMALL_BYTES,
    Size,
    replicated_cases,
    single_cases,
)
from bench.peers.errors import PeersError
from bench.peers.figures import Idle, Measured, Started
from bench.peers.headrace_dev import Headrace, running_headrace
from bench.peers.kafka import Kafka, running_kafka
from bench.peers.maven import kafka_classpath
from bench.peers.measuring import Bench, Scene
from bench.peers.pages import put_into
from bench.peers.parts import Parts
from bench.peers.processes import Server
from bench.peers.report import Results
from bench.peers.spark import cases as spark_cases
from bench.peers.spark import figures as spark_figures
from bench.peers.spark import running
from bench.peers.spark.report import SparkResults

_PAYLOADS = 10_000
_REST_TOPIC = "rest"
_RESTARTS, _RESTARTS_SHORT = 3, 1
_SETTLE_S, _SETTLE_SHORT_S = 10.0, 2.0
_REST_S = 5.0


@click.command()
@click.option("--short", is_flag=True, help="A quick look: one round of a fraction of the data, and no warm-up.")
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True, help="That are counted.")
@click.option("--only", type=click.Choice(("clients", "spark")), help="One part instead of both.")
@click.option(
    "--into",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Put the tables into this page, between its marks.",
)
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write everything that was measured there.")
def main(*, short: bool, rounds: int, only: str | None, into: Path | None, json_file: Path | None) -> None:
    """Kafka 4.1, its Java clients, confluent-kafka and Spark's source beside Headrace: the same work, in turns."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # Servers go, too, and their folders.
    if into is not None and only is not None:
        raise click.UsageError("--into puts the tables of both parts into a page: leave out --only")
    rounds = 1 if short else rounds
    try:
        if into is not None:
            put_into(into.read_text(), "")  # A page that cannot take the tables is told before minutes have passed.
        parts = Parts(
            None if only == "spark" else _measure(short=short, rounds=rounds),
            None if only == "clients" else _measure_spark(short=short, rounds=rounds),
        )
    except PeersError as error:
        raise click.ClickException(str(error)) from error
    if json_file is not None:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_text(json.dumps(parts.as_json(), indent=2) + "\n")
    if into is not None:
        into.write_text(put_into(into.read_text(), parts.as_markdown()))
    click.echo(parts.as_markdown(), nl=False)


def _measure_spark(*, short: bool, rounds: int) -> SparkResults:
    size = spark_cases.SHORT if short else spark_cases.FULL
    with tempfile.TemporaryDirectory(prefix="headrace-bench-peers-") as name:
        measured = running.measure(_payloads(Path(name))[SMALL_BYTES], size, rounds, _say)
    return SparkResults(spark_figures.Rounds(measured), size, {**_machine(kafka_classpath()), **_spark()})


def _spark() -> dict[str, str]:
    """The source's own version may differ from Spark's: Maven Central is not always as far as PyPI."""
    source = next(Path(jar).stem for jar in running.spark_jars() if "sql-kafka" in jar)
    return {"Spark": f"{pyspark.__version__}, local[{spark_cases.THREADS}], one session; {source}"}


def _measure(*, short: bool, rounds: int) -> Results:
    classpath, size = kafka_classpath(), SHORT if short else FULL
    numbers = range(1 if short else 0, rounds + 1)
    with tempfile.TemporaryDirectory(prefix="headrace-bench-peers-") as name:
        look = _Look(classpath, Path(name), _payloads(Path(name)), numbers, size)
        single, kafka_started, headrace_started, operator = look.single(short=short)
        replicated = look.replicated()
    measured = [{**one, **three} for one, three in zip(single, replicated, strict=True)]
    counted = measured if short else measured[1:]  # The first one warms up the servers.
    return Results(counted, size, kafka_started, headrace_started, operator, _machine(classpath))


@dataclass(frozen=True, slots=True)
class _Look:
    classpath: str
    folder: Path
    payloads: Mapping[int, Path]
    numbers: range
    """Of rounds; 0 is one that warms up."""
    size: Size

    def single(self, *, short: bool) -> tuple[list[dict[str, Measured]], Started, Started, Idle]:
        """Rounds of one broker each; how it starts, and what Kafka, Headrace and our operator take at rest."""
        scene = Scene(single_cases(), KAFKA_TOPICS, HEADRACE_TOPICS)
        topics = {_REST_TOPIC: "Replicated", **scene.headrace_topics_of(self.numbers)}
        with running_kafka(self.classpath) as kafka, running_headrace(topics) as headrace:
            kafka.create_topics({_REST_TOPIC: {}})
            restarts = _RESTARTS_SHORT if short else _RESTARTS
            starts = [_restarted(system, restarts) for system in (kafka, headrace)]
            time.sleep(_SETTLE_SHORT_S if short else _SETTLE_S)
            idle = [_idle(server) for server in (*kafka.servers, *headrace.servers, headrace.operator())]
            rounds = self._rounds(scene, kafka, headrace)
        return rounds, Started(*starts[0], idle[0]), Started(*starts[1], idle[1]), idle[2]

    def replicated(self) -> list[dict[str, Measured]]:
        """Rounds of three brokers each."""
        scene = Scene(replicated_cases(), KAFKA_REPLICATED_TOPICS, HEADRACE_REPLICATED_TOPICS)
        topics = scene.headrace_topics_of(self.numbers)
        with running_kafka(self.classpath, REPLICAS) as kafka, running_headrace(topics, REPLICAS) as headrace:
            return self._rounds(scene, kafka, headrace)

    def _rounds(self, scene: Scene, kafka: Kafka, headrace: Headrace) -> list[dict[str, Measured]]:
        bench = Bench(scene, kafka, headrace, self.classpath, self.folder, self.payloads)
        return [bench.round(number, SHORT if number == 0 else self.size, _say) for number in self.numbers]


def _restarted(system: Kafka | Headrace, restarts: int) -> tuple[float, float]:
    """Seconds to ready and to the first acknowledged record: medians of some restarts."""
    starts = []
    for number in range(1, restarts + 1):
        _say(f"start {number} of {type(system).__name__}")
        starts.append(system.restart(_REST_TOPIC))
    ready, acknowledged = zip(*((start.ready_s, start.acknowledged_s) for start in starts), strict=True)
    return statistics.median(ready), statistics.median(acknowledged)


def _idle(server: Server) -> Idle:
    before = server.cpu_s()
    time.sleep(_REST_S)
    return Idle(server.resident_bytes(), (server.cpu_s() - before) / _REST_S)


def _payloads(folder: Path) -> dict[int, Path]:
    """Files of random letters, one value a line: all clients send the same."""
    chance, letters = random.Random(0), bytes(ord("A") + value % 26 for value in range(256))
    files = {}
    for size in (SMALL_BYTES, LARGE_BYTES):
        files[size] = folder / f"payloads-{size}"
        files[size].write_bytes(b"".join(chance.randbytes(size).translate(letters) + b"\n" for _ in range(_PAYLOADS)))
    return files


def _machine(classpath: str) -> dict[str, str]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    java = subprocess.run(["java", "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    kafka = next(Path(jar).stem for jar in classpath.split(os.pathsep) if Path(jar).stem.startswith("kafka_2"))
    return {
        "processors": f"{os.cpu_count()} x {_processor()}",
        "memory": f"{memory / (1 << 30):.0f} GiB",
        "system": f"{platform.system()} {platform.release()}, {platform.freedesktop_os_release()['PRETTY_NAME']}",
        "Kafka": f"{kafka} on {java}, each node broker and controller in one process, its own scripts' JVM options",
        "confluent-kafka": f"{confluent_kafka.__version__}, librdkafka {confluent_kafka.libversion()[0]}",
        "Headrace": f"brokers under `headrace dev`, {interpreter.described()}, pyarrow {pa.__version__}",
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _say(text: str) -> None:
    click.echo(text, err=True)


if __name__ == "__main__":
    main()

"""Kafka's Java clients: command lines of Kafka's own performance tools, and what their output says.

The tools know the work of produce and consume; where each record is waited for, `Waiting.java` does it, which the JDK
compiles at its start.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.peers.errors import PeersError
from bench.peers.job import PRODUCERS, Answer, Job, Work

# kafka-producer-perf-test.sh, kafka-consumer-perf-test.sh and kafka-run-class.sh of Kafka 4.1.
CLIENT_JVM = (
    *("-Xmx512M", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35"),
    *("-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"),
)
_WAITING = Path(__file__).with_name("Waiting.java")
_PRODUCED = re.compile(r"^(\d+) records sent, ([0-9.]+) records/sec", re.MULTILINE)
_RECORDS_COLUMN, _FETCH_MS_COLUMN = 4, 7


def command(job: Job, classpath: str, folder: Path) -> list[str]:
    """`folder` takes the file of settings that a consumer wants."""
    java = ["java", *CLIENT_JVM, "-cp", classpath]
    if job.work in (Work.PRODUCE, Work.PRODUCE_REPLICATED):
        return [*java, "org.apache.kafka.tools.ProducerPerformance", *_producer_options(job)]
    if job.work is Work.CONSUME:
        return [*java, "org.apache.kafka.tools.ConsumerPerformance", *_consumer_options(job, folder)]
    producers = PRODUCERS if job.work is Work.MANY_PRODUCERS else 1
    return [*java, str(_WAITING), job.topic, job.payloads, str(job.records), str(producers), *_properties(job)]


def _producer_options(job: Job) -> list[str]:
    """From a file: the tool makes random letters for every record otherwise, which takes longer than to send them."""
    options = ["--topic", job.topic, "--num-records", str(job.records), "--throughput", "-1"]
    return [*options, "--payload-file", job.payloads, "--producer-props", *_properties(job)]


def _consumer_options(job: Job, folder: Path) -> list[str]:
    options = ["--bootstrap-server", job.server, "--topic", job.topic, "--messages", str(job.records), "--hide-header"]
    settings = dict(job.settings)
    if "max.partition.fetch.bytes" in settings:  # The tool has a flag of its own for it, whose default wins otherwise.
        options += ["--fetch-size", str(settings.pop("max.partition.fetch.bytes"))]
    file = folder / "consumer.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return [*options, "--consumer.config", str(file)]


def _properties(job: Job) -> list[str]:
    properties: Mapping[str, Any] = {"bootstrap.servers": job.server, **job.settings}
    return [f"{name}={value}" for name, value in properties.items()]


def parse(work: Work, output: str) -> Answer:
    """Raises PeersError for anything but the figures."""
    if work in (Work.PRODUCE, Work.PRODUCE_REPLICATED):
        return _parse_produced(output)
    return _parse_consumed(output) if work is Work.CONSUME else Answer.parse(output)


def _parse_produced(output: str) -> Answer:
    """The last line is of all records; those before are of five seconds each."""
    found = _PRODUCED.findall(output)
    if not found:
        raise PeersError(f"ProducerPerformance gave no figures:\n{output[-500:]}")
    records, rate = found[-1]
    return Answer(int(records), int(records) / float(rate))


def _parse_consumed(output: str) -> Answer:
    """The time without that of joining the group, as the tool counts it."""
    cells = [cell.strip() for cell in output.strip().splitlines()[-1].split(",")] if output.strip() else []
    if len(cells) <= _FETCH_MS_COLUMN:
        raise PeersError(f"ConsumerPerformance gave no figures:\n{output[-500:]}")
    return Answer(int(cells[_RECORDS_COLUMN]), int(cells[_FETCH_MS_COLUMN]) / 1000)

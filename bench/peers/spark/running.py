"""Both servers, filled with the same records, and the process of the session: its lines as they come."""

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyspark

from bench.dev_cluster import BenchTopic, dev_cluster
from bench.peers.cases import CONFLUENT_BULK_PRODUCER
from bench.peers.errors import PeersError
from bench.peers.headrace_dev import Headrace
from bench.peers.job import Job, Work
from bench.peers.kafka import Kafka, running_kafka
from bench.peers.maven import kafka_classpath, spark_source_jars
from bench.peers.processes import run
from bench.peers.spark.cases import BROKERS, PARTITIONS, Size
from bench.peers.spark.job import RECORDS_TOPIC, WARM_TOPIC, WRITTEN_TOPIC, Measured, SparkJob, ticks_topic
from headrace import Producer

_TIMEOUT_S = 2 * 3600.0
_SAID_MAX = 3_000
_ROOT = Path(__file__).parents[3]
_TICKS = (1, PARTITIONS)

Say = Callable[[str], None]


def spark_jars() -> list[str]:
    return spark_source_jars((Path(pyspark.__file__).parent / "jars").glob("*.jar"))


def measure(payloads: Path, size: Size, rounds: int, say: Say) -> list[Measured]:
    """Raises PeersError where a server, a client or a query fails."""
    jars, names = spark_jars(), _filled(size)
    wanted = [BenchTopic(name, "Replicated", PARTITIONS) for name in (*names, WRITTEN_TOPIC)]
    wanted += [BenchTopic(ticks_topic(count), "Replicated", count) for count in _TICKS]
    with (
        tempfile.TemporaryDirectory(prefix="headrace-bench-spark-") as folder,
        running_kafka(kafka_classpath()) as kafka,
        dev_cluster(wanted, BROKERS) as cluster,
    ):
        headrace = Headrace(cluster.url(), cluster.home)
        kafka.create_topics({name: {} for name in (*names, WRITTEN_TOPIC)}, PARTITIONS)
        for name, records in names.items():
            say(f"spark: {records:,} records to topic {name}")
            _fill(kafka, headrace, payloads, name, records)
        _tick(headrace, size.triggers)
        job = SparkJob(
            headrace=headrace.address,
            kafka=kafka.address,
            payloads=str(payloads),
            folder=folder,
            jars=jars,
            headrace_pids=[each.pid for each in headrace.servers],
            kafka_pids=[each.pid for each in kafka.servers],
            rounds=rounds,
            size=size,
        )
        return _answered(job, Path(folder) / "session.log", say)


def _filled(size: Size) -> dict[str, int]:
    topics = {RECORDS_TOPIC: size.records, WARM_TOPIC: size.warm_records}
    return {name: records for name, records in topics.items() if records}


def _fill(kafka: Kafka, headrace: Headrace, payloads: Path, topic: str, records: int) -> None:
    """Each by the client that is fastest."""
    clients: Mapping[str, tuple[str, Mapping[str, object]]] = {
        "bench.peers.confluent_client": (kafka.address, CONFLUENT_BULK_PRODUCER),
        "bench.peers.headrace_client": (headrace.address, {"columns": True}),
    }
    for module, (address, settings) in clients.items():
        job = Job(Work.PRODUCE, address, topic, str(payloads), records, settings)
        run([sys.executable, "-m", module, job.to_argument()], dict(os.environ))


def _tick(headrace: Headrace, triggers: int) -> None:
    with Producer(headrace.address) as producer:
        for partitions in _TICKS:
            for partition in range(partitions):
                for _ in range(triggers):
                    producer.send(ticks_topic(partitions), b"tick", partition=partition)


def _answered(job: SparkJob, log: Path, say: Say) -> list[Measured]:
    found = []
    with _session(job, log) as lines:
        for line in lines:
            measured = Measured.parse(line)
            rate = measured.rows / measured.seconds
            say(f"spark: round {measured.round}: {measured.case}: {measured.seconds:.1f} s, {rate:,.0f} rows/s")
            found.append(measured)
    return found


@contextmanager
def _session(job: SparkJob, log: Path) -> Iterator[Iterator[str]]:
    """What its process says, line by line; what it complains of is in the log."""
    command = [sys.executable, "-m", "bench.peers.spark.session", job.to_argument()]
    path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))  # For Spark's Python workers.
    environment = {**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}
    with (
        log.open("wb") as complaints,
        subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=complaints, text=True
        ) as process,
    ):
        assert process.stdout is not None, "it is a pipe"
        watchdog = threading.Timer(_TIMEOUT_S, process.kill)
        watchdog.start()
        try:
            yield (line for line in process.stdout if line.startswith("{"))  # The JVM has its own to say there.
        except BaseException:
            process.terminate()
            raise
        finally:
            process.wait()
            watchdog.cancel()
    if process.returncode != 0:
        raise PeersError(f"the Spark session failed:\n{log.read_text(errors='replace')[-_SAID_MAX:]}")

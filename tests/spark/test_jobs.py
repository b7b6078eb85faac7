"""The jobs in examples/spark, run as their users run them: programs of their own, real records, real brokers."""

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow.dataset as ds
import pytest

from headrace import Consumer, Producer
from tests.support.cluster import Cluster, http, running_cluster
from tests.support.consumed import values_in
from tests.support.patience import patient
from tests.support.spark_bench import SHORT_LIVED, SparkBench
from tests.support.tools import kubectl_path
from tests.support.waiting import wait_for

JOBS = Path(__file__).parents[2] / "examples" / "spark"


_SMALL = """
spark.master local[2]
spark.ui.enabled false
spark.ui.showConsoleProgress false
spark.sql.shuffle.partitions 2
spark.sql.codegen.wholeStage false
"""
"""For a little data; where a job runs is never in the job."""


def configured(folder: Path) -> Path:
    """Where Spark finds it."""
    directory = folder / "conf"
    directory.mkdir(exist_ok=True)
    (directory / "spark-defaults.conf").write_text(_SMALL)
    return directory


def run_job(name: str, folder: Path, *arguments: str, server: str = "", kubeconfig: Path | None = None) -> str:
    """What it says."""
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(kubectl_path()).parent), f"{sys.prefix}/bin", os.environ["PATH"]]),
        "HEADRACE_SERVER": server,
        "KUBECONFIG": str(kubeconfig),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JDK_JAVA_OPTIONS": SHORT_LIVED,
        "SPARK_CONF_DIR": str(configured(folder)),
        "PYSPARK_PYTHON": sys.executable,
    }
    done = subprocess.run(
        [sys.executable, str(JOBS / name), *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=patient(240),
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.timeout(300)
def test_should_count_words(bench: SparkBench) -> None:
    for name in ("lines", "words"):
        bench.cluster.create_topic(name, partitions=2)
    with Producer(bench.server) as producer:
        for line in ("to be or not to be", "that is the question", "to be"):
            producer.send("lines", line)
    said = run_job("wordcount.py", bench.folder, server=bench.server)
    shown = [line.strip("|").split("|") for line in said.splitlines() if line.startswith("|")]
    expected = {"to": 3, "be": 3, **dict.fromkeys(["or", "not", "that", "is", "the", "question"], 1)}
    assert {word.strip(): count.strip() for word, count in shown[1:]} == {word: str(n) for word, n in expected.items()}
    with Consumer("words", server=bench.server) as consumer:
        written = [
            ((record.key or b"").decode(), int(record.value or b"")) for record in consumer.records(follow=False)
        ]
    assert sorted(written) == sorted(expected.items())


def first_flights(count: int) -> list[tuple[bytes | None, bytes]]:
    """Key and value, as `make demo` writes them: some without a delay, in the order of days and not of hours."""
    demo = runpy.run_path(str(JOBS.parent / "flights" / "demo.py"))
    return list(islice(demo["read_flights"](), count))


@pytest.mark.timeout(300)
def test_should_tell_how_late_flights_leave(bench: SparkBench) -> None:
    bench.create(0, 0)
    bench.create(0, topic="delays")
    flights = first_flights(3_500)
    with Producer(bench.server) as producer:
        for key, value in flights:
            producer.send(bench.topic, value, key)
    paths = ["--checkpoint", "state", "--parquet", "windows", "--picture", "delays.svg"]
    said = run_job("flights_delays.py", bench.folder, "--topic", bench.topic, *paths, server=bench.server)
    assert "drawn: delays.svg" in said

    expected = windows_of([json.loads(value) for _, value in flights], lateness=timedelta(days=1))
    told = [json.loads(value) for value in values_in(bench.server, "delays")]
    assert [as_window(row) for row in sorted(told, key=lambda row: row["hour"])] == expected
    rows = ds.dataset(bench.folder / "windows", format="parquet").to_table().sort_by("hour").to_pylist()
    assert [as_window(row) for row in rows] == expected
    assert hours_drawn(bench.folder / "delays.svg") == hours_of_new_york([hour for hour, *_ in expected])


Window = tuple[datetime, int, int, float]
"""Hour, flights, those that left, minutes that these were late."""


def windows_of(flights: Sequence[Mapping[str, Any]], lateness: timedelta) -> list[Window]:
    """Of the hours that are final."""
    delays: dict[datetime, list[float | None]] = defaultdict(list)
    for flight in flights:
        delays[datetime.fromisoformat(flight["time_hour"])].append(flight["dep_delay"])
    seen = max(delays) - lateness
    windows = []
    for hour in sorted(each for each in delays if each + timedelta(hours=1) <= seen):
        left = [delay for delay in delays[hour] if delay is not None]
        windows.append((hour, len(delays[hour]), len(left), float(sum(left))))
    assert len(windows) > 24, "there are days to look at"
    return windows


def as_window(row: Mapping[str, Any]) -> Window:
    hour = datetime.fromisoformat(row["hour"]) if isinstance(row["hour"], str) else row["hour"]
    return hour.replace(tzinfo=UTC), row["flights"], row["departed"], row["delay"]


def hours_of_new_york(hours: Iterable[datetime]) -> list[str]:
    """In winter."""
    return [str(hour) for hour in sorted({(each - timedelta(hours=5)).hour for each in hours})]


def hours_drawn(path: Path) -> list[str]:
    return [str(each.text) for each in ElementTree.parse(path).getroot() if each.get("y") == "214"]


ORDERS = "/v1/namespaces/default/topics/orders"


@dataclass(frozen=True)
class Uneven:
    """Three brokers in two zones, each leads two partitions of `orders`; one leads the two that are busy."""

    cluster: Cluster
    weights: Sequence[int]
    """How much is written to each partition, beside the others."""

    def leaders(self) -> list[int]:
        topic = http("GET", f"{self.cluster.url()}{ORDERS}").json
        return [each["leader"]["id"] if each["leader"] else -1 for each in topic["partitions"]]

    def written(self) -> dict[int, float]:
        """Bytes that each broker has taken for `orders`, by its own account."""
        return {broker: bytes_in(http("GET", f"{self.cluster.url(broker)}/metrics").body) for broker in range(3)}

    def skew(self) -> float:
        """Of what comes from now on, once enough has come."""
        before = self.written()

        def grown() -> dict[int, float]:
            return {broker: bytes_ - before[broker] for broker, bytes_ in self.written().items()}

        wait_for(lambda: sum(grown().values()) > 2_000_000, "there is load", timeout_s=60)
        loads = grown().values()
        return max(loads) * 3 / sum(loads)


def bytes_in(metrics: bytes) -> float:
    lines = metrics.decode().splitlines()
    own = [line for line in lines if line.startswith("headrace_broker_bytes_in_total{") and 'topic="orders"' in line]
    return sum(float(line.rpartition(" ")[2]) for line in own)


@pytest.fixture
def uneven(tmp_path: Path) -> Iterator[Uneven]:
    with running_cluster(tmp_path / "cluster", brokers=0) as cluster:
        for broker, zone in enumerate("aab"):
            cluster.start_broker(broker, "--zone", zone, ready=False)
        for broker in range(3):
            cluster.wait_ready(cluster.broker(broker))
        cluster.create_topic("orders", partitions=6, replicas=3)
        cluster.create_topic("cluster-load")
        leaders = Uneven(cluster, ()).leaders()
        assert sorted(leaders) == [0, 0, 1, 1, 2, 2]
        uneven = Uneven(cluster, [6 if leader == leaders[0] else 1 for leader in leaders])
        load = [sys.executable, "-c", _LOAD, cluster.url(), json.dumps(uneven.weights)]
        with subprocess.Popen(load, stdin=subprocess.DEVNULL) as writing:
            try:
                yield uneven
                assert writing.poll() is None, "it writes to the end"
            finally:
                writing.kill()


_LOAD = """
import json, sys
from headrace import Consumer, Producer
with Producer(sys.argv[1]) as producer:
    while True:
        for partition, weight in enumerate(json.loads(sys.argv[2])):
            for _ in range(weight):
                producer.send("orders", b"x" * 4000, partition=partition)
        producer.flush()
"""


@pytest.mark.timeout(400)
def test_should_propose_leaders_that_share_the_load(uneven: Uneven, tmp_path: Path) -> None:
    assert uneven.skew() > 2
    busy = uneven.leaders()[0]
    server = uneven.cluster.url()
    arguments = ["--server", server, "--topic", "orders", "--interval", "4", "--apply"]
    said = run_job("cluster_load.py", tmp_path, *arguments, kubeconfig=uneven.cluster.kubeconfig)
    found = re.search(r"^skew (\S+) now, (\S+) after (\d) moves$", said, re.MULTILINE)
    assert found, said
    # Two partitions of weight 6 and four of 1: 12 of 16 by one of three brokers, then 6.
    assert float(found[1]) == pytest.approx(12 * 3 / 16, rel=0.15)
    assert float(found[2]) == pytest.approx(6 * 3 / 16, rel=0.15)

    command = re.search(r"^kubectl annotate topic orders -n default --overwrite (.+)$", said, re.MULTILINE)
    assert command, said
    (annotation,) = shlex.split(command[1])
    wanted = json.loads(annotation.removeprefix("headrace.io/preferred-leaders="))
    wait_for(lambda: uneven.leaders() == [wanted[each] for each in "012345"], "the operator did it", timeout_s=90)
    assert uneven.skew() < 1.3

    told = [json.loads(value) for value in values_in(server, "cluster-load")]
    by_level = {level: [each for each in told if each["level"] == level] for level in ("partition", "broker", "zone")}
    assert sum(map(len, by_level.values())) == len(told)
    assert {each["zone"] for each in by_level["zone"]} == {"a", "b"}
    (busiest,) = [each for each in by_level["broker"] if each["broker"] == busy]
    assert busiest["skew"] == pytest.approx(float(found[1]), rel=0.1)
    orders = {each["partition"]: each for each in by_level["partition"] if each["topic"] == "orders"}
    total, weight = sum(each["records_in"] for each in orders.values()), sum(uneven.weights)
    for partition, each in orders.items():
        assert each["records_in"] / total == pytest.approx(uneven.weights[partition] / weight, rel=0.25)
        assert each["bytes_in"] > 4000 * each["records_in"] * 0.75

"""The jobs in examples/spark, run as their users run them: programs of their own, real records, real brokers."""

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree

import pyarrow.dataset as ds
import pytest

from headrace import Producer
from tests.support.cluster import Cluster, http, running_cluster
from tests.support.consumed import values_in
from tests.support.spark_bench import SHORT_LIVED, SparkBench
from tests.support.tools import kubectl_path
from tests.support.waiting import wait_for

JOBS = Path(__file__).parents[2] / "examples" / "spark"


def run_job(name: str, folder: Path, *arguments: str, server: str = "", kubeconfig: Path | None = None) -> str:
    """What it says."""
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(kubectl_path()).parent), f"{sys.prefix}/bin", os.environ["PATH"]]),
        "HEADRACE_SERVER": server,
        "KUBECONFIG": str(kubeconfig),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JDK_JAVA_OPTIONS": SHORT_LIVED,
        "PYSPARK_PYTHON": sys.executable,
    }
    done = subprocess.run(
        [sys.executable, str(JOBS / name), *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
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
    assert "|  be|    3|" in "".join(said.split("\n", 5)[:6]) or "|      be|    3|" in said
    counted = sorted(map(int, values_in(bench.server, "words")))
    assert counted == [1, 1, 1, 1, 1, 1, 3, 3]


def flights_of_two_days() -> list[dict[str, str | float | None]]:
    """Of different hours, some without a delay, out of order within the day."""
    begin = datetime(2013, 1, 1, tzinfo=UTC)
    made = []
    for number in range(2_000):
        hour = begin + timedelta(hours=(number * 7) % 24 + 24 * (number // 1_000))
        delay = None if number % 50 == 0 else float(number % 90 - 10)
        flight = {
            "origin": "JFK",
            "carrier": "UA",
            "dep_delay": delay,
            "time_hour": hour.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        made.append(flight)
    return made


@pytest.mark.timeout(300)
def test_should_tell_how_late_flights_leave(bench: SparkBench) -> None:
    bench.create(0, 0)
    bench.create(0, topic="delays")
    made = flights_of_two_days()
    last = {**made[0], "time_hour": "2013-01-10T00:00:00Z"}
    with Producer(bench.server) as producer:
        for flight in [*made, last]:
            producer.send(bench.topic, json.dumps(flight))
    paths = ["--checkpoint", "state", "--parquet", "windows", "--picture", "delays.svg", "--lateness", "2 days"]
    said = run_job("flights_delays.py", bench.folder, "--topic", bench.topic, *paths, server=bench.server)
    assert "drawn: delays.svg" in said

    expected: dict[str, list[float]] = defaultdict(list)
    for flight in made:
        expected[str(flight["time_hour"])].append(
            0.0 if flight["dep_delay"] is None else float(str(flight["dep_delay"]))
        )
    written = {row["hour"]: row for row in map(json.loads, values_in(bench.server, "delays"))}
    assert {hour.replace(".000Z", "Z") for hour in written} == set(expected), (
        "each window once, the last one is not final"
    )
    for hour, row in written.items():
        delays = expected[hour.replace(".000Z", "Z")]
        assert (row["flights"], row["delay"]) == (len(delays), sum(delays))
    assert len(values_in(bench.server, "delays")) == len(expected)
    rows = ds.dataset(bench.folder / "windows", format="parquet").to_table()
    assert sum(rows.column("flights").to_pylist()) == len(made)
    bars = ElementTree.parse(bench.folder / "delays.svg").getroot()
    assert len([each for each in bars.iter() if each.tag.endswith("rect")]) == 25


@pytest.fixture
def uneven(tmp_path: Path) -> Iterator[Cluster]:
    """Three brokers, of which one leads all of `orders`."""
    with running_cluster(tmp_path / "cluster", brokers=3) as cluster:
        cluster.create_topic("orders", partitions=6, replicas=3)
        cluster.create_topic("cluster-load")
        annotation = {"headrace.io/preferred-leaders": json.dumps(dict.fromkeys("012345", 0))}
        path = "/apis/headrace.io/v1alpha1/namespaces/default/topics/orders"
        cluster.kube("PATCH", path, {"metadata": {"annotations": annotation}})
        wait_for(lambda: leaders(cluster) == [0] * 6, "broker 0 leads all", timeout_s=90)
        yield cluster


def leaders(cluster: Cluster) -> list[int | None]:
    topic = http("GET", f"{cluster.url()}/v1/namespaces/default/topics/orders").json
    return [each["leader"] and each["leader"]["id"] for each in topic["partitions"]]


@pytest.mark.timeout(400)
def test_should_propose_leaders_that_share_the_load(uneven: Cluster, tmp_path: Path) -> None:
    load = ["bench", "produce", "orders", "--num-records", "1000000", "--record-size", "100", "--throughput", "3000"]
    environment = {**os.environ, "HEADRACE_SERVER": uneven.url()}
    command = [f"{sys.prefix}/bin/headrace", *load]
    with subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as writing:
        try:
            arguments = ["--server", uneven.url(), "--topic", "orders", "--interval", "4", "--apply"]
            said = run_job("cluster_load.py", tmp_path, *arguments, kubeconfig=uneven.kubeconfig)
        finally:
            writing.terminate()
    assert "skew 3.00 now, 1." in said, said
    assert "kubectl annotate topic orders --namespace default --overwrite" in said
    assert "topic.headrace.io/orders annotated" in said
    wait_for(lambda: sorted(map(str, leaders(uneven))) == list("001122"), "leaders are spread", timeout_s=90)
    told = [json.loads(value) for value in values_in(uneven.url(), "cluster-load")]
    assert {each["level"] for each in told} == {"partition", "broker", "zone"}
    (busy,) = [each for each in told if each["level"] == "broker" and each["broker"] == 0]
    assert busy["skew"] > 1

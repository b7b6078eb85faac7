"""Which broker does most of the work, and which leaders should move? Reads what brokers tell Prometheus, with Spark.

    spark-submit examples/spark/cluster_load.py --server http://127.0.0.1:9701 --topic orders

Finds the brokers by Prometheus' HTTP service discovery (`/v1/prometheus/targets`), takes their metrics twice,
`--interval` seconds apart, and works out how many bytes a second each partition is written and read, by partition,
broker and zone. Writes that as JSON records to the topic `--report`. Where one broker's load is above `--skew` times
the mean, it proposes other leaders among the replicas in sync, as the annotation that the operator obeys; `--apply`
sets it through kubectl.
"""

import argparse
import json
import re
import shlex
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.request import urlopen

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

ANNOTATION = "headrace.io/preferred-leaders"
SAMPLE = re.compile(r"^headrace_broker_(bytes_in|bytes_out)_total\{([^}]*)\} (\S+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="([^"]*)"')
COLUMNS = "broker INT, zone STRING, namespace STRING, topic STRING, partition INT, kind STRING, bytes DOUBLE"


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    server = options.server.rstrip("/")
    spark = SparkSession.builder.appName("cluster-load").getOrCreate()
    first, started = scraped(spark, server), time.monotonic()
    time.sleep(options.interval)
    second, seconds = scraped(spark, server), time.monotonic() - started
    load = rates(first, second, seconds).cache()
    for level in ("partition", "broker", "zone"):
        report(load, level, options)
    topics = {name: topic_of(server, options.namespace, name) for name in options.topic}
    measured = {(row.topic, row.partition): row.rate for row in by_partition(load, options).collect()}
    partitions = [placed for name, topic in topics.items() for placed in placed_in(name, topic, measured)]
    brokers = [int(each["labels"]["__meta_headrace_broker"]) for each in targets(server)]
    moves = proposed(partitions, brokers, options.skew)
    now, after = skew(partitions, brokers), skew(moved(partitions, moves), brokers)
    tell(f"skew {now:.2f} now, {after:.2f} after {len(moves)} moves")
    for command in commands(moves, options.namespace):
        tell(shlex.join(command))
        if options.apply:
            subprocess.run(command, check=True)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True, help="any broker's URL")
    parser.add_argument("--namespace", default="default", help="of the topics (default: %(default)s)")
    parser.add_argument(
        "--topic", action="append", required=True, help="whose leaders may move; may be given several times"
    )
    parser.add_argument(
        "--report", default="cluster-load", help="topic for the report, which must be there (%(default)s)"
    )
    parser.add_argument("--interval", type=float, default=10, help="seconds between two looks (default: %(default)s)")
    parser.add_argument("--skew", type=float, default=1.2, help="greatest load by mean load that is fine (%(default)s)")
    parser.add_argument("--apply", action="store_true", help="set the annotations through kubectl")
    return parser.parse_args(arguments)


# -- what brokers tell -------------------------------------------------------------------------------------------------


def targets(server: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(fetched(f"{server}/v1/prometheus/targets"))
    return found


def scraped(spark: SparkSession, server: str) -> DataFrame:
    """One row for each counter of each partition of each broker; each broker is asked by a task."""
    asked = spark.sparkContext.parallelize(targets(server))
    return spark.createDataFrame(asked.flatMap(samples), COLUMNS)


def samples(target: Mapping[str, Any]) -> Iterator[tuple[int, str, str, str, int, str, float]]:
    labels = target["labels"]
    text = fetched(f"{labels['__scheme__']}://{target['targets'][0]}/metrics").decode()
    for kind, written, value in SAMPLE.findall(text):
        named = dict(LABEL.findall(written))
        place = (named["namespace"], named["topic"], int(named["partition"]))
        yield int(labels["__meta_headrace_broker"]), labels["__meta_headrace_zone"], *place, kind, float(value)


def topic_of(server: str, namespace: str, name: str) -> dict[str, Any]:
    topic: dict[str, Any] = json.loads(fetched(f"{server}/v1/namespaces/{namespace}/topics/{name}"))
    return topic


def fetched(url: str) -> bytes:
    with urlopen(url, timeout=10) as answer:
        content: bytes = answer.read()
        return content


# -- what Spark works out ----------------------------------------------------------------------------------------------


def rates(first: DataFrame, second: DataFrame, seconds: float) -> DataFrame:
    """Bytes a second. A counter that fell belongs to a broker that began anew: it counts from 0."""
    keys = [name for name in first.columns if name != "bytes"]
    before = first.withColumnRenamed("bytes", "before")
    both = second.join(before, keys, "left").fillna(0.0, ["before"])
    grown = f.when(f.col("bytes") >= f.col("before"), f.col("bytes") - f.col("before")).otherwise(f.col("bytes"))
    return both.select(*keys, (grown / seconds).alias("rate"))


def by_partition(load: DataFrame, options: argparse.Namespace) -> DataFrame:
    here = load.where(f.col("namespace") == options.namespace)
    return here.groupBy("topic", "partition").agg(f.sum("rate").alias("rate"))


def report(load: DataFrame, level: str, options: argparse.Namespace) -> None:
    """Rates of each partition, broker or zone, and how far each is from the mean of its kind."""
    keys = {"partition": ["namespace", "topic", "partition"], "broker": ["broker", "zone"], "zone": ["zone"]}[level]
    rows = load.groupBy(*keys).pivot("kind", ["bytes_in", "bytes_out"]).agg(f.sum("rate")).fillna(0.0)
    total = f.col("bytes_in") + f.col("bytes_out")
    mean = rows.agg(f.avg(total).alias("mean"))
    told = rows.crossJoin(mean).withColumn("skew", f.expr("try_divide(bytes_in + bytes_out, mean)")).drop("mean")
    told.orderBy(*keys).show(200, truncate=False)
    records = told.select(
        f.lit(level).alias("key"), f.to_json(f.struct(f.lit(level).alias("level"), "*")).alias("value")
    )
    sink = records.write.format("headrace").option("server", options.server).option("namespace", options.namespace)
    sink.option("topic", options.report).mode("append").save()


# -- what to do about it -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Placed:
    topic: str
    partition: int
    leader: int
    in_sync: tuple[int, ...]
    rate: float


def placed_in(name: str, topic: Mapping[str, Any], measured: Mapping[tuple[str, int], float]) -> Iterator[Placed]:
    for each in topic["partitions"]:
        if each["leader"] is not None:
            number = each["partition"]
            yield Placed(name, number, each["leader"]["id"], tuple(each["isr"]), measured.get((name, number), 0.0))


def loads(partitions: Sequence[Placed], brokers: Sequence[int]) -> dict[int, float]:
    found = dict.fromkeys(brokers, 0.0)
    for placed in partitions:
        found[placed.leader] = found.get(placed.leader, 0.0) + placed.rate
    return found


def skew(partitions: Sequence[Placed], brokers: Sequence[int]) -> float:
    """The greatest load of a broker, by the mean of all: 1 is even."""
    found = loads(partitions, brokers).values()
    total = sum(found)
    return max(found) * len(found) / total if total else 1.0


def proposed(partitions: Sequence[Placed], brokers: Sequence[int], fine: float) -> dict[tuple[str, int], int]:
    """New leaders, the move that helps most first, until it is even enough or nothing helps."""
    moves: dict[tuple[str, int], int] = {}
    while skew(now := moved(partitions, moves), brokers) > fine:
        found = loads(now, brokers)
        better = [
            (max(found[each.leader] - each.rate, found[other] + each.rate), each.topic, each.partition, other)
            for each in now
            for other in each.in_sync
            if each.rate and other in found and found[other] + each.rate < found[each.leader]
            if found[each.leader] == max(found.values())
        ]
        if not better:
            break
        _, topic, partition, broker = min(better)
        moves[topic, partition] = broker
    return moves


def moved(partitions: Sequence[Placed], moves: Mapping[tuple[str, int], int]) -> list[Placed]:
    return [
        Placed(
            each.topic, each.partition, moves.get((each.topic, each.partition), each.leader), each.in_sync, each.rate
        )
        for each in partitions
    ]


def commands(moves: Mapping[tuple[str, int], int], namespace: str) -> Iterator[list[str]]:
    wanted: dict[str, dict[str, int]] = defaultdict(dict)
    for (topic, partition), broker in sorted(moves.items()):
        wanted[topic][str(partition)] = broker
    for topic, leaders in wanted.items():
        annotation = f"{ANNOTATION}={json.dumps(leaders)}"
        yield ["kubectl", "annotate", "topic", topic, "--namespace", namespace, "--overwrite", annotation]


def tell(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - a program of its own


if __name__ == "__main__":
    main()

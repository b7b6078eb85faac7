"""Which broker does most of the work, and who should lead instead? From what brokers tell Prometheus, with Spark.

    spark-submit examples/spark/cluster_load.py --topic orders

Finds the brokers by Prometheus' HTTP service discovery (`/v1/prometheus/targets`), looks at their metrics and at the
ends of the topics' partitions twice, `--interval` seconds apart, and works out what each partition, broker and zone
does: bytes a second written and read, records a second written, and the skew, which is its load by the mean of its
kind. All that goes as JSON records to the topic `--report`.

Where the busiest broker has more than `--skew` times the mean, it proposes other leaders for the topics `--topic`, each
in sync already: the annotation that the operator obeys. It names all of their partitions, so that the operator, which
balances by number and not by load, leaves them so. `--apply` sets it; without it you are told how to.
"""

import argparse
import asyncio
import json
import os
import re
import shlex
import ssl
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from headrace.client.transport.discovery import find_servers, running_dev

ANNOTATION = "headrace.io/preferred-leaders"
SAMPLE = re.compile(r"^headrace_broker_(bytes_in|bytes_out)_total\{([^}]*)\} (\S+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="([^"]*)"')
KINDS = ["bytes_in", "bytes_out", "records_in"]
PLACE = ["namespace", "topic", "partition"]
LEVELS = {"partition": PLACE, "broker": ["broker", "zone"], "zone": ["zone"]}
COLUMNS = "broker INT, zone STRING, namespace STRING, topic STRING, partition INT, kind STRING, value DOUBLE"

Row = tuple[int, str, str, str, int, str, float]
Place = tuple[str, int]
"""Topic and partition."""


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    # A row for each partition: Spark's 200 pieces are for far more.
    spark = SparkSession.builder.appName("cluster-load").config("spark.sql.shuffle.partitions", 1).getOrCreate()
    load = measured(spark, options).cache()
    reports = [report(load, level) for level in LEVELS]
    for each in reports:
        each.show(200, truncate=False)
    write(reports, options)
    brokers = [int(each["labels"]["__meta_headrace_broker"]) for each in targets(options)]
    cluster = seen(load, brokers, topics_of(options), options.namespace)
    moves = proposed(cluster, options.skew)
    after = cluster.moved(moves)
    say(f"skew {cluster.skew:.2f} now, {after.skew:.2f} after {len(moves)} moves")
    for topic, leaders in after.wanted({topic for topic, _ in moves}).items():
        annotation = f"{ANNOTATION}={json.dumps(leaders)}"
        say(shlex.join(["kubectl", "annotate", "topic", topic, "-n", options.namespace, "--overwrite", annotation]))
        if options.apply:
            asyncio.run(annotate(options, topic, json.dumps(leaders)))
            say(f"topic {topic} is annotated")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--server", help="a broker's URL (else HEADRACE_SERVER, else the headrace dev that runs here)")
    add("--ca-file", help="PEM bundle that brokers are verified by (else HEADRACE_CA_FILE, else the system's)")
    add("--namespace", default="default", help="of the topics and the report (default: %(default)s)")
    add("--topic", action="append", required=True, help="whose leaders may move; may be given several times")
    add("--report", default="cluster-load", help="topic for the report, which must be there (default: %(default)s)")
    add("--interval", type=float, default=10, help="seconds between the two looks (default: %(default)s)")
    add("--skew", type=float, default=1.2, help="greatest load by mean load that is fine (default: %(default)s)")
    add("--apply", action="store_true", help="set the annotations")
    add("--kubeconfig", help="for --apply (else headrace dev's, KUBECONFIG, ~/.kube/config, the pod's account)")
    options = parser.parse_args(arguments)
    options.ca_file = options.ca_file or os.environ.get("HEADRACE_CA_FILE")
    options.server = find_servers(options.server, options.ca_file).urls[0]
    return options


# -- what brokers tell -------------------------------------------------------------------------------------------------


def measured(spark: SparkSession, options: argparse.Namespace) -> DataFrame:
    """What each partition did on each broker, a second."""
    first, started = looked(spark, options), time.monotonic()
    time.sleep(options.interval)
    second, ended = looked(spark, options), time.monotonic()
    looks = [spark.createDataFrame(rows, COLUMNS) for rows in (first, second)]
    return rates(*looks, ended - started)


def looked(spark: SparkSession, options: argparse.Namespace) -> list[Row]:
    """Now: a data frame of what brokers tell would ask them when it is used. A task asks a broker."""
    found = targets(options)
    ask = partial(told_by, topics=options.topic, namespace=options.namespace, ca_file=options.ca_file)
    return spark.sparkContext.parallelize(found, len(found)).flatMap(ask).collect()


def told_by(target: Mapping[str, Any], topics: Iterable[str], namespace: str, ca_file: str | None) -> Iterator[Row]:
    """Counters of all that it has led, and how far the topics go that it leads: the ends of what can be read."""
    labels = target["labels"]
    url, broker = f"{labels['__scheme__']}://{target['targets'][0]}", int(labels["__meta_headrace_broker"])
    zone = labels["__meta_headrace_zone"]
    for kind, written, value in SAMPLE.findall(fetched(f"{url}/metrics", ca_file).decode()):
        named = dict(LABEL.findall(written))
        yield broker, zone, named["namespace"], named["topic"], int(named["partition"]), kind, float(value)
    for topic in topics:
        for each in topic_of(url, namespace, topic, ca_file)["partitions"]:
            if each["offsets"] is not None:
                end = float(each["offsets"]["highWatermark"])
                yield broker, zone, namespace, topic, each["partition"], "records_in", end


def targets(options: argparse.Namespace) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(fetched(f"{options.server}/v1/prometheus/targets", options.ca_file))
    return found


def topics_of(options: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """The partitions of each."""
    asked = partial(topic_of, options.server, options.namespace, ca_file=options.ca_file)
    return {topic: asked(topic)["partitions"] for topic in options.topic}


def topic_of(server: str, namespace: str, topic: str, ca_file: str | None) -> dict[str, Any]:
    path = f"/v1/namespaces/{quote(namespace)}/topics/{quote(topic)}"
    found: dict[str, Any] = json.loads(fetched(server + path, ca_file))
    return found


def fetched(url: str, ca_file: str | None) -> bytes:
    trust = ssl.create_default_context(cafile=ca_file) if url.startswith("https:") else None
    with urlopen(url, timeout=10, context=trust) as answer:
        content: bytes = answer.read()
        return content


# -- what Spark works out ----------------------------------------------------------------------------------------------


def rates(first: DataFrame, second: DataFrame, seconds: float) -> DataFrame:
    """By the second. A counter that was not there, or has fallen, is of a broker that began in between: from 0.

    Offsets go on where the leader before was; where a partition has only just been led, nobody knows what came.
    """
    keys = [*PLACE, "kind"]
    counted = f.col("kind") != "records_in"
    own = first.where(counted).withColumnRenamed("value", "own").drop("zone")
    ends = first.where(~counted).groupBy(*keys).agg(f.max("value").alias("end"))
    both = second.join(own, ["broker", *keys], "left").join(ends, keys, "left")
    before = f.when(counted, f.coalesce("own", f.lit(0.0))).otherwise(f.coalesce("end", "value"))
    grown = f.when(f.col("value") >= before, f.col("value") - before).otherwise(f.col("value"))
    return both.select("broker", "zone", *keys, (grown / seconds).alias("rate"))


def report(load: DataFrame, level: str) -> DataFrame:
    """Every partition, broker or zone."""
    keys = LEVELS[level]
    rows = load.groupBy(*keys).pivot("kind", KINDS).agg(f.round(f.sum("rate"), 1)).fillna(0.0, KINDS)
    mean = rows.agg(f.avg(f.expr("bytes_in + bytes_out")).alias("mean"))
    skew = f.round(f.expr("try_divide(bytes_in + bytes_out, mean)"), 2)
    told = rows.crossJoin(mean).withColumn("skew", skew).drop("mean").orderBy(*keys)
    return told.select(f.lit(level).alias("level"), "*").cache()


def write(reports: Iterable[DataFrame], options: argparse.Namespace) -> None:
    """A JSON record for each row, whose key is the level."""
    records = reduce(
        DataFrame.unionAll,
        [told.select(f.col("level").alias("key"), f.to_json(f.struct("*")).alias("value")) for told in reports],
    )
    sink = records.write.format("headrace").mode("append")
    sink.options(server=options.server, namespace=options.namespace, topic=options.report)
    (sink.option("caFile", options.ca_file) if options.ca_file else sink).save()


# -- what to do about it -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Led:
    """A partition whose leader may be another one."""

    leader: int
    in_sync: tuple[int, ...]
    rate: float
    """Bytes a second, in and out: they go with the leader."""


@dataclass(frozen=True)
class Seen:
    partitions: Mapping[Place, Led]
    others: Mapping[int, float]
    """By broker that is alive: what it does for all other topics."""

    @property
    def loads(self) -> dict[int, float]:
        found = dict(self.others)
        for led in self.partitions.values():
            found[led.leader] = found.get(led.leader, 0.0) + led.rate
        return found

    @property
    def skew(self) -> float:
        """The greatest load by the mean: 1 is even."""
        loads = self.loads.values()
        return max(loads) * len(loads) / sum(loads) if sum(loads) else 1.0

    def moved(self, moves: Mapping[Place, int]) -> "Seen":
        led = {place: replace(each, leader=moves.get(place, each.leader)) for place, each in self.partitions.items()}
        return replace(self, partitions=led)

    def wanted(self, topics: Iterable[str]) -> dict[str, dict[str, int]]:
        """Leaders of all partitions of these, as the annotation has them."""
        found: dict[str, dict[str, int]] = defaultdict(dict)
        for (topic, partition), led in sorted(self.partitions.items()):
            if topic in topics:
                found[topic][str(partition)] = led.leader
        return found


def seen(
    load: DataFrame, brokers: Iterable[int], topics: Mapping[str, Sequence[Mapping[str, Any]]], namespace: str
) -> Seen:
    worked = load.where(f.col("kind") != "records_in").groupBy("broker", *PLACE).agg(f.sum("rate").alias("rate"))
    by_place: dict[Place, float] = defaultdict(float)
    others = dict.fromkeys(brokers, 0.0)
    for row in worked.collect():
        if row.namespace == namespace and row.topic in topics:
            by_place[row.topic, row.partition] += row.rate
        elif row.broker in others:
            others[row.broker] += row.rate
    partitions = {
        (topic, each["partition"]): Led(each["leader"]["id"], tuple(each["isr"]), by_place[topic, each["partition"]])
        for topic, some in topics.items()
        for each in some
        if each["leader"] is not None
    }
    return Seen(partitions, others)


def proposed(cluster: Seen, fine: float) -> dict[Place, int]:
    """Who is to lead instead: the move that helps most, then the next, until it is even enough or nothing helps."""
    moves: dict[Place, int] = {}
    while (now := cluster.moved(moves)).skew > fine:
        loads = now.loads
        busiest = max(loads, key=lambda broker: loads[broker])
        better = [
            (max(loads[busiest] - led.rate, loads[other] + led.rate), place, other)
            for place, led in now.partitions.items()
            for other in led.in_sync
            if led.leader == busiest and led.rate and other in loads and loads[other] + led.rate < loads[busiest]
        ]
        if not better:
            break
        _, place, other = min(better)
        moves[place] = other
    return {place: broker for place, broker in moves.items() if cluster.partitions[place].leader != broker}


async def annotate(options: argparse.Namespace, topic: str, leaders: str) -> None:
    # A report alone needs no Kubernetes client.
    try:
        from headrace.kube.client import KubeClient
        from headrace.kube.resource import TOPICS
    except ModuleNotFoundError as error:
        raise SystemExit(f"--apply needs {error.name}: pip install 'headrace[operator]', or use kubectl") from error

    dev = running_dev()
    async with await KubeClient.connect(kubeconfig=options.kubeconfig or (dev and dev["kubeconfig"])) as client:
        await client.patch(TOPICS, topic, options.namespace, {"metadata": {"annotations": {ANNOTATION: leaders}}})


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - a program of its own


if __name__ == "__main__":
    main()

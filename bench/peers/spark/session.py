"""The Spark session at work, in a process of its own: `python -m bench.peers.spark.session JOB`.

Stdout gets a line for each case as soon as it is done. One session does them all, in turns.
"""

import os
import sys
from collections.abc import Sequence

import click
from pyspark.sql import SparkSession

from bench.peers.processes import Server
from bench.peers.spark.cases import THREADS, Case, Side, cases, quick_cases
from bench.peers.spark.costs import Tree
from bench.peers.spark.job import Measured, SparkJob
from bench.peers.spark.queries import Asking
from bench.peers.spark.sources import MemorySource, NothingSource

_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A JVM that starts fast rather than runs fast, for the short form."""


def main(argument: str) -> None:
    job = SparkJob.parse(argument)
    spark = _session(job)
    spark.dataSource.register(MemorySource)
    spark.dataSource.register(NothingSource)
    tree = Tree(os.getpid())
    with tree.watched():
        for number in range(0 if job.size.warm_records else 1, job.rounds + 1):
            asking = Asking(spark, job, is_warm_up=number == 0)
            for group in cases() if job.size.is_judged else quick_cases():
                for case in group if number % 2 else reversed(group):
                    click.echo(_measured(asking, tree, case, number).to_line())
    spark.stop()


def _session(job: SparkJob) -> SparkSession:
    builder = SparkSession.builder.master(f"local[{THREADS}]").appName("bench-peers")
    settings = {"spark.jars": ",".join(job.jars), "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"}
    settings |= {"spark.ui.showConsoleProgress": "false", "spark.driver.bindAddress": "127.0.0.1"}
    if not job.size.is_judged:
        settings |= {"spark.driver.extraJavaOptions": _SHORT_LIVED}
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _measured(asking: Asking, tree: Tree, case: Case, number: int) -> Measured:
    """What was written before is on the disk when it begins."""
    brokers = {Side.HEADRACE: asking.job.headrace_pids, Side.KAFKA: asking.job.kafka_pids}.get(case.side, ())
    os.sync()
    spark_before, brokers_before = tree.cpu_s(), _cpu_s(brokers)
    done = asking.do(case)
    return Measured(
        case=case.key,
        round=number,
        rows=done.rows,
        seconds=done.seconds,
        trigger_ms=done.trigger_ms,
        spark_cpu_s=tree.cpu_s() - spark_before,
        broker_cpu_s=_cpu_s(brokers) - brokers_before,
    )


def _cpu_s(pids: Sequence[int]) -> float:
    return sum(Server(pid).cpu_s() for pid in pids)


if __name__ == "__main__":
    main(sys.argv[1])

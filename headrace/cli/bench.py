"""`headrace bench`: the commands that measure how fast a topic takes, gives and passes on records.

The flags are those of kafka-producer-perf-test, kafka-consumer-perf-test and kafka-e2e-latency as far as they mean
something here, and so are the lines that come out (`bench_figures`). `bench_produce` and `bench_consume` measure, and
are loaded when they run.
"""

from pathlib import Path
from typing import Any

import click

from headrace.cli.commands import CommandGroup, examples
from headrace.cli.options import TOPIC, WholeNumber, broker_options
from headrace.core.limits import PRODUCER_BATCH_BYTES_DEFAULT, PRODUCER_BUFFER_BYTES_DEFAULT

_BATCH_BYTES_MIN = 8192
_COUNT = WholeNumber(min=1)
_SIZE = WholeNumber(min=0)
_NO_LIMIT = -1.0


def _throughput(_context: click.Context, _option: click.Parameter, value: float) -> float:
    if value > 0 or value == _NO_LIMIT:
        return value
    raise click.BadParameter(f"{value:g} records a second: give a number above 0, or -1 for no limit")


@examples(("How fast is one producer?", "headrace bench produce orders --num-records 20000 --record-size 100"))
@click.group(cls=CommandGroup)
def bench() -> None:
    """Measure how fast a topic takes, gives and passes on records.

    The output is that of Kafka's performance tools.
    """


@examples(
    ("As fast as one producer can.", "headrace bench produce orders --num-records 20000 --record-size 100"),
    (
        "At a rate of its own, acknowledged by the leader alone.",
        "headrace bench produce orders --num-records 500 --record-size 1024 --throughput 1000 --acks 1",
    ),
    (
        "Whole columns, as send_batch takes them.",
        "headrace bench produce orders --num-records 200000 --record-size 100 --columns",
    ),
)
@bench.command(short_help="Measure how fast records are taken.")
@click.argument("topic", type=TOPIC)
@click.option("--num-records", type=_COUNT, required=True, metavar="N", help="Records to send.")
@click.option("--record-size", type=_COUNT, metavar="BYTES", help="Size of each value: random letters.")
@click.option(
    "--payload-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Take values from this file, at random.",
)
@click.option("--payload-delimiter", default="\\n", show_default=True, help="What stands between two values there.")
@click.option("--payload-monotonic", is_flag=True, help="The values are 0, 1, 2 and so on, as text.")
@click.option(
    "--throughput",
    type=float,
    default=_NO_LIMIT,
    show_default=True,
    callback=_throughput,
    metavar="RATE",
    help="Records a second, about; -1 for no limit.",
)
@click.option("--warmup-records", type=_SIZE, default=0, metavar="N", help="Leave the first N out of a second summary.")
@click.option("--print-metrics", is_flag=True, help="Print what the client counted.")
@click.option(
    "--acks", type=click.Choice(["all", "1", "0"]), default="all", show_default=True, help="What the brokers vouch for."
)
@click.option(
    "--compression", type=click.Choice(["none", "lz4", "zstd"]), default="none", show_default=True, help="Of batches."
)
@click.option(
    "--batch-size",
    type=WholeNumber(_BATCH_BYTES_MIN, PRODUCER_BUFFER_BYTES_DEFAULT),
    default=PRODUCER_BATCH_BYTES_DEFAULT,
    show_default=True,
    metavar="BYTES",
    help="Of one batch at most.",
)
@click.option("--linger-ms", type=_SIZE, default=5, show_default=True, metavar="MS", help="Wait so long for company.")
@click.option("--columns", is_flag=True, help="Send whole columns (send_batch), not record by record.")
@broker_options
def produce(**given: Any) -> None:
    """Send records to TOPIC and print rates and latencies, as kafka-producer-perf-test does.

    A latency is the time from the call that sends a record to its acknowledgement. Ctrl-C prints the summary so far.
    """
    from headrace.cli.bench_produce import ProduceOptions, run_produce

    payloads = (given["record_size"] is not None, given["payload_file"] is not None, given["payload_monotonic"])
    if sum(payloads) != 1:
        raise click.UsageError("give exactly one of --record-size, --payload-file and --payload-monotonic")
    if given["warmup_records"] >= given["num_records"]:
        raise click.UsageError(
            f"--warmup-records {given['warmup_records']} must be below --num-records {given['num_records']}"
        )
    run_produce(ProduceOptions(**given))


@examples(
    ("Record by record.", "headrace bench consume orders --messages 1000"),
    (
        "Whole columns, a line for each second.",
        "headrace bench consume orders --messages 1000 --columns --show-detailed-stats --reporting-interval 1000",
    ),
)
@bench.command(short_help="Measure how fast records are given.")
@click.argument("topic", type=TOPIC)
@click.option(
    "--messages", "--num-records", "messages", type=_COUNT, required=True, metavar="N", help="Records to read."
)
@click.option(
    "--timeout",
    "timeout_ms",
    type=_COUNT,
    default=10_000,
    show_default=True,
    metavar="MS",
    help="Stop when nothing came for so long.",
)
@click.option("--show-detailed-stats", "detailed", is_flag=True, help="A line per interval instead of a summary.")
@click.option(
    "--reporting-interval",
    "interval_ms",
    type=_COUNT,
    default=5_000,
    show_default=True,
    metavar="MS",
    help="Of --show-detailed-stats.",
)
@click.option("--hide-header", is_flag=True, help="Do not name the columns.")
@click.option("--from-latest", is_flag=True, help="Begin at the end as it is now, not at the first record.")
@click.option("--print-metrics", is_flag=True, help="Print what the client counted.")
@click.option("--columns", is_flag=True, help="Read whole columns (batches), not record by record.")
@broker_options
def consume(**given: Any) -> None:
    """Read records of TOPIC and print rates, as kafka-consumer-perf-test does.

    Ctrl-C prints the summary so far.
    """
    from headrace.cli.bench_consume import ConsumeOptions, run_consume

    run_consume(ConsumeOptions(**given))


@examples(
    ("A hundred records, one after the other.", "headrace bench latency orders --num-records 100 --record-size 100"),
)
@bench.command(short_help="Measure how long a record takes from producer to consumer.")
@click.argument("topic", type=TOPIC)
@click.option("--num-records", type=_COUNT, required=True, metavar="N", help="Records to send, one at a time.")
@click.option("--record-size", type=_SIZE, required=True, metavar="BYTES", help="Size of each value.")
@click.option(
    "--producer-acks",
    "--acks",
    "acks",
    type=click.Choice(["all", "1"]),
    default="all",
    show_default=True,
    help="What the brokers vouch for.",
)
@click.option("--record-key-size", "key_size", type=_SIZE, default=0, metavar="BYTES", help="0 for no key.")
@click.option("--num-headers", type=_SIZE, default=0, metavar="N", help="Headers of each record.")
@click.option(
    "--record-header-key-size", "header_name_size", type=_COUNT, default=1, metavar="BYTES", help="Of a name."
)
@click.option(
    "--record-header-size", "header_size", type=WholeNumber(min=-1), default=0, metavar="BYTES", help="-1: no value."
)
@broker_options
def latency(**given: Any) -> None:
    """Send records to TOPIC one at a time, read each back, and print the times, as kafka-e2e-latency does.

    A time is from the call that sends a record to the moment when a consumer has it. Nobody else may write to TOPIC
    meanwhile. Ctrl-C prints the summary so far.
    """
    from headrace.cli.bench_consume import LatencyOptions, run_latency

    run_latency(LatencyOptions(**given))

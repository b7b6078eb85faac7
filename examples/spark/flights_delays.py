"""How late do flights leave, hour by hour? A streaming query over the topic `flights`, as `make demo` fills it.

    spark-submit examples/spark/flights_delays.py --checkpoint state --parquet delays.parquet --picture delays.svg

Counts flights and their delays in windows of an hour of departure, with a watermark: a window is final once flights
are seen that leave `--lateness` after its end. Final windows are written to the topic `--to`, each once, and to
Parquet. With `--follow` it goes on for ever; else it reads what there is and draws the mean delay of each hour.

The stream never knows whether more flights come: without `--follow` the windows of the last `--lateness` are not final,
and are written by the next run, which goes on where this one stopped.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

SCHEMA = "origin STRING, carrier STRING, dep_delay DOUBLE, time_hour TIMESTAMP"


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    spark = SparkSession.builder.appName("flights-delays").config("spark.sql.session.timeZone", "UTC").getOrCreate()
    # A stream keeps as many states as it has once begun with, and Spark's 200 are for far more than flights.
    spark.conf.set("spark.sql.shuffle.partitions", options.states)
    windows = by_hour(flights(spark, options), options.lateness)
    queries = [write_topic(windows, options), write_parquet(windows, options)]
    for query in queries:
        query.awaitTermination()
    hours = by_hour_of_day(spark.read.parquet(options.parquet), options.time_zone)
    hours.show(24, truncate=False)
    if options.picture is not None:
        options.picture.write_text(drawn(hours, options.time_zone))
        print(f"drawn: {options.picture}")  # noqa: T201 - a program of its own


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", help="a broker's URL (else HEADRACE_SERVER, else the headrace dev that runs here)")
    parser.add_argument("--namespace", default="default", help="of both topics (default: %(default)s)")
    parser.add_argument("--topic", default="flights", help="to read (default: %(default)s)")
    parser.add_argument(
        "--to", default="delays", help="topic for the windows, which must be there (default: %(default)s)"
    )
    parser.add_argument(
        "--checkpoint", required=True, help="folder that every executor reaches; the query goes on from it"
    )
    parser.add_argument("--parquet", required=True, help="folder for the windows as Parquet")
    parser.add_argument("--picture", type=Path, help="draw the mean delay of each hour into this SVG file")
    parser.add_argument("--time-zone", default="America/New_York", help="of the hours in it (default: %(default)s)")
    parser.add_argument("--lateness", default="1 day", help="what may come out of order (default: %(default)s)")
    parser.add_argument("--states", type=int, default=4, help="partitions of the query's state (default: %(default)s)")
    parser.add_argument("--follow", action="store_true", help="go on for ever")
    return parser.parse_args(arguments)


def flights(spark: SparkSession, options: argparse.Namespace) -> DataFrame:
    """Typed columns of the JSON values; decoded in C++, without from_json."""
    source = spark.readStream.format("headrace").options(**connection(options)).option("subscribe", options.topic)
    typed = source.option("valueFormat", "json").option("valueSchema", SCHEMA).option("startingOffsets", "earliest")
    return typed.option("columns", "carrier, dep_delay, time_hour").load()


def by_hour(flights: DataFrame, lateness: str) -> DataFrame:
    windows = flights.withWatermark("time_hour", lateness).groupBy(f.window("time_hour", "1 hour"))
    counted = windows.agg(
        f.count("*").alias("flights"),
        f.count("dep_delay").alias("departed"),
        f.coalesce(f.sum("dep_delay"), f.lit(0.0)).alias("delay"),
    )
    return counted.select(f.col("window.start").alias("hour"), "flights", "departed", "delay")


def write_topic(windows: DataFrame, options: argparse.Namespace) -> StreamingQuery:
    records = windows.selectExpr("CAST(hour AS STRING) AS key", "to_json(struct(*)) AS value")
    sink = records.writeStream.format("headrace").options(**connection(options)).option("topic", options.to)
    return started(sink, options, "topic")


def write_parquet(windows: DataFrame, options: argparse.Namespace) -> StreamingQuery:
    return started(windows.writeStream.format("parquet").option("path", options.parquet), options, "parquet")


def started(sink, options: argparse.Namespace, name: str) -> StreamingQuery:  # type: ignore[no-untyped-def]
    sink = sink.outputMode("append").option("checkpointLocation", f"{options.checkpoint}/{name}").queryName(name)
    return (sink if options.follow else sink.trigger(availableNow=True)).start()


def by_hour_of_day(windows: DataFrame, time_zone: str) -> DataFrame:
    """The hour that the clocks there show: windows are in UTC, whatever summer time does."""
    there = f.from_utc_timestamp("hour", time_zone)
    hours = windows.groupBy(f.hour(there).alias("hour")).agg(f.sum("flights"), f.sum("departed"), f.sum("delay"))
    totals = hours.toDF("hour", "flights", "departed", "total")
    return totals.selectExpr("hour", "flights", "try_divide(total, departed) AS delay").orderBy("hour")


def connection(options: argparse.Namespace) -> dict[str, str]:
    given = {"server": options.server, "namespace": options.namespace}
    return {name: value for name, value in given.items() if value}


def drawn(hours: DataFrame, time_zone: str) -> str:
    """An SVG with a bar for each hour, as high as its mean delay in minutes."""
    delays = [(row.hour, row.delay) for row in hours.collect() if row.delay is not None]
    highest = max((delay for _, delay in delays), default=1.0) or 1.0
    bars = []
    for hour, delay in delays:
        height, left = max(0.0, 160 * delay / highest), 30 + 24 * hour
        bars.append(
            f'<rect x="{left}" y="{200 - height:.1f}" width="18" height="{height:.1f}" fill="#2f6f9f"/>'
            f'<text x="{left + 9}" y="214">{hour}</text><text x="{left + 9}" y="{194 - height:.1f}">{delay:.0f}</text>'
        )
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 620 230" font-family="sans-serif" font-size="9"'
        ' text-anchor="middle"><rect width="620" height="230" fill="white"/>'
        f'<text x="310" y="18" font-size="13">Mean departure delay by hour of departure ({time_zone}), minutes</text>'
        f"{''.join(bars)}</svg>\n"
    )


if __name__ == "__main__":
    main()

"""Writing on a real Spark session to real brokers: every option, every column, and batches that run twice."""

import shutil
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.functions import col, lit
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StringType, StructType

from headrace.core.errors import LocalError
from headrace.core.records.header import Compression
from headrace.spark.writing import check_schema
from tests.support.consumed import compressions_in, values_in
from tests.support.spark_bench import SparkBench


@pytest.fixture
def target(bench: SparkBench) -> str:
    name = f"{bench.topic}-out"
    bench.create(0, 0, 0, topic=name)
    return name


def numbers(bench: SparkBench, count: int, first: int = 0) -> DataFrame:
    return bench.spark.range(first, first + count, 1, 2).selectExpr("CAST(id AS STRING) AS value")


def write(bench: SparkBench, frame: DataFrame, **options: str) -> None:
    frame.write.format("headrace").option("server", bench.server).options(**options).mode("append").save()


def drained(query: StreamingQuery) -> None:
    assert query.awaitTermination(120), "the query goes on"


def copied(
    bench: SparkBench,
    target: str,
    checkpoint: Path,
    *,
    limit: int = 100,
    **options: str,
) -> StreamingQuery:
    stream = bench.stream(startingOffsets="earliest", maxOffsetsPerTrigger=limit)
    sink = stream.writeStream.format("headrace").option("server", bench.server).option("topic", target)
    sink = sink.options(**options).option("checkpointLocation", str(checkpoint)).queryName(f"copy-to-{target}")
    return sink.trigger(availableNow=True).start()


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
@pytest.mark.parametrize("compression", ["lz4", "ZSTD"])
def test_should_compress_what_it_writes(bench: SparkBench, target: str, guarantee: str, compression: str) -> None:
    write(bench, numbers(bench, 5_000), topic=target, deliveryGuarantee=guarantee, compression=compression)
    assert compressions_in(bench.server, target, partitions=3) == {Compression[compression.upper()]}
    assert sorted(map(int, values_in(bench.server, target))) == list(range(5_000))


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_should_write_every_row_of_a_batch(bench: SparkBench, target: str, guarantee: str) -> None:
    write(bench, numbers(bench, 5_000), topic=target, deliveryGuarantee=guarantee)
    assert sorted(map(int, values_in(bench.server, target))) == list(range(5_000))


def test_should_write_keys_headers_partitions_and_topics(bench: SparkBench, target: str) -> None:
    bench.create(0, 0)
    frame = bench.spark.range(0, 100, 1, 2).selectExpr(
        "CASE WHEN id % 5 = 0 THEN NULL ELSE CAST(id AS STRING) END AS key",
        "CASE WHEN id = 7 THEN NULL ELSE CAST(CAST(id AS STRING) AS BINARY) END AS value",
        f"CASE WHEN id % 2 = 0 THEN '{bench.topic}' ELSE '{target}' END AS topic",
        "CASE WHEN id % 10 = 3 THEN 1 END AS partition",
        "CASE WHEN id % 3 = 0 THEN array(struct('n' AS key, CAST(CAST(id AS STRING) AS BINARY) AS value)) END"
        " AS headers",
    )
    write(bench, frame)
    rows = bench.rows(subscribe=f"{bench.topic},{target}", includeHeaders="true")
    seen = {}
    for row in rows:
        number = 7 if row.value is None else int(row.value)
        assert number not in seen
        seen[number] = row
        assert row.key == (None if number % 5 == 0 else str(number).encode())
        assert row.topic == (bench.topic if number % 2 == 0 else target)
        assert number % 10 != 3 or row.partition == 1
        wanted = [("n", str(number).encode())] if number % 3 == 0 else []
        assert [(header.key, bytes(header.value)) for header in row.headers] == wanted
    assert len(seen) == 100


def test_should_copy_what_the_source_gives(bench: SparkBench, target: str) -> None:
    bench.create(20, 30)
    write(bench, bench.frame(includeHeaders="true").drop("partition"), topic=target)
    assert len(values_in(bench.server, target)) == 50


def test_should_take_columns_whatever_the_case_of_their_names(bench: SparkBench, target: str) -> None:
    texts = "CAST(id AS STRING)"
    frame = bench.spark.range(4).selectExpr(
        f"{texts} AS VALUE", f"{texts} AS Key", f"'{target}' AS Topic", "1 AS Partition", "id AS OFFSET"
    )
    write(bench, frame)
    rows = bench.rows(subscribe=target)
    assert sorted((row.key, row.value, row.partition) for row in rows) == [
        (str(number).encode(), str(number).encode(), 1) for number in range(4)
    ]


def test_should_refuse_two_columns_of_one_name() -> None:
    schema = StructType().add("value", StringType()).add("VALUE", StringType())
    with pytest.raises(LocalError, match="columns 'value' and 'VALUE' have the same name: select one of them"):
        check_schema(schema, "t")


@pytest.mark.parametrize(
    ("select", "options", "message"),
    [
        (["CAST(id AS STRING) AS text"], {"topic": "t"}, "column 'text' is none of key, value"),
        (["CAST(id AS STRING) AS key"], {"topic": "t"}, "there is no column value"),
        (["id AS value"], {"topic": "t"}, "column value is bigint: it must be binary or string"),
        (["CAST(id AS STRING) AS value"], {}, "nothing says where to: give option topic"),
        (["CAST(id AS STRING) AS value", "id AS partition"], {"topic": "t"}, "column partition is bigint"),
        (["CAST(id AS STRING) AS value", "array(id) AS headers"], {"topic": "t"}, "column headers is array<bigint>"),
        (["CAST(id AS STRING) AS value"], {"topic": "No_Topic"}, "cannot name a topic"),
        (["CAST(id AS STRING) AS value"], {"topic": "t", "deliveryguarantee": "maybe"}, "write exactly-once or"),
        (["CAST(id AS STRING) AS value"], {"topic": "t", "kafka.acks": "all"}, "takes no options of Kafka's clients"),
        (["CAST(id AS STRING) AS value"], {"topik": "t"}, "did you mean topic"),
        (["CAST(id AS STRING) AS value"], {"topic": "t", "txnAppId": "job"}, "txnVersion is missing"),
        (["CAST(id AS STRING) AS value"], {"topic": "t", "txnVersion": "1"}, "txnAppId is missing"),
        (["CAST(id AS STRING) AS value"], {"topic": "t", "txnAppId": "a job", "txnVersion": "1"}, "txnAppId 'a job'"),
        (["CAST(id AS STRING) AS value"], {"topic": "t", "txnAppId": "j", "txnVersion": "x"}, "a whole number from 0"),
        (
            ["CAST(id AS STRING) AS value"],
            {"topic": "t", "txnAppId": "j", "txnVersion": "1", "deliveryGuarantee": "at-least-once"},
            "writes what is repeated again",
        ),
        (["CAST(id AS STRING) AS value", "CAST(NULL AS STRING) AS topic"], {}, "topic is null in row 0"),
        (["CAST(id AS STRING) AS value"], {"topic": "missing-topic"}, "does not exist"),
    ],
)
def test_should_say_what_is_wrong(bench: SparkBench, select: list[str], options: dict[str, str], message: str) -> None:
    with pytest.raises(Exception, match=message.replace("(", r"\(")):
        write(bench, bench.spark.range(3).selectExpr(*select), **options)


def test_should_refuse_to_overwrite(bench: SparkBench, target: str) -> None:
    frame = numbers(bench, 3).withColumn("topic", lit(target))
    with pytest.raises(Exception, match="only ever appended to"):
        frame.write.format("headrace").option("server", bench.server).mode("overwrite").save()


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_should_copy_a_stream(bench: SparkBench, target: str, tmp_path: Path, guarantee: str) -> None:
    bench.create(300, 200)
    drained(copied(bench, target, tmp_path / "checkpoint", deliveryGuarantee=guarantee))
    bench.write(50, 0)
    drained(copied(bench, target, tmp_path / "checkpoint", deliveryGuarantee=guarantee))
    assert len(values_in(bench.server, target)) == 550


def test_should_write_each_batch_once_when_it_is_run_again(bench: SparkBench, target: str, tmp_path: Path) -> None:
    """As after a driver that died between the sink's commit and its checkpoint's."""
    bench.create(300, 0)
    checkpoint = tmp_path / "checkpoint"
    drained(copied(bench, target, checkpoint))
    done = sorted(
        (each for each in (checkpoint / "commits").iterdir() if each.name.isdecimal()), key=lambda p: int(p.name)
    )
    done[-1].unlink()
    (checkpoint / "commits" / f".{done[-1].name}.crc").unlink(missing_ok=True)
    bench.write(60, 0)
    drained(copied(bench, target, checkpoint))
    expected = sorted([*range(300), *range(60)])
    assert sorted(map(int, values_in(bench.server, target))) == expected


def go_back(checkpoint: Path, batch: int) -> None:
    """As a backup of the checkpoint that was made before `batch`."""
    for kind in ("offsets", "commits"):
        for path in (checkpoint / kind).iterdir():
            number = path.name.strip(".").removesuffix(".crc")
            if number.isdecimal() and int(number) >= batch:
                path.unlink()


def test_should_refuse_what_a_checkpoint_writes_that_was_put_back(
    bench: SparkBench, target: str, tmp_path: Path
) -> None:
    bench.create(40, 0)
    checkpoint = tmp_path / "checkpoint"
    drained(copied(bench, target, checkpoint, limit=10))
    go_back(checkpoint, 2)
    bench.write(20, 0)
    with pytest.raises(StreamingQueryException, match=r"batch 2 of writer .*its last committed batch is 3"):
        drained(copied(bench, target, checkpoint))
    assert len(values_in(bench.server, target)) == 40


def test_should_refuse_what_a_copy_of_a_checkpoint_writes_elsewhere(
    bench: SparkBench, target: str, tmp_path: Path
) -> None:
    bench.create(40, 0)
    drained(copied(bench, target, tmp_path / "one"))
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    bench.write(20, 0)
    drained(copied(bench, target, tmp_path / "one"))
    elsewhere = f"{target}-2"
    bench.create(0, 0, 0, topic=elsewhere)
    with pytest.raises(StreamingQueryException, match="it was committed with 20 records for"):
        drained(copied(bench, elsewhere, tmp_path / "two"))
    assert values_in(bench.server, elsewhere) == []


def test_should_write_once_what_options_name(bench: SparkBench, target: str) -> None:
    """As `foreachBatch` does whose micro-batch runs again."""
    for version in (0, 0, 1, 1):
        write(bench, numbers(bench, 50, 50 * version), topic=target, txnAppId="job", txnVersion=str(version))
    assert sorted(map(int, values_in(bench.server, target))) == list(range(100))
    with pytest.raises(Exception, match="batch 1 of writer default/job is refused"):
        write(bench, numbers(bench, 51), topic=target, txnAppId="job", txnVersion="1")


def test_should_leave_nothing_of_a_batch_that_fails(bench: SparkBench, target: str) -> None:
    frame = (
        numbers(bench, 2_000)
        .select(col("value"))
        .selectExpr("CASE WHEN value = '1999' THEN raise_error('stop here') ELSE value END AS value")
    )
    with pytest.raises(Exception, match="stop here"):
        write(bench, frame, topic=target)
    assert values_in(bench.server, target) == []

"""Records that a query was to read, and that are gone: told by default, left out where that is wanted."""

import json

import pytest
from pyspark import RDD
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row

from headrace.spark.errors import DataLossError, LossPolicy
from headrace.spark.offsets import OffsetRange, SourcePartition
from headrace.spark.options import Connection
from headrace.spark.range_reader import reader_of
from tests.support.spark_bench import SparkBench, whole


def planned(frame: DataFrame) -> RDD[Row]:
    """What it reads is decided; nothing is read before somebody asks for rows."""
    rows = frame.rdd
    assert rows.getNumPartitions() == 1
    return rows


def test_should_name_what_is_gone_when_a_batch_begins_below_the_log(bench: SparkBench) -> None:
    bench.create(5)
    bench.delete_records(3)
    start = json.dumps({bench.topic: {"0": 1}})
    with pytest.raises(PySparkException, match=f"offsets 1 to 3 of {bench.topic}/0 are gone: its log begins at 3"):
        bench.rows(startingOffsets=start)
    assert bench.places(startingOffsets=start, failOnDataLoss="false") == [(0, 3), (0, 4)]
    assert bench.places() == [(0, 3), (0, 4)], "earliest is what there is"


def test_should_name_what_is_not_there_when_a_batch_ends_beyond_the_log(bench: SparkBench) -> None:
    bench.create(5)
    end = json.dumps({bench.topic: {"0": 9}})
    with pytest.raises(PySparkException, match=f"offset 9 of {bench.topic}/0 is not there: its log ends at 5"):
        bench.rows(endingOffsets=end)
    assert bench.places(endingOffsets=end, failOnDataLoss="false") == whole(5)


def test_should_tell_of_it_when_records_go_between_planning_and_reading(bench: SparkBench) -> None:
    bench.create(5)
    strict, lenient = planned(bench.frame()), planned(bench.frame(failOnDataLoss="false"))
    bench.delete_records(2)
    with pytest.raises(Exception, match=f"offsets 0 to 2 of {bench.topic}/0 are gone"):
        strict.collect()
    assert sorted(row.offset for row in lenient.collect()) == [2, 3, 4]


def test_should_not_read_another_topic_when_it_was_created_again_meanwhile(bench: SparkBench) -> None:
    bench.create(3)
    rows = planned(bench.frame())
    bench.delete()
    bench.create(3)
    with pytest.raises(Exception, match=f"topic {bench.topic} was deleted and created again"):
        rows.collect()
    assert bench.frame().count() == 3


def test_should_not_wait_for_ever_when_the_log_has_lost_its_end_since(bench: SparkBench) -> None:
    """As after an unclean election. What tasks do, without Spark: it plans nothing that is not there."""
    beyond = OffsetRange(SourcePartition(bench.topic, bench.create(3), 0), 1, 9)
    connection = Connection(bench.server)
    with (
        reader_of(connection) as reader,
        pytest.raises(DataLossError, match=f"offsets 3 to 9 of {bench.topic}/0 are gone: its log ends at 3"),
    ):
        list(reader.batches(beyond, LossPolicy()))
    with reader_of(connection) as reader:
        found = [offset for batch in reader.batches(beyond, LossPolicy(fails=False)) for offset in batch.offsets]
    assert found == [1, 2]


def test_should_name_the_topic_when_there_is_none(bench: SparkBench) -> None:
    with pytest.raises(PySparkException, match=f"topic {bench.topic} does not exist in namespace default: create it"):
        bench.rows()

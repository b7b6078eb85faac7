"""A batch query: what is read, by every option that says so."""

import json

import pytest
from pyspark.errors import PySparkException

from headrace import Producer
from tests.support.spark_bench import SparkBench, whole

_FIRST_MS, _SECOND_MS = 1_700_000_000_000, 1_700_000_100_000


def test_should_give_all_columns_of_kafka_when_a_topic_is_subscribed(bench: SparkBench) -> None:
    bench.cluster.create_topic(bench.topic, partitions=1)
    with Producer(bench.server) as producer:
        producer.send(bench.topic, b"tea", key=b"ada", timestamp_ms=_FIRST_MS)
        producer.send(bench.topic, None, timestamp_ms=_FIRST_MS + 1)
    frame = bench.frame()
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
    ]
    rows = frame.selectExpr("key", "value", "topic", "partition", "offset", "unix_millis(timestamp)", "timestampType")
    assert [tuple(row) for row in rows.orderBy("offset").collect()] == [
        (b"ada", b"tea", bench.topic, 0, 0, _FIRST_MS, 0),
        (None, None, bench.topic, 0, 1, _FIRST_MS + 1, 0),
    ]


def test_should_say_log_append_time_when_the_topic_has_it(bench: SparkBench) -> None:
    bench.create(2, timestampType="LogAppendTime")
    assert [row.timestampType for row in bench.rows()] == [1, 1]


def test_should_give_headers_when_they_are_asked_for(bench: SparkBench) -> None:
    bench.cluster.create_topic(bench.topic)
    with Producer(bench.server) as producer:
        producer.send(bench.topic, b"1", headers=[("a", b"x"), ("a", None)])
        producer.send(bench.topic, b"2")
    rows = bench.rows(includeHeaders="true")
    assert [[tuple(header) for header in row.headers] for row in rows] == [[("a", b"x"), ("a", None)], []]
    assert rows[0].asDict().keys() >= {"value", "headers"}


def test_should_read_several_topics_when_they_are_listed(bench: SparkBench) -> None:
    other = f"{bench.topic}-other"
    bench.create(2)
    bench.create(1, topic=other)
    found = [(row.topic, row.offset) for row in bench.rows(subscribe=f"{bench.topic}, {other}")]
    assert found == [(bench.topic, 0), (bench.topic, 1), (other, 0)]


def test_should_read_topics_whose_whole_name_matches_when_a_pattern_is_given(bench: SparkBench) -> None:
    bench.create(1, topic=f"{bench.topic}-a")
    bench.create(1, topic=f"{bench.topic}-b")
    bench.create(1, topic=f"{bench.topic}-a-not")
    found = {row.topic for row in bench.rows(subscribePattern=f"{bench.topic}-[ab]")}
    assert found == {f"{bench.topic}-a", f"{bench.topic}-b"}
    assert bench.rows(subscribePattern="no-such-topic.*") == []


def test_should_read_only_these_partitions_when_they_are_assigned(bench: SparkBench) -> None:
    bench.create(1, 2, 3)
    assert bench.places(assign=json.dumps({bench.topic: [2, 0]})) == [(0, 0), (2, 0), (2, 1), (2, 2)]
    with pytest.raises(PySparkException, match=f"partition 7 of {bench.topic} does not exist: it has 3"):
        bench.rows(assign=json.dumps({bench.topic: [7]}))


def test_should_keep_to_offsets_when_they_are_given(bench: SparkBench) -> None:
    bench.create(5, 5)
    start, end = json.dumps({bench.topic: {"0": 3, "1": -2}}), json.dumps({bench.topic: {"0": -1, "1": 2}})
    assert bench.places(startingOffsets=start, endingOffsets=end) == [(0, 3), (0, 4), (1, 0), (1, 1)]
    assert bench.places(startingOffsets="earliest", endingOffsets="latest") == whole(5, 5)
    with pytest.raises(PySparkException, match=f"startingOffsets says nothing of {bench.topic}/1"):
        bench.rows(startingOffsets=json.dumps({bench.topic: {"0": 3}}))
    with pytest.raises(PySparkException, match=f"endingOffsets names {bench.topic}/2, which is not read"):
        bench.rows(endingOffsets=json.dumps({bench.topic: {"0": 3, "1": 1, "2": 4}}))


def test_should_keep_to_times_when_they_are_given(bench: SparkBench) -> None:
    bench.cluster.create_topic(bench.topic, partitions=2)
    bench.write(2, 3, time_ms=_FIRST_MS)
    bench.write(2, 2, time_ms=_SECOND_MS)
    late, early = [(0, 2), (0, 3), (1, 3), (1, 4)], [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]
    assert bench.places(startingTimestamp=_FIRST_MS + 1) == late
    assert bench.places(endingTimestamp=_SECOND_MS) == early
    assert bench.places(startingTimestamp=_SECOND_MS + 1) == []
    times = json.dumps({bench.topic: {"0": _SECOND_MS, "1": _FIRST_MS}})
    assert bench.places(startingOffsetsByTimestamp=times) == [(0, 2), (0, 3), *((1, each) for each in range(5))]
    assert bench.places(endingOffsetsByTimestamp=times) == [(0, 0), (0, 1)]


def test_should_cut_partitions_when_more_tasks_are_wanted(bench: SparkBench) -> None:
    bench.create(9, 3)
    frame = bench.frame(minPartitions=4)
    assert frame.rdd.getNumPartitions() == 4
    assert frame.count() == 12
    frame = bench.frame(maxRecordsPerPartition=2)
    assert frame.rdd.getNumPartitions() == 5 + 2
    assert sorted((row.partition, row.offset) for row in frame.collect()) == whole(9, 3)
    assert bench.frame().rdd.getNumPartitions() == 2


def test_should_give_fewer_columns_when_they_are_chosen(bench: SparkBench) -> None:
    bench.create(2)
    frame = bench.frame(columns="offset, value")
    assert frame.columns == ["offset", "value"]
    assert sorted(tuple(row) for row in frame.collect()) == [(0, b"0"), (1, b"1")]


def test_should_read_nothing_when_a_topic_is_empty(bench: SparkBench) -> None:
    bench.create(0, 0)
    assert bench.rows() == []


def test_should_join_small_batches_and_cut_large_ones_when_spark_reads(bench: SparkBench) -> None:
    bench.cluster.create_topic(bench.topic)
    with Producer(bench.server, batch_bytes=64 << 20) as producer:
        producer.send_batch(bench.topic, values=[b"%d" % number for number in range(150_000)], partition=0)
    for number in range(5):
        bench.write_values(b"small %d" % number)
    row = bench.frame().selectExpr("count(*)", "count(distinct offset)", "max(offset)", "sum(length(value))").first()
    assert row is not None
    assert tuple(row) == (150_005, 150_005, 150_004, sum(len(str(number)) for number in range(150_000)) + 5 * 7)


def test_should_read_all_when_an_earlier_query_had_enough(bench: SparkBench) -> None:
    bench.cluster.create_topic(bench.topic)
    with Producer(bench.server) as producer:
        producer.send_batch(bench.topic, values=[b"%d" % number for number in range(200_000)], partition=0)
    assert len(bench.frame().take(3)) == 3
    assert bench.frame().count() == 200_000


def test_should_read_less_when_filters_are_pushed(bench: SparkBench) -> None:
    bench.cluster.create_topic(bench.topic, partitions=3)
    bench.write(4, 4, 4, time_ms=_FIRST_MS)
    bench.write(2, 2, 2, time_ms=_SECOND_MS)
    conf = "spark.sql.python.filterPushdown.enabled"
    bench.spark.conf.set(conf, "true")
    try:
        frame = bench.frame(pushFilters="true")
        some = frame.where("partition in (0, 2) and offset >= 1 and offset < 5 and partition != 2")
        assert some.rdd.getNumPartitions() == 2
        assert sorted((row.partition, row.offset) for row in some.collect()) == [(0, 1), (0, 2), (0, 3), (0, 4)]
        late = frame.where(f"timestamp >= timestamp_millis({_SECOND_MS}) and partition = 1")
        assert sorted((row.partition, row.offset) for row in late.collect()) == [(1, 4), (1, 5)]
        with_all = bench.frame().where("partition = 1")
        assert with_all.rdd.getNumPartitions() == 3
        assert with_all.count() == 6
    finally:
        bench.spark.conf.unset(conf)

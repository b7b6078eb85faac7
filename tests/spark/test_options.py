"""Options that are wrong, told by `load()` or the query with the remedy."""

from typing import Any

import pytest
from pyspark.errors import PySparkException

from tests.support.spark_bench import Batches, SparkBench


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"kafka.bootstrap.servers": "there:9092"}, "write server, with a broker's URL"),
        ({"kafka.security.protocol": "SSL"}, "takes no options of Kafka's clients"),
        ({"nonsense": "1"}, "there are assign, caFile, columns"),
        ({"path": "there"}, "load.. takes no path"),
        ({"subscribePattern": ".*"}, "subscribe and subscribePattern are both given"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss is 'maybe': write true or false"),
        ({"minPartitions": "0"}, "minPartitions is 0: write a whole number from 1"),
        ({"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger means nothing to a batch query"),
        ({"startingOffsets": "latest"}, "startingOffsets is latest: a batch query would find nothing"),
        ({"startingOffsets": "soon"}, "write earliest, latest or JSON such as"),
        ({"valueSchema": "n INT"}, "write valueFormat=json too"),
        ({"columns": "offset, headers"}, "columns has 'headers'.*set includeHeaders=true"),
    ],
)
def test_should_name_the_remedy_when_an_option_is_wrong(bench: SparkBench, options: dict[str, Any], said: str) -> None:
    with pytest.raises(PySparkException, match=said):
        bench.rows(subscribe=bench.topic, **options)


def test_should_say_what_is_missing_when_nothing_is_subscribed(bench: SparkBench) -> None:
    with pytest.raises(PySparkException, match="nothing says what to read: give subscribe"):
        bench.spark.read.format("headrace").option("server", bench.server).load().count()


def test_should_refuse_ends_when_a_query_streams(bench: SparkBench) -> None:
    with pytest.raises(PySparkException, match="endingOffsets means nothing to a streaming query"):
        bench.read_available(Batches(), endingOffsets="latest")


def test_should_refuse_another_schema_when_one_is_given(bench: SparkBench) -> None:
    bench.create(1)
    reader = bench.spark.read.format("headrace").option("server", bench.server).option("subscribe", bench.topic)
    with pytest.raises(PySparkException, match="leave out schema"):
        reader.schema("a INT").load().count()

"""What a stream reader tells of its progress, and what of it Spark can pickle."""

import pickle
from collections.abc import Mapping

from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import LongType, StructField, StructType

from headrace.spark.offsets import Offsets, SourcePartition, to_json
from headrace.spark.options import Connection
from headrace.spark.read_options import StreamOptions
from headrace.spark.schema import shape_of
from headrace.spark.stream_reader import GroupProgress, StreamReader, Unreported
from headrace.spark.tasks import Reading

_FIRST = SourcePartition("flights", "u1", 0)


class Told:
    """A `Progress` that remembers."""

    def __init__(self) -> None:
        self.reached_at: list[Offsets] = []
        self.is_closed = False

    def reached(self, offsets: Mapping[SourcePartition, int]) -> None:
        self.reached_at.append(dict(offsets))

    def close(self) -> None:
        self.is_closed = True


def reader(**more: str) -> StreamReader:
    options = StreamOptions.of({"subscribe": "flights", "maxOffsetsPerTrigger": "7", **more})
    schema = StructType([StructField("offset", LongType())])
    connection = Connection("http://127.0.0.1:1")
    return StreamReader(options, Reading(connection, shape_of({"columns": "offset"}), schema, options.loss))


def test_should_tell_of_what_is_done_when_a_batch_is_planned() -> None:
    stream, told = reader(), Told()
    stream.progress = told
    (task,) = stream.partitions(to_json({_FIRST: 3}), to_json({_FIRST: 9}))
    stream.stop()
    assert (task.value.start, task.value.end) == (3, 9)
    assert told.reached_at == [{_FIRST: 3}]
    assert told.is_closed


def test_should_be_pickled_with_its_options_before_it_connects() -> None:
    again = pickle.loads(pickle.dumps(reader()))
    assert again.getDefaultReadLimit() == ReadMaxRows(7)
    assert again.reportLatestOffset() is None


def test_should_report_to_a_group_only_when_one_is_named() -> None:
    assert isinstance(reader().progress, Unreported)
    named = reader(group="counts")
    assert isinstance(named.progress, GroupProgress)
    again = pickle.loads(pickle.dumps(named))
    again.stop()
    assert again.getDefaultReadLimit() == ReadMaxRows(7)

"""What a stream reader tells of its progress, and what of it Spark can pickle."""

import pickle
from collections.abc import Mapping

from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import LongType, StructField, StructType

from headrace.spark.offsets import Offsets, Partition, to_json
from headrace.spark.options import Connection
from headrace.spark.read_options import StreamOptions
from headrace.spark.schema import shape_of
from headrace.spark.stream_reader import StreamReader
from headrace.spark.tasks import Reading

_FIRST = Partition("flights", "u1", 0)


class Told:
    """A `Progress` that remembers."""

    def __init__(self) -> None:
        self.planned_to: list[tuple[Offsets, Offsets]] = []
        self.committed_to: list[Offsets] = []
        self.is_closed = False

    def planned(self, start: Mapping[Partition, int], end: Mapping[Partition, int]) -> None:
        self.planned_to.append((dict(start), dict(end)))

    def committed(self, end: Mapping[Partition, int]) -> None:
        self.committed_to.append(dict(end))

    def close(self) -> None:
        self.is_closed = True


def reader() -> StreamReader:
    options = StreamOptions.of({"subscribe": "flights", "maxOffsetsPerTrigger": "7"})
    schema = StructType([StructField("offset", LongType())])
    connection = Connection("http://127.0.0.1:1")
    return StreamReader(options, Reading(connection, shape_of({"columns": "offset"}), schema, options.loss))


def test_should_tell_of_what_is_planned_and_of_what_is_done() -> None:
    stream, told = reader(), Told()
    stream.progress = told
    (task,) = stream.partitions(to_json({_FIRST: 3}), to_json({_FIRST: 9}))
    stream.commit(to_json({_FIRST: 9}))
    stream.stop()
    assert (task.value.start, task.value.end) == (3, 9)
    assert told.planned_to == [({_FIRST: 3}, {_FIRST: 9})]
    assert told.committed_to == [{_FIRST: 9}]
    assert told.is_closed


def test_should_be_pickled_with_its_options_before_it_connects() -> None:
    again = pickle.loads(pickle.dumps(reader()))
    assert again.getDefaultReadLimit() == ReadMaxRows(7)
    assert again.reportLatestOffset() is None

"""Batches as Spark's columns: joined, cut, and with the types that Spark wants."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.records.columns import DecodedBatch, decode_batch, encode_batch, record_columns
from headrace.spark.columns import SPARK_ROWS_GATHERED, SPARK_ROWS_MAX, gathered, maker_of
from headrace.spark.offsets import SourcePartition
from tests.support.examples import examples

_PARTITION = SourcePartition("flights", "u", 3)


def batches_of(*counts: int) -> Iterator[DecodedBatch]:
    """With so many records, one after the other."""
    first = 0
    for count in counts:
        values = [b"%d" % number for number in range(first, first + count)]
        batch = decode_batch(b"".join(encode_batch(record_columns(values, timestamps_ms=5))))
        yield DecodedBatch(batch.header, batch.records, np.arange(first, first + count))
        first += count


@examples(0.5)
@given(st.lists(st.sampled_from([1, 7, 1000, SPARK_ROWS_GATHERED, SPARK_ROWS_MAX + 3]), max_size=6))
def test_should_keep_every_record_once_when_batches_are_joined_and_cut(counts: list[int]) -> None:
    pieces = list(gathered(_PARTITION, batches_of(*counts)))
    offsets = [offset for rows in pieces for offset in maker_of("offset", None)(rows).to_pylist()]
    values = [int(value) for rows in pieces for value in maker_of("value", None)(rows).to_pylist()]
    assert offsets == values == list(range(sum(counts)))
    assert all(0 < rows.count <= SPARK_ROWS_MAX for rows in pieces)
    assert all(len(maker_of("topic", None)(rows)) == rows.count for rows in pieces)


def test_should_join_small_batches_when_they_follow_each_other() -> None:
    assert [rows.count for rows in gathered(_PARTITION, batches_of(*[100] * 20))] == [2000]


def test_should_not_copy_a_value_when_a_batch_is_large_enough() -> None:
    (batch,) = batches_of(SPARK_ROWS_GATHERED)
    (rows,) = gathered(_PARTITION, [batch])
    assert rows.raw(1).buffers()[2].address == batch.records.column(1).buffers()[2].address


def test_should_have_microseconds_when_spark_asks_for_times() -> None:
    (rows,) = gathered(_PARTITION, batches_of(3))
    times = maker_of("timestamp", None)(rows)
    assert times.type == pa.timestamp("us", "UTC")
    assert times.cast(pa.int64()).to_pylist() == [5000] * 3


def test_should_be_the_last_time_that_spark_has_when_a_record_is_later() -> None:
    encoded = b"".join(encode_batch(record_columns([b"a", b"b"], timestamps_ms=[7, 2**63 - 1])))
    (rows,) = gathered(_PARTITION, [decode_batch(encoded)])
    assert maker_of("timestamp", None)(rows).cast(pa.int64()).to_pylist() == [7000, (2**63 - 1) // 1000 * 1000]


def test_should_say_who_has_set_the_time_when_that_changes() -> None:
    create, append = batches_of(2, 3)
    append = DecodedBatch(append.header._replace(attributes=8), append.records, append.offsets)
    pieces = list(gathered(_PARTITION, [create, append]))
    assert [maker_of("timestampType", None)(rows).to_pylist() for rows in pieces] == [[0, 0], [1, 1, 1]]


def test_should_rename_headers_when_a_batch_was_cut() -> None:
    headers = [[("a", b"1")], [], [("b", None), ("c", b"3")]]
    encoded = b"".join(encode_batch(record_columns([b"x"] * 3, timestamps_ms=0, headers=headers)))
    (rows,) = gathered(_PARTITION, [decode_batch(encoded).since(1)])
    kind = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
    found = maker_of("headers", kind)(rows)
    assert found.type == kind
    assert found.to_pylist() == [[], [{"key": "b", "value": None}, {"key": "c", "value": b"3"}]]

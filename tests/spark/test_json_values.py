"""`valueFormat=json`: typed columns of the values, and what happens to those that are none."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from pyspark.errors import PySparkException

from tests.support.spark_bench import SparkBench

_SCHEMA = (
    "carrier STRING, delay INT, km DOUBLE, late BOOLEAN, at TIMESTAMP, day DATE, price DECIMAL(8,2),"
    " legs ARRAY<STRUCT<from: STRING, seats: BIGINT>>, `of what` STRUCT<a: STRING>"
)
_WHOLE = (
    b'{"carrier": "UA",\n "delay": 7, "km": 1400, "late": true, "at": "2013-01-01T10:00:00Z", "day": "2013-01-01",'
    b' "price": 12.50, "legs": [{"from": "EWR", "seats": 3000000000}], "of what": {"a": "x\\ny"}, "unknown": [1]}'
)


def test_should_give_typed_columns_when_values_are_json(bench: SparkBench) -> None:
    bench.create(0)
    bench.write_values(_WHOLE, b'{"delay": -1}', None)
    frame = bench.frame(valueFormat="json", valueSchema=_SCHEMA)
    typed = ["carrier", "delay", "km", "late", "at", "day", "price", "legs", "of what"]
    assert frame.columns == ["key", *typed, "topic", "partition", "offset", "timestamp", "timestampType"]
    first, second, third = (row[1:10] for row in frame.orderBy("offset").collect())
    at = datetime(2013, 1, 1, 10, tzinfo=UTC).astimezone().replace(tzinfo=None)
    legs = [("EWR", 3_000_000_000)]
    assert first[:7] == ("UA", 7, 1400.0, True, at, date(2013, 1, 1), Decimal("12.50"))
    assert [tuple(leg) for leg in first[7]] == legs
    assert tuple(first[8]) == ("x\ny",)
    assert second == (None, -1, *[None] * 7)
    assert third == (None,) * 9, "a tombstone has no fields"


def test_should_name_the_record_when_a_value_is_no_such_json(bench: SparkBench) -> None:
    bench.create(0)
    bench.write_values(*(b'{"n": %d}' % number for number in range(5)), b"no json", b'{"n": 6}')
    with pytest.raises(PySparkException, match=f"the value at offset 5 of {bench.topic}/0 is no JSON object") as raised:
        bench.rows(valueFormat="json", valueSchema="n INT")
    assert "mode=PERMISSIVE" in str(raised.value)
    rows = bench.rows(valueFormat="json", valueSchema="n INT", mode="permissive")
    assert [row.n for row in rows] == [0, 1, 2, 3, 4, None, 6]


def test_should_tell_the_columns_apart_when_a_field_has_a_records_name(bench: SparkBench) -> None:
    bench.create(0)
    bench.write_values(b'{"offset": 41, "n": 1}')
    with pytest.raises(PySparkException, match="valueSchema has 'offset', and so has the record itself"):
        bench.frame(valueFormat="json", valueSchema="offset INT, n INT")
    (row,) = bench.frame(valueFormat="json", valueSchema="offset INT, n INT", columns="offset, n, partition").collect()
    assert tuple(row) == (41, 1, 0)


def test_should_name_the_column_when_its_type_is_not_read(bench: SparkBench) -> None:
    with pytest.raises(PySparkException, match=r"JSON is not read as map.* \(column n\): take it as STRING"):
        bench.rows(valueFormat="json", valueSchema="n MAP<STRING, INT>")

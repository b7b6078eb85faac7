"""The columns that options choose, as DDL."""

import pytest

from headrace.core.errors import LocalError
from headrace.spark.schema import shape_of


def test_should_keep_types_whole_when_they_hold_commas_and_colons() -> None:
    schema = "a INT, b DECIMAL(8,2), c STRUCT<d: INT, e: MAP<STRING, INT>>, `f, g` STRING, h: DOUBLE, `i``j` INT"
    shape = shape_of({"valueFormat": "json", "valueSchema": schema, "columns": "a,b,c,h,i`j"})
    assert [(column.name, column.kind) for column in shape.columns] == [
        ("a", "INT"),
        ("b", "DECIMAL(8,2)"),
        ("c", "STRUCT<d: INT, e: MAP<STRING, INT>>"),
        ("h", "DOUBLE"),
        ("i`j", "INT"),
    ]
    assert shape.ddl.endswith("`h` DOUBLE, `i``j` INT")
    whole = shape_of({"valueFormat": "json", "valueSchema": schema})
    assert "f, g" in [column.name for column in whole.columns]


def test_should_keep_the_order_when_columns_are_chosen() -> None:
    assert shape_of({"columns": "OFFSET, value, offset"}).ddl == "`offset` BIGINT, `value` BINARY"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"valueFormat": "json"}, "there is no valueSchema"),
        ({"valueFormat": "avro"}, "valueFormat is 'avro': write binary or json"),
        ({"valueFormat": "json", "valueSchema": "a"}, "write a name and a type"),
        ({"valueFormat": "json", "valueSchema": "a INT NOT NULL"}, "leave out NOT NULL"),
        ({"valueFormat": "json", "valueSchema": "Key INT"}, "name the columns that you want with columns="),
        ({"valueFormat": "json", "valueSchema": "a INT, A INT"}, "valueSchema has 'a' more than once"),
        ({"mode": "PERMISSIVE"}, "mode is given without valueFormat=json"),
        ({"columns": "value, price"}, "columns has 'price': there are key, value"),
    ],
)
def test_should_name_the_remedy_when_columns_are_wrong(options: dict[str, str], said: str) -> None:
    with pytest.raises(LocalError, match=said):
        shape_of(options)

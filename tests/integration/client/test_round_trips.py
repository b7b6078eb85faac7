"""What goes in comes out, byte for byte: by every way in and every way out that has no Spark in it.

Lines, JSON lines and CSV are texts of their own (tests/unit/cli/test_line_formats.py); what the command prints as JSON
is read again here, on its way to a producer.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.cli import record_formats
from headrace.cli.line_formats import printed_records
from headrace.cli.record_formats import RecordRows
from headrace.client.consumer.consumer import Consumer
from headrace.client.producer.producer import Producer
from headrace.client.record import TopicPartition
from headrace.core.records.arrays import header_rows
from headrace.core.types import RecordContent
from tests.support.batches import TIMESTAMP_MS
from tests.support.cluster import Cluster, http
from tests.support.examples import examples
from tests.support.patience import patient
from tests.support.world import JSON_BODY, NDJSON_BODY

HOUR_MS = 3_600_000
CONTENTS = st.none() | st.binary(max_size=12) | st.text(max_size=6).map(str.encode)
RECORDS = st.builds(
    RecordContent,
    key=CONTENTS,
    value=CONTENTS,
    timestamp_ms=st.integers(TIMESTAMP_MS - HOUR_MS, TIMESTAMP_MS),
    headers=st.lists(st.tuples(st.text(max_size=4), CONTENTS), max_size=3).map(tuple),
)
ODD_ONES = [
    RecordContent(b"", b"", TIMESTAMP_MS),
    RecordContent(None, None, TIMESTAMP_MS, (("", b""), ("", None), ("\0", b"\0"))),
    RecordContent(b"1.10", b'{"a":1.10,"a":1E5,"b":[-0,1e400]}', TIMESTAMP_MS, (("a", b"1"), ("a", b"1.0"))),
    RecordContent(b"\xff\0", b"a\0b\0", TIMESTAMP_MS - 1),
    RecordContent(b"\xed\xa0\x80", "\ufeff\u2028\x7f\x9b😀".encode(), TIMESTAMP_MS),
    RecordContent(b" a\r\n", b"\r\n \t", TIMESTAMP_MS, (("ü\n", "ü".encode()),)),
    RecordContent(b"null", b"null", TIMESTAMP_MS),
    RecordContent(b'"', b'\\"\\u00e9', TIMESTAMP_MS),
]


@dataclass(frozen=True)
class Place:
    """One partition, at its leader."""

    cluster: Cluster
    topic: str
    producer: Producer
    consumer: Consumer

    @property
    def url(self) -> str:
        return self.cluster.records_url(self.topic)

    @property
    def end(self) -> int:
        return self.consumer.end_offsets()[TopicPartition(self.topic, 0)]


@pytest.fixture(scope="module")
def place(shared: Cluster) -> Iterator[Place]:
    topic = "round-trips"
    shared.create_topic(topic)
    with Producer(shared.url()) as producer, Consumer(topic, server=shared.url()) as consumer:
        yield Place(shared, topic, producer, consumer)


def by_json(place: Place, records: list[RecordContent]) -> None:
    body = json.dumps({"records": [_written(record) for record in records]}).encode()
    answer = http("POST", place.url, body, JSON_BODY)
    assert answer.status == 200, answer.body


def by_ndjson(place: Place, records: list[RecordContent]) -> None:
    body = "\r\n\r\n".join(json.dumps(_written(record), ensure_ascii=False) for record in records).encode()
    answer = http("POST", place.url, b"\xef\xbb\xbf" + body, NDJSON_BODY)
    assert answer.status == 200, answer.body


def by_send(place: Place, records: list[RecordContent]) -> None:
    for each in records:
        place.producer.send(place.topic, each.value, each.key, headers=each.headers, timestamp_ms=each.timestamp_ms)
    place.producer.flush()


def by_printed_lines(place: Place, records: list[RecordContent]) -> None:
    rows = RecordRows(
        *(place.topic, 0, list(range(len(records))), [record.timestamp_ms for record in records]),
        *([record.key for record in records], [record.value for record in records]),
        [record.headers for record in records],
    )
    for each in printed_records(record_formats.json_lines(rows, with_topic=True), lambda: 0):
        place.producer.send(place.topic, each.value, each.key, headers=each.headers, timestamp_ms=each.timestamp_ms)
    place.producer.flush()


def by_columns(place: Place, records: list[RecordContent], column: Callable[[list[bytes | None]], Any]) -> None:
    place.producer.send_batch(
        place.topic,
        values=column([record.value for record in records]),
        keys=column([record.key for record in records]),
        timestamps_ms=[record.timestamp_ms for record in records],
    ).result(patient(60))


COLUMNS: list[Callable[[list[bytes | None]], Any]] = [
    list,
    iter,
    lambda entries: pa.array(entries, pa.binary_view()),
    lambda entries: pa.array(entries, pa.large_binary()).dictionary_encode(),
]
WAYS_IN = [by_json, by_ndjson, by_send, by_printed_lines]


def json_out(place: Place, start: int) -> list[RecordContent]:
    found = http("GET", f"{place.url}?offset={start}").json["records"]
    return [_read(record) for record in found]


def ndjson_out(place: Place, start: int) -> list[RecordContent]:
    answer = http("GET", f"{place.url}?offset={start}", headers={"Accept": "application/x-ndjson"})
    return [_read(json.loads(line)) for line in answer.body.split(b"\n") if line]


def records_out(place: Place, start: int) -> list[RecordContent]:
    place.consumer.seek(0, start)
    found = place.consumer.records(follow=False)
    return [RecordContent(each.key, each.value, each.timestamp_ms, each.headers) for each in found]


def batches_out(place: Place, start: int) -> list[RecordContent]:
    place.consumer.seek(0, start)
    found = []
    for batch in place.consumer.batches(follow=False):
        columns = [batch.column(name).to_pylist() for name in ("key", "value", "timestamp_ms")]
        rows = zip(*columns, header_rows(batch.column("headers")), strict=True)
        found += [RecordContent(key, value, time, headers) for key, value, time, headers in rows]
    return found


WAYS_OUT = [json_out, ndjson_out, records_out, batches_out]


@examples(0.4)
@given(records=st.lists(RECORDS, min_size=1, max_size=3))
@example(records=ODD_ONES)
def test_should_give_back_what_it_was_given(place: Place, records: list[RecordContent]) -> None:
    start = place.end
    for way_in in WAYS_IN:
        way_in(place, records)
    for column in COLUMNS:
        by_columns(place, records, column)
    plain = [replace(record, headers=()) for record in records]
    expected = records * len(WAYS_IN) + plain * len(COLUMNS)
    for way_out in WAYS_OUT:
        assert way_out(place, start) == expected, way_out


def test_should_show_the_json_that_it_was_given(place: Place) -> None:
    start = place.end
    value = '{"n":[1.10,1E5,-0,1e400,123456789012345678901234567890.123456789],"a":1,"a":"ü"}'
    spaced = value.replace(",", " ,\r\n\t").replace("ü", "\\u00fc")
    body = f'{{"records": [{{"key": 9007199254740993.0, "value": {spaced}}}]}}'
    assert http("POST", place.url, body.encode(), JSON_BODY).status == 200
    (record,) = records_out(place, start)
    assert (record.key, record.value) == (b"9007199254740993.0", value.encode())
    for accept in ("application/json", "application/x-ndjson"):
        shown = http("GET", f"{place.url}?offset={start}&valueFormat=json", headers={"Accept": accept}).body
        assert f'"value": {value}, '.encode() in shown


def _written(record: RecordContent) -> dict[str, Any]:
    headers = [{"name": name, **_content("value", content)} for name, content in record.headers]
    return {
        **_content("key", record.key),
        **_content("value", record.value),
        "timestamp": record.timestamp_ms,
        "headers": headers,
    }


def _content(name: str, content: bytes | None) -> dict[str, str | None]:
    try:
        return {name: None if content is None else content.decode()}
    except UnicodeDecodeError:
        return {f"{name}Base64": b64encode(content or b"").decode()}


def _read(record: dict[str, Any]) -> RecordContent:
    headers = tuple((header["name"], _bytes(header, "value")) for header in record["headers"])
    return RecordContent(_bytes(record, "key"), _bytes(record, "value"), record["timestamp"], headers)


def _bytes(fields: dict[str, Any], name: str) -> bytes | None:
    if f"{name}Base64" in fields:
        return b64decode(fields[f"{name}Base64"])
    return None if fields[name] is None else fields[name].encode()

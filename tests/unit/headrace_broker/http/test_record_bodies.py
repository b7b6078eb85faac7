"""Bodies in three formats, and the same records in each."""

import json
from dataclasses import replace

import pytest

from headrace.core.errors import BatchTooLargeError, InvalidRequestError, UnreadableBatchError
from headrace.core.records.header import BatchHeader, Compression
from headrace.core.types import LeaderEpoch, Offset, RecordContent, TopicUid
from headrace_broker.http.fetch import fetch_headers
from headrace_broker.http.record_bodies import (
    JSON_FETCH_BYTES_MAX,
    WATCH_LINES_BYTES,
    BodyFormat,
    accepted_format,
    content_format,
    encode_records,
    json_of,
    ndjson_of,
    ndjson_pieces,
    parse_batches,
    unpacked_bytes_of,
)
from headrace_broker.partition.fetch import FetchedBatches
from headrace_broker.partition.queries import ValueFormat
from tests.support.batches import batch_of, boastful, mislabelled, poisoned, sealed


def fetched(offset: int = 0) -> FetchedBatches:
    buffers = [batch_of(b"a", b"b"), batch_of(b"c")]
    return FetchedBatches(buffers, Offset(offset), Offset(3), Offset(3), Offset(0), LeaderEpoch(1), TopicUid("u"), 3)


@pytest.mark.parametrize(
    ("accept", "body_format"),
    [
        ("", BodyFormat.JSON),
        ("*/*", BodyFormat.JSON),
        ("text/html, application/x-ndjson;q=0.9", BodyFormat.NDJSON),
        ("application/vnd.headrace.batch", BodyFormat.BATCHES),
    ],
)
def test_should_answer_in_the_first_format_that_is_accepted(accept: str, body_format: BodyFormat) -> None:
    assert accepted_format(accept) is body_format


def test_should_refuse_formats_that_it_does_not_know() -> None:
    assert content_format("Application/JSON; charset=utf-8") is BodyFormat.JSON
    with pytest.raises(InvalidRequestError, match="Content-Type '': must be one of"):
        content_format("")
    with pytest.raises(InvalidRequestError, match="Accept 'text/html': must have one of"):
        accepted_format("text/html")


def test_should_make_as_many_batches_as_the_limit_asks_for() -> None:
    lines = b"".join(b'{"value": "%s"}\n' % (b"x" * 300) for _ in range(9))
    batches = parse_batches([lines], BodyFormat.NDJSON, batch_bytes_max=2048, now_ms=5)
    assert len(batches) > 1
    assert sum(batch.header.record_count for batch in batches) == 9
    assert max(batch.nbytes for batch in batches) <= 2048
    with pytest.raises(BatchTooLargeError, match="the topic's maxMessageBytes is 256"):
        parse_batches([lines], BodyFormat.NDJSON, batch_bytes_max=256, now_ms=5)


def test_should_take_one_batch_where_that_is_enough() -> None:
    records = [RecordContent(b"k", b"v", 1), RecordContent(None, None, 2)]
    (batch,) = parse_batches(encode_records(records, 4096), BodyFormat.BATCHES, batch_bytes_max=4096, now_ms=0)
    assert batch.header.record_count == 2


def test_should_show_records_from_the_offset_on_and_no_more_than_asked_for() -> None:
    body, next_offset = json_of(fetched(offset=1), 10, ValueFormat.TEXT)
    document = json.loads(body)
    # The batches are as producers send them, so both begin at offset 0: the second one's record lies below the offset.
    assert [(record["offset"], record["value"]) for record in document["records"]] == [(1, "b")]
    assert (next_offset, document["nextOffset"], document["highWatermark"], document["logStartOffset"]) == (3, 3, 3, 0)

    lines, next_offset = ndjson_of(fetched(), 1, ValueFormat.TEXT)
    assert [json.loads(line)["value"] for line in lines.splitlines()] == ["a"]
    assert next_offset == 1


def test_should_name_no_high_watermark_that_the_leader_does_not_know() -> None:
    unsure = replace(fetched(), high_watermark=None)
    body, _ = json_of(unsure, 10, ValueFormat.TEXT)
    assert json.loads(body)["highWatermark"] is None
    name = "Headrace-High-Watermark"
    assert fetch_headers(fetched(), Offset(3)) == {**fetch_headers(unsure, Offset(3)), name: "3"}


def test_should_bound_an_answer_when_compressed_batches_are_many_times_as_large() -> None:
    count, value = 5, b"a" * (JSON_FETCH_BYTES_MAX // 4)
    buffers = [batch_of(value, compression=Compression.ZSTD)] * count
    small = FetchedBatches(
        buffers, Offset(0), Offset(count), Offset(count), Offset(0), LeaderEpoch(1), TopicUid("u"), count
    )
    assert sum(map(len, buffers)) < 1 << 20

    body, _ = ndjson_of(small, 1000, ValueFormat.TEXT)

    assert len(body.splitlines()) == 4


def test_should_make_lines_a_piece_at_a_time_and_no_more_than_are_wanted() -> None:
    value = b"a" * (WATCH_LINES_BYTES // 2)
    large = [batch_of(value, value, value, compression=Compression.ZSTD)] * 2
    pieces = list(ndjson_pieces(replace(fetched(), buffers=large), None, ValueFormat.TEXT))
    assert [piece.count(b"\n") for piece in pieces] == [2, 2, 2]
    assert b"".join(ndjson_pieces(fetched(offset=1), 1, ValueFormat.TEXT)).count(b"\n") == 1
    assert list(ndjson_pieces(fetched(), 0, ValueFormat.TEXT)) == []


def test_should_say_how_much_the_largest_batch_is_once_it_is_decompressed_and_refuse_a_bomb() -> None:
    small, bomb = batch_of(b"a"), batch_of(bytes(1 << 20), compression=Compression.ZSTD)
    assert len(bomb) < 4 << 10
    assert unpacked_bytes_of(replace(fetched(), buffers=[small]), 0) == 0, "it is what it is"
    together = replace(fetched(), buffers=[small + bomb, small])
    assert 1 << 20 < unpacked_bytes_of(together, 2 << 20) < 1025 << 10
    with pytest.raises(
        BatchTooLargeError, match="at most 1000 are made JSON of; fetch it with Accept: application/vnd"
    ):
        unpacked_bytes_of(together, 1000)


def test_should_show_what_comes_before_a_batch_that_nobody_can_decode_and_then_tell_of_it() -> None:
    buffers = [batch_of(b"a", b"b") + placed(poisoned(batch_of(b"x")), 2), placed(batch_of(b"c"), 3)]
    both = replace(fetched(), buffers=buffers, next_offset=Offset(4))
    for shape in (json_of, ndjson_of):
        body, next_offset = shape(both, 100, ValueFormat.TEXT)
        assert (body.count(b'"offset"'), next_offset) == (2, 2)
        for poison in (poisoned(batch_of(b"x")), mislabelled(batch_of(b"x"))):
            only = replace(fetched(2), buffers=[placed(poison, 2), *buffers[1:]])
            assert unpacked_bytes_of(only, 1000) == 0
            with pytest.raises(UnreadableBatchError) as caught:
                shape(only, 100, ValueFormat.TEXT)
            assert caught.value.details == {"baseOffset": 2, "lastOffset": 2, "nextOffset": 3}
    pieces = ndjson_pieces(both, None, ValueFormat.TEXT)
    assert next(pieces).count(b"\n") == 2
    with pytest.raises(UnreadableBatchError):
        next(pieces)


def test_should_not_wait_for_memory_that_a_boast_asks_for() -> None:
    bomb = boastful(batch_of(bytes(1 << 20), compression=Compression.ZSTD))
    assert unpacked_bytes_of(replace(fetched(), buffers=[bomb]), 1000) == 0


def placed(batch: bytes, offset: int) -> bytes:
    return sealed(BatchHeader.unpack(batch)._replace(base_offset=Offset(offset)).pack() + batch[64:])

"""The records in bodies: JSON and NDJSON to batches on the way in, batches to both on the way out; and gzip.

pyarrow is loaded with the first body that needs it: a broker that serves binary clients only never pays for it. All of
this may take long for large bodies and runs in a thread; nothing here touches a partition.

Answers are gzipped for clients that take it, the same over both protocols; batches never, they compress themselves.
Streams are not touched: a watch compresses its lines as they come.
"""

import asyncio
import json
from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import islice

from aiohttp import web

from headrace.core.errors import BatchTooLargeError, CorruptBatchError, InvalidRequestError, UnreadableBatchError
from headrace.core.limits import BATCH_DECOMPRESSED_BYTES_MAX
from headrace.core.records.arrow_message import unpacked_bytes
from headrace.core.records.header import BatchHeader, Compression
from headrace.core.records.raw import RawBatch, split_batches
from headrace.core.types import Offset, RecordContent
from headrace.http2.bodies import GZIP, accepts_gzip, gzipped
from headrace_broker.partition.fetch import Buffer, FetchedBatches
from headrace_broker.partition.queries import Place, ValueFormat

JSON_FETCH_BYTES_MAX = 64 << 20
"""The records of one JSON or NDJSON answer: compressed batches may be many times as large as the bytes read."""
WATCH_LINES_BYTES = 256 << 10
"""The bytes of NDJSON that a stream makes at a time."""
COMPRESSED_IN_LOOP_BYTES = 32 << 10
"""A larger body is compressed in a thread."""


class BodyFormat(StrEnum):
    """The formats of bodies, by media type."""

    BATCHES = "application/vnd.headrace.batch"
    JSON = "application/json"
    NDJSON = "application/x-ndjson"


_MEDIA_TYPES = ", ".join(BodyFormat)


def content_format(content_type: str) -> BodyFormat:
    """Return the format of a request's body. Raises InvalidRequestError."""
    try:
        return BodyFormat(content_type.partition(";")[0].strip().lower())
    except ValueError:
        raise InvalidRequestError(
            f"Content-Type {content_type!r}: must be one of {_MEDIA_TYPES}; add the header, as in"
            f" curl -H 'Content-Type: {BodyFormat.JSON.value}'",
            field="Content-Type",
        ) from None


def accepted_format(accept: str) -> BodyFormat:
    """Return the answer's format: the first media type offered; JSON where anything will do. Raises
    InvalidRequestError."""
    for part in accept.split(","):
        media_type = part.partition(";")[0].strip().lower()
        if media_type in ("", "*/*", "application/*"):
            return BodyFormat.JSON
        if media_type in tuple(BodyFormat):
            return BodyFormat(media_type)
    raise InvalidRequestError(f"Accept {accept!r}: must have one of {_MEDIA_TYPES}", field="Accept")


def parse_records(chunks: Sequence[Buffer], body_format: BodyFormat, now_ms: int) -> list[RecordContent]:
    """Parse the records of a JSON or NDJSON body. Raises InvalidRequestError with the line or the index."""
    from headrace.core.records.json_records import parse_json_records, parse_ndjson

    body = b"".join(chunks)
    if body_format is BodyFormat.NDJSON:
        return parse_ndjson(body, now_ms)
    return parse_json_records(body, now_ms=now_ms)


def encode_records(records: Sequence[RecordContent], batch_bytes_max: int) -> list[memoryview]:
    """Batches as a producer would send them, as many as it takes to keep each below the limit.

    A single record above the limit stays as it is, and the check of the batches refuses it.
    """
    from headrace.core.records.columns import columns_of, encode_batch

    encoded = [memoryview(part).cast("B") for part in encode_batch(columns_of(records))]
    if sum(map(len, encoded)) <= batch_bytes_max or len(records) == 1:
        return encoded
    half = len(records) // 2
    return encode_records(records[:half], batch_bytes_max) + encode_records(records[half:], batch_bytes_max)


def parse_batches(
    chunks: Sequence[bytes | memoryview],
    body_format: BodyFormat,
    *,
    batch_bytes_max: int,
    now_ms: int,
    are_committed: bool = False,
) -> list[RawBatch]:
    """Return the body's batches, checked. Raises CorruptBatchError, BatchTooLargeError, InvalidRequestError."""
    if body_format is not BodyFormat.BATCHES:
        chunks = encode_records(parse_records(chunks, body_format, now_ms), batch_bytes_max)
    return split_batches(chunks, batch_bytes_max=batch_bytes_max, are_committed=are_committed)


def unpacked_bytes_of(fetched: FetchedBatches, batch_bytes_max: int) -> int:
    """Return the size of the largest batch once it is decompressed: JSON is made of one after the other.

    Raises CorruptBatchError, and BatchTooLargeError for a batch over the limit, which may be few bytes as compressed. A
    batch that nobody can decode is found when it is its turn.
    """
    largest = 0
    for buffer in fetched.buffers:
        view, at = memoryview(buffer).cast("B"), 0
        while at < len(view):
            header = BatchHeader.unpack(view, at)
            if not header.is_empty and header.compression is not Compression.NONE:
                largest = max(largest, _bounded(_unpacked_bytes(view[at:], header), header, batch_bytes_max))
            at += header.batch_bytes
    return largest


def _unpacked_bytes(batch: memoryview, header: BatchHeader) -> int:
    """Return the batch's size in memory; 0 where decoding it ends before anything is decompressed."""
    try:
        size = unpacked_bytes(batch, header)
    except CorruptBatchError:
        return 0
    return size if size <= BATCH_DECOMPRESSED_BYTES_MAX else 0


def _bounded(size: int, header: BatchHeader, limit: int) -> int:
    if size > limit:
        raise BatchTooLargeError(
            f"the batch at offset {header.base_offset} has {size} bytes once it is decompressed, and at most {limit}"
            f" are made JSON of; fetch it with Accept: {BodyFormat.BATCHES.value}, and decode it there, or read on from"
            f" offset {header.next_offset}",
            limit=limit,
            nextOffset=header.next_offset,
        )
    return size


def with_place(error: UnreadableBatchError, place: Place) -> UnreadableBatchError:
    """Add to an error, for a client, where the batch is, and what to do."""
    return UnreadableBatchError(
        f"{place}: {error.message}; they were written so, and the log is right: read on with"
        f" offset={error.details['nextOffset']}",
        topic=place.topic.name,
        partition=place.partition,
        **error.details,
    )


def json_of(fetched: FetchedBatches, max_records: int, value_format: ValueFormat) -> tuple[bytes, Offset]:
    """Return the records as one JSON document, and where the next fetch goes on."""
    lines, next_offset = _json_lines(fetched, max_records, value_format)
    rest = json.dumps(
        {
            "nextOffset": next_offset,
            "highWatermark": fetched.high_watermark,
            "logStartOffset": fetched.log_start_offset,
        }
    )
    return b'{"records": [' + b", ".join(lines) + b"], " + rest[1:].encode() + b"\n", next_offset


def ndjson_of(fetched: FetchedBatches, max_records: int, value_format: ValueFormat) -> tuple[bytes, Offset]:
    """Return the records, one a line, and where the next fetch goes on."""
    lines, next_offset = _json_lines(fetched, max_records, value_format)
    return b"".join(line + b"\n" for line in lines), next_offset


def ndjson_pieces(fetched: FetchedBatches, max_records: int | None, value_format: ValueFormat) -> Iterator[bytes]:
    """Yield the records, one a line, `WATCH_LINES_BYTES` at a time, the next ones only when they are asked for.

    Raises UnreadableBatchError behind the records that come before such a batch.
    """
    from headrace.core.records.json_records import json_line

    lines: list[bytes] = []
    size = 0
    unreadable: UnreadableBatchError | None = None
    try:
        for offset, record in islice(_json_rows(fetched), max_records):
            lines.append(json_line(record, offset, value_format=value_format.value).encode())
            size += len(lines[-1])
            if size >= WATCH_LINES_BYTES:
                yield b"\n".join(lines) + b"\n"
                lines, size = [], 0
    except UnreadableBatchError as error:
        unreadable = error
    if lines:
        yield b"\n".join(lines) + b"\n"
    if unreadable is not None:
        raise unreadable


def _json_lines(fetched: FetchedBatches, max_records: int, value_format: ValueFormat) -> tuple[list[bytes], Offset]:
    from headrace.core.records.json_records import json_line

    lines: list[bytes] = []
    left_bytes = JSON_FETCH_BYTES_MAX
    try:
        for offset, record in _json_rows(fetched):
            if len(lines) == max_records or left_bytes <= 0:
                return lines, offset
            lines.append(json_line(record, offset, value_format=value_format.value).encode())
            left_bytes -= len(lines[-1])
    except UnreadableBatchError as error:
        if not lines:
            raise
        return lines, Offset(int(str(error.details["baseOffset"])))  # The fetch that begins there hears of it.
    return lines, fetched.next_offset


def _json_rows(fetched: FetchedBatches) -> Iterator[tuple[Offset, RecordContent]]:
    from headrace.core.records.columns import decode_batches

    for buffer in fetched.buffers:
        for batch in decode_batches(buffer):
            yield from batch.since(fetched.offset).rows()


def takes_gzip(request: web.Request) -> bool:
    accepted = request.headers.getall("Accept-Encoding", ())
    return bool(accepted) and accepts_gzip(",".join(accepted))


async def compressed(request: web.Request, response: web.Response) -> web.Response:
    """Return the same answer, gzipped where that may be and is wanted. One that has been sent is left alone."""
    if response.prepared or response.content_type == BodyFormat.BATCHES:
        return response
    headers = response.headers
    vary = headers.get("Vary", "")
    if "Accept-Encoding" not in vary:
        headers["Vary"] = f"{vary}, Accept-Encoding" if vary else "Accept-Encoding"
    body = response.body
    if isinstance(body, bytes) and body and "Content-Encoding" not in headers and takes_gzip(request):
        small = len(body) <= COMPRESSED_IN_LOOP_BYTES
        response.body = gzipped(body) if small else await asyncio.to_thread(gzipped, body)
        headers["Content-Encoding"] = GZIP
    return response

"""Does a record fit its topic at all? Decided by its real size as a batch of its own, where that is in doubt."""

from typing import Any

from headrace.client.batches import BATCH_OVERHEAD_BYTES, Row
from headrace.client.columns import Columns
from headrace.client.layout import TopicLayout
from headrace.core.errors import BatchTooLargeError
from headrace.core.records.columns import encode_batch, record_columns
from headrace.core.records.header import Compression


def check_row(row: Row, size_bytes: int, layout: TopicLayout, compression: Compression) -> None:
    """`size_bytes` is the upper bound that `row_bytes` gives. Raises BatchTooLargeError."""
    if size_bytes + BATCH_OVERHEAD_BYTES > layout.max_message_bytes:
        key, value, timestamp_ms, headers = row
        single = record_columns([value], [key], timestamps_ms=timestamp_ms, headers=[headers] if headers else None)
        _check(single, "the record", layout, compression)


def check_rows(columns: Columns, layout: TopicLayout, compression: Compression) -> None:
    """As `check_row` for columns: the error names the first row that is too large."""
    for number in columns.large_rows(layout.max_message_bytes - BATCH_OVERHEAD_BYTES):
        _check(columns.records(number, 1), f"the record in row {number}", layout, compression)


def _check(single: Any, what: str, layout: TopicLayout, compression: Compression) -> None:
    size = sum(len(buffer) for buffer in encode_batch(single, compression=compression))
    if size > layout.max_message_bytes:
        raise BatchTooLargeError(
            f"{what} takes {size} bytes as a batch of its own, and {layout.topic} takes {layout.max_message_bytes}:"
            " split it, or raise spec.maxMessageBytes of the topic",
            limit=layout.max_message_bytes,
        )

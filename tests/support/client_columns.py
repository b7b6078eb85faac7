"""Columns as `send_batch` takes them, as the records that they become."""

from typing import Any

from headrace.client.producer.columns import checked_columns


def batch_columns(values: Any, keys: Any, timestamps_ms: Any, now_ms: int) -> Any:
    """A pyarrow.RecordBatch of RECORD_SCHEMA."""
    return checked_columns(values, keys, timestamps_ms, now_ms).records()

"""What replicas have on their disks: each batch by its base offset, read from the segments when brokers are stopped."""

from collections.abc import Iterator
from pathlib import Path

from headrace.core.errors import CorruptBatchError
from headrace.core.records.header import BatchHeader


def batches_below(data: Path, topic_uid: str, partition: int, high_watermark: int) -> dict[int, bytes] | None:
    """None where this broker holds no replica."""
    directory = data / "partitions" / f"{topic_uid}-{partition}"
    if not directory.is_dir():
        return None
    return {
        offset: batch
        for segment in sorted(directory.glob("*.log"))
        for offset, batch in _batches(segment.read_bytes())
        if offset < high_watermark
    }


def _batches(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Up to the first that is none: what lies behind was cut, or never finished."""
    at = 0
    while at < len(content):
        try:
            header = BatchHeader.unpack(content, at)
        except CorruptBatchError:
            return
        yield header.base_offset, content[at : at + header.batch_bytes]
        at += header.batch_bytes

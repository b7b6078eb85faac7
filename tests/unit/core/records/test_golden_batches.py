"""Golden vectors of the batch format: `tests/golden/batches/NAME.hex` (the bytes) and `NAME.json` (what they mean).

They hold the format still: what was once written must be read the same for ever, and other languages can test against
the same files. Bodies are not compared byte by byte with what is written today, because another release of Arrow may
lay out its metadata differently; headers are. To record them again after a deliberate change of the format:

    HEADRACE_REWRITE_GOLDEN=1 pytest tests/unit/core/records/test_golden_batches.py
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.core.errors import CorruptBatchError
from headrace.core.records.columns import (
    SPARSE_RECORD_SCHEMA,
    columns_of,
    decode_batch,
    encode_batch,
)
from headrace.core.records.header import APPEND_TIME_BIT, SPARSE_BIT, BatchHeader, Compression, ProducerNumbers
from headrace.core.records.json_records import to_json
from headrace.core.records.raw import HEARTBEAT, emptied_batch, split_batches
from headrace.core.types import LeaderEpoch, Offset, RecordContent
from tests.support.batches import TIMESTAMP_MS, encoded, message_of, packed

FOLDER = Path(__file__).parents[3] / "golden" / "batches"
REWRITE = os.environ.get("HEADRACE_REWRITE_GOLDEN") == "1"
FLIGHT = RecordContent(b"N14228", b'{"carrier":"UA","flight":1545}', TIMESTAMP_MS)
MANY = [RecordContent(b"N%d" % number, b"value " * 20, TIMESTAMP_MS + number) for number in range(12)]


def one() -> bytes:
    """One record with key and value, as a producer sends it."""
    return encoded(columns_of([FLIGHT]))


def nulls() -> bytes:
    """Null and empty keys and values: a null value is a tombstone, an empty one is not."""
    pairs = [(None, b"no key"), (b"", b"empty key"), (b"gone", None), (b"empty value", b"")]
    return encoded(columns_of([RecordContent(key, value, TIMESTAMP_MS) for key, value in pairs]))


def headers() -> bytes:
    """Headers: a name may come twice, names are UTF-8, values are bytes or null."""
    first = RecordContent(None, b"v", TIMESTAMP_MS, (("trace", b"\x00\xff"), ("trace", b"2"), ("größe", None)))
    return encoded(columns_of([first, RecordContent(None, b"w", TIMESTAMP_MS + 1)]))


def lz4() -> bytes:
    """Buffers compressed with LZ4 (frame format)."""
    return encoded(columns_of(MANY), Compression.LZ4)


def zstd() -> bytes:
    """Buffers compressed with ZSTD."""
    return encoded(columns_of(MANY), Compression.ZSTD)


def idempotent() -> bytes:
    """A producer with an id: epoch 2, sequence 17."""
    return b"".join(encode_batch(columns_of([FLIGHT]), numbers=ProducerNumbers(1 << 62, 2, 17)))


def stamped() -> bytes:
    """As a leader of epoch 5 wrote it to its log at offset 1000: the CRC is the producer's."""
    (batch,) = split_batches([encoded(columns_of(MANY[:3]))], batch_bytes_max=1 << 20)
    return b"".join(batch.stamp(Offset(1000), LeaderEpoch(5)).buffers)


def append_time() -> bytes:
    """The leader's time: every record has max_timestamp_ms, whatever the body says."""
    batch = encoded(columns_of(MANY[:2]))
    header = BatchHeader.unpack(batch)._replace(attributes=APPEND_TIME_BIT, max_timestamp_ms=TIMESTAMP_MS + 5000)
    return packed(header, batch[64:])


def sparse() -> bytes:
    """Compaction left three of eight records: a fifth column says how far each is from base_offset."""
    records = columns_of(MANY[:3])
    body = message_of([*records.columns, pa.array([0, 3, 6], pa.int32())], SPARSE_RECORD_SCHEMA)
    header = BatchHeader.unpack(encoded(records))
    return packed(header._replace(attributes=SPARSE_BIT, last_offset_delta=7, base_offset=Offset(40)), body)


def heartbeat() -> bytes:
    """A header without records, which keeps an endless stream alive."""
    return HEARTBEAT


def emptied() -> bytes:
    """Compaction left none of seven records: the header says which offsets they had."""
    header = BatchHeader.unpack(stamped())
    return emptied_batch(header._replace(base_offset=Offset(40), last_offset_delta=6))


def wrong_crc() -> bytes:
    """One bit of the body flipped."""
    damaged = bytearray(one())
    damaged[-100] ^= 1
    return bytes(damaged)


def wrong_stamp() -> bytes:
    """The base offset changed without its checksum."""
    return b"\x01" + one()[1:]


def lying_count() -> bytes:
    """Two records claimed, one in the body; both checksums are right."""
    return packed(BatchHeader.unpack(one())._replace(record_count=2, last_offset_delta=1), one()[64:])


WRITERS: list[Callable[[], bytes]] = [
    *(one, nulls, headers, lz4, zstd, idempotent, stamped, append_time, sparse, emptied, heartbeat),
    *(wrong_crc, wrong_stamp, lying_count),
]


def meaning(batch: bytes) -> dict[str, Any]:
    """What a reader makes of the bytes: header and records, or the refusal."""
    try:
        header = BatchHeader.unpack(batch)
        rows = [] if header.is_empty else list(decode_batch(batch).rows())
    except CorruptBatchError as error:
        return {"error": error.code, "detail": error.message}
    return {"header": header._asdict(), "records": [to_json(record, offset) for offset, record in rows]}


def without_layout(told: dict[str, Any]) -> dict[str, Any]:
    """Without what may differ between releases of Arrow: how long the body is, and its checksum."""
    fields = {name: value for name, value in told.get("header", {}).items() if name not in {"batch_bytes", "crc32c"}}
    return {"header": fields, "records": told.get("records"), "error": told.get("error")}


def rewrite(name: str, batch: bytes, description: str) -> None:
    lines = [batch[at : at + 32].hex(" ", 4) for at in range(0, len(batch), 32)]
    (FOLDER / f"{name}.hex").write_text("\n".join(lines) + "\n")
    document = {"description": description, **meaning(batch)}
    (FOLDER / f"{name}.json").write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
def test_should_read_golden_batches_as_recorded_and_write_the_same(write: Callable[[], bytes]) -> None:
    if REWRITE:
        rewrite(write.__name__, write(), write.__doc__ or "")
    golden = bytes.fromhex((FOLDER / f"{write.__name__}.hex").read_text())
    recorded = json.loads((FOLDER / f"{write.__name__}.json").read_text())
    assert recorded.pop("description") == write.__doc__
    assert meaning(golden) == recorded
    assert without_layout(meaning(write())) == without_layout(recorded)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.hex")), ids=lambda path: path.stem)
def test_should_write_golden_headers_byte_by_byte(path: Path) -> None:
    golden = bytes.fromhex(path.read_text())
    recorded = json.loads(path.with_suffix(".json").read_text())
    if "header" in recorded:
        assert BatchHeader(**recorded["header"]).pack() == golden[:64]


def test_should_have_a_writer_for_every_golden_file() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == {write.__name__ for write in WRITERS}

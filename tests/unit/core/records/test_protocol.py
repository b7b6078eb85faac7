"""`docs/protocol.md` says what the code does: its header table, its checksums and its hexadecimal batch."""

import re
import struct
from pathlib import Path

from crc32c import crc32c

from headrace.core.limits import BATCH_DECOMPRESSED_BYTES_MAX, RECORD_HEADERS_MAX
from headrace.core.records.arrow_message import BATCH_METADATA_BYTES_MAX
from headrace.core.records.columns import RECORD_SCHEMA, SPARSE_RECORD_SCHEMA, decode_batch
from headrace.core.records.header import MAGIC, BatchHeader
from headrace.core.records.raw import split_batches
from headrace.core.types import LeaderEpoch, Offset, RecordContent

PROTOCOL = (Path(__file__).parents[4] / "docs" / "protocol.md").read_text()
STRUCT_CODES = {"i16": "h", "i32": "i", "i64": "q", "u8": "B", "u16": "H", "u32": "I"}
HEADER = BatchHeader(Offset(11), LeaderEpoch(12), 1280, MAGIC, 15, 2, 17, 18, 19, 20, 21, 22, 23)


def header_table() -> list[tuple[int, str, str]]:
    """(position, type, field) of each row."""
    rows = re.findall(r"^\| (\d+) \| ([iu]\d+) \| `?(\w+)`? \|", PROTOCOL, re.MULTILINE)
    return [(int(at), kind, field) for at, kind, field in rows]


def example() -> bytes:
    dump = re.search(r"```hex\n(.*?)```", PROTOCOL, re.DOTALL)
    assert dump is not None
    rows = [re.split(r"\s{2}", line) for line in dump[1].splitlines()]
    assert [int(at, 16) for at, _ in rows] == list(range(0, 16 * len(rows), 16))
    return bytes.fromhex("".join(data for _, data in rows))


def test_should_find_every_field_where_the_table_says() -> None:
    packed, expected_at = HEADER.pack(), 0
    for at, kind, field in header_table():
        assert at == expected_at
        (number,) = struct.unpack_from("<" + STRUCT_CODES[kind], packed, at)
        special = {"reserved": 0, "stamp_checksum": crc32c(packed[:18]) & 0xFFFF}
        assert number == special.get(field, HEADER._asdict().get(field))
        expected_at += struct.calcsize(STRUCT_CODES[kind])
    assert expected_at == len(packed) == 64
    assert {field for _, _, field in header_table()} == {*BatchHeader._fields, "reserved", "stamp_checksum"}


def test_should_name_the_columns_of_the_body() -> None:
    columns = re.findall(r"^\| `(\w+)` \| (?:binary|int64|int32|list<.*>) \|", PROTOCOL, re.MULTILINE)
    assert columns == SPARSE_RECORD_SCHEMA.names
    assert columns[:4] == RECORD_SCHEMA.names


def test_should_name_the_limits() -> None:
    assert f"at most {BATCH_METADATA_BYTES_MAX}." in PROTOCOL
    assert f"{BATCH_DECOMPRESSED_BYTES_MAX >> 20} MiB at most" in PROTOCOL
    assert f"at most {RECORD_HEADERS_MAX} for a record" in PROTOCOL


def test_should_decode_the_example_as_it_is_described() -> None:
    batch = example()
    expected = RecordContent(b"N14228", b'{"carrier":"UA","flight":1545}', 1_763_715_600_000)
    assert list(decode_batch(batch).rows()) == [(0, expected)]
    assert f"It is {len(batch)} bytes long" in PROTOCOL
    assert len(split_batches([batch], batch_bytes_max=len(batch))) == 1


def test_should_find_both_checksums_of_the_example_by_the_rules_of_the_text() -> None:
    batch = example()
    assert struct.unpack_from("<H", batch, 18)[0] == crc32c(batch[:18]) & 0xFFFF == 0x3DDD
    assert struct.unpack_from("<I", batch, 20)[0] == crc32c(batch[24:]) == 0x97DDB367

"""`docs/protocol.md` says of sessions what the code does: tables, limits and the bytes of its example."""

import re
import struct
from pathlib import Path

from headrace.core.frames.frame import HEAD_BYTES, pack_head
from headrace.core.frames.session_messages import (
    FROM_BROKERS,
    FROM_CLIENTS,
    SESSION_CHANNELS_MAX,
    SESSION_FRAME_BYTES_MAX,
    SESSION_MEDIA_TYPE,
    SESSION_PRODUCES_PENDING_MAX,
    Credit,
    OpenProduce,
    Produce,
    Produced,
    SessionKind,
)
from headrace.core.frames.session_terms import FetchTerms, ProduceTerms
from headrace.core.limits import SESSION_JSON_BYTES_MAX
from headrace.core.types import LeaderEpoch, Offset, PartitionId, TopicName
from headrace.http2.slow_clients import HTTP_STALL_BYTES, HTTP_STALL_MS
from headrace_broker.sessions.open_sessions import SESSION_HEARTBEAT_MS, SESSIONS_MAX

PROTOCOL = (Path(__file__).parents[4] / "docs" / "protocol.md").read_text()
SECTION = PROTOCOL[PROTOCOL.index("### Sessions") : PROTOCOL.index("### Problems")]
CODES = {"u8": "B", "u16": "H", "u32": "I", "i32": "i", "i64": "q"}
FLIGHTS = TopicName("default", "flights")


def examples() -> list[bytes]:
    dumps = re.findall(r"```session\n(.*?)```", SECTION, re.DOTALL)
    return [bytes.fromhex("".join(line.split("  ", 1)[1] for line in dump.splitlines())) for dump in dumps]


def test_should_find_every_field_of_the_head_where_the_table_says() -> None:
    values = {"type": 0x82, "flags": 0, "reserved": 0, "channel": 2, "length": 3, "leader_epoch": 4}
    values |= {"first": 5, "second": 6, "third": 7, "fourth": 8}
    head, expected_at = pack_head(0x82, 2, 3, 4, 5, 6, 7, 8), 0
    rows = re.findall(r"^\| (\d+) \| `?(\w+)`? \| ([iu]\d+) \|", SECTION, re.MULTILINE)
    for at, field, kind in rows:
        assert int(at) == expected_at
        assert struct.unpack_from("<" + CODES[kind], head, expected_at) == (values.pop(field),)
        expected_at += struct.calcsize(CODES[kind])
    assert (expected_at, values) == (HEAD_BYTES, {})


def test_should_name_every_type() -> None:
    said = re.findall(r"^\| (0x\w\w) \| (\w+) \|", SECTION, re.MULTILINE)
    assert {name: int(number, 16) for number, name in said} == {kind.name: kind.value for kind in SessionKind}


def test_should_name_the_limits_and_the_media_type() -> None:
    assert f"`Content-Type: {SESSION_MEDIA_TYPE}`" in SECTION
    assert f"429 above {SESSIONS_MAX} sessions" in SECTION
    assert f"{SESSION_CHANNELS_MAX} channels open at most" in SECTION
    assert f"up to {SESSION_PRODUCES_PENDING_MAX} unanswered ones" in SECTION
    assert f"whole batches, {SESSION_FRAME_BYTES_MAX >> 20} MiB at most" in SECTION
    assert f"{SESSION_JSON_BYTES_MAX >> 10} KiB at most" in SECTION
    assert f"After {SESSION_HEARTBEAT_MS // 1000} seconds without a frame" in SECTION
    assert f"sends less than {HTTP_STALL_BYTES >> 10} KiB of it in {HTTP_STALL_MS // 1000} seconds" in SECTION


def test_should_read_the_examples_as_they_are_described() -> None:
    opening, produce, produced, credit = examples()
    (frame,) = FROM_CLIENTS.reader().receive(opening)
    assert b"".join(frame.payload) == b'{"namespace":"default","topic":"flights","partition":0}'
    assert FROM_CLIENTS.message(frame) == OpenProduce(1, ProduceTerms(FLIGHTS, PartitionId(0)))
    (frame,) = FROM_CLIENTS.reader().receive(produce + bytes(640))
    assert FROM_CLIENTS.message(frame) == Produce(1, 7, frame.payload)
    (frame,) = FROM_BROKERS.reader().receive(produced)
    assert FROM_BROKERS.message(frame) == Produced(1, 7, Offset(5), Offset(5), Offset(0), LeaderEpoch(1))
    (frame,) = FROM_CLIENTS.reader().receive(credit)
    assert FROM_CLIENTS.message(frame) == Credit(2, 640)


def test_should_take_the_fetch_that_the_text_opens() -> None:
    said = re.search(r'OPEN_FETCH of channel 2 with `(\{.*?"offset".*?\})`', SECTION)
    assert said is not None
    terms = FetchTerms.parse([memoryview(said[1].encode())])
    assert terms == FetchTerms(FLIGHTS, PartitionId(0), Offset(5), credit=1 << 20)

"""`docs/protocol.md` says of the streams between brokers what the code does: tables, limits, the bytes it shows."""

import re
from pathlib import Path

from headrace.core.frames.replication_messages import (
    FROM_FOLLOWERS,
    FROM_LEADERS,
    REPLICATION_ALIVE_MS,
    REPLICATION_MEDIA_TYPE,
    REPLICATION_SILENCE_MS_MAX,
    FetchMessage,
    FollowMessage,
    Hello,
    LeaderBatches,
    ReplicationKind,
    ReportMessage,
    StreamRole,
)
from headrace.core.replication.follower_stream import REPLICATION_UNREPORTED_BYTES
from headrace.core.replication.isr import Ends
from headrace.core.replication.leader_stream import (
    REPLICATION_BEHIND_BYTES_MAX,
    REPLICATION_HELLO_MS_MAX,
    REPLICATION_IN_FLIGHT_BYTES_MAX,
    REPLICATION_STREAM_BYTES_MAX,
)
from headrace.core.types import LeaderEpoch, Offset, PartitionId, PartitionKey, TopicUid
from headrace_broker.replication.follower_streams import REPLICATION_BACKOFF_MAX_MS, REPLICATION_BACKOFF_MIN_MS
from headrace_broker.replication.leader_stream import REPLICATION_WATERMARK_MS
from headrace_broker.replication.open_streams import REPLICATION_STREAMS_UNKNOWN_MAX
from tests.support.partition_sets import seat

PROTOCOL = (Path(__file__).parents[4] / "docs" / "protocol.md").read_text()
SECTION = PROTOCOL[PROTOCOL.index("## Between brokers") : PROTOCOL.index("## OpenAPI")]
EPOCH = LeaderEpoch(1)
BATCH_BYTES = 640


def examples() -> list[bytes]:
    dumps = re.findall(r"```replication\n(.*?)```", SECTION, re.DOTALL)
    return [bytes.fromhex("".join(line.split("  ", 1)[1] for line in dump.splitlines())) for dump in dumps]


def test_should_name_every_type() -> None:
    said = re.findall(r"^\| (0x\w\w) \| (\w+) \|", SECTION, re.MULTILINE)
    assert {name: int(number, 16) for number, name in said} == {kind.name: kind.value for kind in ReplicationKind}


def test_should_name_the_media_type_and_the_roles() -> None:
    assert f"`Content-Type: {REPLICATION_MEDIA_TYPE}`" in SECTION
    assert " or ".join(f"`{lane}`" for lane in StreamRole) in SECTION


def test_should_name_the_limits() -> None:
    assert f"has sent {REPLICATION_BEHIND_BYTES_MAX >> 20} MiB on one" in SECTION
    assert f"{REPLICATION_IN_FLIGHT_BYTES_MAX >> 20} MiB of a partition" in SECTION
    assert f"{REPLICATION_STREAM_BYTES_MAX >> 20} MiB of all partitions" in SECTION
    assert f"alone within {REPLICATION_WATERMARK_MS} ms" in SECTION
    assert f"nothing for {REPLICATION_SILENCE_MS_MAX / 1000:g} seconds" in SECTION
    assert f"after {REPLICATION_BACKOFF_MIN_MS} ms to {REPLICATION_BACKOFF_MAX_MS // 1000} s" in SECTION
    assert f"within {REPLICATION_HELLO_MS_MAX // 1000} seconds" in SECTION
    assert f"a leader keeps {REPLICATION_STREAMS_UNKNOWN_MAX}, " in SECTION
    assert f"until {REPLICATION_UNREPORTED_BYTES >> 20} MiB has come" in SECTION
    assert REPLICATION_ALIVE_MS == 1000, "once a second"


def test_should_show_the_bytes_that_are_sent() -> None:
    hello, follow, fetch, batches, report = examples()
    sent = [FROM_FOLLOWERS.message(frame) for frame in FROM_FOLLOWERS.reader().receive(hello + follow + fetch + report)]
    assert sent == [
        Hello(seat(2, 5), StreamRole.LIVE),
        FollowMessage(1, EPOCH, PartitionKey(TopicUid("5f3c"), PartitionId(0))),
        FetchMessage(1, EPOCH, Offset(5)),
        ReportMessage(1, EPOCH, Ends(Offset(6), Offset(5)), 1000),
    ]
    batch = bytes(BATCH_BYTES)
    reader = FROM_LEADERS.reader()
    [answer] = [FROM_LEADERS.message(frame) for frame in reader.receive(batches + batch)]
    assert answer == LeaderBatches(1, EPOCH, Offset(6), Offset(5), Offset(0), 1000, [batch])

"""What is too old or too much goes, on a real broker: whole segments, for every reader, and for good."""

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import aiohttp

from headrace.core.records.columns import decode_batches, encode_batch, record_columns
from headrace.core.records.time_rules import TIMESTAMP_MS_MAX
from tests.support.cluster import Answer, Cluster, http
from tests.support.patience import patient
from tests.support.waiting import wait_for
from tests.support.world import BATCH_BODY, TOPICS

SEGMENT_BYTES = 16 << 10
LONG_AGO_MS = 1_000
FAR_AHEAD_MS = TIMESTAMP_MS_MAX


def produce(url: str, timestamp_ms: int | None = None, value_bytes: int = 1000) -> int:
    """One record; its offset. Without a time, at the time of the append."""
    body = b"".join(
        encode_batch(record_columns([b"v" * value_bytes], [b"k"], timestamps_ms=timestamp_ms or LONG_AGO_MS))
    )
    answer = http("POST", url, body, BATCH_BODY)
    assert answer.status == 200, answer.body
    offset: int = answer.json["baseOffset"]
    return offset


def start_of(url: str) -> int:
    offset: int = http("GET", f"{url.replace('/records', '/offsets')}?timestamp=earliest").json["offset"]
    return offset


def read(url: str, offset: int) -> Answer:
    return http("GET", f"{url}?offset={offset}", headers={"Accept": BATCH_BODY["Content-Type"]})


def log_files(cluster: Cluster, uid: str) -> list[Path]:
    return sorted((cluster.home / "broker-0" / "partitions" / f"{uid}-0").glob("*.log"))


def sizes(cluster: Cluster, uid: str) -> list[int]:
    """Of the log's files, the oldest first; without those that have gone since they were listed."""
    return [size for path in log_files(cluster, uid) if (size := size_of(path)) is not None]


def size_of(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def deleted(cluster: Cluster, reason: str) -> float:
    lines = http("GET", f"{cluster.url()}/metrics").body.decode().splitlines()
    series = f'headrace_broker_deleted_segments_total{{reason="{reason}"}} '
    return sum(float(line.removeprefix(series)) for line in lines if line.startswith(series))


def test_should_keep_about_as_much_as_the_topic_says_whoever_has_read_it(cluster: Cluster, topic: str) -> None:
    limit = 3 * SEGMENT_BYTES
    uid = cluster.create_topic(
        topic,
        retention={"bytes": str(limit), "time": "unlimited"},
        segment={"bytes": str(SEGMENT_BYTES)},
        durability="Replicated",
    )
    url = cluster.records_url(topic)
    before = deleted(cluster, "size")
    for _ in range(30):
        produce(url, value_bytes=4_000)

    def settled() -> bool:
        """Without its oldest file the log would be too small: nothing more goes."""
        found = sizes(cluster, uid)
        return sum(found) - found[0] < limit and start_of(url) == int(log_files(cluster, uid)[0].stem)

    wait_for(settled, "it shrinks")

    start = start_of(url)
    assert start > 0
    assert limit <= sum(sizes(cluster, uid)) < limit + SEGMENT_BYTES
    gone = read(url, start - 1)
    assert (gone.status, gone.json["code"], gone.json["logStartOffset"]) == (416, "OffsetOutOfRange", start)
    assert next(decode_batches(read(url, start).body)).header.base_offset == start
    assert produce(url) == 30
    wait_for(lambda: deleted(cluster, "size") > before, "it is counted")


def test_should_delete_by_the_records_own_time_also_what_is_written_to(cluster: Cluster, topic: str) -> None:
    uid = cluster.create_topic(topic, retention={"time": "1h"})
    url = cluster.records_url(topic)
    ahead = f"{topic}-ahead"
    cluster.create_topic(ahead, retention={"time": "1h"})
    appended = f"{topic}-appended"
    cluster.create_topic(appended, retention={"time": "1h"}, timestampType="LogAppendTime")
    produce(cluster.records_url(ahead), FAR_AHEAD_MS)
    produce(cluster.records_url(appended), LONG_AGO_MS)
    assert (produce(url), produce(url)) == (0, 1)

    wait_for(lambda: start_of(url) == 2, "what is from long ago is gone")

    # Readers hear of it before the files go.
    wait_for(lambda: [path.name for path in log_files(cluster, uid)] == [f"{2:020d}.log"], "so are the files")
    assert produce(url, FAR_AHEAD_MS) == 2
    wait_for(lambda: deleted(cluster, "time") >= 1, "it is counted")
    assert [start_of(cluster.records_url(name)) for name in (topic, ahead, appended)] == [2, 0, 0]


def test_should_apply_another_retention_to_what_is_there_and_never_to_what_is_compacted(
    cluster: Cluster, topic: str
) -> None:
    topics = {policy: f"{topic}-{policy.lower()}" for policy in ("Delete", "CompactDelete", "Compact")}
    for policy, name in topics.items():
        cluster.create_topic(name, cleanupPolicy=policy)
    urls = {policy: cluster.records_url(name) for policy, name in topics.items()}
    for url in urls.values():
        produce(url)
    for name in topics.values():
        cluster.kube("PATCH", f"{TOPICS}/{name}", {"spec": {"retention": {"time": "1s"}}})

    wait_for(lambda: start_of(urls["Delete"]) == start_of(urls["CompactDelete"]) == 1, "the new retention holds")

    assert start_of(urls["Compact"]) == 0


def test_should_close_a_segment_after_its_time_though_nobody_writes(cluster: Cluster, topic: str) -> None:
    uid = cluster.create_topic(topic, segment={"time": "500ms"})
    produce(cluster.records_url(topic))
    wait_for(lambda: len(log_files(cluster, uid)) == 2, "another segment is begun")
    assert start_of(cluster.records_url(topic)) == 0


def test_should_let_streams_go_on_while_segments_go_behind_them(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, retention={"bytes": "1k", "time": "unlimited"}, segment={"bytes": str(SEGMENT_BYTES)})
    url = cluster.records_url(topic)

    async def read_all(lines: aiohttp.StreamReader) -> AsyncIterator[int]:
        async for line in lines:
            record = json.loads(line)
            if "offset" in record:
                yield record["offset"]

    async def follow() -> list[int]:
        """Each record is written when the one before was seen, so that no segment goes that is still to be read."""
        seen: list[int] = []
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{url}?watch=true") as stream,
            asyncio.timeout(patient(90)),
        ):
            await asyncio.to_thread(partial(produce, url, value_bytes=SEGMENT_BYTES // 2))
            async for offset in read_all(stream.content):
                seen.append(offset)
                if offset == 39:
                    break
                await asyncio.to_thread(partial(produce, url, value_bytes=SEGMENT_BYTES // 2))
        return seen

    assert asyncio.run(follow()) == list(range(40))
    wait_for(lambda: start_of(url) > 30, "the segments are gone")


def test_should_give_the_space_back_when_all_records_are_deleted(cluster: Cluster, topic: str) -> None:
    uid = cluster.create_topic(topic)
    url = cluster.records_url(topic)
    produce(url, value_bytes=100_000)
    assert http("DELETE", f"{url}?beforeOffset=latest").json["logStartOffset"] == 1
    wait_for(lambda: sizes(cluster, uid) == [0], "its files are gone")
    assert produce(url) == 1

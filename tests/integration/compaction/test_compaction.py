"""Compacted topics on a real broker: every reader finds the last value of each key, through gaps, whatever happens."""

import json
import os
import random
import re
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import headrace
from headrace.core.log.compaction import CleanPoints
from headrace.core.records.columns import encode_batch, record_columns
from tests.integration.compaction.conftest import EAGER
from tests.support.cluster import Cluster, Program, http
from tests.support.logs import flip_bit
from tests.support.patience import patient
from tests.support.waiting import wait_for
from tests.support.world import BATCH_BODY, JSON_BODY, NDJSON_BODY

SEGMENT_BYTES = 20_000
Rows = list[tuple[int, str, str | None]]


class Written:
    """A topic, and all that was acknowledged of it: offset, key, value, in order."""

    def __init__(self, cluster: Cluster, topic: str, **spec: Any) -> None:
        self.topic = topic
        self.uid = cluster.create_topic(
            topic, segment={"bytes": str(SEGMENT_BYTES)}, **{"cleanupPolicy": "Compact"} | spec
        )
        self.cluster = cluster
        self.rows: Rows = []

    @property
    def url(self) -> str:
        return self.cluster.records_url(self.topic)

    @property
    def directory(self) -> Path:
        return self.cluster.home / "broker-0" / "partitions" / f"{self.uid}-0"

    def write(self, records: int, keys: int = 12, seed: int = 1) -> None:
        """Some of them tombstones; a few a batch."""
        chance = random.Random(seed)
        with headrace.Producer(server=self.cluster.url(), linger_ms=1) as producer:
            futures = []
            for number in range(records):
                key = f"key-{chance.randrange(keys)}"
                value = None if chance.random() < 0.1 else f"{seed}-{number}-" + "x" * chance.randrange(400)
                futures.append((key, value, producer.send(self.topic, value, key=key, timestamp_ms=1_000 * number)))
                if number % 3 == 0:
                    producer.flush()
            self.rows += [(future.result().offset, key, value) for key, value, future in futures]

    def wait_compacted(self) -> int:
        """Until all closed segments are; where the compacted part ends."""

        def end() -> int | None:
            active = int(max(path.stem for path in self.directory.glob("*.log")))
            try:
                clean = CleanPoints.parse((self.directory / "compaction-checkpoint").read_bytes())
            except FileNotFoundError:
                return None
            return active if clean.end == active > 0 else None

        return wait_for(end, "the log is compacted")

    def left(self, clean: int) -> Rows:
        """What compaction leaves where all below `clean` is compacted."""
        last = {key: offset for offset, key, _ in self.rows if offset < clean}
        return [row for row in self.rows if row[0] >= clean or last[row[1]] == row[0]]


def rows_of(records: list[dict[str, Any]]) -> Rows:
    return [(record["offset"], record["key"], record["value"]) for record in records]


def read_json(url: str, offset: int = 0, query: str = "") -> Rows:
    """Page by page, to the end."""
    found: Rows = []
    while True:
        answer = http("GET", f"{url}?offset={offset}{query}").json
        found += rows_of(answer["records"])
        if answer["nextOffset"] == answer["highWatermark"]:
            return found
        assert answer["nextOffset"] > offset or answer["highWatermark"] is None
        offset = answer["nextOffset"]


def lines_of(url: str, query: str) -> Rows:
    answer = http("GET", f"{url}?{query}", headers={"Accept": "application/x-ndjson"})
    return rows_of([json.loads(line) for line in answer.body.splitlines()])


def consumed(cluster: Cluster, topic: str, start: Any = "earliest") -> Rows:
    def text(value: bytes | None) -> str | None:
        return None if value is None else value.decode()

    with headrace.Consumer(topic, server=cluster.url(), start=start) as consumer:
        return [(row.offset, row.key.decode(), text(row.value)) for row in consumer.records(follow=False) if row.key]


def batched(cluster: Cluster, topic: str) -> Rows:
    with headrace.Consumer(topic, server=cluster.url(), start="earliest") as consumer:
        columns = [batch.to_pylist() for batch in consumer.batches(follow=False)]
    return [
        (row["offset"], row["key"].decode(), None if row["value"] is None else row["value"].decode())
        for rows in columns
        for row in rows
    ]


@pytest.fixture(scope="module")
def compacted(cluster: Cluster) -> tuple[Written, Rows]:
    written = Written(cluster, "compacted")
    written.write(400)
    return written, written.left(written.wait_compacted())


def gaps(rows: Rows) -> Iterator[int]:
    """Offsets that no record has any more: the first and the last of a gap, the one before a record, the end's."""
    before = -1
    for offset, _, _ in rows:
        if offset > before + 1:
            yield from {before + 1, (before + offset) // 2, offset - 1} - {before}
        before = offset


def test_should_show_every_reader_the_last_value_of_each_key(cluster: Cluster, compacted: tuple[Written, Rows]) -> None:
    written, left = compacted
    assert len(left) < 150
    assert read_json(written.url) == left
    assert read_json(written.url, query="&maxRecords=7") == left
    assert read_json(written.url, query="&maxBytes=1") == left
    assert lines_of(written.url, "offset=0") == left
    assert consumed(cluster, written.topic) == left
    assert batched(cluster, written.topic) == left


def test_should_begin_within_gaps_too(cluster: Cluster, compacted: tuple[Written, Rows]) -> None:
    written, left = compacted
    holes = list(gaps(left))
    assert len(holes) > 5
    for hole in holes[:: max(1, len(holes) // 6)]:
        wanted = [row for row in left if row[0] >= hole]
        assert read_json(written.url, hole) == wanted
        watched = lines_of(written.url, f"watch=true&offset={hole}&maxRecords={len(wanted)}")
        assert watched == wanted, "as many as were asked for, and the stream ends"
    assert consumed(cluster, written.topic, holes[0]) == [row for row in left if row[0] >= holes[0]]


def test_should_find_the_first_record_that_is_left_by_its_time(compacted: tuple[Written, Rows]) -> None:
    written, left = compacted
    times = {offset: 1_000 * number for number, (offset, _, _) in enumerate(written.rows)}
    for time_ms in range(0, 400_000, 37_000):
        expected = next(((offset, times[offset]) for offset, _, _ in left if times[offset] >= time_ms), None)
        answer = http("GET", f"{written.url.replace('/records', '/offsets')}?timestamp={time_ms}").json
        assert (answer["offset"], answer["timestamp"]) == expected


def test_should_let_those_who_follow_see_all_keys_while_it_compacts(cluster: Cluster, topic: str) -> None:
    written, seen = Written(cluster, topic), list[headrace.Record]()

    def follow() -> None:
        with headrace.Consumer(topic, server=cluster.url(), start="earliest", prefetch_bytes=1 << 16) as consumer:
            for record in consumer:
                seen.append(record)
                if record.key == b"end":
                    return

    reader = Thread(target=follow)
    reader.start()
    for seed in range(3):
        written.write(100, seed=seed)
        written.wait_compacted()
    with headrace.Producer(server=cluster.url()) as producer:
        producer.send(topic, "1", key="end").result()
    reader.join(patient(90))
    assert not reader.is_alive()
    offsets = [record.offset for record in seen]
    assert offsets == sorted(set(offsets))
    found = {record.key: record.value for record in seen if record.key != b"end"}
    assert found == {key.encode(): value and value.encode() for _, key, value in written.rows}


def test_should_refuse_records_without_a_key_whatever_they_come_in(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, cleanupPolicy="CompactDelete")
    url = cluster.records_url(topic)
    binary = b"".join(encode_batch(record_columns([b"a", b"b"], [b"k", None], timestamps_ms=0)))
    for body, headers in (
        (b'{"records": [{"key": "k", "value": "a"}, {"value": "b"}]}', JSON_BODY),
        (b'{"key": "k", "value": "a"}\n{"value": "b"}\n', NDJSON_BODY),
        (binary, BATCH_BODY),
    ):
        refused = http("POST", url, body, headers)
        assert (refused.status, refused.json["code"], refused.json["field"]) == (400, "InvalidRequest", "key")
        assert "1 of 2 records" in refused.json["detail"]
    with (
        headrace.Producer(server=cluster.url()) as producer,
        pytest.raises(headrace.HeadraceError, match="needs a key"),
    ):
        producer.send(topic, "value").result()
    assert read_json(url) == []


def test_should_leave_a_log_alone_that_it_cannot_read_and_serve_on(cluster: Cluster, topic: str) -> None:
    written = Written(cluster, topic, compaction={"minLag": "1h"}, timestampType="LogAppendTime")
    written.write(150)
    first = min(written.directory.glob("*.log"))
    flip_bit(first, 8 * 700)
    before = first.read_bytes()
    topics = "/apis/headrace.io/v1alpha1/namespaces/default/topics"
    cluster.kube("PATCH", f"{topics}/{topic}", {"spec": {"compaction": {"minLag": "0s"}}})

    damaged = "headrace_broker_compaction_damaged_partitions 1.0"
    wait_for(lambda: damaged in http("GET", f"{cluster.url()}/metrics").body.decode(), "it is told")

    wait_for(lambda: "cannot be compacted" in cluster.broker().log, "it says so")
    assert first.read_bytes() == before
    written.write(10, seed=2)
    assert read_json(written.url, written.rows[-10][0]) == written.rows[-10:]


def kill_while_it_compacts(broker: Program) -> None:
    started = r"the process that compacts is (\d+)"
    wait_for(lambda: re.search(started, broker.log), "it compacts")
    broker.kill()
    compactors = [Path(f"/proc/{pid}") for pid in re.findall(started, broker.log)]
    wait_for(lambda: not any(process.exists() for process in compactors), "they end with the broker")


def test_should_lose_no_key_when_killed_again_and_again(cluster: Cluster, topic: str) -> None:
    written = Written(cluster, topic)
    for seed in range(2):
        written.write(150, seed=seed)
        kill_while_it_compacts(cluster.broker())
        cluster.start_broker(0, *EAGER)
    written.write(5, seed=9)
    left = written.left(written.wait_compacted())
    assert read_json(written.url) == left
    assert {key: value for _, key, value in left} == {key: value for _, key, value in written.rows}
    names = [path.name for path in written.directory.iterdir() if path.suffix in (".cleaned", ".swap")]
    assert not names


def test_should_give_the_disk_back_when_a_topic_is_deleted_that_was_there_at_the_start(
    cluster: Cluster, topic: str
) -> None:
    written = Written(cluster, topic)
    written.write(150)
    cluster.broker().stop()
    broker = cluster.start_broker(0, *EAGER)
    cluster.wait_led(topic)
    read_json(written.url)

    def still_open() -> list[str]:
        files = map(os.path.realpath, Path(f"/proc/{broker.pid}/fd").iterdir())
        return [path for path in files if path.endswith(".log (deleted)")]

    cluster.delete_topic(topic)
    wait_for(lambda: not (written.directory.exists() or still_open()), "no file is open that is deleted")

"""Times of records that a topic does not take are refused whatever way they come; strange ones are told at once."""

import json
import logging
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from headrace import Producer
from headrace.core.errors import InvalidTimestampError
from headrace.core.records.columns import encode_batch, record_columns
from headrace.core.records.header import BatchHeader
from headrace.core.records.raw import batch_crc
from tests.support.cluster import Answer, Cluster, http
from tests.support.patience import patient
from tests.support.waiting import wait_for
from tests.support.world import BATCH_BODY, JSON_BODY, NDJSON_BODY

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
BOUNDS = {"beforeMax": "1d", "afterMax": "2h"}
OLD, AHEAD = "OlderThanRetention", "FarAhead"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def columns(*times_ms: int) -> pa.RecordBatch:
    return record_columns([b"v"] * len(times_ms), timestamps_ms=[*times_ms])


def as_json(url: str, *times_ms: int) -> Answer:
    records = [{"value": "v", "timestamp": time_ms} for time_ms in times_ms]
    return http("POST", url, json.dumps({"records": records}).encode(), headers=JSON_BODY)


def as_lines(url: str, *times_ms: int) -> Answer:
    lines = [json.dumps({"value": "v", "timestamp": time_ms}) for time_ms in times_ms]
    return http("POST", url, "\n".join(lines).encode(), headers=NDJSON_BODY)


def as_batch(url: str, *times_ms: int) -> Answer:
    return http("POST", url, b"".join(encode_batch(columns(*times_ms))), headers=BATCH_BODY)


def end(url: str) -> int:
    found: int = http("GET", f"{url}?offset=latest").json["highWatermark"]
    return found


@pytest.mark.parametrize("post", [as_json, as_lines, as_batch])
def test_should_refuse_times_out_of_the_topics_bounds_and_write_nothing(
    shared: Cluster, topic: str, post: Callable[..., Answer]
) -> None:
    shared.create_topic(topic, timestamps=BOUNDS)
    url, now = shared.records_url(topic), now_ms()
    for wrong, field in ((now - 2 * DAY_MS, "beforeMax"), (now + 3 * HOUR_MS, "afterMax")):
        refused = post(url, now, wrong, now)
        assert (refused.status, refused.json["code"]) == (400, "InvalidTimestamp"), refused.body
        assert (refused.json["record"], refused.json["timestamp"]) == (1, wrong)
        assert refused.json["field"] == f"spec.timestamps.{field}"
        assert f"raise spec.timestamps.{field}" in refused.json["detail"]
    assert end(url) == 0
    assert post(url, now - DAY_MS // 2, now + HOUR_MS // 2).status == 200
    assert end(url) == 2


@pytest.mark.parametrize("post", [as_json, as_lines])
def test_should_write_to_no_partition_when_the_broker_chooses_them_and_one_record_is_refused(
    shared: Cluster, topic: str, post: Callable[..., Answer]
) -> None:
    shared.create_topic(topic, partitions=3, timestamps=BOUNDS)
    url = f"{shared.url()}/v1/namespaces/default/topics/{topic}/records"
    refused = post(url, *[now_ms()] * 7, 5)
    assert (refused.status, refused.json["code"], refused.json["record"]) == (400, "InvalidTimestamp", 7), refused.body
    assert [end(shared.records_url(topic, number)) for number in range(3)] == [0, 0, 0]


@pytest.mark.parametrize("time_ms", [-1, (1 << 63) - 1, 1_790_000_000_000_000])
def test_should_refuse_what_is_no_time_in_milliseconds_when_the_topic_says_nothing(
    shared: Cluster, topic: str, time_ms: int
) -> None:
    shared.create_topic(topic)
    url = shared.records_url(topic)
    refused = as_batch(url, time_ms)
    assert (refused.status, refused.json["code"]) == (400, "InvalidTimestamp")
    assert end(url) == 0


@pytest.mark.parametrize("time_ms", [-1, (1 << 63) - 1])
def test_should_refuse_a_header_that_lies_about_its_newest_record(shared: Cluster, topic: str, time_ms: int) -> None:
    shared.create_topic(topic)
    url, batch = shared.records_url(topic), b"".join(encode_batch(columns(now_ms())))
    header = BatchHeader.unpack(batch)._replace(max_timestamp_ms=time_ms)
    lying = header._replace(crc32c=batch_crc(header.pack(), [batch[64:]])).pack() + batch[64:]
    refused = http("POST", url, lying, headers=BATCH_BODY)
    assert (refused.status, refused.json["code"]) == (400, "CorruptBatch")
    assert f"max_timestamp_ms {time_ms}" in refused.json["detail"]
    assert end(url) == 0


def test_should_take_whatever_a_producer_says_when_the_leader_gives_the_times(shared: Cluster, topic: str) -> None:
    shared.create_topic(topic, timestampType="LogAppendTime", timestamps=BOUNDS)
    answer = as_batch(shared.records_url(topic), 5, -1)
    assert answer.status == 200
    assert "warnings" not in answer.json


@pytest.mark.parametrize("post", [as_json, as_lines, as_batch])
@pytest.mark.parametrize("spread", [True, False])
def test_should_warn_in_the_answer_when_records_are_too_old_or_far_ahead(
    shared: Cluster, topic: str, post: Callable[..., Answer], spread: bool
) -> None:
    if spread and post is as_batch:
        pytest.skip("a batch goes to one partition")
    shared.create_topic(topic, retention={"time": "2d"})
    url, now = shared.records_url(topic), now_ms()
    url = f"{shared.url()}/v1/namespaces/default/topics/{topic}/records" if spread else url
    answer = post(url, 1, now, 2, now + DAY_MS)
    assert answer.status == 200, answer.body
    assert [(each["reason"], each["records"]) for each in answer.json["warnings"]] == [(OLD, 2), (AHEAD, 1)]
    assert "retention.time, which is 2d" in answer.json["warnings"][0]["message"]
    assert "warnings" not in post(url, now).json


def test_should_tell_the_topic_by_an_event_and_count_them(shared: Cluster, topic: str) -> None:
    shared.create_topic(topic, retention={"time": "7d"})
    for _ in range(2):
        as_json(shared.records_url(topic), 1, now_ms() + DAY_MS)

    def told() -> list[tuple[str, str, int]]:
        events = shared.kube("GET", "/api/v1/namespaces/default/events")["items"]
        mine = [event for event in events if event["involvedObject"]["name"] == topic]
        return sorted((e["reason"], e["type"], e["count"]) for e in mine if e["reason"] in (OLD, AHEAD))

    wait_for(lambda: len(told()) == 2, "both are told")
    assert told() == [(AHEAD, "Warning", 1), (OLD, "Warning", 1)]
    counted: dict[str, float] = {}
    for broker in range(2):
        for line in http("GET", f"{shared.url(broker)}/metrics").body.decode().splitlines():
            if f'topic="{topic}"' in line:
                name, value = line.partition("{")[0], float(line.rpartition(" ")[2])
                counted[name] = counted.get(name, 0) + value
    assert counted["headrace_broker_records_overdue_total"] == 2
    assert counted["headrace_broker_records_ahead_total"] == 2


@pytest.mark.parametrize("by_columns", [True, False])
def test_should_refuse_in_a_session_and_go_on_with_the_next_batch(
    shared: Cluster, topic: str, by_columns: bool
) -> None:
    shared.create_topic(topic, timestamps=BOUNDS)

    def send(producer: Producer, time_ms: int) -> Any:
        if by_columns:
            return producer.send_batch(topic, values=["v"], timestamps_ms=time_ms)
        return producer.send(topic, "v", timestamp_ms=time_ms)

    with Producer(shared.url(), linger_ms=0) as producer:
        send(producer, now_ms()).result(patient(30))
        with pytest.raises(InvalidTimestampError, match=r"raise spec\.timestamps\.beforeMax") as caught:
            send(producer, 7).result(patient(30))
        assert caught.value.details["record"] == 0
        send(producer, now_ms()).result(patient(30))
    assert end(shared.records_url(topic)) == 2


def test_should_warn_once_for_a_topic_and_reason_with_a_count_when_a_producer_writes_old_records(
    shared: Cluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    shared.create_topic(topic, retention={"time": "7d"})
    with caplog.at_level(logging.WARNING, "headrace.client"), Producer(shared.url(), linger_ms=0) as producer:
        for _ in range(5):
            producer.send_batch(topic, values=["a", "b"], timestamps_ms=1).result(patient(30))
        told = [record.getMessage() for record in caplog.records if topic in record.getMessage()]
        assert len(told) == 1
        assert told[0].startswith(
            f"records for {topic}: 2 records are older than the topic's retention.time, which is 7d"
        )
        producer.flush()
    told = [record.getMessage() for record in caplog.records if topic in record.getMessage()]
    assert [each.partition(" are older")[0] for each in told[1:]] == [f"records for {topic} in all: 10 records"]

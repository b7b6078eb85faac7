"""DELETE of records: what is deleted is gone for every reader, at every broker, and stays gone."""

import pytest

from headrace.core.records.columns import decode_batches
from tests.support.cluster import Answer, Cluster, http, produce
from tests.support.world import BATCH


def problem(answer: Answer) -> tuple[int, str, int | None, int | None]:
    document = answer.json
    return answer.status, document["code"], document.get("logStartOffset"), document.get("highWatermark")


@pytest.fixture
def url(shared: Cluster, topic: str) -> str:
    """Of a partition with the values a to e."""
    shared.create_topic(topic)
    url = shared.records_url(topic)
    produce(url, *"abcde", timestamp_ms=1000)
    return url


def other(shared: Cluster, url: str) -> str:
    """The same at the broker that does not lead it."""
    first, second = shared.url(0), shared.url(1)
    return url.replace(first, second) if url.startswith(first) else url.replace(second, first)


def test_should_show_to_nobody_what_is_deleted(url: str) -> None:
    answer = http("DELETE", f"{url}?beforeOffset=2")
    assert (answer.status, answer.json) == (200, {"partition": 0, "logStartOffset": 2})

    assert [record["value"] for record in http("GET", url).json["records"]] == ["c", "d", "e"]
    assert http("GET", url).headers["headrace-log-start-offset"] == "2"
    assert problem(http("GET", f"{url}?offset=1")) == (416, "OffsetOutOfRange", 2, 5)
    offsets = url.replace("/records", "/offsets")
    assert http("GET", f"{offsets}?timestamp=earliest").json["offset"] == 2
    assert http("GET", f"{offsets}?timestamp=0").json["offset"] == 2
    whole = http("GET", f"{url}?offset=2", headers={"Accept": BATCH})
    assert [batch.header.base_offset for batch in decode_batches(whole.body)] == [0], "batches are never cut"


def test_should_say_where_the_log_starts_when_nothing_is_left_to_delete(url: str) -> None:
    assert http("DELETE", f"{url}?beforeOffset=latest").json["logStartOffset"] == 5
    assert http("DELETE", f"{url}?beforeOffset=3").json["logStartOffset"] == 5
    empty = http("GET", url).json
    assert (empty["records"], empty["nextOffset"]) == ([], 5)
    produce(url, "f", timestamp_ms=1000)
    assert [record["offset"] for record in http("GET", url).json["records"]] == [5]


def test_should_delete_at_the_leader_whoever_is_asked(shared: Cluster, url: str) -> None:
    elsewhere = other(shared, url)
    assert http("DELETE", f"{elsewhere}?beforeOffset=1").json == {"partition": 0, "logStartOffset": 1}
    assert http("GET", url).json["logStartOffset"] == 1
    assert problem(http("DELETE", f"{elsewhere}?beforeOffset=6")) == (416, "OffsetOutOfRange", 1, 5)


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("", 400, "InvalidRequest"),
        ("beforeOffset=earliest", 400, "InvalidRequest"),
        ("beforeOffset=6", 416, "OffsetOutOfRange"),
        ("beforeOffset=1&topicUid=old", 412, "StaleTopic"),
        ("beforeOffset=1&leaderEpoch=9", 412, "FencedEpoch"),
    ],
)
def test_should_delete_nothing_when_the_request_is_wrong(url: str, query: str, status: int, code: str) -> None:
    answer = http("DELETE", f"{url}?{query}")
    assert (answer.status, answer.json["code"]) == (status, code)
    assert http("GET", url).json["logStartOffset"] == 0

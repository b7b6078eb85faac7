"""Every refusal names the field, the value and the rule; what was refused leaves nothing behind."""

import json
import socket
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest

from headrace.core.records.header import Compression
from tests.support.batches import ZSTD_MAGIC, batch_of, boastful, mislabelled, poisoned, sealed
from tests.support.cluster import Answer, Cluster, http
from tests.support.patience import patient
from tests.support.waiting import wait_for
from tests.support.world import BATCH_BODY, JSON_BODY, NDJSON_BODY

LIMIT = 4096
ZSTD = batch_of(b"value " * 100, compression=Compression.ZSTD)


@pytest.fixture(scope="module")
def url(shared: Cluster) -> str:
    """The records of a topic with batches of 4 KiB at most."""
    shared.create_topic("strict", maxMessageBytes="4Ki")
    return shared.records_url("strict")


def refused(answer: Answer, status: int, code: str, *said: str) -> dict[str, object]:
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, object] = answer.json
    assert (answer.status, problem["status"], problem["code"]) == (status, status, code), answer.body
    for part in said:
        assert part in str(problem["detail"])
    return problem


def high_watermark(url: str) -> int:
    value: int = http("GET", f"{url}?offset=latest").json["highWatermark"]
    return value


@pytest.mark.parametrize(
    ("path", "status", "code", "said"),
    [
        (
            "/v1/namespaces/default/topics/nope",
            404,
            "UnknownTopic",
            "topic 'nope' does not exist in namespace 'default'",
        ),
        ("/v1/namespaces/x/topics/strict/partitions/0/records", 404, "UnknownTopic", "does not exist in namespace 'x'"),
        ("/v1/namespaces/default/topics/strict/partitions/1/records", 404, "UnknownPartition", "it has 1, from 0 to 0"),
        ("/v1/namespaces/default/topics/strict/partitions/x/records", 400, "InvalidRequest", "partition 'x': must be"),
        (
            "/v1/namespaces/default/topics/strict/partitions/0/offsets?timestamp=x",
            400,
            "InvalidRequest",
            "timestamp 'x'",
        ),
        ("/v1/nope", 404, "UnknownPath", "GET /v1/nope: there is no such path"),
        ("/v1/cluster?pretty=1", 400, "InvalidRequest", "pretty: this path takes no such query parameter"),
    ],
)
def test_should_name_what_does_not_exist(
    shared: Cluster, url: str, path: str, status: int, code: str, said: str
) -> None:
    refused(http("GET", shared.url() + path), status, code, said)


def test_should_name_the_methods_when_one_is_not_allowed(shared: Cluster) -> None:
    answer = http("DELETE", shared.url() + "/v1/cluster")
    refused(answer, 405, "MethodNotAllowed", "DELETE /v1/cluster: this path takes GET, HEAD, OPTIONS")
    assert answer.headers["allow"] == "GET, HEAD, OPTIONS"
    read = http("GET", shared.url() + "/v1/namespaces/default/topics/any/records")
    place = "/v1/namespaces/default/topics/any/partitions/{partition}/records"
    refused(read, 405, "MethodNotAllowed", "this path takes OPTIONS, POST; records are read and deleted at " + place)
    asked = http("OPTIONS", shared.url() + "/v1/namespaces/default/topics/any/partitions/0/records")
    assert (asked.status, asked.body, asked.headers["allow"]) == (204, b"", "DELETE, GET, HEAD, OPTIONS, POST")
    refused(http("OPTIONS", shared.url() + "/nope"), 404, "UnknownPath")


def test_should_end_the_answer_that_says_nothing_with_a_newline_too(url: str) -> None:
    before = high_watermark(url)
    for path in (url, url.replace("/partitions/0", "")):
        answer = http("POST", f"{path}?acks=0", b'{"value": 1}', NDJSON_BODY)
        assert (answer.status, answer.body) == (202, b"{}\n")
    wait_for(lambda: high_watermark(url) == before + 2, "what nobody waited for is written")


def test_should_say_the_valid_range_when_an_offset_is_out_of_it(url: str) -> None:
    end = high_watermark(url)
    problem = refused(http("GET", f"{url}?offset={end + 5}"), 416, "OffsetOutOfRange", f"offset {end + 5} of")
    assert (problem["logStartOffset"], problem["highWatermark"]) == (0, end)


def _flipped(batch: bytes, at: int) -> bytes:
    return batch[:at] + bytes([batch[at] ^ 1]) + batch[at + 1 :]


def _lying(batch: bytes) -> bytes:
    """Says two records, holds one; every checksum is right."""
    changed = bytearray(batch)
    changed[28:32], changed[32:36] = (1).to_bytes(4, "little"), (2).to_bytes(4, "little")
    return sealed(changed)


def _undecompressable(_: bytes) -> bytes:
    """Says how much its buffers hold once they are decompressed, and holds no ZSTD."""
    return sealed(ZSTD.replace(ZSTD_MAGIC, b"nope"))


@pytest.mark.parametrize(
    ("spoil", "status", "code", "said"),
    [
        (lambda batch: _flipped(batch, 100), 400, "CorruptBatch", "batch 1: crc32c is"),
        (lambda batch: _flipped(batch, 2), 400, "CorruptBatch", "batch 1: stamp_checksum is"),
        (_lying, 400, "CorruptBatch", "batch 1: record_count is 2, the body has 1 rows"),
        (poisoned, 400, "CorruptBatch", "batch 1: the body is not a record batch of magic 1: "),
        (mislabelled, 400, "CorruptBatch", "batch 1: the body's compression is NONE, attributes say ZSTD"),
        (_undecompressable, 400, "CorruptBatch", "batch 1: the body is not a record batch of magic 1: "),
        (lambda _: boastful(ZSTD), 400, "CorruptBatch", "batch 1: the body claims 1099511628"),
        (lambda batch: batch[:-1], 400, "CorruptBatch", "batch 1: batch_bytes is"),
        (lambda batch: batch + b"x", 400, "CorruptBatch", "batch 2: 1 bytes are left"),
        (lambda batch: batch_of(b"x" * LIMIT), 413, "BatchTooLarge", f"the topic's maxMessageBytes is {LIMIT}"),
    ],
)
def test_should_append_nothing_when_one_batch_of_a_request_is_bad(
    url: str, spoil: Callable[[bytes], bytes], status: int, code: str, said: str
) -> None:
    before = high_watermark(url)
    good = batch_of(b"good")
    refused(http("POST", url, good + spoil(good), BATCH_BODY), status, code, said)
    assert high_watermark(url) == before


@pytest.mark.parametrize(
    ("body", "headers", "said"),
    [
        (b'{"value": "a"}\n{"value": \n', NDJSON_BODY, "line 2:"),
        (b'{"value": "a"}\n\n{"valu": "b"}\n', NDJSON_BODY, 'line 3: "valu" is not a field of a record'),
        (b'{"records": [{"value": "a"}, {"key": "b"}]}', JSON_BODY, "records[1]: value is missing"),
        (b'{"records": {}}', JSON_BODY, 'must be {"records": [{"value": ...}, ...]}'),
        (b"not json", JSON_BODY, "the body is not JSON"),
        (b"x=1", {"Content-Type": "application/x-www-form-urlencoded"}, "Content-Type 'application/x-www-form"),
    ],
)
def test_should_name_the_line_when_json_is_malformed(url: str, body: bytes, headers: dict[str, str], said: str) -> None:
    before = high_watermark(url)
    refused(http("POST", url, body, headers), 400, "InvalidRequest", said)
    assert high_watermark(url) == before


def test_should_split_json_that_is_too_large_for_one_batch_and_refuse_one_record_that_is(url: str) -> None:
    before = high_watermark(url)
    answer = http("POST", url, b'{"value": "%s"}\n' % (b"x" * 1000) * 10, NDJSON_BODY)
    assert answer.status == 200, answer.body
    assert high_watermark(url) == before + 10
    refused(http("POST", url, b'{"value": "%s"}\n' % (b"x" * 5000), NDJSON_BODY), 413, "BatchTooLarge")
    assert high_watermark(url) == before + 10


def test_should_refuse_requests_of_another_topic_or_epoch(url: str) -> None:
    problem = refused(http("GET", f"{url}?topicUid=other"), 412, "StaleTopic", "topicUid other is not that of topic")
    assert problem["topicUid"]
    problem = refused(
        http("POST", f"{url}?leaderEpoch=9", b'{"value": 1}', NDJSON_BODY), 412, "FencedEpoch", "leaderEpoch 9"
    )
    assert problem["leaderEpoch"] == 1


def test_should_refuse_an_answer_that_nobody_can_give(url: str) -> None:
    answer = http("GET", url, headers={"Accept": "text/html"})
    refused(answer, 400, "InvalidRequest", "Accept 'text/html': must have one of application/vnd.headrace.batch")


def test_should_refuse_a_body_over_the_limit_before_reading_it(url: str) -> None:
    split = urlsplit(url)
    head = (
        f"POST {split.path} HTTP/1.1\r\nHost: {split.netloc}\r\nContent-Type: {BATCH_BODY['Content-Type']}\r\n"
        f"Content-Length: {1 << 40}\r\n\r\n"
    )
    with socket.create_connection((split.hostname, split.port), timeout=patient(30)) as connection:
        connection.sendall(head.encode())
        status_line = connection.makefile("rb").readline()
    assert b" 413 " in status_line


def test_should_leave_nothing_behind_when_a_client_disconnects_mid_upload(url: str) -> None:
    before = high_watermark(url)
    split = urlsplit(url)
    line = b'{"value": "half"}\n'
    head = (
        f"POST {split.path} HTTP/1.1\r\nHost: {split.netloc}\r\nContent-Type: {NDJSON_BODY['Content-Type']}\r\n"
        f"Content-Length: {len(line) * 2}\r\n\r\n"
    )
    with socket.create_connection((split.hostname, split.port), timeout=patient(30)) as connection:
        connection.sendall(head.encode() + line)
    # The next request of the same kind is appended right where the log was.
    produced = http("POST", url, line, NDJSON_BODY).json
    assert produced["baseOffset"] == before
    fetched = http("GET", f"{url}?offset={before}").json["records"]
    assert json.dumps([record["value"] for record in fetched]) == '["half"]'

"""Any client that numbers its batches may send them again: over HTTP, through another broker, after a kill -9."""

from headrace.core.records.columns import columns_of, encode_batch
from headrace.core.records.header import ProducerNumbers
from headrace.core.types import RecordContent
from tests.support.batches import TIMESTAMP_MS
from tests.support.cluster import Answer, Cluster, Program, http
from tests.support.world import BATCH_BODY


def batch(sequence: int, *values: bytes, epoch: int = 0) -> bytes:
    records = columns_of([RecordContent(None, value, TIMESTAMP_MS) for value in values or (b"v",)])
    return b"".join(encode_batch(records, numbers=ProducerNumbers(7, epoch, sequence)))


def places(answer: Answer) -> list[tuple[int, int]]:
    assert answer.status == 200, answer.body
    return [(result["baseOffset"], result["lastOffset"]) for result in answer.json["results"]]


def test_should_write_a_batch_once_that_is_posted_twice_whoever_takes_it(shared: Cluster, topic: str) -> None:
    shared.create_topic(topic)
    url = shared.records_url(topic)
    elsewhere = next(u for u in (shared.url(0), shared.url(1)) if not url.startswith(u)) + url[url.index("/v1") :]
    assert places(http("POST", url, batch(0, b"a", b"b"), BATCH_BODY)) == [(0, 1)]
    assert places(http("POST", elsewhere, batch(0, b"a", b"b"), BATCH_BODY)) == [(0, 1)]
    assert places(http("POST", url, batch(0, b"a", b"b") + batch(2, b"c"), BATCH_BODY)) == [(0, 1), (2, 2)]
    assert http("GET", f"{url}?offset=latest").json["nextOffset"] == 3


def test_should_refuse_a_gap_and_an_old_epoch(shared: Cluster, topic: str) -> None:
    shared.create_topic(topic)
    url = shared.records_url(topic)
    http("POST", url, batch(0), BATCH_BODY)
    problem = http("POST", url, batch(2), BATCH_BODY)
    assert (problem.status, problem.json["code"]) == (409, "OutOfOrderSequence")
    assert (problem.json["expectedSequence"], problem.json["sequence"], problem.json["batch"]) == (1, 2, 0)
    http("POST", url, batch(0, epoch=1), BATCH_BODY)
    problem = http("POST", url, batch(1), BATCH_BODY)
    assert (problem.status, problem.json["code"], problem.json["producerEpoch"]) == (409, "FencedProducer", 1)


def test_should_know_a_batch_again_after_a_kill_and_after_a_clean_stop(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic)
    assert places(http("POST", cluster.records_url(topic), batch(0), BATCH_BODY)) == [(0, 0)]
    for end in (Program.kill, Program.stop):
        end(cluster.broker())
        cluster.start_broker()
        cluster.wait_led(topic)
        assert places(http("POST", cluster.records_url(topic), batch(0) + batch(1), BATCH_BODY)) == [(0, 0), (1, 1)]

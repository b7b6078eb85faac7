"""Staged commits on real brokers: nothing is seen before the decision, everything once after it, whoever dies."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.client.consumer.consumer import Consumer
from headrace.client.producer.producer import Producer
from headrace.client.producer.staging import Commits, Staged, Stager
from headrace.core.errors import InternalTopicError, InvalidTimestampError, StaleBatchError
from headrace.core.records.columns import encode_batch, record_columns
from headrace.core.types import Offset, TopicUid
from tests.support.cluster import Cluster, http, running_cluster
from tests.support.consumed import values_in
from tests.support.patience import patient
from tests.support.waiting import wait_for
from tests.support.world import BATCH_BODY, JSON_BODY, NDJSON_BODY, TOPICS

_PARTITIONS = 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("staging"), brokers=2) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    name: str = request.node.name.replace("_", "-")[-40:].strip("-")
    cluster.create_topic(name, partitions=_PARTITIONS)
    return name


def rows(first: int, count: int, **options: Any) -> pa.RecordBatch:
    numbers = [b"%d" % number for number in range(first, first + count)]
    return record_columns(numbers, numbers, timestamps_ms=1_700_000_000_000, **options)


def staged(cluster: Cluster, writer: str, topic: str, *batches: pa.RecordBatch, task: int = 0) -> Staged:
    with Stager(writer, cluster.url(), task=task, batch_bytes=8_192) as stager:
        for batch in batches:
            stager.stage(topic, batch)
        return stager.finish()


def test_should_show_a_batch_once_it_is_committed_and_not_before(cluster: Cluster, topic: str) -> None:
    tasks = [staged(cluster, "q1", topic, rows(task * 1_000, 1_000), task=task) for task in range(3)]
    assert sum(each.record_count for each in tasks) == 3_000
    assert values_in(cluster.url(), topic) == []
    with Commits("q1", cluster.url()) as commits:
        status = commits.commit(0, tasks)
        assert (status.batch, status.is_done, status.dropped) == (0, True, ())
        assert commits.status().batch == 0
    assert sorted(map(int, values_in(cluster.url(), topic))) == list(range(3_000))


def test_should_keep_the_order_of_each_partition_and_headers(cluster: Cluster, topic: str) -> None:
    headers = [[("n", b"%d" % number)] if number % 2 else [] for number in range(2_000)]
    with Stager("q2", cluster.url(), batch_bytes=8_192) as stager:
        stager.stage(topic, rows(0, 2_000, headers=headers), partition=1)
        shares = stager.finish()
    with Commits("q2", cluster.url()) as commits:
        commits.commit(0, [shares])
    url = f"{cluster.records_url(topic, 1)}?offset=0&maxRecords=5000&maxBytes=10000000"
    records = http("GET", url, headers={"Accept": "application/json"}).json["records"]
    assert [int(record["value"]) for record in records] == list(range(2_000))
    assert records[7]["headers"] == [{"name": "n", "value": "7"}]
    assert not records[8]["headers"]


def test_should_write_a_batch_once_when_it_is_committed_again(cluster: Cluster, topic: str) -> None:
    first = staged(cluster, "q3", topic, rows(0, 500))
    with Commits("q3", cluster.url()) as commits:
        commits.commit(7, [first])
        commits.commit(7, [first])
        assert commits.commit(7, [staged(cluster, "q3", topic, rows(5_000, 500))]).batch == 7
        commits.commit(8, [staged(cluster, "q3", topic, rows(500, 500))])
    assert sorted(map(int, values_in(cluster.url(), topic))) == list(range(1_000))


def test_should_refuse_another_batch_of_a_number_that_was_committed(cluster: Cluster, topic: str) -> None:
    """As a checkpoint commits that was put back, or that two queries have."""
    elsewhere = f"{topic}-elsewhere"
    cluster.create_topic(elsewhere, partitions=_PARTITIONS)
    with Commits("q8", cluster.url()) as commits:
        commits.commit(2, [staged(cluster, "q8", topic, rows(0, 100))])
        for batch, other in (
            (2, staged(cluster, "q8", topic, rows(0, 700))),
            (2, staged(cluster, "q8", elsewhere, rows(0, 100))),
            (1, staged(cluster, "q8", topic, rows(0, 100))),
        ):
            with pytest.raises(StaleBatchError, match=rf"batch {batch} of writer default/q8 is refused"):
                commits.commit(batch, [other])
        assert commits.commit(3, [staged(cluster, "q8", elsewhere, rows(0, 7))]).is_done
    assert len(values_in(cluster.url(), topic)) == 100
    assert len(values_in(cluster.url(), elsewhere)) == 7


def test_should_commit_a_batch_without_rows(cluster: Cluster) -> None:
    with Commits("q4", cluster.url()) as commits:
        assert commits.status().batch == -1
        assert commits.commit(0, []).is_done
        assert commits.status().batch == 0


def test_should_refuse_what_is_not_staged(cluster: Cluster, topic: str) -> None:
    real = staged(cluster, "q5", topic, rows(0, 10))
    share = real.shares[0]
    far = share.batches[0]._replace(base_offset=Offset(10**6), last_offset=Offset(10**6 + 1))
    with Commits("q5", cluster.url()) as commits:
        with pytest.raises(Exception, match="is not there, it ends at"):
            commits.commit(0, [Staged(real.staging_uid, (type(share)(share.topic, share.key, (far,)),))])
        with pytest.raises(Exception, match="it was made anew"):
            commits.commit(0, [Staged(TopicUid("other"), real.shares)])
        assert commits.status().batch == -1
    assert values_in(cluster.url(), topic) == []


def test_should_say_which_topics_were_made_anew(cluster: Cluster, topic: str) -> None:
    old = staged(cluster, "q6", topic, rows(0, 10))
    cluster.delete_topic(topic)
    wait_for(lambda: http("GET", f"{cluster.url()}/v1/namespaces/default/topics/{topic}").status == 404, "it is gone")
    cluster.create_topic(topic, partitions=_PARTITIONS)
    with Commits("q6", cluster.url()) as commits:
        status = commits.commit(0, [old])
    assert status.is_done
    assert len(status.dropped) == len(old.shares)
    assert values_in(cluster.url(), topic) == []


def test_should_let_nobody_write_decisions(cluster: Cluster) -> None:
    with Commits("q7", cluster.url()) as commits:
        commits.status()
    with pytest.raises(InternalTopicError), Producer(cluster.url()) as producer:
        producer.send("headrace-commits", b"{}", key=b"k").result(patient(30))


def test_should_let_nobody_read_or_delete_what_is_staged(cluster: Cluster, topic: str) -> None:
    """By any route, and whatever the request claims to be."""
    shares = staged(cluster, "unread", topic, rows(0, 10))
    partition = shares.shares[0].batches[0].partition
    for broker in range(2):
        topic_url = f"{cluster.url(broker)}/v1/namespaces/default/topics/headrace-staging"
        records = f"{topic_url}/partitions/{partition}/records"
        for headers in ({}, {"Headrace-Proxied": "1"}, {"Headrace-Proxied": "1", "Headrace-Peer-Key": ""}):
            for refused in (
                http("GET", f"{records}?offset=earliest", headers=headers),
                http("GET", f"{records}?watch=true", headers=headers),
                http("DELETE", f"{records}?beforeOffset=latest", headers=headers),
            ):
                assert (refused.status, refused.json["code"]) == (403, "InternalTopic")
        lines = NDJSON_BODY
        assert http("POST", records, b'{"value": "a"}\n', lines).status == 403
    with pytest.raises(InternalTopicError), Consumer("headrace-staging", server=cluster.url()) as consumer:
        next(iter(consumer))
    with Commits("unread", cluster.url()) as commits:
        assert commits.commit(0, [shares]).is_done
    assert len(values_in(cluster.url(), topic)) == 10


def test_should_commit_nothing_to_an_internal_topic(cluster: Cluster, topic: str) -> None:
    shares = staged(cluster, "inside", topic, rows(0, 10))
    inside = replace(shares, shares=tuple(replace(share, topic="headrace-offsets") for share in shares.shares))
    with Commits("inside", cluster.url()) as commits, pytest.raises(InternalTopicError):
        commits.commit(0, [inside])


@pytest.mark.timeout(240)
def test_should_lose_and_repeat_nothing_when_brokers_are_killed(tmp_path: Path) -> None:
    """Each batch is staged, one broker is killed before or in the middle of its commit, and comes back."""
    with running_cluster(tmp_path / "killed", brokers=3) as cluster:
        cluster.create_topic("killed", partitions=_PARTITIONS, replicas=3)
        urls = ",".join(cluster.url(broker) for broker in range(3))
        victims = {broker: cluster.broker(broker) for broker in range(3)}
        for batch in range(3):
            with Stager("query", urls, batch_bytes=8_192) as stager:
                stager.stage("killed", rows(batch * 2_000, 2_000))
                shares = stager.finish()
            victim = batch
            victims[victim].kill()
            with Commits("query", urls) as commits:
                assert commits.commit(batch, [shares]).is_done
                assert commits.commit(batch, [shares]).is_done
            victims[victim] = cluster.start_broker(victim, name=f"again-{batch}")
            urls = ",".join(cluster.url(broker) for broker in range(3))
        assert sorted(map(int, values_in(urls, "killed"))) == list(range(6_000))


def test_should_keep_its_topics_as_they_must_be(cluster: Cluster, topic: str) -> None:
    """Edited, and with fewer replicas than brokers, as one is that a single broker has made."""
    staged(cluster, "kept", topic, rows(0, 10))
    path = "/apis/headrace.io/v1alpha1/namespaces/default/topics/headrace-staging"

    cluster.kube("PATCH", path, {"spec": {"retention": {"time": "1h"}, "replicas": 1}})

    def spec() -> dict[str, Any]:
        found: dict[str, Any] = cluster.kube("GET", path)["spec"]
        return found

    wait_for(lambda: spec()["retention"]["time"] == "unlimited" and spec()["replicas"] == 2, "both to be put back")
    with Commits("kept", cluster.url()) as commits:
        assert commits.commit(0, [staged(cluster, "kept", topic, rows(0, 10))]).is_done


def test_should_refuse_a_commit_before_it_is_decided_when_a_time_is_out_of_the_topics_bounds(
    cluster: Cluster, topic: str
) -> None:
    cluster.kube("PATCH", f"{TOPICS}/{topic}", {"spec": {"timestamps": {"beforeMax": "1d"}}})
    wait_for(lambda: _refuses_old(cluster, topic), "the brokers know the bound")
    old, new = rows(0, 40), record_columns([b"7"], timestamps_ms=time.time_ns() // 1_000_000)
    with Commits("q-times", cluster.url()) as commits:
        with pytest.raises(InvalidTimestampError, match=r"raise spec\.timestamps\.beforeMax"):
            commits.commit(0, [staged(cluster, "q-times", topic, new, old)])
        assert commits.status().batch == -1
        assert values_in(cluster.url(), topic) == []
        assert commits.commit(0, [staged(cluster, "q-times", topic, new)]).is_done
    assert values_in(cluster.url(), topic) == [b"7"]


def _refuses_old(cluster: Cluster, topic: str) -> bool:
    body = b'{"records": [{"value": "old", "timestamp": 5}]}'
    urls = [cluster.records_url(topic, partition) for partition in range(_PARTITIONS)]
    return all(http("POST", url, body, headers=JSON_BODY).status == 400 for url in urls)


def test_should_write_what_is_committed_when_a_bound_comes_after_the_decision(cluster: Cluster, topic: str) -> None:
    cluster.kube("PATCH", f"{TOPICS}/{topic}", {"spec": {"timestamps": {"beforeMax": "1d"}}})
    wait_for(lambda: _refuses_old(cluster, topic), "the brokers know the bound")
    batch = b"".join(encode_batch(record_columns([b"old"], timestamps_ms=5)))
    headers = BATCH_BODY
    for broker in range(2):
        url = f"{cluster.url(broker)}/v1/namespaces/default/topics/{topic}/partitions/0/records"
        assert http("POST", url, batch, headers=headers).status == 400
        assert http("POST", f"{url}?committed=true", batch, headers=headers).json["code"] == "BrokersOnly"
        by_a_broker = {**headers, "Headrace-Peer-Key": cluster.peer_key(1 - broker)}
        assert http("POST", f"{url}?committed=true", batch, headers=by_a_broker).status == 200

"""Bits that flip on the disk of one of three brokers: found, given up, and fetched again from the others (S10)."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import http
from tests.support.logs import flip_bit
from tests.support.replicated_brokers import ReplicatedBrokers, replicated_brokers
from tests.support.waiting import wait_for
from tests.support.world import TOPICS

VALUE = os.urandom(200_000)


@pytest.fixture
def three(tmp_path: Path) -> Iterator[ReplicatedBrokers]:
    """With a log of three closed segments on each."""
    with replicated_brokers(tmp_path) as running:
        running.create(minInsyncReplicas=2, segment={"bytes": "1Mi"})
        for _ in range(17):
            assert running.produce(0, VALUE).status == 200
        running.wait_equal_logs()
        yield running


def segments(three: ReplicatedBrokers, broker: int) -> list[Path]:
    directory = three.cluster.home / f"broker-{broker}" / "partitions" / f"{three.sets().topic_uid}-0"
    found = sorted(directory.glob("*.log"))
    assert len(found) > 3
    return found


def wait_mended(three: ReplicatedBrokers, broker: int, life: int) -> None:
    """In its next life it has again what the others have."""
    wait_for(lambda: three.seat(broker).incarnation > life, "a new life begins", 60)
    wait_for(lambda: three.cluster.broker(broker).log.count(" is ready") >= 2, "it is ready again", 60)
    three.wait_in_sync(0, 1, 2)
    # Where the others were not ready as that life ended, it is another that cuts the log: a minute later at the least.
    three.wait_equal_logs(timeout_s=150)


@pytest.mark.parametrize(("byte", "least"), [(40, 2), (150_000, 3)], ids=["header", "body, all must be in sync"])
def test_should_fetch_again_what_a_follower_has_lost_while_it_was_down(
    three: ReplicatedBrokers, byte: int, least: int
) -> None:
    three.cluster.kube("PATCH", f"{TOPICS}/{three.topic}", {"spec": {"minInsyncReplicas": least}})
    follower = three.cluster.broker(2)
    follower.kill()
    flip_bit(segments(three, 2)[1], 8 * byte)
    three.cluster.start_broker(2)
    wait_mended(three, 2, life=2)
    assert "DataDamaged" in three.cluster.broker(2).log
    assert "the last life has it cut at offset" in three.cluster.broker(2).log
    wait_for(lambda: three.metric(2, "headrace_broker_damaged_partitions") == 0, "nothing is damaged any more")


def test_should_hand_over_what_a_leader_finds_damaged_as_it_reads(three: ReplicatedBrokers) -> None:
    """A reader comes upon it; until the others have taken over it serves what is whole."""
    flip_bit(segments(three, 0)[1], 8 * 40)
    offset = int(segments(three, 0)[1].stem)
    records = three.records_url(0)

    assert http("GET", f"{records}?offset={offset}").status == 500

    wait_for(lambda: three.cluster.broker(0).log.count("to hand over"), "it wants others to lead", 60)
    assert http("GET", f"{records}?offset=0&maxBytes=1").status == 200
    three.elect(1)
    wait_mended(three, 0, life=1)
    assert http("GET", f"{three.records_url(1)}?offset={offset}").status == 200


def is_lost(three: ReplicatedBrokers, broker: int) -> bool:
    """As broker 0 knows: one that was just killed may do its part for all that anybody can tell."""
    known = http("GET", f"{three.cluster.url(0)}/v1/cluster").json["brokers"]
    return any(each["id"] == broker and each["state"] == "Lost" for each in known)


@pytest.mark.timeout(400)
def test_should_keep_what_nobody_else_has(three: ReplicatedBrokers) -> None:
    for broker in (1, 2):
        three.cluster.broker(broker).kill()
    wait_for(lambda: all(is_lost(three, broker) for broker in (1, 2)), "nobody else is there", 60)
    damaged = segments(three, 0)[1]
    content = damaged.read_bytes()
    flip_bit(damaged, 8 * 40)
    assert http("GET", f"{three.records_url(0)}?offset={int(damaged.stem)}").status == 500

    wait_for(lambda: three.metric(0, "headrace_broker_damaged_partitions") == 1, "it is told of", 60)

    assert http("GET", f"{three.records_url(0)}?offset={int(segments(three, 0)[2].stem)}&maxBytes=1").status == 200
    assert len(damaged.read_bytes()) == len(content)
    for broker in (1, 2):
        three.cluster.start_broker(broker)
    wait_for(lambda: three.cluster.broker(0).log.count("to hand over"), "it wants others to lead", 60)
    three.elect(1)
    wait_mended(three, 0, life=1)

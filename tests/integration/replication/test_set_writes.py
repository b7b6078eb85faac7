"""What brokers write to PartitionSets while answers are lost, others write too, and the API server is away."""

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import pytest

from headrace.core.limits import LEASE_DURATION_MS
from headrace.core.resources.partition_set import PartitionState
from headrace.core.types import Acks, PartitionEpoch
from tests.faults.unruly_api import Answer, Behaviour, Lost
from tests.support.cluster import http
from tests.support.patience import patient
from tests.support.replicated_brokers import ReplicatedBrokers
from tests.support.unsteady_brokers import UnsteadyBrokers, unsteady_brokers
from tests.support.waiting import wait_for
from tests.support.world import NDJSON_BODY

_NUMBERS = count()


@pytest.fixture(scope="module")
def unsteady(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UnsteadyBrokers]:
    with unsteady_brokers(tmp_path_factory.mktemp("unsteady")) as running:
        yield running


@pytest.fixture
def three(unsteady: UnsteadyBrokers) -> Iterator[ReplicatedBrokers]:
    """With a topic of its own, led by broker 0, all in sync."""
    brokers = unsteady.of(f"topic-{next(_NUMBERS)}")
    brokers.create(minInsyncReplicas=2)
    yield brokers
    unsteady.api.rule = lambda *_: None


def taken_out(state: PartitionState) -> PartitionState:
    """By another writer: broker 2 is in sync no more."""
    epoch = PartitionEpoch(state.partition_epoch + 1)
    return replace(state, isr=tuple(seat for seat in state.isr if seat.broker != 2), partition_epoch=epoch)


def writes(three: ReplicatedBrokers, outcome: str) -> float:
    return three.metric(0, f'headrace_broker_set_writes_total{{outcome="{outcome}"}}')


def test_should_take_back_who_is_caught_up_and_count_it(three: ReplicatedBrokers) -> None:
    names = ("headrace_isr_expands_total", "headrace_isr_shrinks_total")
    expected = [three.metric(0, name) + 1 for name in names]
    three.change(taken_out)
    three.wait_in_sync(0, 1, 2)
    wait_for(lambda: [three.metric(0, name) for name in names] == expected, "each is counted once")


@pytest.mark.parametrize("late_s", [0.0, 7.0], ids=["and lands", "and lands when another one has"])
def test_should_find_out_what_became_of_a_write_whose_answer_is_lost(
    unsteady: UnsteadyBrokers, three: ReplicatedBrokers, late_s: float
) -> None:
    before = writes(three, "unanswered")
    came = unsteady.behave_once(three.topic, Lost(late_s))
    three.change(taken_out)
    assert came.wait(patient(60))
    assert three.produce(0, b"meanwhile").status == 200
    three.wait_in_sync(0, 1, 2)
    wait_for(lambda: writes(three, "unanswered") > before, "it has no answer")
    wait_for(lambda: three.metric(0, "headrace_broker_set_writes_undecided") == 0, "its outcome is known")
    three.change(taken_out)
    three.wait_in_sync(0, 1, 2)
    assert three.produce(0, b"afterwards").status == 200
    three.wait_equal_logs()


def test_should_decide_again_when_another_writer_was_faster(
    unsteady: UnsteadyBrokers, three: ReplicatedBrokers
) -> None:
    before = writes(three, "conflict")
    met: list[str] = []

    def rule(method: str, path: str, query: str) -> Behaviour:
        if method == "PUT" and path.endswith(f"/{three.topic}-0") and len(met) < 3:
            met.append(path)
            three.change(lambda state: replace(state, partition_epoch=PartitionEpoch(state.partition_epoch + 1)))
        return None

    three.change(taken_out)
    unsteady.api.rule = rule
    three.wait_in_sync(0, 1, 2)
    assert writes(three, "conflict") - before >= len(met) > 0


def test_should_write_nothing_while_the_api_server_refuses_and_catch_up_then(
    unsteady: UnsteadyBrokers, three: ReplicatedBrokers
) -> None:
    refused: list[str] = []

    def rule(method: str, path: str, query: str) -> Behaviour:
        if method == "PUT" and path.endswith(f"/{three.topic}-0"):
            refused.append(path)
            return Answer(429 if len(refused) % 2 else 500)
        return None

    unsteady.api.rule = rule
    three.change(taken_out)
    wait_for(lambda: len(refused) >= 3, "it is tried again and again")
    assert three.produce(0, b"meanwhile").status == 200
    unsteady.api.rule = lambda *_: None
    three.wait_in_sync(0, 1, 2)


def test_should_produce_and_fetch_while_the_api_server_is_away(
    unsteady: UnsteadyBrokers, three: ReplicatedBrokers
) -> None:
    """Longer than a Lease lasts: acks=1 goes on for as long as everybody in sync is heard."""
    cluster, url = unsteady.cluster, three.records_url(0)
    cluster.programs["api"].kill()
    try:
        ends_s, produced = time.monotonic() + LEASE_DURATION_MS / 1000 + 1, 0
        while time.monotonic() < ends_s:
            for acks in (Acks.ALL, Acks.LEADER, Acks.NONE):
                assert produce(url, acks) in (200, 202)
                produced += 1
        latest = f"{url.removesuffix('records')}offsets?timestamp=latest"
        wait_for(lambda: http("GET", latest).json["offset"] == produced, "all of it can be read")
        cluster.broker(2).kill()
        wait_for(lambda: produce(url, Acks.LEADER) == 503, "one that is in sync is not heard any more", 60)
    finally:
        cluster.start_api()
    wait_for(lambda: produce(url, Acks.LEADER) == 200, "the Lease is renewed")
    cluster.start_broker(2)
    three.wait_in_sync(0, 1, 2)
    three.wait_equal_logs()


def produce(url: str, acks: Acks) -> int:
    return http("POST", f"{url}?acks={acks}&timeoutMs=120000", b'{"value": "x"}\n', NDJSON_BODY).status

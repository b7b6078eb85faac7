"""Failures are tried again, told, given up and remembered until somebody has heard of them."""

from typing import Any

import pytest

from headrace.client.producer.batches import ColumnBatch, ColumnsDelivery
from headrace.client.producer.deliveries import BatchesDelivery, Delivery, ThreadRows
from headrace.client.producer.in_flight import Again, InFlight
from headrace.client.producer.writer import ProducerOptions
from headrace.client.record import TopicPartition
from headrace.client.transport.retry import GiveUp, Trouble, TryAgain
from headrace.core.errors import BatchTooLargeError, BrokerUnreachableError, NotLeaderError, StaleTopicError
from headrace.core.limits import CLIENT_STALL_CHECK_MS, CLIENT_STALL_SLACK_MS
from headrace.core.records.header import Compression
from tests.support.client_columns import batch_columns

PLACE = TopicPartition("flights", 0)
REFUSED = BrokerUnreachableError("broker a:1 cannot be reached: Connection refused")
OPTIONS = ProducerOptions("all", 0, 1 << 20, 1 << 21, Compression.NONE, None, 10_000, 1_000)


def sending() -> InFlight[ThreadRows]:
    return InFlight(OPTIONS, ThreadRows, Trouble())


def sent(plan: InFlight[ThreadRows], now_ms: int) -> tuple[Any, Delivery]:
    """A record, queued and on its way."""
    batch = plan.accumulator.new_rows(PLACE, 30, now_ms)
    delivery = batch.add((None, b"v", 0, ()))
    plan.accumulator.put_rows(batch)
    (due,) = plan.due(now_ms).send
    return due, delivery


def test_should_tell_what_has_failed_for_long_and_go_on_with_a_topic_that_was_created_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    plan = sending()
    batch, _ = sent(plan, 1_000)
    decision = plan.decide(batch, StaleTopicError("created again"), 1_500)
    assert isinstance(decision, TryAgain)
    plan.put_back(Again([batch], REFUSED, decision.at_ms))
    assert caplog.text == ""
    (again,) = plan.due(decision.at_ms).send
    assert isinstance(plan.decide(again, REFUSED, 2_500), TryAgain)
    assert caplog.messages == [f"records for flights/0: {REFUSED.message}; trying again"]


def test_should_give_up_what_will_not_pass_and_tell_of_it_once() -> None:
    plan = sending()
    batch, delivery = sent(plan, 0)
    too_large = BatchTooLargeError("9 MiB is over 8 MiB", limit=8)
    assert plan.decide(batch, too_large, 0) == GiveUp(too_large)
    batch.failed(too_large)
    plan.given_up(batch, too_large)
    overlooked = plan.overlooked()
    assert isinstance(overlooked, BatchTooLargeError)
    assert overlooked.message == "1 record was not acknowledged: 9 MiB is over 8 MiB"
    assert overlooked.details == {"limit": 8}
    assert plan.overlooked() is None
    assert delivery.exception() is too_large


def test_should_not_tell_of_failures_that_somebody_has_seen() -> None:
    plan = sending()
    batch, delivery = sent(plan, 0)
    batch.failed(REFUSED)
    plan.given_up(batch, REFUSED)
    assert delivery.exception() is REFUSED
    assert plan.overlooked() is None


def test_should_count_columns_by_their_rows() -> None:
    plan, future = sending(), BatchesDelivery()
    delivery = ColumnsDelivery(future)
    batch = ColumnBatch(PLACE, 0, 500, batch_columns(["x", "y"], None, None, 0), delivery)
    delivery.expect()
    plan.accumulator.put_columns(batch)
    plan.due(0)
    batch.failed(NotLeaderError("no"))
    plan.given_up(batch, NotLeaderError("no"))
    assert str(plan.overlooked()) == "2 records were not acknowledged: no"


def test_should_have_room_for_a_record_that_is_larger_than_the_buffer_once_it_is_alone() -> None:
    plan = sending()
    assert plan.has_room(1 << 30)
    batch, _ = sent(plan, 0)
    assert not plan.has_room(1 << 30)
    assert plan.has_room(1 << 20)
    batch.delivered(0)
    plan.arrived(batch)
    assert plan.has_room(1 << 30)


def test_should_have_stalled_when_a_batch_is_on_its_way_for_longer_than_all_limits_together(
    caplog: pytest.LogCaptureFixture,
) -> None:
    plan = sending()
    limit_ms = 11_000 + CLIENT_STALL_SLACK_MS
    assert plan.stalled(0) is None
    batch, _ = sent(plan, 0)
    looks = range(0, limit_ms + 1, CLIENT_STALL_CHECK_MS)
    assert [plan.stalled(now_ms) for now_ms in looks] == [None] * len(looks)
    stalled = plan.stalled(limit_ms + CLIENT_STALL_CHECK_MS)
    assert stalled is not None
    assert stalled.message.startswith("this producer has stalled: ")
    batch.delivered(0)
    plan.arrived(batch)
    assert plan.stalled(limit_ms + 2 * CLIENT_STALL_CHECK_MS) is None
    assert caplog.messages[0] == "records for flights/0: no answer for 10 s; still waiting"


def test_should_not_take_the_time_in_which_the_client_was_stopped_for_a_brokers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    plan = sending()
    sent(plan, 0)
    assert plan.stalled(0) is None
    assert plan.stalled(3_600_000) is None
    assert caplog.messages == [], "the answer may lie there, unread"
    assert plan.stalled(3_600_000 + CLIENT_STALL_CHECK_MS) is None
    assert len(caplog.messages) == 1

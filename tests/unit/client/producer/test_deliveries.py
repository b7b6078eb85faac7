"""What the futures of `send` promise beyond those of the standard library: batches share what they are told."""

import sys
import traceback
from concurrent.futures import as_completed

import pytest

from headrace.client.producer.batches import ColumnsDelivery
from headrace.client.producer.deliveries import BatchesDelivery, ThreadRows
from headrace.client.record import TopicPartition
from headrace.core.errors import NotLeaderError


def test_should_raise_an_error_of_its_own_for_each_record() -> None:
    batch = ThreadRows(TopicPartition("t", 0), 0)
    deliveries = [batch.add((None, b"v", 1, ())) for _ in range(50)]
    batch.failed(NotLeaderError("another leads", leaderId=1))
    lengths = set()
    for delivery in as_completed(deliveries):
        with pytest.raises(NotLeaderError, match="another leads") as caught:
            delivery.result()
        assert caught.value.details == {"leaderId": 1}
        lengths.add(len(traceback.extract_tb(caught.value.__traceback__)))
    assert len(lengths) == 1
    assert batch.overlooked() == 0


def test_should_tell_the_others_when_a_callback_exits() -> None:
    batch = ThreadRows(TopicPartition("t", 0), 0)
    deliveries = [batch.add((None, b"v", 1, ())) for _ in range(2)]
    told: list[int] = []
    deliveries[0].add_done_callback(lambda _: sys.exit(1))
    deliveries[1].add_done_callback(lambda delivery: told.append(delivery.result().offset))
    batch.delivered(5)
    assert told == [6]
    future = BatchesDelivery()
    future.add_done_callback(lambda _: sys.exit(1))
    ColumnsDelivery(future).settle()
    assert future.result() == ()

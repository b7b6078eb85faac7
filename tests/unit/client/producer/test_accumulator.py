"""One batch in flight per partition, in order, whatever is retried; bytes are counted until the end.

Several batches of a partition in flight: whatever fails, and whoever is slow, records are written in their order.
"""

import asyncio
from collections import defaultdict
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, as_completed, wait
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.producer.accumulator import Accumulator
from headrace.client.producer.batches import BATCH_OVERHEAD_BYTES, Batch, ColumnBatch, ColumnsDelivery, Row, row_bytes
from headrace.client.producer.deliveries import BatchesDelivery, Delivery, ThreadRows
from headrace.client.record import TopicPartition
from headrace.core.errors import BatchTooLargeError, NotLeaderError
from tests.support.client_columns import batch_columns
from tests.support.patience import patient

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
LINGER_MS, TIMEOUT_MS = 5, 1_000
MIB = 1 << 20


def add(
    queue: Accumulator[ThreadRows], partition: TopicPartition, value: bytes, *, now_ms: int, batch_bytes: int = MIB
) -> bool:
    row: Row = (None, value, 0, ())
    size = row_bytes(row)
    joined = queue.joined_batch(partition, size, batch_bytes)
    if joined is not None:
        joined.add(row)
        return False
    batch = queue.new_rows(partition, size, now_ms)
    batch.add(row)
    queue.put_rows(batch)
    return True


def values_of(batch: Batch) -> list[bytes]:
    values: list[bytes] = batch.records().column("value").to_pylist()
    return values


def accumulator() -> Accumulator[ThreadRows]:
    return Accumulator(ThreadRows, linger_ms=LINGER_MS, timeout_ms=TIMEOUT_MS)


def test_should_hold_a_batch_back_until_its_linger_is_over() -> None:
    queue = accumulator()
    assert add(queue, P0, b"a", now_ms=100)
    assert not add(queue, P0, b"b", now_ms=104)
    assert queue.due(104).send == []
    assert queue.next_due_ms() == 105

    (batch,) = queue.due(105).send

    assert values_of(batch) == [b"a", b"b"]
    assert queue.next_due_ms() is None


def test_should_send_a_full_batch_without_lingering() -> None:
    queue = accumulator()
    small = BATCH_OVERHEAD_BYTES + 200
    for letter in (b"a", b"b", b"c"):
        add(queue, P0, letter * 100, now_ms=0, batch_bytes=small)

    (first,) = queue.due(0).send

    assert values_of(first) == [b"a" * 100]
    assert first.size_bytes <= small


def test_should_keep_the_next_batch_back_while_one_is_in_flight() -> None:
    queue = accumulator()
    add(queue, P0, b"a", now_ms=0)
    (first,) = queue.due(10).send
    add(queue, P0, b"b", now_ms=10)
    add(queue, P1, b"c", now_ms=10)

    (other,) = queue.due(100).send
    assert other.partition == P1
    queue.arrived(first)

    assert [values_of(b) for b in queue.due(100).send] == [[b"b"]]


def test_should_send_the_failed_batch_first_when_it_is_put_back() -> None:
    queue = accumulator()
    add(queue, P0, b"a", now_ms=0)
    (first,) = queue.due(10).send
    add(queue, P0, b"b", now_ms=10)
    queue.put_back([first], NotLeaderError("no"), at_ms=50)

    assert queue.due(49).send == []
    assert queue.next_due_ms() == 50
    assert queue.due(50).send == [first]


def test_should_expire_what_waited_too_long_behind_a_failing_batch() -> None:
    queue, error = accumulator(), NotLeaderError("gave up")
    add(queue, P0, b"a", now_ms=0)
    (first,) = queue.due(10).send
    add(queue, P0, b"old", now_ms=20)
    queue.close_batches()
    add(queue, P0, b"young", now_ms=1_000)
    queue.given_up(first, error)

    due = queue.due(1_100)

    assert [(values_of(batch), why) for batch, why in due.expired] == [([b"old"], error)]
    assert due.send == []
    queue.given_up(due.expired[0][0], error)
    assert [values_of(batch) for batch in queue.due(1_100).send] == [[b"young"]]


def test_should_blame_no_later_batch_when_one_was_refused_for_itself() -> None:
    queue = accumulator()
    add(queue, P0, b"a", now_ms=0)
    (first,) = queue.due(10).send
    add(queue, P0, b"b", now_ms=10)
    queue.given_up(first, BatchTooLargeError("too large"))
    assert len(queue.due(5_000).send) == 1


def test_should_send_at_once_when_batches_are_closed() -> None:
    queue = accumulator()
    add(queue, P0, b"a", now_ms=0)
    queue.close_batches()
    assert len(queue.due(0).send) == 1


def test_should_keep_the_order_when_columns_follow_rows() -> None:
    queue = accumulator()
    add(queue, P0, b"a", now_ms=0)
    queue.put_columns(ColumnBatch(P0, 0, 500, batch_columns(["b"], None, None, 0), ColumnsDelivery(BatchesDelivery())))
    add(queue, P0, b"c", now_ms=0)
    queue.close_batches()
    sent = []
    while batches := queue.due(0).send:
        sent.append(values_of(batches[0]))
        queue.arrived(batches[0])
    assert sent == [[b"a"], [b"b"], [b"c"]]
    assert queue.buffered_bytes == 0


@given(st.lists(st.integers(0, 2), min_size=1, max_size=60), st.data())
def test_should_write_every_record_once_and_in_order_whatever_fails(sent_to: list[int], data: st.DataObject) -> None:
    queue, now_ms = accumulator(), 0
    sent: dict[int, list[bytes]] = defaultdict(list)
    written: dict[int, list[bytes]] = defaultdict(list)
    in_flight: list[Batch] = []

    def run(until_empty: bool) -> None:
        nonlocal now_ms
        now_ms = max(now_ms, queue.next_due_ms() or now_ms)
        in_flight.extend(queue.due(now_ms).send)
        assert len({b.partition for b in in_flight}) == len(in_flight), "one in flight per partition"
        while in_flight and (until_empty or data.draw(st.booleans(), label="an answer comes")):
            batch = in_flight.pop(data.draw(st.integers(0, len(in_flight) - 1), label="whose"))
            if not until_empty and data.draw(st.booleans(), label="it fails"):
                queue.put_back([batch], NotLeaderError("no"), now_ms + 1)
            else:
                queue.arrived(batch)
                written[batch.partition.partition] += values_of(batch)

    for number, partition in enumerate(sent_to):
        value = str(number).encode()
        sent[partition].append(value)
        add(queue, TopicPartition("t", partition), value, now_ms=now_ms, batch_bytes=BATCH_OVERHEAD_BYTES + 60)
        run(until_empty=False)
    while queue.waiting_batches():
        run(until_empty=True)

    assert written == sent
    assert queue.buffered_bytes == 0


def test_should_fill_a_batch_while_others_are_in_flight() -> None:
    queue = accumulator()
    queue.pipeline(P0, 3)
    small = BATCH_OVERHEAD_BYTES + 200
    for letter in (b"a", b"b", b"c"):
        add(queue, P0, letter * 100, now_ms=0, batch_bytes=small)
    assert [values_of(batch)[0][:1] for batch in queue.due(LINGER_MS).send] == [b"a", b"b"]
    assert queue.next_due_ms() is None, "the third is not full, and an answer will come"
    assert queue.should_move(LINGER_MS)
    queue.close_batches()
    assert len(queue.due(LINGER_MS).send) == 1


def row_batch(rows: int) -> tuple[ThreadRows, list[Delivery]]:
    batch = ThreadRows(P1, 0)
    return batch, [batch.add((None, b"v", 0, ())) for _ in range(rows)]


def test_should_tell_each_future_its_offset_when_a_batch_arrives() -> None:
    batch, futures = row_batch(2)
    batch.delivered(41)
    assert [future.result() for future in futures] == [("flights", 1, 41), ("flights", 1, 42)]


def test_should_know_no_offsets_when_nobody_acknowledges() -> None:
    batch, futures = row_batch(2)
    batch.delivered(-1)
    assert [future.result().offset for future in futures] == [-1, -1]


def test_should_count_only_failures_that_nobody_looked_at() -> None:
    batch, futures = row_batch(3)
    batch.failed(NotLeaderError("no"))
    assert batch.overlooked() == 3
    futures[0].exception()
    futures[1].add_done_callback(lambda _: None)
    assert batch.overlooked() == 1


def test_should_be_an_ordinary_future_for_those_who_wait() -> None:
    batch, (first, second, third) = row_batch(3)
    heard: list[int] = []
    third.add_done_callback(lambda done: heard.append(done.result().offset))
    with ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(future.result, 10) for future in (first, third)]
        batch.delivered(7)
        assert [answer.result().offset for answer in waiting] == [7, 9]
    assert wait([first, second, third]).not_done == set()
    assert heard == [9]


def test_should_wait_for_the_first_of_several_batches_as_futures_do() -> None:
    (early, (first,)), (late, (second, third)) = row_batch(1), row_batch(2)
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(wait, [first, second], 10, FIRST_COMPLETED)
        late.delivered(3)
        assert answer.result(timeout=patient(10)) == ({second}, {first})
    with ThreadPoolExecutor(1) as threads:
        completed = threads.submit(lambda: [done.done() for done in as_completed([first, third], 10)])
        early.failed(NotLeaderError("no"))
        assert completed.result(timeout=patient(10)) == [True, True]
    with pytest.raises(NotLeaderError):
        first.result()
    assert (third.running(), third.cancelled(), third.done()) == (False, False, True)


def test_should_give_up_waiting_in_time_and_be_told_all_the_same() -> None:
    batch, (first, second) = row_batch(2)
    assert repr(first) == "<Delivery to flights/1: on its way>"
    with pytest.raises(TimeoutError):
        first.result(timeout=0.01)
    batch.failed(NotLeaderError("no"))
    assert batch.overlooked() == 1, "who has waited once has seen to it"
    assert "NotLeaderError" in repr(first)
    assert isinstance(second.exception(), NotLeaderError)


def test_should_log_what_a_callback_raises_and_tell_the_others(caplog: pytest.LogCaptureFixture) -> None:
    batch, (first, second) = row_batch(2)
    heard: list[int] = []
    first.add_done_callback(lambda _: 1 / 0)
    second.add_done_callback(lambda done: heard.append(done.result().offset))
    batch.delivered(4)
    second.add_done_callback(lambda done: heard.append(done.result().offset))
    assert heard == [5, 5]
    assert caplog.messages == [f"a callback of {first!r} raised"]


async def test_should_be_awaitable_by_wrap_future() -> None:
    batch, (first, second) = row_batch(2)
    wrapped = [asyncio.wrap_future(first), asyncio.wrap_future(second)]
    assert (first._state, first._exception, first._result) == ("PENDING", None, None)
    batch.delivered(4)
    # What the wrapping reads from Python 3.14 on.
    assert (first._state, first._exception, first._result) == ("FINISHED", None, ("flights", 1, 4))
    assert [metadata.offset for metadata in await asyncio.gather(*wrapped)] == [4, 5]


def test_should_not_be_called_back_once_it_is_sent() -> None:
    batch, (future,) = row_batch(1)
    assert not future.cancel()
    batch.delivered(0)
    assert future.result().offset == 0


def test_should_give_one_answer_when_all_parts_of_send_batch_are_settled() -> None:
    future = BatchesDelivery()
    delivery = ColumnsDelivery(future)
    parts = [ColumnBatch(p, 0, 500, batch_columns(["x", "y"], None, None, 0), delivery) for p in (P1, P0)]
    for _ in parts:
        delivery.expect()
    delivery.settle()
    parts[0].delivered(10)
    assert not future.done()
    parts[1].delivered(-1)
    assert future.result() == (("flights", 0, -1, 2), ("flights", 1, 10, 2))


def test_should_fail_send_batch_when_one_part_fails() -> None:
    future = BatchesDelivery()
    delivery, error = ColumnsDelivery(future), NotLeaderError("no")
    part = ColumnBatch(P0, 0, 500, batch_columns(["x"], None, None, 0), delivery)
    delivery.expect()
    part.failed(error)
    delivery.settle()
    assert part.overlooked() == 1
    assert future.exception() is error
    assert part.overlooked() == 0


DEPTH = 3
ROW_BYTES = 50


class Model:
    """A sender that may be slow between taking and sending, and brokers that refuse what follows a failure."""

    def __init__(self, random: Random) -> None:
        self.queue: Accumulator[ThreadRows] = Accumulator(ThreadRows, linger_ms=5, timeout_ms=1_000_000)
        self.random = random
        self.now_ms = 0
        self.sent: dict[int, list[bytes]] = defaultdict(list)
        self.written: dict[int, list[bytes]] = defaultdict(list)
        self.channels: dict[TopicPartition, list[Batch] | None] = {}
        """What each holds, unanswered; None where there is none."""
        self.taken: list[Batch] = []
        """By the sender, in order, and not sent yet."""
        self.failed: list[list[Batch]] = []
        """On channels that have failed, which the sender has not heard of."""

    def send(self, partition: int, value: bytes) -> None:
        place = TopicPartition("t", partition)
        self.sent[partition].append(value)
        batch = self.queue.joined_batch(place, ROW_BYTES, BATCH_OVERHEAD_BYTES + 2 * ROW_BYTES)
        if batch is not None:
            batch.add((None, value, 0, ()))
            return
        batch = self.queue.new_rows(place, ROW_BYTES, self.now_ms)
        batch.add((None, value, 0, ()))
        self.queue.put_rows(batch)

    def step(self) -> None:
        self.random.choice((self.take, self.carry, self.answer, self.fail, self.hear))()

    def take(self) -> None:
        if not self.taken:
            self.now_ms = max(self.now_ms + 1, self.queue.next_due_ms() or 0)
            self.taken += self.queue.due(self.now_ms).send

    def carry(self) -> None:
        if not self.taken:
            return
        batch = self.taken.pop(0)
        channel = self.channels.get(batch.partition)
        if channel is not None:
            channel.append(batch)
        elif self.queue.may_go(batch):
            self.channels[batch.partition] = [batch]
            self.queue.pipeline(batch.partition, DEPTH)
        else:
            self.queue.put_back([batch], None, 0)

    def answer(self) -> None:
        for channel in self.channels.values():
            if channel:
                batch = channel.pop(0)
                self.written[batch.partition.partition] += batch.records().column("value").to_pylist()
                self.queue.arrived(batch)

    def fail(self) -> None:
        if not self.channels:
            return
        place = self.random.choice(list(self.channels))
        channel, self.channels[place] = self.channels[place], None
        if channel:
            self.failed.append(channel)

    def hear(self) -> None:
        if self.failed:
            self.queue.put_back(self.failed.pop(0), NotLeaderError("no"), self.now_ms + 1)


@given(st.lists(st.integers(0, 1), min_size=1, max_size=40), st.integers(0, 1 << 32))
def test_should_write_in_order_whatever_fails(sent_to: list[int], seed: int) -> None:
    model = Model(Random(seed))
    for number, partition in enumerate(sent_to):
        model.send(partition, str(number).encode())
        for _ in range(model.random.randrange(6)):
            model.step()
        assert all(len(channel or ()) <= DEPTH for channel in model.channels.values())
    model.queue.close_batches()
    for _ in range(10_000):
        if not model.queue.waiting_batches():
            break
        model.step()
    assert model.written == model.sent
    assert model.queue.buffered_bytes == 0

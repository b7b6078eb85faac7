"""One batch in flight per partition, in order, whatever is retried; bytes are counted until the end."""

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from headrace.client.accumulator import Accumulator
from headrace.client.batches import BATCH_OVERHEAD_BYTES, Batch, ColumnBatch, ColumnsDelivery, Delivery, Row, RowBatch
from headrace.client.columns import batch_columns
from headrace.client.record import TopicPartition
from headrace.core.errors import BatchTooLargeError, NotLeaderError

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
LINGER_MS, TIMEOUT_MS = 5, 1_000
MIB = 1 << 20


def row(value: bytes) -> Row:
    return Row(None, value, 0, (), Delivery())


def values_of(batch: Batch) -> list[bytes]:
    values: list[bytes] = batch.records().column("value").to_pylist()
    return values


def accumulator() -> Accumulator:
    return Accumulator(linger_ms=LINGER_MS, timeout_ms=TIMEOUT_MS)


def test_should_hold_a_batch_back_until_its_linger_is_over() -> None:
    queue = accumulator()
    assert queue.add_row(P0, row(b"a"), batch_bytes=MIB, now_ms=100)
    assert not queue.add_row(P0, row(b"b"), batch_bytes=MIB, now_ms=104)
    assert queue.due(104).send == []
    assert queue.next_due_ms() == 105

    (batch,) = queue.due(105).send

    assert values_of(batch) == [b"a", b"b"]
    assert queue.next_due_ms() is None


def test_should_send_a_full_batch_without_lingering() -> None:
    queue = accumulator()
    small = BATCH_OVERHEAD_BYTES + 200
    for letter in (b"a", b"b", b"c"):
        queue.add_row(P0, row(letter * 100), batch_bytes=small, now_ms=0)

    (first,) = queue.due(0).send

    assert values_of(first) == [b"a" * 100]
    assert first.size_bytes <= small


def test_should_keep_the_next_batch_back_while_one_is_in_flight() -> None:
    queue = accumulator()
    queue.add_row(P0, row(b"a"), batch_bytes=MIB, now_ms=0)
    (first,) = queue.due(10).send
    queue.add_row(P0, row(b"b"), batch_bytes=MIB, now_ms=10)
    queue.add_row(P1, row(b"c"), batch_bytes=MIB, now_ms=10)

    (other,) = queue.due(100).send
    assert other.partition == P1
    queue.arrived(first)

    assert [values_of(b) for b in queue.due(100).send] == [[b"b"]]


def test_should_send_the_failed_batch_first_when_it_is_put_back() -> None:
    queue = accumulator()
    queue.add_row(P0, row(b"a"), batch_bytes=MIB, now_ms=0)
    (first,) = queue.due(10).send
    queue.add_row(P0, row(b"b"), batch_bytes=MIB, now_ms=10)
    queue.put_back(first, NotLeaderError("no"), at_ms=50)

    assert queue.due(49).send == []
    assert queue.next_due_ms() == 50
    assert queue.due(50).send == [first]


def test_should_expire_what_waited_too_long_behind_a_failing_batch() -> None:
    queue, error = accumulator(), NotLeaderError("gave up")
    queue.add_row(P0, row(b"a"), batch_bytes=MIB, now_ms=0)
    (first,) = queue.due(10).send
    queue.add_row(P0, row(b"old"), batch_bytes=MIB, now_ms=20)
    queue.close_batches()
    queue.add_row(P0, row(b"young"), batch_bytes=MIB, now_ms=1_000)
    queue.given_up(first, error)

    due = queue.due(1_100)

    assert [(values_of(batch), why) for batch, why in due.expired] == [([b"old"], error)]
    assert due.send == []
    queue.given_up(due.expired[0][0], error)
    assert [values_of(batch) for batch in queue.due(1_100).send] == [[b"young"]]


def test_should_blame_no_later_batch_when_one_was_refused_for_itself() -> None:
    queue = accumulator()
    queue.add_row(P0, row(b"a"), batch_bytes=MIB, now_ms=0)
    (first,) = queue.due(10).send
    queue.add_row(P0, row(b"b"), batch_bytes=MIB, now_ms=10)
    queue.given_up(first, BatchTooLargeError("too large"))
    assert len(queue.due(5_000).send) == 1


def test_should_send_at_once_when_batches_are_closed() -> None:
    queue = accumulator()
    queue.add_row(P0, row(b"a"), batch_bytes=MIB, now_ms=0)
    queue.close_batches()
    assert len(queue.due(0).send) == 1


def test_should_keep_the_order_when_columns_follow_rows() -> None:
    queue = accumulator()
    queue.add_row(P0, row(b"a"), batch_bytes=MIB, now_ms=0)
    queue.add_columns(ColumnBatch(P0, 0, 500, batch_columns(["b"], None, None, 0), ColumnsDelivery()))
    queue.add_row(P0, row(b"c"), batch_bytes=MIB, now_ms=0)
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
                queue.put_back(batch, NotLeaderError("no"), now_ms + 1)
            else:
                queue.arrived(batch)
                written[batch.partition.partition] += values_of(batch)

    for number, partition in enumerate(sent_to):
        value = str(number).encode()
        sent[partition].append(value)
        queue.add_row(TopicPartition("t", partition), row(value), batch_bytes=BATCH_OVERHEAD_BYTES + 60, now_ms=now_ms)
        run(until_empty=False)
    while queue.waiting_batches():
        run(until_empty=True)

    assert written == sent
    assert queue.buffered_bytes == 0


def test_should_tell_each_future_its_offset_when_a_batch_arrives() -> None:
    batch = RowBatch(P1, 0)
    batch.rows += [row(b"a"), row(b"b")]
    batch.delivered(41)
    assert [r.delivery.result() for r in batch.rows] == [("flights", 1, 41), ("flights", 1, 42)]


def test_should_count_only_failures_that_nobody_looked_at() -> None:
    batch = RowBatch(P1, 0)
    batch.rows += [row(b"a"), row(b"b"), row(b"c")]
    batch.failed(NotLeaderError("no"))
    assert batch.overlooked() == 3
    batch.rows[0].delivery.exception()
    batch.rows[1].delivery.add_done_callback(lambda _: None)
    assert batch.overlooked() == 1


def test_should_give_one_answer_when_all_parts_of_send_batch_are_settled() -> None:
    delivery = ColumnsDelivery()
    parts = [ColumnBatch(p, 0, 500, batch_columns(["x", "y"], None, None, 0), delivery) for p in (P1, P0)]
    for _ in parts:
        delivery.expect()
    delivery.settle()
    parts[0].delivered(10)
    assert not delivery.future.done()
    parts[1].delivered(-1)
    assert delivery.future.result() == (("flights", 0, -1, 2), ("flights", 1, 10, 2))


def test_should_fail_send_batch_when_one_part_fails() -> None:
    delivery, error = ColumnsDelivery(), NotLeaderError("no")
    part = ColumnBatch(P0, 0, 500, batch_columns(["x"], None, None, 0), delivery)
    delivery.expect()
    part.failed(error)
    delivery.settle()
    assert part.overlooked() == 1
    assert delivery.future.exception() is error
    assert part.overlooked() == 0

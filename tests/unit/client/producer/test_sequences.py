"""Idempotent sending: whatever is lost, late or given up on the way, a broker writes each batch once, and in order."""

from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.producer.accumulator import Sequences
from headrace.client.producer.batches import Batch
from headrace.client.producer.deliveries import ThreadRows
from headrace.client.producer.in_flight import Arrived, InFlight, Outcome, Refused
from headrace.client.producer.writer import ProducerOptions
from headrace.client.record import TopicPartition
from headrace.client.transport.retry import Trouble
from headrace.core.errors import (
    BatchTooLargeError,
    BrokerUnreachableError,
    FencedProducerError,
    HeadraceError,
    NotLeaderError,
    OutOfOrderSequenceError,
    RemoteError,
    ThrottledError,
)
from headrace.core.limits import PRODUCER_BATCHES_REMEMBERED
from headrace.core.records.header import (
    NO_PRODUCER,
    NOT_IDEMPOTENT,
    SEQUENCES,
    BatchHeader,
    Compression,
    ProducerNumbers,
)
from headrace.core.replication.producers import Producers
from headrace.core.types import Offset
from tests.support.examples import examples

PLACE = TopicPartition("flights", 0)
TIMEOUT_MS = 1_000
OPTIONS = ProducerOptions("all", 0, 1 << 20, 1 << 30, Compression.NONE, None, TIMEOUT_MS, 1_000, is_idempotent=True)
GONE = BrokerUnreachableError("the connection is lost")
MISSING = OutOfOrderSequenceError("expected is 0")


def rows(count: int = 1) -> ThreadRows:
    batch = ThreadRows(PLACE, 0)
    for _ in range(count):
        batch.add((None, b"v", 0, ()))
        batch.size_bytes += 30
    return batch


def numbered(sequences: Sequences, *counts: int) -> list[ProducerNumbers]:
    batches = [rows(count) for count in counts]
    for batch in batches:
        sequences.number(batch)
    return [batch.numbers for batch in batches]


def test_should_count_records() -> None:
    assert numbered(Sequences(7), 3, 2, 1) == [(7, 0, 0), (7, 0, 3), (7, 0, 5)]


def test_should_number_nothing_when_the_producer_is_not_idempotent() -> None:
    batch = rows()
    Sequences(NO_PRODUCER).number(batch)
    assert batch.numbers is NOT_IDEMPOTENT


def test_should_go_on_at_zero_after_the_last_sequence() -> None:
    assert numbered(Sequences(7, 0, SEQUENCES - 1), 2, 1) == [(7, 0, SEQUENCES - 1), (7, 0, 1)]


def test_should_begin_a_new_epoch_after_a_batch_is_left_out_and_a_new_id_after_the_last_epoch() -> None:
    sequences, batch = Sequences(7), rows()
    sequences.leave_out(batch)
    assert sequences.epoch == 0, "it never had a number"
    sequences.number(batch)
    sequences.leave_out(batch)
    sequences.leave_out(batch)
    assert (sequences.epoch, sequences.next_sequence) == (1, 0)

    sequences = Sequences((1 << 63) - 1, (1 << 15) - 1)
    sequences.number(batch)
    sequences.leave_out(batch)
    assert (sequences.producer_id, sequences.epoch) == (0, 0)


def test_should_keep_the_numbers_of_what_may_be_written() -> None:
    sequences, sure, unsure = Sequences(7), rows(), rows()
    for batch in (unsure, sure):
        sequences.number(batch)
    unsure.may_be_written = True
    sequences.leave_out(unsure)
    for batch in (unsure, sure):
        sequences.number(batch)
    assert (unsure.numbers, sure.numbers) == ((7, 0, 0), (7, 1, 0))


@pytest.mark.parametrize(
    ("error", "unsure"),
    [(GONE, True), (NotLeaderError("no"), True), (RemoteError("HTTP 502"), True), (ThrottledError("wait"), False)],
)
def test_should_know_after_which_answers_a_batch_may_be_written(error: HeadraceError, unsure: bool) -> None:
    assert Refused.request(rows(), error).may_be_written is unsure


def sending() -> InFlight[ThreadRows]:
    return InFlight(OPTIONS, ThreadRows, Trouble())


def queue(plan: InFlight[ThreadRows], now_ms: int = 0) -> None:
    batch = plan.accumulator.new_rows(PLACE, 30, now_ms)
    batch.add((None, b"v", 0, ()))
    plan.accumulator.put_rows(batch)
    plan.accumulator.close_batches()


def test_should_have_no_more_on_its_way_than_brokers_remember() -> None:
    plan = sending()
    plan.pipeline(PLACE)
    for _ in range(PRODUCER_BATCHES_REMEMBERED + 1):
        queue(plan)
    assert len(plan.due(0).send) == PRODUCER_BATCHES_REMEMBERED


def test_should_send_under_other_numbers_what_a_broker_misses_the_batch_before_of() -> None:
    plan = sending()
    plan.pipeline(PLACE)
    for _ in range(2):
        queue(plan)
    first, second = plan.due(0).send
    verdict = plan.judge(Refused(PLACE, MISSING, [first, second], may_be_written=False), 0)
    assert verdict.again is not None
    plan.put_back(verdict.again)
    (again,) = plan.due(TIMEOUT_MS).send
    assert again is first
    assert again.numbers[1:] == (1, 0)


def test_should_give_up_what_a_broker_misses_the_batch_before_of_when_it_may_be_written() -> None:
    plan = sending()
    queue(plan)
    (batch,) = plan.due(0).send
    verdict = plan.judge(Refused.request(batch, GONE), 0)
    assert verdict.again is not None
    plan.put_back(verdict.again)
    plan.due(TIMEOUT_MS)
    verdict = plan.judge(Refused.request(batch, MISSING), TIMEOUT_MS)
    assert verdict.failed is not None
    assert verdict.failed[1].message.startswith("records for flights/0 may be written or not: an earlier attempt")


def test_should_blame_no_batch_behind_one_that_is_refused_for_itself() -> None:
    plan = sending()
    plan.pipeline(PLACE)
    for _ in range(2):
        queue(plan)
    first, second = plan.due(0).send
    verdict = plan.judge(Refused(PLACE, BatchTooLargeError("no"), [first, second], may_be_written=False), 0)
    assert verdict.again is not None
    assert verdict.failed is not None
    assert (verdict.again.batches, verdict.failed[0]) == ([second], first)
    plan.put_back(verdict.again)
    plan.given_up(*verdict.failed)
    (again,) = plan.due(0).send
    assert again.numbers[1:] == (1, 0)


@dataclass
class Broker:
    """One partition; what it writes is seen by `log`."""

    producers: Producers = field(default_factory=Producers)
    log: list[tuple[int, BatchHeader]] = field(default_factory=list)
    """The number of the record, and the header of its batch."""

    def receive(self, value: int, header: BatchHeader) -> int:
        """The offset. Raises what a broker answers."""
        end = Offset(len(self.log))
        found = self.producers.repeated([header], end)
        if found:
            return found[0].base_offset
        stamped = header._replace(base_offset=end)
        self.log.append((value, stamped))
        self.producers.note(stamped, 0)
        return end

    def cut(self, end: int) -> None:
        del self.log[end:]
        self.producers.cut(Offset(end))


@dataclass
class Channel:
    """Frames on their way to the broker, in order. `is_lost`: the client has given it up, they may arrive or not."""

    frames: deque[tuple[Batch, BatchHeader]] = field(default_factory=deque)
    is_lost: bool = False
    has_failed: bool = False
    """The broker skips all that follows."""


class Client:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.plan = sending()
        self.channels: list[Channel] = []
        self.values: dict[int, int] = {}
        """Of each batch, by its id: the record that it has."""
        self.delivered: dict[int, int] = {}
        self.failed: set[int] = set()
        self.now_ms = 0

    def send(self, value: int) -> None:
        batch = self.plan.accumulator.new_rows(PLACE, 30, self.now_ms)
        batch.add((None, b"v", 0, ()))
        self.plan.accumulator.put_rows(batch)
        self.values[id(batch)] = value
        self.plan.accumulator.close_batches()

    def drain(self) -> None:
        due = self.plan.due(self.now_ms)
        for batch, error in due.expired:
            self.give_up(batch, error)
        for batch in due.send:
            if not self.channels or self.channels[-1].is_lost or self.channels[-1].has_failed:
                self.channels.append(Channel())
                self.plan.pipeline(PLACE)
            header = BatchHeader.unpack(b"".join(batch.encoded(Compression.NONE)))
            self.channels[-1].frames.append((batch, header))

    def arrive(self, channel: Channel, *, answer: bool, refuse: HeadraceError | None = None) -> None:
        """The next frame comes to the broker; its answer comes to the client, or all is lost."""
        batch, header = channel.frames.popleft()
        if channel.has_failed:
            return
        outcome: Outcome
        try:
            if refuse is not None:
                raise refuse
            outcome = Arrived(batch, self.broker.receive(self.values[id(batch)], header))
        except HeadraceError as error:
            channel.has_failed = True
            outcome = Refused(PLACE, error, [batch, *(each for each, _ in channel.frames)], may_be_written=False)
        if channel.is_lost:
            return
        if answer:
            self.hear(outcome)
        else:
            channel.frames.appendleft((batch, header))
            self.lose(channel)
            channel.frames.popleft()

    def lose(self, channel: Channel) -> None:
        channel.is_lost = True
        if channel.frames:
            self.hear(Refused(PLACE, GONE, [batch for batch, _ in channel.frames], may_be_written=True))

    def hear(self, outcome: Outcome) -> None:
        verdict = self.plan.judge(outcome, self.now_ms)
        if verdict.again is not None:
            self.plan.put_back(verdict.again)
        if verdict.failed is not None:
            self.give_up(*verdict.failed)
        if verdict.delivered is not None:
            batch, offset = verdict.delivered
            self.delivered[self.values[id(batch)]] = offset
            self.plan.arrived(batch)

    def give_up(self, batch: Batch, error: HeadraceError) -> None:
        self.failed.add(self.values[id(batch)])
        self.plan.given_up(batch, error)


@pytest.mark.parametrize("late_first", [True, False])
def test_should_not_write_twice_what_comes_late_after_the_batch_before_was_given_up(late_first: bool) -> None:
    client = Client(broker := Broker())
    client.send(0)
    client.drain()
    client.arrive(client.channels[0], answer=True)
    client.send(1)
    client.send(2)
    client.drain()
    late = client.channels[0]
    client.lose(late)
    client.now_ms += TIMEOUT_MS
    client.drain()
    client.arrive(client.channels[1], answer=True, refuse=ThrottledError("wait"))
    assert client.failed == {1}
    client.drain()
    if not late_first:
        client.arrive(client.channels[2], answer=True)
        client.now_ms += TIMEOUT_MS
    while late.frames:
        client.arrive(late, answer=False)
    client.send(3)
    while client.plan.accumulator.waiting_batches():
        client.drain()
        client.arrive(client.channels[-1], answer=True)
    assert [value for value, _ in broker.log] == [0, 1, 2, 3]
    assert client.failed == ({1} if late_first else {1, 2})


@examples(3)
@given(st.data())
def test_should_write_once_and_in_order_whatever_the_network_does(data: st.DataObject) -> None:
    client = Client(broker := Broker())
    count = 0
    moves = ["send", "arrive", "arrive", "lose answer", "lose", "late", "refuse", "throttle", "wait", "cut"]
    for move in data.draw(st.lists(st.sampled_from(moves), max_size=60), label="moves"):
        now = client.channels[-1] if client.channels and not client.channels[-1].is_lost else None
        late = [channel for channel in client.channels if channel.is_lost and channel.frames]
        match move:
            case "send":
                client.send(count)
                count += 1
            case "lose" if now and not now.has_failed:
                client.lose(now)
            case "late" if late:
                client.arrive(data.draw(st.sampled_from(late), label="which"), answer=False)
            case "wait":
                client.now_ms += data.draw(st.sampled_from([50, TIMEOUT_MS]))
            case "cut":  # Another broker leads: what nobody has heard of may be gone.
                broker.cut(max(client.delivered.values(), default=-1) + 1)
            case _ if now and now.frames:
                errors = {"refuse": BatchTooLargeError("no"), "throttle": ThrottledError("wait")}
                client.arrive(now, answer=move != "lose answer", refuse=errors.get(move))
        client.drain()
        written = [value for value, _ in broker.log]
        assert len(set(written)) == len(written), "nothing is written twice"
        assert all(written[offset] == value for value, offset in client.delivered.items())
    while client.plan.accumulator.waiting_batches():
        client.now_ms += 50
        client.drain()
        while client.channels[-1].frames:
            client.arrive(client.channels[-1], answer=True)
    written = [value for value, _ in broker.log]
    assert written == sorted(written), "in the order of send"
    assert len(set(written)) == len(written)
    assert set(client.delivered) | client.failed == set(range(count)), "each is told"
    assert set(client.delivered) <= set(written)


def test_should_have_its_errors_told_apart_by_what_helps() -> None:
    assert not OutOfOrderSequenceError.retriable
    assert not FencedProducerError.retriable
